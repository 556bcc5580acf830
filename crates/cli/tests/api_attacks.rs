//! The control socket attacked by a user of this machine, against a real daemon: it goes on answering the others, it goes
//! on killing in time, and it is no larger afterwards.
#![cfg(test)]

mod support;

use serde_json::{Value, json};
use std::{
    fs,
    time::{Duration, Instant},
};
use support::{Fixture, SOON, caller::Caller, exact, program::Program, until};

/// Who attacks.
const MALLORY: u32 = 60_130;
/// Who only wants an answer.
const BYSTANDER: u32 = 60_131;
/// Whose line is crossed meanwhile.
const HOG: u32 = 60_132;

/// How long an answer may take on a machine whose CPUs the attackers use up.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// The programs take the allocating process when the daemon owes an answer for longer.
const UNANSWERED_NS: u64 = 100_000_000;

/// What a daemon may keep of an attack, in KiB: stacks and arenas of threads that have ended.
const KEPT_KIB_MAX: u64 = 24 * 1024;

/// Before every attack: how to connect, and how to send a message and take its answer.
const CALLS: &str = r#"
import json, socket, threading
PATH = os.environ["PLIMSOLL_SOCKET"]
def connect():
    s = socket.socket(socket.AF_UNIX)
    s.connect(PATH)
    s.settimeout(6)
    return s
def take(s):
    answer = b""
    while not answer.endswith(b"\0"):
        piece = s.recv(65536)
        if not piece: break
        answer += piece
    return answer
def ask(s, message):
    s.sendall(message + b"\0")
    return take(s)
def call(method, parameters={}, **flags):
    return json.dumps({"method": "io.plimsoll." + method, "parameters": parameters, **flags}).encode()
"#;

fn attack(fixture: &Fixture, user: u32, script: &str) -> Program {
    fixture.python(user, &format!("{CALLS}{script}"))
}

/// What the daemon has open, and its resident memory in KiB.
fn size(fixture: &Fixture) -> (usize, u64) {
    (fixture.open_files(), exact::number(format!("/proc/{}/status", fixture.daemon_pid()), "VmRSS"))
}

/// Its size when it has been asked everything once.
fn at_rest(fixture: &Fixture) -> (usize, u64) {
    fixture.status();
    fixture.history();
    let mut last = size(fixture);
    until("its size is steady", SOON, || {
        std::thread::sleep(Duration::from_millis(50));
        let before = std::mem::replace(&mut last, size(fixture));
        (last.0 == before.0).then_some(last)
    })
}

/// What it has open, by name.
fn open_files(fixture: &Fixture) -> Vec<String> {
    let folder = format!("/proc/{}/fd", fixture.daemon_pid());
    let links = fs::read_dir(folder).unwrap().map_while(Result::ok);
    links.filter_map(|one| fs::read_link(one.path()).ok()).map(|to| to.display().to_string()).collect()
}

/// Everything that was taken is given back.
#[track_caller]
fn assert_small_again(fixture: &Fixture, before: (usize, u64)) {
    let end = Instant::now() + Duration::from_secs(40);
    while size(fixture).0 > before.0 {
        assert!(Instant::now() < end, "it had {} open and has {:?}", before.0, open_files(fixture));
        std::thread::sleep(Duration::from_millis(20));
    }
    let (_, kib) = size(fixture);
    assert!(kib <= before.1 + KEPT_KIB_MAX, "it had {} KiB and has {kib}", before.1);
    println!("resident {} KiB before, {kib} KiB after", before.1);
}

/// Both root and another user are answered in bounded time; the longest wait.
#[track_caller]
fn assert_answers(fixture: &Fixture, times: usize) -> Duration {
    let mut asked = attack(
        fixture,
        BYSTANDER,
        "while hear():\n    t = time.monotonic()\n    answer = ask(connect(), call('ShowLimits'))\n    \
         say(int((time.monotonic() - t) * 1e6), answer.rstrip(b'\\0').decode())\n",
    );
    let mut longest = Duration::ZERO;
    for _ in 0..times {
        let began = Instant::now();
        fixture.status();
        longest = longest.max(began.elapsed());
        asked.tell("go");
        let line = asked.line();
        let (microseconds, answer) = line.split_once(' ').unwrap();
        assert!(answer.contains("\"accounts\""), "{answer}");
        longest = longest.max(Duration::from_micros(microseconds.parse().unwrap()));
        assert!(longest <= ANSWER_WITHIN, "an answer took {longest:?}");
    }
    longest
}

