#![no_main]

use plimsoll_wire::workingset::{CHUNK_BYTES, EVENT_BYTES, FloorCounts, USE_BYTES, decode_event, decode_use};

// As it came, and once more at the lengths of what the programs write: hardly any input has them by chance.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let sized = |length: usize| {
        let mut whole = bytes.to_vec();
        whole.resize(length, 0);
        whole
    };
    let (key, value) = bytes.split_at(bytes.len().min(CHUNK_BYTES));
    drop(decode_use(key, value));
    let whole = sized(CHUNK_BYTES + USE_BYTES);
    if let Ok(one) = decode_use(&whole[..CHUNK_BYTES], &whole[CHUNK_BYTES..]) {
        assert!(i64::try_from(one.file_bytes).is_ok());
    }
    for input in [bytes, &sized(EVENT_BYTES)] {
        drop(decode_event(input));
    }
    drop(FloorCounts::decode(&sized(FloorCounts::BYTES)));
});
