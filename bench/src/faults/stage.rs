//! Who watches while the crew faults: one guard and the comparators, all started once, engaged by turns.

use super::{USER, crew::Crew};
use crate::{
    child::Workload,
    error::BenchError,
    guarded::{Guarded, Line},
    options::Options,
    report::BenchReport,
};

/// The interval of the seed's timer, in milliseconds.
const TIMER_INTERVAL_MS: u64 = 200;

/// Who watches in one segment.
#[derive(Debug, Clone, Copy)]
pub(super) enum Watch {
    /// Nobody: the daemon runs without a limit.
    None,
    /// The guard, with this line.
    Line(Line),
    /// A sum every 200 ms.
    Timer,
    /// The trace pipe, summed per user.
    Tracepipe,
    /// The trace pipe, and a scan at each event.
    Trivial,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Stage {
    options: Options,
    guard: Box<dyn Guarded>,
    timer: Workload,
    tracepipe: Workload,
    trivial: Workload,
    events: u64,
    lost: u64,
}

impl Stage {
    /// Starts them; the trace comparators need tracefs with `kmem:rss_stat`.
    pub(super) fn set(options: &Options, guard: Box<dyn Guarded>) -> Result<Self, BenchError> {
        let binary = &options.workload;
        Ok(Self {
            guard,
            timer: Workload::start(binary, &[&"timer", &TIMER_INTERVAL_MS])?,
            tracepipe: Workload::start(binary, &[&"trace", &"sum"])?,
            trivial: Workload::start(binary, &[&"trace", &"scan"])?,
            options: options.clone(),
            events: 0,
            lost: 0,
        })
    }

    /// The options it was set with.
    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Lets one of them watch.
    pub(super) fn engage(&mut self, watch: Watch, crew: &Crew) -> Result<(), BenchError> {
        let comparator = match watch {
            Watch::None => return Ok(()),
            Watch::Line(line) => return self.guard.set_line(line),
            Watch::Timer => {
                self.timer.tell(&format!("on {USER} 0"))?;
                &mut self.timer
            }
            Watch::Tracepipe | Watch::Trivial => {
                let pids: Vec<String> = crew.pids().map(|pid| pid.to_string()).collect();
                let tracer = self.tracer(watch);
                tracer.tell(&format!("on {USER} {}", pids.join(" ")))?;
                tracer
            }
        };
        comparator.expect("on").map(drop)
    }

    /// Ends that; the monotonic time at which it had handled all that happened, where it has a queue.
    pub(super) fn disengage(&mut self, watch: Watch) -> Result<Option<u64>, BenchError> {
        match watch {
            Watch::None => Ok(None),
            Watch::Line(line) => self.guard.clear_line(line.uid).map(|()| None),
            Watch::Timer => {
                self.timer.tell("off")?;
                self.timer.expect_numbers::<2>("off").map(|_| None)
            }
            Watch::Tracepipe | Watch::Trivial => {
                let tracer = self.tracer(watch);
                tracer.tell("off")?;
                let [events, lost, finished_ns] = tracer.expect_numbers("off")?;
                self.events += events;
                self.lost += lost;
                Ok(Some(finished_ns))
            }
        }
    }

    fn tracer(&mut self, watch: Watch) -> &mut Workload {
        if matches!(watch, Watch::Trivial) { &mut self.trivial } else { &mut self.tracepipe }
    }

    /// Says what the trace comparators missed.
    pub(super) fn strike(self, report: &mut BenchReport) {
        if self.events > 0 {
            report.note(format!(
                "tracepipe and trivial read {} lines; {} events were overwritten before they were read",
                self.events, self.lost
            ));
        }
    }
}
