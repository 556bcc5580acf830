#![no_main]

use plimsoll_wire::{
    abi::plimsoll_task,
    task::{Looseness, decode},
};

// As it came, and once more at the length of a record: hardly any input has it by chance.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut whole = bytes.to_vec();
    whole.resize(size_of::<plimsoll_task>(), 0);
    for input in [bytes, &whole] {
        for looseness in [Looseness::PerCpu { online: 256 }, Looseness::PerThread] {
            if let Ok(task) = decode(input, looseness) {
                let shown = task.comm.to_string();
                assert!(!shown.chars().any(char::is_control), "a name is shown raw: {shown:?}");
                assert!(task.most() <= task.mapped, "more is held than was mapped");
            }
        }
    }
});
