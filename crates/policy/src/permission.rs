//! Who may ask for what: the one rule behind every call of the control socket.
//!
//! The peer's uid comes from the kernel (`SO_PEERCRED`), never from the message.

use crate::{
    account::{Account, Action},
    human,
    incident::{Incident, Victim},
    lines::{Line, LineBook, Target},
    units::{Bytes, Gid, JobId, PageSize, Uid},
};

/// What a peer asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The guard's state, without accounts.
    ReadStatus,
    /// The `default` line.
    ReadDefault,
    /// The line of a group.
    ReadGroup(Gid),
    /// One account.
    ReadAccount(Account),
    /// Incidents, each as [`redact`] leaves it.
    ReadIncidents,
    /// Draw a line; `now` also enforces it at once where usage is above it.
    SetLine {
        /// For whom.
        target: Target,
        /// The line.
        line: Line,
        /// Enforce at once.
        now: bool,
    },
    /// Remove a line.
    ClearLine {
        /// Whose.
        target: Target,
    },
    /// Free a dying process; [`may_expedite`] says whose.
    Expedite,
    /// Anything that changes the guard itself.
    ControlDaemon,
}

/// Why a peer may not. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another user's account.
    #[error("{target} is not your account; only root may read or change it")]
    NotYourAccount {
        /// The one asked for.
        target: Target,
    },
    /// The `default` line.
    #[error("the default line is for all users; only root may change it")]
    DefaultLine,
    /// The line of a cgroup, or of the machine.
    #[error("{0} is no user's own account; it is for root only")]
    Measured(Target),
    /// The line of a group.
    #[error("the line of a group is for all its members; only root may change it")]
    GroupLine,
    /// The line of a group that the peer is not in, as far as is known.
    #[error("you are not known to be in the group {0}; only its members and root may read its line")]
    NotYourGroup(Gid),
    /// Another user's job, or none that there is.
    #[error("there is no job {0} of yours; 'plimsoll jobs' lists those there are")]
    NotYourJob(JobId),
    /// Nothing that a line of one's own could be below.
    #[error(
        "no line is drawn for you that yours could be lower than; ask root for one ('plimsoll limit set {0} SIZE', \
     or 'default' for every user)"
    )]
    NoAdministrators(Uid),
    /// Its processes are another user's.
    #[error(
        "uid {uid} is a subordinate uid of {owner}'s, whose account its processes are charged to; draw the line as \
     that user, or ask root"
    )]
    Subordinate {
        /// The peer.
        uid: Uid,
        /// Whose it is.
        owner: Uid,
    },
    /// Above the administrator's line.
    #[error("hard limit {asked} is above the administrator's line of {}; give a lower one, or ask root to \
     raise it", human::bytes(*.allowed))]
    AboveAdministrators {
        /// As given.
        asked: crate::size::Size,
        /// The administrator's hard limit, rounded down to whole pages.
        allowed: Bytes,
    },
    /// A milder action than the administrator's.
    #[error(
        "action '{asked}' is weaker than the administrator's '{required}'; use '{required}' or a stricter one"
    )]
    WeakerAction {
        /// As given.
        asked: Action,
        /// The administrator's.
        required: Action,
    },
    /// Another user's process.
    #[error("it is another user's process; only root may have it expedited")]
    NotYourProcess,
    /// The guard itself.
    #[error("only root may control the daemon")]
    Daemon,
}

/// Whether `peer` may do what it asks for, given the lines there are. Whether the line itself makes sense is
/// [`crate::lines::validate`]'s to say.
///
/// Anyone reads their own account, the lines of their groups, those of `default` and `system`, and the guard's state.
/// Whom the administrator drew a line for sets and clears one of their own: up to the administrator's, with an action at
/// least as strict, enforced at once if they like. All else is root's.
///
/// # Errors
/// [`Refused`], which is exit status 4 on the command line.
pub fn may(
    peer: Uid,
    request: &Request,
    book: &LineBook,
    mem_total: Bytes,
    page_size: PageSize,
) -> Result<(), Refused> {
    if peer == Uid::ROOT {
        return Ok(());
    }
    match request {
        Request::ReadStatus
        | Request::ReadDefault
        | Request::ReadIncidents
        | Request::Expedite
        | Request::ReadAccount(Account::System) => Ok(()),
        Request::ReadGroup(gid) if book.is_member(peer, *gid) => Ok(()),
        Request::ReadGroup(gid) => Err(Refused::NotYourGroup(*gid)),
        Request::ReadAccount(Account::User(uid)) => own(peer, &Target::User(*uid)),
        Request::ReadAccount(Account::Group(gid)) if book.is_member(peer, *gid) => Ok(()),
        Request::ReadAccount(Account::Group(gid)) => Err(Refused::NotYourGroup(*gid)),
        Request::ReadAccount(Account::Job(id))
        | Request::ClearLine { target: Target::Job(id) }
        | Request::SetLine { target: Target::Job(id), .. } => own_job(peer, *id, book),
        Request::ReadAccount(Account::Cgroup(path)) => own(peer, &Target::Cgroup(path.clone())),
        Request::ClearLine { target } => own(peer, target),
        Request::SetLine { target, line, now: _ } => {
            own(peer, target)?;
            let Some(limit) = book.resolve_administrators(peer, mem_total, page_size) else {
                return Err(Refused::NoAdministrators(peer));
            };
            let asked = page_size.to_pages(line.hard.resolve(mem_total));
            if asked > limit.hard {
                return Err(Refused::AboveAdministrators {
                    asked: line.hard,
                    allowed: page_size.to_bytes(limit.hard),
                });
            }
            if line.action.strictness() < limit.action.strictness() {
                return Err(Refused::WeakerAction { asked: line.action, required: limit.action });
            }
            Ok(())
        }
        Request::ControlDaemon => Err(Refused::Daemon),
    }
}

