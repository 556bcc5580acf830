use super::Reason;
use std::{collections::BTreeSet, string::ToString};

#[test]
fn every_reason_reads_back_from_its_text() {
    for reason in Reason::ALL {
        assert_eq!(reason.text().parse(), Ok(reason));
        let json = serde_json::to_string(&reason).unwrap();
        assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), reason);
    }
}

/// Scripts match on these: a change here is a change of the interface.
#[test]
fn the_texts_are_what_they_always_were() {
    let texts: std::vec::Vec<&str> = Reason::ALL.iter().map(|reason| reason.text()).collect();
    assert_eq!(
        texts,
        [
            "over-hard-limit-largest",
            "over-hard-limit-other",
            "over-hard-limit-allocating",
            "over-hard-limit-selected",
            "over-hard-limit-unanswered",
            "over-hard-limit-only-protected-left",
            "over-hard-limit-nothing-to-free",
            "over-hard-limit-shared-lasts",
            "over-hard-limit-notify",
            "over-hard-limit-term",
            "over-hard-limit-no-grace",
            "table-full-most-processes",
            "term-deadline-passed",
            "machine-low-memory-notice",
            "machine-low-memory-term",
            "machine-low-memory-kill",
            "machine-thrashing",
            "machine-term-deadline-passed",
            "machine-only-protected-left",
            "memory-compacted",
            "compaction-in-vain",
            "actions-not-recorded",
            "incidents-folded",
            "last-defence-memory-max",
            "last-defence-out-of-memory",
            "kernel-out-of-memory",
            "kernel-cgroup-limit",
            "kernel-nodes-full",
            "kernel-oom-kill",
            "kernel-kills-not-recorded",
            "systemd-oomd-kill",
            "earlyoom-kill",
            "workingset-floor",
            "workingset-no-progress",
            "workingset-floor-only-protected-left",
            "signal-failed",
        ]
    );
}

#[test]
fn each_text_is_kebab_case_and_each_sentence_is_one_of_its_own() {
    let mut sentences = BTreeSet::new();
    for reason in Reason::ALL {
        assert!(reason.text().chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        assert!(reason.sentence().ends_with('.') && !reason.sentence().contains('\n'));
        assert!(sentences.insert(reason.sentence()));
    }
}

#[test]
fn a_reason_of_a_later_version_is_an_error_that_names_it() {
    let error = "over-the-moon".parse::<Reason>().unwrap_err();
    assert_eq!(error.to_string(), "unknown reason 'over-the-moon'; it may come from a later version");
}
