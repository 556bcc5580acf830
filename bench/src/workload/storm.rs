//! `storm THREADS SEED UID UID ...`: everything that makes accounting hard, at once.
//!
//! On `go PAGES` its threads map, touch (wholly or in part) and unmap memory at random while hopping from processor to
//! processor, until that many pages were touched; the first thread meanwhile forks children that exit, forks children
//! that execute, and changes the whole process's real uid among those given. Then all stand still, with what they
//! hold, and it says `stopped PAGES FORKS EXECS SETUIDS` (counts of this `go`).

use super::{
    Commands, UIDS, arm_watchdogs, forbid_huge_pages, memory, number, random::Random, say, stay_dumpable,
    usage,
};
use crate::{cpus, error::BenchError};
use memmap2::MmapMut;
use nix::unistd::{self, Gid, Uid};
use std::{
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// Mappings that a thread holds at most, of [`MAPPING_PAGES_MAX`] pages each: 75 MiB a thread with 4 KiB pages.
const SLOTS: usize = 64;
const MAPPING_PAGES_MAX: usize = 300;

/// Leaves an argument of setresuid as it is.
const UNCHANGED: Uid = Uid::from_raw(u32::MAX);

/// One thread's memory; it outlives the threads of one `go`.
struct Slots {
    random: Random,
    held: Vec<Option<MmapMut>>,
}

/// What the first thread did.
#[derive(Default)]
struct Deeds {
    forks: u64,
    execs: u64,
    setuids: u64,
}

/// Runs it.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let threads: usize = number(arguments, 0)?;
    let seed: u64 = number(arguments, 1)?;
    let uids: Vec<u32> =
        (2..arguments.len()).map(|index| number(arguments, index)).collect::<Result<_, _>>()?;
    if threads == 0 || threads > 8 || uids.is_empty() || !uids.iter().all(|uid| UIDS.contains(uid)) {
        return Err(usage(&arguments.join(" ")));
    }
    forbid_huge_pages()?;
    let mut slots: Vec<Slots> = (0..threads as u64)
        .map(|thread| Slots {
            random: Random::seeded(seed * 64 + thread),
            held: (0..SLOTS).map(|_| None).collect(),
        })
        .collect();
    let mut random = Random::seeded(seed * 64 + 63);
    let mut commands = Commands::open();
    change_user(*uids.first().ok_or_else(|| usage("storm"))?)?;
    say("ready")?;
    while let Some((word, numbers)) = commands.next()? {
        let ("go", &[pages]) = (word.as_str(), numbers.as_slice()) else { return Err(usage(&word)) };
        let touched = AtomicU64::new(0);
        let deeds = thread::scope(|scope| {
            let workers: Vec<_> =
                slots.iter_mut().map(|slots| scope.spawn(|| slots.storm(&touched, pages))).collect();
            let deeds = disturb(&touched, pages, &uids, &mut random);
            let outcome: Result<(), BenchError> =
                workers.into_iter().filter_map(|worker| worker.join().ok()).collect();
            outcome.and(deeds)
        })?;
        let Deeds { forks, execs, setuids } = deeds;
        say(&format!("stopped {} {forks} {execs} {setuids}", touched.load(Ordering::Relaxed)))?;
    }
    Ok(())
}

impl Slots {
    fn storm(&mut self, touched: &AtomicU64, pages: u64) -> Result<(), BenchError> {
        let page_length = memory::page_length();
        let allowed = cpus::allowed()?;
        let mut turn = 0;
        while touched.load(Ordering::Relaxed) < pages {
            turn += 1;
            if let Some(cpu) = allowed.get(turn % allowed.len().max(1)) {
                cpus::use_only(&[*cpu])?;
            }
            let chosen = self.random.below(SLOTS);
            let length = page_length * (1 + self.random.below(MAPPING_PAGES_MAX));
            let part = 1 + self.random.below(3);
            let Some(slot) = self.held.get_mut(chosen) else { continue };
            match slot {
                Some(_) => *slot = None,
                None => {
                    let mut mapping = memory::map(length as u64)?;
                    let touch = (length / part).max(1);
                    let count =
                        mapping.get_mut(..touch).map_or(0, |memory| memory::touch(memory, page_length));
                    touched.fetch_add(count, Ordering::Relaxed);
                    *slot = Some(mapping);
                }
            }
        }
        cpus::use_only(&allowed)
    }
}

/// Forks, executes and changes user until the threads have touched enough.
fn disturb(touched: &AtomicU64, pages: u64, uids: &[u32], random: &mut Random) -> Result<Deeds, BenchError> {
    let mut deeds = Deeds::default();
    while touched.load(Ordering::Relaxed) < pages {
        let Some(&uid) = uids.get(random.below(uids.len())) else { break };
        unistd::setresuid(UNCHANGED, Uid::from_raw(0), UNCHANGED).map_err(BenchError::io("seteuid 0"))?;
        // A command with a uid of its own makes the library fork rather than vfork. This one does not exist: the
        // child is forked, changes user, fails to execute and exits, which is a fork without exec.
        if quiet(Command::new("/nonexistent/plimsoll-bench")).uid(uid).status().is_err() {
            deeds.forks += 1;
        }
        let mut child = quiet(Command::new("/proc/self/exe"));
        if child.args(["bench-workload", "exit"]).uid(uid).status().is_ok_and(|status| status.success()) {
            deeds.execs += 1;
        }
        // A shell forks its subshells without exec, two deep.
        let mut shell = quiet(Command::new("/bin/sh"));
        if shell.args(["-c", "( ( a=b ); ( c=d ) )"]).uid(uid).status().is_ok_and(|status| status.success()) {
            deeds.execs += 1;
            deeds.forks += 2;
        }
        change_user(uid)?;
        deeds.setuids += 1;
    }
    Ok(deeds)
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Real and effective uid become `uid`; the saved one stays root, so that it can change again.
fn change_user(uid: u32) -> Result<(), BenchError> {
    let (user, root) = (Uid::from_raw(uid), Uid::from_raw(0));
    unistd::setresuid(UNCHANGED, root, UNCHANGED).map_err(BenchError::io("seteuid 0"))?;
    unistd::setresgid(Gid::from_raw(uid), Gid::from_raw(uid), Gid::from_raw(0))
        .map_err(BenchError::io(format!("setresgid {uid}")))?;
    unistd::setresuid(user, user, root).map_err(BenchError::io(format!("setresuid {uid}")))?;
    stay_dumpable()?;
    arm_watchdogs()
}
