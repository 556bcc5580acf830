//! `broom NAME FOLDER`: removes the files and cgroups of a bench that was ended from outside.
//!
//! It outlives its parent, by design: when its input closes, however that came, it kills what is left in the cgroups NAME
//! and removes these (none where `-`), and the folder. After a bench that ended in order there is nothing to do.

use super::{say, usage};
use crate::{
    child::{STEP, look_until},
    error::BenchError,
    scope,
};
use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
    time::Duration,
};

/// What the folders are called that it may remove.
const PREFIXES: [&str; 2] = [scope::PREFIX, "plimsoll-demo-"];

/// Runs it.
pub(super) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let [name, folder] = arguments else { return Err(usage(&arguments.join(" "))) };
    let folder = Path::new(folder);
    let own = folder.file_name().and_then(|name| name.to_str());
    let named = own.is_some_and(|own| PREFIXES.iter().any(|prefix| own.starts_with(prefix)));
    let number = name.strip_prefix(scope::PREFIX).map(str::parse::<u32>);
    if !named || !folder.is_absolute() || (name != "-" && !matches!(number, Some(Ok(_)))) {
        return Err(usage(&arguments.join(" ")));
    }
    say("ready")?;
    // No alarm: a bench may last for hours. An input that cannot be read any more has ended, too.
    drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
    if name != "-" {
        scope::remove_all(name);
    }
    // A daemon that is just ending writes in it until it has.
    let removed = look_until(STEP / 2, Duration::from_millis(50), || {
        let removed = fs::remove_dir_all(folder);
        Ok(removed.map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true).then_some(()))
    })?;
    removed.ok_or_else(|| BenchError::malformed("a folder to be removed", &folder.display().to_string()))
}
