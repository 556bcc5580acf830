//! Usage against the kernel's own exact sums: whose it is when users change, and inside namespaces.
#![cfg(test)]

mod support;

use support::{ALICE, BOB, CAROL, Fixture, SOON, cgroup::Cgroup, exact, fewer, program::Program, until};

#[track_caller]
fn assert_users(fixture: &Fixture, expected: &[(u32, u64)]) {
    for (user, pages) in expected {
        assert_eq!(fixture.usage_pages(*user), *pages, "pages of {user}");
    }
}

/// A process of Alice's that becomes Bob's, stopped before it does.
fn hopper(fixture: &Fixture, settings: &[&str]) -> Program {
    [ALICE, BOB].iter().for_each(|user| fixture.owns(*user));
    let mut hopper = fixture.root_workload("setuidhop", &[settings, &["--wait"]].concat());
    hopper.stage("before");
    hopper
}

#[test]
fn a_process_that_changes_its_user_takes_its_whole_charge_along() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    fixture.limit(BOB, "256M", &[]);
    let mut hopper = hopper(&fixture, &["--from=60100", "--to=60101", "--mebibytes=24"]);
    let pages = || exact::process_pages(hopper.pid()).unwrap();
    assert_users(&fixture, &[(ALICE, pages()), (BOB, 0)]);
    let pid = hopper.pid();
    let pages = || exact::process_pages(pid).unwrap();
    hopper.tell("");
    hopper.stage("after uid=60101");
    assert_users(&fixture, &[(ALICE, 0), (BOB, pages())]);
    hopper.tell("");
    hopper.stage("grown");
    assert_users(&fixture, &[(ALICE, 0), (BOB, pages())]);
    assert_eq!(fixture.account(ALICE).unwrap()["processes"], 0);
    hopper.stop();
    assert_users(&fixture, &[(ALICE, 0), (BOB, 0)]);
}

#[test]
fn a_process_that_becomes_an_unlimited_user_s_is_charged_to_nobody() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let mut hopper = hopper(&fixture, &["--from=60100", "--to=60102", "--mebibytes=24"]);
    fixture.owns(CAROL);
    assert!(fixture.usage_pages(ALICE) > exact::pages_of_kib(24 << 10));
    hopper.tell("");
    hopper.stage("after uid=60102");
    hopper.tell("");
    hopper.stage("grown");
    assert_users(&fixture, &[(ALICE, 0)]);
    assert!(fixture.account(CAROL).is_none());
    hopper.stop();
    assert_users(&fixture, &[(ALICE, 0)]);
}

#[test]
fn a_process_that_was_root_s_is_charged_in_full_to_the_user_it_becomes() {
    let fixture = fixture!();
    fixture.limit(BOB, "256M", &[]);
    let mut hopper = hopper(&fixture, &["--from=0", "--to=60101", "--mebibytes=24"]);
    assert_users(&fixture, &[(BOB, 0)]);
    hopper.tell("");
    hopper.stage("after uid=60101");
    hopper.tell("");
    hopper.stage("grown");
    assert_users(&fixture, &[(BOB, exact::process_pages(hopper.pid()).unwrap())]);
    hopper.stop();
    assert_users(&fixture, &[(BOB, 0)]);
}

#[test]
fn a_charge_can_go_to_an_unlimited_user_and_come_back() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    fixture.limit(BOB, "256M", &[]);
    let mut scripted = fixture.scripted(&[ALICE, BOB, CAROL]);
    let pid = scripted.make(1, "hop 60100");
    scripted.tell(1, "touch 8192");
    // What it had from root at its fork is not its own.
    let inherited = exact::process_pages(pid).unwrap() - fixture.usage_pages(ALICE);
    assert!(inherited < exact::pages_of_kib(1024), "{inherited} pages from root");
    for _ in 0..3 {
        for user in [CAROL, BOB, ALICE] {
            scripted.tell(1, &format!("setuid {user}"));
            scripted.tell(1, "touch 1024");
            scripted.tell(1, "free");
            if user != CAROL {
                let expected = exact::process_pages(pid).unwrap() - inherited;
                assert_users(&fixture, &[(user, expected), (ALICE + BOB - user, 0)]);
            }
        }
    }
    scripted.tell(1, "exit");
    assert_users(&fixture, &[(ALICE, 0), (BOB, 0)]);
}

