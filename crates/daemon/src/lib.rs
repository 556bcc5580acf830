//! The daemon: event loop and wiring, control API, history.
//!
//! [`run()`] is `plimsoll daemon`. The guard thread decides and acts; the history, the control API and the
//! reaper have threads of their own, which sleep when there is nothing to do; what else can wait is offloaded.

mod biography;
mod cmdlines;
mod control;
mod coordinator;
pub mod directory;
mod guard;
mod obituary;
mod offload;
mod owners;
mod pace;
mod patient;
pub mod privileges;
mod reaped;
mod run;
mod sampler;
mod settings;
mod workingset;

pub mod api;
pub mod config;
pub mod history;
pub mod loader;
pub mod options;
pub mod state;
mod survey;

pub use run::{Removed, RunError, run, stop_guarding};
