//! The control API: Varlink interface `io.plimsoll` on a unix socket.
//!
//! [`server`] owns the socket and its threads, `dialogue` is the Varlink envelope, [`plimsoll`] the methods, and behind
//! [`control::Control`] is the daemon. What travels and the other end are in `plimsoll-api`.
//! How much of a CPU clients may have is bounded by `pace`.
//! Nothing here decides about memory, and nothing of the kill path ever waits for anything here.

pub mod control;
mod dialogue;
pub mod listener;
pub mod peer;
pub mod plimsoll;
pub mod server;
pub mod slots;
mod starts;
pub mod unattended;

#[cfg(test)]
mod described;
#[cfg(test)]
mod fake;
