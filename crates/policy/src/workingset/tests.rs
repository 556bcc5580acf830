use super::{Barred, Blocks, CHUNK_PAGES, ChunkId, FileId, Use, chunk_count, chunk_pages};
use crate::units::{PageSize, Pages};
use std::{collections::BTreeSet, string::ToString, vec::Vec};

pub(super) fn page_size() -> PageSize {
    PageSize::from_bytes(4096).unwrap()
}

pub(super) const fn file(inode: u64) -> FileId {
    FileId { device: 8 << 20 | 1, inode, generation: 1 }
}

/// All of some chunks of a file of so many chunks, used once.
pub(super) fn pass(file: FileId, chunks: core::ops::Range<u32>, of: u32) -> Vec<Use> {
    let each = |chunk| Use {
        chunk: ChunkId { file, chunk },
        accessed: CHUNK_PAGES,
        blocks: Blocks::ALL,
        mapped: false,
        added: 0,
        evicted: 0,
        file_bytes: u64::from(of) * CHUNK_PAGES * 4096,
        barred: None,
    };
    chunks.map(each).collect()
}

#[test]
fn the_last_chunk_of_a_file_has_the_pages_that_are_left() {
    let pages = |bytes, chunk| chunk_pages(bytes, chunk, page_size()).0;
    assert_eq!(pages(0, 0), 0);
    assert_eq!(pages(1, 0), 1);
    assert_eq!(pages(2 << 20, 0), CHUNK_PAGES);
    assert_eq!((pages((2 << 20) + 1, 1), pages((2 << 20) + 1, 2)), (1, 0));
    assert_eq!(chunk_pages(u64::MAX, u32::MAX, page_size()), Pages(CHUNK_PAGES));
    let count = |bytes| chunk_count(bytes, page_size());
    assert_eq!((count(0), count(1), count(2 << 20), count((2 << 20) + 1)), (0, 1, 1, 2));
    assert_eq!(count(u64::MAX), u32::MAX);
}

#[test]
fn a_device_is_told_by_its_two_numbers() {
    assert_eq!(file(5).to_string(), "8:1 inode 5");
    assert_eq!(FileId { device: 259 << 20 | 0xf_ffff, ..file(5) }.device_numbers(), (259, 0xf_ffff));
}

/// Scripts match on these: a change here is a change of the interface.
#[test]
fn each_bar_has_a_text_and_words_of_its_own() {
    let texts: Vec<&str> = Barred::ALL.iter().map(|barred| barred.text()).collect();
    assert_eq!(
        texts,
        [
            "open-for-writing",
            "swap-file",
            "unlinked",
            "file-system",
            "not-regular",
            "removable",
            "leased",
            "no-mount",
            "no-handle",
            "replaced",
            "refused",
            "cgroup-share",
            "cgroup-gone",
        ]
    );
    let words: BTreeSet<_> = Barred::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), texts.len());
    for barred in Barred::ALL {
        assert_eq!(serde_json::to_value(barred).unwrap(), barred.text());
    }
}
