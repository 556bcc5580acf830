//! The load gate: every program of `bpf/`, in every shape of its read-only settings, passes this kernel's verifier, which goes
//! through no more instructions for it than `bpf/verified.txt` allows.
//!
//! A shape is what the loaders load. Flags are crossed in all their values, numbers have a few telling ones, each at least
//! once with each flag: they are constants that something is compared with, and counts differ by a thousandth between them. An
//! emulated machine has each value once, unless all is asked for (`PLIMSOLL_TEST_ALL=1`). What the kernel decides
//! ([`Values::OfTheKernel`]) is as this one decides it: the lab has one for each.
//!
//! Counts are judged on kernels that have a column in the file, of programs that the compiler named there has made: another
//! made twelve times as much of one program for one kernel. Elsewhere they are shown, and held to a ceiling.
#![cfg(test)]

mod counts;
mod support;

use counts::{CEILING, Counts, Judgement, RENEW, Series};
use plimsoll_sys::{
    bpf::{Accesses, LoadOptions, Members, Pins, Shape, WorkingSet},
    probe::{Answer, function_hooks},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{Mutex, OnceLock},
    time::Instant,
};

/// How the values of a setting come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    /// The shapes go through them: more than one is seen here.
    OfTheShapes,
    /// It follows from other settings.
    Follows,
    /// One here, which the kernel or the machine decides.
    OfTheKernel,
    /// One everywhere, which is in the source.
    Constant,
}
use Values::{Constant, Follows, OfTheKernel, OfTheShapes};

/// Every `const volatile` of `bpf/`, by file. A new one fails the gate until it is here and, if it varies, in the shapes.
const SETTINGS: [(&str, &[(&str, Values)]); 8] = [
    (
        "limits",
        &[
            ("nr_cpus", OfTheShapes),
            ("nr_accounts", Follows),
            ("nr_slots", Follows),
            ("charged_members", OfTheShapes),
            ("loose_pages_per_mm", Follows),
            ("first_user_uid", OfTheShapes),
            ("task_caches", OfTheKernel),
            ("allowance_pages", OfTheKernel),
            ("entries_for_most", Follows),
            ("slot_of_member", Constant),
            ("unanswered_ns", Constant),
            ("ask_again_ns", Constant),
            ("search_again_ns", Constant),
            ("scan_apart_ns", Constant),
            ("settle_apart_ns", Constant),
            ("told_at_once", Constant),
            ("told_apart_ns", Constant),
        ],
    ),
    ("frag", &[("order_min", OfTheShapes), ("pageblock_order", OfTheShapes)]),
    ("killed", &[("nr_cpus", OfTheShapes), ("task_caches", OfTheKernel)]),
    ("oom", &[("nr_cpus", OfTheShapes), ("task_caches", OfTheKernel)]),
    ("pressure", &[]),
    ("select", &[("nr_cpus", OfTheShapes), ("task_caches", OfTheKernel)]),
    ("strict", &[("page_shift", OfTheShapes), ("keeps_cpu", OfTheKernel), ("told_apart_ns", Constant)]),
    ("workingset", &[("nr_nodes", OfTheShapes), ("page_shift", OfTheShapes)]),
];

/// Possible CPUs: the loop's one round, a small machine, more than a batch of counters (`max(32, 2 * CPUs)`) makes up for.
const CPUS: [u32; 3] = [1, 2, 256];

