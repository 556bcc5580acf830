//! What is held, as it is told.

use plimsoll_api::protect::{AnonView, BarredView, FileView, MemoryView, ProtectView, TierView};
use plimsoll_policy::{
    units::{Bytes, PageSize, Pages},
    workingset::{Barred, Budget, CHUNKS_MAX, FileId, Heat, Plan, Tier, Why},
};
use plimsoll_sys::workingset::SwapHold;
use std::{cmp::Reverse, path::PathBuf};

/// One file that is held, or worth holding.
#[derive(Debug, Clone)]
pub(super) struct HeldFile {
    pub(super) file: FileId,
    pub(super) path: Option<PathBuf>,
    pub(super) bytes: Option<u64>,
    pub(super) hard: Pages,
    pub(super) soft: Pages,
    pub(super) wanted: Pages,
    pub(super) why: Why,
}

/// What the worker holds after a turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    pub(super) memory: Option<Bytes>,
    pub(super) budget: Budget,
    pub(super) files: Vec<HeldFile>,
    pub(super) barred: Vec<(Barred, u64)>,
    pub(super) ranked: MemoryView,
    pub(super) cgroup_shares: bool,
    pub(super) opening: usize,
}

/// What is changed of the kernel's settings, and why.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settings {
    /// The floor of anonymous memory; 0: none is kept.
    pub(super) anon_line: Pages,
    pub(super) anon: Option<Pages>,
    /// By what swapping is held back.
    pub(super) held_by: Option<SwapHold>,
    pub(super) min_ttl_ms: Option<u64>,
}

impl Settings {
    pub(super) fn tell(&self, view: &mut ProtectView, page_size: PageSize) {
        let bytes = |pages| page_size.to_bytes(pages).0;
        view.min_ttl_ms = self.min_ttl_ms;
        view.anon = (self.anon_line > Pages(0)).then(|| AnonView {
            line_bytes: bytes(self.anon_line),
            anon_bytes: self.anon.map(bytes),
            held_by: self.held_by.map(|means| {
                let name = match means {
                    SwapHold::SwapMax => "memory.swap.max",
                    SwapHold::Swappiness => "vm.swappiness",
                };
                name.to_owned()
            }),
        });
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// What the ranking remembers.
pub(super) fn ranked(heat: &Heat) -> MemoryView {
    MemoryView { files: number(heat.files()), chunks: number(heat.chunks()), chunks_max: number(CHUNKS_MAX) }
}

impl Held {
    /// The page, without what others know.
    pub(super) fn view(&self, page_size: PageSize) -> ProtectView {
        let bytes = |pages| page_size.to_bytes(pages).0;
        let tier = |budget, pick: fn(&HeldFile) -> Pages| TierView {
            budget_bytes: bytes(budget),
            locked_bytes: 0,
            files: number(self.files.iter().filter(|file| pick(file) > Pages(0)).count()),
        };
        let mut files: Vec<FileView> = self
            .files
            .iter()
            .map(|held| FileView {
                file: held.file,
                path: held.path.as_ref().map(|path| path.to_string_lossy().into_owned()),
                size_bytes: held.bytes,
                locked_bytes: bytes(Pages(held.hard.0.saturating_add(held.soft.0))),
                wanted_bytes: bytes(held.wanted),
                tier: match (held.hard, held.soft) {
                    (Pages(0), Pages(0)) => None,
                    (Pages(0), _) => Some(Tier::Soft),
                    _ => Some(Tier::Hard),
                },
                reason: held.why.text().to_owned(),
            })
            .collect();
        files.sort_by_key(|file| (Reverse((file.locked_bytes, file.wanted_bytes)), file.file));
        ProtectView {
            hard: tier(self.budget.hard, |file| file.hard),
            soft: tier(self.budget.soft, |file| file.soft),
            files,
            barred: self
                .barred
                .iter()
                .map(|(why, files)| BarredView { reason: why.text().to_owned(), files: *files })
                .collect(),
            memory: self.ranked,
            cgroup_shares: self.cgroup_shares,
            opening: number(self.opening),
            ..ProtectView::default()
        }
    }
}

/// What a plan and what is really held say of each file.
pub(super) fn files(
    plan: &Plan,
    heat: &Heat,
    held: impl Fn(FileId, Tier) -> Pages,
    path: impl Fn(FileId) -> Option<PathBuf>,
) -> Vec<HeldFile> {
    plan.files
        .iter()
        .map(|one| HeldFile {
            file: one.file,
            path: path(one.file),
            bytes: heat.file_bytes(one.file),
            hard: held(one.file, Tier::Hard),
            soft: held(one.file, Tier::Soft),
            wanted: one.wanted,
            why: one.why,
        })
        .collect()
}
