//! The tmalloc socket of a real daemon, spoken to by processes of other users: what fits is granted, what does not is refused
//! and in the history, a daemon that is killed loses nothing, and whoever misbehaves harms only itself.
#![cfg(test)]

mod support;

use plimsoll_sys::bpf::AccountFacts;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{Fixture, SOON, assert_has, program::Program, until, wait_for};

/// Who asks for memory.
const USER: u32 = 60_200;
/// Somebody else, with a line too.
const OTHER: u32 = 60_201;
/// Who misbehaves.
const MALLORY: u32 = 60_202;

const MIB: u64 = 1 << 20;

/// Before every client: how to connect, and how to ask.
const CLIENT: &str = r#"
import select, socket, struct, threading
PATH = os.environ["PLIMSOLL_TMALLOC_SOCKET"]
MIB = 1 << 20
HELLO, RESERVE, SETTLED, GAVE_BACK, RECALLED, CANCEL, HEADROOM = 1, 2, 3, 4, 5, 6, 7
WELCOME, GRANTED, REFUSED, RECALL, SOFT, HEADROOM_IS, FAULT = 129, 130, 131, 132, 133, 134, 135
FOREVER = 2**64 - 1
def send(s, kind, seq=0, a=0, b=0, c=0): s.send(struct.pack("=IIQQQ", kind, seq, a, b, c))
def take(s):
    message = s.recv(64)
    return struct.unpack("=IIQQQ", message) if len(message) == 32 else (0, 0, 0, 0, 0)
def raw():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(PATH)
    s.settimeout(20)
    return s
def connect(watch=0):
    s = raw()
    send(s, HELLO, 0, 1, watch)
    welcome = take(s)
    assert welcome[0] == WELCOME and welcome[3] == mmap.PAGESIZE, welcome
    return s
def reserve(s, size, wait=0, seq=1):
    send(s, RESERVE, seq, size, wait)
    return take(s)
def populate(size):
    m = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    m.madvise(23)
    return m
"#;

fn client(fixture: &Fixture, user: u32, script: &str) -> Program {
    fixture.python(user, &format!("{CLIENT}{script}"))
}

/// A line of which nobody is killed here, whatever the client's own memory.
fn draw(fixture: &Fixture, user: u32, mebibytes: u64) {
    fixture.limit(user, &format!("{mebibytes}M"), &["--action", "kill"]);
}

fn refusals(fixture: &Fixture) -> Vec<Value> {
    fixture.history().into_iter().filter(|one| one["guard"] == "tmalloc").collect()
}

#[test]
fn a_grant_becomes_usage_once_and_a_refusal_is_in_the_history() {
    let fixture = fixture!();
    draw(&fixture, USER, 64);
    let mut asker = client(
        &fixture,
        USER,
        "s = connect()\nsay('ready')\nhear()\nsay(*reserve(s, 16 * MIB))\nhear()\nm = populate(16 * MIB)\nsend(s, SETTLED)\n\
         say('settled')\n\
         hear()\nsay(*reserve(s, 60 * MIB))\nhear()\n",
    );
    assert_eq!(asker.line(), "ready");
    let before = fixture.account(USER).unwrap()["usage_bytes"].as_u64().unwrap();
    asker.tell("");
    assert_eq!(asker.line(), format!("130 1 {} 0 0", 16 * MIB));
    assert_eq!(fixture.reserved_bytes(USER), 16 * MIB);
    asker.tell("");
    assert_eq!(asker.line(), "settled");
    fixture.assert_nothing_reserved(USER);
    let after = fixture.account(USER).unwrap()["usage_bytes"].as_u64().unwrap();
    assert!(after - before >= 16 * MIB && after - before < 17 * MIB, "{before} and then {after}");
    asker.tell("");
    let told = asker.line();
    let fields: Vec<u64> = told.split(' ').map(|field| field.parse().unwrap()).collect();
    assert_eq!((fields[0], fields[2], fields[4]), (131, 1, 63 * MIB), "{told}");
    let incident = until("the refusal is recorded", SOON, || refusals(&fixture).first().cloned());
    assert_has(
        &incident,
        &json!({"action": "refuse", "trigger": "daemon", "account": format!("user:{USER}")}),
    );
    assert_eq!(incident["requested_bytes"], 60 * MIB);
    assert_eq!(
        (incident["hard_bytes"].as_u64(), incident["usage_bytes"].as_u64()),
        (Some(64 * MIB), Some(fields[3]))
    );
    assert_eq!(incident["victims"][0]["pid"], asker.pid());
    assert_eq!(incident["victims"][0]["comm"], "python3");
    let numbers = format!("{}+{}>{} KiB", fields[3] / 1024, 60 * 1024, 63 * 1024);
    assert_eq!(incident["reason"], numbers);
    let story = fixture.ok(&["why", &incident["id"].to_string()]);
    assert!(story.contains(&numbers), "{story}");
    let state = &fixture.status()["guards"]["tmalloc"];
    assert_has(state, &json!({"state": "on", "granted": 1, "refused": 1}));
    fixture.assert_nobody_killed();
}

