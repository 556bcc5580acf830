//! How a notice reaches somebody. Whatever hangs is left to itself after 10 seconds, and holds up nobody but itself.

use super::notice::Notice;
use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process_group},
};
use std::{
    fs,
    io::{self, Write as _},
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long a command may take.
const COMMAND_MAY_TAKE: Duration = Duration::from_secs(10);
/// So many notices may be on their way at once.
const UNDER_WAY_MAX: usize = 8;
/// So many terminals of one user are written to.
const TERMINALS_MAX: usize = 32;
/// Where terminals are.
const TERMINALS: [&str; 2] = ["/dev/pts", "/dev"];
/// In a terminal's mode: others may write to it (mesg(1)).
const GROUP_MAY_WRITE: u32 = 0o020;

/// By which ways notices go.
#[derive(Debug, Clone)]
pub(super) struct Ways {
    pub(super) desktop: bool,
    pub(super) terminals: bool,
    pub(super) bus: bool,
    pub(super) command: Vec<String>,
}

/// What is under way.
#[derive(Debug)]
pub(super) struct Deliveries {
    ways: Arc<Ways>,
    under_way: Arc<AtomicUsize>,
}

impl Deliveries {
    pub(super) fn new(ways: Ways) -> Self {
        Self { ways: Arc::new(ways), under_way: Arc::default() }
    }

    /// Has it delivered, by a thread of its own. The error says why not.
    pub(super) fn begin(&self, notice: Notice) -> Result<(), String> {
        if self.under_way.load(Ordering::Relaxed) >= UNDER_WAY_MAX {
            return Err(format!("{UNDER_WAY_MAX} notices are under way"));
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let (ways, under_way) = (Arc::clone(&self.ways), Arc::clone(&self.under_way));
        let started = thread::Builder::new().spawn(move || {
            ways.deliver(&notice);
            under_way.fetch_sub(1, Ordering::Relaxed);
        });
        started.map(drop).map_err(|error| {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            format!("cannot start a thread: {error}")
        })
    }
}

impl Ways {
    fn deliver(&self, notice: &Notice) {
        let mut failed = Vec::new();
        if self.terminals {
            write_to_terminals(notice);
        }
        if self.desktop {
            failed.extend(run(desktop(notice), &[]).err());
        }
        if self.bus {
            failed.extend(run(bus(notice), &[]).err());
        }
        if let Some((program, rest)) = self.command.split_first() {
            let mut command = Command::new(program);
            command.args(rest);
            match serde_json::to_vec(notice) {
                Ok(json) => failed.extend(run(command, &json).err()),
                Err(error) => failed.push(error.to_string()),
            }
        }
        for why in failed {
            eprintln!("plimsoll notify: {}: {why}", notice.about());
        }
    }
}

/// Bodies of notifications may be markup to whoever shows them.
fn desktop(notice: &Notice) -> Command {
    let plain = notice.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut command = Command::new("notify-send");
    command.args(["--app-name=Plimsoll", "--icon=dialog-warning", "--urgency=critical", "--"]);
    command.args([&notice.title, &plain]);
    command
}

/// As earlyoom sends it.
fn bus(notice: &Notice) -> Command {
    let mut command = Command::new("busctl");
    command.args(["--system", "emit", "/", "net.nuetzlich.SystemNotifications", "Notify", "ss"]);
    command.args([&notice.title, &notice.text]);
    command
}

/// Runs a command to its end, or for as long as it may take.
fn run(mut command: Command, input: &[u8]) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // Of a group of its own, so that what it started ends with it.
    let command = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn();
    let mut child = child.map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            format!("there is no '{name}'; install it, or leave this way out")
        } else {
            format!("cannot run '{name}': {error}")
        }
    })?;
    let until = Instant::now() + COMMAND_MAY_TAKE;
    if let Some(mut pipe) = child.stdin.take() {
        let input = input.to_vec();
        // Whoever does not read it holds up this thread alone: it ends with the command.
        thread::spawn(move || pipe.write_all(&input).ok());
    }
    match wait(&mut child, until).map_err(|error| format!("'{name}': {error}"))? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("'{name}' failed: {status}")),
        None => Err(format!("'{name}' took longer than {} s and was ended", COMMAND_MAY_TAKE.as_secs())),
    }
}

/// `None`: it had not ended by then, and was ended.
fn wait(child: &mut Child, until: Instant) -> io::Result<Option<std::process::ExitStatus>> {
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(20));
    }
    // Not waited for, it has its number still.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process_group(group, Signal::KILL)?;
    }
    child.wait().map(|_| None)
}

/// To those of the user that take messages. One that is full, or gone, is left out.
fn write_to_terminals(notice: &Notice) {
    let text = terminal_text(notice);
    for terminal in terminals(notice.uid, &TERMINALS.map(Path::new)) {
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(opened) = rustix::fs::open(&terminal, flags, Mode::empty()) else { continue };
        let mut opened = fs::File::from(opened);
        // Closed meanwhile, it may be another user's.
        if opened.metadata().is_ok_and(|facts| takes_messages(&facts, notice.uid)) {
            // What is shown there is the user's; nothing of ours depends on it.
            opened.write_all(text.as_bytes()).ok();
        }
    }
}

fn terminal_text(notice: &Notice) -> String {
    format!("\r\n\x07{}\r\n{}\r\n", notice.title, notice.text.replace('\n', "\r\n"))
}

fn takes_messages(facts: &fs::Metadata, uid: u32) -> bool {
    facts.file_type().is_char_device() && facts.uid() == uid && facts.mode() & GROUP_MAY_WRITE != 0
}

/// The terminals that a user has open and that others may write to.
fn terminals(uid: u32, folders: &[&Path]) -> Vec<PathBuf> {
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let is_open = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        // `/dev/tty` is whoever asks.
        let named = name.to_str().is_some_and(|name| {
            let number = name.strip_prefix("tty").unwrap_or(name);
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        named && entry.metadata().is_ok_and(|facts| takes_messages(&facts, uid))
    };
    entries.filter(is_open).map(|entry| entry.path()).take(TERMINALS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_gets_its_input_and_its_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept");
        let script = format!("cat > '{}'", kept.display());
        assert_eq!(run(shell(&script), b"{\"uid\":1}"), Ok(()));
        assert_eq!(fs::read_to_string(kept).unwrap(), "{\"uid\":1}");
        assert_eq!(run(shell("exit 3"), b"x"), Err("'sh' failed: exit status: 3".to_owned()));
        let missing = run(Command::new("/nonexistent/tell"), b"");
        assert!(missing.unwrap_err().contains("there is no '/nonexistent/tell'"));
    }

    #[test]
    fn a_command_that_hangs_and_reads_nothing_is_ended() {
        let mut child = shell("sleep 60; true").process_group(0).spawn().unwrap();
        let ended = wait(&mut child, Instant::now() + Duration::from_millis(100)).unwrap();
        assert!(ended.is_none() && child.try_wait().unwrap().is_some());
    }

    #[test]
    fn only_terminals_of_the_user_count_and_no_plain_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("3"), "").unwrap();
        let own = rustix::process::getuid().as_raw();
        assert!(terminals(own, &[folder.path()]).is_empty());
    }
}
