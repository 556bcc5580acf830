//! One stretch of the demo: the timed reader (and a program that is started again and again), first without pressure,
//! then under the hog and the stream.

use super::{OFF, SLOW_BYTES_A_SECOND, Stage};
use crate::{
    child::{STEP, Workload, look_until},
    error::BenchError,
    scope::Scope,
};
use std::{
    collections::HashSet,
    ffi::OsString,
    fmt::Display,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

const HOG_UID: u32 = 60_032;
const STREAM_UID: u32 = 60_033;
const READER_UID: u32 = 60_034;
pub(super) const STARTER_UID: u32 = 60_035;

/// Between two starts of the program.
const START_PAUSE: Duration = Duration::from_secs(1);

/// A program that takes longer than this counts with this.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks at whether the hog is still there.
const POLL: Duration = Duration::from_millis(20);

/// How much longer a stretch gets at most, while hogs are slow to die. The stream, which hears nothing meanwhile, has to be
/// told to end before its watchdog ends it.
const LONGER_MAX: Duration = Duration::from_secs(60);

/// Who protects, and from when on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course<'a> {
    /// What the protection is set to before the first read; off where empty.
    pub(super) settings: &'a [(&'a str, u64)],
    /// What it is set to so long after the pressure began.
    pub(super) later: Option<(Duration, &'a [(&'a str, u64)])>,
    /// The peer locks what is read and started.
    pub(super) peer: bool,
    /// The hog and the stream run.
    pub(super) pressed: bool,
    /// What reading from the disk is held to; as it is where `None`.
    pub(super) bytes_a_second: Option<u64>,
    /// What is read.
    pub(super) file: &'a Path,
    /// The program is started each second.
    pub(super) starting: bool,
    /// From the begin of the pressure on.
    pub(super) lasting: Duration,
}

impl<'a> Course<'a> {
    /// Pressure without protection, from a disk that is held where it can be.
    pub(super) fn unprotected(stage: &Stage<'_>, file: &'a Path) -> Self {
        Self {
            settings: &OFF,
            later: None,
            peer: false,
            pressed: true,
            bytes_a_second: stage.slow.then_some(SLOW_BYTES_A_SECOND),
            file,
            starting: false,
            lasting: stage.sizes.lasting,
        }
    }
}

/// One read, or start of the program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Taken {
    /// Seconds from the begin of the pressure to its own; negative before.
    pub(super) at: f64,
    /// How long it took, in seconds.
    pub(super) seconds: f64,
    /// What it had fetched from the disk; not known of programs.
    pub(super) fetched_bytes: u64,
}

/// Who took the hogs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kills {
    /// The kernel's OOM killer, anybody in the cgroup.
    pub(super) kernel: u64,
    /// The guard under test: a hog.
    pub(super) guard: u64,
    /// The guard under test: somebody else.
    pub(super) others: u64,
}

/// What a stretch gave.
#[derive(Debug, Clone, Default)]
pub(super) struct Segment {
    pub(super) reads: Vec<Taken>,
    pub(super) starts: Vec<Taken>,
    pub(super) kills: Kills,
    /// In the cgroup, at the end.
    pub(super) locked_bytes: u64,
    /// Processor time of the daemon under pressure, in per cent of one processor.
    pub(super) daemon_percent: Option<f64>,
}

impl Segment {
    /// Seconds of the reads that began under pressure (or would have).
    pub(super) fn read_seconds(&self) -> Vec<f64> {
        seconds(&self.reads)
    }

    /// Seconds of the starts.
    pub(super) fn start_seconds(&self) -> Vec<f64> {
        seconds(&self.starts)
    }

    /// Starts that were given up.
    pub(super) fn unfinished(&self) -> usize {
        self.start_seconds().iter().filter(|seconds| **seconds >= START_PATIENCE.as_secs_f64()).count()
    }

    /// MiB that each read had fetched from the disk.
    pub(super) fn fetched_mib(&self) -> Vec<f64> {
        let pressed = self.reads.iter().filter(|read| read.at >= 0.0);
        pressed.map(|read| read.fetched_bytes as f64 / f64::from(1 << 20)).collect()
    }
}

fn seconds(taken: &[Taken]) -> Vec<f64> {
    taken.iter().filter(|taken| taken.at >= 0.0).map(|taken| taken.seconds).collect()
}

/// What ends the workers: the timed ones first, so that their last figure is taken under pressure.
#[derive(Debug, Default)]
struct Over {
    timing: AtomicBool,
    pressing: AtomicBool,
    /// Hogs that have died so far.
    died: AtomicUsize,
}

/// A figure with the moment it began at.
pub(crate) type Timed = Vec<(Instant, f64, u64)>;

