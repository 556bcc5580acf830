//! What the libFuzzer targets share: each finds its reader in the table that the ordinary tests use, too.

use plimsoll_report::{import, oom::log, trace};
use plimsoll_wire::text::FUZZ_TARGETS;

/// Feeds `bytes` to the reader called `name` in [`FUZZ_TARGETS`], of OOM reports, of traces or of others' options.
///
/// # Panics
/// When the reader breaks a promise, which is how a fuzzer learns of it, or when no reader has that name.
pub fn read_text(name: &str, bytes: &[u8]) {
    let others = [&log::FUZZ_TARGET, &trace::FUZZ_TARGET, &import::FUZZ_TARGET];
    let target = FUZZ_TARGETS.iter().chain(others).find(|target| target.name == name);
    let target = target.unwrap_or_else(|| panic!("no reader is called '{name}'"));
    if let Err(promise) = (target.check)(bytes) {
        panic!("{name}: {promise}");
    }
}
