//! Who is at the other end of a connection: what the kernel says, never what the message says.
//!
//! CVE-2026-15059 let any user have any process killed, because a root daemon believed the words of a client on a
//! world-writable socket. Here the identity is read once, at accept, with `SO_PEERCRED`; no message has a field for it.

use crate::owners::Owners;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use plimsoll_policy::units::{Pid, Uid};
use std::{io, os::unix::net::UnixStream};

/// The process that connected, as it was at `connect(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its effective uid, in the daemon's user namespace. Permission goes by this and nothing else.
    pub uid: Uid,
    /// Whom it counts for where users have shares: those in its containers are the user who runs them.
    pub owner: Uid,
    /// Its number, for the record only: it may have ended and its number been given away. `None` when it is not in
    /// the daemon's pid namespace.
    pub pid: Option<Pid>,
}

impl Peer {
    /// Asks the kernel who connected `stream`.
    ///
    /// # Errors
    /// What `getsockopt(SO_PEERCRED)` fails with.
    pub(crate) fn of(stream: &UnixStream, owners: &mut Owners) -> io::Result<Self> {
        let credentials = getsockopt(stream, PeerCredentials)?;
        let pid = u32::try_from(credentials.pid()).ok().filter(|pid| *pid != 0).map(Pid);
        let uid = Uid(credentials.uid());
        Ok(Self { uid, owner: owners.owner_now(uid), pid })
    }

    /// Whether this is root.
    #[must_use]
    pub fn is_root(self) -> bool {
        self.uid == Uid(0)
    }
}
