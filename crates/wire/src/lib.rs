//! Checked decoding of what the kernel says: everything that comes in from outside is untrusted bytes until it has
//! been through here.

pub mod abi;
pub mod frag;
pub mod killed;
pub mod marked;
pub mod record;
pub mod shared;
pub mod strict;
pub mod task;
pub mod text;
pub mod tmalloc;
pub mod workingset;

use plimsoll_policy::{
    account::Counted,
    units::{Gid, JobId, Pages, Uid},
};
use thiserror::Error;

/// Bytes that are none of our programs'. The caller counts and drops them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecordError {
    /// Not as long as it should be.
    #[error("{what} of {found} bytes, expected {expected}")]
    Length {
        /// What of.
        what: &'static str,
        /// Its bytes.
        found: usize,
        /// As the programs write it.
        expected: usize,
    },
    /// A field that nothing real can have.
    #[error("{what} with an impossible {field}")]
    Field {
        /// What of.
        what: &'static str,
        /// Which.
        field: &'static str,
    },
}

/// Reads a structure of the programs.
fn read<T: zerocopy::FromBytes>(what: &'static str, bytes: &[u8]) -> Result<T, RecordError> {
    let length = |_| RecordError::Length { what, found: bytes.len(), expected: size_of::<T>() };
    T::read_from_bytes(bytes).map_err(length)
}

/// Whose an account is, by `PLIMSOLL_OF_*` and a number; `None`: of a kind that this version does not know.
#[must_use]
pub const fn counted(of: u32, id: u32) -> Option<Counted> {
    match of {
        abi::PLIMSOLL_OF_USER => Some(Counted::User(Uid(id))),
        abi::PLIMSOLL_OF_GROUP => Some(Counted::Group(Gid(id))),
        abi::PLIMSOLL_OF_JOB => Some(Counted::Job(JobId(id))),
        _ => None,
    }
}

/// A signed count of the programs as pages. They may see one below 0 for an instant, where a release is seen before its charge.
#[must_use]
pub fn pages(count: i64) -> Pages {
    Pages(u64::try_from(count).unwrap_or_default())
}
