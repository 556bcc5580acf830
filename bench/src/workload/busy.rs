//! `busy UID`: says `ready`, and wants the CPU until its input closes.

use super::{Commands, become_user, number, say};
use crate::error::BenchError;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Runs it.
///
/// # Errors
/// Bad arguments, or not root.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    become_user(number(arguments, 0)?)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut turns = 0_u64;
            while !over.load(Ordering::Relaxed) {
                turns = std::hint::black_box(turns.wrapping_add(1));
            }
        });
        let heard = say("ready").and_then(|()| {
            let mut commands = Commands::open();
            while commands.next()?.is_some() {}
            Ok(())
        });
        over.store(true, Ordering::Relaxed);
        heard
    })
}
