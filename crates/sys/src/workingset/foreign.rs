//! Mounts that only other mount namespaces have: of containers, and of services with a view of their own.
#![expect(unsafe_code, reason = "a thread leaves the working folder that it shares")]

use super::{Refusal, clone};
use plimsoll_wire::text::{parse_mount, unescape};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx},
    io::Errno,
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    io::Read as _,
    os::fd::AsFd as _,
};

/// Namespaces that are looked into, mounts that are remembered, and the longest list of mounts that is read.
const NAMESPACES_MAX: usize = 256;
const MOUNTS_MAX: usize = 8192;
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// One mount, and a process that sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sighting {
    pid: u32,
    namespace: u64,
    id: u32,
    path: Vec<u8>,
    pub(super) filesystem: Box<[u8]>,
    pub(super) source: Box<[u8]>,
}

/// Which devices other namespaces have mounted, by device.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    sightings: BTreeMap<u32, Sighting>,
}

impl Foreign {
    /// Looks at one process of each mount namespace but the own one. `known` devices are not remembered.
    pub(super) fn look(known: &BTreeSet<u32>) -> Self {
        let mut foreign = Self::default();
        let Some(own) = namespace_of("/proc/self/ns/mnt") else { return foreign };
        let mut seen = BTreeSet::from([own]);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            let Some(namespace) = namespace_of(&format!("/proc/{pid}/ns/mnt")) else { continue };
            if seen.len() <= NAMESPACES_MAX && seen.insert(namespace) {
                foreign.remember(pid, namespace, known);
            }
        }
        foreign
    }

    fn remember(&mut self, pid: u32, namespace: u64, known: &BTreeSet<u32>) {
        let Ok(text) = read_bounded(&format!("/proc/{pid}/mountinfo")) else { return };
        for mount in text.split(|byte| *byte == b'\n').filter_map(|line| parse_mount(line).ok()) {
            if known.contains(&mount.device) || self.sightings.len() >= MOUNTS_MAX {
                continue;
            }
            let Some(path) = unescape(mount.mount_point) else { continue };
            let (filesystem, source) = (mount.filesystem.into(), mount.source.into());
            let sighting = Sighting { pid, namespace, id: mount.id, path, filesystem, source };
            self.sightings.entry(mount.device).or_insert(sighting);
        }
    }

    pub(super) fn get(&self, device: u32) -> Option<&Sighting> {
        self.sightings.get(&device)
    }
}

impl Sighting {
    /// A private clone of it, made from inside its namespace: the kernel lets nobody else.
    pub(super) fn clone_mount(&self) -> Result<clone::PrivateMount, Refusal> {
        // A thread of its own: this one's namespace stays what it is, whatever happens.
        std::thread::scope(|scope| {
            let inside = std::thread::Builder::new().spawn_scoped(scope, || self.clone_inside());
            inside.map_or(Err(Refusal::Unreachable), |thread| {
                thread.join().unwrap_or(Err(Refusal::Unreachable))
            })
        })
    }

    fn clone_inside(&self) -> Result<clone::PrivateMount, Refusal> {
        let open = |name: &str, flags: OFlags| {
            openat(CWD, format!("/proc/{}/{name}", self.pid), flags | OFlags::CLOEXEC, Mode::empty())
                .map_err(|_gone| Refusal::Unreachable)
        };
        let root = open("root", OFlags::PATH | OFlags::DIRECTORY)?;
        let namespace = open("ns/mnt", OFlags::RDONLY)?;
        // The number may be another process's by now.
        let found = statx(&namespace, c"", AtFlags::EMPTY_PATH, StatxFlags::INO);
        if found.map(|found| found.stx_ino) != Ok(self.namespace) {
            return Err(Refusal::Unreachable);
        }
        let enter = |errno: Errno| Refusal::of("look into another mount namespace", errno);
        // SAFETY: gives this thread a working folder and a root of its own, which no other thread refers to; tables of
        // descriptors stay shared.
        unsafe { unshare_unsafe(UnshareFlags::FS) }.map_err(enter)?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount)).map_err(enter)?;
        let place = clone::find(root.as_fd(), &self.path, self.id)?;
        clone::of(place.as_fd()).map_err(|errno| match errno {
            // What is mounted there must not be uncovered: a mount that came from a more privileged namespace.
            Errno::INVAL => Refusal::Unreachable,
            other => Refusal::of("clone a mount", other),
        })
    }
}

fn namespace_of(link: &str) -> Option<u64> {
    statx(CWD, link, AtFlags::empty(), StatxFlags::INO).ok().map(|found| found.stx_ino)
}

/// Reads a list of mounts.
pub(super) fn read_bounded(path: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}
