#![no_main]

use plimsoll_wire::{
    abi::plimsoll_shared,
    shared::{SharedRecord, decode},
};

// As it came, and once more at the length of a record: hardly any input has it by chance.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut whole = bytes.to_vec();
    whole.resize(size_of::<plimsoll_shared>(), 0);
    for input in [bytes, &whole] {
        if let Ok(SharedRecord::File { file, .. }) = decode(input) {
            let shown = file.name.text;
            assert!(!shown.chars().any(char::is_control), "a name is shown raw: {shown:?}");
        }
    }
});
