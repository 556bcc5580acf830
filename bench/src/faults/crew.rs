//! The processes that fault.

use crate::{child::Workload, cpus, error::BenchError, options::Options};

/// What each process does in one pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Bytes of each mapping.
    pub(crate) bytes_each: u64,
    /// How often it is mapped, touched and unmapped.
    pub(crate) times: u64,
}

/// What one pass took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    /// Time inside the touching alone, a page: the mean over the processes.
    pub(crate) touch_ns_per_page: f64,
    /// Processor time available to the crew from its first map to its last unmap, a page: elapsed time multiplied by
    /// the processors it can use.
    pub(crate) elapsed_ns_per_page: f64,
    /// Processor time that the crew used, a page: free of what others took from it meanwhile.
    pub(crate) cpu_ns_per_page: f64,
    end_ns: u64,
    width: f64,
    pages: f64,
}

impl Pass {
    /// What is added when the pass counts as over only at `finished_ns` (monotonic); 0 where that was before its end.
    pub(crate) fn late_ns_per_page(&self, finished_ns: Option<u64>) -> f64 {
        let late_ns = finished_ns.map_or(0, |finished_ns| finished_ns.saturating_sub(self.end_ns));
        late_ns as f64 * self.width / self.pages
    }
}

/// Some processes of one user, spread over the processors.
#[derive(Debug)]
pub(crate) struct Crew {
    workers: Vec<Workload>,
    width: f64,
}

impl Crew {
    /// Starts them; process i is pinned to processor i modulo their number, so that the scheduler's choices are no
    /// part of the difference.
    pub(crate) fn gather(options: &Options, uid: u32, processes: u64) -> Result<Self, BenchError> {
        let cpus = cpus::allowed()?;
        let mut workers = Vec::new();
        for (_, cpu) in (0..processes).zip(cpus.iter().cycle()) {
            workers.push(Workload::start(&options.workload, &[&"touch", &uid, cpu])?);
        }
        let width = u32::try_from(workers.len().min(cpus.len())).map_or(1.0, f64::from);
        Ok(Self { workers, width })
    }

    /// The processes.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.workers.iter().map(Workload::pid)
    }

    /// One pass of all of them at once.
    pub(crate) fn run(&mut self, load: Load) -> Result<Pass, BenchError> {
        for worker in &mut self.workers {
            worker.tell(&format!("map {} {}", load.bytes_each, load.times))?;
        }
        let (mut touch_ns, mut cpu_ns, mut pages, mut first_ns, mut last_ns) = (0, 0, 0, u64::MAX, 0);
        for worker in &mut self.workers {
            let [touched_ns, start_ns, end_ns, used_ns, touched] = worker.expect_numbers("done")?;
            touch_ns += touched_ns;
            cpu_ns += used_ns;
            pages += touched;
            first_ns = first_ns.min(start_ns);
            last_ns = last_ns.max(end_ns);
        }
        let pages = pages as f64;
        Ok(Pass {
            touch_ns_per_page: touch_ns as f64 / pages,
            elapsed_ns_per_page: last_ns.saturating_sub(first_ns) as f64 * self.width / pages,
            cpu_ns_per_page: cpu_ns as f64 / pages,
            end_ns: last_ns,
            width: self.width,
            pages,
        })
    }
}
