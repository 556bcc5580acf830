//! `broom NAME FOLDER`: removes the files and cgroups of a `bench workingset` that was ended from outside.
//!
//! It outlives its parent, by design: when its input closes, however that came, it kills what is left in the cgroups NAME,
//! removes these, and the folder. After a bench that ended in order there is nothing to do.

use super::{say, usage};
use crate::{error::BenchError, scope};
use std::{fs, io, path::Path};

/// Runs it.
///
/// # Errors
/// Bad arguments, or the folder cannot be removed.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let [name, folder] = arguments else { return Err(usage(&arguments.join(" "))) };
    let folder = Path::new(folder);
    let own = folder.file_name().and_then(|name| name.to_str());
    let named = own.is_some_and(|own| own.starts_with(scope::FOLDER_PREFIX));
    let number = name.strip_prefix(scope::PREFIX);
    if !named || !folder.is_absolute() || number.is_none_or(|number| number.parse::<u32>().is_err()) {
        return Err(usage(&arguments.join(" ")));
    }
    say("ready")?;
    // No alarm: a bench may last for hours. An input that cannot be read any more has ended, too.
    drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
    scope::remove_all(name);
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(BenchError::io(format!("remove {}", folder.display()))(error))
        }
        _ => Ok(()),
    }
}
