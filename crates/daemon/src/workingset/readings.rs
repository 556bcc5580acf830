//! The memory that is protected, as it stands: the machine's, or that of one memory cgroup up to its limit.

use plimsoll_policy::{
    reading::Reading,
    units::{Bytes, PageSize, Pages, Pid},
    workingset::{anon::AnonReading, floor::FloorReading},
};
use plimsoll_sys::{
    cgroup::MemoryCgroup,
    process::{ProcRoot, ProcessError},
};
use plimsoll_wire::text::Meminfo;
use std::{collections::BTreeSet, path::Path};

/// A reading, with what the programs are told beside.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) floor: FloorReading,
    /// Of the cgroup; 0 for the machine, whose the programs read themselves.
    pub(super) dirty: Pages,
}

/// Where they come from.
#[derive(Debug, Clone)]
pub(super) struct Readings {
    cgroup: Option<MemoryCgroup>,
    /// As it was at the start, where `/proc/meminfo` does not tell: memory can be added to a running machine, and taken away.
    mem_total: Bytes,
    page_size: PageSize,
}

impl Readings {
    pub(super) fn new(
        cgroup: Option<MemoryCgroup>,
        mem_total: Bytes,
        page_size: PageSize,
    ) -> std::io::Result<Self> {
        if let Some(cgroup) = &cgroup {
            cgroup.stat()?;
        }
        Ok(Self { cgroup, mem_total, page_size })
    }

    /// What the ratios are of; `None` when the cgroup is gone or cannot be read.
    pub(super) fn memory(&self, proc: &mut ProcRoot) -> Option<Bytes> {
        self.memory_of(proc.read_meminfo().ok().as_ref())
    }

    fn memory_of(&self, meminfo: Option<&Meminfo>) -> Option<Bytes> {
        let total = self.total(meminfo);
        match &self.cgroup {
            None => Some(total),
            Some(cgroup) => cgroup.limit().ok().map(|limit| limit.map_or(total, |limit| limit.min(total))),
        }
    }

    /// Of the machine, as it is now.
    fn total(&self, meminfo: Option<&Meminfo>) -> Bytes {
        meminfo.and_then(|meminfo| meminfo.mem_total).unwrap_or(self.mem_total)
    }

    /// Who may be ended; `None`: anybody.
    pub(super) fn among(&self) -> Option<BTreeSet<Pid>> {
        // One that cannot be read has nobody in it.
        self.cgroup.as_ref().map(|cgroup| cgroup.processes().unwrap_or_default())
    }

    /// The cgroup that is protected and those below, as the programs know them; `None`: the machine, which all are of.
    pub(super) fn inodes(&self) -> Option<BTreeSet<u64>> {
        self.cgroup.as_ref().map(|cgroup| cgroup.inodes().unwrap_or_default())
    }

    /// The cgroup as the programs know it; `None`: the machine.
    pub(super) fn cgroup_inode(&self) -> Option<u64> {
        self.cgroup.as_ref().and_then(|cgroup| cgroup.inode().ok())
    }

    pub(super) const fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`ProcessError`] where `/proc/meminfo` cannot be read, which is needed for swap in any case.
    pub(super) fn read(&self, proc: &mut ProcRoot, locked: Pages) -> Result<Now, ProcessError> {
        let meminfo = proc.read_meminfo()?;
        Ok(match &self.cgroup {
            None => self.of_machine(&meminfo, locked),
            Some(cgroup) => self.of_cgroup(cgroup, &meminfo, locked),
        })
    }

    /// What the floor of anonymous memory is judged by, which is the machine's.
    pub(super) fn read_anon(&self, proc: &mut ProcRoot) -> AnonReading {
        let meminfo = proc.read_meminfo().ok();
        let pages = |bytes: Option<Bytes>| self.pages(bytes);
        AnonReading {
            anon: pages(meminfo.as_ref().and_then(|meminfo| meminfo.anonymous)),
            swap_total: pages(meminfo.as_ref().and_then(|meminfo| meminfo.swap_total)),
            mem_total: self.page_size.to_pages(self.total(meminfo.as_ref())),
        }
    }

    fn pages(&self, bytes: Option<Bytes>) -> Reading<Pages> {
        bytes.map_or(Reading::Unreadable, |bytes| Reading::Known(self.page_size.to_pages(bytes)))
    }

    fn of_machine(&self, meminfo: &Meminfo, locked: Pages) -> Now {
        let clean = sum(meminfo.active_file, meminfo.inactive_file)
            .map(|file| file.saturating_sub(meminfo.dirty.unwrap_or_default()));
        let swap = meminfo.swap_total.filter(|total| total.0 > 0).and(meminfo.swap_free);
        Now {
            floor: FloorReading {
                clean: self.pages(clean),
                locked,
                swap_free: swap.map_or(Reading::Absent, |free| self.pages(Some(free))),
                anon: self.pages(meminfo.anonymous),
                free: self.pages(meminfo.mem_free),
                mem_total: self.page_size.to_pages(self.total(Some(meminfo))),
            },
            dirty: Pages(0),
        }
    }

    fn of_cgroup(&self, cgroup: &MemoryCgroup, meminfo: &Meminfo, locked: Pages) -> Now {
        let stat = cgroup.stat().ok();
        let dirty = stat.and_then(|stat| stat.dirty).unwrap_or_default();
        let clean = stat.and_then(|stat| sum(stat.active_file, stat.inactive_file));
        let memory = self.memory_of(Some(meminfo));
        let free = memory.zip(cgroup.usage().ok()).map(|(limit, usage)| limit.saturating_sub(usage));
        let machine = meminfo.swap_total.filter(|total| total.0 > 0).and(meminfo.swap_free);
        let swap = machine.map(|free| match cgroup.swap_room() {
            Ok(Some(room)) => free.min(room),
            Ok(None) | Err(_) => free,
        });
        Now {
            floor: FloorReading {
                clean: self.pages(clean.map(|clean| clean.saturating_sub(dirty))),
                locked,
                swap_free: swap.map_or(Reading::Absent, |free| self.pages(Some(free))),
                anon: self.pages(stat.and_then(|stat| stat.anon)),
                free: self.pages(free),
                mem_total: self.page_size.to_pages(memory.unwrap_or_else(|| self.total(Some(meminfo)))),
            },
            dirty: self.page_size.to_pages(dirty),
        }
    }

    /// Another way to `/proc`, for one thread.
    ///
    /// # Errors
    /// [`ProcessError`]
    pub(super) fn proc() -> Result<ProcRoot, ProcessError> {
        ProcRoot::open(Path::new("/proc"))
    }
}

fn sum(one: Option<Bytes>, other: Option<Bytes>) -> Option<Bytes> {
    one.zip(other).map(|(one, other)| Bytes(one.0.saturating_add(other.0)))
}
