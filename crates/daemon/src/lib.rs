//! The daemon: event loop and wiring, control API, history.
//!
//! [`run()`] is `plimsoll daemon`. The guard thread decides and acts; the history, the control API and the
//! reaper have threads of their own, which sleep when there is nothing to do; what else can wait is offloaded.

pub mod api;
mod compactor;
pub mod config;
mod control;
pub mod directory;
mod errands;
mod expedite;
mod facts;
mod foreign_kills;
mod guard;
pub mod history;
mod inspection;
mod journal;
mod knobs;
pub mod loader;
mod message;
mod metrics;
mod offload;
pub mod options;
mod owners;
mod pace;
mod pressure_socket;
pub mod privileges;
mod reaped;
mod run;
mod sampler;
mod settings;
pub mod state;
mod supervisor;
mod tmalloc;
mod undo;
mod workingset;

pub use run::{Removed, RunError, check, run, stop_guarding};
