//! `bpf/verified.txt`: how many instructions the verifier may go through, by program and kernel.
#![allow(unreachable_pub, reason = "each test file uses its own part of this")]

use std::collections::BTreeMap;

/// Where it is.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/verified.txt");

/// How the file is renewed.
pub const RENEW: &str = "lab/verified.sh";

/// What a count may be above the allowed one, the larger of both: what a small change adds here and there, and a series of them
/// does not. The same programs on the same kernel have the same counts.
const TOLERANCE_PERCENT: u32 = 10;
const TOLERANCE_LEAST: u32 = 500;

/// No program may take more, whatever the kernel and the compiler: half of what every kernel allows
/// (`BPF_COMPLEXITY_LIMIT_INSNS`, include/linux/bpf.h), so that there is room for those that nobody tried.
pub const CEILING: u32 = 500_000;

/// A kernel's version, as far as it names a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series(u32, u32);

impl Series {
    /// `6.12` of `6.12.117+deb13-amd64`; `None` where it does not begin with two numbers.
    pub fn of(release: &str) -> Option<Self> {
        let mut numbers = release.trim().split(|one: char| !one.is_ascii_digit());
        Some(Self(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

impl std::fmt::Display for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// What the file says of one program on one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Within what is allowed.
    Fine,
    /// So much below that a growth would go unseen: the allowed count.
    MayBeLowered(u32),
    /// Above the allowed count.
    TooMany(u32),
    /// A program that the file does not know.
    New,
    /// Loaded where the file has no count: a machine's own kernel may offer more than the one that was counted on.
    Uncounted,
    /// Not loaded where the file has a count.
    Missing(u32),
}

/// The file, read.
#[derive(Debug)]
pub struct Counts {
    /// Whose programs were counted, as `clang 14`. Those of another may take ten times as much.
    pub compiler: String,
    columns: Vec<Series>,
    rows: BTreeMap<String, Vec<Option<u32>>>,
}

impl Counts {
    /// The file in this tree.
    pub fn read() -> Self {
        Self::parse(&std::fs::read_to_string(FILE).unwrap())
    }

    /// # Panics
    /// With the line that is not as it should be.
    pub fn parse(text: &str) -> Self {
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let compiler = lines.next().unwrap().strip_prefix("compiler: ").unwrap().to_owned();
        let mut head = lines.next().unwrap().split_whitespace();
        assert_eq!(head.next(), Some("program"), "the second line names the columns");
        let columns: Vec<_> = head.map(|name| Series::of(name).unwrap()).collect();
        let rows = lines.map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap();
            let count = |word: &str| match word {
                "-" => None,
                count => Some(count.parse().unwrap_or_else(|_error| panic!("no count: {line}"))),
            };
            let counts: Vec<_> = words.map(count).collect();
            assert_eq!(counts.len(), columns.len(), "as many counts as kernels: {line}");
            (name.to_owned(), counts)
        });
        let rows: BTreeMap<_, _> = rows.collect();
        Self { compiler, columns, rows }
    }

    /// The programs that it knows.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.rows.keys().map(String::as_str)
    }

    /// The series that a kernel without a column is shown beside: the nearest lower one, or the lowest there is.
    pub fn nearest(&self, series: Series) -> Series {
        let below = self.columns.iter().filter(|one| **one <= series).max();
        *below.or_else(|| self.columns.iter().min()).unwrap()
    }

    /// What is allowed.
    pub fn allowed(&self, series: Series, program: &str) -> Option<u32> {
        let column = self.columns.iter().position(|one| *one == series)?;
        self.rows.get(program)?[column]
    }

    /// Judges what was counted; `None`: it was not loaded.
    pub fn judge(&self, series: Series, program: &str, counted: Option<u32>) -> Judgement {
        match (self.allowed(series, program), counted) {
            (None, None) => Judgement::Fine,
            (None, Some(_)) if self.rows.contains_key(program) => Judgement::Uncounted,
            (None, Some(_)) => Judgement::New,
            (Some(allowed), None) => Judgement::Missing(allowed),
            (Some(allowed), Some(counted)) if counted > allowed + tolerance(allowed) => {
                Judgement::TooMany(allowed)
            }
            (Some(allowed), Some(counted)) if counted + tolerance(counted) < allowed => {
                Judgement::MayBeLowered(allowed)
            }
            _ => Judgement::Fine,
        }
    }
}

fn tolerance(count: u32) -> u32 {
    (count / 100 * TOLERANCE_PERCENT).max(TOLERANCE_LEAST)
}
