//! A real Wayland session under a user's line: what it stands on is left while anybody else is there to go, up to a bound, and
//! nobody else is taken for it.
#![cfg(test)]

mod support;

use plimsoll_wire::text::ProcessState;
use serde_json::Value;
use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _, chown},
        net::UnixStream,
    },
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};
use support::{Fixture, SOON, exact, program::Program, until, wait_for};

const USER: u32 = 60_200;

/// Near from the first few MiB on, so that everybody is judged long before the line is crossed.
const SOFT: &[&str] = &["--soft=4M"];

/// `None`, and said, where a part of it is not installed.
fn session_is_installed() -> Option<()> {
    let programs = ["weston", "Xwayland", "dbus-daemon", "tmux"];
    match programs.iter().find(|name| !Path::new("/usr/bin").join(name).exists()) {
        Some(name) => {
            support::skip(format_args!("{name} is not installed"));
            None
        }
        None => Some(()),
    }
}

/// Weston, which began Xwayland, and what else a session stands on; by name, in the order in which they were started.
struct Session {
    weston: Program,
    _bus: Program,
    carriers: Vec<(&'static str, u32)>,
}

impl Fixture {
    fn of_session(&self, program: impl AsRef<Path>) -> Command {
        let home = self.path("home");
        if !home.exists() {
            fs::DirBuilder::new().mode(0o700).create(&home).unwrap();
            chown(&home, Some(USER), Some(USER)).unwrap();
        }
        let mut command = self.as_user(USER, program);
        command.env("XDG_RUNTIME_DIR", &home).env("HOME", &home).env_remove("TMUX").stderr(Stdio::null());
        command
    }

    /// A compositor without a screen, of some 30 MiB.
    fn weston(&self, program: impl AsRef<Path>, socket: &str) -> Program {
        let mut command = self.of_session(program);
        command.args(["--backend=headless-backend.so", "--use-pixman", "--width=2048", "--height=1536"]);
        command.args(["--xwayland", "--idle-time=0", "--no-config", "--socket", socket]);
        command.arg(format!("--log={}", self.path("home").join(format!("{socket}.log")).display()));
        let program = Program::of(command);
        wait_for("weston listens", || self.path("home").join(socket).exists());
        program
    }

    fn session(&self) -> Session {
        // The X servers' own, which a machine without a desktop lacks.
        drop(fs::DirBuilder::new().create("/tmp/.X11-unix"));
        fs::set_permissions("/tmp/.X11-unix", fs::Permissions::from_mode(0o1777)).unwrap();
        let weston = self.weston("/usr/bin/weston", "wayland-test");
        let display = until("weston has a display", SOON, || {
            let log = fs::read_to_string(self.path("home/wayland-test.log")).ok()?;
            let number = log.split_once("listening on display :")?.1.split_once('\n')?.0.to_owned();
            Some(format!("/tmp/.X11-unix/X{number}"))
        });
        // Its first client has Xwayland started. Little-endian, version 11, no authorisation.
        let mut client = UnixStream::connect(display).unwrap();
        client.write_all(b"l\0\x0b\0\0\0\0\0\0\0\0\0").unwrap();
        client.read_exact(&mut [0; 8]).unwrap();
        let mut bus = self.bus();
        bus.line();
        let mut tmux = self.of_session("/usr/bin/tmux");
        // Its user's login shell; without a name the user has none but this.
        tmux.env("SHELL", "/bin/bash").arg("-S").arg(self.path("home").join("tmux"));
        let started = tmux.args(["-f", "/dev/null", "new-session", "-d"]).output().unwrap();
        assert!(started.status.success(), "{started:?}");
        let carriers = ["weston", "Xwayland", "dbus-daemon", "tmux: server", "bash"];
        let carriers = carriers.map(|name| (name, self.runs_as(name))).to_vec();
        drop(client);
        Session { weston, _bus: bus, carriers }
    }

    /// The session bus, which wants its user to have a name: in a mount namespace of its own it does.
    fn bus(&self) -> Program {
        self.owns(USER);
        let names = self.path("passwd");
        fs::write(&names, format!("tester:x:{USER}:{USER}::/:/bin/sh\n")).unwrap();
        let user = USER.to_string();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg("mount --bind \"$1\" /etc/passwd && shift && exec setpriv \"$@\"").arg("sh").arg(names);
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--pdeathsig", "KILL", "--"]);
        command.args(["/usr/bin/dbus-daemon", "--session", "--nofork", "--print-address"]);
        command.env("XDG_RUNTIME_DIR", self.path("home"));
        Program::of(command)
    }

    /// The user's first process of this name: a shell forks as it starts.
    fn runs_as(&self, name: &str) -> u32 {
        until(&format!("{name} runs"), SOON, || {
            let pids = self.spaces().into_iter().map(|space| space.pid.0);
            pids.filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
            })
            .min()
        })
    }

    /// Waits until it is known that a session stands on it; a forked one has its parent's weight before it is judged.
    #[track_caller]
    fn carries(&self, name: &str, pid: u32) {
        wait_for(&format!("a session stands on {name} ({pid})"), || {
            self.space(pid).is_some_and(|space| space.session)
        });
    }

    /// Waits until it is judged, and no session stands on it.
    #[track_caller]
    fn is_like_anybody(&self, pid: u32) {
        let judged = until(&format!("{pid} is judged"), SOON, || {
            self.space(pid).filter(|space| space.weight.is_some())
        });
        assert!(!judged.session, "{judged:?}");
    }

    fn sleeps_with(&self, mebibytes: u32) -> Program {
        let size = format!("--mebibytes={mebibytes}");
        self.workload(USER, "chill", &[&size, "--no-thp"]).ready()
    }
}

