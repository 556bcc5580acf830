//! The limits programs: loaded and pinned by a short-lived child ([`load()`]), used through their pins by the daemon
//! ([`Limits`]), which therefore never parses the kernel's type information nor holds libbpf's copy of it. And those that
//! victims are selected by, and those of the working set, in the same way ([`Selector`], [`WorkingSet`]).

mod arguments;
mod build_pins;
mod error;
mod events;
mod facts;
mod frag;
mod grants;
mod journal;
mod killed;
mod limits;
mod link;
mod load;
mod loaded;
mod looks;
mod map;
mod object;
mod oom;
mod pins;
mod program;
mod protect;
mod ring;
mod select;
mod shape;
mod shared;
mod site;
mod strict;
pub(crate) mod types;
mod workingset;

pub use arguments::{
    CopiesPart, Coverage, DefaultLine, Enforce, FamilyFacts, Holder, LineSet, MapFacts, SharedPages,
    VictimMark, Weighing,
};
pub use error::BpfError;
pub use events::Events;
pub use facts::{ABOVE_MOST, AccountFacts, AddressSpace, Counts, STRAYS_MOST};
pub use frag::{Asked, Recorder, Recording, Totals};
pub use grants::{Grants, OverLine, Reserved, Space};
pub use journal::{Found, Journal, NOTE_MAX_BYTES, Note, Standing};
pub use killed::Killed;
pub use limits::{Limits, Membership};
pub(crate) use link::owned;
pub use load::{LoadOptions, Members, load, load_beside, verify};
pub use looks::{Awaited, Looks, Told};
pub use map::Map;
pub use oom::{OomKills, OomOffers};
pub use pins::{Edition, Meta, PinState, Pins};
pub use program::SyscallProgram;
pub use protect::ProtectedExe;
pub use select::{Grown, GrownCounts, Measured, Offers, Selector, SharedMemory, SharedWalks, SweepCounts};
pub use shape::{Shape, Verified};
pub use site::{Call, Site, Table};
pub use strict::{Committed, Strict, StrictLine};
pub use workingset::{Accesses, Executables, WorkingSet, WorkingSetOffers};
