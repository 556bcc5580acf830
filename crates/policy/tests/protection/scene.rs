//! A machine in small that plays the demo: programs read files through a page cache from a disk of a given speed
//! while a hog takes the memory. What protection changes has its effect here, unlike in a replay: what is found is
//! read sooner.

use crate::{
    cache::{Cache, PART_PAGES},
    protector::Protector,
    trace::{Counts, Drain, File, Trace},
};
use plimsoll_policy::workingset::{Budget, FileId};

const STEP_MS: u64 = 10;
const DRAIN_MS: u64 = 100;
/// What a processor copies out of the cache in one step.
const COPIED_PER_STEP: u64 = 58_000;

/// Who reads what, and in what order.
#[derive(Debug, Clone)]
pub(crate) enum Habit {
    /// These files from end to end, then a pause, and again.
    Rounds { files: Vec<usize>, pause_ms: u64, executables: bool },
    /// Parts of one file at random, most of them from its hot parts, and so many in a step at most.
    Database { file: usize, hot: std::ops::Range<u32>, cold_per_mille: u64, per_step: u64 },
}

#[derive(Debug)]
struct Worker {
    habit: Habit,
    file: usize,
    part: u32,
    idle_until_ms: u64,
    began_ms: u64,
    rounds_ms: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    /// Pages of memory in all.
    pub(crate) memory: u64,
    /// Pages that are read from the disk in a step.
    pub(crate) disk_per_step: u64,
    /// Pages that the hog takes in a step; 0: there is none.
    pub(crate) hog_per_step: u64,
    /// The hog ends when less than this is left to files: the floor, or 0 for the kernel's own OOM killer.
    pub(crate) floor: u64,
    /// When protection begins.
    pub(crate) protected_from_ms: u64,
}

#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) trace: Trace,
    pub(crate) protector: Protector,
    /// For each worker: when each round began and how long it took, in ms.
    pub(crate) rounds_ms: Vec<Vec<(u64, u64)>>,
    /// When each file was in the plan as a whole first.
    pub(crate) whole_at_ms: Vec<Option<u64>>,
    /// What the plans had of each file, once a second.
    pub(crate) planned: Vec<Vec<u64>>,
}

#[derive(Debug)]
pub(crate) struct Scene {
    machine: Machine,
    files: Vec<File>,
    workers: Vec<Worker>,
    cache: Cache,
    counts: Counts,
    hog: u64,
    seed: u64,
}

impl Scene {
    pub(crate) fn new(machine: Machine) -> Self {
        let (cache, counts) = (Cache::default(), Counts::default());
        Self { machine, files: Vec::new(), workers: Vec::new(), cache, counts, hog: 0, seed: 7 }
    }

    pub(crate) fn file(&mut self, name: &str, bytes: u64) -> usize {
        let inode = 100 + self.files.len() as u64;
        let id = FileId { device: 254 << 20, inode, generation: 1 };
        self.files.push(File { id, name: name.into(), bytes });
        self.files.len() - 1
    }

    pub(crate) fn worker(&mut self, habit: Habit) -> usize {
        let worker = Worker { habit, file: 0, part: 0, idle_until_ms: 0, began_ms: 0, rounds_ms: Vec::new() };
        self.workers.push(worker);
        self.workers.len() - 1
    }

    /// Plays so long, and protects within this budget.
    pub(crate) fn play(mut self, until_ms: u64, budget: Budget) -> Played {
        let mut played = Played {
            trace: Trace { memory: self.machine.memory, files: self.files.clone(), drains: Vec::new() },
            protector: Protector::new(budget),
            rounds_ms: Vec::new(),
            whole_at_ms: vec![None; self.files.len()],
            planned: vec![Vec::new(); self.files.len()],
        };
        for now_ms in (0..until_ms).step_by(usize::try_from(STEP_MS).unwrap()) {
            self.step(now_ms);
            if now_ms < self.machine.protected_from_ms {
                // Nobody counts.
                self.counts.take(&self.files);
            } else if now_ms % DRAIN_MS == 0 {
                self.drain(&mut played, now_ms);
            }
        }
        played.rounds_ms = self.workers.into_iter().map(|worker| worker.rounds_ms).collect();
        played
    }