#[test]
fn a_user_without_a_line_is_told_so_and_granted_everything() {
    let fixture = fixture!();
    let script = "s = raw()\nsend(s, HELLO, 0, 1)\nsay(take(s)[4])\nsay(reserve(s, 1 << 50)[0])\nsend(s, HEADROOM, 9)\n\
                  say(*take(s))\nhear()\nsay(reserve(s, 1 << 50)[0])\n";
    let mut asker = client(&fixture, USER, script);
    assert_eq!((asker.line(), asker.line()), ("0".to_owned(), "130".to_owned()));
    assert_eq!(asker.line(), format!("134 9 {} 0 0", u64::MAX));
    // One that is drawn later holds for connections that were there before.
    draw(&fixture, USER, 64);
    asker.tell("");
    assert_eq!(asker.line(), "131");
}

#[test]
fn many_that_ask_for_more_than_there_is_all_hear_of_it_and_nobody_dies() {
    let fixture = fixture!();
    draw(&fixture, USER, 96);
    let script = "s = connect()\nkept = []\nsay('ready')\nhear()\nwhile True:\n    kind = reserve(s, 65536)[0]\n    \
                  if kind != GRANTED: break\n    kept.append(populate(65536))\n    send(s, SETTLED)\nsay(len(kept))\nhear()\n";
    let mut askers: Vec<Program> = (0..4).map(|_| client(&fixture, USER, script)).collect();
    askers.iter_mut().for_each(|one| assert_eq!(one.line(), "ready"));
    askers.iter_mut().for_each(|one| one.tell(""));
    let pieces: u64 = askers.iter_mut().map(|one| one.line().parse::<u64>().unwrap()).sum();
    let AccountFacts { peak, hard, .. } = fixture.facts(USER);
    println!("{pieces} pieces of 64 KiB; the most that was used: {peak} of {hard} pages");
    assert!(pieces * 65_536 > 32 * MIB, "{pieces} pieces");
    assert!(peak <= hard, "{peak} pages of {hard}");
    fixture.assert_nothing_reserved(USER);
    for asker in &mut askers {
        asker.tell("");
        assert!(asker.end().success());
    }
    fixture.assert_nobody_killed();
}

#[test]
fn who_waits_gets_what_others_leave_in_the_order_of_arrival() {
    let fixture = fixture!();
    draw(&fixture, USER, 96);
    let holding =
        "s = connect()\nsay(reserve(s, 48 * MIB)[0])\nm = populate(48 * MIB)\nsend(s, SETTLED)\nhear()\n";
    let mut holder = client(&fixture, USER, holding);
    assert_eq!(holder.line(), "130");
    let waiting = "s = connect()\nsend(s, RESERVE, 5, SIZE * MIB, FOREVER)\nsay('asked')\nsay(*take(s)[:2])\n\
                   m = populate(SIZE * MIB)\nsend(s, SETTLED)\nsay('has')\nhear()\n";
    let mut large = client(&fixture, USER, &waiting.replace("SIZE", "40"));
    assert_eq!(large.line(), "asked");
    let mut timed = client(&fixture, USER, "s = connect()\nsay(reserve(s, 40 * MIB, 300)[:3])\n");
    assert_eq!(timed.line(), "(131, 1, 2)");
    assert_eq!(fixture.status()["guards"]["tmalloc"]["waiting"], 1);
    holder.tell("");
    assert_eq!((large.line(), large.line()), ("130 5".to_owned(), "has".to_owned()));
    fixture.assert_nothing_reserved(USER);
    fixture.assert_nobody_killed();
}

#[test]
fn idle_memory_of_one_process_is_called_back_for_another() {
    let fixture = fixture!();
    draw(&fixture, USER, 96);
    let idle = "s = connect()\nw = connect(1)\nsay(reserve(s, 48 * MIB)[0])\nm = populate(48 * MIB)\nsend(s, SETTLED)\n\
                say('idle')\n\
                kind, seq, want, _, _ = take(w)\n\
                while kind != RECALL: kind, seq, want, _, _ = take(w)\nm.madvise(mmap.MADV_DONTNEED)\n\
                send(w, RECALLED, seq, 48 * MIB)\nsay(kind, want > 0)\nhear()\n";
    let mut idle = client(&fixture, USER, idle);
    assert_eq!((idle.line(), idle.line()), ("130".to_owned(), "idle".to_owned()));
    let mut asker = client(
        &fixture,
        USER,
        "s = connect()\nsay(reserve(s, 48 * MIB)[0])\nm = populate(48 * MIB)\nsend(s, SETTLED)\nsay('has')\nhear()\n",
    );
    assert_eq!((asker.line(), asker.line()), ("130".to_owned(), "has".to_owned()));
    assert_eq!(idle.line(), "132 True");
    assert!(refusals(&fixture).is_empty());
    fixture.assert_nobody_killed();
}

