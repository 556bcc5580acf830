use super::{Candidate, KillMeans, KillOrders, Killed, Killer, signal_listed};
use crate::{
    cgroup::{
        Cgroup, CgroupErrorKind, Refusal,
        members::Look,
        testing::{Grove, USER, take, until, write},
    },
    process::{
        PidFd, ProcRoot, Reaper,
        testing::{Guest, proc_root, wait_for_exit},
    },
};
use plimsoll_policy::{units::Pid, victim::Signal};
use rustix::fs::{Mode, mkdirat};
use std::{
    fs,
    io::Write as _,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    process::{Command, Stdio},
    time::Duration,
};

const ALL: KillOrders<'static> =
    KillOrders { reaper: None, hold: 4, patience: Duration::from_secs(20), dry_run: false };

fn kill(cgroup: &Cgroup, orders: &KillOrders<'_>) -> Killed {
    kill_but(&[], cgroup, orders)
}

fn kill_but(spare: &[Pid], cgroup: &Cgroup, orders: &KillOrders<'_>) -> Killed {
    let mut spares = |_: &mut ProcRoot, pid: Pid| spare.contains(&pid);
    Killer::new().kill(cgroup, &mut proc_root(), orders, &mut spares).unwrap()
}

fn refusal(killer: &mut Killer, cgroup: &Cgroup) -> CgroupErrorKind {
    killer.kill(cgroup, &mut proc_root(), &ALL, &mut |_, _| false).unwrap_err().kind
}

#[test]
fn all_in_a_cgroup_and_below_it_die_and_nobody_else() {
    let Some(mut grove) = Grove::plant() else { return };
    let (job, part, other) = (grove.make("job"), grove.make("job/part"), grove.make("jobs"));
    let (one, two, outside) = (Guest::asleep(), Guest::asleep(), Guest::asleep());
    let pidfds = [one.pidfd(), two.pidfd(), outside.pidfd()];
    take(&job, one.pid());
    take(&part, two.pid());
    take(&other, outside.pid());
    let killed = kill(&job, &ALL);
    assert_eq!((killed.processes, killed.spared, killed.complete), (2, 0, true));
    assert_eq!(killed.means, KillMeans::Whole);
    wait_for_exit(&pidfds[0]);
    wait_for_exit(&pidfds[1]);
    until("it is empty", || {
        let mut empty = true;
        job.processes(|_| empty = false).unwrap();
        empty
    });
    assert!(!pidfds[2].has_exited().unwrap());
    assert_eq!(kill(&job, &ALL).means, KillMeans::Nobody);
}

#[test]
fn whoever_is_to_be_spared_lives_and_all_others_die() {
    let Some(mut grove) = Grove::plant() else { return };
    let part = grove.make("part");
    let guests: Vec<_> = (0..5).map(|_| Guest::asleep()).collect();
    for guest in &guests[..3] {
        take(&grove.top(), guest.pid());
    }
    guests[3..].iter().for_each(|guest| take(&part, guest.pid()));
    let spare = [guests[0].pid(), guests[4].pid(), Pid(4_000_000)];
    let killed = kill_but(&spare, &grove.top(), &ALL);
    assert_eq!((killed.processes, killed.spared), (3, 2));
    assert!(matches!(killed.means, KillMeans::Each { why: None, emptied: true, .. }), "{:?}", killed.means);
    for (guest, dies) in guests.iter().zip([false, true, true, true, false]) {
        if dies {
            wait_for_exit(&guest.pidfd());
        } else {
            assert!(!guest.pidfd().has_exited().unwrap());
        }
    }
}

#[test]
fn the_largest_are_held_for_the_reaper_and_were_signalled() {
    let Some(grove) = Grove::plant() else { return };
    let guests = [Guest::holding(8), Guest::asleep(), Guest::holding(32), Guest::holding(16)];
    guests.iter().for_each(|guest| take(&grove.top(), guest.pid()));
    let killed = kill(&grove.top(), &KillOrders { hold: 2, ..ALL });
    let held: Vec<_> = killed.largest.iter().map(|held| held.pidfd.pid()).collect();
    assert_eq!(held, [guests[2].pid(), guests[3].pid()]);
    assert!(killed.largest[0].usage > killed.largest[1].usage);
    killed.largest.iter().for_each(|held| wait_for_exit(&held.pidfd));
}

