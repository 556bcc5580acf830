#![no_main]

use plimsoll_wire::{
    killed::{KILLED_BYTES, decode},
    task::Looseness,
};

// As it came, and once more at the length of a record: hardly any input has it by chance.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut whole = bytes.to_vec();
    whole.resize(KILLED_BYTES, 0);
    for input in [bytes, &whole] {
        if let Ok(killed) = decode(input, Looseness::PerCpu { online: 256 }) {
            assert!(killed.victim.pid.0 > 0);
        }
    }
});
