#![no_main]

use plimsoll_wire::{abi, frag::decode};

// As it came, and once more at the length of a site and its counts: hardly any input has it by chance.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let site = size_of::<abi::plimsoll_frag_site>();
    let mut whole = bytes.to_vec();
    whole.resize(site + size_of::<abi::plimsoll_frag_counts>(), 0);
    for input in [bytes, &whole] {
        let (key, value) = input.split_at(site.min(input.len()));
        if let Ok((site, _)) = decode(key, value) {
            assert!(site.order < 32);
        }
    }
});
