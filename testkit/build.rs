//! Compiles the limits programs and the fake kernel for this machine.

#[path = "src/compile.rs"]
#[expect(unreachable_pub, reason = "it is the crate that offers it")]
mod compile;

use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let tree = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("..");
    for folder in ["bpf", "testkit/native"] {
        println!("cargo::rerun-if-changed={}", tree.join(folder).display());
    }
    let out = PathBuf::from(env::var("OUT_DIR")?).join("limits.so");
    compile::compile(&tree, &out, &["-g"])?;
    println!("cargo::rustc-env=PLIMSOLL_NATIVE={}", out.display());
    Ok(())
}