/// A small process crosses the line of a user whose largest sleeps: the daemon has to kill the largest, in time. From the
/// crossing to the signal, in nanoseconds; `None`: the daemon's own look came first.
#[track_caller]
fn kill_in_time(fixture: &Fixture) -> Option<u64> {
    let known = fixture.history().len();
    let mut sleeper =
        fixture.python(HOG, "block = b'x' * (40 << 20)\nsay('ready')\ntime.sleep(100)\n").ready();
    let mut small = fixture.workload(HOG, "bloat", &["--mebibytes=20", "--no-thp"]);
    sleeper.killed();
    let incident = fixture.incidents(known + 1)[known].clone();
    assert_eq!(incident["victims"][0]["pid"], sleeper.pid(), "{incident}");
    small.stop();
    let took = incident["cross_to_signal_ns"].as_u64();
    println!("from crossing to signal {took:?} ns");
    assert!(took.is_none_or(|took| took < UNANSWERED_NS), "from crossing to signal it took {took:?} ns");
    took
}

#[track_caller]
fn assert_kills_in_time(fixture: &Fixture) {
    kill_in_time(fixture).unwrap();
}

/// Those who keep a seat each and ask without end.
const ASK: &str = "def hammer(message):\n    while True:\n        try:\n            s = connect()\n            \
     while ask(s, message): pass\n        except OSError: pass\n\
     for m in [call('Status'), call('ShowLimits'), call('History'), call('GetIncident')] * 2:\n    \
     threading.Thread(target=hammer, args=[m], daemon=True).start()\nsay('ready')\ntime.sleep(100)\n";

/// Those who knock without end.
const KNOCK: &str = "say('ready')\nwhile True:\n    try: connect().close()\n    except OSError: pass\n";

/// Those who go back and forth around their soft limit of 48 MiB.
const FLIP: &str = "import ctypes, mmap\n\
     def own(size):\n    held = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n    \
     held.madvise(mmap.MADV_NOHUGEPAGE)\n    \
     return held, ctypes.addressof(ctypes.c_char.from_buffer(held))\n\
     base, at = own(30 << 20)\nctypes.memset(at, 1, 30 << 20)\nflipped, at = own(16 << 20)\nsay('ready')\n\
     while True:\n    ctypes.memset(at, 1, 16 << 20)\n    flipped.madvise(mmap.MADV_DONTNEED)\n";

/// `PLIMSOLL_CROSSINGS` for more of them, by turns without the attacks and with them.
#[test]
fn all_attacks_together_put_no_kill_of_another_off() {
    let crossings = std::env::var("PLIMSOLL_CROSSINGS").map_or(2, |number| number.parse().unwrap());
    let fixture = fixture!("[limits]\ntriggers = [\"daemon\"]\n");
    fixture.limit(HOG, "56M", &[]);
    fixture.limit(MALLORY, "64M", &["--soft", "48M"]);
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..crossings {
        alone.extend(kill_in_time(&fixture));
        let mut attacks = [ASK, KNOCK, FLIP].map(|script| attack(&fixture, MALLORY, script));
        attacks.iter_mut().for_each(|one| drop(one.stage("ready")));
        beside.extend(kill_in_time(&fixture));
    }
    for (name, mut took) in [("alone", alone), ("beside all", beside)] {
        took.sort_unstable();
        println!(
            "{name}: median {:?}, longest {:?} of {}",
            took.get(took.len() / 2),
            took.last(),
            took.len()
        );
    }
}