impl Stage<'_> {
    /// Runs it, from a cold cache on.
    pub(super) fn run_segment(&mut self, course: &Course<'_>) -> Result<Segment, BenchError> {
        self.data.forget()?;
        self.protect(course.settings)?;
        let victims_before = self.floor_victims()?.len();
        let kernel_before = self.scope.kernel_kills()?;
        let over = Over::default();
        let ran = thread::scope(|scope| {
            let ran = self.run_workers(scope, course, &over);
            // Whatever failed, nobody is left running.
            over.timing.store(true, Ordering::Relaxed);
            over.pressing.store(true, Ordering::Relaxed);
            ran
        });
        self.scope.hold_reading(&self.data.timed, None);
        let (mut segment, hogs) = ran?;
        segment.kills.kernel = self.scope.kernel_kills()?.saturating_sub(kernel_before);
        for victim in self.floor_victims()?.into_iter().skip(victims_before) {
            let count =
                if hogs.contains(&victim) { &mut segment.kills.guard } else { &mut segment.kills.others };
            *count += 1;
        }
        Ok(segment)
    }

    fn run_workers<'scope>(
        &mut self,
        threads: &'scope thread::Scope<'scope, '_>,
        course: &Course<'_>,
        over: &'scope Over,
    ) -> Result<(Segment, HashSet<u32>), BenchError> {
        let reader = self.start_reader(course.file)?;
        let starter = if course.starting { self.start_starter()? } else { None };
        let pause = self.sizes.pause;
        let reader = threads.spawn(move || time_until(reader, "read", pause, &over.timing));
        let starter = starter
            .map(|starter| threads.spawn(move || time_until(starter, "start", START_PAUSE, &over.timing)));
        thread::sleep(self.sizes.warming);
        let _peer = if course.peer { self.start_peer(course)? } else { None };
        if course.bytes_a_second.is_some() {
            self.scope.hold_reading(&self.data.timed, course.bytes_a_second);
        }
        let mut stream = None;
        let mut hogs = None;
        if course.pressed {
            stream = Some(self.start_stream()?);
            let hog = self.hog();
            let scope = Arc::clone(&self.scope);
            hogs = Some(threads.spawn(move || hog_until(&hog, &scope, over)));
        }
        let began = Instant::now();
        let daemon = self.daemon_meter();
        if let Some((after, settings)) = course.later {
            thread::sleep(after);
            self.protect(settings)?;
        }
        thread::sleep(course.lasting.saturating_sub(began.elapsed()));
        let hogs_wanted = if course.pressed { self.sizes.hogs } else { 0 };
        while over.died.load(Ordering::Relaxed) < hogs_wanted && began.elapsed() < course.lasting + LONGER_MAX
        {
            thread::sleep(POLL);
        }
        over.timing.store(true, Ordering::Relaxed);
        let reads = joined(reader)??;
        let starts = starter.map(joined).transpose()?.transpose()?.unwrap_or_default();
        let daemon_percent = daemon.percent();
        let locked_bytes = self.scope.locked_bytes()?;
        over.pressing.store(true, Ordering::Relaxed);
        let hogs = hogs.map(joined).transpose()?.transpose()?.unwrap_or_default();
        if let Some(stream) = stream {
            if stream.wait_dead_ns(Duration::ZERO)?.is_some() {
                return Err(BenchError::malformed("the end of the stream", "somebody killed it"));
            }
            stream.finish(STEP)?;
        }
        let segment = Segment {
            reads: since(&reads, began),
            starts: since(&starts, began),
            kills: Kills::default(),
            locked_bytes,
            daemon_percent,
        };
        Ok((segment, hogs))
    }

    /// In the cgroup, and ready.
    pub(super) fn start_in_scope(&self, words: &[&dyn Display]) -> Result<Workload, BenchError> {
        let workload = Workload::start(&self.options.workload, words)?;
        self.scope.hold(workload.pid())?;
        Ok(workload)
    }

    pub(super) fn start_reader(&self, file: &Path) -> Result<Workload, BenchError> {
        self.start_in_scope(&[&"read", &READER_UID, &file.display()])
    }

    fn start_stream(&self) -> Result<Workload, BenchError> {
        let mut stream = self.start_in_scope(&[&"stream", &STREAM_UID, &self.data.stream.display()])?;
        stream.tell("go")?;
        Ok(stream)
    }

    fn start_starter(&self) -> Result<Option<Workload>, BenchError> {
        let Some(program) = &self.data.program else { return Ok(None) };
        let (libraries, path) = (program.folder.display(), program.path());
        self.start_in_scope(&[&"start", &STARTER_UID, &libraries, &path.display(), &"--version"]).map(Some)
    }

    /// How to start one that takes all there is.
    fn hog(&self) -> Hog {
        let bytes = self.sizes.memory_bytes + self.sizes.memory_bytes / 8;
        Hog { binary: self.options.workload.clone(), bytes }
    }

    /// `vmtouch -l`, when it holds what it can.
    fn start_peer(&self, course: &Course<'_>) -> Result<Option<Workload>, BenchError> {
        let Some(vmtouch) = &self.vmtouch else { return Ok(None) };
        let mut files = vec![course.file.to_owned()];
        if course.starting {
            files.extend(self.data.program_files());
        }
        self.lock_by_peer(vmtouch, &files).map(Some)
    }

    pub(super) fn lock_by_peer(&self, vmtouch: &Path, files: &[PathBuf]) -> Result<Workload, BenchError> {
        let mut command = Command::new(vmtouch);
        command.args([OsString::from("-q"), "-l".into(), "-m".into(), "4G".into()]).args(files);
        let bytes: u64 = files.iter().filter_map(|file| Some(std::fs::metadata(file).ok()?.len())).sum();
        let peer = Workload::spawn(command, "vmtouch")?;
        // Pages that lie elsewhere, such as those of the program's copies, are not charged to the cgroup.
        let _held = self.wait_locked(bytes / 10 * 9, STEP / 12)?;
        Ok(peer)
    }

    /// Waits until so many bytes of the cgroup are locked; whether they are.
    pub(super) fn wait_locked(&self, bytes: u64, within: Duration) -> Result<bool, BenchError> {
        let locked = || Ok((self.scope.locked_bytes()? >= bytes).then_some(()));
        look_until(within, POLL, locked).map(|locked| locked.is_some())
    }
}

