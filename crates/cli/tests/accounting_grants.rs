//! Memory granted before it is touched: usage to the page, whoever dies, forks or changes its user in between.
#![cfg(test)]

mod support;

use plimsoll_policy::units::{Pages, Pid, Uid};
use plimsoll_sys::bpf::{Enforce, LineSet, OverLine, Reserved};
use rustix::process::Signal;
use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use support::{
    ALICE, BOB, CAROL, Fixture, SOON, exact, fewer,
    grants::{asking, granted, headroom, nothing_is_left, pages, space},
    program::Program,
    until, wait_for,
};

/// Maps two areas, touches one of them from a thread of its own beside the other, and says when both are done.
const TWO_THREADS: &str = "import threading\n\
    def area(kib):\n\
    \x20   m = mmap.mmap(-1, kib << 10, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
    \x20   m.madvise(15)\n\
    \x20   return m, (ctypes.c_char * len(m)).from_buffer(m)\n\
    granted, plain = area(8192), area(4096)\n\
    def touch(one): ctypes.memset(one[1], 1, len(one[0]))\n\
    say('ready')\n\
    while hear() == 'go':\n\
    \x20   threads = [threading.Thread(target=touch, args=(one,)) for one in (granted, plain)]\n\
    \x20   [t.start() for t in threads]; [t.join() for t in threads]\n\
    \x20   say('touched')\n\
    hear()\n";

fn reserved(fixture: &Fixture, user: u32) -> Pages {
    fixture.facts(user).reserved
}

/// What a process holds by grants, as the maps have it.
fn held(fixture: &Fixture, pid: u32) -> Pages {
    fixture.space(pid).unwrap().granted
}

#[test]
fn granted_pages_that_are_touched_move_from_reserved_to_used_and_usage_stays() {
    let fixture = fixture!();
    let (mut grants, mut scripted, pid, space) = asking(&fixture, "64M");
    let before = fixture.usage_pages(ALICE);
    assert_eq!(before, exact::process_pages(pid).unwrap());

    granted(&grants, &space, pages(8192));
    assert_eq!(fixture.usage_pages(ALICE), before + pages(8192).0);
    let account = fixture.account(ALICE).unwrap();
    assert_eq!(account["reserved_bytes"].as_u64(), Some(8 << 20), "{account}");
    let mut outstanding = Vec::new();
    grants.outstanding(|space, pages| outstanding.push((*space, pages))).unwrap();
    assert_eq!(outstanding, [(space, pages(8192))]);

    scripted.tell(1, "reserve 8192");
    scripted.tell(1, "write");
    // All but the page tables' companions, which nobody counts: a stack page or two may have come from the grant too.
    let used = fixture.usage_pages(ALICE);
    assert!((before + pages(8192).0..=before + pages(8192).0 + 2).contains(&used), "{used} after {before}");
    grants.settle(&space).unwrap();
    assert_eq!(reserved(&fixture, ALICE), Pages(0));
    assert_eq!(fixture.usage_pages(ALICE), exact::process_pages(pid).unwrap());
    scripted.tell(1, "exit");
    nothing_is_left(&fixture, ALICE);
}

#[test]
fn what_is_not_touched_goes_back_exactly_and_was_no_grant() {
    let fixture = fixture!();
    let (grants, mut scripted, pid, space) = asking(&fixture, "64M");
    let mut kept = Pages(0);
    for round in 0..fewer(50) {
        let touched = u64::from(round % 8) * 128;
        granted(&grants, &space, pages(4096));
        scripted.tell(1, &format!("reserve {}", touched.max(4)));
        if touched > 0 {
            scripted.tell(1, "write");
        }
        let back = grants.settle(&space).unwrap();
        let most = pages(4096 - touched);
        assert!(back <= most && back.0 + 4 >= most.0, "{back} of {most} went back");
        kept.0 += pages(4096).0 - back.0;
        assert_eq!(reserved(&fixture, ALICE), Pages(0));
        assert_eq!(fixture.facts(ALICE).usage.0, exact::process_pages(pid).unwrap());
        assert_eq!(held(&fixture, pid), kept, "what it touched is what it holds by grants");
        scripted.tell(1, "free");
        grants.give_up(&space, pages(touched)).unwrap();
        kept.0 -= pages(touched).0;
    }
    assert_eq!(grants.settle(&space).unwrap(), Pages(0));
}

