//! Turns the wire headers into Rust, so that the layout is written once, in C.

use bindgen::callbacks::{DeriveInfo, ParseCallbacks};
use std::{env, error::Error, path::PathBuf};

/// Every structure is numbers and bytes without gaps: it may be read from any bytes as long, and written as them.
#[derive(Debug)]
struct PlainData;

impl ParseCallbacks for PlainData {
    fn add_derives(&self, _info: &DeriveInfo<'_>) -> Vec<String> {
        ["FromBytes", "IntoBytes", "Immutable"].map(|name| format!("zerocopy::{name}")).to_vec()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let wire = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../bpf/wire");
    println!("cargo::rerun-if-changed={}", wire.display());
    bindgen::Builder::default()
        .header(wire.join("frag.h").display().to_string())
        .header(wire.join("killed.h").display().to_string())
        .header(wire.join("limits.h").display().to_string())
        .header(wire.join("oom.h").display().to_string())
        .header(wire.join("pressure.h").display().to_string())
        .header(wire.join("select.h").display().to_string())
        .header(wire.join("strict.h").display().to_string())
        .header(wire.join("workingset.h").display().to_string())
        .allowlist_type("plimsoll_.*")
        .allowlist_var("PLIMSOLL_.*")
        .use_core()
        .derive_default(true)
        .parse_callbacks(Box::new(PlainData))
        // Its arrays are longer than those that have a Default of their own; bindgen would write unsafe code.
        .no_default("plimsoll_record")
        .no_default("plimsoll_marked")
        .derive_copy(true)
        .derive_debug(true)
        .layout_tests(false)
        .generate()?
        .write_to_file(PathBuf::from(env::var("OUT_DIR")?).join("abi.rs"))?;
    Ok(())
}
