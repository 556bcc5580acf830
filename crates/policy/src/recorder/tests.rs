use super::*;
use crate::units::Uid;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const ALICE: Uid = Uid(1000);
const LINE: u64 = 512 * MIB;

fn second(at: u64) -> Nanos {
    Nanos(at.saturating_mul(1_000_000_000))
}

fn found(uid: u32, usage: u64) -> AccountNow {
    AccountNow {
        account: Account::User(Uid(uid)),
        usage: Bytes(usage),
        line: Some(Bytes(LINE)),
        near: false,
        followed: false,
    }
}

fn recorder() -> Recorder {
    Recorder::new(Bytes(8 << 30))
}

fn usage(course: &Course) -> Vec<(i64, u64)> {
    course.account.iter().map(|sample| (sample.at_ms, sample.usage_bytes / MIB)).collect()
}

fn of_alice(recorder: &Recorder, decided: u64) -> Course {
    recorder.course(Some(&Account::User(ALICE)), second(decided), Nanos(0))
}

#[test]
fn growth_is_kept_second_by_second_with_times_from_the_decision() {
    let mut recorder = recorder();
    for at in 0..5 {
        recorder.account(second(at), found(1000, (100 + 100 * at) * MIB));
    }
    let course = recorder.course(Some(&Account::User(ALICE)), Nanos(3_500_000_000), Nanos(0));
    assert_eq!(usage(&course), [(-3500, 100), (-2500, 200), (-1500, 300), (-500, 400), (500, 500)]);
    assert_eq!(course.account[0].line_bytes, Some(LINE));
    assert_eq!(course.mem_total_bytes, Some(8 << 30));
}

#[test]
fn what_stays_the_same_is_kept_every_ten_seconds_and_a_step_stays_a_step() {
    let mut recorder = recorder();
    for at in 0..25 {
        recorder.account(second(at), found(1000, 200 * MIB));
    }
    recorder.account(second(25), found(1000, 400 * MIB));
    let course = of_alice(&recorder, 25);
    assert_eq!(usage(&course), [(-25_000, 200), (-15_000, 200), (-5000, 200), (-1000, 200), (0, 400)]);
}

#[test]
fn the_newest_sample_is_told_even_if_it_says_nothing_new() {
    let mut recorder = recorder();
    recorder.account(second(1), found(1000, 200 * MIB));
    recorder.account(second(2), found(1000, 201 * MIB));
    recorder.account(second(3), found(1000, 199 * MIB));
    assert_eq!(usage(&of_alice(&recorder, 3)), [(-2000, 200), (0, 199)]);
}

#[test]
fn an_account_far_below_its_line_takes_no_room_until_it_is_followed() {
    let mut recorder = recorder();
    recorder.account(second(1), found(1000, 63 * MIB));
    assert!(of_alice(&recorder, 1).account.is_empty());
    recorder.account(second(2), AccountNow { followed: true, ..found(1000, 10 * MIB) });
    recorder.account(second(3), found(1000, 300 * MIB));
    // That it fell is told once.
    recorder.account(second(4), found(1000, 0));
    recorder.account(second(5), found(1000, 30 * MIB));
    assert_eq!(usage(&of_alice(&recorder, 5)), [(-3000, 10), (-2000, 300), (-1000, 0)]);
}

#[test]
fn nothing_older_than_five_minutes_and_nothing_of_others_is_told() {
    let mut recorder = recorder();
    for at in 0..400 {
        recorder.account(second(at), found(1000, (100 + at) * MIB));
        recorder.account(second(at), found(1001, 77 * MIB));
    }
    let course = of_alice(&recorder, 399);
    assert_eq!(course.account[0].at_ms, -300_000);
    assert!(course.account.iter().all(|sample| sample.usage_bytes != 77 * MIB));
    let later = recorder.course(Some(&Account::User(ALICE)), second(390), second(389));
    assert!(later.account.iter().all(|sample| sample.at_ms >= -1000), "{later:?}");
    assert!(recorder.course(None, second(399), Nanos(0)).account.is_empty());
}

#[test]
fn shares_of_stalled_time_are_those_of_the_last_second() {
    let mut recorder = recorder();
    let stall = |some_total_us| MachineNow {
        stall: Some(Stall {
            some_total_us,
            full_total_us: Some(some_total_us / 2),
            some_avg10_permille: 7,
            full_avg10_permille: Some(5),
        }),
        ..MachineNow::default()
    };
    recorder.machine(second(1), &stall(1_000_000));
    recorder.machine(second(2), &stall(1_300_000));
    // Not read for a while: what the kernel says of the last 10 s is all there is.
    recorder.machine(second(9), &stall(2_000_000));
    recorder.machine(second(10), &stall(4_000_000));
    recorder.machine(second(11), &MachineNow::default());
    let course = recorder.course(None, second(10), Nanos(0));
    let shares: Vec<_> = course.machine.iter().map(|one| (one.some_permille, one.full_permille)).collect();
    let expected = [(7, 5), (300, 150), (7, 5), (1000, 1000)].map(|(some, full)| (Some(some), Some(full)));
    assert_eq!(shares[..4], expected);
    assert_eq!(shares[4], (None, None));
}

