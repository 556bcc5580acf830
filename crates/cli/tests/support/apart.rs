//! A test in a thread of its own, and in a mount namespace of its own: what it mounts over the machine's files it alone sees.

use super::{is_root, skip, test_name};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use std::{fs, panic::resume_unwind, path::Path, thread};
use tempfile::TempDir;

/// Runs a test so, or says why it cannot.
pub fn apart(body: impl FnOnce() + Send + 'static) {
    if !is_root() {
        return;
    }
    let run = || {
        let private =
            || mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>);
        match unshare(CloneFlags::CLONE_NEWNS).and_then(|()| private()) {
            Ok(()) => body(),
            Err(errno) => skip(format_args!("it needs a mount namespace of its own: {errno}")),
        }
    };
    if let Err(panic) = thread::Builder::new().name(test_name()).spawn(run).unwrap().join() {
        resume_unwind(panic);
    }
}

/// Mounts a file over another.
pub fn bind(source: &Path, target: &str) {
    mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

/// Files of `/etc`, by name and text, as they are in the folder that is returned.
pub fn etc(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::Builder::new().prefix("plimsoll-test-etc-").tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        bind(&file, &format!("/etc/{name}"));
    }
    folder
}
