use super::*;
use crate::story::{story, tell, tests::incident};
use plimsoll_policy::{
    account::Account,
    incident::{
        Trigger, UsageSample,
        origin::{Killer, Origin},
    },
    units::Uid,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn usage_at(second: i64, mib: u64) -> UsageSample {
    UsageSample { at_ms: second * 1000, usage_bytes: mib * MIB, line_bytes: Some(256 * MIB) }
}

fn machine_at(second: i64, available_mib: u64, some: Option<u16>) -> MachineSample {
    MachineSample {
        at_ms: second * 1000,
        mem_available_bytes: Some(available_mib * MIB),
        anon_bytes: Some((8192 - available_mib) * MIB),
        swap_free_bytes: Some(0),
        some_permille: some,
        full_permille: some.map(|some| some / 2),
    }
}

fn with(account: Vec<UsageSample>, machine: Vec<MachineSample>) -> Incident {
    let course = Course {
        account,
        machine,
        mem_total_bytes: Some(8192 * MIB),
        swap_total_bytes: Some(0),
        trace: None,
    };
    Incident { course: Some(course), ..incident() }
}

fn growing() -> Incident {
    let mut account: Vec<_> = (-60..-14).map(|second| usage_at(second, 64)).collect();
    account.extend((0..14_i64).map(|step| usage_at(step - 14, 64 + 13 * step.unsigned_abs())));
    account.extend([usage_at(1, 20), usage_at(10, 6)]);
    with(account, vec![machine_at(-1, 4096, Some(340)), machine_at(10, 4352, Some(0))])
}

#[test]
fn how_usage_grew_is_told_from_where_it_began_to_grow() {
    let told = tell(&growing(), None, Reader::User);
    assert_eq!(
        told.before,
        [
            "Usage grew from 64.0 MiB to 256.0 MiB in the last 14 s.",
            "The machine had 4.0 GiB of its 8.0 GiB available.",
            "Programs waited for memory for up to 34 % of the time, all of them at once 17 %.",
        ]
    );
    assert_eq!(told.after[1], "After 10 s usage was 6.0 MiB; the machine had 4.3 GiB available.");
    let text = story(&growing(), None, Reader::User);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("over the line") && lines[1].starts_with("Usage grew"), "{text}");
    let administrators = story(&growing(), None, Reader::Administrator);
    assert!(administrators.contains("in the last 14 s, 13.7 MiB a second."), "{administrators}");
}

#[test]
fn what_was_read_before_memory_was_back_is_not_told_as_what_came_after() {
    let read_at = |at_ms| {
        let usage = UsageSample { at_ms, usage_bytes: 255 * MIB, line_bytes: Some(256 * MIB) };
        let mut incident = with(vec![usage_at(-1, 255), usage], vec![]);
        incident.signal_to_freed_ns = Some(340_000_000);
        story(&incident, None, Reader::User).contains("usage was 255.0 MiB")
    };
    assert!(!read_at(20) && !read_at(300), "it was back after 340 ms");
    assert!(read_at(400));
}

#[test]
fn a_short_wait_is_left_to_administrators() {
    let quiet = with(vec![], vec![machine_at(-2, 4096, Some(4))]);
    let told = |reader| story(&quiet, None, reader).contains("waited for memory");
    assert!(!told(Reader::User) && told(Reader::Administrator));
    let unread = with(vec![], vec![machine_at(-2, 4096, None)]);
    assert!(!story(&unread, None, Reader::Administrator).contains("waited"));
}

#[test]
fn usage_that_did_not_grow_is_told_as_steady() {
    let steady = with((-25..0).map(|second| usage_at(second, 250)).collect(), vec![]);
    assert_eq!(tell(&steady, None, Reader::User).before, ["Usage had been about 256.0 MiB for 25 s."]);
}

#[test]
fn without_a_course_nothing_is_said_about_before_and_after() {
    let told = tell(&incident(), None, Reader::Administrator);
    assert!(told.before.is_empty());
    assert_eq!(told.after.len(), 1, "{told:?}");
    // A sample of the very moment says nothing about before either.
    let moment = with(vec![UsageSample { at_ms: -200, ..usage_at(0, 250) }], vec![]);
    assert!(tell(&moment, None, Reader::User).before.is_empty());
}

