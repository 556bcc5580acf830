use std::{
    io,
    path::Path,
    process::{Command, Stdio},
};

/// Compiles the limits programs of a tree, and the kernel that they run on, into one shared object for this machine, with
/// more options of the compiler's.
///
/// # Errors
/// What the compiler says.
pub fn compile(tree: &Path, into: &Path, options: &[&str]) -> io::Result<()> {
    let (bpf, native) = (tree.join("bpf"), tree.join("testkit/native"));
    let mut clang = Command::new("clang");
    clang.args(["-O1", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-Wall", "-Wextra", "-Werror"]);
    // Attributes and sections that only the other target knows.
    clang.args(["-Wno-unused-parameter", "-Wno-unknown-attributes", "-Wno-unknown-pragmas"]);
    // Each read and write of the programs is a call of access() in fake.c; atomics come by native.h.
    clang.args(["-Xclang", "-fsanitize=thread"]);
    for option in [
        "distinguish-volatile=1",
        "instrument-atomics=0",
        "instrument-memintrinsics=0",
        "instrument-func-entry-exit=0",
    ] {
        clang.arg("-mllvm").arg(format!("-tsan-{option}"));
    }
    clang.args(options);
    for folder in [native.join("include"), native.clone(), bpf.clone()] {
        clang.arg("-I").arg(folder);
    }
    for first in [bpf.join("wire/types.h"), native.join("native.h")] {
        clang.arg("-include").arg(first);
    }
    clang.args([native.join("limits.c"), native.join("fake.c")]).arg("-o").arg(into);
    let done = clang.stdin(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{clang:?}: {}", String::from_utf8_lossy(&done.stderr))))
}