/// The file of `bpf/`, what is said of the shape, and the shape.
type Named = (&'static str, String, Shape);

/// Files with programs at kernel functions.
const AT_FUNCTIONS: [&str; 2] = ["strict/", "workingset/"];

/// Whether this machine is fast enough for everything, or is asked for it.
fn everything() -> bool {
    let set = |name: &str, to: &str| std::env::var(name).is_ok_and(|value| value == to);
    std::env::var_os("PLIMSOLL_TEST_SLOWNESS").is_none() || set("PLIMSOLL_TEST_ALL", "1")
}

fn limits_shapes() -> Vec<Named> {
    let users = [0, 1000, u32::MAX];
    let every = [Members::Anon, Members::Rss].into_iter().flat_map(|members| {
        CPUS.into_iter().zip(users).map(move |(cpus, first_user)| (members, cpus, first_user))
    });
    let telling = [(Members::Anon, 1, 0), (Members::Anon, 256, u32::MAX), (Members::Rss, 2, 1000)];
    let chosen = if everything() { every.collect() } else { Vec::from(telling) };
    let shape = |(members, cpus, first_user_uid)| {
        let options = LoadOptions {
            // Nothing is pinned.
            pins: Pins::new(Path::new("")),
            cpus,
            processes_max: 64,
            accounts_max: 8,
            members,
            first_user_uid,
        };
        let said = format!("{members:?}, CPUs: {cpus}, users from {first_user_uid}");
        ("limits", said, Shape::Limits(options))
    };
    chosen.into_iter().map(shape).collect()
}

fn facts_shapes() -> Vec<Named> {
    let shapes = CPUS.into_iter().flat_map(|cpus| {
        let said = format!("CPUs: {cpus}");
        [
            ("select", said.clone(), Shape::Select { cpus }),
            ("killed", said.clone(), Shape::Killed { cpus }),
            ("oom", said.clone(), Shape::Oom { cpus, by_number: false }),
            ("oom", format!("{said}, by number"), Shape::Oom { cpus, by_number: true }),
        ]
    });
    let orders = [(2, 9), (10, 13)].map(|(order_min, pageblock_order)| {
        let said = format!("from order {order_min}, pageblocks of {pageblock_order}");
        ("frag", said, Shape::Frag { order_min, pageblock_order })
    });
    let pages = [12, 16].map(|page_shift| {
        ("strict", format!("pages of {} KiB", 1 << (page_shift - 10)), Shape::Strict { page_shift })
    });
    shapes.chain([("pressure", "as it is".to_owned(), Shape::Pressure)]).chain(orders).chain(pages).collect()
}

/// The other value of each is of the way before where not everything is loaded: they have most programs in common.
fn working_set_shapes(ways: &[Accesses]) -> Vec<Named> {
    let numbers = [(16, 64), (12, 1)];
    let every = ways.iter().flat_map(|way| numbers.map(|number| (*way, number)));
    let chosen: Vec<_> = if everything() || ways.len() < numbers.len() {
        every.collect()
    } else {
        ways.iter().copied().zip(numbers).collect()
    };
    let shape = |(accesses, (page_shift, nodes))| {
        let said = format!("{accesses:?}, nodes: {nodes}, pages of {} KiB", 1 << (page_shift - 10));
        ("workingset", said, Shape::WorkingSet { accesses, page_shift, nodes })
    };
    chosen.into_iter().map(shape).collect()
}

/// The ways that this kernel takes programs for, and why it takes none for another. Without any there are fewer programs, and
/// none of its own.
fn ways() -> (Vec<Accesses>, Option<String>) {
    let mut ways = WorkingSet::ways().unwrap();
    ways.retain(|way| *way != Accesses::Nowhere);
    match function_hooks("filemap_read") {
        Answer::Present => (ways, None),
        Answer::Absent(why) | Answer::Unknown(why) => {
            ways.retain(|way| *way != Accesses::Functions);
            (ways, Some(format!("no program at a kernel function: {why}")))
        }
    }
}

/// What one kernel made of all shapes.
#[derive(Debug, Default)]
struct Outcome {
    refused: Vec<String>,
    /// What this kernel takes no program for at all, be it empty.
    lacks: Option<String>,
    /// Each setting, as `FILE.c: NAME`, and the values that it was seen with.
    settings: BTreeMap<(&'static str, String), BTreeSet<Vec<u8>>>,
    /// Each program, as `FILE/NAME`, and the most that it took, in which shape; `None`: never loaded.
    programs: BTreeMap<String, Option<(u32, String)>>,
}

/// The last lines that libbpf wrote: the verifier's own end is among them.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
const SAID_LINES: usize = 24;

fn listen(_level: libbpf_rs::PrintLevel, message: String) {
    let mut said = SAID.lock().unwrap();
    said.extend(message.lines().map(str::to_owned));
    let beyond = said.len().saturating_sub(SAID_LINES);
    said.drain(..beyond);
}

/// Loads all shapes once for all tests; `None` where this user may not, which is said.
fn outcome() -> Option<&'static Outcome> {
    static OUTCOME: OnceLock<Outcome> = OnceLock::new();
    if !support::is_root() {
        return None;
    }
    Some(OUTCOME.get_or_init(|| {
        let before = libbpf_rs::set_print(Some((libbpf_rs::PrintLevel::Warn, listen)));
        let began = Instant::now();
        let (ways, lacks) = ways();
        lacks.iter().for_each(|why| println!("left out on {}: {why}", series()));
        let mut outcome = Outcome { lacks, ..Outcome::default() };
        let shapes = [limits_shapes(), facts_shapes(), working_set_shapes(&ways)].concat();
        for shape in &shapes {
            outcome.add(shape);
        }
        println!("{} shapes took {:.1} s on {}", shapes.len(), began.elapsed().as_secs_f32(), series());
        libbpf_rs::set_print(before);
        for (program, most) in &outcome.programs {
            if let Some((count, shape)) = most {
                // As lab/verified.sh reads it.
                println!("verified: {} {program} {count} ({shape})", series());
            }
        }
        outcome
    }))
}

impl Outcome {
    fn add(&mut self, (file, said, shape): &Named) {
        SAID.lock().unwrap().clear();
        let verified = match shape.load() {
            Ok(verified) => verified,
            Err(error) => {
                let log = SAID.lock().unwrap().join("\n    ");
                self.refused.push(format!("{file}.bpf.c ({said}): {error}\n    {log}"));
                return;
            }
        };
        for (name, value) in verified.settings {
            self.settings.entry((file, name)).or_default().insert(value);
        }
        for (name, count) in verified.programs {
            let most = self.programs.entry(format!("{file}/{name}")).or_default();
            if let Some(count) = count
                && most.as_ref().is_none_or(|(known, _shape)| count > *known)
            {
                *most = Some((count, said.clone()));
            }
        }
    }
}

fn series() -> Series {
    Series::of(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap()).unwrap()
}

fn fail_with(problems: &[String]) {
    assert!(problems.is_empty(), "{} on {}:\n{}", problems.len(), series(), problems.join("\n"));
}

#[test]
fn every_program_loads_in_every_shape_of_its_settings() {
    if let Some(outcome) = outcome() {
        fail_with(&outcome.refused);
    }
}

#[test]
fn every_setting_is_known_to_the_gate_and_takes_its_values() {
    let Some(outcome) = outcome() else { return };
    let known: BTreeMap<_, _> = SETTINGS
        .iter()
        .flat_map(|(file, settings)| {
            settings.iter().map(|(name, values)| ((*file, (*name).to_owned()), *values))
        })
        .collect();
    let mut problems = Vec::new();
    for (setting @ (file, name), seen) in &outcome.settings {
        let seen = seen.len();
        match known.get(setting) {
            None => problems.push(format!(
                "{file}.bpf.c: the gate does not know the setting '{name}': say in SETTINGS of load_gate.rs how its values come about, and have the shapes go through them"
            )),
            Some(OfTheShapes) if seen < 2 => {
                problems.push(format!("{file}.bpf.c: '{name}' has one value in all shapes: have them go through more"));
            }
            Some(OfTheKernel | Constant) if seen > 1 => {
                problems.push(format!("{file}.bpf.c: '{name}' has {seen} values: it is OfTheShapes by now"));
            }
            Some(_) => {}
        }
    }
    let gone = known.keys().filter(|setting| !outcome.settings.contains_key(setting));
    problems.extend(gone.map(|(file, name)| format!("{file}.bpf.c: there is no setting '{name}' any more")));
    fail_with(&problems);
}

#[test]
fn every_file_of_programs_is_known_to_the_gate() {
    let entries = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf")).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".bpf.c").map(str::to_owned);
    let files: BTreeSet<_> = entries.flatten().filter_map(name).collect();
    assert_eq!(files, SETTINGS.iter().map(|(file, _settings)| (*file).to_owned()).collect());
}

#[test]
fn no_program_takes_more_of_the_verifier_than_it_may() {
    let Some(outcome) = outcome() else { return };
    let (series, counts) = (series(), Counts::read());
    let (shown, why) = judged_by(&counts, series);
    why.iter()
        .for_each(|why| println!("{why}: counts are shown beside those of {shown}, and not judged by them"));
    let mut problems = Vec::new();
    for (program, most) in &outcome.programs {
        let count = most.as_ref().map(|(count, _shape)| *count);
        let taken = most.as_ref().map_or_else(
            || "not loaded".to_owned(),
            |(count, shape)| format!("{count} instructions ({shape})"),
        );
        if count.is_some_and(|count| count > CEILING) {
            problems.push(format!("{program}: {taken}, no program may take {CEILING}"));
        }
        match counts.judge(shown, program, count) {
            Judgement::New => problems.push(format!("{program}: bpf/verified.txt does not know it")),
            _ if why.is_some() => {
                println!("{program}: {taken}, {:?} on {shown}", counts.allowed(shown, program));
            }
            Judgement::Fine | Judgement::Uncounted => {}
            Judgement::MayBeLowered(allowed) => {
                println!("{program}: {taken}, {allowed} allowed: {RENEW} would lower it");
            }
            Judgement::Missing(_)
                if outcome.lacks.is_some() && AT_FUNCTIONS.iter().any(|file| program.starts_with(file)) => {}
            Judgement::TooMany(allowed) | Judgement::Missing(allowed) => {
                problems.push(format!("{program}: {taken}, {allowed} allowed"));
            }
        }
    }
    let gone = counts.programs().filter(|program| !outcome.programs.contains_key(*program));
    problems.extend(gone.map(|program| format!("{program}: there is no such program any more")));
    if !problems.is_empty() {
        problems.push(format!("where that is wanted, {RENEW} renews bpf/verified.txt, on all kernels"));
    }
    fail_with(&problems);
}

/// The column that counts are shown beside, and why they are not judged by it, if so.
fn judged_by(counts: &Counts, series: Series) -> (Series, Option<String>) {
    let shown = counts.nearest(series);
    let why = if shown != series {
        Some(format!("bpf/verified.txt has no column for {series}"))
    } else if counts.compiler != Shape::COMPILER {
        Some(format!("{} made these programs, not {}", Shape::COMPILER, counts.compiler))
    } else {
        None
    };
    (shown, why)
}

#[test]
fn a_count_is_judged_with_some_tolerance() {
    let counts =
        Counts::parse("# about\ncompiler: clang 14\nprogram 6.1 6.12\na/small 100 -\na/large 20000 30000\n");
    let judge = |series, program, count| counts.judge(Series::of(series).unwrap(), program, count);
    assert_eq!(judge("6.1.192-2", "a/small", Some(600)), Judgement::Fine);
    assert_eq!(judge("6.1.192-2", "a/small", Some(601)), Judgement::TooMany(100));
    assert_eq!(judge("6.1.192-2", "a/small", None), Judgement::Missing(100));
    assert_eq!(judge("6.12.1", "a/small", Some(1)), Judgement::Uncounted);
    assert_eq!(judge("6.12.1", "a/small", None), Judgement::Fine);
    assert_eq!(judge("6.12.1", "a/large", Some(33_000)), Judgement::Fine);
    assert_eq!(judge("6.12.1", "a/large", Some(33_001)), Judgement::TooMany(30_000));
    assert_eq!(judge("6.12.1", "a/large", Some(27_000)), Judgement::MayBeLowered(30_000));
    assert_eq!(judge("6.12.1", "a/large", Some(27_300)), Judgement::Fine);
    assert_eq!(judge("6.12.1", "b/new", Some(1)), Judgement::New);
}

#[test]
fn a_kernel_without_a_column_is_shown_beside_the_nearest_lower_one() {
    let counts = Counts::parse("compiler: clang 14\nprogram 6.12 6.1 7.2\n");
    let nearest = |release| counts.nearest(Series::of(release).unwrap()).to_string();
    assert_eq!(nearest("6.19.4-arch"), "6.12");
    assert_eq!(nearest("7.10"), "7.2");
    assert_eq!(nearest("5.15.0"), "6.1");
    let (shown, why) = judged_by(&counts, Series::of("6.19.4-arch").unwrap());
    assert_eq!(
        (shown.to_string().as_str(), why.as_deref()),
        ("6.12", Some("bpf/verified.txt has no column for 6.19"))
    );
}

#[test]
fn another_compilers_programs_are_not_judged_by_the_counts() {
    let counts = Counts::parse("compiler: clang 3\nprogram 6.12\n");
    let (_shown, why) = judged_by(&counts, Series::of("6.12.1").unwrap());
    assert_eq!(why, Some(format!("{} made these programs, not clang 3", Shape::COMPILER)));
    let counts = Counts::parse(&format!("compiler: {}\nprogram 6.12\n", Shape::COMPILER));
    assert_eq!(judged_by(&counts, Series::of("6.12.1").unwrap()).1, None);
}
