//! `trace sum|scan`: reads `kmem:rss_stat` from a trace pipe of its own, as the seed's notifier does.
//!
//! `on UID PID...` enables the event; `off` disables it, handles what is still in the buffer, and answers
//! `off EVENTS LOST FINISHED_NS`, the latter being the monotonic time at which the last event was handled. `sum` keeps
//! one sum per user, `scan` reads the statm of each PID at each anonymous event ('trivial'; being told the processes
//! and keeping their files open is kinder to it than a walk through /proc).
//!
//! It works in a tracing instance of its own, within a private mount of tracefs, and removes the instance when it ends:
//! it is therefore not killed with its parent, but ends when its input closes or nothing was heard for five minutes.
//! Instances of benches that were killed are removed by the next one.

mod event;

use super::{SILENCE_SECONDS, number, say, usage};
use crate::error::BenchError;
use event::{Line, RssStat, decode};
use nix::sched::{CloneFlags, unshare};
use plimsoll_policy::units::Uid;
use plimsoll_sys::process::clock_monotonic_ns;
use plimsoll_wire::text::{parse_statm, parse_status};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead, ErrorKind, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const TRACEFS: &str = "/sys/kernel/tracing";
const PREFIX: &str = "plimsoll-bench-";

/// Buffer for all processors together, and the bounds for one: a segment of 512 MiB on one processor (131,072 faults,
/// about 60 bytes each) fits into its 8 MiB, and a machine of many processors is not filled with buffers.
const BUFFERS_KIB: usize = 64 << 10;
const BUFFER_KIB: (usize, usize) = (1 << 10, 8 << 10);

/// A tracing instance; removed when dropped.
struct Instance {
    folder: PathBuf,
}

impl Instance {
    fn create() -> Result<Self, BenchError> {
        let event = Path::new(TRACEFS).join("events/kmem/rss_stat");
        if !event.exists() {
            // Seen by this process alone, and gone with it.
            unshare(CloneFlags::CLONE_NEWNS).map_err(BenchError::io("unshare the mounts"))?;
            mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
                .map_err(BenchError::io("make / private"))?;
            mount("tracefs", TRACEFS, "tracefs", MountFlags::empty(), None)
                .map_err(BenchError::io(format!("mount tracefs on {TRACEFS}")))?;
        }
        if !event.exists() {
            return Err(BenchError::malformed("event kmem:rss_stat: this kernel has none", TRACEFS));
        }
        let instances = Path::new(TRACEFS).join("instances");
        remove_stale(&instances);
        let folder = instances.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder).map_err(BenchError::io(format!("create {}", folder.display())))?;
        let instance = Self { folder };
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (least, most) = BUFFER_KIB;
        instance.write("buffer_size_kb", &(BUFFERS_KIB / cpus).clamp(least, most).to_string())?;
        Ok(instance)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), BenchError> {
        let path = self.folder.join(file);
        fs::write(&path, text).map_err(BenchError::io(format!("write {}", path.display())))
    }

    fn enable(&self, enabled: bool) -> Result<(), BenchError> {
        self.write("events/kmem/rss_stat/enable", if enabled { "1" } else { "0" })
    }

    fn open_pipe(&self) -> Result<File, BenchError> {
        let path = self.folder.join("trace_pipe");
        open(&path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)
            .map_err(BenchError::io(format!("open {}", path.display())))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Fails only while somebody else reads it; the next bench removes it then.
        drop(fs::remove_dir(&self.folder));
    }
}

/// Removes instances whose process is gone.
fn remove_stale(instances: &Path) {
    let Ok(entries) = fs::read_dir(instances) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another bench may have been faster; either way it is gone.
            drop(fs::remove_dir(entry.path()));
        }
    }
}

/// What is done with an event.
#[derive(Default)]
struct Observer {
    scan: bool,
    statm: Vec<File>,
    users: HashMap<u32, u32>,
    sizes: HashMap<(u64, bool), u64>,
    usage_bytes: HashMap<u32, u64>,
    events: u64,
    lost: u64,
    finished_ns: u64,
}

