//! `/etc/passwd` and `/etc/group`: what is known without asking anybody.

use nix::fcntl::OFlag;
use plimsoll_policy::units::{Gid, Uid};
use plimsoll_wire::text::{group_entries, passwd_entries};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// The largest of the two that is read: some 200,000 users.
const FILE_MAX_BYTES: u64 = 16 << 20;

/// Where they are.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) passwd: PathBuf,
    pub(super) group: PathBuf,
}

impl Default for Files {
    fn default() -> Self {
        Self { passwd: PathBuf::from("/etc/passwd"), group: PathBuf::from("/etc/group") }
    }
}

/// Tells whether a file was changed or replaced, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The state of both files; `None` for one that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp([Option<Mark>; 2]);

/// What they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) users: BTreeMap<Vec<u8>, Uid>,
    pub(super) groups: BTreeMap<Vec<u8>, Gid>,
    primary: BTreeMap<Gid, BTreeSet<Uid>>,
    members: BTreeMap<Gid, BTreeSet<Uid>>,
    /// What could not be read.
    pub(super) trouble: Option<String>,
}

impl Mark {
    /// Of a file as it is now; `None` where there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            size_bytes: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

impl Files {
    pub(super) fn stamp(&self) -> Stamp {
        Stamp([&self.passwd, &self.group].map(|path| Mark::of(path)))
    }

    pub(super) fn read(&self) -> Listed {
        let mut listed = Listed::default();
        let mut text = |path: &Path| {
            read_capped(path).unwrap_or_else(|error| {
                listed.trouble = Some(format!("cannot read {}: {error}", path.display()));
                Vec::new()
            })
        };
        let (passwd, group) = (text(&self.passwd), text(&self.group));
        for user in passwd_entries(&passwd) {
            // As the C library does: of two users of one name the first counts.
            listed.users.entry(user.name.to_vec()).or_insert(user.uid);
            listed.primary.entry(user.gid).or_default().insert(user.uid);
        }
        for group in group_entries(&group) {
            listed.groups.entry(group.name.to_vec()).or_insert(group.gid);
            let uids = group.members().filter_map(|name| listed.users.get(name).copied());
            listed.members.entry(group.gid).or_default().extend(uids);
        }
        listed
    }
}

impl Listed {
    /// Whether `/etc/group` has it.
    pub(super) fn has_group(&self, gid: Gid) -> bool {
        self.members.contains_key(&gid)
    }

    /// Those it lists, and those whose primary group it is.
    pub(super) fn members_of(&self, gid: Gid) -> BTreeSet<Uid> {
        [&self.members, &self.primary].into_iter().filter_map(|by| by.get(&gid)).flatten().copied().collect()
    }
}

/// Never waits for the other end of a pipe in the file's place, and never reads a device.
fn read_capped(path: &Path) -> io::Result<Vec<u8>> {
    let file: File = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= FILE_MAX_BYTES) {
        return Ok(bytes);
    }
    Err(io::Error::other(format!("larger than the {FILE_MAX_BYTES} bytes that are read")))
}
