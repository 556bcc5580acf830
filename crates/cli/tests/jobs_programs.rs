//! Jobs, by the programs alone: who is in one hands that on to all that it starts, and what these have is charged to the job
//! and to its user. The lines are drawn past the daemon, and it lives no more.
#![cfg(test)]

mod support;

use plimsoll_policy::{
    account::Counted,
    units::{JobId, Pages, Pid, Uid},
};
use plimsoll_sys::{
    bpf::{AccountFacts, Enforce, Limits, LineSet},
    process::PidFd,
};
use rustix::process::Signal;
use std::os::fd::AsFd as _;
use support::{ALICE, Fixture, exact, program::Program, skip, wait_for};

const JOB: JobId = JobId(7);
const INNER: JobId = JobId(8);

/// Takes memory until somebody ends it, or all that it wants is there.
const HOG: &str = "\
import os, sys, threading
def hog(mebibytes):
    global kept
    kept = [bytearray(b'x') * (1 << 20) for _ in range(mebibytes)]
    print('has it', flush=True)
";

fn pages(mebibytes: u64) -> Pages {
    Pages((mebibytes << 20) / exact::page_bytes())
}

fn facts(maps: &Limits, whose: impl Into<Counted>) -> AccountFacts {
    maps.account(whose.into()).unwrap().expect("there is such an account")
}

/// Draws a job's line, below its user's and the jobs' around it.
fn draw(maps: &Limits, job: JobId, mebibytes: u64, around: &[JobId]) {
    let mut above = [0; 4];
    above[0] = facts(maps, Uid(ALICE)).index;
    for (place, outer) in above[1..].iter_mut().zip(around) {
        *place = facts(maps, *outer).index;
    }
    let hard = pages(mebibytes);
    let line = LineSet {
        whose: job.into(),
        user: Some(Uid(ALICE)),
        hard,
        soft: Pages(hard.0 / 10 * 9),
        signal: 9,
        enforce: Enforce::Ratchet,
        from_default: false,
        above,
    };
    maps.set_line(&line).unwrap();
}

/// Alice has a line of 256 MiB, and a job one of 64 MiB. No daemon lives.
fn drawn() -> Option<(Fixture, Limits)> {
    let mut fixture = Fixture::start("", &[])?;
    fixture.limit(ALICE, "256M", &[]);
    let maps = fixture.maps();
    fixture.end_daemon(Signal::KILL);
    draw(&maps, JOB, 64, &[]);
    Some((fixture, maps))
}

/// Runs Python in a job.
fn start_in(fixture: &Fixture, maps: &Limits, job: JobId, body: &str) -> Program {
    let script =
        "say('ready')\nsys.stdin.readline()\nos.execv('/usr/bin/python3', ['python3', '-c', BODY])\n";
    let script = script.replace("BODY", &format!("{:?}", format!("{HOG}{body}")));
    let mut program = fixture.python(ALICE, &format!("import os, sys\n{script}")).ready();
    let process = PidFd::open(Pid(program.pid())).unwrap();
    maps.enter_job(process.as_fd(), job).unwrap();
    program.tell("go");
    program
}

fn ends_empty(maps: &Limits, job: JobId) {
    wait_for("nothing is charged to the job", || {
        let facts = facts(maps, job);
        (facts.processes, facts.usage) == (0, Pages(0))
    });
}

#[test]
fn whatever_it_starts_is_in_the_job() {
    let Some((fixture, maps)) = drawn() else { return skip("it takes root") };
    let mut outside = fixture.workload(ALICE, "chill", &["--mebibytes=100"]).ready();
    let ways = [
        ("itself", "hog(96)\n"),
        (
            "a child",
            "pid = os.fork()\nif pid == 0: hog(96)\nos._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != -9)\n",
        ),
        (
            "a session",
            "pid = os.fork()\nif pid == 0:\n    os.setsid()\n    hog(96)\nos._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != -9)\n",
        ),
        (
            "an orphan",
            "if os.fork() == 0:\n    if os.fork() == 0:\n        hog(96)\n        os._exit(1)\n    os._exit(0)\nos.wait()\nos._exit(0)\n",
        ),
        (
            "another program",
            "os.execv('/usr/bin/python3', ['python3', '-c', 'kept = bytearray(96 << 20)\\nfor i in range(0, 96 << 20, 4096): kept[i] = 1\\nprint(\"has it\", flush=True)'])\n",
        ),
        ("a thread", "one = threading.Thread(target=hog, args=(96,))\none.start()\none.join()\n"),
    ];
    for (way, body) in ways {
        let kills = facts(&maps, JOB).kills;
        let mut job = start_in(&fixture, &maps, JOB, body);
        wait_for(&format!("{way} is ended for the job's line"), || facts(&maps, JOB).kills > kills);
        job.end();
        ends_empty(&maps, JOB);
        assert_eq!(facts(&maps, JOB).kills, kills + 1, "{way}");
        assert!(outside.runs(), "{way}");
        assert_eq!(facts(&maps, Uid(ALICE)).processes, 1, "{way}");
    }
    assert_eq!(maps.counters().unwrap().jobs_lost, 0);
}

