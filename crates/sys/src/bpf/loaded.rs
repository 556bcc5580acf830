//! What the kernel has verified of an object: in one piece, or in parts with the same maps.

use super::error::BpfError;
use libbpf_rs::{
    Link, Map, MapCore as _, MapFlags, MapMut, Object, ProgramInput, ProgramMut,
    btf::{
        Btf,
        types::{DataSec, Var},
    },
};
use std::{collections::BTreeMap, ffi::OsStr, ops::Range};

/// Where an object's settings are (`const volatile`): constants to the verifier, which leaves out what they turn off.
pub(super) const SETTINGS: &str = "rodata";

/// The program that finds out where each CPU keeps its part of a counter (bpf/counters.h). It runs once.
pub(super) const FIND_CPU_OFFSETS: &str = "find_cpu_offsets";

/// The programs that were loaded, and the maps that they use.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The first one has the maps.
    parts: Vec<Object>,
}

pub(super) fn no_such(name: &str) -> BpfError {
    BpfError::Load(format!("the object has no '{name}'"))
}

/// A map's name in the source, or its section's, before which libbpf puts a piece of the object's name and a dot.
pub(super) fn name_of(map: &OsStr) -> String {
    let name = map.to_string_lossy();
    name.rsplit_once('.').map_or(&*name, |(_, section)| section).to_owned()
}

pub(super) fn find_map<'a>(object: &'a Object, name: &str) -> Option<Map<'a>> {
    object.maps().find(|map| name_of(map.name()) == name)
}

/// Where each setting lies among the others.
pub(super) fn setting_places(types: &Btf<'_>) -> Option<Vec<(String, Range<usize>)>> {
    let section = types.type_by_name::<DataSec<'_>>(".rodata")?;
    section
        .iter()
        .map(|place| {
            let name = types.type_by_id::<Var<'_>>(place.ty)?.name()?.to_string_lossy().into_owned();
            let start = place.offset as usize;
            Some((name, start..start.checked_add(place.size)?))
        })
        .collect()
}

impl Loaded {
    /// The one that created the maps, and those that share them.
    pub(super) fn of(first: Object, others: Vec<Object>) -> Self {
        Self { parts: std::iter::once(first).chain(others).collect() }
    }

    /// The programs that were loaded.
    pub(super) fn programs(&self) -> impl Iterator<Item = ProgramMut<'_>> {
        self.parts.iter().flat_map(Object::progs_mut).filter(|program| program.autoload())
    }

    /// The names of those that were not.
    pub(super) fn left_out(&self) -> Vec<String> {
        let name = |program: ProgramMut<'_>| program.name().to_string_lossy().into_owned();
        let loaded: Vec<_> = self.programs().map(name).collect();
        let all = self.parts.first().into_iter().flat_map(Object::progs_mut).map(name);
        all.filter(|name| !loaded.contains(name)).collect()
    }

    fn program(&self, name: &str) -> Option<ProgramMut<'_>> {
        self.programs().find(|program| program.name() == name)
    }

    pub(super) fn attach(&self, name: &str) -> Result<Link, BpfError> {
        Ok(self.program(name).ok_or_else(|| no_such(name))?.attach()?)
    }

    pub(super) fn map(&self, name: &str) -> Result<Map<'_>, BpfError> {
        self.parts.first().and_then(|maps| find_map(maps, name)).ok_or_else(|| no_such(name))
    }

    pub(super) fn maps_mut(&mut self) -> impl Iterator<Item = MapMut<'_>> {
        self.parts.first_mut().into_iter().flat_map(Object::maps_mut)
    }

    /// What the settings were set to.
    pub(super) fn settings(&self) -> Result<BTreeMap<String, Vec<u8>>, BpfError> {
        let none = || no_such(SETTINGS);
        let Ok(section) = self.map(SETTINGS) else { return Ok(BTreeMap::new()) };
        let types = self.parts.first().map(Object::btf).transpose()?.flatten();
        let places = types.as_ref().and_then(setting_places).ok_or_else(none)?;
        let all = section.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?.ok_or_else(none)?;
        let value = |(name, place): (String, Range<usize>)| Some((name, all.get(place)?.to_vec()));
        places.into_iter().map(value).collect::<Option<_>>().ok_or_else(none)
    }

    /// Runs [`FIND_CPU_OFFSETS`], where there is one.
    pub(super) fn find_cpu_offsets(&self) -> Result<(), BpfError> {
        let Some(program) = self.program(FIND_CPU_OFFSETS) else {
            let counts = self.map("cpu_offsets").is_ok();
            return if counts { Err(no_such(FIND_CPU_OFFSETS)) } else { Ok(()) };
        };
        let outcome = program.test_run(ProgramInput::default())?;
        if outcome.return_value == 0 {
            Ok(())
        } else {
            Err(BpfError::Load(format!("finding per-CPU offsets failed with {}", outcome.return_value)))
        }
    }
}
