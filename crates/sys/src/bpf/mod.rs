//! The limits programs: loaded and pinned by a short-lived child ([`load`]), used through their pins by the daemon
//! ([`Limits`]), which therefore never parses the kernel's type information nor holds libbpf's copy of it.

mod error;
mod events;
mod limits;
mod load;
mod map;
mod pins;
mod program;
mod protect;

pub use error::BpfError;
pub use events::Events;
pub use limits::{
    AccountFacts, AddressSpace, DefaultLine, Enforce, Holder, Limits, LineSet, MapFacts, VictimMark,
};
pub use load::{LoadOptions, Members, load, verify};
pub use pins::{Meta, PinState, Pins};
pub use protect::ExeKey;