#[test]
fn plain_allocation_in_another_thread_meanwhile_changes_nothing_about_the_sum() {
    let fixture = fixture!();
    fixture.limit(ALICE, "128M", &[]);
    let mut grants = fixture.grants();
    for _ in 0..fewer(10) {
        let mut program = fixture.python(ALICE, TWO_THREADS).ready();
        let pid = program.pid();
        let space = space(&mut grants, pid);
        granted(&grants, &space, pages(8192));
        program.tell("go");
        program.stage("touched");
        let before = fixture.usage_pages(ALICE);
        // There were more pages than the grant; what was freed since, of the threads' stacks, is reserved again.
        let back = reserved(&fixture, ALICE);
        assert!(back.0 <= 64, "{back}");
        assert_eq!(before, exact::process_pages(pid).unwrap() + back.0);
        assert_eq!(grants.settle(&space).unwrap(), back);
        assert_eq!(fixture.usage_pages(ALICE), before - back.0);
        program.stop();
        nothing_is_left(&fixture, ALICE);
    }
}

#[test]
fn what_another_thread_frees_of_a_grant_that_is_being_touched_stays_reserved_for_it() {
    let fixture = fixture!();
    // Near, so that every event is settled: far from the line pages may be seen to go before they were seen to come.
    fixture.limit(ALICE, "64M", &["--soft", "2M"]);
    let mut grants = fixture.grants();
    let mut scripted = fixture.scripted(&[ALICE]);
    let [asks, other] = [1, 2].map(|slot| scripted.make(slot, "start 60100"));
    let [asking, beside] = [asks, other].map(|pid| space(&mut grants, pid));
    let thread = scripted.make(3, "start 60100");
    scripted.tell(1, "thread 4");
    // Its own memory from before, which may come and go as well.
    scripted.tell(1, "touch 1024");
    let before = fixture.usage_pages(ALICE);
    let all = granted(&grants, &asking, pages(8192)).0;
    assert_eq!(all, before + pages(8192).0);
    for _ in 0..fewer(20) {
        scripted.tell(4, "touch 2048");
        scripted.tell(4, "free");
    }
    // As far as that may have come from the grant it is there for it. Settled by the walk that this takes.
    fixture.usage_pages(ALICE);
    let facts = fixture.facts(ALICE);
    // But for pages that were kept: of the thread's stack.
    assert!((pages(8192).0 - 4..=pages(8192).0).contains(&facts.reserved.0), "{facts:?}");
    assert!((all - 4..=all + 16).contains(&facts.usage.0), "{facts:?} of {all}");
    // All that is left may be granted, and all of it be touched.
    let room = Pages(pages(64 << 10).0 - facts.usage.0);
    granted(&grants, &beside, room);
    assert!(matches!(grants.reserve(&beside, Pages(1), Pages(0)).unwrap(), Reserved::Over(_)));
    scripted.tell(4, "touch 8192");
    scripted.tell(2, "touch 512");
    let facts = fixture.facts(ALICE);
    assert!(facts.usage.0 <= pages(64 << 10).0 + 16, "{facts:?}");
    let kept = Pages(pages(8192).0 - grants.settle(&asking).unwrap().0);
    assert_eq!(kept, pages(8192), "all of it was touched, and nothing else is left");
    assert_eq!(held(&fixture, asks), pages(8192));
    grants.settle(&beside).unwrap();
    assert_eq!(reserved(&fixture, ALICE), Pages(0));
    let used: u64 = [asks, other, thread].iter().map(|pid| exact::process_pages(*pid).unwrap()).sum();
    assert_eq!(fixture.usage_pages(ALICE), used);
    assert_eq!(fixture.history().len(), 0);
}