#[test]
fn a_flood_by_one_user_keeps_nobody_else_waiting_and_no_kill() {
    let fixture = fixture!();
    fixture.limit(HOG, "56M", &[]);
    fixture.limit(BYSTANDER, "200M", &[]);
    let before = at_rest(&fixture);
    let mut floods: Vec<Program> =
        [ASK, ASK, KNOCK, KNOCK].map(|script| attack(&fixture, MALLORY, script)).into();
    floods.iter_mut().for_each(|flood| drop(flood.stage("ready")));
    println!("longest answer under flood {:?}", assert_answers(&fixture, 10));
    assert_kills_in_time(&fixture);
    drop(floods);
    assert_small_again(&fixture, before);
}

#[test]
fn whoever_asks_or_knocks_without_end_has_little_of_a_cpu_and_the_others_their_answers() {
    let fixture = fixture!();
    let ask = "def hammer():\n    while True:\n        try:\n            s = connect()\n            \
         while ask(s, call('Status')): pass\n        except OSError: pass\n\
         for n in range(8): threading.Thread(target=hammer, daemon=True).start()\nsay('ready')\ntime.sleep(100)\n";
    for (name, script) in [("asking", ask), ("knocking", KNOCK)] {
        let _flood = attack(&fixture, MALLORY, script).ready();
        // Once what nobody has to wait for is used up.
        std::thread::sleep(Duration::from_secs(1));
        let percent = fixture.percent_of_a_cpu(Duration::from_secs(3));
        println!(
            "{name}: {percent:.1} % of a CPU, longest answer to others {:?}",
            assert_answers(&fixture, 2)
        );
        assert!(percent <= 5.0, "{name} takes {percent:.1} % of a CPU");
    }
}

/// Starts of jobs by the program, some that are refused, and long waits for something else behind a start.
const START: &str = "import subprocess\ndef refused():\n    while True:\n        try:\n            s = connect()\n            \
     while ask(s, call('StartJob')): pass\n        except OSError: pass\n\
     run = [os.environ['PLIMSOLL'], 'run', '--', '/bin/true']\n\
     def started():\n    while True: subprocess.run(run, stderr=subprocess.DEVNULL)\n\
     def waits():\n    while True:\n        try:\n            s = connect()\n            \
     ask(s, call('StartJob', {'name': ''}))\n            \
     ask(s, call('AwaitIncident', {'after_id': 1 << 60, 'within_ms': 30000}))\n        except OSError: pass\n\
     for one in [refused] * 4 + [waits] * 2 + [started] * 4:\n    \
     threading.Thread(target=one, daemon=True).start()\nsay('ready')\ntime.sleep(100)\n";

#[test]
fn whoever_starts_jobs_without_end_has_a_bounded_part_of_a_cpu_and_others_start_theirs() {
    let fixture = fixture!();
    fixture.limit(HOG, "56M", &[]);
    assert_eq!(fixture.run_as(BYSTANDER, &["run", "--", "/bin/true"]).0, 0);
    let script = format!("import os\nos.environ['PLIMSOLL'] = {:?}\n{START}", fixture.path("plimsoll"));
    let mut floods = [MALLORY, MALLORY + 3].map(|user| attack(&fixture, user, &script));
    floods.iter_mut().for_each(|flood| drop(flood.stage("ready")));
    // Once what nobody has to wait for is used up.
    std::thread::sleep(Duration::from_secs(1));
    let percent = fixture.percent_of_a_cpu(Duration::from_secs(2));
    let mut longest = Duration::ZERO;
    for _ in 0..6 {
        let began = Instant::now();
        let (code, _, error) = fixture.run_as(BYSTANDER, &["run", "--", "/bin/true"]);
        assert_eq!(code, 0, "{error}");
        fixture.ok(&["run", "--", "/bin/true"]);
        longest = longest.max(began.elapsed());
    }
    println!("starting: {percent:.1} % of a CPU, the longest start of another's and of root's {longest:?}");
    assert!(longest <= ANSWER_WITHIN, "a start took {longest:?}");
    // An eighth for starts, a fiftieth for each of them, and what their processes cost the guard.
    assert!(percent <= 25.0, "starting takes {percent:.1} % of a CPU");
    println!("longest answer to others {:?}", assert_answers(&fixture, 2));
    assert_kills_in_time(&fixture);
}