/// As one that was forked, or moved there, while the first of its kind were judged.
#[test]
fn one_that_comes_in_while_the_others_are_judged_is_judged_too_and_spared() {
    let Some(grove) = Grove::plant() else { return };
    let (condemned, late) = (Guest::asleep(), Guest::asleep());
    take(&grove.top(), condemned.pid());
    let mut asked = Vec::new();
    let mut spares = |_: &mut ProcRoot, pid: Pid| {
        if asked.is_empty() {
            take(&grove.top(), late.pid());
        }
        asked.push(pid);
        pid == late.pid()
    };
    let killed = Killer::new().kill(&grove.top(), &mut proc_root(), &ALL, &mut spares).unwrap();
    assert!(matches!(killed.means, KillMeans::Each { why: None, emptied: true, .. }), "{:?}", killed.means);
    assert!(asked.contains(&late.pid()), "{asked:?}");
    wait_for_exit(&condemned.pidfd());
    assert!(!late.pidfd().has_exited().unwrap());
}

#[test]
fn a_number_that_came_to_mean_another_is_judged_again_before_it_is_signalled() {
    let Some(grove) = Grove::plant() else { return };
    let (changed, spared) = (Guest::asleep(), Guest::asleep());
    [&changed, &spared].iter().for_each(|guest| take(&grove.top(), guest.pid()));
    // Condemned when it is listed, spared when it is held.
    let mut seen = 0;
    let mut spares = |_: &mut ProcRoot, pid: Pid| {
        seen += u32::from(pid == changed.pid());
        pid == spared.pid() || seen > 1
    };
    let killed =
        Killer::new().kill(&grove.top(), &mut proc_root(), &KillOrders { hold: 0, ..ALL }, &mut spares);
    assert!(matches!(killed.unwrap().means, KillMeans::Each { emptied: true, .. }));
    assert!(!changed.pidfd().has_exited().unwrap());
}

#[test]
fn one_that_ends_while_it_is_judged_is_asked_about_again_and_one_that_lives_is_not() {
    let (lives, ends) = (Guest::asleep(), Guest::asleep());
    let held = ends.pidfd();
    let (mut killer, mut asked) = (Killer::new(), Vec::new());
    let mut spares = |_: &mut ProcRoot, pid: Pid| {
        if pid == ends.pid() && asked.is_empty() {
            held.send_signal(Signal::Kill).unwrap();
            wait_for_exit(&held);
        }
        asked.push(pid);
        // What has the number the second time is another, and spared.
        asked.len() > 1
    };
    killer.pids = vec![ends.pid()];
    assert!(killer.judge(&mut proc_root(), &mut spares));
    assert!(!killer.is_spared(ends.pid()));
    assert!(!killer.judge(&mut proc_root(), &mut spares), "its number is not new");
    assert!(killer.is_spared(ends.pid()));
    killer.pids = vec![lives.pid()];
    assert!(killer.judge(&mut proc_root(), &mut spares));
    assert!(!killer.judge(&mut proc_root(), &mut spares));
    assert_eq!(asked, [ends.pid(), ends.pid(), lives.pid()]);
}

#[test]
fn a_cgroup_in_which_each_list_has_somebody_new_is_killed_all_the_same() {
    let Some(grove) = Grove::plant() else { return };
    let mut guests = vec![Guest::asleep()];
    take(&grove.top(), guests[0].pid());
    let mut spares = |_: &mut ProcRoot, _: Pid| {
        if guests.len() < 24 {
            guests.push(Guest::asleep());
            take(&grove.top(), guests.last().unwrap().pid());
        }
        false
    };
    let killed = Killer::new().kill(&grove.top(), &mut proc_root(), &ALL, &mut spares).unwrap();
    assert!(matches!(killed.means, KillMeans::Each { why: None, emptied: true, .. }), "{:?}", killed.means);
    guests.iter().for_each(|guest| wait_for_exit(&guest.pidfd()));
}

