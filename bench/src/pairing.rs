//! Interleaves the variants of a case, so that what the machine does meanwhile falls on all of them alike.

use crate::{error::BenchError, statistics::mean};

/// What one segment measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figures {
    /// The cost while the variant was watching.
    pub(crate) own: f64,
    /// Processor time that the workload itself used.
    pub(crate) cpu: f64,
    /// As `own`, until the variant had handled all that happened; equals `own` for a variant without a queue.
    pub(crate) kept_up: f64,
}

/// One variant's figures, one of each a round.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rounds {
    /// [`Figures::own`].
    pub(crate) own: Vec<f64>,
    /// [`Figures::cpu`].
    pub(crate) cpu: Vec<f64>,
    /// [`Figures::kept_up`].
    pub(crate) kept_up: Vec<f64>,
}

/// Measures `variants` variants in `rounds` rounds. A round goes through them forwards and then backwards (A B C C B
/// A): a drift of the machine that is even over the round adds the same to each. A variant's figure of the round is
/// the mean of its two segments.
pub(crate) fn interleave(
    variants: usize,
    rounds: usize,
    mut measure: impl FnMut(usize) -> Result<Figures, BenchError>,
) -> Result<Vec<Rounds>, BenchError> {
    let mut all = vec![Rounds::default(); variants];
    for _ in 0..rounds {
        let mut forth = Vec::with_capacity(variants);
        for variant in 0..variants {
            forth.push(measure(variant)?);
        }
        let mut back = Vec::with_capacity(variants);
        for variant in (0..variants).rev() {
            back.push(measure(variant)?);
        }
        for ((rounds, first), second) in all.iter_mut().zip(&forth).zip(back.iter().rev()) {
            rounds.own.extend(mean(&[first.own, second.own]));
            rounds.cpu.extend(mean(&[first.cpu, second.cpu]));
            rounds.kept_up.extend(mean(&[first.kept_up, second.kept_up]));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
