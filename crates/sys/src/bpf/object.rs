//! The one loader: what is loaded of an object of `bpf/`, with which settings, and what of it is pinned.

use super::{error::BpfError, link::attach_tracepoint, pins::cause, types::Features};
use libbpf_rs::{
    AsRawLibbpf as _, Map, MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject,
    ProgramInput,
    btf::{
        Btf,
        types::{DataSec, Var},
    },
};
use std::{collections::BTreeMap, ffi::OsStr, ops::Range, os::fd::AsFd as _, path::Path};

/// Where an object's settings are (`const volatile`): constants to the verifier, which leaves out what they turn off.
const SETTINGS: &str = "rodata";

/// The program that finds out where each CPU keeps its part of a counter (bpf/counters.h). It runs once.
const FIND_CPU_OFFSETS: &str = "find_cpu_offsets";

/// A mark: on this kernel threads keep page counts to themselves (Linux 6.1).
pub(super) const PER_THREAD: &str = "per_thread";

/// One way to load an object. What is loaded is pinned by its name in the source.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    /// `limits` of `limits.bpf.c`.
    pub(super) name: &'static str,
    /// What clang made of it.
    pub(super) object: &'static [u8],
    /// The settings that are not as in the source.
    pub(super) settings: Vec<(&'static str, Vec<u8>)>,
    /// How many entries a map has, where the source does not say it.
    pub(super) entries: Vec<(&'static str, u32)>,
    /// How long a map's values are, likewise.
    pub(super) value_bytes: Vec<(&'static str, u32)>,
    /// Programs and maps that are not loaded.
    pub(super) left_out: Vec<&'static str>,
    /// Programs that are attached. Their links are pinned in place of them.
    pub(super) attached: Vec<&'static str>,
    /// Of those, programs that are detached and attached again: they are pinned besides.
    pub(super) attached_again: &'static [&'static str],
    /// Programs that are attached for a moment: a kernel may load a program and then refuse to attach it.
    pub(super) tried: &'static [&'static str],
    /// Names that are pinned to tell something to whoever opens the pins.
    pub(super) marks: Vec<&'static str>,
}

fn pin_error(path: &Path, error: &libbpf_rs::Error) -> BpfError {
    cause(path, "pin", &format!("{error:#}"))
}

fn no_such(name: &str) -> BpfError {
    BpfError::Load(format!("the object has no '{name}'"))
}

/// A map's name in the source, or its section's, before which libbpf puts a piece of the object's name and a dot.
fn name_of(map: &OsStr) -> String {
    let name = map.to_string_lossy();
    name.rsplit_once('.').map_or(&*name, |(_, section)| section).to_owned()
}

/// A map of a loaded object.
pub(super) fn map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>, BpfError> {
    object.maps().find(|map| name_of(map.name()) == name).ok_or_else(|| no_such(name))
}

fn open_map<'a>(open: &'a mut OpenObject, name: &str) -> Result<OpenMapMut<'a>, BpfError> {
    open.maps_mut().find(|map| name_of(map.name()) == name).ok_or_else(|| no_such(name))
}

