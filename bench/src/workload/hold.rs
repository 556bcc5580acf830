//! `hold UID BYTES`: touches the bytes, says `ready`, and sleeps until its input closes: a large process that does nothing.

use super::{Commands, become_user, memory, number, say};
use crate::error::BenchError;
use nix::sys::prctl;

/// Runs it.
///
/// # Errors
/// Bad arguments, or not root.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let uid = number(arguments, 0)?;
    let bytes = number(arguments, 1)?;
    prctl::set_thp_disable(true).map_err(BenchError::io("PR_SET_THP_DISABLE"))?;
    let mut mapping = memory::map(bytes)?;
    let mut commands = Commands::open();
    become_user(uid)?;
    memory::touch(&mut mapping, memory::page_length());
    say("ready")?;
    while commands.next()?.is_some() {}
    Ok(())
}
