//! What our programs need of the kernel.

use super::{Answer, program::may_load};
use crate::{
    bpf::{
        self, BpfError, Killed, LoadOptions, Looks, Members, OomKills, Pins, Selector, Strict, WorkingSet,
        types::{BTF_FILE, Counters, counters_of, find, kernel_types},
    },
    process::possible_cpus,
};
use libbpf_rs::{btf::BtfKind, set_print};
use std::path::Path;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpfFacts {
    /// The kernel tells its types (BTF).
    pub btf: Answer,
    /// A process's page counters are kept per CPU (`percpu_counter`, Linux 6.2).
    pub percpu_counters: Answer,
    /// The kernel function `bpf_rdonly_cast` (Linux 6.2).
    pub rdonly_cast: Answer,
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
    /// Those that tell the machine guard when to look do.
    pub looks_programs: Answer,
    /// The program that tells whom anybody kills.
    pub killed_program: Answer,
    /// Those that refuse memory past a strict job's line do.
    pub strict_programs: Answer,
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
    let types = kernel_types().map_err(|error| reason(&error));
    let function = |name: &str| match &types {
        Ok(types) => {
            Answer::of(find(types, BtfKind::Func, name).is_some(), &format!("the kernel has no '{name}'"))
        }
        Err(why) => Answer::Absent(why.clone()),
    };
    // Without the kernel's types nothing typed can be found, let alone loaded.
    let may_load = types.as_ref().map_or_else(|why| Answer::Absent(why.clone()), |_types| may_load());
    BpfFacts {
        btf: match &types {
            Ok(_) if Path::new(BTF_FILE).exists() => Answer::Present,
            Ok(_) => Answer::Absent(format!("no {BTF_FILE}; types were found elsewhere")),
            Err(why) => Answer::Absent(why.clone()),
        },
        percpu_counters: match types.as_ref().map_err(Clone::clone).and_then(counters_of) {
            Ok(Counters::PerCpu) => Answer::Present,
            Ok(Counters::PerTask) => Answer::Absent(
                "page counters are kept per thread and told late, as before Linux 6.2".to_owned(),
            ),
            Err(why) => Answer::Unknown(why),
        },
        rdonly_cast: function("bpf_rdonly_cast"),
        send_signal_task: function("bpf_send_signal_task"),
        task_from_pid: function("bpf_task_from_pid"),
        limits_programs: verified(&may_load, verify_limits),
        selection_programs: verified(&may_load, Selector::verify),
        kills_program: verified(&may_load, OomKills::verify),
        looks_programs: verified(&may_load, |_cpus| Looks::verify()),
        killed_program: verified(&may_load, Killed::verify),
        strict_programs: verified(&may_load, |_cpus| Strict::verify()),
        working_set_programs: verified(&may_load, |_cpus| WorkingSet::verify()),
    }
}

fn verify_limits(cpus: u32) -> Result<(), BpfError> {
    bpf::verify(&LoadOptions {
        // Nothing is pinned.
        pins: Pins::new(Path::new("")),
        cpus,
        processes_max: 64,
        accounts_max: 8,
        members: Members::Anon,
        first_user_uid: 1000,
    })
}

/// Programs as a whole, for this machine's possible CPUs.
fn verified(may_load: &Answer, verify: impl Fn(u32) -> Result<(), BpfError>) -> Answer {
    if *may_load != Answer::Present {
        return may_load.clone();
    }
    match possible_cpus().map(verify) {
        Ok(Ok(())) => Answer::Present,
        Ok(Err(error)) => Answer::Absent(reason(&error)),
        Err(error) => Answer::Unknown(error.to_string()),
    }
}

/// Without the advice to ask us.
fn reason(error: &BpfError) -> String {
    if let BpfError::Load(why) = error { why.clone() } else { error.to_string() }
}
