//! What systemd-oomd and earlyoom write to the journal, followed by a `journalctl` of our own: only where one of them is
//! installed. It ends with this daemon; one that ends by itself is started again, at longer and longer intervals.
//!
//! Fields that begin with `_` are journald's own word about who wrote an entry (systemd.journal-fields(7)): no program can
//! forge them, whatever it calls itself. What the writer was made to write is another matter: see
//! [`Listener::earlyoom`]. The unit is taken from the cgroup of the writer; that of a user's own
//! manager is `user@UID.service`.

mod written;

use super::{kill::KillFacts, messages::Link};
use crate::journal::{Journal, Notices};
use plimsoll_policy::{
    account::Account,
    container::container_of,
    incident::{
        Outcome, Victim,
        origin::{Killer, Origin},
    },
    reason::Reason,
    units::{Nanos, Pid, Uid},
    victim::Signal,
};
use plimsoll_sys::process::{PidFd, ProcRoot, Process, clock_monotonic_ns, spawn_bound};
use plimsoll_wire::text::{EarlyoomLine, Printable, parse_earlyoom_line, parse_oomd_line};
use rustix::thread::CapabilitySet;
use serde_json::Value;
use std::{
    io::{self, BufRead, BufReader, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use written::Written;

/// Nothing is looked up along a path that somebody may have set.
const PROGRAMS: [&str; 2] = ["/usr/bin/journalctl", "/bin/journalctl"];

/// All that it has of our rights: journals are wherever they were put, and somebody else's.
const NEEDED: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

/// Where journald keeps what it is told; one of them is there while it runs.
const JOURNALS: [&str; 2] = ["/run/log/journal", "/var/log/journal"];

/// Where systemd finds units.
const UNITS: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

const OOMD: &str = "systemd-oomd.service";
const EARLYOOM: &str = "earlyoom.service";

/// An entry in JSON; longer ones are none of theirs.
const ENTRY_BYTES_MAX: u64 = 64 << 10;

/// Between an end of the child and the next one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// How long a child that has no more to say may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// A child that lived so long had nothing wrong with it.
const LIVED: Duration = Duration::from_secs(60);

/// Some versions announce a cgroup ("Marked") and report it ("Killed") when hooks have run, which may take so long.
const PAIR_WITHIN: Nanos = Nanos(30_000_000_000);

/// The same is said twice within this time, at most: systemd-oomd takes the next one 15 s later at the earliest
/// (`POST_ACTION_DELAY_USEC`, src/oom/oomd-manager.h, 248 to 257).
const SAME_WITHIN: Nanos = Nanos(5_000_000_000);

/// How long a process that earlyoom says it signals may take to go: as long as earlyoom itself waits (`kill_wait`, kill.c).
const GOES_WITHIN: Duration = Duration::from_secs(10);

/// Processes waited for at once.
const WITNESSES_MAX: usize = 16;

/// What can be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sources {
    program: PathBuf,
    units: Vec<&'static str>,
}

impl Sources {
    /// Those of this machine.
    ///
    /// # Errors
    /// Why there is nothing to follow, in a few words.
    pub(crate) fn of_machine() -> Result<Self, String> {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Result<Self, String> {
        let below = |path: &str| root.join(path.strip_prefix('/').unwrap_or(path));
        let all = [OOMD, EARLYOOM];
        let units: Vec<&'static str> = all.into_iter().filter(|unit| may_run(&below, unit)).collect();
        if units.is_empty() {
            let installed = |unit: &&str| UNITS.iter().any(|folder| below(folder).join(unit).exists());
            return Err(match all.into_iter().find(installed) {
                None => "none: neither systemd-oomd nor earlyoom is installed as a service".to_owned(),
                Some(unit) => format!("none: {unit} is installed, but neither enabled nor running"),
            });
        }
        let names = units.join(" and ");
        if !JOURNALS.iter().any(|folder| below(folder).is_dir()) {
            return Err(format!("not heard of: there is no systemd journal, where {names} would write"));
        }
        match PROGRAMS.map(below).into_iter().find(|program| program.exists()) {
            Some(program) => Ok(Self { program, units }),
            None => Err(format!("not heard of: there is no journalctl to read what {names} write")),
        }
    }

    /// Of other killers, in the order in which they are asked for.
    pub(super) fn units(&self) -> &[&'static str] {
        &self.units
    }

    /// Shows entries written at this moment and later, and goes on.
    fn command(&self, since: Written) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--follow", "--no-tail", "--quiet", "--no-pager", "--output=json"])
            .arg(format!("--since={since}"))
            .arg("--output-fields=MESSAGE,_SYSTEMD_UNIT")
            .args(self.units.iter().map(|unit| format!("_SYSTEMD_UNIT={unit}")))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }
}

/// Whether a unit is enabled, or runs now, or starts when somebody calls at its socket: users' managers do that of
/// systemd-oomd. One that is masked is neither, and one that is only installed is often part of systemd's own package.
fn may_run(below: &impl Fn(&str) -> PathBuf, unit: &str) -> bool {
    // Of several files the first counts; to /dev/null: masked (systemd.unit(5)).
    let file =
        UNITS.iter().map(|folder| below(folder).join(unit)).find(|path| path.symlink_metadata().is_ok());
    let Some(file) = file.filter(|file| file.read_link().ok().as_deref() != Some(Path::new("/dev/null")))
    else {
        return false;
    };
    // systemd's own note of what runs (`unit_export_invocation_id`, src/core/unit.c, since 237).
    let running = below("/run/systemd/units").join(format!("invocation:{unit}")).symlink_metadata().is_ok();
    let socket = unit.replace(".service", ".socket");
    let wanted = |folder: &str| {
        let entries = below(folder).read_dir().into_iter().flatten().flatten();
        let by = |name: &str| name.ends_with(".wants") || name.ends_with(".requires");
        entries.filter(|entry| entry.file_name().to_str().is_some_and(by)).any(|entry| {
            [unit, &socket].iter().any(|name| entry.path().join(name).symlink_metadata().is_ok())
        })
    };
    (running || UNITS.iter().any(|folder| wanted(folder))) && file.exists()
}

/// Starts the thread that follows them.
pub(super) fn start(sources: Sources, link: Link, journal: Journal) -> io::Result<()> {
    thread::Builder::new().name("killers".into()).spawn(move || follow(&sources, &link, journal))?;
    Ok(())
}

/// For as long as the daemon runs: the child is bound to this thread.
fn follow(sources: &Sources, link: &Link, journal: Journal) {
    let mut notices = Notices::new(journal);
    let mut pause = PAUSE_MIN;
    let names = sources.units.join(" and ");
    // What is written before a child has found its place, or while there is none, is for the next one.
    let mut since = Written::now();
    loop {
        let started = Instant::now();
        match spawn_bound(&mut sources.command(since), NEEDED) {
            Ok(child) => {
                link.say_programs(format!("on: the journal of {names} is followed"));
                let (ended, last) = listen(child, link);
                // One that has just come to its end is not shown the same entry again, in case that was why.
                since = last.filter(|_| started.elapsed() > LIVED).map_or_else(Written::now, Written::next);
                // A stop of the whole service ends the child, too, and before us: then there is nobody to be told.
                thread::sleep(PAUSE_MIN);
                if link.shared.stopping.load(Ordering::Relaxed) {
                    return;
                }
                notices.once("other killers", &format_args!("journalctl has ended: {ended}"));
            }
            Err(error) => notices.once("other killers", &format_args!("journalctl: {error}")),
        }
        if started.elapsed() > LIVED {
            pause = PAUSE_MIN;
        }
        link.say_programs(format!(
            "not heard of for now: journalctl ended; tried again in {} s",
            pause.as_secs()
        ));
        thread::sleep(pause);
        pause = pause.saturating_mul(2).min(PAUSE_MAX);
    }
}

/// Until the child has no more to say: how it ended, and when the last of its entries was written.
fn listen(mut child: Child, link: &Link) -> (String, Option<Written>) {
    let mut listener = Listener { proc: ProcRoot::open(Path::new("/proc")).ok(), ..Listener::default() };
    let witnesses = Arc::new(());
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut entry = Vec::new();
        loop {
            entry.clear();
            match output.by_ref().take(ENTRY_BYTES_MAX).read_until(b'\n', &mut entry) {
                Ok(0) | Err(_) => break,
                Ok(_) if entry.last() != Some(&b'\n') => {
                    // The rest of it is read as an entry of its own, and is none.
                }
                Ok(_) => {
                    if let Some(heard) = listener.hear(&entry) {
                        tell(heard, link, &witnesses);
                    }
                }
            }
        }
    }
    // Killed at once it would never be told how it ended.
    let by_itself =
        PidFd::open(Pid(child.id())).and_then(|held| held.wait_exit(ENDS_WITHIN)).unwrap_or(false);
    if !by_itself {
        // It may have ended.
        child.kill().ok();
    }
    (child.wait().map_or_else(|error| error.to_string(), |status| status.to_string()), listener.read)
}

