//! `/proc/uptime`: for how long the machine runs, and for how long its CPUs were idle.

use super::{
    WireError,
    field::{decimal, split_once, words},
};
use plimsoll_policy::units::Nanos;

const FILE: &str = "/proc/uptime";

/// Reads off `/proc/uptime` the idle time of all CPUs together since boot, good to a hundredth of a second.
///
/// # Errors
/// [`WireError::Missing`] when there is no second word, [`WireError::Malformed`] when it is not of the form `12.34`.
pub fn parse_idle(text: &[u8]) -> Result<Nanos, WireError> {
    let word = words(text.trim_ascii_end()).nth(1).ok_or(WireError::missing(FILE, "idle"))?;
    let seconds = split_once(word, b'.').and_then(|(whole, hundredths)| {
        let hundredths = decimal(hundredths).filter(|_| hundredths.len() == 2)?;
        let whole = decimal(whole)?.checked_mul(1_000_000_000)?;
        whole.checked_add(hundredths.checked_mul(10_000_000)?)
    });
    seconds.map(Nanos).ok_or_else(|| WireError::malformed(FILE, "idle", "seconds with two decimals", word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_the_idle_time() {
        assert_eq!(parse_idle(b"45814.96 28934.44\n").unwrap(), Nanos(28_934_440_000_000));
        assert_eq!(parse_idle(b"0.00 0.05").unwrap(), Nanos(50_000_000));
    }

    #[test]
    fn what_is_no_time_is_an_error() {
        for text in ["", "1.00", "1.00 2", "1.00 2.5", "1.00 2.5x", "1.00 -2.50", "1.00 99999999999999.00"] {
            parse_idle(text.as_bytes()).unwrap_err();
        }
    }
}
