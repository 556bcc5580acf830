//! One kill after the other, each way with its own user.

use crate::{
    child::{STEP, Workload},
    error::BenchError,
    guarded::{Guarded, Line, Starter, Triggers},
    options::Options,
    proc,
    stamps::Stamps,
};
use plimsoll_policy::incident::Trigger;
use std::{fmt::Display, thread, time::Duration};

const MIB: u64 = 1 << 20;

/// The users of the ways.
pub(super) const IN_KERNEL_UID: u32 = 60_010;
const DAEMON_UID: u32 = 60_011;
const TIMER_UID: u32 = 60_012;
const ANOTHER_UID: u32 = 60_014;

/// What the line leaves to the crosser beside a victim that sleeps.
const CROSSER_ROOM_BYTES: u64 = 2 * MIB;
const CROSSER_BYTES: u64 = MIB;

/// How far under its line a victim stops before it is let go, in pages.
const LAST_PAGES: u64 = 64;

/// The seed's timer, in milliseconds.
const TIMER_INTERVAL_MS: u64 = 200;

/// The timer reads approximate counters: its victim goes this many pages past the line and waits there.
const TIMER_OVERRUN_PAGES: u64 = 256;

/// Time given to a touch to have its consequence before the next one, where the victim sleeps: longer than the bar for
/// the daemon's 99th percentile, and than a victim takes to give its memory back (1 GiB takes 70 ms and more), so that
/// a late death is not taken for one of the next touch.
const PATIENCE: Duration = Duration::from_millis(50);
const PATIENCE_PER_MIB: Duration = Duration::from_micros(500);

/// Who kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The event that crosses, which is its victim's own.
    InKernel,
    /// The event that crosses, while another process is the largest.
    Another,
    /// The daemon, told by the kernel side, which may not act by itself; another process is the largest.
    Daemon,
    /// A loop that sums and sleeps.
    Timer,
}

impl Way {
    /// The variant's name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::InKernel => "in-kernel",
            Self::Another => "in-kernel, another",
            Self::Daemon => "daemon",
            Self::Timer => "timer",
        }
    }

    /// The trigger that the incident must carry; the timer leaves none.
    pub(super) const fn trigger(self) -> Option<Trigger> {
        match self {
            Self::InKernel | Self::Another => Some(Trigger::InKernel),
            Self::Daemon => Some(Trigger::Daemon),
            Self::Timer => None,
        }
    }
}

/// One kill.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kill {
    /// Who died.
    pub(super) pid: u32,
    /// From the stamp of the touch that crossed to its pidfd readable.
    pub(super) latency_ns: u64,
    /// Touches from the crossing one on; 0 means that it was killed under its line.
    pub(super) touches_after_crossing: usize,
}

/// What the kills need.
#[derive(Debug)]
pub(super) struct Arena {
    options: Options,
    guard: Box<dyn Guarded>,
    /// The daemon's way has a guard of its own, whose kernel side may not act.
    daemon_only: Box<dyn Guarded>,
    timer: Workload,
    stamps: Stamps,
    page_bytes: u64,
    kills: u64,
    drawn: Vec<(Way, u32)>,
}

impl Arena {
    /// Opens it, with its guards.
    pub(super) fn open(options: &Options, start: Starter<'_>) -> Result<Self, BenchError> {
        let timer = Workload::start(&options.workload, &[&"timer", &TIMER_INTERVAL_MS])?;
        let stamps = Stamps::create(crate::workload::UNITS_MAX)?;
        Ok(Self {
            options: options.clone(),
            guard: start(Triggers::All)?,
            daemon_only: start(Triggers::DaemonOnly)?,
            timer,
            stamps,
            page_bytes: proc::page_size_bytes(),
            kills: 0,
            drawn: Vec::new(),
        })
    }

    /// The guard of this way's users.
    pub(super) fn guard(&mut self, way: Way) -> &mut dyn Guarded {
        if way == Way::Daemon { self.daemon_only.as_mut() } else { self.guard.as_mut() }
    }

    /// Draws the lines for victims of this size.
    pub(super) fn draw_lines(&mut self, bytes: u64) -> Result<(), BenchError> {
        self.draw(Way::InKernel, IN_KERNEL_UID, bytes)?;
        self.draw(Way::Another, ANOTHER_UID, bytes + CROSSER_ROOM_BYTES)?;
        self.draw(Way::Daemon, DAEMON_UID, bytes + CROSSER_ROOM_BYTES)
    }

    /// Draws the line of the kernel's way `bytes` above what its user uses already.
    pub(super) fn draw_line_above_usage(&mut self, bytes: u64) -> Result<(), BenchError> {
        self.draw(Way::InKernel, IN_KERNEL_UID, 2 << 30)?;
        let usage = self.guard.account(IN_KERNEL_UID)?.usage_bytes;
        self.draw(Way::InKernel, IN_KERNEL_UID, usage + bytes)
    }

    /// Takes away the lines that are drawn.
    pub(super) fn clear_lines(&mut self) -> Result<(), BenchError> {
        while let Some((way, uid)) = self.drawn.pop() {
            self.guard(way).clear_line(uid)?;
        }
        Ok(())
    }

