//! `/proc/PID/maps`: what a process has mapped where (proc_pid_maps(5)).

use super::{
    WireError,
    field::{hexadecimal, split_once, words},
};

const FILE: &str = "/proc/PID/maps";

/// One mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Its first address.
    pub start: u64,
    /// The first address after it: never below `start`.
    pub end: u64,
    /// It can be written to.
    pub writable: bool,
    /// A write is this process's own, seen by no other.
    pub private: bool,
    /// The file behind it, by its number; 0 where there is none.
    pub inode: u64,
    /// The file's path, `[heap]` and the like, or nothing. Raw bytes, up to the first blank.
    pub name: &'a [u8],
}

impl Mapping<'_> {
    /// How long it is, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Memory of the process's own making, which only swap can take: private, writable, without a file. Not its
    /// stack, which it is about to use, and not what the kernel put there (`[vvar]`).
    #[must_use]
    pub fn is_own_memory(&self) -> bool {
        let named_by_program =
            self.name.is_empty() || self.name.starts_with(b"[anon:") || self.name == b"[heap]";
        self.private && self.writable && self.inode == 0 && named_by_program
    }
}

/// Reads one line of `/proc/PID/maps`.
///
/// # Errors
/// [`WireError::Missing`] when the line ends before the file's number; [`WireError::Malformed`] when a part is not
/// what it should be, or the mapping ends before it begins.
pub fn parse_mapping(line: &[u8]) -> Result<Mapping<'_>, WireError> {
    let mut words = words(line);
    let addresses = words.next().ok_or(WireError::missing(FILE, "address"))?;
    let (start, end) = split_once(addresses, b'-')
        .and_then(|(start, end)| Some((hexadecimal(start)?, hexadecimal(end)?)))
        .filter(|(start, end)| start <= end)
        .ok_or_else(|| WireError::malformed(FILE, "address", "two rising hexadecimal numbers", addresses))?;
    let rights = words.next().ok_or(WireError::missing(FILE, "rights"))?;
    let &[_, write, _, sharing] = rights else {
        return Err(WireError::malformed(FILE, "rights", "four letters", rights));
    };
    // Offset and device come next.
    let inode = words.nth(2).ok_or(WireError::missing(FILE, "inode"))?;
    let inode = super::field::decimal(inode)
        .ok_or_else(|| WireError::malformed(FILE, "inode", "a number that fits in 64 bits", inode))?;
    let name = words.next().unwrap_or(b"");
    Ok(Mapping { start, end, writable: write == b'w', private: sharing == b'p', inode, name })
}

#[cfg(test)]
mod tests;
