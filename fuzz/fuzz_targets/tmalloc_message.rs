#![no_main]

use plimsoll_policy::units::PageSize;
use plimsoll_wire::tmalloc::{MESSAGE_BYTES, Reply, Request};

// As it came, and once more at the length of a message: hardly any input has it by chance.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut whole = bytes.to_vec();
    whole.resize(MESSAGE_BYTES, 0);
    for page_bytes in [4096, 65_536] {
        let page_size = PageSize::from_bytes(page_bytes).unwrap();
        for input in [bytes, &whole] {
            if let Ok(request) = Request::decode(input, page_size) {
                assert_eq!(Request::decode(&request.encode(), page_size), Ok(request));
            }
        }
    }
    for input in [bytes, &whole] {
        if let Ok(reply) = Reply::decode(input) {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
        }
    }
});
