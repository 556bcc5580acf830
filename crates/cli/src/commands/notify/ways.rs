//! How a notice reaches somebody. Whatever hangs is left to itself after 10 seconds, and holds up nobody but itself.

use super::notice::Notice;
use crate::hook;
use rustix::fs::{Mode, OFlags};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

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

/// What it says is for nobody.
fn run(mut command: Command, input: &[u8]) -> Result<(), String> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    hook::run(command, input)
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

    #[test]
    fn only_terminals_of_the_user_count_and_no_plain_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("3"), "").unwrap();
        let own = rustix::process::getuid().as_raw();
        assert!(terminals(own, &[folder.path()]).is_empty());
    }
}
