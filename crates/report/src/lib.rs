//! What people read: the story of an incident, and the kernel's own OOM reports in plain words; what draws and marks them up. It
//! decides nothing.

pub mod html;
pub mod oom;
pub mod plot;
pub mod story;
