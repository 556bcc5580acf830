#![no_main]

use plimsoll_wire::{
    marked::{MARKED_BYTES, decode},
    task::Looseness,
};

// As it came, and once more at the length of a record: hardly any input has it by chance.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut whole = bytes.to_vec();
    whole.resize(MARKED_BYTES, 0);
    for input in [bytes, &whole] {
        if let Ok(marked) = decode(input, Looseness::PerCpu { online: 256 }) {
            let shown = marked.cgroup.unwrap_or_default();
            assert!(!shown.chars().any(char::is_control), "a path is shown raw: {shown:?}");
            assert!(marked.thread.0 > 0);
        }
    }
});
