//! Lines of users' own, by the real control socket: they hold less than the administrator's, and never more; nobody pays for
//! them but who drew them.
#![cfg(test)]

mod support;

use plimsoll_policy::units::Uid;
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use support::{
    Fixture,
    apart::{apart, etc},
    caller::Caller,
    program::Program,
    until, wait_for,
};

/// The users of these tests, as many as one needs.
const USERS: std::ops::Range<u32> = 60_400..60_440;
const ALICE: u32 = USERS.start;
/// So many fill a table of 32 accounts, with one line of root's.
const MANY: std::ops::Range<u32> = USERS.start..USERS.start + 31;
/// Root draws lines for these.
const ROOTS: [u32; 3] = [60_436, 60_437, 60_438];
/// Runs nothing but threads that sleep.
const SLEEPER: u32 = USERS.end;
const MIB: u64 = 1 << 20;
const LINE: u64 = 64 * MIB;

/// How far a living process may be over the line.
const OVER_MAX: u64 = 8 * MIB;

/// From one change of a user's to the next.
const TURN: Duration = Duration::from_millis(100);

/// How long lines are changed as fast as can be; `PLIMSOLL_TOGGLE_SECONDS` for longer.
fn span() -> Duration {
    let seconds = std::env::var("PLIMSOLL_TOGGLE_SECONDS").map_or(3, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

/// Alice draws a line of her own.
fn begin_set(caller: &mut Caller, hard: &str, more: &Value) {
    let mut parameters = json!({"who": format!("user:{ALICE}"), "hard": hard});
    for (key, value) in more.as_object().into_iter().flatten() {
        parameters[key] = value.clone();
    }
    caller.begin("SetLimit", &parameters);
}

/// A user draws a line of their own, over a connection for that.
fn draws(fixture: &Fixture, user: u32) -> Result<Value, String> {
    Caller::of(fixture, user).call("SetLimit", &json!({"who": format!("user:{user}"), "hard": "32M"}))
}

/// What a user's call is refused with.
#[track_caller]
fn assert_refused(told: Result<Value, String>, named: [&str; 2]) {
    let error = told.unwrap_err();
    assert!(named.iter().all(|words| error.contains(words)), "{error}");
}

/// The hard limit of a user in MiB; `None`: no line is in force.
fn hard(fixture: &Fixture, user: u32) -> Option<u64> {
    Some(fixture.account(user)?["hard_bytes"].as_u64().unwrap() / MIB)
}

/// What a status says of the kernel's trigger.
fn kernel_trigger(fixture: &Fixture) -> String {
    fixture.status()["triggers"]["kernel"].as_str().unwrap().to_owned()
}

/// A process that stays just below the line, and takes 10 MiB in one breath some time after it is told to.
fn hog(fixture: &Fixture) -> Program {
    fixture.python(
        ALICE,
        "import random\nheld = [b'x' * (52 << 20)]\nsay('ready')\n\
         while hear():\n    time.sleep(random.random() * 0.012)\n    held.append(b'x' * (10 << 20))\n    say('full')\n",
    ).ready()
}

/// So many threads that a walk of all tasks takes its time.
fn sleepers(fixture: &Fixture) -> Program {
    fixture
        .python(
            SLEEPER,
            "import threading\nthreading.stack_size(65536)\nnever = threading.Event()\n\
         for _ in range(2000): threading.Thread(target=never.wait, daemon=True).start()\n\
         say('ready')\nnever.wait()\n",
        )
        .ready()
}

/// What a process holds; 0 where it has nothing any more, or SIGKILL waits for it.
fn living_bytes(pid: u32) -> u64 {
    let Some(status) = support::exact::status(pid).filter(|status| !status.kill_is_pending()) else {
        return 0;
    };
    status.rss_anonymous.zip(status.swap).map_or(0, |(resident, swapped)| resident.0 + swapped.0)
}

/// The most that was ever in force for Alice, past the daemon; `u64::MAX` for no line.
struct Watcher {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<u64>,
}

impl Watcher {
    fn of(fixture: &Fixture) -> Self {
        let (maps, page_bytes) = (fixture.maps(), support::exact::page_bytes());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut most = 0;
            while !stopped.load(Ordering::Relaxed) {
                let effective =
                    maps.account(Uid(ALICE).into()).unwrap().and_then(|account| account.effective);
                most = most.max(effective.map_or(u64::MAX, |pages| pages.0 * page_bytes));
                thread::sleep(Duration::from_micros(50));
            }
            most
        });
        Self { stop, thread }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Whatever Alice says of her own line, as often as she may, the administrator's of 64 MiB holds for her.
fn assert_holds(fixture: &Fixture, what: &str) {
    let mut caller = Caller::of(fixture, ALICE);
    let mut hog = hog(fixture);
    let watcher = Watcher::of(fixture);
    let end = Instant::now() + span();
    let (mut times, mut living) = (0, 0);
    for which in (0..).take_while(|_| Instant::now() < end) {
        // Not a moment earlier: it would wait for its turn, and the hog would be too early.
        thread::sleep(TURN);
        match which % 6 {
            0 => begin_set(&mut caller, "60M", &json!({})),
            2 => begin_set(&mut caller, "64M", &json!({"soft": "1M"})),
            4 => begin_set(&mut caller, "62M", &json!({"action": "kill", "now": true})),
            _ => caller.begin("ClearLimit", &json!({"who": format!("user:{ALICE}")})),
        }
        hog.tell("go");
        caller.answer().unwrap();
        let full = until("the hog is full or killed", support::SOON, || {
            hog.try_line().map(|_| true).or_else(|| (!hog.runs()).then_some(false))
        });
        if full {
            living = living.max(living_bytes(hog.pid()));
        }
        if !full || living > 4 * LINE {
            hog = self::hog(fixture);
        }
        times += 1;
    }
    let in_force = watcher.end();
    println!("\n{what}: {times} changes; {living} bytes lived, {in_force} in force");
    assert!(living <= LINE + OVER_MAX, "{what}: a living process had {living} bytes");
    assert!(in_force <= LINE, "{what}: {in_force} bytes were in force");
}

#[test]
fn setting_and_clearing_an_own_line_opens_nothing_and_ratchets_nothing() {
    let fixture = fixture!("[limits]\nuid_max = 60999\n");
    let _sleepers = sleepers(&fixture);
    fixture.ok(&["limit", "set", "default", "64M"]);
    assert_holds(&fixture, "under default");
    fixture.limit(ALICE, "64M", &[]);
    assert_holds(&fixture, "under a line by number");
}

#[test]
fn users_who_fill_the_table_of_accounts_keep_no_line_of_the_administrators_out() {
    let mut fixture = fixture!("[limits]\nuid_max = 60999\n[maps]\nmax_accounts = 32\n");
    fixture.limit(ROOTS[0], "64M", &[]);
    for user in MANY {
        assert_refused(draws(&fixture, user), ["NotPermitted", "no line is drawn for you"]);
    }
    let _here: Vec<Program> =
        MANY.map(|user| Program::of(fixture.as_user(user, "/usr/bin/sleep").arg("100"))).collect();
    wait_for("all of them run", || {
        MANY.into_iter().all(|user| !support::exact::processes_of(user).is_empty())
    });
    fixture.ok(&["limit", "set", "default", "64M"]);
    for user in MANY {
        // Where somebody else runs something here too, one of them comes too late.
        if let Err(error) = draws(&fixture, user) {
            assert!(error.contains("all accounts are in use"), "{error}");
        }
    }
    // With the one for everybody.
    assert_eq!((fixture.accounts().len(), hard(&fixture, MANY.start)), (33, Some(32)));
    fixture.limit(ROOTS[1], "48M", &[]);
    assert_eq!(hard(&fixture, ROOTS[1]), Some(48));
    fixture.workload(ROOTS[1], "bloat", &["--mebibytes=96", "--no-thp"]).killed();
    wait_for("it is told", || {
        fixture.log().contains("gave way to lines that the administrator drew by number")
    });
    fixture.end_daemon(rustix::process::Signal::TERM);
    fixture.launch();
    assert_eq!([hard(&fixture, ROOTS[0]), hard(&fixture, ROOTS[1])], [Some(64), Some(48)]);
    assert!(kernel_trigger(&fixture).starts_with("in force: "), "{}", kernel_trigger(&fixture));
    // And one more, while all the others are there.
    fixture.limit(ROOTS[2], "40M", &[]);
    fixture.workload(ROOTS[2], "bloat", &["--mebibytes=96", "--no-thp"]).killed();
}

#[test]
fn a_line_that_no_account_is_left_for_is_named_and_costs_no_other() {
    let mut fixture = fixture!(
        "[maps]\nmax_accounts = 2\n[limits.users]\n60436 = { hard = \"64M\" }\n60437 = { hard = \"48M\" }\n\
         60438 = { hard = \"40M\" }\n"
    );
    let told =
        "NOT in force for user:60438: all accounts are in use; raise maps.max_accounts and start again";
    assert_eq!(ROOTS.map(|user| hard(&fixture, user)), [Some(64), Some(48), None]);
    assert!(kernel_trigger(&fixture).starts_with("in force: ") && kernel_trigger(&fixture).ends_with(told));
    assert!(
        fixture.log().contains("no line is in force for user:60438: all accounts are in use"),
        "{}",
        fixture.log()
    );
    fixture.workload(ROOTS[1], "bloat", &["--mebibytes=96", "--no-thp"]).killed();
    let (code, _, stderr) = fixture.run(&["limit", "set", &ALICE.to_string(), "64M"]);
    let refused =
        format!("no line can be drawn for user:{ALICE}: all accounts are in use; raise maps.max_accounts");
    assert!(code == 1 && stderr.contains(&refused), "{code} {stderr}");
    assert_eq!(ROOTS.map(|user| hard(&fixture, user)), [Some(64), Some(48), None]);
    // With room for all nothing is left to say.
    fixture.end_daemon(rustix::process::Signal::TERM);
    let config = fs::read_to_string(fixture.path("plimsoll.toml")).unwrap();
    fs::write(fixture.path("plimsoll.toml"), config.replace("max_accounts = 2", "max_accounts = 3")).unwrap();
    fixture.launch();
    assert_eq!(ROOTS.map(|user| hard(&fixture, user)), [Some(64), Some(48), Some(40)]);
    assert!(!kernel_trigger(&fixture).contains("NOT"), "{}", kernel_trigger(&fixture));
}

#[test]
fn all_the_subordinate_uids_of_a_user_have_one_users_share_and_no_line_each() {
    apart(|| {
        if !Path::new("/etc/subuid").exists() {
            return support::skip("there is no /etc/subuid to put another over");
        }
        let _etc = etc(&[("subuid", &format!("{ALICE}:60410:20\n"))]);
        let fixture = fixture!("[limits]\nuid_max = 60999\n");
        fixture.ok(&["limit", "set", "default", "64M"]);
        for user in [60_410, 60_429] {
            assert_refused(draws(&fixture, user), ["NotPermitted", "is a subordinate uid of 60400's"]);
        }
        draws(&fixture, 60_430).unwrap();
        // Until the connections before are known to have ended, their seats are taken.
        let callers = until("there are eight seats", support::SOON, || {
            let mut callers: Vec<Caller> = (60_410..60_418).map(|user| Caller::of(&fixture, user)).collect();
            callers.iter_mut().for_each(|caller| caller.begin("Status", &json!({})));
            callers.iter_mut().all(|caller| caller.answer().is_ok()).then_some(callers)
        });
        for user in [60_418, ALICE] {
            let told = Caller::of(&fixture, user).answer();
            assert_refused(told, ["Busy", "too many connections"]);
        }
        Caller::of(&fixture, 60_430).call("Status", &json!({})).unwrap();
        drop(callers);
    });
}