#[test]
fn who_dies_between_grant_and_settlement_leaves_nothing_reserved() {
    let mut fixture = fixture!();
    fixture.limit(ALICE, "128M", &[]);
    let mut grants = fixture.grants();
    for round in 0..fewer(20) {
        let mut program = fixture.python(ALICE, TWO_THREADS).ready();
        let space = space(&mut grants, program.pid());
        granted(&grants, &space, pages(16_384));
        granted(&grants, &space, pages(1024));
        if round % 2 == 0 {
            program.tell("go");
        }
        program.stop();
        nothing_is_left(&fixture, ALICE);
        assert_eq!(grants.reserve(&space, pages(4), Pages(0)).unwrap(), Reserved::Gone);
        assert_eq!(grants.settle(&space).unwrap(), Pages(0));
    }
    // No daemon has to live for that, and the next one finds what is still outstanding.
    let mut dies = fixture.python(ALICE, TWO_THREADS);
    let mut stays = fixture.python(ALICE, TWO_THREADS);
    [&mut dies, &mut stays].into_iter().for_each(|one| drop(one.stage("ready")));
    let [dying, staying] = [dies.pid(), stays.pid()].map(|pid| space(&mut grants, pid));
    granted(&grants, &dying, pages(8192));
    granted(&grants, &staying, pages(4096));
    fixture.end_daemon(Signal::KILL);
    dies.stop();
    wait_for("the dead process's reservation is back", || reserved(&fixture, ALICE) == pages(4096));
    fixture.launch();
    assert_eq!(reserved(&fixture, ALICE), pages(4096));
    assert_eq!(fixture.usage_pages(ALICE), exact::process_pages(stays.pid()).unwrap() + pages(4096).0);
    let mut left = Vec::new();
    fixture.grants().outstanding(|space, pages| left.push((space.pid.0, pages))).unwrap();
    assert_eq!(left, [(stays.pid(), pages(4096))]);
    stays.stop();
    nothing_is_left(&fixture, ALICE);
}

#[test]
fn what_was_granted_to_a_process_that_left_its_memory_goes_back_without_its_help() {
    let fixture = fixture!();
    fixture.limit(ALICE, "128M", &[]);
    let mut grants = fixture.grants();
    let mut scripted = fixture.scripted(&[ALICE]);
    // By exec: another address space.
    let pid = scripted.make(1, "start 60100");
    let before = space(&mut grants, pid);
    granted(&grants, &before, pages(8192));
    scripted.tell(1, "exec");
    wait_for("the old memory's reservation is back", || reserved(&fixture, ALICE) == Pages(0));
    assert_eq!(grants.settle(&before).unwrap(), Pages(0));
    // By its end, while another process runs on in the same memory: a walk finds out.
    let after = space(&mut grants, pid);
    granted(&grants, &after, pages(8192));
    let other = scripted.make(1, "clone 2");
    scripted.tell(1, "exit");
    until("a walk has found whose the memory is", SOON, || {
        let usage = fixture.usage_pages(ALICE);
        (reserved(&fixture, ALICE) == Pages(0) && usage == exact::process_pages(other)?).then_some(())
    });
    scripted.tell(2, "exit");
    nothing_is_left(&fixture, ALICE);
}

