//! To be filled.
pub mod config;
pub mod history;
pub mod state;
pub mod api;
pub mod options;
