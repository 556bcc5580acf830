//! Judges processes of accounts that are near their line, by rules, marks and `oom_score_adj`: off the guard thread, because a
//! process's cgroup and the path of its executable can make whoever looks at them wait.

use super::{
    eligibility::{Eligibility, Subject},
    shield::Shield,
};
use crate::{
    facts::cgroups::{cgroup_not_known, is_passing, mark_in},
    offload::{Haste, Lane, Offload},
};
use plimsoll_policy::{
    account::Counted,
    preference::{Judgement, Mark, Rules},
    units::Uid,
    victim::VictimId,
};
use plimsoll_sys::{
    cgroup::{CgroupError, CgroupRoot},
    process::{HeldFolder, Portrait, ProcRoot, ProcessError, thread_cpu_time},
};
#[cfg(test)]
use std::sync::mpsc::Receiver;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Processes of one account judged at a time, some fifty microseconds each: the first of them are soon heard of.
pub(crate) const UNJUDGED_MAX: usize = 64;

/// Accounts that wait their turn.
const QUEUE_MAX: usize = 8;

/// A process to be judged, and which of the programs that it has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unjudged {
    pub(crate) id: VictimId,
    pub(crate) mm: u64,
    /// Whose account it is charged to.
    pub(crate) user: Uid,
    /// As [`plimsoll_sys::bpf::AddressSpace::tracked_ns`].
    pub(crate) tracked_ns: u64,
    /// As far as it was read.
    pub(crate) cmdline: Option<Arc<str>>,
}

/// What one account has to be judged; with nobody to judge, whether what is protected was replaced.
#[derive(Debug)]
pub(crate) struct JudgeRequest {
    pub(crate) whose: Counted,
    pub(crate) unjudged: Vec<Unjudged>,
    pub(crate) eligibility: Eligibility,
}

/// What came of one process.
#[derive(Debug, Clone)]
pub(crate) struct Judged {
    pub(crate) unjudged: Unjudged,
    /// Its real uid when it was looked at.
    pub(crate) uid: Uid,
    pub(crate) judgement: Judgement,
}

/// What came of a request; who could not be looked at is not in it.
#[derive(Debug)]
pub(crate) struct JudgeAnswer {
    pub(crate) whose: Counted,
    pub(crate) judged: Vec<Judged>,
    /// By what they were judged: it may be out of force by now.
    pub(crate) rules: Arc<Rules>,
    /// Where what is protected was replaced, what is protected now: they were judged by it.
    pub(crate) renewed: Option<Arc<Shield>>,
    /// What it took of a CPU.
    pub(crate) took: Duration,
    /// How many processes of which user were to be judged.
    pub(crate) asked: BTreeMap<Uid, u32>,
}

/// Has processes judged.
#[derive(Debug)]
pub(crate) struct Judge {
    requests: Lane<JudgeRequest>,
}

impl Judge {
    /// Has `tell` told what was found.
    pub(crate) fn new(
        offload: &Offload,
        mut proc: ProcRoot,
        tell: impl Fn(JudgeAnswer) + Send + 'static,
    ) -> Self {
        let mut portrait = Portrait::default();
        let requests = offload.lane(Haste::Ordinary, QUEUE_MAX, move |request| {
            let began = thread_cpu_time();
            let mut answer = examine(request, &mut proc, &mut portrait);
            answer.took = thread_cpu_time().saturating_sub(began);
            tell(answer);
        });
        Self { requests }
    }

    /// One whose requests somebody else takes.
    #[cfg(test)]
    pub(crate) fn by_another() -> (Self, Receiver<JudgeRequest>) {
        let (requests, queue) = Lane::of_another(QUEUE_MAX);
        (Self { requests }, queue)
    }

    /// Hands a request over; false where there is no room for it. Never waits.
    pub(crate) fn ask(&self, request: JudgeRequest) -> bool {
        self.requests.hand(request)
    }
}

fn examine(request: JudgeRequest, proc: &mut ProcRoot, portrait: &mut Portrait) -> JudgeAnswer {
    let JudgeRequest { whose, unjudged, mut eligibility } = request;
    // An upgrade may have put another file in an executable's place, and nobody told.
    let renewed = eligibility.shield.renewed().map(Arc::new);
    eligibility.shield = renewed.clone().unwrap_or(eligibility.shield);
    let rules = Arc::clone(&eligibility.rules);
    let mut asked = BTreeMap::new();
    for case in &unjudged {
        let of_user: &mut u32 = asked.entry(case.user).or_default();
        *of_user = of_user.saturating_add(1);
    }
    let root = match CgroupRoot::open() {
        Ok(root) => Some(root),
        // Whoever is marked there would be taken for unmarked.
        Err(error) if is_passing(&error) => {
            return JudgeAnswer { whose, judged: Vec::new(), rules, renewed, took: Duration::ZERO, asked };
        }
        Err(_not_to_be_had) => None,
    };
    // Who has gone has no verdict; who, or whose cgroup, cannot be looked at stays as they are, and is asked about again.
    let marks = |path: &[u8]| root.as_ref().map_or(Ok(None), |root| mark_in(root, path));
    let judged =
        unjudged.into_iter().filter_map(|case| judge(case, proc, &eligibility, (&marks, portrait)).ok());
    JudgeAnswer { whose, judged: judged.collect(), rules, renewed, took: Duration::ZERO, asked }
}

/// Tells the mark on the cgroup at a path.
type Marks<'a> = dyn Fn(&[u8]) -> Result<Option<Mark>, CgroupError> + 'a;

/// All that is read is of the process that is held; that it still runs the same program is made sure of by whoever writes
/// the verdict down.
fn judge(
    case: Unjudged,
    proc: &mut ProcRoot,
    eligibility: &Eligibility,
    (marks, portrait): (&Marks<'_>, &mut Portrait),
) -> Result<Judged, ProcessError> {
    let held = HeldFolder::open(proc, case.id)?;
    held.portray(None, portrait)?;
    let process = proc.process(case.id.pid)?;
    // Held until here: whoever has this number is who was portrayed.
    held.oom_score_adj()?;
    let mark = portrait.cgroup().map_or(Ok(None), marks);
    let mark = mark.map_err(|_what_it_was| cgroup_not_known(case.id.pid))?;
    let judgement = eligibility.judge(&Subject::of(&process, mark, case.cmdline.as_deref()), portrait);
    Ok(Judged { unjudged: case, uid: process.uid, judgement })
}

#[cfg(test)]
mod tests;
