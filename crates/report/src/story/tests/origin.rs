use crate::story::{
    Reader, line, story,
    tests::{incident, process},
};
use plimsoll_policy::{
    account::Account,
    container::container_of,
    incident::{
        Guard, Incident, Outcome, Trigger,
        origin::{Invoker, Killer, Origin, Scope},
    },
    reason::Reason,
    units::{Pid, Uid},
};
use proptest::proptest;

fn kernel(reason: Reason, origin: Origin) -> Incident {
    Incident {
        account: None,
        guard: Guard::Kernel,
        trigger: Trigger::Kernel,
        usage_bytes: 24 << 20,
        victims: vec![process(41, 1000, "hog", 24)],
        hard_bytes: None,
        overshoot_bytes: 0,
        requested_bytes: None,
        cross_to_signal_ns: None,
        signal_to_freed_ns: None,
        freed_bytes: None,
        reason: reason.to_string(),
        peers: Vec::new(),
        origin: Some(origin),
        ..incident()
    }
}

fn invoker() -> Option<Invoker> {
    Some(Invoker { pid: Pid(40), uid: Some(Uid(0)), comm: String::from("dd") })
}

#[test]
fn a_kill_at_a_cgroup_s_limit_names_the_cgroup_and_who_asked() {
    let origin = Origin {
        scope: Some(Scope::Cgroup),
        cgroup: Some(String::from("/system.slice/web.service")),
        invoker: invoker(),
        order: Some(3),
        ..Origin::of(Killer::Kernel)
    };
    let one =
        Incident { account: Some(Account::User(Uid(1000))), ..kernel(Reason::KernelCgroupLimit, origin) };
    let text = story(&one, Some("ann"), Reader::User);
    assert!(
        text.starts_with(
            "2026-11-21 04:59:12 UTC: the cgroup /system.slice/web.service was at its memory limit."
        ),
        "{text}"
    );
    assert!(text.contains("Process 41 (\"hog\") was killed; it held 24.0 MiB."), "{text}");
    assert!(text.contains("process 40 (\"dd\") that asked for 8 pages in a row (order 3)"), "{text}");
    assert_eq!(
        line(&one),
        "plimsoll: the kernel's OOM killer ended process 41 uid 1000 \"hog\": held 24.0 MiB, of user:1000, \
         cgroup /system.slice/web.service, asked by process 40 \"dd\", order 3, reason kernel-cgroup-limit, \
         incident 17"
    );
}

#[test]
fn a_container_is_named_as_its_tools_name_it() {
    let id = "0123456789abcdef".repeat(4);
    let cgroup = std::format!("/system.slice/docker-{id}.scope");
    let origin = Origin {
        scope: Some(Scope::Cgroup),
        container: container_of(&cgroup),
        cgroup: Some(cgroup),
        ..Origin::of(Killer::Kernel)
    };
    let limit = story(&kernel(Reason::KernelCgroupLimit, origin.clone()), None, Reader::User);
    assert!(limit.contains("container 0123456789ab (docker) (cgroup /system.slice/docker-"), "{limit}");
    let whole = Origin { scope: Some(Scope::Machine), ..origin };
    let machine = story(&kernel(Reason::KernelOutOfMemory, whole), None, Reader::Administrator);
    assert!(machine.contains("the kernel found no memory for a request."), "{machine}");
    assert!(machine.contains("(\"hog\") in container 0123456789ab (docker) was killed"), "{machine}");
    assert!(machine.contains(&std::format!("container {id}")), "{machine}");
}

#[test]
fn a_kill_that_somebody_asked_for_is_no_shortage() {
    let origin = Origin {
        scope: Some(Scope::Machine),
        order: Some(-1),
        invoker: invoker(),
        ..Origin::of(Killer::Kernel)
    };
    let sysrq = kernel(Reason::KernelOutOfMemory, origin);
    let text = story(&sysrq, None, Reader::User);
    assert!(text.contains("UTC: somebody asked the kernel to end a process (SysRq)."), "{text}");
    assert!(text.contains("was killed; it held 24.0 MiB. It was the kernel's choice"), "{text}");
    assert!(text.contains("What to do: nothing, if you asked for it"), "{text}");
    assert!(!text.contains("found no memory") && !text.contains("could not serve"), "{text}");
    assert!(line(&sysrq).contains("asked for with SysRq, reason") && !line(&sysrq).contains("order -1"));
}

