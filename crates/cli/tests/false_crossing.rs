//! What looks like a crossing and is none kills nobody; what is one and looks like none is seen.
#![cfg(test)]

mod forging;
mod support;

use std::{
    fs,
    time::{Duration, Instant},
};
use support::{ALICE, BOB, Fixture, SOON, exact, until, wait_for};

/// Pages in a line of so many MiB.
fn pages(mebibytes: u64) -> u64 {
    (mebibytes << 20) / exact::page_bytes()
}

#[test]
fn a_snapshot_by_fork_at_60_percent_of_the_line_kills_nobody() {
    let fixture = fixture!();
    fixture.limit(ALICE, "100M", &[]);
    let mut scripted = fixture.scripted(&[ALICE]);
    let database = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 61440");
    // As Redis saves: the child reads and ends, the parent goes on writing a part of what they share.
    for _ in 0..3 {
        scripted.tell(1, "touch 4096");
        let child = scripted.make(1, "fork 2");
        scripted.tell(1, "write");
        assert!(exact::process_pages(child).is_some());
        scripted.tell(2, "exit");
        scripted.tell(1, "free");
    }
    assert_eq!(fixture.history(), Vec::<serde_json::Value>::new());
    assert_eq!(fixture.usage_pages(ALICE), exact::process_pages(database).unwrap());
}

#[test]
fn a_server_that_forks_sixteen_workers_crosses_nothing() {
    let fixture = fixture!();
    fixture.limit(ALICE, "100M", &[]);
    let mut scripted = fixture.scripted(&[ALICE]);
    let server = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 61440");
    let before = fixture.usage_pages(ALICE);
    for worker in 2..18 {
        scripted.make(1, &format!("fork {worker}"));
        scripted.tell(worker, "touch 512");
    }
    // 60 MiB, once, and half a MiB each; stacks and the like besides.
    let usage = fixture.usage_pages(ALICE);
    assert!(usage >= before + 16 * pages(1) / 2 && usage <= before + 16 * pages(1), "{before} {usage}");
    // Long enough for surveys to find what is not there.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(fixture.usage_pages(ALICE) <= before + 16 * pages(1), "{before} {}", fixture.usage_pages(ALICE));
    assert_eq!(fixture.history(), Vec::<serde_json::Value>::new());
    for worker in (2..18).rev() {
        scripted.tell(worker, "exit");
    }
    wait_for("only the server is charged", || {
        Some(fixture.usage_pages(ALICE)) == exact::process_pages(server)
    });
}

#[test]
fn copies_that_no_counter_shows_are_charged_within_a_second_or_two_and_go_with_their_process() {
    let fixture = fixture!();
    fixture.limit(ALICE, "250M", &["--soft", "150M"]);
    let mut scripted = fixture.scripted(&[ALICE]);
    let parent = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 81920");
    scripted.make(1, "fork 2");
    let before = fixture.usage_pages(ALICE);
    scripted.tell(2, "write");
    let began = Instant::now();
    let usage = until("the copies are charged", SOON, || {
        let usage = fixture.facts(ALICE).usage.0;
        (usage >= before + pages(79)).then_some(usage)
    });
    println!("80 MiB of copies were charged after {:?}", began.elapsed());
    assert!(usage <= before + pages(82), "{before} {usage}");
    scripted.tell(2, "exit");
    wait_for("only the parent is charged", || {
        Some(fixture.usage_pages(ALICE)) == exact::process_pages(parent)
    });
    assert_eq!(fixture.history(), Vec::<serde_json::Value>::new());
}

#[test]
fn copies_past_the_line_end_one_of_the_family() {
    let fixture = fixture!();
    fixture.limit(ALICE, "100M", &[]);
    let mut scripted = fixture.scripted(&[ALICE]);
    let parent = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 61440");
    let child = scripted.make(1, "fork 2");
    // It may be the victim while it still writes.
    let wrote = scripted.attempt(2, "write");
    assert!(wrote.is_ok() || wrote == Err("gone".to_owned()), "{wrote:?}");
    let incident = fixture.incidents(1).remove(0);
    let victim = incident["victims"][0]["pid"].as_u64().unwrap();
    assert!([parent, child].map(u64::from).contains(&victim), "{incident}");
    let left = if victim == u64::from(parent) { child } else { parent };
    wait_for("the other is charged for all it has", || {
        Some(fixture.usage_pages(ALICE)) == exact::process_pages(left)
    });
    assert_eq!(fixture.history().len(), 1);
}

