//! The kernel, spoken to: what the daemon reads from it and does through it. With `tmalloc` the only crate that may use
//! `unsafe`, module by module.

pub mod allocator;
pub mod bpf;
pub mod cgroup;
mod file_handle;
pub mod kernel_log;
pub mod probe;
pub mod process;
pub mod slice;
pub mod symbols;
pub mod users;
pub mod workingset;
