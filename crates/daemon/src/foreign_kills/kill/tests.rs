use super::*;
use crate::foreign_kills::log_window::Killed;
use plimsoll_policy::units::{Bytes, Uid};
use plimsoll_report::oom::log;
use plimsoll_wire::{
    marked::Invoker as Caller,
    task::{CountErrors, TaskFacts},
    text::Comm,
};

fn facts() -> TaskFacts {
    TaskFacts {
        pid: Pid(7),
        start_ns: 77,
        parent: Pid(1),
        uid: Uid(1000),
        mm: 1,
        cgroup_id: 1,
        anonymous: Pages(3),
        swapped: Pages(2),
        shared: Pages(1),
        file: Pages(50),
        errors: CountErrors::default(),
        mapped: Pages(99),
        table_bytes: Bytes(0),
        oom_score_adj: 0,
        threads: 1,
        execs: 1,
        mm_users: 1,
        dying: true,
        dumping: false,
        leader_exited: false,
        uninterruptible: false,
        stopped: false,
        oom_victim: true,
        vfork_child: false,
        comm: Comm::from_bytes(b"hog"),
    }
}

fn marked(victim: Option<TaskFacts>) -> Marked {
    Marked {
        time: Nanos(5),
        number: 1,
        thread: Pid(8),
        cgroup: victim.map(|_| String::from("/lxc/web")),
        victim,
        exiting: false,
        invoker: Caller { pid: Pid(9), thread: Pid(10), uid: Uid(0), comm: Comm::from_bytes(b"dd") },
    }
}

const PAGE: PageSize = match PageSize::from_bytes(4096) {
    Some(size) => size,
    None => unreachable!(),
};

const REPORT: &str = "dd invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=2, oom_score_adj=0\n\
    memory: usage 24576kB, limit 24576kB, failcnt 37\n\
    oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/lxc/web,\
    task_memcg=/lxc/web,task=hog,pid=8,uid=1000\n\
    Memory cgroup out of memory: Killed process 8 (hog) total-vm:79488kB, anon-rss:24064kB, file-rss:2396kB, \
    shmem-rss:0kB, UID:1000 pgtables:112kB oom_score_adj:0\n";

fn killed() -> Killed {
    Killed { comm: "hog".into(), uid: Some(Uid(1000)), bytes: Some(24 << 20), in_cgroup: true }
}

#[test]
fn a_kill_at_a_limit_is_its_user_s_with_all_that_the_report_says() {
    let told = Told { report: log::parse(REPORT.as_bytes()).pop(), killed: Some(killed()) };
    let mark = marked(Some(facts()));
    let dead = victim(&mark, &told, PAGE);
    assert_eq!((dead.pid, dead.uid, dead.comm.as_str()), (Pid(7), Uid(1000), "hog"));
    assert_eq!((dead.usage_bytes, dead.cgroup.as_deref()), (6 * 4096, Some("/lxc/web")));
    let facts = of_kernel(&mark, &told, dead, None);
    assert_eq!((facts.reason, facts.account), (Reason::KernelCgroupLimit, Some(Account::User(Uid(1000)))));
    let origin = &facts.origin;
    assert_eq!((origin.scope, origin.order), (Some(Scope::Cgroup), Some(2)));
    assert_eq!((origin.cgroup.as_deref(), origin.cause.as_deref()), (Some("/lxc/web"), Some("memcg-limit")));
    assert_eq!(origin.gfp.as_deref(), Some("0xcc0(GFP_KERNEL)"));
    assert_eq!(origin.container.as_ref().and_then(|one| one.id.as_deref()), Some("web"));
    assert_eq!(origin.invoker.as_ref().map(|one| (one.pid, one.comm.as_str())), Some((Pid(9), "dd")));
    assert!(origin.summary.as_ref().is_some_and(|text| !text.is_empty()));
}

#[test]
fn a_kill_that_the_kernel_wrote_no_report_of_is_told_by_its_last_line() {
    let told = Told { report: None, killed: Some(killed()) };
    let mark = marked(Some(facts()));
    let facts = of_kernel(&mark, &told, victim(&mark, &told, PAGE), None);
    assert_eq!((facts.reason, facts.origin.order), (Reason::KernelCgroupLimit, None));
    let silent = of_kernel(&mark, &Told::default(), victim(&mark, &Told::default(), PAGE), None);
    assert_eq!((silent.reason, silent.origin.scope), (Reason::KernelOomKill, None));
    // Not known to be the machine's: nobody else's business.
    assert_eq!(silent.account, Some(Account::User(Uid(1000))));
}

#[test]
fn the_machine_s_own_shortage_is_everybody_s() {
    let global =
        REPORT.replace("CONSTRAINT_MEMCG", "CONSTRAINT_NONE").replace("oom_memcg=/lxc/web", "global_oom");
    let global = global.replace("Memory cgroup out of memory", "Out of memory").replace("memory: usage", "x");
    let told = Told { report: log::parse(global.as_bytes()).pop(), killed: None };
    let mark = marked(Some(facts()));
    let facts = of_kernel(&mark, &told, victim(&mark, &told, PAGE), None);
    assert_eq!((facts.reason, facts.account), (Reason::KernelOutOfMemory, None));
}

#[test]
fn where_the_kernel_tells_but_a_number_its_log_tells_the_rest() {
    let mark = marked(None);
    let told = Told { report: None, killed: Some(killed()) };
    let dead = victim(&mark, &told, PAGE);
    assert_eq!((dead.pid, dead.uid, dead.comm.as_str()), (Pid(8), Uid(1000), "hog"));
    assert_eq!((dead.usage_bytes, dead.start_ns), (24 << 20, 0));
    let nothing = victim(&mark, &Told::default(), PAGE);
    assert_eq!((nothing.uid, nothing.usage_bytes), (NO_UID, 0));
    assert_eq!(of_kernel(&mark, &Told::default(), nothing, None).id(), None);
}

#[test]
fn what_the_last_defence_arranged_keeps_its_reason() {
    let deed = ArrangedKill { uid: Uid(1000), reason: Reason::LastDefenceMemoryMax, victim: None };
    let told = Told { report: log::parse(REPORT.as_bytes()).pop(), killed: Some(killed()) };
    let mark = marked(Some(facts()));
    let facts = of_kernel(&mark, &told, victim(&mark, &told, PAGE), Some(deed));
    assert_eq!((facts.reason, facts.arranged), (Reason::LastDefenceMemoryMax, Some(deed)));
    assert_eq!(facts.origin.order, Some(2));
}
