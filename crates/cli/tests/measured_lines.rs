//! Lines of cgroups and of the machine, which no event counts: what is measured, who goes, what stays, and what is told.
#![cfg(test)]

mod support;

use serde_json::{Value, json};
use std::{process::Command, time::Duration};
use support::{ALICE, BOB, Fixture, assert_has, cgroup::Cgroup, program::Program, until, wait_for};

/// Nobody comes near that.
const ROOM_MIB: u32 = 4096;

const MIB: u64 = 1 << 20;

impl Fixture {
    #[track_caller]
    fn measured(&self, account: &str) -> Value {
        let shown = self.json(&["limit", "show", account]);
        assert_eq!(shown.as_array().unwrap().len(), 1, "{shown}");
        shown[0].clone()
    }

    #[track_caller]
    fn mib(&self, account: &str, field: &str) -> u64 {
        self.measured(account)[field].as_u64().unwrap_or(u64::MAX) / MIB
    }
}

/// A cgroup with room, and its account.
fn with_room(name: &str) -> Option<(Cgroup, String)> {
    let cgroup = Cgroup::limited(name, ROOM_MIB)?;
    cgroup.allow_limits_within();
    let account = format!("cgroup:{}", cgroup.path());
    Some((cgroup, account))
}

#[track_caller]
fn assert_alive(programs: &mut [Program]) {
    std::thread::sleep(Duration::from_millis(300));
    for program in programs {
        assert!(program.runs(), "process {} ended", program.pid());
    }
}

#[test]
fn a_line_lowered_below_usage_kills_nobody_and_at_once_it_ends_the_largest_below_it() {
    let Some((cgroup, account)) = with_room("lowered") else { return };
    let (one, other) = (cgroup.within("one"), cgroup.within("other"));
    let fixture = fixture!();
    let mut others = [
        fixture.within(&one, ALICE, "chill", &["--mebibytes=24"]).ready(),
        fixture.workload(BOB, "chill", &["--mebibytes=80"]).ready(),
    ];
    let mut largest = fixture.within(&other, BOB, "chill", &["--mebibytes=40"]).ready();
    fixture.ok(&["limit", "set", &account, "48M"]);
    wait_for("the line in force is the usage", || {
        (64..80).contains(&fixture.mib(&account, "effective_bytes"))
    });
    let shown = fixture.measured(&account);
    let expected = json!({"name": null, "hard_bytes": 48 * MIB, "action": "kill", "near": true, "processes": 2,
        "source": "state", "target": account, "set_by": 0, "note": null});
    assert_has(&shown, &expected);
    assert!((64..80).contains(&(shown["usage_bytes"].as_u64().unwrap() / MIB)), "{shown}");
    assert!(fixture.history().is_empty());
    fixture.ok(&["limit", "set", &account, "48M", "--now"]);
    largest.killed();
    let incident = fixture.incidents(1)[0].clone();
    let expected = json!({"account": account, "guard": "limits", "trigger": "daemon", "action": "kill",
        "reason": "over-hard-limit-selected", "hard_bytes": 48 * MIB});
    assert_has(&incident, &expected);
    assert_eq!(incident["victims"][0]["pid"], largest.pid(), "{incident}");
    assert_eq!(incident["victims"].as_array().unwrap().len(), 1);
    wait_for("its memory is back", || fixture.mib(&account, "usage_bytes") < 48);
    assert_alive(&mut others);
    assert_eq!(fixture.history().len(), 1);
    let why = fixture.ok(&["why", "last"]);
    assert!(why.contains(&format!("Cgroup {} was using", cgroup.path())), "{why}");
    assert!(fixture.ok(&["history"]).contains(&account));
    assert_eq!(fixture.status()["guards"]["limits"]["state"], "on");
    // No programs were loaded for it.
    assert_eq!(fixture.status()["kernel"]["attached"], false);
}

#[test]
fn memory_spread_over_many_small_cgroups_is_seen_and_who_grows_past_the_line_goes() {
    let Some((cgroup, account)) = with_room("spread") else { return };
    let fixture = fixture!();
    fixture.ok(&["limit", "set", &account, "128M"]);
    let cgroups: Vec<Cgroup> = (0..12).map(|number| cgroup.within(&format!("job {number}"))).collect();
    let mut small: Vec<Program> =
        cgroups.iter().map(|one| fixture.within(one, ALICE, "chill", &["--mebibytes=8"]).ready()).collect();
    wait_for("all are in it", || {
        let shown = fixture.measured(&account);
        shown["processes"] == 12 && shown["usage_bytes"].as_u64().unwrap() > 96 * MIB
    });
    // Far less than the line by itself.
    let mut hog = fixture.within(&cgroups[3], ALICE, "bloat", &["--mebibytes=96", "--rate=200", "--no-thp"]);
    hog.killed();
    let incident = fixture.incidents(1)[0].clone();
    assert_eq!((&incident["account"], &incident["victims"][0]["pid"]), (&account.into(), &hog.pid().into()));
    assert_alive(&mut small);
    assert_eq!(fixture.history().len(), 1);
}