#[test]
fn what_the_kernel_s_report_comes_to_takes_the_place_of_our_words() {
    let origin = Origin {
        scope: Some(Scope::Machine),
        cause: Some(String::from("fragmented")),
        summary: Some(String::from("There was memory,\nbut not in one piece.")),
        advice: vec![String::from("keep more memory free."), String::from("two"), String::from("three")],
        invoker: invoker(),
        order: Some(0),
        ..Origin::of(Killer::Kernel)
    };
    let text = story(&kernel(Reason::KernelOutOfMemory, origin), None, Reader::Administrator);
    assert!(text.contains("\nThere was memory, but not in one piece.\n"), "{text}");
    assert!(text.contains("asked for a page.") && text.contains("cause fragmented, order 0"), "{text}");
    assert!(text.contains("What to do: keep more memory free.\nOr: two"), "{text}");
    assert!(!text.contains("three"), "{text}");
}

#[test]
fn other_killers_are_named_and_what_is_not_known_is_left_out() {
    let oomd = Origin {
        cgroup: Some(String::from("/user.slice/app.scope")),
        summary: Some(String::from("Killed /user.slice/app.scope due to memory pressure.")),
        ..Origin::of(Killer::SystemdOomd)
    };
    let whole = Incident { victims: Vec::new(), usage_bytes: 0, ..kernel(Reason::SystemdOomdKill, oomd) };
    let text = story(&whole, None, Reader::User);
    assert!(text.contains("UTC: systemd-oomd ended all of the cgroup /user.slice/app.scope."), "{text}");
    assert!(
        text.contains("\nIts log says: Killed /user.slice/app.scope due to memory pressure.\n"),
        "{text}"
    );
    assert!(!text.contains("0 bytes"), "{text}");
    assert_eq!(
        line(&whole),
        "plimsoll: systemd-oomd ended the cgroup /user.slice/app.scope: reason systemd-oomd-kill, incident 17"
    );
    let early = kernel(Reason::EarlyoomKill, Origin::of(Killer::Earlyoom));
    let term = Incident { action: Outcome::Term, ..early };
    let text = story(&term, None, Reader::User);
    assert!(text.contains("was asked to end (SIGTERM); it held 24.0 MiB. earlyoom chose this"), "{text}");
    assert!(text.contains("which act before earlyoom has to."), "{text}");
    let mut gone = term.clone();
    gone.victims[0].start_ns = 0;
    let text = story(&gone, None, Reader::Administrator);
    assert!(text.contains("Process 41: uid 1000, command") && !text.contains("after boot"), "{text}");
    let asked = line(&term);
    assert!(asked.starts_with("plimsoll: earlyoom sent SIGTERM to process 41"), "{asked}");
}

#[test]
fn a_kill_that_we_arranged_keeps_its_words_and_tells_who_asked() {
    let origin = Origin { invoker: invoker(), ..Origin::of(Killer::Kernel) };
    let arranged = Incident {
        guard: Guard::Limits,
        trigger: Trigger::LastDefence,
        ..kernel(Reason::LastDefenceMemoryMax, origin)
    };
    let text = story(&arranged, None, Reader::User);
    assert!(
        text.contains("it was using 24.0 MiB") && text.contains("process 40 (\"dd\") that needed memory"),
        "{text}"
    );
}

#[test]
fn kills_that_found_no_room_are_told_as_the_kernel_s() {
    let lost = Incident {
        unrecorded: Some(7),
        victims: Vec::new(),
        origin: None,
        compaction: None,
        ..kernel(Reason::KernelKillsNotRecorded, Origin::of(Killer::Kernel))
    };
    assert!(line(&lost).contains("7 actions were not recorded: kernel, reason kernel-kills-not-recorded"));
}

proptest! {
    #[test]
    fn no_foreign_text_acts_on_a_terminal(text: String) {
        let origin = Origin {
            scope: Some(Scope::Cgroup),
            cgroup: Some(text.clone()),
            container: container_of(&std::format!("/lxc/{text}")),
            invoker: Some(Invoker { pid: Pid(1), uid: None, comm: text.clone() }),
            gfp: Some(text.clone()),
            cause: Some(text.clone()),
            summary: Some(text.clone()),
            advice: vec![text],
            ..Origin::of(Killer::Kernel)
        };
        let hostile = kernel(Reason::KernelCgroupLimit, origin);
        assert!(!line(&hostile).chars().any(char::is_control));
        let told = story(&hostile, None, Reader::Administrator);
        assert!(!told.chars().any(|c| c.is_control() && c != '\n'));
    }
}
