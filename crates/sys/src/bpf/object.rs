//! The one loader: what is loaded of an object of `bpf/`, with which settings, and what of it is pinned.

use super::{
    error::BpfError,
    link::attach_tracepoint,
    loaded::{FIND_CPU_OFFSETS, Loaded, SETTINGS, name_of, no_such, setting_places},
    pins::cause,
    types::Features,
};
use libbpf_rs::{
    AsRawLibbpf as _, MapCore as _, MapHandle, Object, ObjectBuilder, OpenMapMut, OpenObject, OpenProgram,
    btf::Btf,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
    thread,
};

/// So many CPUs verify programs at most: the longest program takes a quarter of the time that all take.
const PARTS_MAX: usize = 4;

/// So many instructions of programs are worth a part of their own. Verifying them takes 80 ms (6.18).
const PART_INSTRUCTIONS: usize = 16_000;

/// Opening an object takes as long as verifying so many.
const OPENING: usize = 5_000;

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

fn open_map<'a>(open: &'a mut OpenObject, name: &str) -> Result<OpenMapMut<'a>, BpfError> {
    open.maps_mut().find(|map| name_of(map.name()) == name).ok_or_else(|| no_such(name))
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
        self.load(None)?.find_cpu_offsets()
    }

    /// Has the kernel verify the programs. With `adopted` they go on with the maps that are pinned in that folder. Where there
    /// is much to verify, which takes nearly all of the time, several CPUs do, a part each.
    pub(super) fn load(&self, adopted: Option<&Path>) -> Result<Loaded, BpfError> {
        let mut first = self.open_to_load()?;
        if let Some(folder) = adopted {
            self.adopt(&mut first, folder)?;
        }
        prepare(&mut first)?;
        let mut parts = parts_of(&first).into_iter();
        let own = parts.next().unwrap_or_default();
        let maps = self.maps_of(&first)?;
        let (first, others) = thread::scope(|scope| {
            let others: Vec<_> = parts.map(|part| scope.spawn(|| self.load_part(part, &maps))).collect();
            keep(&mut first, &own);
            let first = first.load();
            let joined = others.into_iter().map(|other| {
                other
                    .join()
                    .unwrap_or_else(|_| Err(BpfError::Load("a thread that loads panicked".to_owned())))
            });
            (first, joined.collect::<Result<Vec<Object>, BpfError>>())
        });
        Ok(Loaded::of(first?, others?))
    }

    fn load_part(
        &self,
        part: BTreeSet<String>,
        maps: &BTreeMap<String, OwnedFd>,
    ) -> Result<Object, BpfError> {
        let mut open = self.open_to_load()?;
        keep(&mut open, &part);
        for mut map in open.maps_mut() {
            if let Some(known) = self.pinned_name(map.name()).and_then(|name| maps.get(&name)) {
                map.reuse_fd(known.as_fd())?;
            }
        }
        Ok(open.load()?)
    }

    /// The maps that programs share, once they were created.
    #[expect(unsafe_code, reason = "libbpf-rs tells the descriptors of loaded objects only")]
    fn maps_of(&self, prepared: &OpenObject) -> Result<BTreeMap<String, OwnedFd>, BpfError> {
        let mut maps = BTreeMap::new();
        for map in prepared.maps() {
            let Some(name) = self.pinned_name(map.name()) else { continue };
            // SAFETY: the map lives for as long as it is borrowed here.
            let descriptor = unsafe { libbpf_rs::libbpf_sys::bpf_map__fd(map.as_libbpf_object().as_ptr()) };
            if descriptor < 0 {
                continue;
            }
            // SAFETY: it is open, since the object has it and is not dropped meanwhile.
            let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
            let own = borrowed.try_clone_to_owned();
            maps.insert(name, own.map_err(|error| BpfError::Load(format!("cannot share a map: {error}")))?);
        }
        Ok(maps)
    }

    /// The object with its settings, and without what is left out.
    fn open_to_load(&self) -> Result<OpenObject, BpfError> {
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
        Ok(open)
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

    pub(super) fn pin_maps(&self, loaded: &mut Loaded, folder: &Path) -> Result<(), BpfError> {
        for mut map in loaded.maps_mut() {
            let Some(name) = self.pinned_name(map.name()) else { continue };
            let path = folder.join(name);
            map.pin(&path).map_err(|error| pin_error(&path, &error))?;
        }
        Ok(())
    }

    /// Pins what is called, or attached by whoever opens it, and the marks.
    pub(super) fn pin_programs(&self, loaded: &Loaded, folder: &Path) -> Result<(), BpfError> {
        for mut program in loaded.programs() {
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
            let pinned = loaded.programs().next().map(|mut program| program.pin(&path));
            pinned.transpose().map_err(|error| pin_error(&path, &error))?;
        }
        Ok(())
    }

    /// Attaches in this order, and pins the links when all are there.
    pub(super) fn attach(&self, loaded: &Loaded, folder: &Path) -> Result<(), BpfError> {
        let mut links = Vec::new();
        for name in self.attached.iter().filter(|name| !self.left_out.contains(name)) {
            links.push((folder.join(name), loaded.attach(name)?));
        }
        for (path, mut link) in links {
            link.pin(&path).map_err(|error| pin_error(&path, &error))?;
        }
        Ok(())
    }
}

