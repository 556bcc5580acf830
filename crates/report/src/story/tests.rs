use super::{Reader, line, story};
use plimsoll_policy::{
    account::Account,
    incident::{Guard, Incident, Outcome, Trigger, Victim},
    reason::Reason,
    units::{JobId, Pid, Uid},
};
use proptest::proptest;

/// An incident for tests to change: python3 of user 1000 crossed 256 MiB by 4 KiB and was killed in the kernel.
pub(super) fn incident() -> Incident {
    serde_json::from_str(include_str!("../../../policy/src/incident/sample.json")).unwrap()
}

/// A process for tests to change.
pub(super) fn process(pid: u32, uid: u32, comm: &str, mib: u64) -> Victim {
    let victim = incident().victims.remove(0);
    Victim { pid: Pid(pid), uid: Uid(uid), comm: comm.to_owned(), usage_bytes: mib << 20, ..victim }
}

fn because(reason: Reason) -> Incident {
    Incident { reason: reason.to_string(), ..incident() }
}

#[test]
fn a_kill_is_one_journal_line_with_all_its_numbers_in_order() {
    assert_eq!(
        line(&incident()),
        "plimsoll: sent SIGKILL to process 7378 uid 1000 \"python3\": usage 256.0 MiB of user:1000, \
         line 256.0 MiB, over by 4.0 KiB, requested 4.0 KiB, in-kernel, crossing to signal 3.2 us, \
         signal to freed 12.0 ms, freed 250.0 MiB, reason over-hard-limit-largest, incident 17"
    );
}

#[test]
fn what_the_kernel_did_by_itself_is_told_as_the_kernels() {
    let incident = Incident { trigger: Trigger::LastDefence, ..because(Reason::LastDefenceMemoryMax) };
    let text = line(&incident);
    assert!(text.starts_with("plimsoll: the kernel's OOM killer ended process 7378 uid 1000"), "{text}");
    let nobody = line(&Incident { victims: Vec::new(), ..incident });
    assert!(nobody.starts_with("plimsoll: the kernel's OOM killer ended a process: usage"), "{nobody}");
}

#[test]
fn what_is_not_known_is_left_out_of_the_line() {
    let unknown = Incident {
        account: None,
        hard_bytes: None,
        requested_bytes: None,
        unrecorded: None,
        cross_to_signal_ns: None,
        signal_to_freed_ns: None,
        freed_bytes: None,
        action: Outcome::Term,
        trigger: Trigger::Daemon,
        ..because(Reason::MachineLowMemoryTerm)
    };
    assert_eq!(
        line(&unknown),
        "plimsoll: sent SIGTERM to process 7378 uid 1000 \"python3\": usage 256.0 MiB of the machine, \
         daemon, reason machine-low-memory-term, incident 17"
    );
}

#[test]
fn the_line_names_three_victims_and_counts_the_rest() {
    let victims = (1..=5).map(|pid| process(pid, 1000, "x", 1)).collect();
    let text = line(&Incident { victims, ..incident() });
    assert!(
        text.starts_with(
            "plimsoll: sent SIGKILL to process 1 uid 1000 \"x\" and process 2 uid 1000 \"x\" and \
             process 3 uid 1000 \"x\" and 2 more: "
        ),
        "{text}"
    );
}

#[test]
fn the_line_says_when_nothing_was_sent() {
    let dry = line(&Incident { action: Outcome::Notify, ..because(Reason::OverHardLimitSelected) });
    assert!(dry.starts_with("plimsoll: dry run: would have signalled process 7378 uid 1000"), "{dry}");
    let failed = line(&Incident { action: Outcome::Notify, ..because(Reason::SignalFailed) });
    assert!(failed.starts_with("plimsoll: could not signal process 7378 uid 1000"), "{failed}");
    let notify =
        Incident { action: Outcome::Notify, victims: Vec::new(), ..because(Reason::OverHardLimitNotify) };
    assert!(line(&notify).starts_with("plimsoll: sent nothing: usage "));
    let denied = Incident { action: Outcome::Deny, ..incident() };
    assert!(line(&denied).starts_with("plimsoll: denied an allocation of process 7378"));
}

#[test]
fn a_user_reads_who_crossed_what_who_was_killed_and_what_to_do() {
    assert_eq!(
        story(&incident(), Some("alice"), Reader::User),
        "2026-11-21 04:59:12 UTC: User alice (uid 1000) was using 256.0 MiB, 4.0 KiB over the line of 256.0 MiB.\n\
         Process 7378 (\"python3\") was killed; it was using 250.0 MiB. The process whose allocation crossed the \
         hard limit was also the account's largest, so it was killed in that very event.\n\
         Compared with, next in size: \"node\" (process 7001) with 3.0 MiB, \"bash\" (process 7002) with 1.0 MiB.\n\
         The signal came 3.2 us after the crossing, and 250.0 MiB were back 12.0 ms after the signal.\n\
         What to do: start it again with less to do at once, or end other programs first.\n\
         Or: ask the administrator for a higher line; 'plimsoll limit show' shows the present one."
    );
}

