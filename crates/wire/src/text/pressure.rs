//! Pressure stall information: `/proc/pressure/memory` and a cgroup's `memory.pressure`.

use super::{
    WireError,
    field::{decimal, decimal_u32, lines, split_once, words},
};

const FILE: &str = "pressure file";

/// One line. The shares are permyriad (hundredths of a percent, the kernel's own precision): 10,000 is all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PressureLine {
    /// Share of the last 10 s.
    pub avg10_permyriad: u32,
    /// Stalled time since boot, or since the cgroup was made, in microseconds.
    pub total_us: u64,
}

/// Both lines of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task was stalled.
    pub some: PressureLine,
    /// All tasks were stalled at once.
    pub full: PressureLine,
}

/// Reads a pressure file. Lines it does not know are skipped.
///
/// # Errors
/// [`WireError::Missing`] when a line or a part of one is not there, [`WireError::Malformed`] when a
/// part is not of the form `avg10=0.12` or `total=345`.
pub fn parse_pressure(text: &[u8]) -> Result<Pressure, WireError> {
    let (mut some, mut full) = (None, None);
    for line in lines(text) {
        if let Some(rest) = line.strip_prefix(b"some ") {
            some.get_or_insert(parse_line(rest)?);
        } else if let Some(rest) = line.strip_prefix(b"full ") {
            full.get_or_insert(parse_line(rest)?);
        }
    }
    Ok(Pressure {
        some: some.ok_or(WireError::missing(FILE, "some line"))?,
        full: full.ok_or(WireError::missing(FILE, "full line"))?,
    })
}

fn parse_line(line: &[u8]) -> Result<PressureLine, WireError> {
    let (mut avg10, mut total) = (None, None);
    for (key, value) in words(line).filter_map(|word| split_once(word, b'=')) {
        match key {
            b"avg10" => avg10 = Some(permyriad("avg10", value)?),
            b"total" => {
                let micros = decimal(value)
                    .ok_or_else(|| WireError::malformed(FILE, "total", "a number of microseconds", value))?;
                total = Some(micros);
            }
            _ => {}
        }
    }
    Ok(PressureLine {
        avg10_permyriad: avg10.ok_or(WireError::missing(FILE, "avg10"))?,
        total_us: total.ok_or(WireError::missing(FILE, "total"))?,
    })
}

/// `12.34` as 1234. The kernel always writes two decimals (`LOAD_FRAC`); it may round a full share up past 100.
fn permyriad(field: &'static str, value: &[u8]) -> Result<u32, WireError> {
    split_once(value, b'.')
        .filter(|(_, hundredths)| hundredths.len() == 2)
        .and_then(|(whole, hundredths)| {
            decimal_u32(whole)?.checked_mul(100)?.checked_add(decimal_u32(hundredths)?)
        })
        .ok_or_else(|| WireError::malformed(FILE, field, "a percentage with two decimals", value))
}

#[cfg(test)]
mod tests;