#[test]
fn a_user_who_redraws_the_own_line_without_end_holds_nobody_up() {
    let fixture = fixture!();
    fixture.limit(HOG, "56M", &[]);
    fixture.limit(BYSTANDER, "200M", &[]);
    let before = at_rest(&fixture);
    let script = "def hammer(n):\n    while True:\n        try:\n            s = connect()\n            \
         while True:\n                \
         n += 1\n                \
         ask(s, call('SetLimit', {'who': 'user:60130', 'hard': str(n % 64 + 64) + 'M'}))\n                \
         ask(s, call('ClearLimit', {'who': 'user:60130'}))\n        except OSError: pass\n\
         for n in range(8): threading.Thread(target=hammer, args=[n], daemon=True).start()\nsay('ready')\ntime.sleep(100)\n";
    let flood = attack(&fixture, MALLORY, script).ready();
    println!("longest answer {:?}", assert_answers(&fixture, 10));
    let began = Instant::now();
    fixture.limit(HOG, "55M", &[]);
    fixture.limit(HOG, "56M", &[]);
    println!("two lines by root {:?}", began.elapsed());
    assert!(began.elapsed() < ANSWER_WITHIN, "{:?}", began.elapsed());
    assert_kills_in_time(&fixture);
    drop(flood);
    assert_small_again(&fixture, before);
}

#[test]
fn clients_that_stop_half_way_keep_nobody_out() {
    let fixture = fixture!();
    fixture.limit(HOG, "56M", &[]);
    fixture.limit(BYSTANDER, "200M", &[]);
    let before = at_rest(&fixture);
    let script = "held = []\ndef hold(what):\n    for _ in range(60):\n        try:\n            s = connect()\n            \
         s.sendall(what)\n            held.append(s)\n        except OSError: pass\n\
         hold(b'')\nhold(b'{')\nhold(b'{\"method\":\"io.plimsoll.Status\"')\n\
         hold((call('History', more=True) + b'\\0') * 500)\nhold((call('Status', more=True) + b'\\0') * 500)\n\
         say('ready', len(held))\ntime.sleep(100)\n";
    let mut halves = attack(&fixture, MALLORY, script);
    println!("held open: {}", halves.stage("ready"));
    println!("longest answer {:?}", assert_answers(&fixture, 5));
    assert_kills_in_time(&fixture);
    // A seat is given back also while its client holds on.
    until("the silent ones are cut", Duration::from_secs(60), || {
        (size(&fixture).0 <= before.0).then_some(())
    });
    assert_answers(&fixture, 1);
    drop(halves);
    assert_small_again(&fixture, before);
}

