//! Debian's nohang, unmodified and with its own configuration: how long from its 'Memory status that requires corrective
//! actions' to its 'Sending'.
//!
//! It has no dry run. So it runs as a user that owns no other process, without a right and without a way to one: the kernel
//! refuses the signal. It sees the machine's processes, and a `/proc/meminfo` of its own that tells of a shortage.

use super::find_program;
use crate::{child::Workload, error::BenchError, proc};
use plimsoll_wire::text::parse_meminfo;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// Runs as this user, which nothing else does.
pub(crate) const UID: u32 = 60_023;

const SCRIPT: &str = "mount --bind \"$1\" /proc/meminfo && exec setpriv --reuid \"$2\" --regid \"$2\" --clear-groups \
                      --bounding-set=-all --inh-caps=-all --no-new-privs --pdeathsig KILL \
                      /usr/bin/python3 -u \"$3\" --monitor -c \"$4\" 2>&1";

/// Where it is, with its configuration.
#[derive(Debug)]
pub(crate) struct Nohang {
    program: PathBuf,
    configuration: PathBuf,
    folder: TempDir,
}

impl Nohang {
    /// Finds it; `None` where it, or what it needs, is not installed.
    pub(crate) fn find() -> Result<Option<Self>, BenchError> {
        let Some(program) = find_program("nohang") else { return Ok(None) };
        let configuration = program.with_file_name("../share/nohang/nohang.conf");
        if !configuration.exists() || !Path::new("/usr/bin/python3").exists() {
            return Ok(None);
        }
        let folder = tempfile::Builder::new()
            .prefix("plimsoll-bench-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .map_err(BenchError::io("temporary folder"))?;
        let text = fs::read_to_string("/proc/meminfo").map_err(BenchError::io("read /proc/meminfo"))?;
        let file = folder.path().join("meminfo");
        fs::write(&file, short(&text)?).map_err(BenchError::io("write a meminfo"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))
            .map_err(BenchError::io("let a meminfo be read"))?;
        Ok(Some(Self { program, configuration, folder }))
    }

    /// Starts it, and gives the nanoseconds of its first choice; it ends then.
    pub(crate) fn choice_ns(&self) -> Result<u64, BenchError> {
        let mut command = Command::new("/usr/bin/unshare");
        command.args(["--mount", "/bin/sh", "-c", SCRIPT, "nohang"]);
        command.arg(self.folder.path().join("meminfo")).arg(UID.to_string());
        command.arg(&self.program).arg(&self.configuration);
        let mut process = Workload::spawn(command, "nohang --monitor")?;
        let mut hear = |beginning: &str| process.hear_until(|line| line.trim_start().starts_with(beginning));
        let low_ns = hear("Memory status that requires corrective actions")?;
        Ok(hear("Sending SIG")?.saturating_sub(low_ns))
    }
}

/// The machine's meminfo with little memory available and no swap: under nohang's own threshold for SIGTERM (5 % of
/// `MemTotal`), not under that for SIGKILL (2 %).
fn short(meminfo: &str) -> Result<String, BenchError> {
    let total_kib = proc::told("MemTotal", parse_meminfo(meminfo.as_bytes())?.mem_total)? / 1024;
    let line = |line: &str| match line.split_once(':') {
        Some(("MemAvailable", _)) => format!("MemAvailable: {} kB\n", total_kib * 3 / 100),
        Some((name @ ("SwapTotal" | "SwapFree"), _)) => format!("{name}: 0 kB\n"),
        _ => format!("{line}\n"),
    };
    Ok(meminfo.lines().map(line).collect())
}

#[cfg(test)]
mod tests;
