//! Points in time as people write them: `2026-11-21T08:00:00Z`, `2026-11-21`, `2h`.

use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};
use plimsoll_policy::human;

/// A text that is no point in time.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "time '{}' is not understood; write 2026-11-21T08:00:00Z, 2026-11-21, or how long ago: 30s, 15m, 2h, 7d, 4w",
    human::escaped(.0)
)]
pub(crate) struct UnknownTime(String);

/// Reads `text`, given that it is `now` and that a date alone means its first moment in `zone`.
pub(crate) fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, UnknownTime> {
    ago(text, now)
        .or_else(|| text.parse::<Timestamp>().ok())
        .or_else(|| Some(text.parse::<Date>().ok()?.to_zoned(zone.clone()).ok()?.timestamp()))
        .ok_or_else(|| UnknownTime(text.to_owned()))
}

/// `2h` is two hours before `now`; what lies before the earliest representable time is that time.
fn ago(text: &str, now: Timestamp) -> Option<Timestamp> {
    let seconds = seconds(text)?;
    Some(now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN))
}

/// `2h` in seconds.
pub(crate) fn seconds(text: &str) -> Option<i64> {
    let (count, unit_seconds) = match text.char_indices().last()? {
        (end, 's') => (text.get(..end)?, 1),
        (end, 'm') => (text.get(..end)?, 60),
        (end, 'h') => (text.get(..end)?, 3_600),
        (end, 'd') => (text.get(..end)?, 86_400),
        (end, 'w') => (text.get(..end)?, 604_800),
        _ => return None,
    };
    if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    count.parse::<i64>().ok()?.checked_mul(unit_seconds)
}

#[cfg(test)]
mod tests;
