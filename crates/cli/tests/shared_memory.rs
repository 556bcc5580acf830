//! Shared memory is charged to who owns it, once and within a second; it ends the right process, and nobody for what another
//! user may have done.
#![cfg(test)]

mod support;

use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};
use support::{ALICE, BOB, Fixture, program::Program, slowness, until, wait_for};

const MIB: u64 = 1 << 20;

const OWNED: &str = "[limits]\nshared = \"owner\"\n";

/// From its growth until it is charged, and as long for asking: `limit show` starts a program.
const SEEN: Duration = Duration::from_millis(1200);

/// What makes shared memory, by kind, and keeps it as the test wants it.
const KINDS: &str = "import ctypes\n\
    PATH = '/dev/shm/plimsoll-test-' + str(os.getuid())\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    libc.shmat.restype = ctypes.c_void_p\n\
    def filled(area, size): ctypes.memset((ctypes.c_char * size).from_buffer(area), 1, size); return area\n\
    def anonymous(size): return filled(mmap.mmap(-1, size), size)\n\
    def memfd(size):\n\
    \x20   fd = os.memfd_create('test'); os.truncate(fd, size); return filled(mmap.mmap(fd, size), size), fd\n\
    def written(fd, size):\n\
    \x20   for _ in range(size >> 20): os.write(fd, bytes(1 << 20))\n\
    \x20   return fd\n\
    def unmapped(size): return written(os.memfd_create('test'), size)\n\
    def file(size, mode=0o600):\n\
    \x20   fd = os.open(PATH, os.O_RDWR | os.O_CREAT, mode); os.fchmod(fd, mode); return written(fd, size)\n\
    def mapped(size):\n\
    \x20   fd = file(size); area = mmap.mmap(fd, size); os.close(fd); return area\n\
    def closed(size): os.close(file(size))\n\
    def unlinked(size):\n\
    \x20   fd = file(0); os.unlink(PATH); os.truncate(fd, size); return filled(mmap.mmap(fd, size), size)\n\
    def attached(size):\n\
    \x20   global segment\n\
    \x20   segment = libc.shmget(0, ctypes.c_size_t(size), 0o1600)\n\
    \x20   at = libc.shmat(segment, None, 0); ctypes.memset(at, 1, size); return at\n\
    def detached(size): libc.shmdt(ctypes.c_void_p(attached(size)))\n";

/// A file that goes with the test.
struct Left(PathBuf);