#[test]
fn the_largest_go_to_the_reaper_as_they_are_signalled() {
    let Some(grove) = Grove::plant() else { return };
    let guests = [Guest::holding(8), Guest::holding(16)];
    guests.iter().for_each(|guest| take(&grove.top(), guest.pid()));
    let (tell, told) = std::sync::mpsc::channel();
    let reaper = Reaper::spawn(move |report| tell.send(report).unwrap()).unwrap();
    let handle = reaper.handle();
    kill(&grove.top(), &KillOrders { reaper: Some(&handle), ..ALL });
    let mut reaped: Vec<_> = (0..2).map(|_| told.recv_timeout(Duration::from_secs(20)).unwrap()).collect();
    reaped.sort_by_key(|report| report.tag);
    for (report, guest) in reaped.iter().zip(&guests) {
        assert!(report.tag == u64::from(guest.pid().0) && report.exited, "{report:?}");
    }
    reaper.stop().unwrap();
    let late = Guest::asleep();
    assert_eq!(handle.submit(late.pidfd(), 1).unwrap_err().pid(), late.pid());
}

#[test]
fn a_dry_run_says_the_same_and_signals_nobody() {
    let Some(grove) = Grove::plant() else { return };
    let guest = Guest::asleep();
    take(&grove.top(), guest.pid());
    let killed = kill(&grove.top(), &KillOrders { dry_run: true, ..ALL });
    assert_eq!((killed.processes, killed.means), (1, KillMeans::Whole));
    let spare = [guest.pid()];
    let killed = kill_but(&spare, &grove.top(), &KillOrders { dry_run: true, ..ALL });
    assert_eq!((killed.processes, killed.spared, killed.means), (0, 1, KillMeans::Nobody));
    assert!(!guest.pidfd().wait_exit(Duration::from_millis(50)).unwrap());
}

#[test]
fn the_root_and_the_init_systems_scope_are_refused() {
    let Some(grove) = Grove::plant() else { return };
    let root = grove.root.cgroup(b"/").unwrap();
    assert_eq!(refusal(&mut Killer::new(), &root), CgroupErrorKind::Refused(Refusal::Root));
    let made = mkdirat(root.dir(), c"init.scope", Mode::from(0o755)).is_ok();
    let scope = grove.root.cgroup(b"init.scope").unwrap();
    let kind = refusal(&mut Killer::new(), &scope);
    if made {
        rustix::fs::unlinkat(root.dir(), c"init.scope", rustix::fs::AtFlags::REMOVEDIR).unwrap();
    }
    assert_eq!(kind, CgroupErrorKind::Refused(Refusal::InitScope));
}

#[test]
fn a_cgroup_that_holds_the_caller_or_process_1_is_refused_and_nobody_is_signalled() {
    let Some(mut grove) = Grove::plant() else { return };
    let part = grove.make("part");
    let (caller, other) = (Guest::asleep(), Guest::asleep());
    take(&part, caller.pid());
    take(&grove.top(), other.pid());
    let mut killer = Killer { own: caller.pid(), ..Killer::new() };
    let top = grove.top();
    assert_eq!(refusal(&mut killer, &top), CgroupErrorKind::Refused(Refusal::HoldsCaller));
    assert_eq!(refusal(&mut killer, &part), CgroupErrorKind::Refused(Refusal::HoldsCaller));
    let whole = Look { complete: true, foreign: 0 };
    killer.pids = vec![Pid(1), other.pid()];
    let error = killer.refuse_by_members(&top, whole).unwrap_err();
    assert_eq!(error.kind, CgroupErrorKind::Refused(Refusal::HoldsInit));
    killer.pids = vec![other.pid()];
    let error = killer.refuse_by_members(&top, Look { foreign: 1, ..whole }).unwrap_err();
    assert_eq!(error.kind, CgroupErrorKind::Refused(Refusal::Foreign));
    assert!(!other.pidfd().wait_exit(Duration::from_millis(50)).unwrap());
}

#[test]
fn in_a_cgroup_too_large_to_be_looked_through_paths_tell_who_is_in_it() {
    let Some(grove) = Grove::plant() else { return };
    let part = Look { complete: false, foreign: 0 };
    let killer = Killer::new();
    killer.refuse_by_members(&grove.top(), part).unwrap();
    let root = grove.root.cgroup(b"").unwrap();
    let error = killer.refuse_by_members(&root, part).unwrap_err();
    assert_eq!(error.kind, CgroupErrorKind::Refused(Refusal::HoldsCaller));
}