#[test]
fn what_a_job_has_is_its_users_as_well() {
    let Some((fixture, maps)) = drawn() else { return skip("it takes root") };
    let mut job = start_in(&fixture, &maps, JOB, "hog(40)\nsys.stdin.readline()\n");
    job.stage("has it");
    let [of_job, of_user] = [facts(&maps, JOB), facts(&maps, Uid(ALICE))];
    assert!(of_job.usage >= pages(40) && of_user.usage == of_job.usage, "{of_job:?} {of_user:?}");
    assert_eq!((of_job.processes, of_user.processes), (1, 1));
    // Over the user's line the largest of all goes, in a job or not.
    let mut outside = fixture.workload(ALICE, "chill", &["--mebibytes=30"]).ready();
    let mut hog = fixture.workload(ALICE, "bloat", &["--mebibytes=300", "--no-thp"]);
    hog.killed();
    assert!(job.runs() && outside.runs());
    job.tell("end");
    job.end();
    ends_empty(&maps, JOB);
}

#[test]
fn the_tightest_of_nested_jobs_acts() {
    let Some((fixture, maps)) = drawn() else { return skip("it takes root") };
    draw(&maps, INNER, 32, &[JOB]);
    let mut outer = start_in(&fixture, &maps, JOB, "hog(20)\nsys.stdin.readline()\n");
    outer.stage("has it");
    start_in(&fixture, &maps, INNER, "hog(64)\n").killed();
    assert_eq!((facts(&maps, INNER).kills, facts(&maps, JOB).kills), (1, 0));
    ends_empty(&maps, INNER);
    // Under the line of its own, and over that around it.
    draw(&maps, INNER, 128, &[JOB]);
    start_in(&fixture, &maps, INNER, "hog(64)\n").killed();
    assert_eq!(facts(&maps, JOB).kills, 1);
    assert!(outer.runs());
}

#[test]
fn a_job_that_is_gone_leaves_its_processes_to_their_user() {
    let Some((fixture, maps)) = drawn() else { return skip("it takes root") };
    let mut job =
        start_in(&fixture, &maps, JOB, "hog(40)\nsys.stdin.readline()\nhog(60)\nsys.stdin.readline()\n");
    job.stage("has it");
    assert!(maps.clear_line(JOB.into()).unwrap());
    job.tell("go on");
    job.stage("has it");
    let of_user = facts(&maps, Uid(ALICE));
    assert!(job.runs() && of_user.usage >= pages(60), "{of_user:?}");
}

#[test]
fn what_a_job_has_comes_and_goes_with_the_job_around_it() {
    let Some((fixture, maps)) = drawn() else { return skip("it takes root") };
    draw(&maps, INNER, 128, &[JOB]);
    let mut inner = start_in(&fixture, &maps, INNER, "hog(40)\nsys.stdin.readline()\n");
    inner.stage("has it");
    let of_all = || {
        [facts(&maps, INNER), facts(&maps, JOB), facts(&maps, Uid(ALICE))]
            .map(|one| (one.usage, one.processes))
    };
    let [of_inner, of_outer, of_user] = of_all();
    assert!(of_inner == of_outer && of_inner == of_user && of_inner.1 == 1, "{of_inner:?}");
    draw(&maps, INNER, 128, &[]);
    assert_eq!(of_all(), [of_inner, (Pages(0), 0), of_inner]);
    draw(&maps, INNER, 128, &[JOB]);
    assert_eq!(of_all(), [of_inner; 3]);
    inner.stop();
    for job in [INNER, JOB] {
        ends_empty(&maps, job);
    }
}