fn runs(pid: u32) -> bool {
    exact::state(pid).is_some_and(|state| state != ProcessState::Zombie)
}

fn victims(incidents: &[Value]) -> Vec<u64> {
    incidents.iter().map(|one| one["victims"][0]["pid"].as_u64().unwrap()).collect()
}

/// Weston is larger than anybody else when the line is crossed, by one that is no larger than the others.
fn only_the_hog_goes(fixture: &Fixture) {
    fixture.limit(USER, "176M", SOFT);
    let session = fixture.session();
    for (name, pid) in &session.carriers {
        fixture.carries(name, *pid);
    }
    let mut others: Vec<Program> = (0..4).map(|_| fixture.sleeps_with(20)).collect();
    let mut hog = fixture.sleeps_with(28);
    fixture.is_like_anybody(hog.pid());
    let mut worker = fixture.workload(USER, "bloat", &["--mebibytes=30", "--no-thp", "--rate=200"]);
    hog.killed();
    worker.fills();
    let incidents = fixture.incidents(1);
    assert_eq!(victims(&incidents), [u64::from(hog.pid())], "{incidents:?}");
    assert!(others.iter_mut().all(Program::runs) && worker.runs());
    assert!(session.carriers.iter().all(|(_, pid)| runs(*pid)), "{:?}", session.carriers);
    let left =
        incidents[0]["peers"].as_array().unwrap().iter().find(|one| one["pid"] == session.weston.pid());
    assert_eq!(left.map(|one| &one["session"]), Some(&true.into()), "{}", incidents[0]);
    let told = fixture.ok(&["why"]);
    assert!(told.contains("which carries the user's session"), "{told}");
}

#[test]
fn a_hog_goes_by_the_very_event_though_the_compositor_is_larger() {
    let Some(()) = session_is_installed() else { return };
    let fixture = fixture!();
    only_the_hog_goes(&fixture);
}

#[test]
fn the_daemon_leaves_the_session_as_the_kernel_side_does() {
    let Some(()) = session_is_installed() else { return };
    let fixture = fixture!("[limits]\ntriggers = [\"daemon\"]\n");
    only_the_hog_goes(&fixture);
}

#[test]
fn whoever_is_called_like_a_compositor_or_a_shell_or_is_one_and_holds_more_than_a_quarter_is_taken() {
    let Some(()) = session_is_installed() else { return };
    let fixture = fixture!();
    fixture.limit(USER, "144M", SOFT);
    let compositor = fixture.weston("/usr/bin/weston", "wayland-test");
    fixture.carries("weston", compositor.pid());
    // The very file, but its user's own; and a hog under the name.
    let (copy, lookalike) = (fixture.path("home/weston"), fixture.path("home/gnome-shell"));
    fs::copy("/usr/bin/weston", &copy).unwrap();
    fs::copy(support::program::workloads().join("chill"), &lookalike).unwrap();
    for file in [&copy, &lookalike] {
        chown(file, Some(USER), Some(USER)).unwrap();
    }
    let copied = fixture.weston(&copy, "wayland-copy");
    fixture.is_like_anybody(copied.pid());
    let named = Program::of(fixture.of_session(&lookalike).args(["--mebibytes=28", "--no-thp"])).ready();
    fixture.is_like_anybody(named.pid());
    drop((copied, named));
    // A shell that leads a session with a terminal, and one that only has the terminal.
    let shell = fixture.python(
        USER,
        "import pty\npid, terminal = pty.fork()\n\
         if not pid: os.execv('/bin/bash', ['bash', '--norc', '-c',\n\
         'read; bash -c \"echo inner \\$\\$; read\"; x=$(head -c 45000000 /dev/zero | tr \"\\\\0\" a); echo full; read'])\n\
         say('shell', pid)\n\
         os.write(terminal, b'\\n')\n\
         said = b''\n\
         while True:\n\
         \x20said += os.read(terminal, 4096)\n\
         \x20if said.count(b'inner ') and said.endswith(b'\\r\\n'): break\n\
         say('inner', said.split(b'inner ')[1].split()[0].decode())\n\
         hear()\n\
         os.write(terminal, b'\\n')\n\
         while b'full' not in said: said += os.read(terminal, 4096)\n\
         say('full')\n\
         hear()\n",
    );
    let mut shell = shell;
    let login: u32 = shell.stage("shell").parse().unwrap();
    let inner: u32 = shell.stage("inner").parse().unwrap();
    fixture.carries("the login shell", login);
    fixture.is_like_anybody(inner);
    shell.tell("");
    shell.stage("full");
    let _others: Vec<Program> = (0..2).map(|_| fixture.sleeps_with(20)).collect();
    let mut worker = fixture.workload(USER, "bloat", &["--mebibytes=36", "--no-thp", "--rate=200"]);
    until("the shell is taken", Duration::from_secs(20), || (!runs(login)).then_some(()));
    assert_eq!(victims(&fixture.incidents(1)), [u64::from(login)]);
    assert!(worker.runs() && runs(compositor.pid()));
}
