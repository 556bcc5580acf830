//! Numbers that look random and repeat with their seed.

/// Xorshift: good enough to vary sizes and choices.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// From any seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        // 0 is the one state that xorshift cannot leave.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`; 0 where the bound is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).ok().and_then(|number| number.checked_rem(bound)).unwrap_or(0)
    }
}
