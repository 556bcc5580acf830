#![no_main]

use plimsoll_daemon::history::record::{RECORD_VERSION, decode};

// As it lies on the disk, and once more behind a right checksum: without that a fuzzer would hardly ever get past it. What
// is decoded or refused does not matter; that nothing panics does.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drop(decode(bytes));
    let mut line = format!("plimsoll{RECORD_VERSION} {:08x} ", crc32fast::hash(bytes)).into_bytes();
    line.extend_from_slice(bytes);
    drop(decode(&line));
});
