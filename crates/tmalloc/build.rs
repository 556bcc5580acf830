//! Compiles the one C file.
//!
//! rustc gives the linker a version script of its own, beside which GNU ld takes no other: the library that is installed,
//! with a name and versions on its symbols, is linked by link.sh from the static one. A name that is given here, the preloaded
//! library would have: cargo links it by what is said here as well.

fn main() {
    println!("cargo::rerun-if-changed=src/current.c");
    // The watcher's thread and the handlers of threads' ends and forks outlive a dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    cc::Build::new().file("src/current.c").opt_level(2).pic(true).compile("tmalloc_current");
}
