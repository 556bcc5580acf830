//! Files that a command is given, or standard input.

use crate::exit::Failure;
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// All of a file, or of standard input for '-', and what it is called in messages. `instead`: what to do where it cannot be
/// read.
pub(crate) fn read(path: &Path, most: usize, instead: &str) -> Result<(Vec<u8>, String), Failure> {
    let is_input = path.as_os_str() == "-";
    let named = if is_input { String::from("standard input") } else { format!("'{}'", path.display()) };
    let unreadable = |error: io::Error| {
        let message = format_args!("cannot read {named}: {error}; {instead}");
        let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
        if is_denied { Failure::not_permitted(message) } else { Failure::failed(message) }
    };
    let input: Box<dyn Read> =
        if is_input { Box::new(io::stdin()) } else { Box::new(File::open(path).map_err(unreadable)?) };
    let one_more = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    input.take(one_more).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > most {
        return Err(Failure::failed(format_args!("{named} is larger than {most} bytes; {instead}")));
    }
    Ok((bytes, named))
}
