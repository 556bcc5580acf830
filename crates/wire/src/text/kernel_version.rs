//! `/proc/sys/kernel/osrelease`: which kernel runs.

use super::{
    WireError,
    field::{decimal_u32, split_once},
};
use core::fmt;

const FILE: &str = "/proc/sys/kernel/osrelease";

/// A kernel's version, without what the distribution put behind it. Ordered as versions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// 6 of `6.1.0-18-amd64`.
    pub major: u32,
    /// 1 of `6.1.0-18-amd64`.
    pub minor: u32,
    /// 0 of `6.1.0-18-amd64`, and of `6.19-rc3`, which has none.
    pub patch: u32,
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Reads `/proc/sys/kernel/osrelease`. A distribution's number is not an upstream one: RHEL's 5.14 has much that
/// is newer, so ask for a feature by probing wherever it can be probed.
///
/// # Errors
/// [`WireError::Malformed`] when it does not begin with two numbers and a dot between them.
pub fn parse_osrelease(text: &[u8]) -> Result<KernelVersion, WireError> {
    let release = text.trim_ascii();
    let malformed = || WireError::malformed(FILE, "release", "major.minor[.patch]", release);
    let (major, rest) = split_once(release, b'.').ok_or_else(malformed)?;
    let (minor, rest) = split_digits(rest);
    let patch = match rest.strip_prefix(b".").map(split_digits) {
        Some((digits, _)) if !digits.is_empty() => decimal_u32(digits).ok_or_else(malformed)?,
        Some(_) | None => 0,
    };
    Ok(KernelVersion {
        major: decimal_u32(major).ok_or_else(malformed)?,
        minor: decimal_u32(minor).ok_or_else(malformed)?,
        patch,
    })
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, &[]))
}

#[cfg(test)]
mod tests;
