//! Who looks things up and acts off the guard thread, for both guards.

use super::{
    kill::cgroups::CgroupKiller,
    machine::reclaimer::Reclaimer,
    request::{Caller, Request},
    selection::judge::Judge,
};
use crate::{
    facts::{
        cmdlines::CommandLines,
        copied::CopiedReader,
        meter::{Gauge, Meter},
        names::NameReader,
        patient::PatientReaders,
        pressure::PressureReader,
    },
    journal::Journal,
    offload::Offload,
};
use plimsoll_sys::process::{ProcRoot, ProcessError, ReaperHandle, page_size};
use std::path::Path;

/// All of them. Asking one never waits.
#[derive(Debug)]
pub(crate) struct Workers {
    pub(crate) names: NameReader,
    pub(crate) cmdlines: CommandLines,
    pub(crate) judge: Judge,
    pub(crate) groups: CgroupKiller,
    pub(crate) reclaimer: Reclaimer,
    pub(crate) copied: CopiedReader,
    pub(crate) pressure: PressureReader,
    pub(crate) meter: Meter,
}

impl Workers {
    /// They tell `caller` what they find, and `journal` what they do; cgroups they end have their victims reaped by `reaper`.
    /// `mapped`: as for [`Gauge::new`].
    ///
    /// # Errors
    /// Where there is no `/proc`.
    pub(crate) fn new(
        offload: &Offload,
        caller: &Caller,
        journal: &Journal,
        reaper: &ReaperHandle,
        mapped: bool,
    ) -> Result<Self, ProcessError> {
        let guard = || {
            let caller = caller.clone();
            move |request| caller.deliver(request)
        };
        let (lines, unjudged, survey, usage) = (guard(), guard(), guard(), guard());
        let proc = || ProcRoot::open(Path::new("/proc"));
        let readers = PatientReaders::new(offload);
        Ok(Self {
            names: NameReader::new(offload, proc()?, readers.clone()),
            cmdlines: CommandLines::new(offload, proc()?, readers.clone(), move |found| {
                lines(Request::CommandLines(found))
            }),
            judge: Judge::new(offload, proc()?, move |answer| unjudged(Request::Judged(answer))),
            groups: CgroupKiller::new(offload, journal, reaper)?,
            reclaimer: Reclaimer::new(offload, proc()?, readers.clone(), journal.clone()),
            copied: CopiedReader::new(offload, readers, page_size(), move |part| {
                survey(Request::Surveyed(part))
            }),
            pressure: PressureReader::new(offload, proc()?, page_size()),
            meter: Meter::new(offload, Gauge::new(proc()?, mapped), move |looked| {
                usage(Request::Looked(looked))
            }),
        })
    }

    /// Nobody.
    #[cfg(test)]
    pub(super) fn mute() -> Self {
        Self {
            names: NameReader::mute(),
            cmdlines: CommandLines::mute(),
            judge: Judge::by_another().0,
            groups: CgroupKiller::mute(),
            reclaimer: Reclaimer::mute(),
            copied: CopiedReader::mute(),
            pressure: PressureReader::mute(),
            meter: Meter::by_another().0,
        }
    }
}
