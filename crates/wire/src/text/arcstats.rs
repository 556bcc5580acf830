//! `/proc/spl/kstat/zfs/arcstats`: the cache of ZFS, which no line of `/proc/meminfo` counts as available.

use super::{
    WireError,
    field::{decimal, lines, words},
};
use plimsoll_policy::units::Bytes;

const FILE: &str = "arcstats";

/// Reads how much the cache gives up when memory is asked for: what it has, less the least that it keeps (`size` less `c_min`).
///
/// # Errors
/// [`WireError::Malformed`] when one of the two is no number; [`WireError::Missing`] when it is not there.
pub fn parse_arcstats(text: &[u8]) -> Result<Bytes, WireError> {
    let value = |wanted: &'static str| {
        let mut all = lines(text).map(words);
        // Name, type, value.
        let found = all.find_map(|mut line| (line.next()? == wanted.as_bytes()).then(|| line.nth(1)));
        let value = found.flatten().ok_or(WireError::missing(FILE, wanted))?;
        decimal(value)
            .ok_or_else(|| WireError::malformed(FILE, wanted, "a number that fits in 64 bits", value))
    };
    Ok(Bytes(value("size")?.saturating_sub(value("c_min")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As OpenZFS 2.2 prints it.
    const STATS: &[u8] =
        b"9 1 0x01 147 39984 3868234934 1437932483931\nname                            type data\n\
        hits                            4    14\nc                               4    1055850496\n\
        c_min                           4    262144000\nc_max                           4    4194304000\n\
        size                            4    900000000\n";

    #[test]
    fn what_it_has_less_what_it_keeps_is_given_up() {
        assert_eq!(parse_arcstats(STATS), Ok(Bytes(637_856_000)));
        let small = b"size 4 10\nc_min 4 20\n";
        assert_eq!(parse_arcstats(small), Ok(Bytes(0)));
    }

    #[test]
    fn a_line_that_is_missing_or_no_number_is_told() {
        assert_eq!(parse_arcstats(b"size 4 10\n"), Err(WireError::missing(FILE, "c_min")));
        assert_eq!(parse_arcstats(b"c_min 4 10\nsize 4\n"), Err(WireError::missing(FILE, "size")));
        let odd = parse_arcstats(b"size 4 -1\nc_min 4 1\n").unwrap_err();
        assert!(odd.to_string().contains("size"), "{odd}");
    }
}
