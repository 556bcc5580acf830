//! CHANGELOG.md keeps the form of Keep a Changelog 1.1.0: newest first, dated, changes under their kind.

use crate::{Finding, tree::Tree};

const PATH: &str = "CHANGELOG.md";
const KINDS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(source) = tree.source(PATH) else {
        return vec![Finding::new(PATH, 0, "missing: every change that users notice is told there")];
    };
    let mut findings = Vec::new();
    let mut last: Option<Version> = None;
    let mut seen_unreleased = false;
    let mut in_kind = false;
    if source.text.lines().next() != Some("# Changelog") {
        findings.push(Finding::new(PATH, 1, "the first line must be '# Changelog'"));
    }
    for (line, text) in source.lines() {
        let problem = if let Some(kind) = text.strip_prefix("### ") {
            in_kind = true;
            (!KINDS.contains(&kind)).then(|| format!("unknown kind '{kind}': one of {}", KINDS.join(", ")))
        } else if let Some(release) = text.strip_prefix("## ") {
            in_kind = false;
            let problem = check_release(release, seen_unreleased, last.as_ref());
            seen_unreleased = true;
            last = version(release).or(last);
            problem
        } else if text.starts_with("- ") && !in_kind {
            Some("an entry outside of a kind: put it under '### Added' or another".to_owned())
        } else {
            None
        };
        findings.extend(problem.map(|message| Finding::new(PATH, line, message)));
    }
    if !seen_unreleased {
        findings.push(Finding::new(PATH, 0, "no '## [Unreleased]' section"));
    }
    findings
}

type Version = [u32; 3];

/// What is wrong with the heading of one release.
fn check_release(release: &str, seen_unreleased: bool, last: Option<&Version>) -> Option<String> {
    if release == "[Unreleased]" {
        return seen_unreleased.then(|| "'[Unreleased]' comes once, and first".to_owned());
    }
    if !seen_unreleased {
        return Some("'## [Unreleased]' comes before any release".to_owned());
    }
    let dated = release.split_once("] - ").is_some_and(|(_, date)| is_date(date));
    match version(release) {
        Some(version) if dated => {
            last.is_some_and(|last| version >= *last).then(|| "newest release first".to_owned())
        }
        _ => Some(format!("'{release}' is not '[X.Y.Z] - YYYY-MM-DD'")),
    }
}

fn version(release: &str) -> Option<Version> {
    let numbers = release.strip_prefix('[')?.split_once(']')?.0;
    let parsed: Vec<u32> = numbers.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    parsed.try_into().ok()
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.char_indices().all(|(at, character)| match at {
            4 | 7 => character == '-',
            _ => character.is_ascii_digit(),
        })
}