/// Fits the programs to this kernel, and creates the maps.
#[expect(unsafe_code, reason = "libbpf-rs does that together with loading only")]
fn prepare(open: &mut OpenObject) -> Result<(), BpfError> {
    // SAFETY: the object is open, and nobody else has it.
    let result = unsafe { libbpf_rs::libbpf_sys::bpf_object__prepare(open.as_libbpf_object().as_ptr()) };
    if result < 0 {
        return Err(libbpf_rs::Error::from_raw_os_error(result.saturating_neg()).into());
    }
    Ok(())
}

/// Leaves out all other programs.
fn keep(open: &mut OpenObject, part: &BTreeSet<String>) {
    for mut program in open.progs_mut() {
        if !part.contains(&*program.name().to_string_lossy()) {
            program.set_autoload(false);
        }
    }
}

/// The names of the programs of a prepared object, by parts that take about as long each.
fn parts_of(prepared: &OpenObject) -> Vec<BTreeSet<String>> {
    let programs = prepared.progs().filter(OpenProgram::autoload);
    let programs =
        programs.map(|program| (program.insn_cnt(), program.name().to_string_lossy().into_owned()));
    deal(programs.collect(), thread::available_parallelism().map_or(1, usize::from))
}

/// Programs, by how long they are, to so many CPUs. The first part takes longest: the others begin with opening the object once
/// more.
fn deal(mut programs: Vec<(usize, String)>, cpus: usize) -> Vec<BTreeSet<String>> {
    programs.sort_unstable();
    let all: usize = programs.iter().map(|(instructions, _)| instructions).sum();
    let parts_max = cpus.clamp(1, PARTS_MAX);
    let mut parts = vec![(OPENING, BTreeSet::new()); (all / PART_INSTRUCTIONS).clamp(1, parts_max)];
    if let Some((load, _)) = parts.first_mut() {
        *load = 0;
    }
    for (instructions, name) in programs.into_iter().rev() {
        if let Some((load, names)) = parts.iter_mut().min_by_key(|(load, _)| *load) {
            *load = load.saturating_add(instructions);
            names.insert(name);
        }
    }
    parts.into_iter().map(|(_, names)| names).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_dealt_by_their_length_and_each_once() {
        let lengths = [14_730, 10_834, 8_036, 7_987, 7_846, 6_445, 5_425, 3_377, 2_635, 2_400, 25];
        let programs = |lengths: &[usize]| -> Vec<(usize, String)> {
            lengths.iter().map(|length| (*length, length.to_string())).collect()
        };
        let load =
            |part: &BTreeSet<String>| part.iter().map(|name| name.parse::<usize>().unwrap()).sum::<usize>();
        for (cpus, parts) in [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4), (256, 4)] {
            let dealt = deal(programs(&lengths), cpus);
            assert_eq!(dealt.len(), parts, "{cpus}");
            assert_eq!(dealt.iter().map(BTreeSet::len).sum::<usize>(), lengths.len());
            let loads: Vec<usize> = dealt.iter().map(load).collect();
            let most = loads.iter().max().unwrap();
            assert!(*most <= lengths.iter().sum::<usize>() / parts + OPENING, "{cpus}: {loads:?}");
        }
        assert_eq!(deal(programs(&[9_000, 3_000]), 8).len(), 1, "not worth another part");
        assert_eq!(deal(Vec::new(), 8), [BTreeSet::new()]);
    }
}