/// Its first thread exits, and another takes 200 MiB.
const LEADERLESS: &str = "import ctypes, threading\n\
    def take():\n\
    \x20   memory = mmap.mmap(-1, 200 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
    \x20   for page in range(0, len(memory), 4096): memory[page] = 1\n\
    \x20   time.sleep(60)\n\
    hear()\n\
    threading.Thread(target=take).start()\n\
    ctypes.CDLL(None).pthread_exit(None)\n";

#[test]
fn a_hog_whose_first_thread_has_exited_goes_and_nobody_for_it() {
    let Some((cgroup, account)) = with_room("leaderless") else { return };
    let inside = cgroup.within("inside");
    let fixture = fixture!();
    fixture.ok(&["limit", "set", &account, "64M"]);
    let mut calm = [
        fixture.within(&inside, BOB, "chill", &["--mebibytes=20"]).ready(),
        fixture.within(&inside, ALICE, "chill", &["--mebibytes=8"]).ready(),
    ];
    let mut hog = fixture.python(ALICE, LEADERLESS);
    inside.take(hog.pid());
    hog.tell("go");
    hog.killed();
    let incident = fixture.incidents(1)[0].clone();
    assert_eq!(incident["victims"][0]["pid"], hog.pid(), "{incident}");
    assert_alive(&mut calm);
    assert_eq!(fixture.history().len(), 1);
}

/// Holds 30 MiB and eight children that share them.
const PREFORK: &str = "memory = b'x' * (30 << 20)\n\
    for _ in range(8):\n\
    \x20   if os.fork() == 0: time.sleep(60)\n\
    say('ready')\n\
    time.sleep(60)\n";

/// Grows a file in memory and lets it shrink, again and again.
const GROWS_FILES: &str = "path = hear()\n\
    with open(path, 'wb') as file:\n\
    \x20   for _ in range(12):\n\
    \x20       for _ in range(200): file.write(bytes(1 << 20))\n\
    \x20       file.flush(); time.sleep(0.2)\n\
    \x20       file.seek(0); file.truncate()\n\
    os.unlink(path)\n\
    say('done')\n";

#[test]
fn nobody_goes_for_files_that_grow_in_another_cgroup_below() {
    let Some((cgroup, account)) = with_room("files") else { return };
    let (service, user) = (cgroup.within("service"), cgroup.within("user"));
    let fixture = fixture!();
    fixture.ok(&["limit", "set", &account, "64M"]);
    let mut prefork = fixture.python(BOB, &format!("hear()\n{PREFORK}"));
    service.take(prefork.pid());
    prefork.tell("go");
    prefork.stage("ready");
    let mut grows = fixture.python(ALICE, GROWS_FILES);
    user.take(grows.pid());
    grows.tell(&format!("/dev/shm/plimsoll-test-{}", grows.pid()));
    grows.stage("done");
    assert_alive(std::slice::from_mut(&mut prefork));
    assert!(fixture.history().is_empty(), "{:?}", fixture.history());
}

#[test]
fn among_more_cgroups_than_are_listed_who_grows_past_the_line_goes_all_the_same() {
    let Some((cgroup, account)) = with_room("many") else { return };
    let fixture = fixture!();
    fixture.ok(&["limit", "set", &account, "64M"]);
    let cgroups: Vec<Cgroup> = (0..4200).map(|number| cgroup.within(&format!("job{number}"))).collect();
    let mut outside = fixture.workload(BOB, "chill", &["--mebibytes=80"]).ready();
    // Whichever order the kernel tells them in, one of them is not listed.
    for number in [0, 2100, 4199] {
        let arguments = ["--mebibytes=120", "--rate=200", "--no-thp"];
        let mut hog = fixture.within(&cgroups[number], ALICE, "bloat", &arguments);
        hog.killed();
        wait_for("it is told", || fixture.history().iter().any(|one| one["victims"][0]["pid"] == hog.pid()));
    }
    assert_alive(std::slice::from_mut(&mut outside));
    assert_eq!(fixture.history().len(), 3);
}

