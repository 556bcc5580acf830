use super::{Idle, Reclaimer};
use crate::{facts::patient::PatientReaders, journal::Journal, offload::Offload};
use plimsoll_policy::units::{Bytes, Pid};
use plimsoll_sys::process::ProcRoot;
use std::{
    collections::BTreeMap,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

fn proc() -> ProcRoot {
    ProcRoot::open(Path::new("/proc")).unwrap()
}

/// Ended with its test.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Holds 32 MiB, asleep: `dd` has filled its buffer and waits for somebody to take it.
fn asleep() -> Guest {
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "bs=32M", "count=1"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let guest = Guest(command.stderr(Stdio::null()).spawn().unwrap());
    let end = Instant::now() + Duration::from_secs(20);
    let pid = Pid(guest.0.id());
    while proc().process(pid).unwrap().usage().known().is_none_or(|usage| usage.0 < (32 << 20) / 4096) {
        assert!(Instant::now() < end, "it does not fill its buffer");
        std::thread::sleep(Duration::from_millis(5));
    }
    guest
}

#[test]
fn only_who_was_there_before_and_has_not_run_since_is_idle() {
    let guest = asleep();
    let (mut idle, pid) = (
        Idle { seen: BTreeMap::new(), readers: PatientReaders::new(&Offload::start().unwrap()) },
        Pid(guest.0.id()),
    );
    let found = |idle: &mut Idle| idle.largest(&mut proc()).unwrap().iter().any(|(one, _)| one.pid == pid);
    assert!(!found(&mut idle), "nothing was known of it");
    assert!(found(&mut idle));
    // As if it had run meanwhile.
    idle.seen.get_mut(&pid).unwrap().1 += 1;
    assert!(!found(&mut idle));
}

#[test]
fn asking_never_waits_and_the_thread_goes_on_where_nothing_can_be_reclaimed() {
    let (journal, lines) = Journal::gather();
    let offload = Offload::start().unwrap();
    let reclaimer = Reclaimer::new(&offload, proc(), PatientReaders::new(&offload), journal);
    // A page: what a machine can always give, or cannot without swap and cgroups.
    assert!(reclaimer.ask(Bytes(4096)));
    let line = lines.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(line.starts_with("memory runs short"), "{line}");
    let end = Instant::now() + Duration::from_secs(20);
    while !reclaimer.ask(Bytes(4096)) {
        assert!(Instant::now() < end, "it is busy for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
}
