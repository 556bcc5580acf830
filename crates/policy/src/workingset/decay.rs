//! Forgetting by halves, in whole numbers.

use crate::units::Nanos;

/// `2^(-k/16)` in 65536ths: between two of them a straight line is at most 0.03 % off.
const SIXTEENTHS: [u64; 17] = [
    65536, 62757, 60097, 57549, 55109, 52773, 50535, 48393, 46341, 44376, 42495, 40693, 38968, 37316, 35734,
    34219, 32768,
];

/// What is left of `value` after `span` when half of it is forgotten in each `half_life`.
pub(super) fn left(value: u64, span: Nanos, half_life: Nanos) -> u64 {
    let (Some(halvings), Some(rest)) = (span.0.checked_div(half_life.0), span.0.checked_rem(half_life.0))
    else {
        return 0;
    };
    let Some(whole) = u32::try_from(halvings).ok().and_then(|halvings| value.checked_shr(halvings)) else {
        return 0;
    };
    // The rest of a half-life, in 2^20ths: 16 steps, and how far it is from one to the next.
    let part = u128::from(rest)
        .checked_shl(20)
        .and_then(|rest| rest.checked_div(u128::from(half_life.0)))
        .and_then(|part| u64::try_from(part).ok())
        .unwrap_or(0);
    let step = usize::try_from(part >> 16).unwrap_or(0).min(15);
    let (Some(&from), Some(&to)) = (SIXTEENTHS.get(step), SIXTEENTHS.get(step.saturating_add(1))) else {
        return 0;
    };
    let fall = from.saturating_sub(to).saturating_mul(part & 0xffff) >> 16;
    let share = u128::from(from.saturating_sub(fall));
    u64::try_from(u128::from(whole).saturating_mul(share) >> 16).unwrap_or(whole)
}

#[cfg(test)]
mod tests;
