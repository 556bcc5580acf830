//! Who looks things up and acts off the guard thread, for both guards.

use super::{
    kill::cgroups::CgroupKiller,
    machine::reclaimer::Reclaimer,
    request::{Caller, Request},
    selection::judge::Judge,
};
use crate::{
    compactor::Compactor,
    facts::{
        cmdlines::CommandLines,
        copied::CopiedReader,
        meter::{Gauge, InForceFile, Meter},
        names::NameReader,
        patient::PatientReaders,
        pressure::PressureReader,
        shared::SharedReader,
    },
    journal::Journal,
    knobs::Knobs,
    offload::Offload,
};
use plimsoll_policy::units::Bytes;
use plimsoll_sys::process::{ProcRoot, ProcessError, ReaperHandle, page_size};
use std::{
    path::Path,
    sync::{Arc, Mutex},
};

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
    pub(crate) shared: SharedReader,
    pub(crate) compactor: Compactor,
}

/// Where they find what they read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkersSetup<'a> {
    /// As for [`Gauge::new`].
    pub(crate) mapped: bool,
    /// Where programs are pinned.
    pub(crate) pins: &'a Path,
    /// The state folder.
    pub(crate) state: &'a Path,
    /// Settings of the kernel.
    pub(crate) knobs: &'a Arc<Mutex<Knobs>>,
    /// All memory.
    pub(crate) memory: Bytes,
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
        setup: WorkersSetup<'_>,
    ) -> Result<Self, ProcessError> {
        let guard = || {
            let caller = caller.clone();
            move |request| caller.deliver(request)
        };
        let (lines, unjudged, survey, usage, walked) = (guard(), guard(), guard(), guard(), guard());
        let compacted = guard();
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
            meter: Meter::new(
                offload,
                Gauge::new(proc()?, setup.mapped),
                InForceFile::new(setup.state, journal.clone()),
                move |looked| usage(Request::Looked(looked)),
            ),
            shared: SharedReader::new(offload, setup.pins.to_path_buf(), move |found| {
                walked(Request::SharedWalked(found))
            }),
            compactor: Compactor::new(
                offload,
                proc()?,
                (setup.memory, page_size()),
                Arc::clone(setup.knobs),
                move |told| compacted(Request::Compacted(told)),
            ),
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
            shared: SharedReader::mute(),
            compactor: Compactor::by_another().0,
        }
    }
}
