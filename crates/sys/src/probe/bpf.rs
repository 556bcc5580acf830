//! What our programs need of the kernel.

use super::{
    Answer, program,
    trial::{Trial, may_load},
};
use crate::{
    bpf::{
        self, BpfError, LoadOptions, Members, OomKills, Pins, Selector, WorkingSet,
        types::{BTF_FILE, Counters, counters_of},
    },
    process::possible_cpus,
};
use libbpf_rs::{btf::Btf, libbpf_sys, set_print};
use std::path::Path;

/// The tracepoints that the programs hang on.
pub const TRACEPOINTS: [&str; 4] = ["rss_stat", "exit_mmap", "sched_process_fork", "sched_process_exec"];

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpfFacts {
    /// The kernel tells its types (BTF).
    pub btf: Answer,
    /// A process's page counters are kept per CPU (`percpu_counter`, Linux 6.2).
    pub percpu_counters: Answer,
    /// Programs can be loaded for tracepoints with typed arguments, and attached.
    pub typed_tracepoints: Answer,
    /// The tracepoints, in the order of [`TRACEPOINTS`].
    pub tracepoints: [Answer; TRACEPOINTS.len()],
    /// The kernel function `bpf_rdonly_cast` (Linux 6.2).
    pub rdonly_cast: Answer,
    /// The helper `bpf_loop` (Linux 5.17).
    pub bpf_loop: Answer,
    /// The iterator over all tasks.
    pub task_iterator: Answer,
    /// The ring buffer.
    pub ring_buffer: Answer,
    /// The helper `bpf_send_signal`: to the process itself.
    pub send_signal: Answer,
    /// The kernel function `bpf_send_signal_task`: to another process (Linux 6.13).
    pub send_signal_task: Answer,
    /// The kernel function `bpf_task_from_pid` (Linux 6.2).
    pub task_from_pid: Answer,
    /// The limits programs as a whole pass this kernel's verifier.
    pub limits_programs: Answer,
    /// Those that victims are selected by do.
    pub selection_programs: Answer,
    /// The one that tells of the kernel's own kills does.
    pub kills_program: Answer,
    /// Those that count use of files, and keep the floor, do.
    pub working_set_programs: Answer,
}

/// Tries everything. Takes a second at most, and some tens of megabytes for that long: not for the daemon.
#[must_use]
pub fn probe_bpf() -> BpfFacts {
    // libbpf's own log would go to standard error: what it says is in the answers.
    let before = set_print(None);
    let facts = probe();
    set_print(before);
    facts
}

fn probe() -> BpfFacts {
    let types = match Btf::from_vmlinux() {
        Ok(types) => types,
        Err(error) => return without_types(&format!("{BTF_FILE}: {error}")),
    };
    let loader = Trial::new(&types);
    let tracepoints = TRACEPOINTS.map(|name| loader.tracepoint(name));
    BpfFacts {
        btf: if Path::new(BTF_FILE).exists() {
            Answer::Present
        } else {
            Answer::Absent(format!("no {BTF_FILE}; types were found elsewhere"))
        },
        percpu_counters: match counters_of(&types) {
            Ok(Counters::PerCpu) => Answer::Present,
            Ok(Counters::PerTask) => Answer::Absent(
                "page counters are kept per thread and told late, as before Linux 6.2".to_owned(),
            ),
            Err(why) => Answer::Unknown(why),
        },
        typed_tracepoints: loader.attaches("sched_process_exec"),
        tracepoints,
        rdonly_cast: loader.rdonly_cast(),
        bpf_loop: loader.helper(libbpf_sys::BPF_FUNC_loop),
        task_iterator: loader.task_iterator(),
        ring_buffer: loader.asked(|| program::has_map(libbpf_sys::BPF_MAP_TYPE_RINGBUF)),
        send_signal: loader.helper(libbpf_sys::BPF_FUNC_send_signal),
        send_signal_task: loader.send_signal_task(),
        task_from_pid: loader.task_from_pid(),
        limits_programs: loader.limits_programs(),
        selection_programs: loader.verified(Selector::verify),
        kills_program: loader.verified(OomKills::verify),
        working_set_programs: loader.verified(|_cpus| WorkingSet::verify()),
    }
}

/// Without the kernel's types nothing typed can be found, let alone loaded.
fn without_types(why: &str) -> BpfFacts {
    let absent = || Answer::Absent(why.to_owned());
    let trial = Trial { types: None, may_load: may_load() };
    BpfFacts {
        btf: absent(),
        percpu_counters: Answer::Unknown(why.to_owned()),
        typed_tracepoints: absent(),
        tracepoints: TRACEPOINTS.map(|_| absent()),
        rdonly_cast: absent(),
        bpf_loop: trial.helper(libbpf_sys::BPF_FUNC_loop),
        task_iterator: absent(),
        ring_buffer: trial.asked(|| program::has_map(libbpf_sys::BPF_MAP_TYPE_RINGBUF)),
        send_signal: trial.helper(libbpf_sys::BPF_FUNC_send_signal),
        send_signal_task: absent(),
        task_from_pid: absent(),
        limits_programs: absent(),
        selection_programs: absent(),
        kills_program: absent(),
        working_set_programs: absent(),
    }
}

impl Trial<'_> {
    fn limits_programs(&self) -> Answer {
        self.verified(|cpus| {
            bpf::verify(&LoadOptions {
                // Nothing is pinned.
                pins: Pins::new(Path::new("")),
                cpus,
                processes_max: 64,
                accounts_max: 8,
                members: Members::Anon,
                first_user_uid: 1000,
            })
        })
    }

    /// Programs as a whole, for this machine's possible CPUs.
    fn verified(&self, verify: impl Fn(u32) -> Result<(), BpfError>) -> Answer {
        if self.may_load != Answer::Present {
            return self.may_load.clone();
        }
        let cpus = match possible_cpus() {
            Ok(cpus) => cpus,
            Err(error) => return Answer::Unknown(error.to_string()),
        };
        match verify(cpus) {
            Ok(()) => Answer::Present,
            // Without the advice to ask us.
            Err(BpfError::Load(why)) => Answer::Absent(why),
            Err(error) => Answer::Absent(error.to_string()),
        }
    }
}
