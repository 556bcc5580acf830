//! systemd-oomd: `oomd.conf`, and the `ManagedOOM` settings of units.

use super::{ImportError, Page, Tenths};

/// As systemd has them.
const SWAP_USED: Tenths = Tenths(900);
const PRESSURE: Tenths = Tenths(600);
const PRESSURE_MS: u64 = 30_000;

pub(super) fn import(text: &str) -> Result<Page, ImportError> {
    let mut page = Page::default();
    let (mut used, mut pressure, mut within_ms) = (SWAP_USED, PRESSURE, PRESSURE_MS);
    let mut is_oom = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if line.starts_with('[') {
            is_oom = line == "[OOM]";
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim(), value.trim());
        match key {
            // An empty value is systemd's for the default.
            "SwapUsedLimit" | "DefaultMemoryPressureLimit" | "DefaultMemoryPressureDurationSec"
                if value.is_empty() => {}
            "SwapUsedLimit" => used = share(key, value)?,
            "DefaultMemoryPressureLimit" => pressure = share(key, value)?,
            "DefaultMemoryPressureDurationSec" => within_ms = span_ms(key, value)?,
            key if key.starts_with("ManagedOOM") => page.missing(line, managed(key)),
            _ if is_oom => page.missing(line, "not known"),
            _ => {}
        }
    }
    let left = Tenths(1000_u32.saturating_sub(used.0));
    page.comment("SwapUsedLimit: more than this of memory and of swap in use. Here it is what is left, and of memory the");
    page.comment("share of MemAvailable + AnonPages. systemd-oomd sends no SIGTERM, and ends a cgroup; here it is the largest process.");
    page.key("memory_max", "\"1T\"");
    for name in ["term_memory", "kill_memory"] {
        page.key(name, left.within(999));
    }
    for name in ["term_swap", "kill_swap"] {
        page.key(name, left.within(1000));
    }
    page.comment("DefaultMemoryPressureLimit and -DurationSec: of a cgroup whose unit asks for it. Here it is the machine's, and only");
    page.comment("while memory is at term_memory.");
    page.key("stall", pressure.within(1000));
    page.key("stall_ms", within_ms.clamp(500, 60_000));
    if within_ms > 60_000 {
        page.comment("It is 60 s at most.");
    }
    Ok(page)
}

/// `90%`, `900‰`, `9000‱`.
fn share(key: &str, value: &str) -> Result<Tenths, ImportError> {
    let number = |suffix: &str| value.strip_suffix(suffix).map(str::trim);
    let of = |digits: &str, of_tenth: u32| digits.parse::<u32>().ok()?.checked_div(of_tenth).map(Tenths);
    let read = match (number("%"), number("‰"), number("‱")) {
        (Some(percent), ..) => Tenths::parse(percent),
        (_, Some(permille), _) => of(permille, 1),
        (.., Some(permyriad)) => of(permyriad, 10),
        _ => None,
    };
    read.filter(|tenths| tenths.0 <= 1000)
        .ok_or_else(|| ImportError::value(key, value, "a share such as 90%"))
}

/// `30`, `30s`, `1min 30s`, `500ms`.
fn span_ms(key: &str, value: &str) -> Result<u64, ImportError> {
    let wrong = || ImportError::value(key, value, "a span such as 30s");
    let mut total = 0_u64;
    let mut rest = value;
    while !rest.trim_start().is_empty() {
        rest = rest.trim_start();
        let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at_checked(digits).ok_or_else(wrong)?;
        let after = after.trim_start();
        let letters = after.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(letters).ok_or_else(wrong)?;
        let unit_ms = match unit {
            "" | "s" | "sec" | "second" | "seconds" => 1000,
            "ms" | "msec" => 1,
            "m" | "min" | "minute" | "minutes" => 60_000,
            "h" | "hr" | "hour" | "hours" => 3_600_000,
            _ => return Err(wrong()),
        };
        let number = number.parse::<u64>().map_err(|_no_number| wrong())?;
        total = total.saturating_add(number.saturating_mul(unit_ms));
        rest = after;
    }
    if total == 0 { Err(wrong()) } else { Ok(total) }
}

fn managed(key: &str) -> &'static str {
    match key {
        "ManagedOOMPreference" => "the daemon reads it from the unit as it is: nothing to write",
        "ManagedOOMSwap" | "ManagedOOMMemoryPressure" => {
            "all processes of the machine are compared; [protect] and [[rules]] say who is not"
        }
        _ => "pressure is the machine's; a line ([limits.cgroups]) bounds what a cgroup uses",
    }
}
