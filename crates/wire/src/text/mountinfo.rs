//! `/proc/self/mountinfo`: what is mounted where.

use super::{
    WireError,
    field::{decimal_u32, split_once, words},
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
    words.next().ok_or(WireError::missing(FILE, "mount options"))?;
    // Any number of optional fields, then a lone hyphen.
    let filesystem = words
        .by_ref()
        .skip_while(|word| *word != b"-")
        .nth(1)
        .ok_or(WireError::missing(FILE, "filesystem type"))?;
    let source = words.next().unwrap_or_default();
    Ok(Mount { id, device, root, mount_point, filesystem, source })
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

fn octal(high: u8, middle: u8, low: u8) -> Option<u8> {
    [high, middle, low].iter().try_fold(0_u8, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 7)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests;
