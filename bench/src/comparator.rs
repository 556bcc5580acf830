//! What Plimsoll is compared with: the ways in which the seed and its peers watch memory.
//!
//! - `timer`: every 200 ms the sum over the user's processes, as a polling daemon does.
//! - `tracepipe`: each `kmem:rss_stat` event read as text from the trace pipe, sums per user kept in user space.
//! - `trivial`: the same events, and on each one a scan of all processes of the user.
//! - `earlyoom`: Debian's own, in its dry run.

pub(crate) mod earlyoom;
pub(crate) mod event;
pub(crate) mod timer;
pub(crate) mod trace;
