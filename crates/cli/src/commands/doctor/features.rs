//! Facts into features: what each is used for, and what is used in its place.

use plimsoll_daemon::privileges::KEPT;
use plimsoll_sys::probe::{Answer, BpfFacts, MachineFacts};

/// What does not work without a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Anything.
    Everything,
    /// Lines; the machine guard does.
    Lines,
    /// Nothing: something else is used in its place.
    Nothing,
}

/// One feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Feature {
    pub(super) name: String,
    pub(super) answer: Answer,
    pub(super) used_for: &'static str,
    /// What is used where it is missing.
    pub(super) fallback: &'static str,
    pub(super) needed_by: Part,
    /// How to get it; empty where there is no more to say.
    pub(super) remedy: &'static str,
}

const NO_LINES: &str = "nothing: lines for users are refused, the machine guard works";

/// All of them, in the order in which they are needed.
pub(super) fn features(bpf: &BpfFacts, machine: &MachineFacts) -> Vec<Feature> {
    let mut features = for_everything(machine);
    features.extend(for_lines(bpf, machine));
    features.extend(capabilities(machine));
    features.extend(for_selection(bpf));
    features.extend(for_kills_of_others(bpf, machine));
    features.push(for_strict_jobs(bpf));
    features.extend(for_the_working_set(bpf, machine));
    features.extend(for_less(bpf, machine));
    features
}

fn for_everything(machine: &MachineFacts) -> Vec<Feature> {
    vec![Feature {
        name: "pidfd".to_owned(),
        answer: machine.pidfd.clone(),
        used_for: "holding and signalling a victim, never a later process of the same number",
        fallback: "nothing: no guard works",
        needed_by: Part::Everything,
        remedy: "allow pidfd_open and pidfd_send_signal",
    }]
}

fn line_feature(name: &str, answer: &Answer, used_for: &'static str, remedy: &'static str) -> Feature {
    Feature {
        name: name.to_owned(),
        answer: answer.clone(),
        used_for,
        fallback: NO_LINES,
        needed_by: Part::Lines,
        remedy,
    }
}

fn for_lines(bpf: &BpfFacts, machine: &MachineFacts) -> Vec<Feature> {
    let outside = "start the daemon on the host, outside the container";
    let btf = "boot a kernel with CONFIG_DEBUG_INFO_BTF=y, as Debian, Ubuntu and Fedora ship it";
    let allowed = "boot Linux 6.1 or later, and run the daemon as root of the host, with CAP_BPF and CAP_PERFMON and without kernel lockdown";
    vec![
        line_feature(
            "initial pid namespace",
            &machine.initial_pid_namespace,
            "knowing who the process numbers in the kernel's records are",
            outside,
        ),
        line_feature("BTF", &bpf.btf, "fitting the programs to this kernel's structures", btf),
        line_feature(
            "limits programs",
            &bpf.limits_programs,
            "usage and kills in the very event, as verified by this kernel",
            allowed,
        ),
    ]
}

/// What the daemon keeps when it gives up the rest.
fn capabilities(machine: &MachineFacts) -> Vec<Feature> {
    let one = |(capability, used_for): &(_, &'static str)| {
        let name = plimsoll_sys::probe::capability_name(*capability);
        let answer = match machine.capabilities {
            Some(have) if have.contains(*capability) => Answer::Present,
            Some(_) => Answer::Absent("a process of root here does not have it".to_owned()),
            None => Answer::Unknown("/proc/self/status does not tell".to_owned()),
        };
        let needed_by = if name == "CAP_KILL" { Part::Everything } else { Part::Nothing };
        Feature {
            answer,
            used_for,
            fallback: if needed_by == Part::Everything {
                "nothing: processes of other users cannot be ended"
            } else {
                "the daemon goes without, and says what it could not do"
            },
            needed_by,
            remedy: "give it to the daemon's service or container",
            name,
        }
    };
    KEPT.iter().map(one).collect()
}

/// What is not needed, as something else does in its place.
fn optional(name: &str, answer: &Answer, used_for: &'static str, fallback: &'static str) -> Feature {
    Feature {
        name: name.to_owned(),
        answer: answer.clone(),
        used_for,
        fallback,
        needed_by: Part::Nothing,
        remedy: "",
    }
}

