//! All features in one sentence: what will be in force here, and how to get the rest.

use super::features::{Feature, Part};
use plimsoll_sys::probe::Answer;

/// How many missing features are named.
const NAMED_MAX: usize = 4;

/// The sentence.
pub(super) fn verdict(features: &[Feature]) -> String {
    let missing = |part: Part| -> Vec<&Feature> {
        features
            .iter()
            .filter(|one| one.needed_by == part && matches!(one.answer, Answer::Absent(_)))
            .collect()
    };
    let everything = missing(Part::Everything);
    if let Some(first) = everything.first() {
        return format!("Nothing can be guarded here without {}: {}.", names(&everything), first.remedy);
    }
    let lines = missing(Part::Lines);
    if let Some(first) = lines.first() {
        return format!(
            "Only the guard of the whole machine will be in force here; lines for users need {}: {}.",
            names(&lines),
            first.remedy
        );
    }
    if features.iter().any(|one| one.needed_by != Part::Nothing && matches!(one.answer, Answer::Unknown(_))) {
        return "The guard of the whole machine will be in force here, and nothing speaks against lines for users; run \
                'sudo plimsoll doctor' to have the rest found out."
            .to_owned();
    }
    let replaced = missing(Part::Nothing);
    if replaced.is_empty() {
        "Lines for users and the guard of the whole machine will be in force here, with every feature used."
            .to_owned()
    } else {
        format!(
            "Lines for users and the guard of the whole machine will be in force here; nothing has to be done about {}.",
            names(&replaced)
        )
    }
}

fn names(features: &[&Feature]) -> String {
    let more = features.len().saturating_sub(NAMED_MAX);
    let mut names: Vec<String> = features.iter().take(NAMED_MAX).map(|one| one.name.clone()).collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
