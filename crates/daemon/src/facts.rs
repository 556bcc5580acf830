//! What has to be read of processes, cgroups and the machine, off the guard thread: whoever reads it may have to wait.

pub(crate) mod cgroups;
pub(crate) mod cmdlines;
pub(crate) mod copied;
pub(crate) mod jobs;
pub(crate) mod meter;
pub(crate) mod names;
pub(crate) mod patient;
pub(crate) mod pressure;
pub(crate) mod shared;
