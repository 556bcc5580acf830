#![no_main]

use plimsoll_wire::{abi::plimsoll_record, record::decode};

// As it came, and once more at the length of a record: hardly any input has it by chance.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut whole = bytes.to_vec();
    whole.resize(size_of::<plimsoll_record>(), 0);
    for input in [bytes, &whole] {
        if let Ok(record) = decode(input) {
            for shown in [record.process.comm, record.process.cmdline].into_iter().flatten() {
                assert!(!shown.chars().any(char::is_control), "a record is shown raw: {shown:?}");
            }
        }
    }
});
