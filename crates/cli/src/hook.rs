//! Commands of the user's that are run when something happens. One that hangs is ended after 10 seconds.

use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a command may take.
const COMMAND_MAY_TAKE: Duration = Duration::from_secs(10);

/// Runs a command to its end, or for as long as it may take. What it says goes where the caller has put it.
pub(crate) fn run(mut command: Command, input: &[u8]) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // Of a group of its own, so that what it started ends with it.
    let command = command.process_group(0).stdin(Stdio::piped());
    let child = command.spawn();
    let mut child = child.map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            format!("there is no '{name}'; install it, or leave this way out")
        } else {
            format!("cannot run '{name}': {error}")
        }
    })?;
    let until = Instant::now() + COMMAND_MAY_TAKE;
    if let Some(mut pipe) = child.stdin.take() {
        let input = input.to_vec();
        // Whoever does not read it holds up this thread alone: it ends with the command.
        thread::spawn(move || pipe.write_all(&input).ok());
    }
    match wait(&mut child, until).map_err(|error| format!("'{name}': {error}"))? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("'{name}' failed: {status}")),
        None => Err(format!("'{name}' took longer than {} s and was ended", COMMAND_MAY_TAKE.as_secs())),
    }
}

/// Waits for the leader of a process group. `None`: it had not ended by then, and was ended with all of its group.
pub(crate) fn wait(child: &mut Child, until: Instant) -> io::Result<Option<std::process::ExitStatus>> {
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(20));
    }
    // Not waited for, it has its number still.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process_group(group, Signal::KILL)?;
    }
    child.wait().map(|_| None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    #[test]
    fn a_command_gets_its_input_and_its_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept");
        let script = format!("cat > '{}'", kept.display());
        assert_eq!(run(shell(&script), b"{\"uid\":1}"), Ok(()));
        assert_eq!(fs::read_to_string(kept).unwrap(), "{\"uid\":1}");
        assert_eq!(run(shell("exit 3"), b"x"), Err("'sh' failed: exit status: 3".to_owned()));
        let missing = run(Command::new("/nonexistent/tell"), b"");
        assert!(missing.unwrap_err().contains("there is no '/nonexistent/tell'"));
    }

    #[test]
    fn a_command_that_hangs_and_reads_nothing_is_ended() {
        let mut child = shell("sleep 60; true").process_group(0).spawn().unwrap();
        let ended = wait(&mut child, Instant::now() + Duration::from_millis(100)).unwrap();
        assert!(ended.is_none() && child.try_wait().unwrap().is_some());
    }
}
