//! What a forked child does before it allocates.
//!
//! A child has an address space of its own, for which nothing was granted. A write to what it inherited is a new page of
//! its own, charged as any other program's; it must not come from this library without a grant. So the child begins anew: no
//! arena, no cache, no connection. Blocks that it inherited can be read, written and given back; they are never handed out.

use crate::{arena, cache, client, large, region, socket, watch};
use std::sync::atomic::{AtomicBool, Ordering};

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Sees to it that children begin anew. Called before the first memory is had.
pub(crate) fn prepare() {
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler takes nothing and does no more than a forked child may.
        unsafe { libc::pthread_atfork(None, None, Some(begin_anew)) };
    }
}

/// In the child, whose only thread this is.
unsafe extern "C" fn begin_anew() {
    region::next_generation();
    // SAFETY: a child is born with one thread, which runs this before fork returns.
    unsafe {
        client::start_over();
        socket::start_over();
        watch::start_over();
        cache::start_over();
        arena::start_over();
        large::start_over();
    }
}