#[test]
fn the_ring_stays_within_its_bounds_whoever_changes() {
    let mut recorder = recorder();
    for at in 0..1000_u64 {
        for user in 0..100 {
            recorder.account(second(at), found(user, (100 + 100 * (at % 3)) * MIB));
        }
        let now = MachineNow { mem_available: Some(Bytes((at % 8) << 30)), ..MachineNow::default() };
        recorder.machine(second(at), &now);
    }
    assert_eq!(recorder.usage.len(), USAGE_MAX);
    assert_eq!(recorder.usage.capacity(), VecDeque::<UsageEntry>::with_capacity(USAGE_MAX).capacity());
    assert_eq!(recorder.followed.len(), ACCOUNTS_MAX);
    assert_eq!(recorder.machine.len(), MACHINE_MAX);
}

#[test]
fn no_timer_runs_but_for_ten_seconds_after_an_incident() {
    let (mut pace, mut trails) = (Pace::default(), Trails::default());
    assert_eq!(pace.due(&trails), None);
    assert!(pace.is_time(second(5)));
    pace.taken(second(5));
    assert!(!pace.is_time(Nanos(5_800_000_000)) && pace.is_time(Nanos(5_950_000_000)));
    assert_eq!(pace.due(&trails), None);
    trails.begin(1, Some(Account::User(ALICE)), Some(second(6)));
    assert!(trails.follows(&ALICE.into()) && !trails.follows(&Uid(1).into()) && trails.follows_any());
    let mut ticks = 0;
    while let Some(due) = pace.due(&trails) {
        pace.taken(due);
        ticks += 1;
        if let Some(over) = trails.next_over(due) {
            assert_eq!((over.id, due), (1, second(16)));
        }
    }
    assert_eq!(ticks, 11);
}

#[test]
fn an_idle_machine_s_accounts_are_looked_at_for_a_two_thousandth_of_the_time() {
    let mut pace = Pace::default();
    assert!(pace.has_rested(Nanos(0)));
    // 16 ms for some thousand accounts.
    pace.looked(second(1), Nanos(16_000_000));
    assert!(!pace.has_rested(second(32)) && pace.has_rested(second(33)));
    pace.looked(second(1), Nanos(u64::MAX));
    assert!(!pace.has_rested(second(1_000_000)));
}

#[test]
fn of_too_many_incidents_at_once_the_oldest_are_not_waited_for() {
    let mut trails = Trails::default();
    for id in 0..100 {
        trails.begin(id, None, None);
    }
    assert!(!trails.follows_any() && !trails.is_empty());
    assert_eq!(trails.next_over(second(20)), None, "nobody knows yet when they were");
    trails.date(second(10));
    let ids: Vec<u64> = core::iter::from_fn(|| trails.next_over(second(20))).map(|one| one.id).collect();
    assert_eq!(ids, (36..100).collect::<Vec<_>>());
    assert!(trails.is_empty());
}

proptest! {
    /// What the plot draws between two samples is never far from what was there.
    #[test]
    fn a_line_between_kept_samples_is_never_off_by_more_than_a_thirty_second(
        steps in proptest::collection::vec((900_u64..4000, -80_i64..80), 1..200)
    ) {
        let mut recorder = recorder();
        let (mut at, mut usage) = (1_000_000_u64, 256_i64);
        let mut truth = Vec::new();
        for (ms, step) in steps {
            at += ms;
            usage = (usage + step / 4).clamp(64, 600);
            truth.push((at, usage));
            let bytes = u64::try_from(usage).unwrap() * MIB;
            recorder.account(Nanos(at * 1_000_000), found(1000, bytes));
        }
        let decided = Nanos(at * 1_000_000);
        let course = recorder.course(Some(&Account::User(ALICE)), decided, Nanos(0));
        let kept: Vec<(i64, i64)> = course
            .account
            .iter()
            .map(|one| (one.at_ms + i64::try_from(at).unwrap(), i64::try_from(one.usage_bytes / MIB).unwrap()))
            .collect();
        prop_assert!(kept.windows(2).all(|two| two[0].0 < two[1].0));
        prop_assert_eq!(kept.last().copied(), truth.last().map(|(at, usage)| (i64::try_from(*at).unwrap(), *usage)));
        for (at, usage) in truth {
            let at = i64::try_from(at).unwrap();
            let Some(right) = kept.iter().position(|(when, _)| *when >= at) else { panic!("none after {at}") };
            if right == 0 {
                // Before what is told at all.
                continue;
            }
            let ((t0, u0), (t1, u1)) = (kept[right - 1], kept[right]);
            let drawn = u0 + (u1 - u0) * (at - t0) / (t1 - t0);
            // 16 MiB is the thirty-second; one more for rounding.
            prop_assert!((drawn - usage).abs() <= 17, "{} MiB, drawn {} at {}", usage, drawn, at);
        }
    }
}

#[test]
fn an_account_that_is_near_is_told_with_the_time_that_is_left_as_it_grows() {
    let mut recorder = recorder();
    for at in 0..=9 {
        let near = at >= 4;
        recorder
            .account(second(at), AccountNow { near, followed: near, ..found(1000, (400 + 10 * at) * MIB) });
        // Another one that stays where it is, and one that is not near.
        recorder.account(second(at), AccountNow { near: true, followed: true, ..found(1001, 500 * MIB) });
        recorder.account(second(at), found(1002, 300 * MIB));
    }
    let told: Vec<_> = recorder.near(second(10)).collect();
    let of = |uid: u32, usage: u64, left: Option<Nanos>| Outlook {
        account: Account::User(Uid(uid)),
        usage: Bytes(usage * MIB),
        line: Bytes(LINE),
        left,
    };
    // 22 MiB are left, at 10 MiB a second.
    assert_eq!(told, [of(1000, 490, Some(Nanos(2_200_000_000))), of(1001, 500, None)]);
    assert_eq!(recorder.near(second(20)).count(), 0, "long ago");
}