#[test]
fn a_threaded_cgroup_is_refused() {
    let Some(mut grove) = Grove::plant() else { return };
    let part = grove.make("part");
    write(&part, "cgroup.type", "threaded");
    let guest = Guest::asleep();
    take(&grove.top(), guest.pid());
    write(&part, "cgroup.threads", &guest.pid().to_string());
    assert_eq!(refusal(&mut Killer::new(), &part), CgroupErrorKind::Refused(Refusal::Threaded));
    assert!(!guest.pidfd().wait_exit(Duration::from_millis(50)).unwrap());
    // The domain above lists the processes of its threaded subtree.
    assert_eq!(kill(&grove.top(), &ALL).processes, 1);
    wait_for_exit(&guest.pidfd());
}

#[test]
fn a_cgroup_that_was_made_again_is_not_the_one_to_kill() {
    let Some(mut grove) = Grove::plant() else { return };
    let first = grove.make("job");
    grove.remove("job");
    let second = grove.make("job");
    let guest = Guest::asleep();
    take(&second, guest.pid());
    assert_eq!(refusal(&mut Killer::new(), &first), CgroupErrorKind::Gone);
    assert!(!guest.pidfd().wait_exit(Duration::from_millis(50)).unwrap());
}

/// As after a number changed hands between the list and the pidfd.
#[test]
fn a_process_that_the_second_list_does_not_have_is_not_signalled() {
    let Some(grove) = Grove::plant() else { return };
    let (inside, outside) = (Guest::asleep(), Guest::asleep());
    take(&grove.top(), inside.pid());
    let candidate = |guest: &Guest| Candidate { pidfd: guest.pidfd(), listed: false };
    let mut batch = vec![candidate(&inside), candidate(&outside)];
    batch.sort_by_key(|candidate| candidate.pidfd.pid());
    signal_listed(&grove.top(), &mut batch).unwrap();
    wait_for_exit(&inside.pidfd());
    assert!(!outside.pidfd().wait_exit(Duration::from_millis(50)).unwrap());
}

/// Starts chains of processes in the cgroup: each starts the next and exits. Each ends by itself after so many.
fn start_chains(cgroup: &Cgroup, folder: &tempfile::TempDir, chains: u32) -> Guest {
    let script = folder.path().join("link");
    fs::write(&script, "#!/bin/sh\n[ \"$1\" -le 0 ] || \"$0\" $(($1 - 1)) &\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // More than 64 at a time the user cannot have, whatever goes wrong.
    let line = format!(
        "ulimit -u 64; read go; i=0; while [ $i -lt {chains} ]; do {} 20000 & i=$((i + 1)); done; read stop",
        script.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).uid(USER).gid(USER).stderr(Stdio::null());
    let mut first = Guest::start(&mut command);
    take(cgroup, first.pid());
    first.stdin().write_all(b"\n").unwrap();
    first
}

#[test]
fn processes_that_fork_as_fast_as_they_are_killed_die_one_by_one_too() {
    let Some(grove) = Grove::plant() else { return };
    let top = grove.top();
    let folder = tempfile::tempdir().unwrap();
    let spared = Guest::asleep();
    take(&top, spared.pid());
    let first = start_chains(&top, &folder, 16);
    let mut killer = Killer::new();
    until("the chains run", || {
        killer.look(&top).unwrap();
        killer.pids.len() > 12 && !killer.pids[..].iter().all(|pid| pid.0 < first.pid().0 + 20)
    });
    let spare = [spared.pid()];
    let killed = killer.kill(&top, &mut proc_root(), &ALL, &mut |_, pid| spare.contains(&pid)).unwrap();
    println!("{:?}", killed.means);
    assert!(matches!(killed.means, KillMeans::Each { emptied: true, .. }), "{:?}", killed.means);
    assert!(!spared.pidfd().has_exited().unwrap());
    killer.look(&top).unwrap();
    assert_eq!(killer.pids, spare);
    // And in one stroke, the spared with them.
    assert_eq!(kill(&top, &ALL).means, KillMeans::Whole);
    wait_for_exit(&PidFd::open(spared.pid()).unwrap());
}
