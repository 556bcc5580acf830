//! `libtmalloc-preload.so`: puts libtmalloc in the place of malloc(3) and of private anonymous mmap(2), in programs that were
//! not written for it. `plimsoll run --tmalloc` preloads it; docs/tmalloc.md says what that covers.
//!
//! Nothing here asks the dynamic linker for the functions that it replaces: blocks come from libtmalloc, mappings from the
//! kernel. What is allocated before libtmalloc can work, or by what it calls itself, comes from `early`.
#![expect(unsafe_code, reason = "an allocator hands out memory that Rust knows nothing of")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "steps that hold for one reason stand together")]

/// Before the program makes keys of its own, as the C library allocates for the 33rd and those that follow in each thread; and
/// before it does away with its environment.
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;

extern "C" fn prepare() {
    tmalloc::prepare();
    inside::has_started();
}

mod blocks;
mod early;
mod inside;
mod mappings;
mod refused;
mod table;