/// What victims are selected by.
fn for_selection(bpf: &BpfFacts) -> Vec<Feature> {
    vec![
        optional(
            "selection programs",
            &bpf.selection_programs,
            "what a victim is chosen by: all processes in one walk, some ten times as fast as /proc",
            "/proc is read, process by process",
        ),
        optional(
            "pressure programs",
            &bpf.looks_programs,
            "when the machine guard looks at memory: a CPU that works, or whoever takes pages back, wakes it",
            "a timer wakes it, once a second while memory is plenty",
        ),
        optional(
            "bpf_task_from_pid",
            &bpf.task_from_pid,
            "exact memory of the few that the choice is between (Linux 6.2)",
            "an iterator over each of them, which takes longer",
        ),
    ]
}

/// What is known and done of kills that are not ours.
fn for_kills_of_others(bpf: &BpfFacts, machine: &MachineFacts) -> Vec<Feature> {
    vec![
        optional(
            "oom/mark_victim program",
            &bpf.kills_program,
            "the kernel's own kills in the history, with victim, usage and cgroup",
            "those that the last defence arranged are told, others are not",
        ),
        optional(
            "kernel log",
            &machine.kernel_log,
            "why the kernel killed: who asked for what, and what was free",
            "its kills are told without a cause",
        ),
        optional(
            "signal/signal_generate program",
            &bpf.killed_program,
            "freeing whoever anybody kills from outside (reaping.expedite = \"any\")",
            "only the daemon's own victims, and those that 'plimsoll kill --expedite' names",
        ),
    ]
}

/// What refuses memory past a job's line.
fn for_strict_jobs(bpf: &BpfFacts) -> Feature {
    optional(
        "strict programs",
        &bpf.strict_programs,
        "refusing memory past a job's line, so that nobody is ended for it ('plimsoll run --strict')",
        "a job's line ends processes ('--action kill'), or is only told of; libtmalloc refuses memory without the kernel",
    )
}

/// What keeps the files in use in memory, where that is switched on.
fn for_the_working_set(bpf: &BpfFacts, machine: &MachineFacts) -> Vec<Feature> {
    vec![
        optional(
            "working-set programs",
            &bpf.working_set_programs,
            "which files are in use, and the floor of clean file memory ('plimsoll protect')",
            "files in use are not protected",
        ),
        optional(
            "multi-generational LRU",
            &machine.multi_gen_lru,
            "keeping what was used within the last second, by min_ttl_ms, where anon_min_ratio is kept to and no file may be locked",
            "locks and the floor protect the working set by themselves",
        ),
    ]
}

fn for_less(bpf: &BpfFacts, machine: &MachineFacts) -> Vec<Feature> {
    vec![
        optional(
            "BPF filesystem",
            &machine.bpffs,
            "lines that stay in force when the daemon crashes",
            "the daemon mounts it on /sys/fs/bpf when it starts",
        ),
        optional(
            "process_mrelease",
            &machine.process_mrelease,
            "freeing a victim's memory from outside, at full speed",
            "the victim frees it itself, at whatever speed it may run",
        ),
        optional(
            "bpf_send_signal_task",
            &bpf.send_signal_task,
            "killing the largest process in the event that crosses though another one allocates (Linux 6.13)",
            "the daemon does it by pidfd; with no daemon alive the allocating process is taken",
        ),
        optional(
            "per-CPU page counters",
            &bpf.percpu_counters,
            "usage that is exact at each event (Linux 6.2)",
            "what each thread keeps to itself is read after its faults (fexit) while an account is near its line",
        ),
        optional(
            "bpf_rdonly_cast",
            &bpf.rdonly_cast,
            "reading another CPU's part of a counter (Linux 6.2)",
            "nothing, and nothing is missed before 6.2: there are no such parts",
        ),
        optional(
            "swap",
            &machine.swap,
            "the machine guard: acts when free swap is low too",
            "available memory alone decides",
        ),
        optional(
            "memory pressure (PSI)",
            &machine.pressure,
            "the machine guard: acts when programs do little but wait for memory, and is woken by stalls",
            "/proc/meminfo alone decides",
        ),
        optional(
            "cgroup v2 memory controller",
            &machine.memory_controller,
            "the last defence: memory.max above the line on users' slices, with systemd",
            "oom_score_adj of the largest process of each user near the line",
        ),
        optional(
            "systemd",
            &machine.systemd,
            "the last defence: setting memory.max on users' slices",
            "oom_score_adj of the largest process of each user near the line",
        ),
    ]
}
