//! Processes that take one step at a time: the workload `puppet`, by slots.

use super::{World, program::Program};

/// A handful of processes and threads that do as they are told.
#[derive(Debug)]
pub struct Puppets {
    control: Program,
}

impl World {
    /// Nobody yet; `users` are the uids that will be used.
    pub fn puppets(&self, users: &[u32]) -> Puppets {
        users.iter().for_each(|user| self.owns(*user));
        let mut control = self.root_workload("puppet", &[]);
        control.stage("ready");
        Puppets { control }
    }
}

impl Puppets {
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
