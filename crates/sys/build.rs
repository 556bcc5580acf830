//! Compiles the eBPF programs.

use std::{env, error::Error, ffi::OsStr, path::PathBuf, process::Command};

fn main() -> Result<(), Box<dyn Error>> {
    let bpf = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../bpf");
    println!("cargo::rerun-if-changed={}", bpf.display());
    let include = format!("-I{}", bpf.display());
    let arguments = ["-mcpu=v3", include.as_str(), "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"];
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for (topic, variable) in [
        ("frag", "PLIMSOLL_FRAG_BUILD"),
        ("killed", "PLIMSOLL_KILLED_BUILD"),
        ("limits", "PLIMSOLL_BPF_BUILD"),
        ("oom", "PLIMSOLL_OOM_BUILD"),
        ("pressure", "PLIMSOLL_PRESSURE_BUILD"),
        ("select", "PLIMSOLL_SELECT_BUILD"),
        ("strict", "PLIMSOLL_STRICT_BUILD"),
        ("workingset", "PLIMSOLL_WORKINGSET_BUILD"),
    ] {
        let object = out.join(format!("{topic}.bpf.o"));
        libbpf_cargo::SkeletonBuilder::new()
            .source(bpf.join(format!("{topic}.bpf.c")))
            .clang_args(arguments.map(OsStr::new))
            .obj(&object)
            .build()?;
        // What tells these programs from those of another build.
        println!("cargo::rustc-env={variable}={}", hash(&[object])?);
    }
    println!("cargo::rustc-env=PLIMSOLL_BPF_COMPILER={}", compiler()?);
    // What tells these maps of the limits: they are in three headers.
    println!(
        "cargo::rustc-env=PLIMSOLL_BPF_LAYOUT={}",
        hash(&[bpf.join("wire/limits.h"), bpf.join("limits/maps.h"), bpf.join("counters.h")])?
    );
    println!(
        "cargo::rustc-env=PLIMSOLL_STRICT_LAYOUT={}",
        hash(&[bpf.join("wire/strict.h"), bpf.join("strict/maps.h")])?
    );
    Ok(())
}

/// As `clang 14`: what the verifier meets depends on it.
fn compiler() -> Result<String, Box<dyn Error>> {
    let told = Command::new("clang").arg("--version").output()?.stdout;
    let told = String::from_utf8(told)?;
    let version = told.split("version ").nth(1).and_then(|rest| rest.split('.').next());
    Ok(format!("clang {}", version.ok_or("clang does not tell its version")?))
}

/// FNV-1a of the files' content. Never 0.
fn hash(files: &[PathBuf]) -> Result<u64, Box<dyn Error>> {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for file in files {
        for byte in std::fs::read(file)? {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(hash.max(1))
}