#[test]
fn a_grant_whose_line_is_cleared_meanwhile_takes_nothing_from_whose_the_account_is_next() {
    let fixture = fixture!();
    // Keeps the programs in force; not one of the two that take turns.
    fixture.limit(CAROL, "64M", &[]);
    fixture.limit(ALICE, "64M", &[]);
    let maps = fixture.maps();
    let line = |uid: u32| LineSet {
        whose: Uid(uid).into(),
        user: Some(Uid(uid)),
        hard: pages(64 << 10),
        soft: pages(60 << 10),
        signal: 0,
        enforce: Enforce::Now,
        from_default: false,
        above: [0; 4],
    };
    let mut scripted = fixture.scripted(&[ALICE]);
    let pid = scripted.make(1, "start 60100");
    let over = AtomicBool::new(false);
    let mut grants = fixture.grants();
    let asked = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let Some(space) = grants.find(Pid(pid)).unwrap() else { continue };
                while matches!(
                    grants.reserve(&space, Pages(3), headroom()).unwrap(),
                    Reserved::Granted { .. } | Reserved::Over(_)
                ) {
                    asked.fetch_add(1, Ordering::Relaxed);
                    grants.settle(&space).unwrap();
                }
            }
        });
        for _ in 0..fewer(60) {
            let before = asked.load(Ordering::Relaxed);
            // Its event enters the process anew.
            scripted.tell(1, "touch 4");
            scripted.tell(1, "free");
            let began = Instant::now();
            while asked.load(Ordering::Relaxed) == before && began.elapsed() < Duration::from_millis(10) {
                std::thread::yield_now();
            }
            for turn in 0..20 {
                maps.clear_line(Uid(if turn % 2 == 0 { ALICE } else { BOB }).into()).unwrap();
                maps.set_line(&line(if turn % 2 == 0 { BOB } else { ALICE })).unwrap();
                if turn % 2 == 0 {
                    let facts = fixture.facts(BOB);
                    assert_eq!((facts.usage, facts.reserved), (Pages(0), Pages(0)), "BOB has no process");
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(asked.into_inner() > 0);
    maps.clear_line(Uid(ALICE).into()).unwrap();
    maps.set_line(&line(BOB)).unwrap();
    let facts = fixture.facts(BOB);
    assert_eq!((facts.usage, facts.reserved, facts.near), (Pages(0), Pages(0), false), "{facts:?}");
    maps.clear_line(Uid(BOB).into()).unwrap();
}

#[test]
fn whoever_is_killed_while_it_is_granted_memory_leaves_nothing_in_a_storm() {
    let mut fixture = fixture!();
    fixture.limit(ALICE, "512M", &[]);
    for round in 0..fewer(8) {
        let mut crowd: Vec<Program> =
            (0..12).map(|_| fixture.workload(ALICE, "chill", &["--mebibytes=1"])).collect();
        crowd.iter_mut().for_each(|one| drop(one.stage("ready")));
        let pids: Vec<u32> = crowd.iter().map(Program::pid).collect();
        let over = AtomicBool::new(false);
        let mut grants = fixture.grants();
        let given: u64 = std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut given = 0;
                while !over.load(Ordering::Relaxed) {
                    for pid in &pids {
                        let Some(space) = grants.find(Pid(*pid)).unwrap() else { continue };
                        for _ in 0..3 {
                            let answer = grants.reserve(&space, pages(64), headroom()).unwrap();
                            given += u64::from(matches!(answer, Reserved::Granted { .. }));
                        }
                        if pid % 2 == 0 {
                            grants.settle(&space).unwrap();
                        }
                    }
                }
                given
            });
            for (index, one) in crowd.iter_mut().enumerate() {
                if round % 2 == 1 && index == 6 {
                    fixture.end_daemon(Signal::KILL);
                }
                one.stop();
                std::thread::sleep(Duration::from_millis(3));
            }
            over.store(true, Ordering::Relaxed);
            asking.join().unwrap()
        });
        assert!(given > 0);
        nothing_is_left(&fixture, ALICE);
        if round % 2 == 1 {
            fixture.launch();
        }
    }
    let mut left = 0;
    fixture.grants().outstanding(|_, _| left += 1).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn all_that_was_granted_is_touched_by_several_threads_at_once_and_the_line_holds() {
    let fixture = fixture!();
    fixture.limit(ALICE, "96M", &[]);
    let mut grants = fixture.grants();
    let hard = pages(96 << 10);
    for _ in 0..fewer(5) {
        let mut program = fixture
            .python(
                ALICE,
                "import threading\n\
             m = mmap.mmap(-1, 96 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\nm.madvise(15)\n\
             b = ctypes.addressof((ctypes.c_char * len(m)).from_buffer(m))\nsay('ready')\n\
             share = int(hear()) // 4\n\
             def touch(n): ctypes.memset(b + n * share, 1, share)\n\
             threads = [threading.Thread(target=touch, args=(n,)) for n in range(4)]\n\
             [t.start() for t in threads]; [t.join() for t in threads]\nsay('touched')\nhear()\n",
            )
            .ready();
        let space = space(&mut grants, program.pid());
        let room = Pages(hard.0 - headroom().0 - exact::process_pages(program.pid()).unwrap());
        let usage = granted(&grants, &space, room);
        assert_eq!(usage, Pages(hard.0 - headroom().0));
        program.tell(&(room.0 / 4 * 4 * exact::page_bytes()).to_string());
        program.stage("touched");
        grants.settle(&space).unwrap();
        let facts = fixture.facts(ALICE);
        assert_eq!((facts.usage.0, facts.reserved.0), (exact::process_pages(program.pid()).unwrap(), 0));
        // The threads' stacks and the like are all that came besides.
        assert!(facts.peak.0 - usage.0 <= 256, "{facts:?}");
        program.stop();
        nothing_is_left(&fixture, ALICE);
    }
    assert_eq!(fixture.history().len(), 0);
}