#[test]
fn an_administrator_reads_the_numbers_too() {
    let text = story(&incident(), None, Reader::Administrator);
    for part in [
        "User 1000 was using",
        "Incident 17: trigger in-kernel, reason over-hard-limit-largest.",
        "The crossing request asked for 4.0 KiB.",
        "Process 7378: uid 1000, started 5.0 s after boot, command \"cmd --secret\", cgroup \"/user.slice\".",
        "plimsoll limit set 1000 SIZE",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn the_machines_shortage_is_told_as_the_machines() {
    let machine = Incident {
        account: None,
        guard: Guard::Pressure,
        action: Outcome::Term,
        ..because(Reason::MachineLowMemoryTerm)
    };
    let text = story(&machine, Some("alice"), Reader::User);
    assert!(text.contains("the machine was short of memory. Programs were using 256.0 MiB"), "{text}");
    assert!(text.contains("was asked to end (SIGTERM)") && !text.contains("alice"), "{text}");
}

#[test]
fn why_a_smaller_one_paid_is_told_by_what_each_counts() {
    let avoided = Victim { weight_permille: Some(250), ..process(8, 1000, "compositor", 900) };
    let preferred = Victim { weight_permille: Some(1305), ..process(7378, 1000, "tab", 250) };
    let text =
        story(&Incident { victims: vec![preferred], peers: vec![avoided], ..incident() }, None, Reader::User);
    assert!(text.contains("it was using 250.0 MiB, counting 130.5 %."), "{text}");
    assert!(text.contains("with 900.0 MiB, counting 25 %."), "{text}");
}

#[test]
fn who_was_left_because_a_session_stands_on_it_is_told_as_that() {
    let compositor = Victim { session: true, ..process(8, 1000, "weston", 900) };
    let text = story(&Incident { peers: vec![compositor], ..incident() }, None, Reader::User);
    assert!(
        text.contains("\"weston\" (process 8) with 900.0 MiB, which carries the user's session."),
        "{text}"
    );
}

#[test]
fn a_larger_process_that_was_left_alone_is_named_as_such() {
    let peers = vec![process(1, 0, "init", 300), process(9, 1000, "vi", 2)];
    let text = story(&Incident { peers, ..incident() }, None, Reader::User);
    assert!(text.contains("Larger, and left alone"), "{text}");
    assert!(
        text.contains("\"init\" (process 1) with 300.0 MiB. Compared with, next in size: \"vi\""),
        "{text}"
    );
}

#[test]
fn a_dry_run_is_never_told_as_a_kill() {
    let dry = Incident { action: Outcome::Notify, ..because(Reason::OverHardLimitSelected) };
    let text = story(&dry, None, Reader::User);
    assert!(text.contains("Dry run, nothing was sent") && !text.contains("was killed;"), "{text}");
}

#[test]
fn a_crossing_without_a_victim_says_that_nothing_was_killed() {
    let stuck = Incident {
        action: Outcome::Notify,
        victims: Vec::new(),
        ..because(Reason::OverHardLimitOnlyProtectedLeft)
    };
    let text = story(&stuck, None, Reader::User);
    assert!(text.contains("nothing was killed") && text.contains("The largest there: \"node\""), "{text}");
}

#[test]
fn an_incident_of_a_later_version_is_still_told() {
    let later = Incident { reason: String::from("over-the-moon"), ..incident() };
    let text = story(&later, None, Reader::Administrator);
    assert!(text.contains("Reason: over-the-moon.") && text.contains("not known to this version"), "{text}");
    assert!(line(&later).contains("reason over-the-moon"));
}

#[test]
fn no_story_gives_more_than_two_pieces_of_advice() {
    for reason in Reason::ALL {
        for reader in [Reader::User, Reader::Administrator] {
            let text = story(&because(reason), None, reader);
            let advice =
                text.lines().filter(|l| l.starts_with("What to do:") || l.starts_with("Or:")).count();
            assert!((1..=2).contains(&advice), "{reason}: {text}");
        }
    }
}

proptest! {
    #[test]
    fn no_foreign_text_gets_out_of_its_quotes(comm: String, name: String, cmdline: String) {
        let mut hostile = Incident { reason: comm.clone(), ..incident() };
        hostile.victims[0].comm = comm.clone();
        hostile.victims[0].cmdline = Some(cmdline);
        hostile.peers[0].comm = comm;
        assert!(!line(&hostile).chars().any(char::is_control));
        let text = story(&hostile, Some(&name), Reader::Administrator);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
        assert_eq!(text.lines().count(), 8);
    }
}

mod floor;
mod origin;

#[test]
fn a_refusal_is_told_by_its_numbers_and_what_to_do() {
    let refused = Incident {
        guard: Guard::Tmalloc,
        trigger: Trigger::Daemon,
        action: Outcome::Refuse,
        usage_bytes: 240 << 20,
        overshoot_bytes: 0,
        requested_bytes: Some(32 << 20),
        cross_to_signal_ns: None,
        signal_to_freed_ns: None,
        freed_bytes: None,
        reason: String::from("240+32>255 MiB"),
        peers: Vec::new(),
        ..incident()
    };
    let told = story(&refused, None, Reader::Administrator);
    for part in [
        "Process 7378 (\"python3\") had a reservation refused; it was using 250.0 MiB. Used, asked for and allowed: 240+32>255 MiB.",
        "The refused request asked for 32.0 MiB.",
        "What to do: have the program ask for less",
        "Or: give the user a higher line: plimsoll limit set 1000 SIZE.",
    ] {
        assert!(told.contains(part), "{part} is not in: {told}");
    }
    assert!(!told.contains("not known"), "{told}");
    let denied = Incident {
        guard: Guard::Limits,
        trigger: Trigger::InKernel,
        action: Outcome::Deny,
        account: Some(Account::Job(JobId(7))),
        hard_bytes: Some(255 << 20),
        ..refused
    };
    let told = story(&denied, None, Reader::User);
    for part in [
        "Job 7 may write to 240.0 MiB already, touched or not, with a line of 255.0 MiB.",
        "Process 7378 (\"python3\") asked for 32.0 MiB more and was refused (ENOMEM); nobody was ended. \
         It had touched 250.0 MiB. Committed, asked for and allowed: 240+32>255 MiB.",
        "Or: start it with a higher line: plimsoll run --limit SIZE.",
    ] {
        assert!(told.contains(part), "{part} is not in: {told}");
    }
    assert!(!told.contains("not known"), "{told}");
}
