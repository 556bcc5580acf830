//! What happens while no coordinator answers: the caller's choice.

use crate::socket;
use std::{
    ffi::CStr,
    sync::atomic::{AtomicI32, Ordering},
};

/// No memory: `ENOMEM`.
pub(crate) const FAIL: i32 = 0;
/// Memory that nobody was asked for.
pub(crate) const PASS: i32 = 1;

const UNKNOWN: i32 = -1;
const VARIABLE: &CStr = c"TMALLOC_WITHOUT_DAEMON";

static CHOICE: AtomicI32 = AtomicI32::new(UNKNOWN);

/// Whether memory is handed out unasked while nobody answers.
pub(crate) fn pass() -> bool {
    let mut choice = CHOICE.load(Ordering::Relaxed);
    if choice == UNKNOWN {
        choice = if socket::environment(VARIABLE) == Some(c"pass") { PASS } else { FAIL };
        CHOICE.store(choice, Ordering::Relaxed);
    }
    choice == PASS
}

/// Whether the environment says so.
pub(crate) fn is_chosen_by_environment() -> bool {
    socket::environment(VARIABLE).is_some()
}

/// Chooses. `false`: no such choice.
pub(crate) fn choose(choice: i32) -> bool {
    let known = matches!(choice, FAIL | PASS);
    if known {
        CHOICE.store(choice, Ordering::Relaxed);
    }
    known
}
