//! The programs as the kernel's verifier sees them: loaded in one shape of their read-only settings, counted and let go of.
//! For the load gate, which goes through all shapes (`crates/cli/tests/load_gate.rs`). Nothing is attached, pinned or run.

use super::{error::BpfError, load::load_error};
use libbpf_rs::{
    MapCore as _, MapFlags, Object, Program,
    btf::{
        Btf,
        types::{DataSec, Var},
    },
    libbpf_sys,
};
use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, AsRawFd as _},
};

/// Where the settings are: constants to the verifier, which leaves out what they turn off.
const SETTINGS: &str = ".rodata";

/// What was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Every program of the file, and how many instructions the verifier went through, on all paths together; `None` for those
    /// that are not loaded in this shape.
    pub programs: BTreeMap<String, Option<u32>>,
    /// Every read-only setting of the file, and what it was set to.
    pub settings: BTreeMap<String, Vec<u8>>,
}

/// Reads it off a loaded object.
pub(super) fn verified(object: &Object) -> Result<Verified, BpfError> {
    let programs = object.progs().map(|program| {
        let count = if program.autoload() { Some(instructions(&program)?) } else { None };
        Ok((program.name().to_string_lossy().into_owned(), count))
    });
    Ok(Verified { programs: programs.collect::<Result<_, BpfError>>()?, settings: settings(object)? })
}

#[expect(unsafe_code, reason = "libbpf-rs tells it of all programs of the machine only, one after the other")]
fn instructions(program: &Program<'_>) -> Result<u32, BpfError> {
    let mut facts = libbpf_sys::bpf_prog_info::default();
    let mut bytes = u32::try_from(size_of_val(&facts)).unwrap_or(u32::MAX);
    // SAFETY: the descriptor is open for as long as the program is borrowed; `facts` has `bytes` bytes, and no pointer in it
    // that the kernel would write through.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &raw mut facts, &raw mut bytes)
    };
    if result < 0 {
        let error = io::Error::from_raw_os_error(result.saturating_neg());
        return Err(BpfError::Load(format!("{}: {error}", program.name().to_string_lossy())));
    }
    Ok(facts.verified_insns)
}

fn settings(object: &Object) -> Result<BTreeMap<String, Vec<u8>>, BpfError> {
    let none = || BpfError::Load("the object does not tell its constants".into());
    let types = object.btf().map_err(|error| load_error(&error))?.ok_or_else(none)?;
    let section = types.type_by_name::<DataSec<'_>>(SETTINGS).ok_or_else(none)?;
    let map = object.maps().find(|map| map.name().to_string_lossy().ends_with(SETTINGS)).ok_or_else(none)?;
    let bytes = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| load_error(&error))?;
    let bytes = bytes.ok_or_else(none)?;
    section
        .iter()
        .map(|place| setting(&types, place.ty, place.offset as usize, place.size, &bytes))
        .map(|one| one.ok_or_else(none))
        .collect()
}

fn setting(
    types: &Btf<'_>,
    ty: libbpf_rs::btf::TypeId,
    offset: usize,
    size: usize,
    bytes: &[u8],
) -> Option<(String, Vec<u8>)> {
    let name = types.type_by_id::<Var<'_>>(ty)?.name()?.to_string_lossy().into_owned();
    let value = bytes.get(offset..offset.checked_add(size)?)?;
    Some((name, value.to_vec()))
}
