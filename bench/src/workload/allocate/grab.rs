//! `grab UID NAMES SEED`: allocates and frees by chance, touching all it gets.
//!
//! `go` begins, `stop` ends it, with what it holds: `stopped GRANTS REFUSALS`. It may be killed at any time.

use super::{allocator, churn::any_size};
use crate::{
    error::BenchError,
    workload::{Commands, forbid_huge_pages, memory, number, random::Random, say, usage},
};
use plimsoll_sys::allocator::{Allocator, Block};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Blocks that it holds at most; one in [`LARGE_ONE_IN`] is up to [`LARGE_BYTES_MAX`].
const SLOTS: usize = 256;
const LARGE_ONE_IN: usize = 32;
const LARGE_BYTES_MAX: usize = 2 << 20;

/// After a refusal it frees one in so many of its blocks, and rests.
const FREED_ONE_IN: usize = 2;
const REST: Duration = Duration::from_millis(1);

/// What it holds and how it fared.
struct Grabber<'a> {
    allocator: &'a Allocator,
    page_length: usize,
    random: Random,
    held: Vec<Option<Block<'a>>>,
    grants: u64,
    refusals: u64,
}

/// Runs it.
pub(in crate::workload) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let allocator = allocator(arguments, 1)?;
    let seed = number(arguments, 2)?;
    forbid_huge_pages()?;
    let mut grabber = Grabber {
        allocator: &allocator,
        page_length: memory::page_length(),
        random: Random::seeded(seed),
        held: (0..SLOTS).map(|_| None).collect(),
        grants: 0,
        refusals: 0,
    };
    let mut commands = Commands::open_as(uid)?;
    while let Some((word, _)) = commands.next()? {
        if word != "go" {
            return Err(usage(&word));
        }
        let over = AtomicBool::new(false);
        let heard = thread::scope(|scope| {
            scope.spawn(|| grabber.grab_until(&over));
            // `stop`, or the end of the input.
            let heard = commands.next();
            over.store(true, Ordering::Relaxed);
            heard
        })?;
        match heard {
            Some((word, _)) if word == "stop" => {
                say(&format!("stopped {} {}", grabber.grants, grabber.refusals))?
            }
            Some((word, _)) => return Err(usage(&word)),
            None => return Ok(()),
        }
    }
    Ok(())
}

impl Grabber<'_> {
    fn grab_until(&mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            let chosen = self.random.below(SLOTS);
            let large = self.random.below(LARGE_ONE_IN) == 0;
            let size_bytes =
                if large { 1 + self.random.below(LARGE_BYTES_MAX) } else { any_size(&mut self.random) };
            let Some(slot) = self.held.get_mut(chosen) else { continue };
            *slot = None;
            *slot = self.allocator.allocate(size_bytes);
            match slot {
                Some(block) => {
                    block.touch_all(self.page_length);
                    self.grants += 1;
                }
                None => {
                    self.refusals += 1;
                    self.give_way();
                }
            }
        }
    }

    /// Others want memory too.
    fn give_way(&mut self) {
        for slot in &mut self.held {
            if self.random.below(FREED_ONE_IN) == 0 {
                *slot = None;
            }
        }
        thread::sleep(REST);
    }
}
