//! Loading and pinning: heavy (it parses megabytes of the kernel's type information), so done in a child that ends.

use super::{
    error::BpfError,
    facts::wire_pages,
    loaded::Loaded,
    object::Plan,
    pins::{BUILD, LAYOUT, PinState, Pins, create_folder, entries_for_most, remove_entries},
    types::Features,
};
use crate::process::page_size;
use libbpf_rs::{MapCore as _, MapFlags};
use plimsoll_policy::{
    counter::{Shape, kernel_batch},
    reservation::ALLOWANCE,
};
use plimsoll_wire::abi;
use zerocopy::IntoBytes as _;

/// What is attached, in this order, the event itself last; [`super::Limits::watch_copies`] attaches those at pages.
const ATTACHED: [&str; 8] =
    ["scan", "on_exit_mmap", "on_fork", "on_task_alloc", "on_exec", "on_tick", "on_fault", "on_rss_stat"];

/// Of those, what is at each event: [`super::Limits::watch_events`] detaches it, and attaches it again.
pub(super) const AT_EVENTS: [&str; 2] = ["on_fault", "on_rss_stat"];

/// As in `bpf/limits/maps.h`.
const BLANK_PINNED: u32 = 1;

/// What a thread keeps to itself before it tells: `TASK_RSS_EVENTS_THRESH` faults and the one that finds it passed
/// (mm/memory.c, 6.1), a page each. A process is taken to have two threads that do.
const TASK_CACHE_PAGES: u32 = 2 * 65;

/// Which counters are usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Members {
    /// Anonymous and swapped pages.
    Anon,
    /// File and shmem pages too.
    Rss,
}

impl Members {
    /// As a bit mask of `rss_stat` members.
    #[must_use]
    pub const fn mask(self) -> u32 {
        match self {
            Self::Anon => 1 << abi::PLIMSOLL_MEMBER_ANON | 1 << abi::PLIMSOLL_MEMBER_SWAP,
            Self::Rss => (1 << abi::PLIMSOLL_MEMBERS) - 1,
        }
    }

    const fn slots(self) -> u32 {
        self.mask().count_ones()
    }
}

/// What to load for.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where to pin.
    pub pins: Pins,
    /// Possible CPUs of the machine.
    pub cpus: u32,
    /// Address spaces of limited users that can be tracked.
    pub processes_max: u32,
    /// Accounts, account 0 (nobody's) among them.
    pub accounts_max: u32,
    /// What is charged.
    pub members: Members,
    /// The first uid that is no system user's.
    pub first_user_uid: u32,
}

/// How far one address space's charge may lag while its account is not exact: what each CPU may hold unfolded in each
/// counter.
fn loose_pages(cpus: u32, slots: u32) -> u32 {
    cpus.saturating_mul(slots).saturating_mul(kernel_batch(cpus))
}

fn value_bytes(cpus: u32, slots: u32) -> u32 {
    let remainders = cpus.saturating_mul(slots).saturating_mul(4).next_multiple_of(8);
    u32::try_from(size_of::<abi::plimsoll_mm>()).unwrap_or(u32::MAX).saturating_add(remainders)
}

/// Loads the programs, fills their maps, pins both and attaches. On an error every pin made is removed again.
///
/// # Errors
/// [`BpfError::Load`] when the kernel refuses, [`BpfError::Pin`] when a pin cannot be made, [`BpfError::Schema`] when
/// another version's pins are there.
pub fn load(options: &LoadOptions) -> Result<(), BpfError> {
    match options.pins.state()? {
        PinState::Absent => {}
        PinState::Partial => {
            options.pins.remove_programs()?;
        }
        PinState::Ours(meta) => {
            return Err(BpfError::Load(format!("already loaded, for {} processes", meta.processes_max)));
        }
        PinState::Foreign(found) => {
            return Err(BpfError::Schema {
                path: options.pins.root().to_path_buf(),
                found,
                expected: abi::PLIMSOLL_SCHEMA,
            });
        }
    }
    undo_unless(load_into(options), options)
}

/// Loads these programs beside others, which stay in force, to go on with their maps. [`Pins::replace`] puts them in force
/// alone. Until then both are attached: whoever sees a change first charges it, and the other finds none.
///
/// # Errors
/// As [`load`]; nothing is left of it then.
pub fn load_beside(options: &LoadOptions) -> Result<(), BpfError> {
    let beside = LoadOptions { pins: options.pins.beside(), ..options.clone() };
    undo_unless(load_onto(&beside, &options.pins), &beside)
}

fn undo_unless(loaded: Result<(), BpfError>, options: &LoadOptions) -> Result<(), BpfError> {
    if loaded.is_err() {
        // The first error is the one to tell; what could not be removed is Partial to the next daemon.
        if let Err(error) = options.pins.undo() {
            return loaded.map_err(|first| BpfError::Load(format!("{first}; and then {error}")));
        }
    }
    loaded
}

/// Has the kernel verify the programs, and lets go of them: nothing is attached, pinned or left behind.
///
/// # Errors
/// [`BpfError::Load`] when the kernel refuses.
pub fn verify(options: &LoadOptions) -> Result<(), BpfError> {
    let kernel = Features::read()?;
    let plan = plan(options, kernel);
    let loaded = plan.load(None)?;
    fill(&loaded, options, kernel)?;
    // A kernel may load programs and refuse to attach them.
    loaded.attach("on_exec").map(drop)
}

