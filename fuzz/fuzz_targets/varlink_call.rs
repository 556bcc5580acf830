#![no_main]

use plimsoll_daemon::api::unattended::answer;

// A message of the control socket, as the framing hands it on. Whatever it is, the answer is one JSON object, or nothing
// where nothing is wanted.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let answer = answer(bytes);
    assert!(answer.is_empty() || answer.first() == Some(&b'{') && answer.last() == Some(&b'}'), "{answer:?}");
});