#[test]
fn the_machine_s_own_incident_is_told_by_the_memory_of_all_programs() {
    let machine = vec![
        machine_at(-9, 6144, None),
        machine_at(-8, 6144, None),
        machine_at(-1, 200, Some(900)),
        machine_at(9, 5000, Some(10)),
    ];
    let shortage = Incident { account: None, usage_bytes: 8000 * MIB, ..with(vec![], machine) };
    let told = tell(&shortage, None, Reader::User);
    assert_eq!(told.before[0], "The memory of programs grew from 2.0 GiB to 7.8 GiB in the last 8 s.");
    assert_eq!(
        told.before[1],
        "Programs waited for memory for up to 90 % of the time, all of them at once 45 %."
    );
    assert_eq!(told.after[1], "After 9 s the machine had 4.9 GiB available, after 200.0 MiB just before.");
}

fn foreign(killer: Killer, account: Option<Account>, course: Course) -> Incident {
    Incident {
        account,
        guard: Guard::Kernel,
        trigger: Trigger::Kernel,
        usage_bytes: 2048 * MIB,
        hard_bytes: None,
        origin: Some(Origin::of(killer)),
        course: Some(course),
        ..incident()
    }
}

#[test]
fn what_the_victim_of_a_foreign_kill_held_is_no_point_of_anybody_s_usage() {
    let machine: Vec<_> = (-300..=0).map(|second| machine_at(second, 192, None)).collect();
    let course = Course { machine, ..Course::default() };
    let global = foreign(Killer::Kernel, None, course);
    assert_eq!(usage(&global).0.last(), Some(&(0, 8000 * MIB)));
    assert_eq!(
        tell(&global, None, Reader::User).before,
        ["The memory of programs had been about 7.8 GiB for 5 min."]
    );
    let story = story(&global, None, Reader::User);
    assert!(story.contains("about 7.8 GiB") && !story.contains("2.0 GiB for"), "{story}");

    let account: Vec<_> = (-60..-1).map(|second| usage_at(second, 700)).collect();
    let course = Course { account, ..Course::default() };
    let slice = Incident {
        victims: vec![],
        usage_bytes: 0,
        ..foreign(Killer::SystemdOomd, Some(Account::User(Uid(1000))), course)
    };
    assert_eq!(tell(&slice, None, Reader::User).before, ["Usage had been about 700.0 MiB for 60 s."]);
    let nothing = Incident { course: Some(Course::default()), ..slice };
    assert!(tell(&nothing, None, Reader::Administrator).before.is_empty());
}

#[test]
fn spans_and_shares_read_as_people_say_them() {
    for (ms, text) in [(0, "0.0 s"), (449, "0.4 s"), (1000, "1 s"), (14_400, "14 s"), (119_000, "119 s")] {
        assert_eq!(seconds(ms), text);
    }
    assert_eq!((seconds(120_000), seconds(280_400)), ("2 min".into(), "4 min 40 s".into()));
    for (permille, text) in
        [(0, "0 %"), (4, "0.4 %"), (50, "5 %"), (57, "5.7 %"), (341, "34 %"), (1000, "100 %")]
    {
        assert_eq!(percent(permille), text);
    }
}

proptest! {
    #[test]
    fn whatever_was_recorded_can_be_told(
        points in proptest::collection::vec((any::<i64>(), any::<u64>(), any::<Option<u64>>(), any::<Option<u16>>()), 0..20),
        usage_bytes: u64,
        machine: bool,
    ) {
        let account = points.iter().map(|(at_ms, usage_bytes, line_bytes, _)| UsageSample {
            at_ms: *at_ms, usage_bytes: *usage_bytes, line_bytes: *line_bytes,
        });
        let of_machine = points.iter().map(|(at_ms, bytes, available, share)| MachineSample {
            at_ms: *at_ms,
            mem_available_bytes: *available,
            anon_bytes: Some(*bytes),
            swap_free_bytes: None,
            some_permille: *share,
            full_permille: *share,
        });
        let mut told = with(account.collect(), of_machine.collect());
        told.usage_bytes = usage_bytes;
        if machine {
            told.account = None;
        }
        for reader in [Reader::User, Reader::Administrator] {
            prop_assert!(!story(&told, None, reader).contains("\n\n"));
        }
    }
}