#[test]
fn of_nested_lines_the_tightest_acts_and_both_are_charged() {
    let Some((parent, of_parent)) = with_room("nested") else { return };
    let (tight, other) = (parent.within("tight"), parent.within("other"));
    let of_tight = format!("cgroup:{}", tight.path());
    let fixture = fixture!();
    fixture.ok(&["limit", "set", &of_parent, "400M"]);
    fixture.ok(&["limit", "set", &of_tight, "64M"]);
    // The largest below the parent, and not in the tight one.
    let mut large = [fixture.within(&other, ALICE, "chill", &["--mebibytes=160"]).ready()];
    let mut hog = fixture.within(&tight, ALICE, "bloat", &["--mebibytes=120", "--rate=200", "--no-thp"]);
    wait_for("both are charged", || fixture.mib(&of_parent, "usage_bytes") > 170);
    hog.killed();
    let incident = fixture.incidents(1)[0].clone();
    assert_eq!((&incident["account"], &incident["victims"][0]["pid"]), (&of_tight.into(), &hog.pid().into()));
    assert_alive(&mut large);
    assert_eq!(fixture.history().len(), 1);
}

#[test]
fn a_path_that_vanishes_and_comes_back_keeps_its_line_and_so_does_a_daemon() {
    let Some((parent, _)) = with_room("again") else { return };
    let unit = parent.within("unit");
    let account = format!("cgroup:{}", unit.path());
    let mut fixture = fixture!();
    let told = fixture.ok(&["limit", "set", &account, "40M"]);
    assert!(!told.contains("Note"), "{told}");
    for turn in 1..=2 {
        unit.make_anew();
        let mut hog = fixture.within(&unit, ALICE, "bloat", &["--mebibytes=120", "--rate=200", "--no-thp"]);
        hog.killed();
        assert_eq!(fixture.incidents(turn)[turn - 1]["victims"][0]["pid"], hog.pid());
        if turn == 1 {
            fixture.end_daemon(rustix::process::Signal::TERM);
            fixture.launch();
        }
    }
    unit.remove();
    let shown = fixture.measured(&account);
    assert_has(&shown, &json!({"usage_bytes": 0, "processes": 0, "hard_bytes": 40 * MIB}));
    assert_eq!(shown["note"], "there is no such memory cgroup now");
    assert!(fixture.ok(&["limit", "show"]).contains("there is no such memory cgroup now"));
    std::fs::create_dir(unit.folder()).unwrap();
    assert_eq!(fixture.ok(&["limit", "clear", &account]), format!("{account}: line removed.\n"));
    assert!(fixture.accounts().is_empty());
}

#[test]
fn what_grew_past_a_line_while_no_daemon_lived_goes_and_what_was_past_it_before_stays() {
    let Some((parent, account)) = with_room("orphaned") else { return };
    let inside = parent.within("inside");
    let below = format!("cgroup:{}", inside.path());
    let mut fixture = fixture!();
    let mut before = fixture.within(&inside, ALICE, "chill", &["--mebibytes=48", "--no-thp"]).ready();
    // One stands, the other is drawn below what is used.
    fixture.ok(&["limit", "set", &account, "80M"]);
    fixture.ok(&["limit", "set", &below, "32M"]);
    wait_for("the one below is raised", || {
        let in_force = fixture.measured(&below)["effective_bytes"].as_u64();
        in_force.is_some_and(|line| line > 40 * MIB)
    });
    wait_for("that both are in force is written", || {
        let file = std::fs::read_to_string(fixture.path("state/lines-in-force.json"));
        let has = |text: &str, account: &str| text.contains(&format!("\"{account}\":"));
        file.is_ok_and(|text| has(&text, &account) && has(&text, &below))
    });
    fixture.end_daemon(rustix::process::Signal::KILL);
    let beside = parent.within("beside");
    let mut hogs = [&beside, &inside]
        .map(|group| fixture.within(group, ALICE, "chill", &["--mebibytes=64", "--no-thp"]).ready());
    fixture.launch();
    for hog in &mut hogs {
        hog.killed();
    }
    assert!(fixture.incidents(2).iter().any(|one| one["account"] == account));
    assert!(before.runs());
}

#[test]
fn who_is_asked_to_end_has_the_grace_period_and_nobody_else_goes_meanwhile() {
    let Some((cgroup, account)) = with_room("asked") else { return };
    let inside = cgroup.within("inside");
    let fixture = fixture!("[limits]\nterm_grace_ms = 700\n");
    let mut small = [fixture.within(&inside, ALICE, "chill", &["--mebibytes=16"]).ready()];
    let script = "memory = bytearray(b'x') * (60 << 20)\n\
        signal.signal(signal.SIGTERM, lambda *_: say('asked'))\nsay('ready')\n\
        while True: time.sleep(1)\n";
    let python = format!("echo $$ >'{}' && exec \"$@\"", inside.processes().display());
    let command = fixture.as_user(ALICE, support::program::PYTHON);
    let mut shell = Command::new("sh");
    shell.args(["-c", &python, "sh"]).arg(command.get_program()).args(command.get_args());
    shell.args(["-c", &format!("import os, signal, sys, time\nsignal.alarm(120)\ndef say(*words): os.write(1, (' '.join(words) + '\\n').encode())\n{script}")]);
    let mut stubborn = Program::of(shell).ready();
    fixture.ok(&["limit", "set", &account, "48M", "--action", "term", "--now"]);
    stubborn.stage("asked");
    stubborn.killed();
    let incidents = fixture.incidents(2);
    assert_has(
        &incidents[0],
        &json!({"action": "term", "reason": "over-hard-limit-term", "account": account}),
    );
    assert_has(
        &incidents[1],
        &json!({"action": "kill", "reason": "term-deadline-passed", "account": account}),
    );
    assert_alive(&mut small);
    assert_eq!(fixture.history().len(), 2);
}

