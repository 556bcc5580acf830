use crate::story::{Reader, line, story, tests::incident};
use plimsoll_policy::{
    incident::{Guard, Incident, Outcome, Trigger},
    reason::Reason,
};

/// 200 MiB were left of a floor of 230.4 MiB, 15 % of 1.5 GiB.
fn under() -> Incident {
    Incident {
        account: None,
        guard: Guard::Workingset,
        trigger: Trigger::InKernel,
        usage_bytes: 200 << 20,
        hard_bytes: Some(241_591_910),
        overshoot_bytes: 0,
        requested_bytes: None,
        reason: Reason::WorkingsetFloor.to_string(),
        peers: Vec::new(),
        ..incident()
    }
}

#[test]
fn a_kill_at_the_floor_tells_how_much_clean_file_memory_was_left() {
    assert_eq!(
        story(&under(), None, Reader::User),
        "2026-11-21 04:59:12 UTC: clean file memory fell to 200.0 MiB of 230.4 MiB (86 %), less than is kept.\n\
         Process 7378 (\"python3\") was killed; it was using 250.0 MiB. Clean file memory was under its floor and \
         nothing could be swapped: before the kernel took the pages that programs run from, the process that had been \
         selected was killed.\n\
         The signal came 3.2 us after the crossing, and 250.0 MiB were back 12.0 ms after the signal.\n\
         What to do: start it again with less to do at once, or end other programs first.\n\
         Or: ask the administrator for swap or zram, or for a lower floor; 'plimsoll protect show' shows the present one."
    );
}

#[test]
fn where_nothing_more_could_be_taken_the_story_says_so() {
    let incident =
        Incident { usage_bytes: 250 << 20, reason: Reason::WorkingsetNoProgress.to_string(), ..under() };
    let text = story(&incident, None, Reader::User);
    assert!(
        text.starts_with(
            "2026-11-21 04:59:12 UTC: nothing more could be taken back, with clean file memory at 250.0 MiB of \
             230.4 MiB (108 %).\n\
             Process 7378 (\"python3\") was killed; it was using 250.0 MiB. The kernel looked for memory to take back again \
             and again and found none: before its OOM killer chose, the process that had been selected was killed.\n"
        ),
        "{text}"
    );
    let nobody = Incident { reason: Reason::WorkingsetFloorOnlyProtectedLeft.to_string(), ..incident };
    assert!(story(&nobody, None, Reader::User).contains(": nothing more could be taken back, with"));
}

#[test]
fn the_journal_line_of_a_kill_at_the_floor_gives_the_measure_in_the_place_of_usage() {
    assert_eq!(
        line(&under()),
        "plimsoll: sent SIGKILL to process 7378 uid 1000 \"python3\": clean file memory 200.0 MiB of 230.4 MiB (86 %), \
         in-kernel, crossing to signal 3.2 us, signal to freed 12.0 ms, freed 250.0 MiB, reason workingset-floor, \
         incident 17"
    );
}

#[test]
fn a_floor_that_is_not_known_is_left_out() {
    let text = line(&Incident { hard_bytes: None, ..under() });
    assert!(text.contains("clean file memory 200.0 MiB, in-kernel"), "{text}");
}

#[test]
fn an_administrator_is_told_how_to_lower_the_floor() {
    let text = story(&under(), None, Reader::Administrator);
    assert!(text.contains("plimsoll protect set clean_min_ratio=10."), "{text}");
}

#[test]
fn a_dry_run_at_the_floor_says_who_would_have_been_killed() {
    let dry = Incident { action: Outcome::Notify, trigger: Trigger::Daemon, ..under() };
    let text = story(&dry, None, Reader::User);
    assert!(text.contains("Dry run, nothing was sent: Process 7378"), "{text}");
}

#[test]
fn when_only_protected_processes_are_left_nothing_is_said_to_be_killed() {
    let spared = Incident {
        victims: Vec::new(),
        action: Outcome::Notify,
        reason: Reason::WorkingsetFloorOnlyProtectedLeft.to_string(),
        ..under()
    };
    let text = story(&spared, None, Reader::User);
    assert!(text.contains("nothing was killed") && text.contains("protect less"), "{text}");
}