#[test]
fn watchers_hear_that_the_soft_limit_is_reached_and_left() {
    let fixture = fixture!();
    fixture.limit(USER, "128M", &["--soft", "48M"]);
    let mut watcher =
        client(&fixture, USER, "w = connect(1)\nsay('ready')\nsay(*take(w)[:3:2])\nsay(*take(w)[:3:2])\n");
    assert_eq!(watcher.line(), "ready");
    let mut user = client(
        &fixture,
        USER,
        "say('ready')\nhear()\nm = populate(60 * MIB)\nhear()\nm.close()\nsay('gone')\nhear()\n",
    );
    assert_eq!(user.line(), "ready");
    user.tell("");
    assert_eq!(watcher.line(), "133 1");
    user.tell("");
    assert_eq!(user.line(), "gone");
    assert_eq!(watcher.line(), "133 0");
}

#[test]
fn a_daemon_that_is_killed_loses_no_reservation_and_leaves_none() {
    let mut fixture = fixture!();
    draw(&fixture, USER, 96);
    let back = "s = connect()\nsay(reserve(s, 8 * MIB)[0])\nhear()\ns = connect()\nm = populate(8 * MIB)\nsend(s, SETTLED)\n\
                say(reserve(s, MIB)[0])\nsend(s, SETTLED)\nsay('settled')\nhear()\n";
    let ends = "s = connect()\nsay(reserve(s, 8 * MIB)[0])\nhear()\n";
    let silent = "s = connect()\nsay(reserve(s, 8 * MIB)[0])\nhear()\nhear()\n";
    let mut clients = [back, ends, silent].map(|script| client(&fixture, USER, script));
    clients.iter_mut().for_each(|one| assert_eq!(one.line(), "130"));
    assert_eq!(fixture.reserved_bytes(USER), 24 * MIB);
    fixture.end_daemon(Signal::KILL);
    // One ends while nobody is there.
    clients[1].tell("");
    assert!(clients[1].end().success());
    fixture.launch();
    let began = Instant::now();
    assert_eq!(fixture.reserved_bytes(USER), 16 * MIB);
    clients[0].tell("");
    assert_eq!((clients[0].line(), clients[0].line()), ("130".to_owned(), "settled".to_owned()));
    wait_for("the first one's is settled", || fixture.reserved_bytes(USER) == 8 * MIB);
    // The one that does not come back has ten seconds.
    until("the last one's is settled", Duration::from_secs(15), || {
        (fixture.reserved_bytes(USER) == 0).then_some(())
    });
    assert!(began.elapsed() > Duration::from_secs(8), "after {:?}", began.elapsed());
    fixture.assert_nobody_killed();
}

/// Measures how long grants take it, each time it is told to.
const BYSTANDER: &str = r"
s = connect()
say('ready')
while hear():
    worst = 0
    for n in range(300):
        began = time.monotonic()
        assert reserve(s, 65536)[0] == GRANTED
        worst = max(worst, time.monotonic() - began)
        send(s, SETTLED)
    say(int(worst * 1e6))
";

const ATTACKS: [&str; 4] = [
    // Bytes of any length.
    r"
import random
say('on')
while True:
    try:
        s = raw()
        for _ in range(4): s.send(os.urandom(random.choice([1, 31, 32, 33, 4096])))
        s.close()
    except OSError: pass
",
    // As many connections as there are to be had, which say nothing.
    r"
say('on')
held = []
while True:
    try: held.append(raw())
    except OSError: time.sleep(0.01)
    if len(held) > 400: held.clear()
",
    // Questions without end, whose answers nobody reads.
    r"
say('on')
while True:
    try:
        s = connect()
        s.settimeout(5)
        while True: send(s, HEADROOM)
    except (OSError, AssertionError): pass
",
    // What it does not hold is given back, what was not recalled is answered, again and again.
    r"
say('on')
while True:
    try:
        s = connect()
        for _ in range(1000):
            send(s, GAVE_BACK, 0, 2**64 - 4096)
            send(s, RECALLED, 7, 2**63)
            send(s, SETTLED)
            send(s, CANCEL, 3)
    except (OSError, AssertionError): pass
",
];

