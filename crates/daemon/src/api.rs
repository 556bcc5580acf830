//! The control API: Varlink interface `io.plimsoll` on a unix socket.
//!
//! [`server`] owns the socket and its threads, [`frame`] bounds what a client can send, `dialogue` is the Varlink
//! envelope, [`plimsoll`] the methods, and behind [`control::Control`] is the daemon. [`client`] is the other end.
//! How much of a CPU clients may have is bounded by `pace`.
//! Nothing here decides about memory, and nothing of the kill path ever waits for anything here.

pub mod client;
pub mod control;
mod dialogue;
pub mod frame;
pub mod listener;
pub mod message;
pub mod nobody;
pub mod peer;
pub mod plimsoll;
pub mod seats;
pub mod server;

#[cfg(test)]
mod fake;
