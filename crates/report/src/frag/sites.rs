//! Who asks for blocks of several pages, put together by call site.

use crate::{oom::Gfp, stack};
use plimsoll_policy::{
    frag::OnFailure,
    units::{Nanos, Uid},
};
use plimsoll_wire::frag::Counts;
use serde::Serialize;
use std::collections::BTreeMap;

/// How many of those who asked at one call site are named.
const ASKERS_MAX: usize = 16;

/// What was recorded of requests with the same call trace, flags and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Functions of the kernel, innermost first.
    pub stack: Vec<String>,
    /// Blocks of 2 to the power of this many pages.
    pub order: u32,
    /// The flags.
    pub gfp: u32,
    /// The thread's name, made printable; `None` where it was not kept.
    pub comm: Option<String>,
    /// Whom it counts for.
    pub user: Uid,
    /// What became of them.
    pub counts: Counts,
}

/// Who asked at a call site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Asker {
    /// The thread's name; `None`: not kept, or in an interrupt, which is nobody's.
    pub comm: Option<String>,
    /// Whom it counts for.
    pub uid: Uid,
    /// How often.
    pub requests: u64,
}

/// One place in the kernel that asked for blocks of one order in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallSite {
    /// Where, in words; `None` where the call trace does not tell it.
    pub call_site: Option<String>,
    /// Blocks of 2 to the power of this many pages.
    pub order: u32,
    /// The flags, by the kernel's names.
    pub gfp: String,
    /// The same as the number that they are on this kernel.
    pub gfp_bits: u32,
    /// What comes of it when there is no such block: `forces`, `fails`, `falls-back`.
    pub on_failure: &'static str,
    /// How often.
    pub requests: u64,
    /// Of these, those that were given nothing.
    pub failures: u64,
    /// Those that reclaimed or compacted memory themselves.
    pub stalls: u64,
    /// For so long, all together.
    pub stalled_ns: Nanos,
    /// The longest.
    pub longest_stall_ns: Nanos,
    /// Whether it came in an interrupt, so that who ran has nothing to do with it.
    pub in_interrupt: bool,
    /// Who asked, most often first; 16 at most.
    pub asked_by: Vec<Asker>,
    /// How many others asked.
    pub others: u64,
    /// The call trace that was seen most often, innermost function first.
    pub stack: Vec<String>,
}

/// The key that requests are put together by: where, the order, the flags, and whether it came in an interrupt.
type Key = (Result<String, Vec<String>>, u32, u32, bool);

/// Puts requests together: first what forces the kernel's hand, then what fails, then what falls back; the longest stalls
/// first, then the most requests.
#[must_use]
pub fn call_sites(requests: &[Request]) -> Vec<CallSite> {
    let mut by_site: BTreeMap<Key, Vec<(&Request, &[String])>> = BTreeMap::new();
    for request in requests {
        let stack = stack::without_tracer(&request.stack);
        let zeroed = Gfp::of_running(request.gfp).is_zeroed();
        let site = stack::call_site(stack, zeroed).ok_or_else(|| stack.to_vec());
        let key = (site, request.order, request.gfp, stack::is_of_interrupt(stack));
        by_site.entry(key).or_default().push((request, stack));
    }
    let mut sites: Vec<(OnFailure, CallSite)> = by_site.into_iter().map(together).collect();
    sites.sort_by(|(one_class, one), (other_class, other)| {
        let key = |site: &CallSite| core::cmp::Reverse((site.failures, site.stalled_ns, site.requests));
        one_class.cmp(other_class).then_with(|| key(one).cmp(&key(other)))
    });
    sites.into_iter().map(|(_, site)| site).collect()
}

fn together(
    ((site, order, gfp, in_interrupt), requests): (Key, Vec<(&Request, &[String])>),
) -> (OnFailure, CallSite) {
    let mut counts = Counts::default();
    let mut askers: BTreeMap<(Option<&str>, Uid), u64> = BTreeMap::new();
    let stack = requests.iter().max_by_key(|(request, _)| request.counts.requests);
    let stack = stack.map(|(_, stack)| stack.to_vec()).unwrap_or_default();
    for (request, _) in &requests {
        counts.add(&request.counts);
        if !in_interrupt {
            let asked = askers.entry((request.comm.as_deref(), request.user)).or_default();
            *asked = asked.saturating_add(request.counts.requests);
        }
    }
    let named = |((comm, uid), requests): ((Option<&str>, Uid), u64)| Asker {
        comm: comm.map(str::to_owned),
        uid,
        requests,
    };
    let mut asked_by: Vec<Asker> = askers.into_iter().map(named).collect();
    asked_by.sort_by_key(|asker| core::cmp::Reverse(asker.requests));
    let others = asked_by.len().saturating_sub(ASKERS_MAX);
    asked_by.truncate(ASKERS_MAX);
    let on_failure = OnFailure::of(gfp, order);
    let site = CallSite {
        call_site: site.ok(),
        order,
        gfp: Gfp::of_running(gfp).names.unwrap_or_default(),
        gfp_bits: gfp,
        on_failure: on_failure.name(),
        requests: counts.requests,
        failures: counts.failures,
        stalls: counts.stalls,
        stalled_ns: counts.stalled,
        longest_stall_ns: counts.longest,
        in_interrupt,
        asked_by,
        others: u64::try_from(others).unwrap_or(u64::MAX),
        stack,
    };
    (on_failure, site)
}
