//! A thousand small processes that sleep: what a guard has to look through on an ordinary machine.

use crate::{child::Workload, error::BenchError};
use std::{os::unix::process::CommandExt, process::Command};

/// A shell that forks subshells, each about 150 KiB, all waiting on the same pipe: they end when it closes, which it
/// does with the bench, however that ends.
const SCRIPT: &str = "exec 3<&0; i=0; while [ $i -lt $0 ]; do (read -r _ <&3) & i=$((i+1)); done; echo ready; \
                      read -r _ <&3; wait";

/// The crowd; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Crowd {
    _shell: Workload,
}

impl Crowd {
    /// Starts `count` processes of the user.
    pub(crate) fn start(uid: u32, count: usize) -> Result<Self, BenchError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT]).arg(count.to_string()).uid(uid).gid(uid);
        let mut shell = Workload::spawn(command, &format!("crowd of {count}"))?;
        shell.expect("ready")?;
        Ok(Self { _shell: shell })
    }
}
