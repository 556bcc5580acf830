//! Messages of the tmalloc socket (`docs/tmalloc-protocol.md`): 32 bytes each, checked before anything believes them.
//!
//! A message is a kind, a number that pairs an answer with its question, and three values, in the machine's own byte order:
//! both ends are on one machine. Who sent it is not in it.

use plimsoll_policy::units::{Bytes, PageSize};
use thiserror::Error;
use zerocopy::{FromBytes, IntoBytes};

#[cfg(test)]
mod tests;

/// The version of the protocol that [`Request::Hello`] asks for.
pub const VERSION: u64 = 1;

/// The length of every message.
pub const MESSAGE_BYTES: usize = 32;

/// One message as it is sent.
pub type Message = [u8; MESSAGE_BYTES];

/// Bit 0 of `HELLO`'s flags: this connection hears of recalls and of the soft limit.
const HELLO_WATCH: u64 = 1;

/// Bit 0 of `WELCOME`'s flags: the user has a line.
const WELCOME_LINE: u64 = 1;

/// The kinds, as numbers on the wire. A client's are below 128, the coordinator's above.
mod kind {
    pub(super) const HELLO: u32 = 1;
    pub(super) const RESERVE: u32 = 2;
    pub(super) const SETTLED: u32 = 3;
    pub(super) const GAVE_BACK: u32 = 4;
    pub(super) const RECALLED: u32 = 5;
    pub(super) const CANCEL: u32 = 6;
    pub(super) const HEADROOM: u32 = 7;
    pub(super) const WELCOME: u32 = 129;
    pub(super) const GRANTED: u32 = 130;
    pub(super) const REFUSED: u32 = 131;
    pub(super) const RECALL: u32 = 132;
    pub(super) const SOFT: u32 = 133;
    pub(super) const HEADROOM_IS: u32 = 134;
    pub(super) const FAULT: u32 = 135;
}

/// What is not a message of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    /// Not as long as a message.
    #[error("a message of {0} bytes, expected {MESSAGE_BYTES}")]
    Length(usize),
    /// A kind that this side does not take.
    #[error("a message of unknown kind {0}")]
    Kind(u32),
    /// `HELLO` or `WELCOME` of another version.
    #[error("version {0} of the protocol, this side speaks {VERSION}")]
    Version(u64),
    /// Flags that this version does not have.
    #[error("unknown flags {0:#x}")]
    Flags(u64),
    /// A request for nothing, or for a part of a page.
    #[error("{0} bytes are no whole pages")]
    Size(u64),
    /// A value outside of its list.
    #[error("value {1} in a message of kind {0}")]
    Value(u32, u64),
}

/// How long a request may wait for its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It is answered at once.
    None,
    /// So many milliseconds.
    Milliseconds(u64),
    /// Until it is granted, cancelled, or its process ends.
    Endless,
}

impl Patience {
    const fn of(milliseconds: u64) -> Self {
        match milliseconds {
            0 => Self::None,
            u64::MAX => Self::Endless,
            milliseconds => Self::Milliseconds(milliseconds),
        }
    }

    const fn on_the_wire(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Milliseconds(milliseconds) => milliseconds,
            Self::Endless => u64::MAX,
        }
    }
}

/// What a client says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The first message of a connection.
    Hello {
        /// It hears of recalls and of the soft limit.
        watch: bool,
    },
    /// Asks for memory.
    Reserve {
        /// The question's number.
        seq: u32,
        /// How much: whole pages, more than 0.
        bytes: Bytes,
        /// For how long it may wait.
        patience: Patience,
    },
    /// The pages of one grant are populated, or never will be.
    Settled,
    /// So much is no longer held by grants.
    GaveBack {
        /// How much.
        bytes: Bytes,
    },
    /// The answer to a recall.
    Recalled {
        /// The recall's number.
        seq: u32,
        /// How much was given back.
        bytes: Bytes,
    },
    /// A request that waits is to wait no longer.
    Cancel {
        /// Its number.
        seq: u32,
    },
    /// Asks how much would be granted now.
    Headroom {
        /// The question's number.
        seq: u32,
    },
}

