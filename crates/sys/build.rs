//! Compiles the eBPF programs and generates their skeletons.

use std::{env, error::Error, ffi::OsStr, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let bpf = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../bpf");
    println!("cargo::rerun-if-changed={}", bpf.display());
    let include = format!("-I{}", bpf.display());
    let arguments = ["-mcpu=v3", include.as_str(), "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];
    libbpf_cargo::SkeletonBuilder::new()
        .source(bpf.join("limits.bpf.c"))
        .clang_args(arguments.map(OsStr::new))
        .build_and_generate(PathBuf::from(env::var("OUT_DIR")?).join("limits.skel.rs"))?;
    Ok(())
}
