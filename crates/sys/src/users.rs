//! The users that the machine's name services list (`getpwent`). This waits for as long as a directory server likes: it
//! is for a short-lived process that somebody may kill, never for the daemon.
#![expect(unsafe_code, reason = "no safe wrapper of getpwent_r(3) is well kept")]

use crate::process::Errno;
use core::{ffi::CStr, mem::MaybeUninit, ops::ControlFlow, ptr};
use plimsoll_policy::units::{Gid, Uid};
use std::{io, sync::Mutex};

/// The cursor is one per process.
static CURSOR: Mutex<()> = Mutex::new(());

/// Where a user's texts begin to fit; doubled while they do not.
const TEXTS_BYTES: usize = 4096;
/// Where doubling ends: no user has texts like that.
const TEXTS_BYTES_MAX: usize = 1 << 20;

/// Shows each user that can be enumerated (name, number, primary group) to `visit` until it breaks. Directories are often
/// configured not to enumerate: then only the users of this machine's own file come.
///
/// # Errors
/// What the name services said. Users shown until then were there.
pub fn each_user(mut visit: impl FnMut(&CStr, Uid, Gid) -> ControlFlow<()>) -> Result<(), Errno> {
    let _alone = CURSOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: takes nothing; the lock keeps the cursor ours.
    unsafe { libc::setpwent() };
    let mut texts = vec![0_u8; TEXTS_BYTES];
    let ended = loop {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = ptr::null_mut();
        // SAFETY: the three places are writable and live through the call; the length is the buffer's.
        let errno = unsafe {
            libc::getpwent_r(entry.as_mut_ptr(), texts.as_mut_ptr().cast(), texts.len(), &raw mut found)
        };
        match errno {
            0 if !found.is_null() => {}
            // The end, said either way.
            0 | libc::ENOENT => break Ok(()),
            libc::ERANGE if texts.len() < TEXTS_BYTES_MAX => {
                texts.resize(texts.len().saturating_mul(2), 0);
                continue;
            }
            // A module can say any number.
            errno => {
                let error = io::Error::from_raw_os_error(errno);
                break Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
        }
        // SAFETY: success initialised the entry.
        let user = unsafe { entry.assume_init() };
        if user.pw_name.is_null() {
            continue;
        }
        // SAFETY: a string with its end, in `texts`, which lives until the next turn.
        let name = unsafe { CStr::from_ptr(user.pw_name) };
        if visit(name, Uid(user.pw_uid), Gid(user.pw_gid)).is_break() {
            break Ok(());
        }
    };
    // SAFETY: takes nothing; the lock keeps the cursor ours.
    unsafe { libc::endpwent() };
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_listed_and_a_break_ends_the_list() {
        let mut seen = Vec::new();
        each_user(|name, uid, gid| {
            seen.push((name.to_owned(), uid, gid));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(seen.contains(&(c"root".to_owned(), Uid(0), Gid(0))), "{seen:?}");
        let mut shown = 0;
        each_user(|_, _, _| {
            shown += 1;
            ControlFlow::Break(())
        })
        .unwrap();
        assert_eq!(shown, 1);
    }
}
