//! Who looks things up and acts off the guard thread, for both guards.

use super::{
    examiner::Examiner,
    groups::Groups,
    reclaimer::Reclaimer,
    report::Journal,
    request::{Caller, Request},
};
use crate::{
    biography::Biographer, cmdlines::CommandLines, offload::Offload, patient::PatientReaders,
    survey::Surveyor,
};
use plimsoll_sys::process::{ProcRoot, ProcessError, ReaperHandle, page_size};
use std::path::Path;

/// All of them. Asking one never waits.
#[derive(Debug)]
pub(crate) struct Workers {
    pub(crate) biographer: Biographer,
    pub(crate) cmdlines: CommandLines,
    pub(crate) examiner: Examiner,
    pub(crate) groups: Groups,
    pub(crate) reclaimer: Reclaimer,
    pub(crate) surveyor: Surveyor,
}

impl Workers {
    /// They tell `caller` what they find, and `journal` what they do; cgroups they end have their victims reaped by `reaper`.
    ///
    /// # Errors
    /// Where there is no `/proc`.
    pub(crate) fn new(
        offload: &Offload,
        caller: &Caller,
        journal: &Journal,
        reaper: &ReaperHandle,
    ) -> Result<Self, ProcessError> {
        let guard = || {
            let caller = caller.clone();
            move |request| caller.deliver(request)
        };
        let (lines, cases, survey) = (guard(), guard(), guard());
        let proc = || ProcRoot::open(Path::new("/proc"));
        let readers = PatientReaders::new(offload);
        Ok(Self {
            biographer: Biographer::new(offload, proc()?, readers.clone()),
            cmdlines: CommandLines::new(offload, proc()?, readers.clone(), move |found| {
                lines(Request::CommandLines(found))
            }),
            examiner: Examiner::new(offload, proc()?, move |findings| cases(Request::Examined(findings))),
            groups: Groups::new(offload, journal, reaper)?,
            reclaimer: Reclaimer::new(offload, proc()?, readers.clone(), journal.clone()),
            surveyor: Surveyor::new(offload, readers, page_size(), move |part| {
                survey(Request::Surveyed(part))
            }),
        })
    }

    /// Nobody.
    #[cfg(test)]
    pub(super) fn mute() -> Self {
        Self {
            biographer: Biographer::mute(),
            cmdlines: CommandLines::mute(),
            examiner: Examiner::by_another().0,
            groups: Groups::mute(),
            reclaimer: Reclaimer::mute(),
            surveyor: Surveyor::mute(),
        }
    }
}
