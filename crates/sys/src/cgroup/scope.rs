//! Which cgroup is meant: the one that the kernel would take whole, the one that systemd looks at.

use super::{Cgroup, CgroupError, CgroupRoot};
use plimsoll_policy::reading::Reading;

impl CgroupRoot {
    /// The cgroup that the kernel's own OOM killer would take whole with a process of `cgroup`: the highest with
    /// `memory.oom.group` set, from `cgroup` up to `domain`, the one that is out of memory (for the whole machine,
    /// the root: `None`). `None` also where `cgroup` is not in `domain`. As `mem_cgroup_get_oom_group()` in the
    /// kernel's mm/memcontrol.c. The kernel spares those with an `oom_score_adj` of -1000 in it.
    ///
    /// Where a cgroup lacks the memory controller, the one above it counts, as for the kernel.
    ///
    /// # Errors
    /// [`super::CgroupErrorKind::Gone`] when the cgroup was removed, also when it was made again meanwhile.
    pub fn oom_group_of(
        &self,
        cgroup: &Cgroup,
        domain: Option<&Cgroup>,
    ) -> Result<Option<Cgroup>, CgroupError> {
        let from = domain.map_or(b"".as_slice(), Cgroup::path);
        if !is_below(cgroup.path(), from) {
            return Ok(None);
        }
        for path in prefixes(cgroup.path()).filter(|path| path.len() >= from.len()) {
            let above = self.cgroup(path)?;
            if above.oom_group() == Reading::Known(true) {
                return self.check_same(cgroup).map(|()| Some(above));
            }
        }
        self.check_same(cgroup).map(|()| None)
    }

    /// The systemd unit that a cgroup belongs to: itself or the nearest above it that is called as a service, a
    /// scope or another kind of unit with processes. Its manager looks at this one for
    /// [`Cgroup::note_oom_kill_begins`], not at the cgroups below it. `None` outside of any.
    ///
    /// # Errors
    /// As [`CgroupRoot::oom_group_of`].
    pub fn unit_of(&self, cgroup: &Cgroup) -> Result<Option<Cgroup>, CgroupError> {
        let Some(path) = prefixes(cgroup.path()).filter(|path| is_unit(path)).last() else {
            return Ok(None);
        };
        let unit = self.cgroup(path)?;
        self.check_same(cgroup).map(|()| Some(unit))
    }

    /// The cgroup at the held one's path is still the held one.
    fn check_same(&self, cgroup: &Cgroup) -> Result<(), CgroupError> {
        if self.cgroup(cgroup.path())?.id() == cgroup.id() {
            Ok(())
        } else {
            Err(cgroup.failed("look at those above", rustix::io::Errno::NOENT))
        }
    }
}

/// `a`, `a/b` and `a/b/c` of `a/b/c`.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let whole = (!path.is_empty()).then_some(path.len());
    ends.chain(whole).filter_map(|end| path.get(..end))
}

/// Whether a path is another, or below it.
pub(super) fn is_below(path: &[u8], above: &[u8]) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn is_unit(path: &[u8]) -> bool {
    [b".service".as_slice(), b".scope", b".socket", b".mount", b".swap"]
        .iter()
        .any(|suffix| path.ends_with(suffix))
}

#[cfg(test)]
mod tests;
