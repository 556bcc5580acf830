//! `/proc/locks`: who would be told, or waited for, when a file is opened.

use super::field::{decimal, hexadecimal, split_once, words};

/// A lease that ends when the file is opened for reading: its holder is told at once, and asked to let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteLease {
    /// The file's device as the kernel keeps it, `major << 20 | minor`.
    pub device: u32,
    /// Its inode.
    pub inode: u64,
}

/// Reads one line of `/proc/locks` (proc_locks(5)); `None` for any lock that reading a file does not disturb, and for
/// a line that is not understood.
///
/// `LEASE` is a file server's or a program's own (`fcntl(2)`, `F_SETLEASE`), `DELEG` an NFS server's. One that is just
/// being given up is `BREAKING`.
#[must_use]
pub fn parse_write_lease(line: &[u8]) -> Option<WriteLease> {
    let mut words = words(line).skip(1).peekable();
    // A request that waits for the lock of the line before.
    words.next_if(|word| *word == b"->");
    if !matches!(words.next()?, b"LEASE" | b"DELEG") {
        return None;
    }
    // ACTIVE, BREAKING or BREAKER comes between; then what is held, and by whom.
    if words.nth(1)? != b"WRITE" {
        return None;
    }
    let (major, rest) = split_once(words.nth(1)?, b':')?;
    let (minor, inode) = split_once(rest, b':')?;
    let major = u32::try_from(hexadecimal(major)?).ok().filter(|major| *major < 1 << 12)?;
    let minor = u32::try_from(hexadecimal(minor)?).ok().filter(|minor| *minor < 1 << 20)?;
    Some(WriteLease { device: major << 20 | minor, inode: decimal(inode)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leases_that_a_reader_would_break_are_told() {
        let lease = parse_write_lease(b"1: LEASE  ACTIVE    WRITE 812 fe:01:131074 0 EOF");
        assert_eq!(lease, Some(WriteLease { device: 0xfe << 20 | 1, inode: 131_074 }));
        for other in [
            b"1: LEASE  ACTIVE    READ  812 fe:01:131074 0 EOF".as_slice(),
            b"2: POSIX  ADVISORY  WRITE 812 fe:01:131074 0 EOF",
            b"3: FLOCK  ADVISORY  WRITE 812 fe:01:131074 0 EOF",
            b"",
        ] {
            assert_eq!(parse_write_lease(other), None);
        }
    }

    #[test]
    fn a_line_that_is_not_understood_is_no_lease() {
        for line in ["1: LEASE ACTIVE WRITE 812 fe:01 0 EOF", "1: LEASE ACTIVE WRITE", "LEASE"] {
            assert_eq!(parse_write_lease(line.as_bytes()), None, "{line}");
        }
    }
}
