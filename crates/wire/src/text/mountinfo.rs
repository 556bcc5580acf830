//! `/proc/self/mountinfo`: what is mounted where.

use super::{
    WireError,
    field::{decimal_u32, lines, split_once, words},
};

const FILE: &str = "/proc/self/mountinfo";

/// One mount. Raw bytes, as the kernel escapes them (`\040` for a space).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mount<'a> {
    /// Its number, unique while it is mounted: what `statx(2)` calls `stx_mnt_id`.
    pub id: u32,
    /// The filesystem's device as the kernel keeps it, `major << 20 | minor`: the superblock's, which for btrfs is not
    /// the `st_dev` of its files.
    pub device: u32,
    /// Which folder of the filesystem is seen there: `/` for the whole of it.
    pub root: &'a [u8],
    /// Where it is mounted.
    pub mount_point: &'a [u8],
    /// Its options at that place, comma-separated.
    pub options: &'a [u8],
    /// The type of its filesystem.
    pub filesystem: &'a [u8],
    /// What it was mounted from, as whoever mounted it said, escaped as paths are; empty where nothing was said.
    pub source: &'a [u8],
}

/// Reads one line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
///
/// # Errors
/// [`WireError::Missing`] when the line ends before the filesystem's type, or a number of it is none.
pub fn parse_mount(line: &[u8]) -> Result<Mount<'_>, WireError> {
    let mut words = words(line);
    let id = words.next().and_then(decimal_u32).ok_or(WireError::missing(FILE, "mount id"))?;
    // The parent's number lies between.
    let device = words.nth(1).and_then(kernel_device).ok_or(WireError::missing(FILE, "major:minor"))?;
    let root = words.next().ok_or(WireError::missing(FILE, "root"))?;
    let mount_point = words.next().ok_or(WireError::missing(FILE, "mount point"))?;
    let options = words.next().ok_or(WireError::missing(FILE, "mount options"))?;
    // Any number of optional fields, then a lone hyphen.
    let filesystem = words
        .by_ref()
        .skip_while(|word| *word != b"-")
        .nth(1)
        .ok_or(WireError::missing(FILE, "filesystem type"))?;
    let source = words.next().unwrap_or_default();
    Ok(Mount { id, device, root, mount_point, options, filesystem, source })
}

/// The mount that is seen at `path`: the last one there covers the others. `None` where nothing is mounted at
/// exactly that path.
///
/// # Errors
/// As [`parse_mount`], for any line.
pub fn topmost_mount_at<'a>(text: &'a [u8], path: &[u8]) -> Result<Option<Mount<'a>>, WireError> {
    let mut topmost = None;
    for line in lines(text) {
        let mount = parse_mount(line)?;
        if is_path(mount.mount_point, path) {
            topmost = Some(mount);
        }
    }
    Ok(topmost)
}

/// Whether the filesystem for pinned BPF objects is what is seen at `path`.
///
/// # Errors
/// As [`topmost_mount_at`].
pub fn has_bpffs_at(text: &[u8], path: &[u8]) -> Result<bool, WireError> {
    Ok(topmost_mount_at(text, path)?.is_some_and(|mount| mount.filesystem == b"bpf"))
}

/// `major:minor` in decimal, as `major << 20 | minor` (`MKDEV` of `linux/kdev_t.h`).
fn kernel_device(word: &[u8]) -> Option<u32> {
    let (major, minor) = split_once(word, b':')?;
    let (major, minor) = (decimal_u32(major)?, decimal_u32(minor)?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

/// A path as the kernel escapes it (`\040` for a space, `\134` for a backslash), unescaped; `None` where an escape is
/// broken.
#[must_use]
pub fn unescape(mut escaped: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(escaped.len());
    loop {
        escaped = match escaped {
            [] => return Some(path),
            [b'\\', high, middle, low, rest @ ..] => {
                path.push(octal(*high, *middle, *low)?);
                rest
            }
            [b'\\', ..] => return None,
            [plain, rest @ ..] => {
                path.push(*plain);
                rest
            }
        };
    }
}

/// Compares without writing the unescaped path anywhere: `\ooo` stands for one byte, and a backslash itself is
/// always escaped.
fn is_path(mut escaped: &[u8], path: &[u8]) -> bool {
    for byte in path {
        let (decoded, rest) = match escaped {
            [b'\\', high, middle, low, rest @ ..] => match octal(*high, *middle, *low) {
                Some(decoded) => (decoded, rest),
                None => return false,
            },
            [b'\\', ..] | [] => return false,
            [plain, rest @ ..] => (*plain, rest),
        };
        if decoded != *byte {
            return false;
        }
        escaped = rest;
    }
    escaped.is_empty()
}

fn octal(high: u8, middle: u8, low: u8) -> Option<u8> {
    [high, middle, low].iter().try_fold(0_u8, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 7)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests;
