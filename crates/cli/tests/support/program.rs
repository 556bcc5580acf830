//! Programs of test users: held as children, ended when dropped, read line by line with a deadline.

use super::{Fixture, cgroup::Cgroup, slowness, until};
use std::{
    borrow::BorrowMut,
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        OnceLock,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    time::Duration,
};

/// Before every script: it ends by itself, whatever becomes of the test.
const PRELUDE: &str = "import ctypes, mmap, os, signal, sys, time\nsignal.alarm(120)\n\
    def say(*words): os.write(1, (' '.join(map(str, words)) + '\\n').encode())\n\
    def hear(): return sys.stdin.readline().strip()\n";

/// The system's own Python, which every user can read.
pub const PYTHON: &str = "/usr/bin/python3";

/// A running program.
#[derive(Debug)]
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    told: Vec<String>,
}

impl Program {
    /// Starts a command with its standard streams connected.
    pub fn of(mut command: impl BorrowMut<Command>) -> Self {
        let command = command.borrow_mut();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { input: child.stdin.take(), child, lines, told: Vec::new() }
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line it says.
    #[track_caller]
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(Duration::from_secs(30) * slowness()) {
            Ok(line) => {
                self.told.push(line.clone());
                line
            }
            Err(RecvTimeoutError::Timeout) => panic!("it says nothing more; so far: {:?}", self.told),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("it ended ({:?}); it said: {:?}", self.child.try_wait(), self.told)
            }
        }
    }

    /// The next line, if there is one already.
    pub fn try_line(&mut self) -> Option<String> {
        let line = self.lines.try_recv().ok()?;
        self.told.push(line.clone());
        Some(line)
    }

    /// The next line, which must begin with `stage`: what comes after it.
    #[track_caller]
    pub fn stage(&mut self, stage: &str) -> String {
        let line = self.line();
        line.strip_prefix(stage).unwrap_or_else(|| panic!("'{line}' and not '{stage}'")).trim().to_owned()
    }

    /// Once it has said `ready`.
    #[track_caller]
    pub fn ready(mut self) -> Self {
        self.stage("ready");
        self
    }

    /// Once it has said that it is ready, and then `full`.
    #[track_caller]
    pub fn filled(mut self) -> Self {
        self.fills();
        self
    }

    /// It says that it is ready, and then `full`.
    #[track_caller]
    pub fn fills(&mut self) {
        self.stage("ready");
        self.stage("full");
    }

    /// Writes a line to it.
    pub fn tell(&mut self, line: &str) {
        // One that was killed hears nothing more, which the test sees from its end.
        if let Some(input) = &mut self.input {
            drop(writeln!(input, "{line}").and_then(|()| input.flush()));
        }
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        self.end_within(Duration::from_secs(30))
    }

    /// Its end, if it has ended.
    pub fn try_end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end, no longer than `deadline`.
    #[track_caller]
    pub fn end_within(&mut self, deadline: Duration) -> ExitStatus {
        until("the program ends", deadline, || self.child.try_wait().unwrap())
    }

    /// Waits for its end, which must be by SIGKILL.
    #[track_caller]
    pub fn killed(&mut self) {
        let status = self.end();
        assert_eq!(status.signal(), Some(9), "{status}; it said {:?}", self.told);
    }

    /// Ends it.
    pub fn stop(&mut self) {
        // Gone already is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A command by a shell's script, which executes it as `"$@"`, behind `"$0"` and what else it is given; as its user again.
pub fn by_shell<A: AsRef<OsStr>>(script: &str, given: &[A], command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).args(given).arg(command.get_program()).args(command.get_args());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir("/");
    shell
}

impl Fixture {
    /// A workload of a user's that begins in this cgroup.
    pub fn within(&self, cgroup: &Cgroup, user: u32, name: &str, arguments: &[&str]) -> Program {
        let program = self.as_user(user, self.workload_path(name));
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(cgroup.processes());
        command.arg(program.get_program()).args(program.get_args()).args(arguments);
        Program::of(command)
    }

    /// A command that runs as a user, knows this daemon's sockets, and dies with the thread that started it.
    pub fn as_user(&self, user: u32, program: impl AsRef<Path>) -> Command {
        self.owns(user);
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user.to_string(), "--regid", &user.to_string(), "--clear-groups"]);
        command.args(["--pdeathsig", "KILL", "--"]).arg(program.as_ref()).current_dir("/");
        command.env("PLIMSOLL_SOCKET", self.path("socket"));
        command.env("PLIMSOLL_TMALLOC_SOCKET", self.path("tmalloc.sock"));
        command
    }

    /// A workload of the lab, by name, as a user.
    pub fn workload(&self, user: u32, name: &str, arguments: &[&str]) -> Program {
        Program::of(self.as_user(user, self.workload_path(name)).args(arguments))
    }

    /// A workload that starts as root; the test's users it becomes are to be claimed with [`Fixture::owns`].
    pub fn root_workload(&self, name: &str, arguments: &[&str]) -> Program {
        Program::of(Command::new(self.workload_path(name)).args(arguments))
    }

    /// A Python script as a user; it has `say`, `hear` and the modules of the prelude.
    pub fn python(&self, user: u32, script: &str) -> Program {
        Program::of(self.as_user(user, PYTHON).args(["-c", &format!("{PRELUDE}{script}")]))
    }

    /// `plimsoll` as a user runs it.
    pub fn plimsoll_as(&self, user: u32) -> Command {
        let plimsoll = self.path("plimsoll");
        if !plimsoll.exists() {
            fs::copy(env!("CARGO_BIN_EXE_plimsoll"), &plimsoll).unwrap();
        }
        self.as_user(user, plimsoll)
    }

    /// A Python script as [`Fixture::python`] runs it, in a job; `options` as `plimsoll run` takes them.
    pub fn job(&self, user: u32, options: &[&str], script: &str) -> Program {
        Program::of(self.job_command(user, options, script))
    }

    /// The command of that.
    pub fn job_command(&self, user: u32, options: &[&str], script: &str) -> Command {
        let mut command = self.plimsoll_as(user);
        command.arg("run").args(options).args(["--", PYTHON, "-c", &format!("{PRELUDE}{script}")]);
        command
    }

    /// Runs `plimsoll` as a user, to its end: status, standard output, standard error.
    pub fn run_as(&self, user: u32, arguments: &[&str]) -> (i32, String, String) {
        let mut command = self.plimsoll_as(user);
        let output = command.args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// A Python script as root.
    pub fn root_python(&self, script: &str) -> Program {
        Program::of(Command::new(PYTHON).args(["-c", &format!("{PRELUDE}{script}")]))
    }

    /// A workload's executable, where every user can reach it.
    pub fn workload_path(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        if !path.exists() {
            fs::copy(workloads().join(name), &path).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        path
    }
}

/// The folder of the workloads, built once.
pub fn workloads() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("workloads");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/workloads");
        let built = Command::new("make")
            .args(["--silent", "-C"])
            .arg(sources)
            .arg(format!("OUT={}", folder.display()))
            .output()
            .unwrap();
        assert!(built.status.success(), "the workloads: {}", String::from_utf8_lossy(&built.stderr));
        folder
    })
}
