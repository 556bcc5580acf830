//! Sizes as people write them: `512M`, `1.5G`, `25%`, plain bytes.
//!
//! A percentage stays a percentage until it is resolved, so that a line of `25%` means a quarter of whatever RAM the
//! machine has when it boots.

use crate::{
    human,
    units::{Bytes, part},
};
use alloc::string::{String, ToString};
use core::{fmt, str::FromStr};
use serde::{Deserialize, Serialize, de};

/// One hundred percent in [`Permyriad`].
const WHOLE: u16 = 10_000;

/// Units by spelling, in lower case. `m` is a power of 1024 like `mib`; `mb` is a power of 1000.
const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1_000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
];

/// Parts in ten thousand, 0 to 10000: a percentage with two decimals, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permyriad(u16);

impl Permyriad {
    /// `None` above 10000, which is 100 %.
    #[must_use]
    pub const fn new(parts: u16) -> Option<Self> {
        if parts <= WHOLE { Some(Self(parts)) } else { None }
    }

    /// The parts in ten thousand.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// A size: bytes, or a share of the machine's RAM. 0 parses; [`crate::lines::validate`] refuses it as a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Size {
    /// So many bytes.
    Bytes(Bytes),
    /// A share of `MemTotal`.
    OfRam(Permyriad),
}

impl Size {
    /// In bytes, on a machine with `mem_total` of RAM; a share is rounded down.
    #[must_use]
    pub fn resolve(self, mem_total: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            // A share fits the number that its whole fits, which is its upper bound.
            Self::OfRam(share) => {
                Bytes(part(mem_total.0, share.0.into(), WHOLE.into()).unwrap_or(mem_total.0))
            }
        }
    }
}

/// Why a text is not a size. Displays as one line that names the input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("size '{}': {kind}", human::escaped(.input))]
pub struct SizeError {
    /// The text as it was given.
    pub input: String,
    /// What is wrong with it.
    pub kind: SizeErrorKind,
}

/// What is wrong with a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeErrorKind {
    /// Nothing was given.
    #[error("nothing given; write for example 512M, 1.5G or 25%")]
    Empty,
    /// A minus sign.
    #[error("a size cannot be negative")]
    Negative,
    /// It does not begin with a number, or the number is malformed.
    #[error("not a number; write for example 512M, 1.5G or 25%")]
    NotANumber,
    /// The letters after the number are no unit.
    #[error("unknown unit '{}'; units are K, M, G, T (powers of 1024), KB, MB, GB, TB (powers of 1000) and \
     %", human::escaped(.0))]
    UnknownUnit(String),
    /// More decimals than the unit can hold.
    #[error("too many decimals; bytes take none, % takes 2, other units take 6")]
    Decimals,
    /// Above 100 %.
    #[error("more than 100% of RAM")]
    OverWhole,
    /// Does not fit 64 bits.
    #[error("too large; the largest size is 16777215T")]
    Overflow,
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(input: &str) -> Result<Self, SizeError> {
        parse(input).map_err(|kind| SizeError { input: input.to_string(), kind })
    }
}

/// The digits before and after the decimal point.
struct Number<'a> {
    whole: &'a str,
    decimals: &'a str,
}

fn parse(input: &str) -> Result<Size, SizeErrorKind> {
    if input.is_empty() {
        return Err(SizeErrorKind::Empty);
    }
    if input.starts_with('-') {
        return Err(SizeErrorKind::Negative);
    }
    let end = input.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(input.len());
    let (digits, unit) = input.split_at_checked(end).ok_or(SizeErrorKind::NotANumber)?;
    let (whole, decimals) = match digits.split_once('.') {
        Some((_, "")) => return Err(SizeErrorKind::NotANumber),
        Some(parts) => parts,
        None => (digits, ""),
    };
    if whole.is_empty() || decimals.contains('.') {
        return Err(SizeErrorKind::NotANumber);
    }
    let number = Number { whole, decimals };
    if unit == "%" {
        return percent(&number);
    }
    let lower = unit.to_ascii_lowercase();
    let (_, factor) = UNITS
        .iter()
        .find(|(name, _)| *name == lower)
        .ok_or_else(|| SizeErrorKind::UnknownUnit(unit.to_string()))?;
    number.times(*factor).map(|bytes| Size::Bytes(Bytes(bytes)))
}

fn percent(number: &Number<'_>) -> Result<Size, SizeErrorKind> {
    if number.decimals.len() > 2 {
        return Err(SizeErrorKind::Decimals);
    }
    let parts = match number.times(100) {
        Ok(parts) => parts,
        Err(SizeErrorKind::Overflow) => return Err(SizeErrorKind::OverWhole),
        Err(other) => return Err(other),
    };
    let share = u16::try_from(parts).ok().and_then(Permyriad::new).ok_or(SizeErrorKind::OverWhole)?;
    Ok(Size::OfRam(share))
}

impl Number<'_> {
    /// The number times `factor`, rounded down.
    fn times(&self, factor: u64) -> Result<u64, SizeErrorKind> {
        if self.decimals.len() > 6 || (factor == 1 && !self.decimals.is_empty()) {
            return Err(SizeErrorKind::Decimals);
        }
        let (mut mantissa, mut scale) = (0_u128, 1_u128);
        for (digits, scaling) in [(self.whole, 1), (self.decimals, 10)] {
            for digit in digits.bytes() {
                let value = u128::from(digit.wrapping_sub(b'0'));
                mantissa = mantissa
                    .checked_mul(10)
                    .and_then(|sum| sum.checked_add(value))
                    .ok_or(SizeErrorKind::Overflow)?;
                scale = scale.saturating_mul(scaling);
            }
        }
        mantissa
            .checked_mul(u128::from(factor))
            .and_then(|product| product.checked_div(scale))
            .and_then(|bytes| u64::try_from(bytes).ok())
            .ok_or(SizeErrorKind::Overflow)
    }
}

impl fmt::Display for Size {
    /// The shortest exact form; parses back to the same value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes(Bytes(bytes)) => {
                for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
                    if bytes > 0 && bytes.trailing_zeros() >= shift {
                        return write!(f, "{}{unit}", bytes >> shift);
                    }
                }
                write!(f, "{bytes}")
            }
            Self::OfRam(Permyriad(parts)) => {
                let (whole, rest) = (parts.wrapping_div(100), parts.wrapping_rem(100));
                match (rest, rest.wrapping_rem(10)) {
                    (0, _) => write!(f, "{whole}%"),
                    (_, 0) => write!(f, "{whole}.{}%", rest.wrapping_div(10)),
                    _ => write!(f, "{whole}.{rest:02}%"),
                }
            }
        }
    }
}

impl Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    /// From the text, or from a plain number of bytes.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl de::Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"512M\", \"25%\" or a number of bytes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size::Bytes(Bytes(bytes)))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
        self.visit_str(&bytes.to_string())
    }
}

#[cfg(test)]
mod tests;