/// A cgroup that systemd-oomd took.
#[derive(Debug)]
struct Taken {
    cgroup: Vec<u8>,
    when: Nanos,
    /// It was announced, and not reported yet.
    announced: bool,
}

/// Understands entries.
#[derive(Debug, Default)]
struct Listener {
    proc: Option<ProcRoot>,
    /// When the last entry was written.
    read: Option<Written>,
    /// The cgroup that systemd-oomd took last.
    last: Option<Taken>,
}

impl Listener {
    /// What an entry tells of; `None` for any other.
    fn hear(&mut self, entry: &[u8]) -> Option<Heard> {
        let entry: Value = serde_json::from_slice(entry).ok()?;
        let written = Written::of(&entry);
        self.read = written.or(self.read);
        let time = written.map_or_else(|| Nanos(clock_monotonic_ns()), Written::monotonic);
        let message = text(entry.get("MESSAGE")?)?;
        // Journald's own word, and of one writer only: a list is none.
        match entry.get("_SYSTEMD_UNIT")?.as_str()? {
            OOMD => self.oomd(&message, time).map(Heard::from),
            EARLYOOM => self.earlyoom(&message, time),
            _ => None,
        }
    }

    fn oomd(&mut self, message: &[u8], time: Nanos) -> Option<KillFacts> {
        let line = parse_oomd_line(message)?;
        let announced = message.starts_with(b"Marked ");
        let told = self.last.as_ref().filter(|last| last.cgroup == line.cgroup).is_some_and(|last| {
            let since = Nanos(time.0.abs_diff(last.when.0));
            since < SAME_WITHIN || (last.announced && !announced && since < PAIR_WITHIN)
        });
        self.last = Some(Taken { cgroup: line.cgroup.to_vec(), when: time, announced });
        if told {
            return None;
        }
        let cgroup = Printable(line.cgroup).to_string();
        Some(KillFacts {
            time,
            account: user_of(&cgroup).map(Account::User),
            action: Outcome::Kill,
            reason: Reason::SystemdOomdKill,
            victims: Vec::new(),
            origin: Origin {
                container: container_of(&cgroup),
                cgroup: Some(cgroup),
                summary: Some(Printable(message).to_string()),
                ..Origin::of(Killer::SystemdOomd)
            },
            arranged: None,
        })
    }