/// Sent as they are by a user; the daemon answers with an error or closes, and lives.
fn malformed() -> Vec<Vec<u8>> {
    let deep =
        |open: &str, close: &str, levels: usize| format!("{}{}", open.repeat(levels), close.repeat(levels));
    let status = |more: &str| format!("{{\"method\":\"io.plimsoll.Status\"{more}}}");
    let mut all: Vec<Vec<u8>> = [
        String::new(),
        "\0".into(),
        "nonsense".into(),
        "null".into(),
        "[]".into(),
        "{}".into(),
        "{\"method\":7}".into(),
        "{\"method\":\"\"}".into(),
        "{\"method\":\"io.plimsoll.\"}".into(),
        "{\"method\":\"io.plimsoll.Explode\"}".into(),
        "{\"method\":\"io.other.Status\"}".into(),
        "{\"method\":\"org.varlink.service.Explode\"}".into(),
        deep("[", "]", 30_000),
        deep("{\"a\":", "}", 5_000),
        status(&format!(",\"parameters\":{}", deep("[", "]", 20_000))),
        status(",\"method\":\"io.plimsoll.ClearLimit\""),
        status(",\"parameters\":{\"a\":1}"),
        status(",\"upgrade\":true"),
        status(",\"more\":7"),
        status(",\"oneway\":\"yes\""),
        "{\"method\":\"io.plimsoll.History\",\"parameters\":{\"limit\":99999999999999999999999999}}".into(),
        "{\"method\":\"io.plimsoll.History\",\"parameters\":{\"limit\":1e308}}".into(),
        "{\"method\":\"io.plimsoll.History\",\"parameters\":{\"limit\":-1}}".into(),
        "{\"method\":\"io.plimsoll.History\",\"parameters\":{\"since\":\"9999999-99-99\"}}".into(),
        "{\"method\":\"io.plimsoll.GetIncident\",\"parameters\":{\"id\":18446744073709551615}}".into(),
        "{\"method\":\"io.plimsoll.GetIncident\",\"parameters\":{\"id\":1,\"id\":2}}".into(),
        "{\"method\":\"io.plimsoll.SetLimit\",\"parameters\":{\"who\":\"user:60130\",\"hard\":\"1e999\"}}".into(),
        "{\"method\":\"io.plimsoll.SetLimit\",\"parameters\":{\"who\":\"user:4294967295\",\"hard\":\"1G\"}}".into(),
        "{\"method\":\"io.plimsoll.SetLimit\",\"parameters\":{\"who\":\"user:60130\\u0000\",\"hard\":\"1G\"}}".into(),
        "{\"method\":\"\\ud800\"}".into(),
        format!("{{\"method\":\"{}\"}}", "A".repeat(60_000)),
        format!("{{\"method\":\"io.plimsoll.Status\",\"parameters\":{{{}}}}}", "\"k\":0,".repeat(8_000) + "\"k\":0"),
    ]
    .into_iter()
    .map(String::into_bytes)
    .collect();
    all.push(b"\xff\xfe\xfd".to_vec());
    all.push(b"{\"method\":\"\xc3\x28\"}".to_vec());
    all.push(vec![b' '; 70_000]);
    all.push(vec![b'['; 1 << 20]);
    all
}

#[test]
fn malformed_messages_are_refused_and_change_nothing() {
    let fixture = fixture!();
    fixture.limit(HOG, "56M", &[]);
    fixture.limit(BYSTANDER, "200M", &[]);
    let before = at_rest(&fixture);
    let lines = fixture.accounts();
    for (number, message) in malformed().iter().enumerate() {
        fs::write(fixture.path(&format!("message-{number}")), message).unwrap();
    }
    let folder = fixture.path("");
    let script = format!(
        "for n in range({count}):\n    with open('{folder}/message-' + str(n), 'rb') as f: message = f.read()\n    \
         try:\n        s = connect()\n        answer = ask(s, message)\n    except OSError as error: answer = b'closed'\n    \
         say(n, answer.rstrip(b'\\0').decode()[:300].replace('\\n', ' ') or 'nothing')\n",
        count = malformed().len(),
        folder = folder.display(),
    );
    let mut caller = attack(&fixture, MALLORY, &script);
    for (number, message) in malformed().iter().enumerate() {
        let answer = caller.stage(&format!("{number} "));
        let shown = String::from_utf8_lossy(&message[..message.len().min(80)]).into_owned();
        // The members of Status's parameters are refused, not looked at; whoever asks twice is told once.
        let refused = answer.contains("\"error\"") || answer == "closed" || answer == "nothing";
        assert!(refused, "'{shown}' is answered '{answer}'");
        assert!(!answer.contains("Internal"), "'{shown}' is answered '{answer}'");
    }
    assert_eq!(fixture.accounts(), lines);
    assert_answers(&fixture, 2);
    assert_kills_in_time(&fixture);
    assert_small_again(&fixture, before);
}