#[test]
fn a_change_of_user_among_threads_that_fault_leaves_no_page_behind() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    fixture.limit(BOB, "256M", &[]);
    for round in 0..fewer(40) {
        let mut hopper = hopper(&fixture, &["--from=60100", "--to=60101", "--mebibytes=4", "--threads=8"]);
        hopper.tell("");
        hopper.stage("after");
        hopper.tell("");
        hopper.stage("grown");
        let counted = exact::process_pages(hopper.pid()).unwrap();
        let found = (fixture.usage_pages(ALICE), fixture.usage_pages(BOB));
        assert_eq!(found, (0, counted), "round {round}");
    }
    assert_users(&fixture, &[(ALICE, 0), (BOB, 0)]);
}

#[test]
fn a_thread_that_changes_only_its_own_user_moves_no_charge() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    fixture.limit(BOB, "256M", &[]);
    let mut scripted = fixture.scripted(&[ALICE, BOB]);
    scripted.make(1, "hop 60100");
    scripted.tell(1, "touch 4096");
    let before = fixture.usage_pages(ALICE);
    scripted.tell(1, "thread 2");
    scripted.tell(2, "rawuid 60101");
    scripted.tell(2, "touch 1024");
    assert!(fixture.usage_pages(ALICE) >= before + exact::pages_of_kib(1024));
    assert_users(&fixture, &[(BOB, 0)]);
    scripted.tell(1, "exit");
    assert_users(&fixture, &[(ALICE, 0), (BOB, 0)]);
}

#[test]
fn a_login_is_not_charged_the_memory_of_the_server_that_forked_it() {
    let fixture = fixture!();
    fixture.limit(ALICE, "32M", &[]);
    fixture.owns(ALICE);
    // Twice the line, in a server of root's that forks, changes user and then executes, as sshd and login do.
    let mut server = fixture.root_python(
        "memory = bytearray(64 << 20)\n\
         for offset in range(0, 64 << 20, 4096): memory[offset] = 1\n\
         child = os.fork()\n\
         if child == 0:\n\
         \x20   os.setresgid(60100, 60100, 60100)\n\
         \x20   os.setresuid(60100, 60100, 60100)\n\
         \x20   more = bytearray(1 << 20)\n\
         \x20   say('forked')\n\
         \x20   time.sleep(0.3)\n\
         \x20   os.execv('/usr/bin/sleep', ['sleep', '60'])\n\
         say('child', child)\n\
         hear()\n\
         os.kill(child, signal.SIGKILL)\n",
    );
    let mut said = [server.line(), server.line()];
    said.sort();
    assert_eq!(said[1], "forked", "{said:?}");
    let child: u32 = said[0].strip_prefix("child ").unwrap().parse().unwrap();
    let forked = fixture.usage_pages(ALICE);
    assert!(forked < exact::pages_of_kib(4096), "{forked} pages charged to a fresh login");
    until("the login executes and is charged exactly", SOON, || {
        let pages = exact::process_pages(child)?;
        (pages < exact::pages_of_kib(1024) && fixture.usage_pages(ALICE) == pages).then_some(())
    });
    assert!(fixture.history().is_empty());
    server.tell("");
    server.end();
}

#[test]
fn processes_in_namespaces_are_charged_to_the_user_who_made_them() {
    let fixture = fixture!();
    fixture.limit(ALICE, "256M", &[]);
    let mut scripted = fixture.scripted(&[ALICE]);
    let outside = scripted.make(1, "start 60100");
    if let Err(refused) = scripted.attempt(1, "userns") {
        return support::skip(format_args!("user namespaces: {refused}"));
    }
    scripted.tell(1, "touch 4096");
    scripted.tell(1, "pidns");
    let before = fixture.usage_pages(ALICE);
    assert_eq!(before, exact::process_pages(outside).unwrap());
    // Process 1 of a namespace of its own.
    let inside = scripted.make(1, "fork 2");
    let inherited = exact::process_pages(inside).unwrap();
    let forked = fixture.usage_pages(ALICE);
    scripted.tell(2, "touch 8192");
    assert_eq!(fixture.usage_pages(ALICE) - forked, exact::process_pages(inside).unwrap() - inherited);
    scripted.tell(2, "exec");
    scripted.tell(1, "touch 4");
    assert_users(&fixture, &[(ALICE, exact::user_pages(ALICE))]);
    scripted.tell(2, "exit");
    scripted.tell(1, "exit");
    assert_users(&fixture, &[(ALICE, 0)]);
}

