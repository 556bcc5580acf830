//! Processes that take one step at a time: the workload `scripted`, by slots.

use super::{Fixture, program::Program};

/// A handful of processes and threads that do as they are told.
#[derive(Debug)]
pub struct Scripted {
    control: Program,
}

impl Fixture {
    /// Nobody yet; `users` are the uids that will be used.
    pub fn scripted(&self, users: &[u32]) -> Scripted {
        users.iter().for_each(|user| self.owns(*user));
        let mut control = self.root_workload("scripted", &[]);
        control.stage("ready");
        Scripted { control }
    }
}

impl Scripted {
    /// A step that may fail: the number it gave, or what was said instead.
    #[track_caller]
    pub fn attempt(&mut self, slot: u32, step: &str) -> Result<u64, String> {
        self.control.tell(&format!("{slot} {step}"));
        let said = self.control.stage(&format!("{slot} "));
        match said.strip_prefix("ok pid=") {
            Some(good) => Ok(good.split_whitespace().nth(1).expect("a result").parse().unwrap()),
            None => Err(said),
        }
    }

    /// A step: the address it worked on.
    #[track_caller]
    pub fn tell(&mut self, slot: u32, step: &str) -> u64 {
        self.attempt(slot, step).unwrap_or_else(|said| panic!("{slot} {step}: {said}"))
    }

    /// A step that makes a process (`start`, `hop`, `fork`, `clone`, ...): its number.
    #[track_caller]
    pub fn make(&mut self, slot: u32, step: &str) -> u32 {
        self.tell(slot, step).try_into().unwrap()
    }
}