/// Whether a peer whose uid belongs to `owner` may draw lines at all: one user has one line, however many uids.
///
/// # Errors
/// [`Refused::Subordinate`].
pub fn may_draw(uid: Uid, owner: Uid) -> Result<(), Refused> {
    if uid == owner { Ok(()) } else { Err(Refused::Subordinate { uid, owner }) }
}

/// Whether a peer, who counts for `owner`, may have a dying process freed at the daemon's expense that counts for `victims`.
///
/// # Errors
/// [`Refused::NotYourProcess`].
pub fn may_expedite(peer: Uid, owner: Uid, victims: Uid) -> Result<(), Refused> {
    if peer == Uid::ROOT || owner == victims { Ok(()) } else { Err(Refused::NotYourProcess) }
}

fn own(peer: Uid, target: &Target) -> Result<(), Refused> {
    match target {
        Target::User(uid) if *uid == peer => Ok(()),
        Target::User(_) => Err(Refused::NotYourAccount { target: target.clone() }),
        Target::Members(_) | Target::Group(_) => Err(Refused::GroupLine),
        Target::Job(id) => Err(Refused::NotYourJob(*id)),
        Target::Default => Err(Refused::DefaultLine),
        Target::Cgroup(_) | Target::System => Err(Refused::Measured(target.clone())),
    }
}

/// Whether a list of accounts given to `peer` may hold this one: also what a group uses that they are in.
#[must_use]
pub fn visible(account: &Account, peer: Uid, book: &LineBook) -> bool {
    peer == Uid::ROOT || is_theirs(Some(account), peer, book)
}

fn own_job(peer: Uid, id: JobId, book: &LineBook) -> Result<(), Refused> {
    let job = book.jobs().get(id).filter(|job| job.user == peer);
    job.map(|_| ()).ok_or(Refused::NotYourJob(id))
}

/// What concerns the machine is everybody's to read, and what concerns a group its members'.
fn is_theirs(account: Option<&Account>, peer: Uid, book: &LineBook) -> bool {
    match account {
        None | Some(Account::System) => true,
        Some(Account::User(uid)) => *uid == peer,
        Some(Account::Group(gid)) => book.is_member(peer, *gid),
        Some(Account::Job(id)) => own_job(peer, *id, book).is_ok(),
        Some(Account::Cgroup(_)) => false,
    }
}

/// Whether a list of groups' lines given to `peer` may hold this one.
#[must_use]
pub fn group_visible(group: &Target, peer: Uid, book: &LineBook) -> bool {
    peer == Uid::ROOT || matches!(group, Target::Members(gid) if book.is_member(peer, *gid))
}

/// An incident as `peer` may see it, or `None` where it is not theirs to see. Root sees all. Others see those of their
/// own account and of the groups that `book` knows them in, those that took a process of theirs, and the machine's; in these,
/// command lines and cgroups of other people's processes are removed, how another's account grew, traces, and what somebody
/// else's log says where neither the account nor a victim was theirs.
#[must_use]
pub fn redact(incident: &Incident, peer: Uid, book: &LineBook) -> Option<Incident> {
    if !may_see(incident, peer, book) {
        return None;
    }
    if peer == Uid::ROOT {
        return Some(incident.clone());
    }
    let own = incident.account.is_some() && concerns(incident, peer, book);
    let mut shown = incident.clone();
    // systemd-oomd names the cgroup that it took and no process: whose slice that was, reads which.
    if let Some(origin) = shown.origin.as_mut().filter(|_| !own) {
        origin.conceal(&shown.victims, peer);
    }
    // How somebody else's account grew is not theirs to see; what the machine had, anybody could read.
    shown.course.iter_mut().filter(|_| !own).for_each(|course| course.account.clear());
    // All processes that were compared are in it, as often as they were.
    shown.course.iter_mut().for_each(|course| course.trace = None);
    shown.victims.iter_mut().chain(&mut shown.peers).for_each(|process| conceal(process, peer));
    Some(shown)
}

/// Whether [`redact`] leaves something of an incident.
#[must_use]
pub fn may_see(incident: &Incident, peer: Uid, book: &LineBook) -> bool {
    peer == Uid::ROOT
        || concerns(incident, peer, book)
        || incident.victims.iter().any(|victim| victim.uid == peer)
}

/// Whether an incident is of an account that is theirs. A job's number is another job's after a reboot, and nobody's once it
/// has ended: whose it was is who ran in it.
fn concerns(incident: &Incident, peer: Uid, book: &LineBook) -> bool {
    match &incident.account {
        Some(Account::Job(_)) => {
            incident.victims.iter().chain(&incident.peers).any(|process| process.uid == peer)
        }
        account => is_theirs(account.as_ref(), peer, book),
    }
}

fn conceal(process: &mut Victim, peer: Uid) {
    if process.uid != peer {
        process.cmdline = None;
        process.cgroup = None;
    }
}

#[cfg(test)]
mod tests;