#[test]
fn the_default_line_is_every_other_user_s_own() {
    let fixture = fixture!("[limits]\nuid_min = 60100\nuid_max = 60199\n");
    // One runs before the line, one comes after it, one has a line of its own.
    let mut early = fixture.workload(BOB, "chill", &["--mebibytes=8"]).ready();
    fixture.limit(ALICE, "256M", &[]);
    fixture.ok(&["limit", "set", "default", "128M"]);
    let mut late = fixture.workload(CAROL, "chill", &["--mebibytes=12"]).ready();
    let mut own = fixture.workload(ALICE, "chill", &["--mebibytes=4"]).ready();
    for (user, program, hard) in
        [(ALICE, &own, 256_u64 << 20), (BOB, &early, 128 << 20), (CAROL, &late, 128 << 20)]
    {
        let account = fixture.account(user).unwrap();
        assert_eq!(account["hard_bytes"], hard, "{account}");
        assert_users(&fixture, &[(user, exact::process_pages(program.pid()).unwrap())]);
    }
    fixture.ok(&["limit", "clear", "60100"]);
    let account = fixture.account(ALICE).unwrap();
    assert_eq!(account["hard_bytes"], 128 << 20, "{account}");
    assert_users(&fixture, &[(ALICE, exact::process_pages(own.pid()).unwrap())]);
    for program in [&mut early, &mut late, &mut own] {
        program.stop();
    }
    assert_users(&fixture, &[(ALICE, 0), (BOB, 0), (CAROL, 0)]);
}

/// A Python script of a process that comes into a cgroup as root and is `user` then.
fn runs(cgroup: &Cgroup, fixture: &Fixture, user: u32, script: &str) -> Program {
    fixture.root_python(&format!(
        "open('{}', 'w').write(str(os.getpid()))\nos.setgid({user})\nos.setuid({user})\n{script}",
        cgroup.processes().display()
    ))
}

/// A name as Docker gives it, of this test run's own.
fn docker_scope() -> String {
    format!("docker-{:064x}.scope", std::process::id())
}

/// Takes 96 MiB and says so.
const HOG: &str =
    "held = bytearray(96 << 20)\nfor at in range(0, 96 << 20, 4096): held[at] = 1\nsay('full')\nhear()\n";

#[test]
fn a_uid_in_a_container_of_roots_is_not_the_users_of_this_machine() {
    // One with a line of their own, one with the default one.
    const DORA: u32 = 60_310;
    const EMIL: u32 = 60_311;
    let Some(scope) = Cgroup::named(&docker_scope()) else { return };
    let fixture = fixture!("[limits]\nuid_max = 60399\n");
    [DORA, EMIL].iter().for_each(|user| fixture.owns(*user));
    fixture.limit(DORA, "32M", &[]);
    fixture.ok(&["limit", "set", "default", "32M"]);
    let mut theirs = fixture.workload(DORA, "chill", &["--mebibytes=8"]).ready();
    // With and without exec, forked, and deep inside, where the container's root has cgroups of its own.
    let inner = scope.within("init");
    let deep = inner.within("deep");
    std::os::unix::fs::chown(deep.folder(), Some(DORA), None).unwrap();
    let exec = format!(
        "os.execv(sys.executable, [sys.executable, '-c', {:?}])",
        format!("import sys\ndef say(x): print(x, flush=True)\ndef hear(): sys.stdin.readline()\n{HOG}")
    );
    let forked = format!("if os.fork(): os.wait(); sys.exit()\n{HOG}");
    let mut contained = [
        runs(&scope, &fixture, DORA, HOG),
        runs(&scope, &fixture, DORA, &exec),
        runs(&inner, &fixture, DORA, &forked),
        runs(&deep, &fixture, EMIL, &exec),
    ];
    contained.iter_mut().for_each(|program| drop(program.stage("full")));
    assert_eq!(fixture.usage_pages(DORA), exact::process_pages(theirs.pid()).unwrap());
    assert_eq!(fixture.account(DORA).unwrap()["processes"], 1);
    assert!(fixture.account(EMIL).is_none(), "made for whoever has the uid in a container");
    assert!(theirs.runs() && contained.iter_mut().all(Program::runs));
    drop(contained);
    // The name alone is anybody's to choose.
    let own = format!("docker-{:064x}.scope", u64::from(std::process::id()) + (1 << 32));
    let own = Cgroup::named(&own).unwrap();
    std::os::unix::fs::chown(own.folder(), Some(DORA), None).unwrap();
    runs(&own, &fixture, DORA, HOG).killed();
    // Nor does root's service become a container by its name.
    let number = std::process::id();
    for name in [
        format!("dockers-{number}.scope"),
        format!("docker-registry-{number}.service"),
        format!("crio-{number:064x}.service"),
        format!("machine-learning@{number}.service"),
    ] {
        runs(&Cgroup::named(&name).unwrap(), &fixture, EMIL, HOG).killed();
    }
    let above = Cgroup::of("machines").unwrap();
    let machines = above.within("machine.slice");
    let machine = machines.within(&format!("machine-{number}.scope"));
    let mut contained = runs(&machine, &fixture, EMIL, HOG);
    contained.stage("full");
    assert!(contained.runs());
}