#[test]
fn garbage_and_floods_disturb_nobody_else() {
    let fixture = fixture!();
    draw(&fixture, USER, 96);
    draw(&fixture, OTHER, 96);
    let mut bystander = client(&fixture, OTHER, BYSTANDER);
    assert_eq!(bystander.line(), "ready");
    let before = fixture.open_files();
    let mut attackers: Vec<Program> = ATTACKS
        .iter()
        .flat_map(|script| [client(&fixture, MALLORY, script), client(&fixture, USER, script)])
        .collect();
    attackers.iter_mut().for_each(|one| assert_eq!(one.line(), "on"));
    for _ in 0..3 {
        bystander.tell("again");
        let worst: u64 = bystander.line().parse().unwrap();
        println!("the longest of 300 grants took {worst} us among {} attackers", attackers.len());
        assert!(worst < 3_000_000, "{worst} us");
    }
    fixture.status();
    drop(attackers);
    until("everything is closed", Duration::from_secs(15), || (fixture.open_files() <= before).then_some(()));
    fixture.assert_nothing_reserved(OTHER);
    fixture.assert_nobody_killed();
}

/// Before a flood: what it sends. It costs its sender little, and has no answer.
const FLOOD: &str = r#"
message = struct.pack("=IIQQQ", GAVE_BACK, 0, 4096, 0, 0)
def lines(count):
    held = [connect() for _ in range(count)]
    for s in held: s.settimeout(None)
    return held
"#;

/// One user's floods: what each is called, the script, and how many processes run it.
const FLOODS: [(&str, &str, usize); 4] = [
    ("one connection", "s, = lines(1)\nsay('on')\nwhile True: s.send(message)\n", 1),
    (
        "16 connections of 4 processes",
        "held = lines(4)\nsay('on')\nwhile True:\n    for s in held: s.send(message)\n",
        4,
    ),
    (
        "connections that say nothing",
        "say('on')\nwhile True:\n    try: raw().close()\n    except OSError: pass\n",
        2,
    ),
    (
        "connections that say HELLO",
        "say('on')\nwhile True:\n    try: connect().close()\n    except (OSError, AssertionError): pass\n",
        2,
    ),
];

/// Measures how long a connection takes it that is made anew, and grants on one that it has: the longest, and half of them.
const PASSER_BY: &str = r"
s = connect()
say('ready')
def timed(what, times):
    took = []
    for n in range(times):
        began = time.monotonic()
        what()
        took.append(int((time.monotonic() - began) * 1e6))
        time.sleep(0.005)
    took.sort()
    return took[-1], took[times // 2]
def grant():
    assert reserve(s, 65536)[0] == GRANTED
    send(s, SETTLED)
while hear(): say(*timed(grant, 100), *timed(lambda: connect().close(), 20))
";

#[test]
fn whoever_sends_or_connects_without_end_has_little_of_a_cpu_and_the_others_their_answers() {
    let fixture = fixture!();
    draw(&fixture, MALLORY, 96);
    draw(&fixture, OTHER, 96);
    let mut other = client(&fixture, OTHER, PASSER_BY);
    assert_eq!(other.line(), "ready");
    let open = || fixture.status()["guards"]["tmalloc"]["connections"].as_u64().unwrap();
    let before = open();
    for (name, script, processes) in FLOODS {
        let script = format!("{FLOOD}{script}");
        let mut flood: Vec<Program> = (0..processes).map(|_| client(&fixture, MALLORY, &script)).collect();
        flood.iter_mut().for_each(|one| assert_eq!(one.line(), "on"));
        // What nobody has to wait for is used up.
        std::thread::sleep(Duration::from_millis(500));
        let percent = fixture.percent_of_a_cpu(Duration::from_secs(2));
        other.tell("ask");
        let told = other.line();
        println!(
            "{name}: {percent:.1} % of a CPU; us of another's grant (longest, median) and connection: {told}"
        );
        let took: Vec<u64> = told.split(' ').map(|field| field.parse().unwrap()).collect();
        assert!(took[0] < 3_000_000 && took[2] < 3_000_000, "{name}: {told} us");
        assert!(percent <= 25.0, "{name} takes {percent:.1} % of a CPU");
        drop(flood);
        // Before one that has not said HELLO is closed for that.
        until("everything is closed", Duration::from_secs(3), || (open() <= before).then_some(()));
    }
}

#[test]
fn a_stopped_daemon_takes_its_socket_with_it() {
    let mut fixture = fixture!();
    assert!(fixture.path("tmalloc.sock").exists());
    assert!(fixture.end_daemon(Signal::TERM).success());
    assert!(!fixture.path("tmalloc.sock").exists());
    // One that was killed does not, and the next takes its place.
    fixture.launch();
    fixture.end_daemon(Signal::KILL);
    assert!(fixture.path("tmalloc.sock").exists());
    fixture.launch();
    // It loads its programs once the daemon answers.
    wait_for("tmalloc is on", || fixture.status()["guards"]["tmalloc"]["state"] == "on");
}
