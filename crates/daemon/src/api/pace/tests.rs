use super::{CREDIT, Debt, NOTED_MAX, PARTS, Pace, REMEMBERED_MAX};
use plimsoll_policy::units::Uid;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

#[test]
fn who_asks_without_end_has_a_small_part_of_the_time_and_waits_for_nothing_at_first() {
    let begin = Instant::now();
    let (mut now, mut spent) = (begin, Duration::ZERO);
    let mut debt = Debt::none(now);
    while now < begin + Duration::from_secs(60) {
        let wait = debt.pay(MS, now + MS);
        spent += MS;
        assert!(spent > CREDIT || wait.is_zero(), "{spent:?}");
        now += MS + wait;
    }
    let part = (Duration::from_secs(60) / PARTS).max(MS);
    assert!(spent <= CREDIT + part + part / 10, "{spent:?}");
    assert!(spent >= CREDIT + part - part / 10, "{spent:?}");
    // Who stops has all of the credit again.
    assert!(debt.pay(CREDIT.min(NOTED_MAX), now + CREDIT * PARTS).is_zero());
}

#[test]
fn an_answer_that_took_for_ever_costs_a_bounded_wait() {
    let now = Instant::now();
    let mut debt = Debt::none(now);
    let waits: Vec<Duration> = (0..100).map(|_| debt.pay(Duration::from_secs(100), now)).collect();
    assert!(waits.windows(2).all(|two| two[1] - two[0] <= NOTED_MAX * PARTS), "{waits:?}");
}

#[test]
fn each_owner_has_a_pace_and_root_has_none() {
    let pace = Pace::default();
    for _ in 0..20 {
        pace.spent(Uid(1000), NOTED_MAX);
        pace.spent(Uid(0), NOTED_MAX);
    }
    assert!(pace.wait(Uid(1000)) > Duration::ZERO);
    assert_eq!((pace.wait(Uid(0)), pace.wait(Uid(1001))), (Duration::ZERO, Duration::ZERO));
}

#[test]
fn whoever_has_spent_least_is_forgotten_first() {
    let pace = Pace::default();
    for _ in 0..20 {
        pace.spent(Uid(1), NOTED_MAX);
    }
    for uid in 2..=u32::try_from(REMEMBERED_MAX).unwrap() * 2 {
        pace.spent(Uid(uid), MS);
    }
    assert!(pace.wait(Uid(1)) > Duration::ZERO);
    assert_eq!(pace.debts.lock().unwrap().len(), REMEMBERED_MAX);
}