/// Why memory was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It would go over the line.
    OverLine,
    /// Its time was over before there was room, or it was cancelled.
    TimedOut,
    /// Too many wait already, or it could not be found out in time.
    Busy,
    /// This process may not ask.
    NotPermitted,
}

impl Refusal {
    const ALL: [Self; 4] = [Self::OverLine, Self::TimedOut, Self::Busy, Self::NotPermitted];

    const fn number(self) -> u64 {
        match self {
            Self::OverLine => 1,
            Self::TimedOut => 2,
            Self::Busy => 3,
            Self::NotPermitted => 4,
        }
    }

    fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }
}

/// What the coordinator says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The answer to [`Request::Hello`].
    Welcome {
        /// The size of a page.
        page: Bytes,
        /// Whether the user has a line now.
        line: bool,
    },
    /// It is the process's.
    Granted {
        /// The question's number.
        seq: u32,
        /// How much.
        bytes: Bytes,
    },
    /// It is not.
    Refused {
        /// The question's number.
        seq: u32,
        /// Why.
        refusal: Refusal,
        /// What the account uses and has granted.
        usage: Bytes,
        /// How far grants may go: the line less the headroom.
        line: Bytes,
    },
    /// Idle memory is needed by others.
    Recall {
        /// The recall's number.
        seq: u32,
        /// How much is wanted.
        bytes: Bytes,
    },
    /// The soft limit was reached, or left.
    Soft {
        /// Reached.
        reached: bool,
        /// What the account uses and has granted.
        usage: Bytes,
        /// Its soft limit.
        soft: Bytes,
    },
    /// The answer to [`Request::Headroom`].
    HeadroomIs {
        /// The question's number.
        seq: u32,
        /// `None`: there is no line.
        bytes: Option<Bytes>,
    },
    /// The connection is closed behind this.
    Fault {
        /// Why, as an `errno`.
        errno: u32,
    },
}

/// The fields of any message.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes)]
struct Fields {
    kind: u32,
    seq: u32,
    values: [u64; 3],
}

impl Fields {
    fn read(bytes: &[u8]) -> Result<Self, MessageError> {
        Self::read_from_bytes(bytes).map_err(|_not_as_long| MessageError::Length(bytes.len()))
    }

    fn write(self) -> Message {
        zerocopy::transmute!(self)
    }
}

impl Request {
    /// Reads a message of a client's. Values that a kind does not use are not looked at.
    ///
    /// # Errors
    /// [`MessageError`]: whoever sent it does not speak this protocol.
    pub fn decode(bytes: &[u8], page_size: PageSize) -> Result<Self, MessageError> {
        let Fields { kind, seq, values: [a, b, _] } = Fields::read(bytes)?;
        match kind {
            kind::HELLO if a != VERSION => Err(MessageError::Version(a)),
            kind::HELLO if b & !HELLO_WATCH != 0 => Err(MessageError::Flags(b)),
            kind::HELLO => Ok(Self::Hello { watch: b & HELLO_WATCH != 0 }),
            kind::RESERVE => {
                let whole = page_size.to_bytes(page_size.to_pages(Bytes(a)));
                if a == 0 || whole != Bytes(a) {
                    return Err(MessageError::Size(a));
                }
                Ok(Self::Reserve { seq, bytes: Bytes(a), patience: Patience::of(b) })
            }
            kind::SETTLED => Ok(Self::Settled),
            kind::GAVE_BACK => Ok(Self::GaveBack { bytes: Bytes(a) }),
            kind::RECALLED => Ok(Self::Recalled { seq, bytes: Bytes(a) }),
            kind::CANCEL => Ok(Self::Cancel { seq }),
            kind::HEADROOM => Ok(Self::Headroom { seq }),
            other => Err(MessageError::Kind(other)),
        }
    }

