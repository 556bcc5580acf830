//! What people read: the story of an incident, and the kernel's own OOM reports in plain words. It decides nothing.

pub mod oom;
pub mod story;
