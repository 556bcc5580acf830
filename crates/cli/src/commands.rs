//! The commands, each with its part of the command line.

pub(crate) mod bench;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod frag;
pub(crate) mod generate;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod jobs;
pub(crate) mod kill;
pub(crate) mod limit;
pub(crate) mod notify;
pub(crate) mod protect;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod simulate;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod usage;
pub(crate) mod why;