impl Left {
    fn of(user: u32) -> Self {
        Self(PathBuf::from(format!("/dev/shm/plimsoll-test-{user}")))
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

fn shared_bytes(fixture: &Fixture, user: u32) -> u64 {
    fixture.account(user).unwrap()["shared_bytes"].as_u64().unwrap()
}

/// Draws Alice's line, and waits for the first walk: nobody ends for a file that may have been handed over before it.
fn limit(fixture: &Fixture, size: &str, options: &[&str]) {
    fixture.limit(ALICE, size, options);
    wait_for("it is walked", || !fixture.account(ALICE).unwrap()["shared_bytes"].is_null());
}

/// Said with the first walk.
fn tells_handed(fixture: &Fixture) -> bool {
    !fixture.log().contains("does not tell who is handed a file")
}

/// A program of a user's that makes shared memory when it is told to, and says so.
fn maker(fixture: &Fixture, user: u32, script: &str) -> Program {
    fixture.python(user, &format!("{KINDS}say('ready')\nhear()\n{script}\nsay('full')\nhear()\n")).ready()
}

#[track_caller]
fn fill(program: &mut Program) -> Instant {
    program.tell("go");
    program.stage("full");
    Instant::now()
}

#[track_caller]
fn charged_in_time(fixture: &Fixture, user: u32, bytes: u64, since: Instant, what: &str) {
    wait_for(&format!("{what} is charged"), || shared_bytes(fixture, user) == bytes);
    let took = since.elapsed();
    assert!(took <= SEEN * slowness(), "{what} was charged after {took:?}");
}

#[test]
fn each_kind_is_charged_once_within_a_second_and_no_more_when_it_is_gone() {
    let fixture = fixture!(OWNED);
    let _left = Left::of(ALICE);
    limit(&fixture, "256M", &[]);
    let keep = fixture.python(ALICE, "say('ready')\nhear()\n").ready();
    wait_for("nothing is charged yet", || shared_bytes(&fixture, ALICE) == 0);
    let gone = "libc.shmctl(segment, 0, None)";
    for (make, end) in [
        ("kept = anonymous(32 << 20)", ""),
        ("kept = memfd(32 << 20)", ""),
        ("kept = unmapped(32 << 20)", ""),
        ("kept = mapped(32 << 20)", "os.unlink(PATH)"),
        ("closed(32 << 20)", "os.unlink(PATH)"),
        ("attached(32 << 20)", gone),
        ("detached(32 << 20)", gone),
    ] {
        let mut program = maker(&fixture, ALICE, &format!("{make}\nsay('made')\nhear()\n{end}"));
        program.tell("go");
        program.stage("made");
        charged_in_time(&fixture, ALICE, 32 * MIB, Instant::now(), make);
        let usage = fixture.account(ALICE).unwrap()["usage_bytes"].as_u64().unwrap();
        assert!((32 * MIB..64 * MIB).contains(&usage), "{make}: {usage}");
        fill(&mut program);
        program.tell("end");
        program.end();
        wait_for(&format!("{make} is gone"), || shared_bytes(&fixture, ALICE) == 0);
    }
    drop(keep);
    fixture.assert_nobody_killed();
}

#[test]
fn who_ignores_that_it_is_asked_to_end_is_ended_after_the_grace_period() {
    let fixture = fixture!("[limits]\nshared = \"owner\"\nterm_grace_ms = 1000\n");
    limit(&fixture, "64M", &["--action", "term"]);
    let mut stubborn = maker(
        &fixture,
        ALICE,
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nkept = anonymous(128 << 20)\n",
    );
    stubborn.tell("go");
    stubborn.killed();
    let actions: Vec<Value> = fixture.incidents(2).iter().map(|one| one["action"].clone()).collect();
    assert_eq!(actions, ["term", "kill"]);
    // Nor does the guard run on and on.
    let cost = fixture.percent_of_a_cpu(Duration::from_secs(2));
    assert!(cost < 50.0, "{cost} % of a CPU");
}

#[test]
fn eight_processes_that_map_it_are_charged_once_and_nobody_is_killed_below_the_line() {
    let fixture = fixture!(OWNED);
    limit(&fixture, "400M", &[]);
    let mut server = maker(
        &fixture,
        ALICE,
        "kept = anonymous(256 << 20)\n\
         for _ in range(8):\n\
         \x20   if not os.fork(): signal.alarm(60); sum(kept[::4096]); time.sleep(60)\n",
    );
    let since = fill(&mut server);
    charged_in_time(&fixture, ALICE, 256 * MIB, since, "a server's shared memory");
    until("it has been looked at a while", Duration::from_secs(20), || {
        (since.elapsed() > Duration::from_secs(3)).then_some(())
    });
    assert_eq!(shared_bytes(&fixture, ALICE), 256 * MIB);
    fixture.assert_nobody_killed();
}

#[test]
fn who_holds_what_passes_the_line_is_ended_and_nobody_else() {
    let fixture = fixture!(OWNED);
    let _left = Left::of(ALICE);
    limit(&fixture, "64M", &[]);
    let mut kinds = vec!["kept = anonymous(128 << 20)"];
    // What has a descriptor ends nobody where programs do not see who is handed it.
    if tells_handed(&fixture) {
        kinds.extend(["kept = memfd(128 << 20)", "kept = unmapped(128 << 20)", "kept = unlinked(128 << 20)"]);
    }
    for (made, make) in (1..).zip(kinds) {
        let mut bystander =
            fixture.python(ALICE, "kept = bytearray(24 << 20)\nsay('ready')\nhear()\n").ready();
        let mut hog = maker(&fixture, ALICE, make);
        hog.tell("go");
        hog.killed();
        assert!(bystander.runs(), "{make}: the bystander was ended");
        let incidents = fixture.incidents(made);
        let last = incidents.last().unwrap();
        assert_eq!(incidents.len(), made, "{make}: {incidents:?}");
        assert_eq!(last["victims"][0]["pid"].as_u64(), Some(hog.pid().into()), "{last}");
        wait_for("it is gone", || shared_bytes(&fixture, ALICE) == 0);
        assert!(bystander.runs(), "{make}: the bystander was ended afterwards");
    }
}

#[test]
fn all_who_hold_it_are_ended_and_then_nobody() {
    let fixture = fixture!(OWNED);
    limit(&fixture, "64M", &[]);
    let mut bystander = fixture.python(ALICE, "say('ready')\nhear()\n").ready();
    let mut server = maker(
        &fixture,
        ALICE,
        "kept = mmap.mmap(-1, 128 << 20)\n\
         for _ in range(3):\n\
         \x20   if not os.fork(): signal.alarm(60); time.sleep(60)\n\
         filled(kept, 128 << 20)\n",
    );
    server.tell("go");
    server.killed();
    wait_for("all of it is gone", || shared_bytes(&fixture, ALICE) == 0);
    assert!(bystander.runs(), "who held none of it was ended");
    assert!(fixture.history().len() <= 4, "{:?}", fixture.history());
}

#[test]
fn what_another_user_may_have_filled_or_nobody_holds_is_told_once_and_ends_nobody() {
    let fixture = fixture!(OWNED);
    let left = Left::of(ALICE);
    limit(&fixture, "64M", &[]);
    let mut alice = maker(&fixture, ALICE, "kept = file(1 << 20, 0o666)");
    fill(&mut alice);
    let mut bob = fixture.python(
        BOB,
        &format!(
            "{KINDS}fd = os.open('{}', os.O_RDWR | os.O_APPEND)\nwritten(fd, 128 << 20)\nsay('full')\n",
            left.0.display()
        ),
    );
    bob.stage("full");
    let told = fixture.incidents(1);
    assert_has_shared_notice(&told[0]);
    until("it is looked at a while", Duration::from_secs(20), || {
        fixture.python(ALICE, "kept = bytearray(8 << 20)\nsay('ready')\n").ready();
        (shared_bytes(&fixture, ALICE) == 129 * MIB).then_some(())
    });
    let shown = fixture.ok(&["limit", "show"]);
    assert!(shown.contains("plimsoll-test-60100"), "{shown}");
    assert!(alice.runs());
    fs::remove_file(&left.0).unwrap();
    alice.stop();
    wait_for("it is gone", || shared_bytes(&fixture, ALICE) == 0);
    // A file that a directory has stays, whoever of those that have it mapped is killed.
    let mut other = maker(&fixture, ALICE, "kept = mapped(128 << 20)");
    fill(&mut other);
    let since = Instant::now();
    until("it is looked at a while", Duration::from_secs(20), || {
        fixture.python(ALICE, "kept = bytearray(8 << 20)\nsay('ready')\n").ready();
        (since.elapsed() > Duration::from_secs(3)).then_some(())
    });
    assert!(other.runs());
    // Nor is it said again, however often she passes the line with what lasts.
    assert_eq!(fixture.history().len(), 1, "{:?}", fixture.history());
}

#[test]
fn what_another_user_was_handed_and_filled_ends_nobody_though_they_let_go_of_it_at_once() {
    let fixture = fixture!(OWNED);
    limit(&fixture, "64M", &[]);
    let mut bob = fixture.python(
        BOB,
        &format!(
            "{KINDS}import socket\n\
             door = socket.socket(socket.AF_UNIX); door.bind('\\0plimsoll-test-handed'); door.listen(1)\n\
             say('ready')\nfd = socket.recv_fds(door.accept()[0], 1, 1)[1][0]\nwritten(fd, 128 << 20)\n\
             os.close(fd)\nsay('full')\nhear()\n"
        ),
    );
    bob.stage("ready");
    let mut alice = fixture.python(
        ALICE,
        &format!(
            "{KINDS}import socket\nfd = os.memfd_create('handed')\n\
             to = socket.socket(socket.AF_UNIX); to.connect('\\0plimsoll-test-handed')\n\
             socket.send_fds(to, [b'x'], [fd])\nsay('ready')\nhear()\n"
        ),
    );
    alice.stage("ready");
    bob.stage("full");
    assert_has_shared_notice(&fixture.incidents(1)[0]);
    // Each of these has it walked.
    for _ in 0..2 {
        let mut another = maker(&fixture, ALICE, "kept = unmapped(1 << 20)");
        fill(&mut another);
        wait_for("it is walked", || shared_bytes(&fixture, ALICE) == 129 * MIB);
        drop(another);
        wait_for("it is walked again", || shared_bytes(&fixture, ALICE) == 128 * MIB);
    }
    assert!(alice.runs());
    assert_eq!(fixture.history().len(), 1, "{:?}", fixture.history());
}

#[test]
fn who_has_hundreds_of_shared_files_open_is_known_with_all_of_them() {
    let fixture = fixture!(OWNED);
    limit(&fixture, "64M", &[]);
    let mut bystander = fixture.python(ALICE, "say('ready')\nhear()\n").ready();
    let mut hog = maker(
        &fixture,
        ALICE,
        "import resource; most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most)); kept = []\n\
         for _ in range(900): kept.append(os.memfd_create('one')); os.write(kept[-1], bytes(128 << 10))\n\
         say('made')",
    );
    hog.tell("go");
    if tells_handed(&fixture) {
        hog.killed();
    } else {
        hog.stage("made");
        wait_for("it is charged", || shared_bytes(&fixture, ALICE) == 900 * (128 << 10));
        assert_has_shared_notice(&fixture.incidents(1)[0]);
    }
    assert!(bystander.runs());
    assert!(!fixture.ok(&["limit", "show"]).contains("not fully known"));
}

#[test]
fn who_has_more_open_than_is_looked_at_is_named_and_nobody_else_is_the_worse_for_it() {
    let fixture = fixture!(OWNED);
    limit(&fixture, "64M", &[]);
    fixture.limit(BOB, "64M", &[]);
    let mut alice = maker(
        &fixture,
        ALICE,
        "import resource; most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)); most = min(most, 300000)\n\
         kept = [written(os.memfd_create('many'), 1 << 20) for _ in range(16)]\n\
         for _ in range(most - 200): os.dup(kept[0])\n\
         for _ in range(1200000 // most):\n\
         \x20   if not os.fork(): signal.alarm(60); time.sleep(60)\n\
         say('named')\nhear()\nkept = anonymous(128 << 20)",
    );
    alice.tell("go");
    alice.stage("named");
    wait_for("she is named", || fixture.ok(&["limit", "show"]).contains("not fully known"));
    wait_for("the journal names her", || fixture.log().contains("is not fully known"));
    wait_for("it is charged", || shared_bytes(&fixture, ALICE) == 16 * MIB);
    let mut hog = maker(&fixture, BOB, "kept = anonymous(128 << 20)");
    hog.tell("go");
    hog.killed();
    // Nor is she spared.
    alice.tell("go");
    alice.killed();
}

#[test]
fn who_lowers_the_own_line_is_not_ended_for_what_is_there_and_raises_nothing_above_what_was_in_force() {
    let fixture = fixture!(OWNED);
    limit(&fixture, "256M", &[]);
    let mut alice = maker(
        &fixture,
        ALICE,
        "kept = anonymous(60 << 20)\nsay('made')\nhear()\nmore = anonymous(300 << 20)",
    );
    alice.tell("go");
    alice.stage("made");
    let own = |size| fixture.run_as(ALICE, &["limit", "set", &ALICE.to_string(), size]);
    assert_eq!(own("20M").0, 0);
    let since = Instant::now();
    until("it was walked some times", Duration::from_secs(20), || {
        (since.elapsed() > Duration::from_secs(2)).then_some(())
    });
    assert!(alice.runs());
    for _ in 0..5 {
        for size in ["200M", "20M"] {
            // Changed again sooner it is refused.
            wait_for("it is taken", || own(size).0 == 0);
        }
    }
    alice.tell("go");
    alice.killed();
    let account = fixture.account(ALICE).unwrap();
    assert!(account["effective_bytes"].as_u64().unwrap() <= 256 * MIB, "{account}");
}

#[test]
fn what_lasted_when_a_line_was_drawn_makes_no_room_for_more_while_it_lasts() {
    let fixture = fixture!(OWNED);
    let _left = Left::of(ALICE);
    let mut before = maker(&fixture, ALICE, "closed(100 << 20)");
    fill(&mut before);
    limit(&fixture, "64M", &[]);
    wait_for("it is charged", || shared_bytes(&fixture, ALICE) == 100 * MIB);
    let mut hog = maker(&fixture, ALICE, "kept = anonymous(96 << 20)");
    hog.tell("go");
    hog.killed();
    assert!(before.runs());
}

#[test]
fn who_forks_anew_as_one_ends_is_ended_with_all_who_hold_the_same() {
    let fixture = fixture!(OWNED);
    limit(&fixture, "64M", &[]);
    let mut bystander = fixture.python(ALICE, "say('ready')\nhear()\n").ready();
    let mut phoenix = maker(
        &fixture,
        ALICE,
        "kept = filled(mmap.mmap(-1, 128 << 20), 128 << 20)\n\
         until = time.monotonic() + 30\n\
         while time.monotonic() < until:\n\
         \x20   before = os.getpid()\n\
         \x20   signal.alarm(30)\n\
         \x20   child = os.fork()\n\
         \x20   if child: os.waitpid(child, 0)\n\
         \x20   while not child and os.getppid() == before and time.monotonic() < until: time.sleep(.002)\n",
    );
    phoenix.tell("go");
    phoenix.killed();
    wait_for("all of it is gone", || shared_bytes(&fixture, ALICE) == 0);
    assert!(bystander.runs(), "who held none of it was ended");
    let together = |one: &Value| one["victims"].as_array().is_some_and(|victims| victims.len() == 2);
    assert!(fixture.history().iter().any(together), "{:?}", fixture.history());
}

#[test]
fn who_passes_the_line_again_after_it_was_made_good_ends_alone_again() {
    let fixture = fixture!(OWNED);
    limit(&fixture, "64M", &[]);
    let mut server = maker(
        &fixture,
        ALICE,
        "kept = filled(mmap.mmap(-1, 36 << 20), 36 << 20)\n\
         signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n\
         def grows():\n\
         \x20   signal.alarm(60); signal.sigwait([signal.SIGUSR1]); own = b'x' * (24 << 20); time.sleep(60)\n\
         children = [os.fork() or grows() for _ in range(2)]\n\
         for child in children:\n\
         \x20   say('growing'); os.kill(child, signal.SIGUSR1); os.waitpid(child, 0); say('ended'); hear()\n",
    );
    server.tell("go");
    for ended in 1..=2 {
        server.stage("growing");
        server.stage("ended");
        wait_for("it is written down", || fixture.history().len() == ended);
        wait_for("a walk finds it made good", || {
            fixture.account(ALICE).unwrap()["usage_bytes"].as_u64().unwrap() < 60 * MIB
        });
        std::thread::sleep(Duration::from_millis(2500));
        server.tell("on");
    }
    server.stage("full");
    let alone = |one: &Value| one["victims"].as_array().is_some_and(|victims| victims.len() == 1);
    assert!(fixture.history().iter().all(alone), "{:?}", fixture.history());
}

#[test]
fn a_crowd_that_has_it_mapped_is_ended_for_it() {
    let fixture = fixture!(OWNED);
    limit(&fixture, "64M", &[]);
    let mut crowd = maker(
        &fixture,
        ALICE,
        "kept = mmap.mmap(-1, 128 << 20)\n\
         for _ in range(260):\n\
         \x20   if not os.fork(): signal.alarm(60); time.sleep(60)\n\
         filled(kept, 128 << 20)\n",
    );
    crowd.tell("go");
    crowd.killed();
    wait_for("all of it is gone", || shared_bytes(&fixture, ALICE) == 0);
}

#[track_caller]
fn assert_has_shared_notice(incident: &Value) {
    assert_eq!(incident["reason"], "over-hard-limit-shared-lasts", "{incident}");
    assert_eq!((&incident["action"], &incident["guard"]), (&"notify".into(), &"limits".into()), "{incident}");
    assert_eq!(incident["victims"].as_array().map(Vec::len), Some(0), "{incident}");
}

#[test]
fn what_was_there_when_a_line_was_drawn_ends_nobody_and_ignored_it_is_not_charged() {
    let fixture = fixture!(OWNED);
    let mut hog = maker(&fixture, ALICE, "kept = anonymous(128 << 20)");
    fill(&mut hog);
    limit(&fixture, "64M", &[]);
    wait_for("it is charged", || shared_bytes(&fixture, ALICE) == 128 * MIB);
    let account = fixture.account(ALICE).unwrap();
    assert!(account["effective_bytes"].as_u64().unwrap() >= 128 * MIB, "{account}");
    fixture.configure("[limits]\nshared = \"ignore\"\n");
    fixture.reload();
    wait_for("it is not charged", || {
        fixture.account(ALICE).unwrap()["usage_bytes"].as_u64().unwrap() < 64 * MIB
    });
    assert_eq!(fixture.account(ALICE).unwrap()["shared_bytes"], Value::Null);
    assert!(hog.runs());
    fixture.assert_nobody_killed();
}