#[test]
fn a_line_of_the_machine_is_told_of_and_names_who_would_go() {
    let fixture = fixture!(""; "--dry-run");
    let mut hog = fixture.workload(ALICE, "chill", &["--mebibytes=700"]).ready();
    fixture.ok(&["limit", "set", "system", "512M", "--now"]);
    let incident = fixture.incidents(1)[0].clone();
    let expected = json!({"account": "system", "guard": "limits", "action": "notify", "hard_bytes": 512 * MIB,
        "reason": "over-hard-limit-selected"});
    assert_has(&incident, &expected);
    assert_eq!(incident["victims"].as_array().unwrap().len(), 1, "{incident}");
    let shown = fixture.measured("system");
    assert!(
        shown["usage_bytes"].as_u64().unwrap() > 700 * MIB && shown["processes"].as_u64() > Some(1),
        "{shown}"
    );
    let why = fixture.ok(&["why", "last"]);
    assert!(why.contains("The machine was using") && why.contains("Dry run"), "{why}");
    // Everybody sees it, and only root draws it.
    let (code, told, _) = fixture.run_as(BOB, &["limit", "show", "system"]);
    assert!(code == 0 && told.contains("system"), "{told}");
    assert_eq!(fixture.run_as(BOB, &["limit", "set", "system", "1G"]).0, 4);
    assert_eq!(fixture.run_as(BOB, &["limit", "show", "cgroup:/x"]).0, 4);
    assert!(hog.runs());
    assert_eq!(fixture.history().len(), 1);
}

#[test]
fn the_configuration_draws_such_lines_and_what_is_no_path_is_refused() {
    let fixture = fixture!(
        "[limits]\nsystem = { hard = \"100%\" }\ncgroups = { \"/no.slice/it's\" = { hard = \"64M\", action = \"notify\" } }\n"
    );
    let shown = fixture.measured("cgroup:/no.slice/it's");
    assert_has(
        &shown,
        &json!({"source": "config", "action": "notify", "hard_bytes": 64 * MIB, "usage_bytes": 0}),
    );
    assert_eq!(fixture.measured("system")["source"], "config");
    for (path, told) in
        [("cgroup:/", "give 'system'"), ("cgroup:/a/../b", "is no cgroup"), ("cgroup:a", "is no cgroup")]
    {
        let (code, _, error) = fixture.run(&["limit", "set", path, "1G"]);
        assert!(code == 2 && error.contains(told), "{code}: {error}");
    }
    assert_eq!(fixture.run(&["limit", "clear", "system"]).0, 1, "the configuration draws it");
}

#[test]
fn an_idle_line_costs_next_to_nothing_and_who_starts_is_seen_within_a_second() {
    let Some((cgroup, account)) = with_room("idle") else { return };
    let inside = cgroup.within("inside");
    let fixture = fixture!();
    let mut calm = [fixture.within(&inside, ALICE, "chill", &["--mebibytes=8"]).ready()];
    fixture.ok(&["limit", "set", &account, "64M"]);
    let wake_ups = || fixture.status()["guards"]["own"]["wake_ups"].as_u64().unwrap();
    let before = wake_ups();
    std::thread::sleep(Duration::from_secs(5));
    let (woken, cost) = (wake_ups() - before, fixture.percent_of_a_cpu(Duration::from_secs(2)));
    println!("MEASURED: {woken} wake-ups in 5 s, {cost:.2} % of a CPU");
    assert!(cost < 3.0, "{cost} % of a CPU");
    let mut hog = fixture.within(&inside, ALICE, "bloat", &["--mebibytes=1500"]);
    let began = std::time::Instant::now();
    hog.killed();
    let incident =
        until("it is written down", Duration::from_secs(10), || fixture.history().first().cloned());
    println!(
        "MEASURED: killed {:?} after it began, {} MiB over, signal {} us after the look",
        began.elapsed(),
        incident["overshoot_bytes"].as_u64().unwrap() / MIB,
        incident["cross_to_signal_ns"].as_u64().unwrap() / 1000
    );
    assert_eq!(incident["victims"][0]["pid"], hog.pid());
    assert_alive(&mut calm);
}
