//! The journal, asked through `journalctl`.

use super::lines;
use crate::exit::Failure;
use plimsoll_report::oom::log::Parser;
use std::{
    io::{BufReader, Read, Seek, SeekFrom},
    path::PathBuf,
    process::{Command, Stdio},
};

/// Where distributions have it. Nothing is looked up along a path that somebody may have set.
const PROGRAMS: [&str; 2] = ["/usr/bin/journalctl", "/bin/journalctl"];
/// What is read of its complaint.
const COMPLAINT_BYTES_MAX: u64 = 1024;

/// Reads the kernel's messages since boot. `short-iso` is the oldest format with whole dates (systemd 206).
pub(super) fn read(parser: &mut Parser) -> Result<(), Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::failed(format_args!("cannot ask the journal: {why}; use --dmesg, or give a file"))
    };
    let program = PROGRAMS.map(PathBuf::from).into_iter().find(|program| program.exists());
    let program = program.ok_or_else(|| failed(&"there is no journalctl here"))?;
    let mut complaint = tempfile::tempfile().map_err(|error| failed(&error))?;
    let stderr = complaint.try_clone().map_err(|error| failed(&error))?;
    let mut child = Command::new(program)
        .args(["--no-pager", "--quiet", "--dmesg", "--output=short-iso"])
        .env("SYSTEMD_COLORS", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(|error| failed(&error))?;
    let read = match child.stdout.take() {
        Some(stdout) => lines(&mut BufReader::new(stdout), parser),
        None => Ok(()),
    };
    let status = child.wait().map_err(|error| failed(&error))?;
    read.map_err(|error| failed(&error))?;
    if status.success() {
        return Ok(());
    }
    let mut text = Vec::new();
    complaint
        .seek(SeekFrom::Start(0))
        .and_then(|_| complaint.take(COMPLAINT_BYTES_MAX).read_to_end(&mut text))
        .map_err(|error| failed(&error))?;
    let text = String::from_utf8_lossy(&text);
    let said = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given").trim();
    if said.contains("permission") {
        return Err(Failure::not_permitted(format_args!(
            "the journal may not be read: {said}; run as root, or be in the group systemd-journal"
        )));
    }
    Err(failed(&format_args!("journalctl ended with {status}: {said}")))
}
