//! Jobs that somebody watches over: `plimsoll run` with `--status-fd`, `--on-near` and `--end-orphans`, and `plimsoll jobs`.
#![cfg(test)]

mod support;

use rustix::process::Signal;
use serde_json::{Value, json};
use std::{fs, os::unix::process::ExitStatusExt as _};
use support::{
    ALICE, BOB, Fixture, assert_has,
    cgroup::Cgroup,
    exact,
    program::{Program, by_shell},
    skip, until, wait_for,
};

/// Grows in a child when it is told to, and says how that ended: `grow MEBIBYTES`, `hold MEBIBYTES` (does not end), `leave` (a
/// process of a session of its own, that SIGTERM does not end).
const GROWS: &str = "\
def touched(mebibytes):
    kept = mmap.mmap(-1, mebibytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept.madvise(15)
    for at in range(0, mebibytes << 20, 4096): kept[at] = 1
    return kept
def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid
def grow(mebibytes):
    pid = child(lambda: touched(mebibytes))
    say('ended', pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
def hold(mebibytes):
    def work():
        kept = touched(mebibytes)
        say('holds', mebibytes)
        time.sleep(100)
    child(work)
def leave():
    def work():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.setsid()
        say('left', os.getpid())
        time.sleep(100)
    child(work)
say('ready')
while (word := hear()): exec(word)
";

/// A program that is watched, and where its events go.
struct Watched {
    program: Program,
    events: std::path::PathBuf,
}

impl Watched {
    fn of(fixture: &Fixture, user: u32, options: &[&str], script: &str) -> Self {
        Self::within(fixture, user, (options, script), None)
    }

    fn within(fixture: &Fixture, user: u32, what: (&[&str], &str), cgroup: Option<&Cgroup>) -> Self {
        let one = Self::begin(fixture, (user, "events"), what, cgroup);
        Self { program: one.program.ready(), ..one }
    }

    /// `name`: of the file that events go to.
    fn begin(
        fixture: &Fixture,
        (user, name): (u32, &str),
        (options, script): (&[&str], &str),
        cgroup: Option<&Cgroup>,
    ) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let events = fixture.path(name);
        fs::write(&events, "").unwrap();
        fs::set_permissions(&events, fs::Permissions::from_mode(0o666)).unwrap();
        // As a user again, with its descriptor; in a cgroup, while it is root still.
        let options = [&["--status-fd", "9"], options].concat();
        let job = fixture.job_command(user, &options, script);
        let processes = cgroup.map_or_else(Default::default, Cgroup::processes);
        let script = "exec 9>\"$0\"; [ -z \"$1\" ] || echo $$ >\"$1\"; shift; exec \"$@\"";
        let command = by_shell(script, &[&events, &processes], &job);
        Self { program: Program::of(command), events }
    }

    fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.events).unwrap();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn kinds(&self) -> Vec<String> {
        self.events().iter().map(|one| one["event"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits for one of this kind.
    #[track_caller]
    fn event(&self, kind: &str) -> Value {
        until(kind, std::time::Duration::from_secs(10), || {
            self.events().into_iter().find(|one| one["event"] == kind)
        })
    }
}

fn jobs(fixture: &Fixture, user: u32) -> Vec<Value> {
    serde_json::from_str(&fixture.run_as(user, &["jobs", "--json"]).1).unwrap()
}

#[test]
fn whoever_starts_a_job_hears_who_was_killed_in_it_and_why() {
    let fixture = fixture!();
    let mut one = Watched::of(&fixture, ALICE, &["--limit", "64M", "--name", "build"], GROWS);
    let started = one.event("started");
    assert_has(&started, &json!({"job": "job:1", "hard_bytes": 64 << 20, "incident": null, "status": null}));
    one.program.tell("grow(100)");
    let [pid, status] = one
        .program
        .stage("ended")
        .split_once(' ')
        .map(|(pid, status)| [pid, status].map(str::to_owned))
        .unwrap();
    assert_eq!(status, "-9");
    let killed = one.event("killed");
    let told =
        json!({"job": "job:1", "hard_bytes": 64 << 20, "incident": 1, "reason": "over-hard-limit-largest"});
    assert_has(&killed, &told);
    assert_eq!(killed["processes"][0]["pid"].to_string(), pid);
    assert!(killed["story"].as_str().unwrap().contains("Job build (job 1) was using"), "{killed}");
    assert!(killed["peak_bytes"].as_u64().unwrap() >= 64 << 20, "{killed}");
    // What others lose is not told here.
    fixture.limit(BOB, "64M", &[]);
    fixture.workload(BOB, "chill", &["--mebibytes=100"]).killed();
    fixture.incidents(2);
    one.program.tell("sys.exit(3)");
    assert_eq!(one.program.end().code(), Some(3));
    let ended = one.event("ended");
    assert_has(&ended, &json!({"status": 3, "processes": [], "job": "job:1"}));
    assert!(ended["peak_bytes"].as_u64().unwrap() >= 64 << 20, "{ended}");
    let kinds = one.kinds();
    assert_eq!(kinds.iter().filter(|kind| *kind == "killed").count(), 1, "{kinds:?}");
    assert_eq!((kinds.first().unwrap().as_str(), kinds.last().unwrap().as_str()), ("started", "ended"));
}

#[test]
fn it_hears_of_kills_by_its_users_line_and_in_jobs_of_the_job_and_the_kernels() {
    let fixture = fixture!();
    let mut outer = Watched::of(&fixture, ALICE, &["--limit", "1G"], GROWS);
    fixture.limit(ALICE, "128M", &[]);
    outer.program.tell("grow(200)");
    outer.program.stage("ended");
    let killed = outer.event("killed");
    assert_has(&killed, &json!({"job": "job:1", "incident": 1, "hard_bytes": 1 << 30}));
    let of_user = killed["story"].as_str().unwrap();
    assert!(!of_user.contains("job 1"), "{of_user}");
    let plimsoll = fixture.path("plimsoll");
    outer.program.tell(&format!(
        "import subprocess; say('ended', subprocess.run([{plimsoll:?}, 'run', '--limit', '32M', '--', '/usr/bin/python3', \
         '-c', 'x = bytearray(b\"x\") * (80 << 20)']).returncode)"
    ));
    assert_eq!(outer.program.stage("ended"), "-9");
    wait_for("the outer one hears of it", || {
        outer.events().iter().any(|one| one["event"] == "killed" && one["incident"] == 2)
    });
    assert_eq!(fixture.incidents(2)[1]["victims"][0]["jobs"], json!([2, 1]));
    drop(outer);
    let Some(cgroup) = Cgroup::limited("watched", 48) else { return skip("no memory cgroup can be had") };
    let mut one = Watched::within(&fixture, BOB, (&[], GROWS), Some(&cgroup));
    one.program.tell("grow(100)");
    one.program.stage("ended");
    let killed = one.event("killed");
    assert_has(&killed, &json!({"job": "job:3"}));
    assert!(killed["reason"].as_str().unwrap().contains("kernel"), "{killed}");
}

#[test]
fn it_hears_that_the_line_is_near_and_a_command_is_run_then() {
    let fixture = fixture!();
    let told = fixture.path("told");
    fs::create_dir(&told).unwrap();
    rustix::fs::chmod(&told, rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    let script = format!("cat >{0}/new && mv {0}/new {0}/near", told.display());
    // As it takes them: an option of the command's is none of ours.
    let options = ["--limit", "64M", "--on-near", "sh", "-c", &script];
    let mut one = Watched::of(&fixture, ALICE, &options, GROWS);
    one.program.tell("hold(60)");
    one.program.stage("holds");
    let near = one.event("near");
    assert_has(&near, &json!({"job": "job:1", "hard_bytes": 64 << 20, "incident": null}));
    assert!(near["processes"][0]["usage_bytes"].as_u64().unwrap() > 20 << 20, "{near}");
    wait_for("the command is run", || told.join("near").exists());
    let given: Value = serde_json::from_str(&fs::read_to_string(told.join("near")).unwrap()).unwrap();
    assert_has(&given, &json!({"event": "near", "job": "job:1"}));
    fixture.assert_nobody_killed();
}

#[test]
fn what_a_program_leaves_behind_is_told_and_ended_on_demand() {
    let fixture = fixture!();
    let leave = |one: &mut Watched| {
        one.program.tell("leave()");
        let pid: u32 = one.program.stage("left").parse().unwrap();
        one.program.tell("sys.exit(0)");
        pid
    };
    let mut one = Watched::of(&fixture, ALICE, &["--name", "tidy"], GROWS);
    assert_has(
        &jobs(&fixture, ALICE)[0],
        &json!({"account": "job:1", "job": {"uid": ALICE, "outer": null, "orphans": 0}}),
    );
    assert!(jobs(&fixture, ALICE)[0]["job"]["pid"].is_u64() && jobs(&fixture, BOB).is_empty());
    let pid = leave(&mut one);
    assert_eq!(one.program.end().code(), Some(0));
    assert_eq!(one.event("ended")["processes"][0]["pid"], pid);
    let listed = jobs(&fixture, ALICE);
    assert_has(&listed[0], &json!({"name": "tidy", "processes": 1, "job": {"pid": null, "orphans": 1}}));
    let text = fixture.run_as(ALICE, &["jobs"]).1;
    assert!(text.contains("ORPHANS") && text.contains("\"tidy\""), "{text}");
    for (user, arguments, code) in [
        (BOB, &["jobs", "end", "1", "--now"][..], 4),
        (ALICE, &["jobs", "end", "99"], 4),
        (ALICE, &["jobs", "end", "all"], 2),
    ] {
        let (found, _, said) = fixture.run_as(user, arguments);
        assert_eq!(found, code, "{arguments:?}: {said}");
    }
    assert!(exact::state(pid).is_some());
    let (code, said, error) = fixture.run_as(ALICE, &["jobs", "end", "job:1", "--now"]);
    assert!(code == 0 && said.contains("Job 1: 1 process ended."), "{code} {said} {error}");
    assert!(exact::status(pid).is_none_or(|_| exact::processes_of(ALICE).is_empty()));
    // Asked first, and not any more once somebody is in a hurry.
    let mut two = Watched::of(&fixture, ALICE, &["--end-orphans"], GROWS);
    let pid = leave(&mut two);
    assert_eq!(two.event("ended")["processes"][0]["pid"], pid);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(two.program.runs() && exact::state(pid).is_some(), "SIGTERM does not end it");
    two.program.signal(Signal::TERM);
    assert_eq!(two.program.end_within(std::time::Duration::from_secs(5)).code(), Some(0));
    assert!(exact::processes_of(ALICE).is_empty(), "{pid} has been ended");
}

#[test]
fn signals_and_the_end_are_the_programs_own() {
    let fixture = fixture!();
    let asks = "\
signal.signal(signal.SIGTERM, lambda *_: (say('asked'), sys.exit(7)))
say('ready')
while True: time.sleep(1)
";
    let mut one = Watched::of(&fixture, ALICE, &[], asks);
    one.program.signal(Signal::TERM);
    one.program.stage("asked");
    assert_eq!(one.program.end().code(), Some(7));
    assert_has(&one.event("ended"), &json!({"status": 7}));
    let mut two = Watched::of(&fixture, ALICE, &[], "say('ready', os.getpid())\ntime.sleep(60)\n");
    assert_eq!(jobs(&fixture, ALICE).iter().filter(|one| one["job"]["pid"].is_u64()).count(), 1);
    two.program.signal(Signal::USR1);
    assert_eq!(two.program.end().signal(), Some(10));
    assert_has(&two.event("ended"), &json!({"status": 138}));
    // Who is watched ends with its watcher, as it would have without one.
    let mut three = Watched::of(&fixture, ALICE, &[], "say('ready', os.getpid())\ntime.sleep(60)\n");
    three.program.signal(Signal::KILL);
    three.program.killed();
    wait_for("nothing is left of it", || exact::processes_of(ALICE).is_empty());
    // What nothing can be preloaded into may have a line all the same.
    let becomes_root = fixture.path("becomes-root");
    fs::copy("/bin/true", &becomes_root).unwrap();
    rustix::fs::chmod(&becomes_root, rustix::fs::Mode::from_raw_mode(0o4755)).unwrap();
    let becomes_root = becomes_root.to_str().unwrap();
    assert_eq!(fixture.run_as(ALICE, &["run", "--limit", "64M", "--", becomes_root]).0, 0);
    assert_eq!(fixture.run_as(ALICE, &["run", "--tmalloc", "--", becomes_root]).0, 125);
    for (arguments, status) in [
        (&["--end-orphans", "--", "nosuch"][..], 127),
        (&["--status-fd", "99", "--", "true"], 125),
        (&["--end-orphans", "--limit", "1K", "--", "true"], 125),
    ] {
        let (code, _, said) = fixture.run_as(ALICE, &[&["run"], arguments].concat());
        assert!(code == status && said.lines().count() == 1, "{arguments:?}: {code} {said}");
    }
}

#[test]
fn a_daemon_that_is_started_again_tells_what_the_last_one_did_not() {
    let mut fixture = fixture!();
    let mut one = Watched::of(&fixture, ALICE, &["--limit", "64M"], GROWS);
    one.event("started");
    fixture.end_daemon(Signal::KILL);
    one.program.tell("grow(100)");
    one.program.stage("ended");
    fixture.launch();
    assert_has(&one.event("killed"), &json!({"job": "job:1", "incident": 1}));
    assert!(jobs(&fixture, ALICE)[0]["job"]["pid"].is_u64(), "the next one knows what it began with");
    one.program.tell("grow(100)");
    one.program.stage("ended");
    wait_for("it is told by the next one", || {
        one.kinds().iter().filter(|kind| *kind == "killed").count() == 2
    });
    // Without any, it ends as ever.
    fixture.end_daemon(Signal::KILL);
    one.program.tell("sys.exit(0)");
    assert_eq!(one.program.end().code(), Some(0));
    assert_has(&one.event("ended"), &json!({"status": 0, "usage_bytes": null}));
}

#[test]
fn who_is_told_that_there_is_no_memory_is_told_of_as_well() {
    let fixture = fixture!();
    let library = fixture.path("libtmalloc.so");
    fs::copy(std::env::current_exe().unwrap().with_file_name("libtmalloc.so"), &library).unwrap();
    let asks = format!(
        "lib = ctypes.CDLL({library:?})\nlib.tmalloc.restype = ctypes.c_void_p\nlib.tmalloc.argtypes = [ctypes.c_size_t]\n\
         say('ready')\nwhile lib.tmalloc(1 << 20) is not None: pass\nsay('told', os.getpid())\nhear()\n"
    );
    let mut one = Watched::of(&fixture, ALICE, &["--limit", "64M"], &asks);
    let pid = one.program.stage("told");
    let refused = one.event("refused");
    assert_has(&refused, &json!({"job": "job:1", "hard_bytes": 64 << 20}));
    assert_eq!(refused["processes"][0]["pid"].to_string(), pid);
    assert!(one.program.runs() && !one.kinds().contains(&"killed".to_owned()));
}

#[test]
fn many_at_once_take_turns_and_each_hears_of_its_own() {
    let fixture = fixture!();
    let script = "say('ready')\nhear()\n";
    assert_eq!([ALICE, BOB].map(|user| fixture.run_as(user, &["jobs"]).0), [0, 0]);
    let start = |number: u32| {
        let name = format!("events-{number}");
        Watched::begin(&fixture, (ALICE + number % 2, &name), (&["--limit", "64M"], script), None)
    };
    let many: Vec<Watched> = (0..40).map(start).collect();
    let mut many: Vec<Watched> =
        many.into_iter().map(|one| Watched { program: one.program.ready(), ..one }).collect();
    for one in &mut many {
        one.program.tell("go");
    }
    let mut jobs: Vec<String> = many
        .iter_mut()
        .map(|one| {
            assert_eq!(one.program.end().code(), Some(0));
            assert_eq!(one.kinds(), ["started", "ended"]);
            one.event("ended")["job"].as_str().unwrap().to_owned()
        })
        .collect();
    jobs.sort();
    jobs.dedup();
    assert_eq!(jobs.len(), 40);
}

#[test]
fn a_job_that_forks_faster_than_it_is_found_is_not_told_as_ended() {
    let fixture = fixture!();
    let beat = fixture.path("beat");
    fs::write(&beat, "").unwrap();
    rustix::fs::chmod(&beat, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    // Until its file is gone: whoever is born of it is found by nobody here, either.
    let comet = format!(
        "end = time.time() + 60\nsay('ready')\nwhile time.time() < end and os.path.exists({beat:?}):\n \
         if os.fork(): os._exit(0)\n os.utime({beat:?})\n"
    );
    let mut comet = fixture.job(ALICE, &[], &comet).ready();
    comet.end();
    let (code, _, said) = fixture.run_as(ALICE, &["jobs", "end", "1", "--now"]);
    let last = || fs::metadata(&beat).unwrap().modified().unwrap();
    let told = last();
    std::thread::sleep(std::time::Duration::from_millis(500));
    // It may have been hit.
    let goes_on = last() > told;
    fs::remove_file(&beat).unwrap();
    assert_eq!((code == 1, said.contains("has not ended")), (goes_on, goes_on), "{said}");
}
