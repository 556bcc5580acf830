//! Compiles the one C file, and keeps the library loaded.

fn main() {
    println!("cargo::rerun-if-changed=src/inside.c");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtmalloc-preload.so");
    // The watcher's thread and the handlers of threads' ends and forks outlive a dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    cc::Build::new().file("src/inside.c").opt_level(2).pic(true).compile("tmalloc_preload_inside");
}
