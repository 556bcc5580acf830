//! What the programs count of requests for blocks of several pages. Checked before anything believes it.

use crate::{RecordError, abi, read, text::Comm};
use plimsoll_policy::units::{Nanos, Uid};

#[cfg(test)]
mod tests;

/// Frames that are kept of one stack.
pub const FRAMES_MAX: usize = abi::PLIMSOLL_FRAG_FRAMES as usize;

/// The largest order that any kernel knows is less.
const ORDER_MAX: u32 = 32;

/// Requests that came by the same way for the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The number of its stack; `None`: there was no room for it.
    pub stack: Option<u32>,
    /// Blocks of 2 to the power of this many pages.
    pub order: u32,
    /// The request's flags.
    pub gfp: u32,
    /// Whom they count for, as the user namespace tells: the owner of a subordinate uid.
    pub user: Uid,
    /// The thread's name; `None`: of one user's with too many sites.
    pub comm: Option<Comm>,
}

/// What became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// How many.
    pub requests: u64,
    /// Of them, those that were given nothing.
    pub failures: u64,
    /// Those that reclaimed or compacted memory themselves.
    pub stalls: u64,
    /// For so long, all together.
    pub stalled: Nanos,
    /// The longest of them.
    pub longest: Nanos,
}

impl Counts {
    /// With those of another.
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.failures = self.failures.saturating_add(other.failures);
        self.stalls = self.stalls.saturating_add(other.stalls);
        self.stalled = self.stalled.saturating_add(other.stalled);
        self.longest = self.longest.max(other.longest);
    }
}

/// Decodes a site and its counts.
///
/// # Errors
/// [`RecordError`] when no request can be like that; the caller counts and drops it.
pub fn decode(key: &[u8], value: &[u8]) -> Result<(Site, Counts), RecordError> {
    const WHAT: &str = "a site of requests";
    let site: abi::plimsoll_frag_site = read(WHAT, key)?;
    let counts: abi::plimsoll_frag_counts = read("counts of requests", value)?;
    if site.order >= ORDER_MAX {
        return Err(RecordError::Field { what: WHAT, field: "order" });
    }
    let comm = Comm::from_bytes(&site.comm);
    let site = Site {
        stack: u32::try_from(site.stack).ok(),
        order: site.order,
        gfp: site.gfp,
        user: Uid(site.user),
        comm: Some(comm).filter(|comm| !comm.as_bytes().is_empty()),
    };
    // The programs count one after the other, on several CPUs at once.
    let counts = Counts {
        requests: counts.requests,
        failures: counts.failures,
        stalls: counts.stalls,
        stalled: Nanos(counts.stalled_ns),
        longest: Nanos(counts.longest_ns),
    };
    Ok((site, counts))
}
