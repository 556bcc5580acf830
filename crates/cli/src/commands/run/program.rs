//! Whether a program can be given a library before its own.

use object::{
    Endianness,
    elf::{FileHeader64, PT_INTERP},
    read::elf::{FileHeader as _, ProgramHeader as _},
};
use rustix::fs::{Access, access};
use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
};

/// A program's headers are at its beginning.
const READ_BYTES: u64 = 64 << 10;
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;

/// The file that a name stands for, as a shell finds it; `None`: there is none that may be executed.
pub(super) fn find(name: &OsStr) -> Option<PathBuf> {
    let executable = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(name)).find(executable)
}

/// This program, also where it was replaced since.
pub(super) fn own() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("plimsoll");
    command
}

/// What stands in the way of a library, in words that go on from the program's name.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let metadata = path.metadata().map_err(|error| format!("cannot be looked at: {error}"))?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let becomes = |bit: u32, is_own: bool| metadata.mode() & bit != 0 && !is_own;
    if becomes(SET_USER_ID, metadata.uid() == user) || becomes(SET_GROUP_ID, metadata.gid() == group) {
        return Err(
            "has the set-user-ID or set-group-ID bit: the dynamic linker preloads nothing into it".to_owned()
        );
    }
    // What is no file is the kernel's to refuse, and one that may be executed and not read is what it is.
    let Some(file) = metadata.is_file().then(|| File::open(path).ok()).flatten() else { return Ok(()) };
    match interpreter(file) {
        Ok(false) => Err("is statically linked: nothing can be preloaded into it".to_owned()),
        Ok(true) | Err(_) => Ok(()),
    }
}

/// Whether a program asks for a dynamic linker. Scripts, and what is no program of 64 bits, are for the kernel to judge.
fn interpreter(file: File) -> io::Result<bool> {
    let mut bytes = Vec::new();
    file.take(READ_BYTES).read_to_end(&mut bytes)?;
    Ok(asks_for_linker(&bytes).unwrap_or(true))
}

fn asks_for_linker(bytes: &[u8]) -> object::Result<bool> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, bytes)?;
    Ok(segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP))
}

#[cfg(test)]
mod tests;