    /// Newlines in the command line of a victim, which earlyoom writes as they are, make entries of their own, with whatever
    /// text the victim chose. So a process that lives must be what the line says, and go.
    fn earlyoom(&mut self, message: &[u8], time: Nanos) -> Option<Heard> {
        let line = parse_earlyoom_line(message)?;
        // Held first: what is read then is of this one.
        let held = PidFd::open(line.pid).ok();
        let process = self.proc.as_mut().and_then(|proc| proc.process(line.pid).ok());
        if let Some(process) = &process
            && !is_whom(&line, process)
        {
            return None;
        }
        let cgroup = process.as_ref().and_then(|_| self.proc.as_mut()?.cgroup(line.pid).ok().flatten());
        let uid = line.uid.or(process.as_ref().map(|process| process.uid))?;
        let living = process.as_ref().is_some_and(|process| !process.dying && !process.is_zombie());
        let facts = KillFacts {
            time,
            account: None,
            action: if line.signal == Signal::Term { Outcome::Term } else { Outcome::Kill },
            reason: Reason::EarlyoomKill,
            origin: Origin {
                container: cgroup.as_deref().and_then(container_of),
                ..Origin::of(Killer::Earlyoom)
            },
            victims: vec![Victim {
                pid: line.pid,
                start_ns: process.map_or(0, |process| process.start_ns),
                uid,
                comm: Printable(line.comm).to_string(),
                cmdline: None,
                cgroup,
                usage_bytes: line.resident.unwrap_or_default().0,
                weight_permille: None,
                session: false,
                jobs: Vec::new(),
            }],
            arranged: None,
        };
        Some(Heard { facts, goes: held.filter(|_| living) })
    }
}

/// Whether a process that was found is the one that a line of earlyoom names. earlyoom has the uid from who owns
/// `/proc/PID`: the effective one, and root of what is not dumpable.
fn is_whom(line: &EarlyoomLine<'_>, process: &Process) -> bool {
    let owner = || Path::new("/proc").join(line.pid.0.to_string()).metadata().ok().map(|folder| folder.uid());
    let same_user = line.uid.is_none_or(|uid| uid == process.uid || owner() == Some(uid.0));
    process.comm.as_bytes() == line.comm && same_user
}

/// What an entry tells of.
#[derive(Debug)]
struct Heard {
    facts: KillFacts,
    /// It is to be told only if this process goes: a program can have another's death announced, and earlyoom announces
    /// those that it spares (`--dryrun`), too.
    goes: Option<PidFd>,
}

impl From<KillFacts> for Heard {
    fn from(facts: KillFacts) -> Self {
        Self { facts, goes: None }
    }
}

/// Tells of it, where need be by a thread that waits for the process to go first.
fn tell(heard: Heard, link: &Link, witnesses: &Arc<()>) {
    let Heard { facts, goes } = heard;
    // One is held here, and one by each thread.
    let Some(goes) = goes.filter(|_| Arc::strong_count(witnesses) <= WITNESSES_MAX) else {
        return link.foreign(facts);
    };
    let (theirs, mark) = (link.clone(), Arc::clone(witnesses));
    let started = thread::Builder::new().name("witness".into()).spawn(move || {
        // What cannot be waited for is told.
        if goes.wait_exit(GOES_WITHIN).unwrap_or(true) {
            theirs.foreign(facts);
        }
        drop(mark);
    });
    if let Err(error) = started {
        link.say_programs(format!("a kill is not told: no thread for it: {error}"));
    }
}

/// Text, or bytes that are no UTF-8 (`systemd.journal-export`'s JSON has them as numbers).
fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Array(bytes) => bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// The user whose slice a cgroup is in.
fn user_of(cgroup: &str) -> Option<Uid> {
    cgroup
        .split('/')
        .find_map(|name| name.strip_prefix("user-")?.strip_suffix(".slice"))
        .and_then(|number| number.parse().ok())
        .map(Uid)
}

#[cfg(test)]
mod tests;