fn a_phantom_kills_nobody(fixture: &Fixture) {
    fixture.limit(ALICE, "48M", &[]);
    let mut scripted = fixture.scripted(&[ALICE]);
    let first = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 20480");
    let second = scripted.make(2, "start 60100");
    // Everything is at rest: the account is the test's to write to.
    forging::lost_exit(fixture.pin(), 0, fixture.facts(ALICE).index, ALICE, pages(24));
    assert!(fixture.facts(ALICE).usage.0 >= pages(43));
    // 20 + 24 + 8 MiB: past the line, if the phantom were there.
    scripted.tell(2, "touch 8192");
    wait_for("the phantom is found", || fixture.usage_pages(ALICE) == exact::user_pages(ALICE));
    assert!([first, second].iter().all(|pid| exact::process_pages(*pid).is_some()));
    assert_eq!(fixture.history(), Vec::<serde_json::Value>::new());
}

#[test]
fn a_charge_that_a_lost_exit_left_kills_nobody() {
    let fixture = fixture!();
    a_phantom_kills_nobody(&fixture);
}

#[test]
fn a_charge_that_a_lost_exit_left_kills_nobody_by_the_daemon_alone() {
    let fixture = fixture!("[limits]\ntriggers = [\"daemon\"]\n");
    a_phantom_kills_nobody(&fixture);
}

#[test]
fn subordinate_uids_are_charged_to_who_made_the_user_namespace() {
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    fixture.limit(BOB, "64M", &[]);
    fixture.owns(ALICE);
    let mut inside = fixture.python(
        ALICE,
        "libc = ctypes.CDLL(None, use_errno=True)\n\
         if libc.unshare(0x10000000) != 0: say('refused', ctypes.get_errno()); sys.exit()\n\
         say('unshared', os.getpid()); hear()\n\
         os.setresuid(1000, 1000, 1000)\n\
         if os.fork() == 0:\n\
         \x20   block = mmap.mmap(-1, 24 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
         \x20   block.madvise(mmap.MADV_NOHUGEPAGE)\n\
         \x20   for at in range(0, 24 << 20, 4096): block[at] = 1\n\
         \x20   say('full', os.getpid()); hear()\n\
         \x20   more = mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
         \x20   more.madvise(mmap.MADV_NOHUGEPAGE)\n\
         \x20   for at in range(0, 128 << 20, 4096): more[at] = 1\n\
         \x20   say('past the line')\n\
         else:\n\
         \x20   _, status = os.wait()\n\
         \x20   say('ended', status)\n",
    );
    let said = inside.line();
    let Some(pid) = said.strip_prefix("unshared ") else {
        return support::skip(said);
    };
    // What newuidmap does from /etc/subuid: the namespace's uid 1000 is 60961 out here.
    fs::write(format!("/proc/{pid}/uid_map"), "0 60100 1\n1000 60961 1\n").unwrap();
    inside.tell("go on");
    let child: u32 = inside.stage("full").trim().parse().unwrap();
    assert_eq!(exact::uid_of(child), Some(60_961));
    let usage = fixture.usage_pages(ALICE);
    assert!(usage >= pages(24), "{usage} pages");
    assert_eq!(fixture.usage_pages(BOB), 0);
    inside.tell("go on");
    assert_eq!(inside.stage("ended").trim(), "9");
    let incident = fixture.incidents(1).remove(0);
    assert_eq!((&incident["account"], &incident["victims"][0]["pid"]), (&"user:60100".into(), &child.into()));
    assert!(incident["overshoot_bytes"].as_u64().unwrap() <= 64 << 10, "{incident}");
}
