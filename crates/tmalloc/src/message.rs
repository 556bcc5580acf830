//! The 32 bytes that go either way, laid out as docs/tmalloc-protocol.md says. A module of its own and not
//! `plimsoll-wire`'s: a program that links this library needs no more than this. A test compares the two.

/// What every message is long.
pub const MESSAGE_BYTES: usize = 32;
/// The version this library speaks.
pub const VERSION: u64 = 1;

/// First on each connection: `a` the version, `b` flags.
pub const HELLO: u32 = 1;
/// Asks for `a` bytes, waiting `b` ms at most.
pub const RESERVE: u32 = 2;
/// One grant is populated, or will not be.
pub const SETTLED: u32 = 3;
/// `a` bytes are held no longer.
pub const GAVE_BACK: u32 = 4;
/// Answers [`RECALL`]: `a` bytes were given back.
pub const RECALLED: u32 = 5;
/// Takes a waiting [`RESERVE`] back.
pub const CANCEL: u32 = 6;
/// Asks what would be granted now.
pub const HEADROOM: u32 = 7;
/// Answers [`HELLO`]: `a` the version, `b` the page size, `c` flags.
pub const WELCOME: u32 = 129;
/// `a` bytes are granted.
pub const GRANTED: u32 = 130;
/// Refused: `a` why, `b` usage and `c` what there is in all, in bytes.
pub const REFUSED: u32 = 131;
/// Asks for `a` bytes of idle memory.
pub const RECALL: u32 = 132;
/// The soft limit was reached (`a` 1) or left (`a` 0).
pub const SOFT: u32 = 133;
/// Answers [`HEADROOM`]: `a` bytes, `u64::MAX` without a line.
pub const HEADROOM_IS: u32 = 134;
/// The connection ends; `a` says why, as an errno does.
pub const FAULT: u32 = 135;

/// A flag of [`HELLO`]: this connection is told of recalls and the soft limit.
pub const HELLO_WATCHES: u64 = 1;

/// One message.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    /// One of the constants above.
    pub kind: u32,
    /// Ties an answer to its question.
    pub seq: u32,
    /// By kind.
    pub a: u64,
    /// By kind.
    pub b: u64,
    /// By kind.
    pub c: u64,
}

const _: () = assert!(size_of::<Message>() == MESSAGE_BYTES);

impl Message {
    /// A message with nothing but a kind.
    #[must_use]
    pub const fn new(kind: u32) -> Self {
        Self { kind, seq: 0, a: 0, b: 0, c: 0 }
    }

    /// The same with a number.
    #[must_use]
    pub const fn seq(self, seq: u32) -> Self {
        Self { seq, ..self }
    }

    /// The same with a first value.
    #[must_use]
    pub const fn a(self, a: u64) -> Self {
        Self { a, ..self }
    }

    /// The same with a second value.
    #[must_use]
    pub const fn b(self, b: u64) -> Self {
        Self { b, ..self }
    }

    /// The same with a third value.
    #[must_use]
    pub const fn c(self, c: u64) -> Self {
        Self { c, ..self }
    }
}