fn load_into(options: &LoadOptions) -> Result<(), BpfError> {
    let kernel = Features::read()?;
    let plan = plan(options, kernel);
    let mut loaded = plan.load(None)?;
    fill(&loaded, options, kernel)?;
    let maps = options.pins.maps();
    create_folder(&maps)?;
    plan.pin_maps(&mut loaded, &maps)?;
    put_in_force(&plan, &loaded, options)
}

fn load_onto(options: &LoadOptions, old: &Pins) -> Result<(), BpfError> {
    // What an interrupted load left there would be put in the place of those in force.
    remove_entries(&options.pins.maps())?;
    let plan = plan(options, Features::read()?);
    let loaded = plan.load(Some(&old.maps()))?;
    put_in_force(&plan, &loaded, options)
}

fn put_in_force(plan: &Plan, loaded: &Loaded, options: &LoadOptions) -> Result<(), BpfError> {
    let (programs, links) = (options.pins.programs(), options.pins.links());
    create_folder(&programs)?;
    plan.pin_programs(loaded, &programs)?;
    create_folder(&links)?;
    plan.attach(loaded, &links)
}

pub(super) fn plan(options: &LoadOptions, kernel: Features) -> Plan {
    let (cpus, slots) = (options.cpus, options.members.slots());
    let loose_pages = if kernel.task_caches { TASK_CACHE_PAGES } else { loose_pages(cpus, slots) };
    let word = |value: u32| value.to_ne_bytes().to_vec();
    let mut left_out = Vec::new();
    if !kernel.task_caches {
        left_out.extend(["on_fault", "cached"]);
    }
    if !kernel.refuses_forks {
        left_out.push("on_task_alloc");
    }
    let counters = Plan::of_counters(cpus, kernel);
    let settings = vec![
        ("nr_accounts", word(options.accounts_max)),
        ("nr_slots", word(slots)),
        ("charged_members", word(options.members.mask())),
        ("loose_pages_per_mm", word(loose_pages)),
        ("first_user_uid", word(options.first_user_uid)),
        ("entries_for_most", word(entries_for_most(options.processes_max))),
        ("allowance_pages", wire_pages(page_size().to_pages(ALLOWANCE)).to_ne_bytes().to_vec()),
    ];
    Plan {
        name: "limits",
        object: include_bytes!(concat!(env!("OUT_DIR"), "/limits.bpf.o")),
        settings: [counters.settings, settings].concat(),
        entries: vec![
            ("mms", options.processes_max),
            ("families", options.processes_max),
            ("cpu_offsets", cpus),
            ("accounts", options.accounts_max),
            ("tree", options.accounts_max.saturating_mul(Shape::of(cpus).nodes())),
            ("account_numbers", options.accounts_max),
        ],
        value_bytes: ["mms", "blank"].map(|map| (map, value_bytes(cpus, slots))).to_vec(),
        left_out,
        attached: ATTACHED.to_vec(),
        attached_again: &AT_EVENTS,
        ..Plan::default()
    }
}

fn fill(loaded: &Loaded, options: &LoadOptions, kernel: Features) -> Result<(), BpfError> {
    loaded.find_cpu_offsets()?;
    let meta = abi::plimsoll_meta {
        schema: abi::PLIMSOLL_SCHEMA,
        nr_cpus: options.cpus,
        nr_slots: options.members.slots(),
        charged_members: options.members.mask(),
        max_processes: options.processes_max,
        max_accounts: options.accounts_max,
        features: flags(kernel),
        pad: 0,
        build: BUILD,
        layout: LAYOUT,
    };
    // Account 0 takes what is nobody's: no line, so that nothing about it is ever near.
    let nobody = abi::plimsoll_account {
        hard_pages: i64::MAX,
        soft_pages: i64::MAX,
        effective_pages: i64::MAX,
        ..Default::default()
    };
    // What new entries with a pin are copied from. Those without are copied from zeroes, which the map has.
    let pinned = abi::plimsoll_mm { pins: 1, ..Default::default() };
    let mut pinned = pinned.as_bytes().to_vec();
    pinned.resize(value_bytes(options.cpus, options.members.slots()) as usize, 0);
    for (name, key, value) in [
        ("accounts", abi::PLIMSOLL_NOBODY, nobody.as_bytes()),
        ("blank", BLANK_PINNED, &pinned),
        ("meta", 0, meta.as_bytes()),
    ] {
        loaded.map(name)?.update(&key.to_ne_bytes(), value, MapFlags::ANY)?;
    }
    Ok(())
}

/// As `meta` tells them.
fn flags(kernel: Features) -> u32 {
    let flag = |has: bool, flag: u32| if has { flag } else { 0 };
    flag(kernel.task_caches, abi::PLIMSOLL_FEATURE_TASK_CACHES)
        | flag(kernel.signals_others, abi::PLIMSOLL_FEATURE_SIGNAL_OTHERS)
        | flag(kernel.refuses_forks, abi::PLIMSOLL_FEATURE_REFUSE_FORKS)
}
