//! What the libFuzzer targets share: each finds its reader in the table that the ordinary tests use, too.

use plimsoll_wire::text::FUZZ_TARGETS;

/// Feeds `bytes` to the reader called `name` in [`FUZZ_TARGETS`].
///
/// # Panics
/// When the reader breaks a promise, which is how a fuzzer learns of it, or when no reader has that name.
pub fn read_text(name: &str, bytes: &[u8]) {
    let target = FUZZ_TARGETS.iter().find(|target| target.name == name);
    let target =
        target.unwrap_or_else(|| panic!("no reader called '{name}' in plimsoll_wire::text::FUZZ_TARGETS"));
    if let Err(promise) = (target.check)(bytes) {
        panic!("{name}: {promise}");
    }
}
