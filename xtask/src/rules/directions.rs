//! Dependencies between our own crates point one way (ARCHITECTURE.md), read from their Cargo.toml. Everyday commands use
//! no more than the control API, what people read, and policy's types.

use crate::{
    Finding,
    tree::{Language, Source, Tree},
};

/// Lowest first: a crate may depend on those before it only.
const ORDER: [&str; 12] = [
    "plimsoll-policy",
    "plimsoll-wire",
    "plimsoll-report",
    "plimsoll-tmalloc",
    "plimsoll-preload",
    "plimsoll-sys",
    "plimsoll-testkit",
    "plimsoll-api",
    "plimsoll-daemon",
    "plimsoll-bench",
    "plimsoll",
    "plimsoll-fuzz",
];

/// Of the command line, what may use the crates below.
const NOT_EVERYDAY: [&str; 12] = [
    "main.rs",
    "commands/bench",
    "commands/daemon",
    "commands/demo",
    "commands/doctor",
    "commands/frag",
    "commands/jobs",
    "commands/kill",
    "commands/run/child",
    "commands/run/jobserver",
    "commands/run/watch",
    "commands/simulate",
];

/// What has the loader of BPF programs, the daemon or the benches in it.
const HEAVY: [&str; 4] = ["plimsoll_bench", "plimsoll_daemon", "plimsoll_sys", "plimsoll_wire"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let crates = tree.in_language(Language::Toml).filter(|source| source.path.ends_with("/Cargo.toml"));
    let commands = tree.in_language(Language::Rust).filter(|source| is_everyday(&source.path));
    crates.flat_map(check_crate).chain(commands.flat_map(check_command)).collect()
}

fn is_everyday(path: &str) -> bool {
    path.strip_prefix("crates/cli/src/").is_some_and(|rest| {
        !rest.ends_with("tests.rs") && !NOT_EVERYDAY.iter().any(|name| rest.starts_with(name))
    })
}

fn check_command(source: &Source) -> Vec<Finding> {
    let used = |(line, text): (usize, &str)| {
        let heavy = HEAVY.iter().find(|name| text.contains(*name))?;
        let message = format!(
            "{heavy} in an everyday command: it may use plimsoll_api, plimsoll_report, plimsoll_policy"
        );
        Some(Finding::new(&source.path, line, message))
    };
    source.lines().filter_map(used).collect()
}

fn check_crate(source: &Source) -> Vec<Finding> {
    let mut section = "";
    let mut name = None;
    let mut findings = Vec::new();
    for (line, text) in source.lines() {
        let text = text.trim();
        if let Some(header) = text.strip_prefix('[') {
            section = header.trim_end_matches(']');
        } else if let Some((key, value)) = text.split_once('=') {
            let key = key.trim().trim_end_matches(".workspace").trim_matches('"');
            if section == "package" && key == "name" {
                name = Some(value.trim().trim_matches('"'));
            } else if section.ends_with("dependencies") {
                let problem = wrong_direction(name.unwrap_or_default(), renamed(value).unwrap_or(key));
                findings.extend(problem.map(|message| Finding::new(&source.path, line, message)));
            }
        }
    }
    findings
}

/// `policy = { package = "plimsoll-policy" }` depends on the latter.
fn renamed(value: &str) -> Option<&str> {
    let after = value.split_once("package")?.1.trim_start().strip_prefix('=')?;
    after.trim_start().strip_prefix('"')?.split('"').next()
}

fn wrong_direction(from: &str, to: &str) -> Option<String> {
    if !to.starts_with("plimsoll") {
        return None;
    }
    let rank = |name: &str| ORDER.iter().position(|known| *known == name);
    match (rank(from), rank(to)) {
        (_, None) => Some(format!("{to} has no place in the order of crates: give it one in xtask's rule")),
        (Some(from_rank), Some(to_rank)) if to_rank < from_rank => None,
        (Some(_), Some(_)) => Some(format!("{from} must not depend on {to}: {}", ORDER.join(" <- "))),
        (None, Some(_)) => {
            Some(format!("{from} has no place in the order of crates: give it one in xtask's rule"))
        }
    }
}
