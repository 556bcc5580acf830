//! Why a file is not held in memory though it is used.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! bars {
    ($($(#[$doc:meta])* $name:ident = $text:literal: $words:literal;)*) => {
        texts! {
            /// Why a file must not be held in memory. The texts never change their meaning.
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
            #[serde(rename_all = "kebab-case")]
            pub enum Barred {
                $($(#[$doc])* $name = $text,)*
            }
            /// The stable text, as in `protect show --json`.
            fn text
        }

        impl fmt::Display for Barred {
            /// In plain words, to be read after 'not held: '.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $words,)*
                })
            }
        }
    };
}

bars! {
    /// Somebody may change it: what is locked has to be written back from memory that cannot be taken.
    OpenForWriting = "open-for-writing": "somebody has it open for writing";
    /// The kernel swaps to it.
    SwapFile = "swap-file": "it is a swap file";
    /// It has no name any more: its disk space is freed when nobody has it open.
    Unlinked = "unlinked": "it was deleted";
    /// FUSE and network file systems, where opening or reading can wait for others; those without pages to lock.
    FileSystem = "file-system": "its file system is not one that files are held of";
    /// No pages of files: a device, a pipe, a folder.
    NotRegular = "not-regular": "it is no regular file";
    /// On a drive that can be pulled out, whose pages would go without notice.
    Removable = "removable": "it is on a removable drive";
    /// Somebody, such as a file server, is told when it is opened, and would have to let go of it.
    Leased = "leased": "somebody holds a lease on it";
    /// Its file system is being unmounted, or no mount of it is in reach.
    NoMount = "no-mount": "no mount of its file system can be used";
    /// The file system gives no handle to open it by.
    NoHandle = "no-handle": "its file system cannot open it by its number";
    /// The number belongs to another file by now.
    Replaced = "replaced": "another file has its number now";
    /// The kernel said no for another reason.
    Refused = "refused": "the kernel refused to open or to lock it";
    /// The memory cgroup that its pages are charged to would be left with too little that can be reclaimed.
    CgroupShare = "cgroup-share": "the memory cgroup that it is charged to has its share already";
    /// The memory cgroup that its pages are charged to is gone, and they would keep it from being freed.
    CgroupGone = "cgroup-gone": "the memory cgroup that it is charged to is being removed";
}