#[test]
fn a_request_is_granted_to_the_very_page_and_refused_one_page_further() {
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    let mut grants = fixture.grants();
    let mut scripted = fixture.scripted(&[ALICE]);
    let pid = scripted.make(1, "start 60100");
    scripted.tell(1, "touch 5000");
    let space = space(&mut grants, pid);
    let hard = pages(64 << 10);
    for _ in 0..fewer(20) {
        // Far from its line the account is not settled: that is the programs' to see to.
        scripted.tell(1, "touch 40");
        let used = exact::process_pages(pid).unwrap();
        let room = Pages(hard.0 - headroom().0 - used);
        let refused = grants.reserve(&space, Pages(room.0 + 1), headroom()).unwrap();
        let over = OverLine { whose: Uid(ALICE).into(), usage: Pages(used), hard };
        assert_eq!(refused, Reserved::Over(over));
        let given = grants.reserve(&space, room, headroom()).unwrap();
        assert_eq!(given, Reserved::Granted { usage: Pages(hard.0 - headroom().0) });
        assert!(matches!(grants.reserve(&space, Pages(1), headroom()).unwrap(), Reserved::Over(_)));
        assert_eq!(fixture.facts(ALICE).peak, Pages(hard.0 - headroom().0));
        assert_eq!(grants.settle(&space).unwrap(), room);
        scripted.tell(1, "free");
    }
    assert_eq!(fixture.history().len(), 0);
    // Below the headroom nothing is granted, and without a line there is nothing to grant from. Another's line keeps
    // the programs in force.
    fixture.limit(BOB, "64M", &[]);
    fixture.limit(ALICE, "2M", &[]);
    assert!(matches!(grants.reserve(&space, Pages(1), headroom()).unwrap(), Reserved::Over(_)));
    fixture.ok(&["limit", "clear", "60100"]);
    assert_eq!(grants.reserve(&space, Pages(1), headroom()).unwrap(), Reserved::Gone);
}

#[test]
fn pages_that_come_and_go_while_grants_are_made_and_settled_leave_nothing_behind() {
    let fixture = fixture!();
    fixture.limit(ALICE, "128M", &[]);
    let mut program = fixture.python(
        ALICE,
        "import threading\nlibc = ctypes.CDLL(None)\nlibc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]\n\
         over = False\n\
         def churn():\n\
         \x20   m = mmap.mmap(-1, 64 << 10, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
         \x20   b = ctypes.addressof((ctypes.c_char * len(m)).from_buffer(m))\n\
         \x20   while not over: ctypes.memset(b, 1, len(m)); libc.madvise(b, len(m), 4)\n\
         threads = [threading.Thread(target=churn) for n in range(3)]\n\
         [t.start() for t in threads]\nsay('ready')\nhear()\nover = True\n[t.join() for t in threads]\n\
         say('over')\nhear()\n",
    ).ready();
    let mut grants = fixture.grants();
    let space = space(&mut grants, program.pid());
    // Near its line, where every event is charged at once.
    let mut scripted = fixture.scripted(&[ALICE]);
    let beside = support::grants::space(&mut grants, scripted.make(1, "start 60100"));
    granted(&grants, &beside, pages(112 << 10));
    for round in 0..u64::from(fewer(4000)) {
        let open = Pages(1 + round % 40);
        granted(&grants, &space, open);
        grants
            .outstanding(|one, reserved| {
                assert!(*one != space || reserved <= open, "{reserved} with {open} open")
            })
            .unwrap();
        grants.settle(&space).unwrap();
    }
    program.tell("end");
    program.stage("over");
    grants.settle(&beside).unwrap();
    scripted.tell(1, "exit");
    assert_eq!(fixture.usage_pages(ALICE), exact::process_pages(program.pid()).unwrap());
    assert_eq!(reserved(&fixture, ALICE), Pages(0));
    grants.outstanding(|_, pages| panic!("{pages} pages are nobody's")).unwrap();
    program.stop();
    nothing_is_left(&fixture, ALICE);
    assert_eq!(fixture.history().len(), 0);
}

