//! The short-lived child that asks the name services: they can wait for a server for ever, and the daemon must not. What
//! it found out it writes at once, a line of JSON for each fact, so that nothing is lost when it is killed.

use super::services::{NameServices, Nss, Trouble};
use nix::sys::resource::{Resource, setrlimit};
use plimsoll_policy::units::{Gid, Uid};
use plimsoll_sys::process::{OomScore, set_oom_score_adj_self};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    ops::ControlFlow,
};

/// The hidden subcommand of the binary that calls [`main`].
pub const SUBCOMMAND: &str = "look-up-names";

/// Services that run inside the asking process (LDAP without a daemon of its own) bring large libraries.
const ADDRESS_SPACE_MAX: u64 = 1 << 30;

/// What is to be found out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    /// The numbers of these users.
    pub(super) users: BTreeSet<String>,
    /// The numbers of these groups, and their members.
    pub(super) groups: BTreeSet<String>,
    /// The members of these groups.
    pub(super) gids: BTreeSet<Gid>,
    /// Whether these users are among them: not every service lists all members of a group.
    pub(super) uids: BTreeSet<Uid>,
    /// After so long it ends itself, should nobody do it.
    pub(super) seconds: u32,
}

/// One thing found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fact {
    /// The user of this name.
    User(String, Uid),
    /// No user has this name.
    NoUser(String),
    /// The group of this name.
    Group(String, Gid),
    /// No group has this name.
    NoGroup(String),
    /// The services know this group.
    Known(Gid),
    /// They do not.
    Unknown(Gid),
    /// This user is in this group.
    Member(Gid, Uid),
    /// This user exists and is not in this group.
    Other(Gid, Uid),
    /// So many names of this group belong to no user.
    Strays(Gid, u32),
    /// Something could not be found out.
    Trouble(String),
    /// That was all.
    End,
}

/// The child: reads its job from standard input, writes facts to standard output.
///
/// # Errors
/// One line: a bad job, or nobody who reads the facts.
pub fn main() -> Result<(), String> {
    let job: Job = serde_json::from_reader(std::io::stdin().lock())
        .map_err(|error| format!("look-up: bad job: {error}"))?;
    nix::unistd::alarm::set(job.seconds);
    let limited = setrlimit(Resource::RLIMIT_AS, ADDRESS_SPACE_MAX, ADDRESS_SPACE_MAX);
    if limited.is_err() || set_oom_score_adj_self(0) != OomScore::Set {
        // It lives for seconds only: what a service takes meanwhile is then the machine guard's to see.
    }
    let mut out = std::io::stdout().lock();
    let mut written = Ok(());
    let ended = LookUp::new(&Nss, &job).run(&mut |fact| {
        written = serde_json::to_string(&fact)
            .map_err(std::io::Error::from)
            .and_then(|line| writeln!(out, "{line}").and_then(|()| out.flush()));
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    match ended {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => written.map_err(|error| format!("look-up: {error}")),
    }
}

/// Takes a fact; breaks when nobody wants any more.
type Tell<'a> = &'a mut dyn FnMut(Fact) -> ControlFlow<()>;

/// One job being done.
pub(super) struct LookUp<'a> {
    services: &'a dyn NameServices,
    job: &'a Job,
    /// The groups that the services know, with who is known to be in them.
    found: BTreeMap<Gid, BTreeSet<Uid>>,
}

impl<'a> LookUp<'a> {
    pub(super) fn new(services: &'a dyn NameServices, job: &'a Job) -> Self {
        Self { services, job, found: BTreeMap::new() }
    }

    /// Tells all that can be found out; broken off where nobody wants any more.
    pub(super) fn run(mut self, tell: Tell<'_>) -> ControlFlow<()> {
        for name in &self.job.users {
            match self.services.user_named(name) {
                Ok(Some(person)) => tell(Fact::User(name.clone(), person.uid)),
                Ok(None) => tell(Fact::NoUser(name.clone())),
                Err(trouble) => tell(Fact::Trouble(trouble)),
            }?;
        }
        let mut gids = self.job.gids.clone();
        for name in &self.job.groups {
            match self.services.group_named(name) {
                Ok(Some(gid)) => {
                    gids.insert(gid);
                    tell(Fact::Group(name.clone(), gid))
                }
                Ok(None) => tell(Fact::NoGroup(name.clone())),
                Err(trouble) => tell(Fact::Trouble(trouble)),
            }?;
        }
        for gid in gids {
            self.listed(gid, tell)?;
        }
        if !self.found.is_empty() {
            self.by_primary_group(tell)?;
            self.by_user(tell)?;
        }
        tell(Fact::End)
    }

    /// Members that the group lists by name.
    fn listed(&mut self, gid: Gid, tell: Tell<'_>) -> ControlFlow<()> {
        let names = match self.services.group(gid) {
            Ok(Some(names)) => names,
            Ok(None) => return tell(Fact::Unknown(gid)),
            Err(trouble) => return tell(Fact::Trouble(trouble)),
        };
        self.found.insert(gid, BTreeSet::new());
        tell(Fact::Known(gid))?;
        let mut strays = 0_u32;
        for name in names {
            match self.services.user_named(&name) {
                Ok(Some(person)) => self.member(gid, person.uid, tell)?,
                Ok(None) => strays = strays.saturating_add(1),
                Err(trouble) => tell(Fact::Trouble(trouble))?,
            }
        }
        if strays > 0 { tell(Fact::Strays(gid, strays)) } else { ControlFlow::Continue(()) }
    }

    /// Members whose primary group it is, as far as users are enumerated.
    fn by_primary_group(&mut self, tell: Tell<'_>) -> ControlFlow<()> {
        let (services, mut ended) = (self.services, ControlFlow::Continue(()));
        let listed = services.each_user(&mut |uid, gid| {
            if self.found.contains_key(&gid) {
                ended = self.member(gid, uid, tell);
            }
            ended
        });
        ended?;
        listed.map_or_else(|trouble: Trouble| tell(Fact::Trouble(trouble)), |()| ControlFlow::Continue(()))
    }

    /// The users asked for by number, each in its groups or not.
    fn by_user(&mut self, tell: Tell<'_>) -> ControlFlow<()> {
        for uid in &self.job.uids {
            if self.found.values().all(|members| members.contains(uid)) {
                continue;
            }
            let theirs = match self.services.user(*uid) {
                // Nobody has this number, or the service that knows them cannot be reached: nothing is said of them.
                Ok(None) => continue,
                Ok(Some(person)) => self.services.groups_of(&person),
                Err(trouble) => Err(trouble),
            };
            let theirs = match theirs {
                Ok(gids) => gids,
                Err(trouble) => {
                    tell(Fact::Trouble(trouble))?;
                    continue;
                }
            };
            for gid in self.found.keys().copied().collect::<Vec<_>>() {
                if theirs.contains(&gid) {
                    self.member(gid, *uid, tell)?;
                } else if self.found.get(&gid).is_some_and(|members| !members.contains(uid)) {
                    tell(Fact::Other(gid, *uid))?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn member(&mut self, gid: Gid, uid: Uid, tell: Tell<'_>) -> ControlFlow<()> {
        let new = self.found.entry(gid).or_default().insert(uid);
        if new { tell(Fact::Member(gid, uid)) } else { ControlFlow::Continue(()) }
    }
}
