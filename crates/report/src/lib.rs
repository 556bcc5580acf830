//! What people read: the story of an incident, the kernel's own OOM reports in plain words, and what marks up and draws
//! both. It decides nothing.

pub mod frag;
pub mod html;
pub mod import;
pub mod oom;
pub mod plot;
mod stack;
pub mod story;
pub mod table;
pub mod trace;
