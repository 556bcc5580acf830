//! Pure decisions of Plimsoll: accounts and their lines, who is selected, how an action climbs its ladder.
//!
//! Nothing here reads a clock, a file or the kernel; facts and the time arrive as arguments, decisions leave as
//! values. `no_std` makes the compiler hold us to it.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]
// Tests may add numbers plainly: there, an overflow is a failing test.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[macro_use]
mod texts;

pub mod account;
pub mod container;
pub mod copies;
pub mod counter;
pub mod frag;
pub mod human;
pub mod incident;
pub mod jobserver;
pub mod last_defence;
pub mod limits;
pub mod lines;
pub mod machine;
pub mod permission;
pub mod preference;
pub mod reading;
pub mod reap;
pub mod reason;
pub mod recorder;
pub mod reservation;
pub mod selection;
pub mod shared;
pub mod size;
pub mod units;
pub mod victim;
pub mod who;
pub mod workingset;
