//! Compiles the one C file, and names the shared library.
//!
//! rustc gives the linker a version script of its own, beside which GNU ld takes no other: the library that is installed,
//! with versions on its symbols, is linked by link.sh from the static one.

fn main() {
    println!("cargo::rerun-if-changed=src/current.c");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtmalloc.so.0");
    // The watcher's thread and the handlers of threads' ends and forks outlive a dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    cc::Build::new().file("src/current.c").opt_level(2).pic(true).compile("tmalloc_current");
}