/// How to start a hog.
#[derive(Debug, Clone)]
struct Hog {
    binary: PathBuf,
    bytes: u64,
}

impl Hog {
    fn start(&self, scope: &Scope) -> Result<Workload, BenchError> {
        let mut hog = Workload::start(&self.binary, &[&"hog", &HOG_UID])?;
        scope.hold(hog.pid())?;
        // One that a guard was quicker to kill takes no word any more; it counts as dead like any other.
        drop(hog.tell(&format!("take {}", self.bytes)));
        Ok(hog)
    }
}

/// One hog after the other; their process numbers.
fn hog_until(hog: &Hog, scope: &Scope, over: &Over) -> Result<HashSet<u32>, BenchError> {
    let mut all = HashSet::new();
    while !over.pressing.load(Ordering::Relaxed) {
        let running = hog.start(scope)?;
        all.insert(running.pid());
        while running.wait_dead_ns(POLL)?.is_none() {
            if over.pressing.load(Ordering::Relaxed) {
                running.kill()?;
                return Ok(all);
            }
        }
        over.died.fetch_add(1, Ordering::Relaxed);
    }
    Ok(all)
}

/// Has the worker do it again and again. What is not done when patience ends counts with that, and the worker is then
/// left alone.
pub(crate) fn time_until(
    mut worker: Workload,
    word: &str,
    pause: Duration,
    over: &AtomicBool,
) -> Result<Timed, BenchError> {
    let patience = if word == "start" { START_PATIENCE } else { STEP };
    let mut taken = Timed::new();
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        worker.tell(word)?;
        let numbers = match worker.expect_within(patience, "done") {
            Err(BenchError::Deadline { .. }) => {
                taken.push((began, patience.as_secs_f64(), 0));
                return Ok(taken);
            }
            numbers => numbers?,
        };
        let &[took_ns, second, ..] = numbers.as_slice() else {
            return Err(BenchError::malformed(format!("the answer to {word}"), &format!("{numbers:?}")));
        };
        taken.push((began, took_ns as f64 / 1e9, second));
        let until = Instant::now() + pause;
        while Instant::now() < until && !over.load(Ordering::Relaxed) {
            thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
        }
    }
    Ok(taken)
}

fn since(timed: &Timed, began: Instant) -> Vec<Taken> {
    let at = |moment: Instant| match moment.checked_duration_since(began) {
        Some(after) => after.as_secs_f64(),
        None => -began.saturating_duration_since(moment).as_secs_f64(),
    };
    timed
        .iter()
        .map(|(moment, seconds, fetched_bytes)| Taken {
            at: at(*moment),
            seconds: *seconds,
            fetched_bytes: *fetched_bytes,
        })
        .collect()
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T, BenchError> {
    thread.join().map_err(|_panic| BenchError::malformed("a thread of the bench", "it panicked"))
}