/// Where each setting lies among the others.
fn setting_places(types: &Btf<'_>) -> Option<Vec<(String, Range<usize>)>> {
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

/// The settings of a loaded object.
pub(super) fn settings(object: &Object) -> Result<BTreeMap<String, Vec<u8>>, BpfError> {
    let none = || no_such(SETTINGS);
    if map(object, SETTINGS).is_err() {
        return Ok(BTreeMap::new());
    }
    let types = object.btf()?;
    let places = types.as_ref().and_then(setting_places).ok_or_else(none)?;
    let all = map(object, SETTINGS)?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
    let all = all?.ok_or_else(none)?;
    let value = |(name, place): (String, Range<usize>)| Some((name, all.get(place)?.to_vec()));
    places.into_iter().map(value).collect::<Option<_>>().ok_or_else(none)
}

/// Runs [`FIND_CPU_OFFSETS`] in an object that has it.
pub(super) fn find_cpu_offsets(object: &Object) -> Result<(), BpfError> {
    let Some(program) = object.progs_mut().find(|program| program.name() == FIND_CPU_OFFSETS) else {
        let counts = object.maps().any(|map| name_of(map.name()) == "cpu_offsets");
        return if counts { Err(no_such(FIND_CPU_OFFSETS)) } else { Ok(()) };
    };
    let outcome = program.test_run(ProgramInput::default())?;
    if outcome.return_value == 0 {
        Ok(())
    } else {
        Err(BpfError::Load(format!("finding per-CPU offsets failed with {}", outcome.return_value)))
    }
}

impl Plan {
    /// What an object needs that reads page counters of processes (bpf/counters.h).
    pub(super) fn of_counters(cpus: u32, kernel: Features) -> Self {
        Self {
            settings: vec![
                ("nr_cpus", cpus.to_ne_bytes().to_vec()),
                ("task_caches", vec![kernel.task_caches.into()]),
            ],
            entries: vec![("cpu_offsets", cpus)],
            marks: if kernel.task_caches { vec![PER_THREAD] } else { Vec::new() },
            ..Self::default()
        }
    }

    /// Has the kernel verify the programs, and lets go of them.
    pub(super) fn verify(&self) -> Result<(), BpfError> {
        find_cpu_offsets(&self.load(None)?)
    }

    /// Has the kernel verify the programs. With `adopted` they go on with the maps that are pinned in that folder.
    pub(super) fn load(&self, adopted: Option<&Path>) -> Result<Object, BpfError> {
        let mut open = self.open()?;
        self.write_settings(&mut open)?;
        for (name, entries) in &self.entries {
            open_map(&mut open, name)?.set_max_entries(*entries)?;
        }
        for (name, bytes) in &self.value_bytes {
            open_map(&mut open, name)?.set_value_size(*bytes)?;
        }
        for name in &self.left_out {
            if let Some(mut program) = open.progs_mut().find(|program| program.name() == *name) {
                program.set_autoload(false);
                continue;
            }
            open_map(&mut open, name)?.set_autocreate(false)?;
        }
        if let Some(folder) = adopted {
            self.adopt(&mut open, folder)?;
        }
        Ok(open.load()?)
    }

    fn open(&self) -> libbpf_rs::Result<OpenObject> {
        ObjectBuilder::default().name(format!("{}_bpf", self.name))?.open_memory(self.object)
    }

    #[expect(unsafe_code, reason = "libbpf-rs tells the types of loaded objects only")]
    fn write_settings(&self, open: &mut OpenObject) -> Result<(), BpfError> {
        if self.settings.is_empty() {
            return Ok(());
        }
        let places = {
            // SAFETY: the object lives until after the block.
            let object = unsafe { open.as_libbpf_object().as_ref() };
            let types = Btf::from_bpf_object(object)?;
            types.as_ref().and_then(setting_places).ok_or_else(|| no_such(SETTINGS))?
        };
        let mut section = open_map(open, SETTINGS)?;
        let all = section.initial_value_mut().ok_or_else(|| no_such(SETTINGS))?;
        for (name, value) in &self.settings {
            let place = places.iter().find(|(known, _)| known == name).map(|(_, place)| place.clone());
            match place.and_then(|place| all.get_mut(place)) {
                Some(place) if place.len() == value.len() => place.copy_from_slice(value),
                Some(_) | None => return Err(no_such(name)),
            }
        }
        Ok(())
    }

    /// The name that a map is pinned by; `None` for settings, which are part of the programs, and what is left out.
    fn pinned_name(&self, map: &OsStr) -> Option<String> {
        Some(name_of(map)).filter(|name| name != SETTINGS && !self.left_out.contains(&name.as_str()))
    }

    fn adopt(&self, open: &mut OpenObject, folder: &Path) -> Result<(), BpfError> {
        for mut map in open.maps_mut() {
            let Some(name) = self.pinned_name(map.name()) else { continue };
            let pinned = MapHandle::from_pinned_path(folder.join(&name))?;
            let is_same = pinned.map_type() == map.map_type()
                && pinned.key_size() == map.key_size()
                && pinned.value_size() == map.value_size()
                && pinned.max_entries() == map.max_entries();
            if !is_same {
                let why = format!("the pinned map {name} is not as these programs need it");
                return Err(BpfError::Load(why));
            }
            map.reuse_fd(pinned.as_fd())?;
        }
        Ok(())
    }

    pub(super) fn pin_maps(&self, object: &mut Object, folder: &Path) -> Result<(), BpfError> {
        for mut map in object.maps_mut() {
            let Some(name) = self.pinned_name(map.name()) else { continue };
            let path = folder.join(name);
            map.pin(&path).map_err(|error| pin_error(&path, &error))?;
        }
        Ok(())
    }

    /// Pins what is called, or attached by whoever opens it, and the marks.
    pub(super) fn pin_programs(&self, object: &Object, folder: &Path) -> Result<(), BpfError> {
        let loaded = || object.progs_mut().filter(|program| program.autoload());
        for mut program in loaded() {
            let name = program.name().to_string_lossy();
            let only_linked = self.attached.contains(&&*name) && !self.attached_again.contains(&&*name);
            if name == FIND_CPU_OFFSETS || only_linked {
                continue;
            }
            if self.tried.contains(&&*name) {
                attach_tracepoint(program.as_fd())
                    .map_err(|error| BpfError::Load(format!("{name}: {error}")))?;
            }
            let path = folder.join(&*name);
            program.pin(&path).map_err(|error| pin_error(&path, &error))?;
        }
        // Any program will do: the pin is there or not.
        for mark in &self.marks {
            let path = folder.join(mark);
            let pinned = loaded().next().map(|mut program| program.pin(&path));
            pinned.transpose().map_err(|error| pin_error(&path, &error))?;
        }
        Ok(())
    }

    /// Attaches one of them and lets go of it: a kernel may load programs and refuse to attach them.
    pub(super) fn try_to_attach(&self, object: &Object, name: &'static str) -> Result<(), BpfError> {
        let program = object.progs_mut().find(|program| program.name() == name);
        drop(program.ok_or_else(|| no_such(name))?.attach()?);
        Ok(())
    }

    /// Attaches in this order, and pins the links when all are there.
    pub(super) fn attach(&self, object: &Object, folder: &Path) -> Result<(), BpfError> {
        let mut links = Vec::new();
        for name in self.attached.iter().filter(|name| !self.left_out.contains(name)) {
            let program = object.progs_mut().find(|program| program.name() == *name);
            let link = program.ok_or_else(|| no_such(name))?.attach()?;
            links.push((folder.join(name), link));
        }
        for (path, mut link) in links {
            link.pin(&path).map_err(|error| pin_error(&path, &error))?;
        }
        Ok(())
    }
}