#[test]
fn of_eight_that_ask_at_once_no_two_get_the_same_pages() {
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    let limit = pages(64 << 10).0 - headroom().0;
    let mut scripted = fixture.scripted(&[ALICE]);
    let pids: Vec<u32> = (1..=8).map(|slot| scripted.make(slot, "start 60100")).collect();
    for round in 0..u64::from(fewer(10)) {
        let step = Pages(7 + round);
        let start = Barrier::new(pids.len());
        let given: u64 = std::thread::scope(|scope| {
            let ask = |pid: u32| {
                let (mut grants, start) = (fixture.grants(), &start);
                scope.spawn(move || {
                    let space = space(&mut grants, pid);
                    start.wait();
                    let mut given = 0;
                    while let Reserved::Granted { usage } = grants.reserve(&space, step, headroom()).unwrap()
                    {
                        assert!(usage.0 <= limit, "{usage} of {limit}");
                        given += step.0;
                    }
                    given
                })
            };
            let asking: Vec<_> = pids.iter().map(|pid| ask(*pid)).collect();
            asking.into_iter().map(|one| one.join().unwrap()).sum()
        });
        let facts = fixture.facts(ALICE);
        assert_eq!(facts.reserved, Pages(given));
        let used: u64 = pids.iter().map(|pid| exact::process_pages(*pid).unwrap()).sum();
        assert_eq!(facts.usage.0, used + given);
        assert!(facts.usage.0 <= limit && facts.usage.0 + step.0 > limit, "{facts:?}, {limit}");
        assert!(facts.peak.0 <= limit, "{facts:?}");
        let mut grants = fixture.grants();
        let spaces: Vec<_> = pids.iter().map(|pid| space(&mut grants, *pid)).collect();
        let back: u64 = spaces.iter().map(|one| grants.settle(one).unwrap().0).sum();
        assert_eq!(back, given);
        assert_eq!(fixture.facts(ALICE).usage.0, used);
    }
    assert_eq!(fixture.history().len(), 0);
}

#[test]
fn a_reservation_follows_its_process_to_another_user_and_no_child_gets_it() {
    let fixture = fixture!();
    fixture.limit(ALICE, "128M", &[]);
    fixture.limit(BOB, "128M", &[]);
    let mut grants = fixture.grants();
    let mut scripted = fixture.scripted(&[ALICE, BOB]);
    let pid = scripted.make(1, "hop 60100");
    // From root, who is charged for nothing.
    let inherited = exact::process_pages(pid).unwrap() - fixture.usage_pages(ALICE);
    scripted.tell(1, "touch 4096");
    let space = space(&mut grants, pid);
    granted(&grants, &space, pages(8192));
    let child = scripted.make(1, "fork 2");
    let family = fixture.usage_pages(ALICE);
    scripted.tell(2, "touch 2048");
    assert_eq!(reserved(&fixture, ALICE), pages(8192));
    assert!(fixture.usage_pages(ALICE) >= family + pages(2048).0, "what the child touches is its own");
    scripted.tell(2, "exit");
    assert!(exact::process_pages(child).is_none());

    scripted.tell(1, "setuid 60101");
    scripted.tell(1, "touch 64");
    fixture.usage_pages(ALICE);
    let (before, after) = (fixture.facts(ALICE), fixture.facts(BOB));
    assert_eq!((before.usage, before.reserved), (Pages(0), Pages(0)));
    assert!(after.reserved.0 + 32 >= pages(8192).0, "{after:?}");
    assert_eq!(after.usage.0 + inherited, exact::process_pages(pid).unwrap() + after.reserved.0);
    scripted.tell(1, "reserve 8192");
    scripted.tell(1, "write");
    grants.settle(&space).unwrap();
    assert_eq!(reserved(&fixture, BOB), Pages(0));
    assert_eq!(fixture.usage_pages(BOB), exact::process_pages(pid).unwrap());
    scripted.tell(1, "exit");
    nothing_is_left(&fixture, ALICE);
    nothing_is_left(&fixture, BOB);
}
