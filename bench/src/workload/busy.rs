//! `busy UID`: says `ready`, and wants the CPU until its input closes.

use super::{become_user, number, say, until_input_ends};
use crate::error::BenchError;
use std::sync::atomic::Ordering;

/// Runs it.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    become_user(number(arguments, 0)?)?;
    say("ready")?;
    until_input_ends(|over| {
        let mut turns = 0_u64;
        while !over.load(Ordering::Relaxed) {
            turns = std::hint::black_box(turns.wrapping_add(1));
        }
        Ok(())
    })
}
