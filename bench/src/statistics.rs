//! Percentiles, and a median with its confidence, of a handful of measured figures. Pure.

use serde::Serialize;

/// Percentiles of one series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// How many figures.
    pub n: usize,
    /// The median.
    pub p50: f64,
    /// 99th percentile by nearest rank: the largest figure where `n` < 100.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of the finite figures among `figures`; `None` where there is none.
    #[must_use]
    pub fn of(figures: &[f64]) -> Option<Self> {
        let sorted = sorted(figures);
        let n = sorted.len();
        let rank = (n * 99).div_ceil(100).checked_sub(1)?;
        Some(Self { n, p50: middle(&sorted)?, p99: *sorted.get(rank)?, max: *sorted.last()? })
    }
}

/// A median and the interval that holds the true one with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Median {
    /// How many figures.
    pub n: usize,
    /// The median.
    pub median: f64,
    /// Lower end; `None` where so few figures (under 6) bound nothing at 95 %.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

impl Median {
    /// The median of the finite figures among `figures`, `None` where there is none.
    ///
    /// The interval is that of order statistics: between the k-th smallest and the k-th largest figure, with the
    /// largest k for which a fair coin of n throws shows fewer than k heads in at most 2.5 % of all cases. It assumes
    /// nothing about the distribution, and needs no random numbers: the same figures give the same interval.
    #[must_use]
    pub fn of(figures: &[f64]) -> Option<Self> {
        let sorted = sorted(figures);
        let n = sorted.len();
        let median = middle(&sorted)?;
        let rank = interval_rank(n);
        let low = rank.and_then(|k| sorted.get(k.checked_sub(1)?).copied());
        let high = rank.and_then(|k| sorted.get(n.checked_sub(k)?).copied());
        Some(Self { n, median, low, high })
    }
}

/// Per-round ratios `of[i] / to[i]`; rounds with a figure that is not finite or not above 0 are left out.
#[must_use]
pub fn paired_ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter()
        .zip(to)
        .filter(|(of, to)| of.is_finite() && to.is_finite() && **of > 0.0 && **to > 0.0)
        .map(|(of, to)| of / to)
        .collect()
}

/// Per-round differences `of[i] - to[i]`.
#[must_use]
pub fn paired_differences(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).map(|(of, to)| of - to).filter(|difference| difference.is_finite()).collect()
}

/// The mean of two halves of a round.
#[must_use]
pub fn mean(figures: &[f64]) -> Option<f64> {
    let count = u32::try_from(figures.len()).ok().filter(|count| *count > 0)?;
    Some(figures.iter().sum::<f64>() / f64::from(count))
}

fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = figures.iter().copied().filter(|figure| figure.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(upper, *sorted.get(half.checked_sub(1)?)?))
}

/// The largest k (from 1) with P(Binomial(n, 1/2) < k) <= 0.025; `None` where even k = 1 is too much (n < 6).
///
/// Exact up to 1,000 figures (2^-1000 is still a normal f64); above, the normal approximation
/// `(n - 1.96 sqrt(n)) / 2`, rounded down, which is within one rank there.
fn interval_rank(n: usize) -> Option<usize> {
    let count = u32::try_from(n).ok()?;
    if count > 1_000 {
        let reach = f64::from(count).sqrt() * 1.96;
        return (1..n / 2)
            .rev()
            .find(|k| u32::try_from(*k).is_ok_and(|k| 2.0 * f64::from(k) <= f64::from(count) - reach));
    }
    let mut probability = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut below = probability;
    let mut rank = None;
    for heads in 1..=count {
        if below > 0.025 {
            break;
        }
        rank = usize::try_from(heads).ok();
        probability *= f64::from(count - heads + 1) / f64::from(heads);
        below += probability;
    }
    rank
}

#[cfg(test)]
mod tests;