    fn drain(&mut self, played: &mut Played, now_ms: u64) {
        for ((file, part), pages) in self.cache.take_evicted() {
            self.counts.at(file, part).2 += pages;
        }
        let running = self.workers.iter().filter(|worker| worker.idle_until_ms <= now_ms);
        let running = running.filter_map(|worker| match &worker.habit {
            Habit::Rounds { files, executables: true, .. } => Some(files.clone()),
            Habit::Rounds { .. } | Habit::Database { .. } => None,
        });
        let drain = Drain {
            at_ms: now_ms,
            cache: self.machine.memory - self.hog,
            running: running.flatten().collect(),
            runs: self.counts.take(&self.files),
        };
        let (uses, executables) = (played.trace.uses(&drain), played.trace.executables(&drain));
        let facts = (uses.as_slice(), executables.as_slice());
        if played.protector.turn(facts, &self.files, &mut self.cache, now_ms) {
            for (index, file) in self.files.iter().enumerate() {
                let planned = played.protector.planned(file);
                played.planned[index].push(planned);
                if planned == file.pages() {
                    played.whole_at_ms[index].get_or_insert(now_ms);
                }
            }
        }
        played.trace.drains.push(drain);
    }

    fn step(&mut self, now_ms: u64) {
        self.hog += self.machine.hog_per_step;
        let left = self.machine.memory.saturating_sub(self.hog);
        if left <= self.machine.floor.max(self.cache.locked()) {
            self.hog = 0;
        }
        self.cache.resize(self.machine.memory - self.hog);
        let mut disk = self.machine.disk_per_step;
        let mut time = vec![COPIED_PER_STEP; self.workers.len()];
        let mut working = true;
        while working {
            working = false;
            for (index, time) in time.iter_mut().enumerate() {
                working |= self.read_part(index, (&mut disk, time), now_ms);
            }
        }
    }

    /// Has one worker read its next part; whether it did.
    fn read_part(&mut self, index: usize, (disk, time): (&mut u64, &mut u64), now_ms: u64) -> bool {
        let worker = &self.workers[index];
        if worker.idle_until_ms > now_ms || *time == 0 {
            return false;
        }
        let (file, part) = match &worker.habit {
            Habit::Rounds { files, .. } => (files[worker.file], worker.part),
            Habit::Database { file, hot, cold_per_mille, per_step } => {
                let (file, hot, cold, per_step) = (*file, hot.clone(), *cold_per_mille, *per_step);
                // The time is what bounds it: a query takes some.
                *time = time.saturating_sub(COPIED_PER_STEP / per_step);
                let parts = u32::try_from(self.files[file].pages() / PART_PAGES).unwrap();
                let chosen = if self.random(1000) < cold { 0..parts } else { hot };
                (
                    file,
                    chosen.start + u32::try_from(self.random(u64::from(chosen.end - chosen.start))).unwrap(),
                )
            }
        };
        let pages = self.files[file].part_pages(part);
        if *disk == 0 && !self.cache.has((file, part)) {
            // It waits for the disk.
            *time = 0;
            return false;
        }
        let hit = self.cache.touch((file, part), pages);
        let counts = self.counts.at(file, part);
        counts.0 += pages;
        if !hit {
            counts.1 += pages;
            *disk = disk.saturating_sub(pages);
        }
        *time = time.saturating_sub(pages);
        self.advance(index, now_ms);
        true
    }

    fn advance(&mut self, index: usize, now_ms: u64) {
        let worker = &mut self.workers[index];
        let Habit::Rounds { files, pause_ms, .. } = &worker.habit else { return };
        worker.part += 1;
        if self.files[files[worker.file]].part_pages(worker.part) > 0 {
            return;
        }
        worker.part = 0;
        worker.file += 1;
        if worker.file == files.len() {
            worker.file = 0;
            worker.rounds_ms.push((worker.began_ms, now_ms + STEP_MS - worker.began_ms));
            worker.idle_until_ms = now_ms + pause_ms;
            worker.began_ms = worker.idle_until_ms;
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }
}

/// Pages in so many MiB.
pub(crate) const fn mib(count: u64) -> u64 {
    count * 256
}