    fn draw(&mut self, way: Way, uid: u32, hard_bytes: u64) -> Result<(), BenchError> {
        self.guard(way).set_line(Line { uid, hard_bytes, soft_bytes: None })?;
        if !self.drawn.contains(&(way, uid)) {
            self.drawn.push((way, uid));
        }
        Ok(())
    }

    /// One kill of a victim of this size.
    pub(super) fn kill(&mut self, way: Way, bytes: u64) -> Result<Kill, BenchError> {
        self.stamps.clear()?;
        self.kills += 1;
        match way {
            Way::InKernel => self.kill_in_kernel(bytes),
            Way::Another => self.kill_sleeper(ANOTHER_UID, bytes),
            Way::Daemon => self.kill_sleeper(DAEMON_UID, bytes),
            Way::Timer => self.kill_by_timer(bytes),
        }
    }

    fn victim(&self, uid: u32, bytes: u64) -> Result<Workload, BenchError> {
        let words: [&dyn Display; 6] = [&"victim", &uid, &self.stamps.path(), &bytes, &1, &"small"];
        Workload::start(&self.options.workload, &words)
    }

    /// The victim touches until it dies; its last stamp is the touch that crossed.
    fn kill_in_kernel(&self, bytes: u64) -> Result<Kill, BenchError> {
        let mut victim = self.victim(IN_KERNEL_UID, bytes - LAST_PAGES * self.page_bytes)?;
        victim.tell(&format!("go {}", crate::workload::UNITS_MAX))?;
        let died_ns = victim.death_ns(STEP / 6)?;
        let stamps = self.stamps.read()?;
        kill_at(&victim, stamps.last().copied(), died_ns, 1)
    }

    /// The crosser goes to just under the line, then one page at a time until the sleeper dies.
    fn kill_sleeper(&self, uid: u32, bytes: u64) -> Result<Kill, BenchError> {
        let sleeper = Workload::start(&self.options.workload, &[&"hold", &uid, &bytes])?;
        let mut crosser = self.victim(uid, CROSSER_BYTES)?;
        let patience = PATIENCE + PATIENCE_PER_MIB * u32::try_from(bytes / MIB).unwrap_or(u32::MAX);
        let mut used = 0;
        for pid in [sleeper.pid(), crosser.pid()] {
            used += proc::charged_bytes(pid)?;
        }
        let room_pages = (bytes + CROSSER_ROOM_BYTES).saturating_sub(used) / self.page_bytes;
        crosser.tell(&format!("go {}", room_pages.saturating_sub(2)))?;
        crosser.expect("touched")?;
        if sleeper.wait_dead_ns(patience)?.is_some() {
            return Err(BenchError::malformed(
                "a kill at the line",
                &format!("the sleeper died {room_pages} pages under it"),
            ));
        }
        for _ in 0..LAST_PAGES {
            crosser.tell("go 1")?;
            if let Some(died_ns) = sleeper.wait_dead_ns(patience)? {
                return kill_at(&sleeper, self.stamps.read()?.last().copied(), died_ns, 1);
            }
            crosser.expect("touched")?;
        }
        Err(BenchError::Deadline { awaited: format!("kill of the sleeper of uid {uid}"), within: patience })
    }

    /// The victim goes past the line at a random moment of the timer's period, and waits to be found there.
    fn kill_by_timer(&mut self, bytes: u64) -> Result<Kill, BenchError> {
        let mut victim = self.victim(TIMER_UID, bytes - MIB)?;
        let room_pages = bytes.saturating_sub(proc::charged_bytes(victim.pid())?) / self.page_bytes;
        self.timer.tell(&format!("on {TIMER_UID} {bytes}"))?;
        self.timer.expect("on")?;
        // The last kill was in step with the timer; 79 ms a kill, modulo its period, goes through all of its phases.
        thread::sleep(Duration::from_millis(self.kills * 79 % TIMER_INTERVAL_MS));
        victim.tell(&format!("go {}", room_pages + TIMER_OVERRUN_PAGES))?;
        let died_ns = victim.death_ns(STEP / 6)?;
        self.timer.tell("off")?;
        self.timer.expect("off")?;
        let stamps = self.stamps.read()?;
        let crossing = usize::try_from(room_pages).ok().filter(|index| *index < stamps.len());
        let after = crossing.map_or(0, |index| stamps.len() - index);
        kill_at(&victim, crossing.map_or(stamps.last(), |index| stamps.get(index)).copied(), died_ns, after)
    }
}

fn kill_at(
    victim: &Workload,
    crossed_ns: Option<u64>,
    died_ns: u64,
    touches_after_crossing: usize,
) -> Result<Kill, BenchError> {
    let latency_ns = crossed_ns
        .map(|crossed_ns| died_ns.saturating_sub(crossed_ns))
        .ok_or_else(|| BenchError::malformed("the stamps of a victim", "it died before its first touch"))?;
    Ok(Kill { pid: victim.pid(), latency_ns, touches_after_crossing })
}