    /// The message as it is sent.
    #[must_use]
    pub fn encode(self) -> Message {
        let (kind, seq, values) = match self {
            Self::Hello { watch } => (kind::HELLO, 0, [VERSION, u64::from(watch) * HELLO_WATCH, 0]),
            Self::Reserve { seq, bytes, patience } => {
                (kind::RESERVE, seq, [bytes.0, patience.on_the_wire(), 0])
            }
            Self::Settled => (kind::SETTLED, 0, [0; 3]),
            Self::GaveBack { bytes } => (kind::GAVE_BACK, 0, [bytes.0, 0, 0]),
            Self::Recalled { seq, bytes } => (kind::RECALLED, seq, [bytes.0, 0, 0]),
            Self::Cancel { seq } => (kind::CANCEL, seq, [0; 3]),
            Self::Headroom { seq } => (kind::HEADROOM, seq, [0; 3]),
        };
        Fields { kind, seq, values }.write()
    }
}

impl Reply {
    /// Reads a message of the coordinator's. Values that a kind does not use are not looked at.
    ///
    /// # Errors
    /// [`MessageError`]: whoever sent it does not speak this protocol.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let Fields { kind, seq, values: [a, b, c] } = Fields::read(bytes)?;
        let out_of_list = |value| MessageError::Value(kind, value);
        match kind {
            kind::WELCOME if a != VERSION => Err(MessageError::Version(a)),
            kind::WELCOME if PageSize::from_bytes(b).is_none() => Err(out_of_list(b)),
            kind::WELCOME => Ok(Self::Welcome { page: Bytes(b), line: c & WELCOME_LINE != 0 }),
            kind::GRANTED => Ok(Self::Granted { seq, bytes: Bytes(a) }),
            kind::REFUSED => {
                let refusal = Refusal::of(a).ok_or(out_of_list(a))?;
                Ok(Self::Refused { seq, refusal, usage: Bytes(b), line: Bytes(c) })
            }
            kind::RECALL => Ok(Self::Recall { seq, bytes: Bytes(a) }),
            kind::SOFT if a > 1 => Err(out_of_list(a)),
            kind::SOFT => Ok(Self::Soft { reached: a == 1, usage: Bytes(b), soft: Bytes(c) }),
            kind::HEADROOM_IS => {
                Ok(Self::HeadroomIs { seq, bytes: Some(Bytes(a)).filter(|_| a != u64::MAX) })
            }
            kind::FAULT => Ok(Self::Fault { errno: u32::try_from(a).map_err(|_large| out_of_list(a))? }),
            other => Err(MessageError::Kind(other)),
        }
    }

    /// The message as it is sent.
    #[must_use]
    pub fn encode(self) -> Message {
        let (kind, seq, values) = match self {
            Self::Welcome { page, line } => {
                (kind::WELCOME, 0, [VERSION, page.0, u64::from(line) * WELCOME_LINE])
            }
            Self::Granted { seq, bytes } => (kind::GRANTED, seq, [bytes.0, 0, 0]),
            Self::Refused { seq, refusal, usage, line } => {
                (kind::REFUSED, seq, [refusal.number(), usage.0, line.0])
            }
            Self::Recall { seq, bytes } => (kind::RECALL, seq, [bytes.0, 0, 0]),
            Self::Soft { reached, usage, soft } => (kind::SOFT, 0, [u64::from(reached), usage.0, soft.0]),
            Self::HeadroomIs { seq, bytes } => {
                (kind::HEADROOM_IS, seq, [bytes.map_or(u64::MAX, |bytes| bytes.0), 0, 0])
            }
            Self::Fault { errno } => (kind::FAULT, 0, [u64::from(errno), 0, 0]),
        };
        Fields { kind, seq, values }.write()
    }
}
