//! The worker with a systemctl and a cgroup tree made for the test, and with processes of its own.

use super::{Large, LastDefence, LineFacts, NearFacts, Originals, Setup, Systemd};
use crate::{
    guard::{Mailbox, Request, mailbox},
    journal::Journal,
    offload::Offload,
    undo::Leftovers,
};
use plimsoll_policy::{
    account::Action,
    last_defence::{Headroom, LastDefenceConfig},
    reason::Reason,
    units::{Bytes, Pages, Pid, Uid},
    victim::VictimId,
};
use plimsoll_sys::process::ProcRoot;
use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::Receiver,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
const ALICE: Uid = Uid(60_140);

/// As systemd does: the property in a file, the kernel's file after it, and the drop-in.
const SYSTEMCTL: &str = r#"#!/bin/sh
root=$(dirname "$0")
echo "$*" >> "$root/calls"
[ -e "$root/hang" ] && sleep 60
[ -e "$root/refuse" ] && { echo 'Failed to set unit properties: no' >&2; exit 1; }
for unit; do :; done
case $3 in
show) cat "$root/property" ;;
set-property)
    value=${6#MemoryMax=}
    echo "$value" > "$root/property"
    mkdir -p "$root/run/system.control/$5.d"
    echo "[Slice]" > "$root/run/system.control/$5.d/50-MemoryMax.conf"
    [ "$value" = infinity ] && value=max
    file=$root/cgroup/user.slice/$5/memory.max
    [ ! -e "$file" ] || echo "$value" > "$file" ;;
esac
"#;

const STAT: &str = "anon 1048576\nshmem 0\nkernel 0\nslab_reclaimable 0\nsock 0\n";

fn events(oom: u64, oom_kill: u64) -> String {
    format!("low 0\nhigh 0\nmax 0\noom {oom}\noom_kill {oom_kill}\n")
}

/// A machine with systemd, as far as the last defence looks.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let machine = Self { root };
        fs::create_dir_all(machine.path("run/system")).unwrap();
        fs::create_dir_all(machine.slice("")).unwrap();
        fs::write(machine.path("cgroup/cgroup.controllers"), "memory\n").unwrap();
        fs::write(machine.path("property"), "infinity\n").unwrap();
        fs::write(machine.path("systemctl"), SYSTEMCTL).unwrap();
        fs::set_permissions(machine.path("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, text) in [("memory.max", "max\n"), ("memory.stat", STAT)] {
            fs::write(machine.slice(name), text).unwrap();
        }
        for name in ["memory.events", "memory.events.local"] {
            fs::write(machine.slice(name), events(0, 0)).unwrap();
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn slice(&self, name: &str) -> PathBuf {
        self.path("cgroup/user.slice").join(format!("user-{ALICE}.slice")).join(name)
    }

    fn systemd(&self) -> Systemd {
        Systemd::pretended(self.path("systemctl"), self.root.path())
    }

    fn memory_max(&self) -> String {
        fs::read_to_string(self.slice("memory.max")).unwrap().trim().to_owned()
    }

    fn property(&self) -> String {
        fs::read_to_string(self.path("property")).unwrap().trim().to_owned()
    }

    fn has_drop_in(&self) -> bool {
        self.path(&format!("run/system.control/user-{ALICE}.slice.d/50-MemoryMax.conf")).exists()
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.path("calls")).map_or(0, |text| text.lines().count())
    }

    fn start(&self) -> Defence {
        let (mailbox, caller) = mailbox().unwrap();
        let (journal, said) = Journal::gather();
        let originals = Originals::default();
        let setup = Setup {
            config: LastDefenceConfig {
                headroom: Headroom::Bytes(Bytes(100 * MIB)),
                ..LastDefenceConfig::default()
            },
            state: self.root.path().to_path_buf(),
            systemd: self.systemd(),
            mem_total: Bytes(64 << 30),
            journal,
            caller,
            originals: originals.clone(),
        };
        let defence = LastDefence::start(setup, &Offload::start().unwrap());
        Defence { defence: defence.unwrap(), mailbox, said, originals }
    }
}

struct Defence {
    defence: LastDefence,
    mailbox: Mailbox,
    said: Receiver<String>,
    originals: Originals,
}

fn line(hard_mib: u64, action: Action) -> LineFacts {
    LineFacts { uid: ALICE, hard: Bytes(hard_mib * MIB), effective: Some(Bytes(hard_mib * MIB)), action }
}

fn mib(number: u64) -> String {
    (number * MIB).to_string()
}

#[track_caller]
fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(15);
    while !reached() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_line_sets_memory_max_above_it_and_a_clean_stop_leaves_no_trace() {
    let machine = Machine::new();
    let mut one = machine.start();
    one.defence.lines(vec![line(400, Action::Kill)]);
    until("memory.max is set", || machine.memory_max() == mib(500));
    assert!(machine.path("last-defence.json").exists());
    until("status tells", || one.defence.words(true, false).contains("1 user slice has one"));
    one.defence.stop(true).unwrap();
    assert_eq!((machine.memory_max().as_str(), machine.property().as_str()), ("max", "infinity"));
    assert!(!machine.has_drop_in() && !machine.path("last-defence.json").exists());
    assert_eq!(one.said.try_iter().collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_limit_that_was_set_does_not_rise_with_what_the_slice_takes() {
    let machine = Machine::new();
    let mut one = machine.start();
    one.defence.lines(vec![line(400, Action::Kill)]);
    until("memory.max is set", || machine.memory_max() == mib(500));
    fs::write(machine.slice("memory.stat"), STAT.replace("shmem 0", &format!("shmem {}", 450 * MIB)))
        .unwrap();
    one.defence.lines(vec![line(400, Action::Kill)]);
    one.defence.stop(false).unwrap();
    assert_eq!(machine.memory_max(), mib(500));
}

#[test]
fn a_line_that_goes_or_only_notifies_puts_it_back() {
    let machine = Machine::new();
    let mut one = machine.start();
    for end in [vec![], vec![line(400, Action::Notify)]] {
        one.defence.lines(vec![line(400, Action::Kill)]);
        until("memory.max is set", || machine.memory_max() == mib(500));
        one.defence.lines(end);
        until("memory.max is put back", || machine.memory_max() == "max");
    }
    one.defence.stop(true).unwrap();
}

#[test]
fn what_somebody_else_changed_since_is_left_as_it_is() {
    let machine = Machine::new();
    let mut one = machine.start();
    one.defence.lines(vec![line(400, Action::Kill)]);
    until("memory.max is set", || machine.memory_max() == mib(500));
    fs::write(machine.slice("memory.max"), "734003200\n").unwrap();
    fs::write(machine.path("property"), "734003200\n").unwrap();
    one.defence.lines(vec![line(400, Action::Kill)]);
    until("it is said", || one.said.try_recv().is_ok_and(|said| said.contains("changed by somebody else")));
    one.defence.stop(true).unwrap();
    assert_eq!((machine.memory_max().as_str(), machine.property().as_str()), ("734003200", "734003200"));
    assert!(!machine.path("last-defence.json").exists());
}

#[test]
fn an_administrators_lower_limit_stays() {
    let machine = Machine::new();
    fs::write(machine.slice("memory.max"), format!("{}\n", 450 * MIB)).unwrap();
    fs::write(machine.path("property"), format!("{}\n", 450 * MIB)).unwrap();
    let mut one = machine.start();
    one.defence.lines(vec![line(400, Action::Kill)]);
    until("systemd was asked", || machine.calls() == 1);
    one.defence.stop(true).unwrap();
    assert_eq!(machine.memory_max(), mib(450));
    assert_eq!(machine.calls(), 1);
}

#[test]
fn the_next_one_tells_what_happened_meanwhile_and_puts_back_what_a_dead_one_had_set() {
    let machine = Machine::new();
    let mut dead = machine.start();
    dead.defence.lines(vec![line(400, Action::Kill)]);
    until("memory.max is set", || machine.memory_max() == mib(500));
    dead.defence.stop(false).unwrap();
    assert_eq!(machine.memory_max(), mib(500));
    write_over(&machine.slice("memory.events.local"), &events(1, 0));
    write_over(&machine.slice("memory.events"), &events(1, 1));
    let mut next = machine.start();
    next.defence.lines(vec![line(400, Action::Kill)]);
    until(
        "what happened meanwhile is told",
        || matches!(next.mailbox.next(), Ok(Request::LastDefence(deed)) if deed.reason == Reason::LastDefenceMemoryMax),
    );
    next.defence.lines(vec![]);
    until("memory.max is put back", || machine.memory_max() == "max");
    next.defence.stop(true).unwrap();
}

#[test]
fn a_user_without_a_slice_is_none_of_systemds_business() {
    let machine = Machine::new();
    let mut one = machine.start();
    fs::remove_file(machine.slice("memory.max")).unwrap();
    one.defence.lines(vec![line(400, Action::Kill)]);
    one.defence.stop(true).unwrap();
    assert_eq!(machine.calls(), 0);
}

#[test]
fn a_systemd_that_refuses_or_hangs_is_left_alone_for_a_while() {
    for fault in ["refuse", "hang"] {
        let machine = Machine::new();
        fs::write(machine.path(fault), "").unwrap();
        let mut one = machine.start();
        one.defence
            .lines(vec![line(400, Action::Kill), LineFacts { uid: Uid(60_141), ..line(1, Action::Kill) }]);
        until("it is said", || one.said.try_recv().is_ok_and(|said| said.contains("systemctl")));
        until("status tells", || one.defence.words(true, false).contains("systemctl does not answer"));
        one.defence.lines(vec![line(401, Action::Kill)]);
        fs::remove_file(machine.path(fault)).unwrap();
        one.defence.stop(true).unwrap();
        assert_eq!((machine.calls(), machine.memory_max().as_str()), (1, "max"));
    }
}

#[test]
fn a_kill_at_memory_max_is_told_and_one_of_an_inner_limit_is_not_ours() {
    let machine = Machine::new();
    let mut one = machine.start();
    one.defence.lines(vec![line(400, Action::Kill)]);
    until("memory.max is set", || machine.memory_max() == mib(500));
    let mut told = |oom: u64, oom_kill: u64| {
        // A plain file has no exceptional condition: a message wakes the worker in its place.
        write_over(&machine.slice("memory.events.local"), &events(oom, 0));
        write_over(&machine.slice("memory.events"), &events(oom, oom_kill));
        let mut deeds = Vec::new();
        until("the guard is told", || {
            one.defence.lines(vec![line(400, Action::Kill)]);
            while let Ok(request) = one.mailbox.next() {
                let Request::LastDefence(deed) = request else { panic!("{request:?}") };
                deeds.push(deed.reason);
            }
            !deeds.is_empty()
        });
        deeds
    };
    assert_eq!(told(1, 1), [Reason::LastDefenceMemoryMax]);
    assert_eq!(told(1, 2), [Reason::LastDefenceOutOfMemory]);
    assert_eq!(told(3, 4), [Reason::LastDefenceMemoryMax; 2]);
    one.defence.stop(true).unwrap();
}

/// In one piece and of the same length, as the kernel's own are.
fn write_over(path: &Path, text: &str) {
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// A child that does nothing until it is dropped.
struct Guest(Child);

impl Guest {
    fn start(script: &str) -> Self {
        Self(Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap())
    }

    fn large(&self, usage: u64) -> Large {
        let pid = Pid(self.0.id());
        let start_ns = ProcRoot::open(Path::new("/proc")).unwrap().process(pid).unwrap().start_ns;
        Large { id: VictimId { pid, start_ns }, usage: Pages(usage), protected: false }
    }

    fn adjustment(&self) -> i16 {
        adjustment(self.0.id())
    }

    fn set(&self, adjustment: i16) {
        fs::write(format!("/proc/{}/oom_score_adj", self.0.id()), adjustment.to_string()).unwrap();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn adjustment(pid: u32) -> i16 {
    fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap()
}

/// What the children of this test have by themselves.
fn own() -> i16 {
    adjustment(std::process::id())
}

fn near(largest: &[Large]) -> NearFacts {
    // Of root, who runs the test: heirs are looked for among the account's own.
    let line = LineFacts { uid: Uid(rustix::process::getuid().as_raw()), ..line(6554, Action::Kill) };
    let mut facts = NearFacts { line, largest: [None; 8] };
    for (place, large) in facts.largest.iter_mut().zip(largest) {
        *place = Some(*large);
    }
    facts
}

/// Waits until the worker has taken every message.
fn settled(one: &mut Defence, far: bool) {
    if far {
        one.defence.settle(None);
    }
    one.defence.stop(false).unwrap();
}

const SLEEP: &str = "read line";

#[test]
fn the_largest_is_raised_while_near_and_put_back_when_far() {
    let machine = Machine::new();
    let (small, big) = (Guest::start(SLEEP), Guest::start(SLEEP));
    let mut one = machine.start();
    one.defence.near(near(&[big.large(900), small.large(100)]));
    // A tenth of RAM and whatever swap there is.
    until("the largest is raised", || (own() + 1..=own() + 103).contains(&big.adjustment()));
    assert_eq!(small.adjustment(), own());
    settled(&mut one, true);
    assert_eq!(big.adjustment(), own());
}

#[test]
fn another_that_has_become_the_largest_takes_its_place() {
    let machine = Machine::new();
    let (first, second) = (Guest::start(SLEEP), Guest::start(SLEEP));
    let mut one = machine.start();
    one.defence.near(near(&[first.large(900), second.large(100)]));
    one.defence.near(near(&[second.large(2000), first.large(900)]));
    until("the other is raised", || second.adjustment() > own());
    assert_eq!(first.adjustment(), own());
    settled(&mut one, true);
    assert_eq!(second.adjustment(), own());
}

#[test]
fn what_was_changed_since_is_left_and_not_raised_again() {
    let machine = Machine::new();
    let guest = Guest::start(SLEEP);
    let mut one = machine.start();
    one.defence.near(near(&[guest.large(900)]));
    until("it is raised", || guest.adjustment() > own());
    guest.set(own() + 555);
    one.defence.near(near(&[guest.large(900)]));
    settled(&mut one, true);
    assert_eq!(guest.adjustment(), own() + 555);
}

#[test]
fn a_child_that_inherited_is_put_back_too_and_does_not_drive_its_parent_up() {
    let machine = Machine::new();
    let out = machine.path("child");
    let script = format!("read line; sleep 60 & echo $! > {0}.new; mv {0}.new {0}; read line", out.display());
    let mut guest = Guest::start(&script);
    let mut one = machine.start();
    one.defence.near(near(&[guest.large(900)]));
    until("it is raised", || guest.adjustment() > own());
    let set = guest.adjustment();
    guest.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    until("it has a child", || out.exists());
    let child: u32 = fs::read_to_string(&out).unwrap().trim().parse().unwrap();
    let start_ns = ProcRoot::open(Path::new("/proc")).unwrap().process(Pid(child)).unwrap().start_ns;
    assert_eq!(adjustment(child), set);
    let heir = Large { id: VictimId { pid: Pid(child), start_ns }, usage: Pages(10), protected: false };
    let user = near(&[]).line.uid;
    // What we made of it is nobody's preference; what somebody else set is, and so is what others have.
    for id in [guest.large(900).id, heir.id] {
        assert_eq!(one.originals.of(id, user, set), own());
        assert_eq!(one.originals.of(id, user, set - 1), set - 1);
    }
    assert_eq!(one.originals.of(heir.id, ALICE, set), set);
    one.defence.near(near(&[guest.large(900), heir]));
    settled(&mut one, false);
    assert_eq!(guest.adjustment(), set);
    let mut next = machine.start();
    until("both are put back", || (guest.adjustment(), adjustment(child)) == (own(), own()));
    until("nothing is raised", || next.originals.of(heir.id, user, set) == set);
    next.defence.stop(true).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(child.try_into().unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

#[test]
fn protected_and_negative_ones_are_never_touched() {
    let machine = Machine::new();
    let (shielded, small) = (Guest::start(SLEEP), Guest::start(SLEEP));
    let mut one = machine.start();
    let protected = Large { protected: true, ..shielded.large(900) };
    one.defence.near(near(&[protected, small.large(10)]));
    until("the small one is raised", || small.adjustment() > own());
    assert_eq!(shielded.adjustment(), own());
    settled(&mut one, true);
}

#[test]
fn leftovers_of_another_boot_are_forgotten() {
    let machine = Machine::new();
    let record = r#"{"version":1,"boot_id":"another","raised":[],"slices":[{"uid":60140,"ours":{"Yielded":{"line":1}},"had_drop_in":false,"seen":null}]}"#;
    fs::write(machine.path("last-defence.json"), record).unwrap();
    let found = std::thread::scope(|scope| {
        scope.spawn(|| super::undo_leftovers(machine.root.path(), Bytes(1 << 30)).unwrap()).join().unwrap()
    });
    assert_eq!(found, Leftovers::Nothing);
}

#[test]
fn one_that_arranges_nothing_says_so() {
    let mut absent = LastDefence::absent();
    absent.lines(vec![line(400, Action::Kill)]);
    absent.near(near(&[]));
    assert!(absent.words(true, false).starts_with("off: "), "{}", absent.words(true, false));
    absent.stop(true).unwrap();
}
