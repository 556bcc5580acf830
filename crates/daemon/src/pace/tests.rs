use super::REMEMBERED_MAX;
use plimsoll_policy::units::{Nanos, Uid};
use std::time::Duration;

type Debt = super::Debt<PARTS, 20, 100>;
type Pace = super::Pace<PARTS, 20, 100>;

const PARTS: u32 = 50;
const NOTED_MAX: Duration = Duration::from_millis(20);
const CREDIT: Duration = Duration::from_millis(100);
const MS: Duration = Duration::from_millis(1);
/// Some moment.
const BEGIN: Nanos = Nanos(1_000_000_000_000);

fn after(begin: Nanos, time: Duration) -> Nanos {
    begin.saturating_add(Nanos(time.as_nanos().try_into().unwrap()))
}

#[test]
fn who_asks_without_end_has_a_small_part_of_the_time_and_waits_for_nothing_at_first() {
    let (mut now, mut spent) = (BEGIN, Duration::ZERO);
    let mut debt = Debt::default();
    while now < after(BEGIN, Duration::from_secs(60)) {
        now = after(now, MS);
        let until = debt.pay(MS, now);
        spent += MS;
        assert!(spent > CREDIT || until <= now, "{spent:?}");
        now = now.max(until);
    }
    let part = (Duration::from_secs(60) / PARTS).max(MS);
    assert!(spent <= CREDIT + part + part / 10, "{spent:?}");
    assert!(spent >= CREDIT + part - part / 10, "{spent:?}");
    // Who stops has all of the credit again.
    let later = after(now, CREDIT * PARTS);
    assert!(debt.pay(CREDIT.min(NOTED_MAX), later) <= later);
}

#[test]
fn an_answer_that_took_for_ever_costs_a_bounded_wait() {
    let mut debt = Debt::default();
    let ends: Vec<Nanos> = (0..100).map(|_| debt.pay(Duration::from_secs(100), BEGIN)).collect();
    assert!(ends.windows(2).all(|two| two[1] <= after(two[0], NOTED_MAX * PARTS)), "{ends:?}");
}

#[test]
fn each_owner_has_a_pace_and_root_has_none() {
    let mut pace = Pace::default();
    for _ in 0..20 {
        pace.spent(Uid(1000), NOTED_MAX, BEGIN);
        pace.spent(Uid(0), NOTED_MAX, BEGIN);
    }
    assert!(pace.until(Uid(1000)) > BEGIN);
    assert!(pace.until(Uid(0)) <= BEGIN && pace.until(Uid(1001)) <= BEGIN);
}

#[test]
fn whoever_has_spent_least_is_forgotten_first() {
    let mut pace = Pace::default();
    for _ in 0..20 {
        pace.spent(Uid(1), NOTED_MAX, BEGIN);
    }
    for uid in 2..=u32::try_from(REMEMBERED_MAX).unwrap() * 2 {
        pace.spent(Uid(uid), MS, BEGIN);
    }
    assert!(pace.until(Uid(1)) > BEGIN);
    assert_eq!(pace.debts.len(), REMEMBERED_MAX);
}