impl Observer {
    fn begin(&mut self, pids: &[u64]) -> Result<(), BenchError> {
        *self = Self { scan: self.scan, ..Self::default() };
        for pid in pids.iter().filter(|_| self.scan) {
            let path = format!("/proc/{pid}/statm");
            self.statm.push(File::open(&path).map_err(BenchError::io(format!("open {path}")))?);
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<(), BenchError> {
        match decode(line) {
            Line::Event(event) if self.scan && event.anonymous => self.scan_all(),
            Line::Event(event) if !self.scan && event.charged && event.current => self.add(event),
            Line::Event(_) | Line::Other => {}
            Line::Lost(count) => self.lost += count,
        }
        self.events += 1;
        Ok(())
    }

    /// 'Trivial': the sum of all of them, at each event.
    fn scan_all(&self) {
        let mut text = [0; 128];
        let sum: u64 = self
            .statm
            .iter()
            .filter_map(|file| {
                let count = file.read_at(&mut text, 0).ok()?;
                Some(parse_statm(text.get(..count)?).ok()?.anonymous().0)
            })
            .sum();
        std::hint::black_box(sum);
    }

    /// The seed's notifier: one process and one user.
    fn add(&mut self, event: RssStat) {
        let uid = match self.users.get(&event.tid) {
            Some(uid) => *uid,
            None => {
                let status = fs::read(format!("/proc/{}/status", event.tid)).ok();
                let uid = status.and_then(|text| parse_status(&text).ok()?.real_uid);
                // A thread that has ended already cannot be told to anybody; the seed loses it, too.
                let Some(Uid(uid)) = uid else { return };
                self.users.insert(event.tid, uid);
                uid
            }
        };
        let before = self.sizes.insert((event.mm, event.anonymous), event.size_bytes).unwrap_or(0);
        let usage_bytes = self.usage_bytes.entry(uid).or_default();
        *usage_bytes = (*usage_bytes + event.size_bytes).saturating_sub(before);
    }

    /// Handles what the pipe holds now; whether there was anything.
    fn drain(&mut self, pipe: &mut File, pending: &mut Vec<u8>) -> Result<bool, BenchError> {
        let mut chunk = [0; 65_536];
        let count = match pipe.read(&mut chunk) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::Interrupted => {
                0
            }
            Err(error) => return Err(BenchError::io("read trace_pipe")(error)),
        };
        pending.extend(chunk.iter().take(count));
        let mut handled = 0;
        while let Some(length) = pending.iter().skip(handled).position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(pending.get(handled..handled + length).unwrap_or_default())
                .into_owned();
            self.line(&line)?;
            handled += length + 1;
        }
        pending.drain(..handled);
        if handled > 0 {
            self.finished_ns = clock_monotonic_ns();
        }
        Ok(count > 0)
    }
}

/// Runs it.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let scan = match arguments.first().map(String::as_str) {
        Some("scan") => true,
        Some("sum") => false,
        _ => return Err(usage(&arguments.join(" "))),
    };
    let instance = Instance::create()?;
    let mut pipe = instance.open_pipe()?;
    let mut observer = Observer { scan, ..Observer::default() };
    let mut input = io::stdin().lock();
    let mut pending = Vec::new();
    let mut heard_at = Instant::now();
    say("ready")?;
    loop {
        let mut fds = [PollFd::new(&input, PollFlags::IN), PollFd::new(&pipe, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(BenchError::io("poll")(errno)),
        }
        let commanded = fds.first().is_some_and(|input| !input.revents().is_empty());
        observer.drain(&mut pipe, &mut pending)?;
        if heard_at.elapsed() > Duration::from_secs(u64::from(SILENCE_SECONDS)) {
            return Ok(());
        }
        if !commanded {
            continue;
        }
        heard_at = Instant::now();
        let mut line = String::new();
        if input.read_line(&mut line).map_err(BenchError::io("read from the bench"))? == 0 {
            return Ok(());
        }
        let words: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
        match words.first().map(String::as_str) {
            Some("on") => {
                let pids: Vec<u64> =
                    (2..words.len()).map(|at| number(&words, at)).collect::<Result<_, _>>()?;
                observer.begin(&pids)?;
                instance.enable(true)?;
                say("on")?;
            }
            Some("off") => {
                instance.enable(false)?;
                while observer.drain(&mut pipe, &mut pending)? {}
                say(&format!("off {} {} {}", observer.events, observer.lost, observer.finished_ns))?;
            }
            _ => return Err(usage(&line)),
        }
    }
}