#[test]
fn what_is_another_users_is_refused_however_it_is_asked_for() {
    let fixture = fixture!();
    fixture.limit(BYSTANDER, "200M", &[]);
    fixture.limit(HOG, "56M", &[]);
    assert_kills_in_time(&fixture);
    let lines = || -> Vec<_> {
        fixture.accounts().iter().map(|one| (one["account"].clone(), one["hard_bytes"].clone())).collect()
    };
    let before = lines();
    let mut caller = Caller::of(&fixture, MALLORY);
    let mut ask = |method: &str, parameters: Value, oneway: bool| -> Value {
        let mut message = json!({"method": format!("io.plimsoll.{method}"), "parameters": parameters});
        if oneway {
            message["oneway"] = json!(true);
            caller.send(&message);
            message = json!({"method": "io.plimsoll.Status"});
        }
        caller.send(&message);
        caller.hear()
    };
    for who in ["user:60131", "user:60132", "user:0", "default"] {
        for (method, parameters) in [
            ("SetLimit", json!({"who": who, "hard": "1M", "now": true})),
            ("SetLimit", json!({"who": who, "hard": "900M"})),
            ("ClearLimit", json!({"who": who})),
        ] {
            let answer = ask(method, parameters.clone(), false);
            assert_eq!(answer["error"], "io.plimsoll.NotPermitted", "{method} {parameters}");
            ask(method, parameters, true);
        }
    }
    for who in ["user:60131", "user:60132", "user:0"] {
        assert_eq!(
            ask("ShowLimits", json!({"who": who}), false)["error"],
            "io.plimsoll.NotPermitted",
            "{who}"
        );
    }
    assert_eq!(ask("ShowLimits", json!({}), false)["parameters"]["accounts"], json!([]));
    assert_eq!(ask("Status", json!({}), false)["parameters"]["accounts"], json!([]));
    let history = ask("History", json!({}), false);
    assert_eq!(history["parameters"]["incidents"], json!([]), "{history}");
    let all = fixture.history();
    let (id, pid) = (all[0]["id"].clone(), all[0]["victims"][0]["pid"].clone());
    for which in [json!({"id": id}), json!({"pid": pid}), json!({})] {
        let answer = ask("GetIncident", which, false);
        assert_eq!(answer["error"], "io.plimsoll.NotFound", "{answer}");
    }
    assert_eq!(lines(), before);
}

#[test]
fn peers_that_die_in_the_middle_leave_nothing_behind() {
    let fixture = fixture!();
    fixture.limit(HOG, "56M", &[]);
    fixture.limit(BYSTANDER, "200M", &[]);
    let before = at_rest(&fixture);
    // Each child dies of SIGKILL in the middle of something: half a message, a question, a change of its line.
    let script = "what = [b'{\"meth', call('Status') + b'\\0', call('History') + b'\\0' + call('Status')[:9],\n    \
        call('SetLimit', {'who': 'user:60130', 'hard': '90M'}) + b'\\0', call('ClearLimit', {'who': 'user:60130'}) + b'\\0']\n\
        for n in range(300):\n    child = os.fork()\n    if not child:\n        \
        try: connect().sendall(what[n % len(what)])\n        \
        except OSError: pass\n        os.kill(os.getpid(), signal.SIGKILL)\n    os.waitpid(child, 0)\nsay('done')\n";
    let mut dying = attack(&fixture, MALLORY, script);
    dying.stage("done");
    assert_answers(&fixture, 2);
    assert_kills_in_time(&fixture);
    assert_small_again(&fixture, before);
}

#[test]
fn many_large_messages_at_once_do_not_make_the_daemon_large() {
    let fixture = fixture!();
    fixture.limit(HOG, "56M", &[]);
    fixture.limit(BYSTANDER, "200M", &[]);
    let before = at_rest(&fixture);
    // What becomes largest in memory: many small values. As many as are taken: each user has a pace.
    let script = "big = b'{\"method\":\"io.plimsoll.Status\",\"parameters\":{\"a\":[' + b'[],' * 20000 + b'0]}}'\n\
        def throw():\n    end = time.monotonic() + 4\n    \
         while time.monotonic() < end:\n        try: ask(connect(), big)\n        except OSError: pass\n\
        all = [threading.Thread(target=throw) for _ in range(8)]\n\
        for t in all: t.start()\nfor t in all: t.join()\nsay('done')\n";
    let mut floods: Vec<Program> = (0..2).map(|_| attack(&fixture, MALLORY, script)).collect();
    floods.iter_mut().for_each(|flood| drop(flood.stage("done")));
    assert_answers(&fixture, 2);
    assert_kills_in_time(&fixture);
    assert_small_again(&fixture, before);
}
