use super::*;
use crate::guard::machine::tests::town::Town;

const SECOND: u64 = 1_000_000_000;

fn at(seconds: u64) -> Nanos {
    Nanos(seconds * SECOND)
}

fn counts_of(shared: u64, swapped: u64) -> [Bytes; 3] {
    [Bytes(shared << 20), Bytes(swapped << 20), Bytes(0)]
}

#[test]
fn it_is_walked_first_and_then_where_the_machines_counts_changed() {
    let mut shared = Shared::default();
    assert!(shared.calls_for_walk(counts_of(0, 0), at(0)));
    shared.walked = Some((at(0), counts_of(8, 8)));
    assert!(!shared.calls_for_walk(counts_of(8, 8), at(1)));
    // More, less, and some of it in swap.
    for counts in [counts_of(9, 8), counts_of(7, 8), counts_of(8, 9), counts_of(9, 7)] {
        assert!(shared.calls_for_walk(counts, at(1)), "{counts:?}");
    }
    // What nothing explains comes and goes: drivers' buffers, lists of single CPUs.
    let [in_memory, swapped, _] = counts_of(8, 8);
    assert!(!shared.calls_for_walk([in_memory, swapped, Bytes(7 << 20)], at(1)));
    assert!(shared.calls_for_walk([in_memory, swapped, Bytes(8 << 20)], at(1)));
}

#[test]
fn a_machine_without_any_is_not_walked_and_one_with_some_now_and_then() {
    let mut shared = Shared { walked: Some((at(0), counts_of(8, 8))), ..Shared::default() };
    assert!(!shared.calls_for_walk(counts_of(8, 8), at(1000)));
    shared.owned.insert(Uid(1000), Owned::default());
    assert!(!shared.calls_for_walk(counts_of(8, 8), at(7)));
    assert!(shared.calls_for_walk(counts_of(8, 8), at(8)));
}

#[test]
fn while_one_walk_is_under_way_nothing_is_due_and_a_walk_from_before_ends_nobody() {
    let mut shared = Shared { due: at(3), rested: at(4), ..Shared::default() };
    assert_eq!(shared.next(), Some(at(4)));
    shared.doubt(at(2));
    assert_eq!((shared.next(), shared.not_before), (Some(at(4)), at(2)));
    shared.asked = Some((at(1), at(6)));
    assert_eq!((shared.next(), shared.timer()), (None, Some(at(6))), "when it is late");
    shared.held.insert(1, Held { pages: Pages(5), part: Pages(5), in_common: None });
    assert_eq!(shared.held(1), Held::default());
    shared.is_fresh = true;
    assert_eq!(shared.held(1).pages, Pages(5));
}

#[test]
fn a_file_is_told_by_what_can_be_found() {
    let name = |kind, text: &str| SharedName {
        kind,
        text: text.into(),
        number: 7,
        device: (0, 1),
        is_unlinked: kind == Kind::File,
    };
    assert_eq!(named(&name(Kind::Anonymous, "dev/zero")), "shared anonymous memory");
    assert_eq!(named(&name(Kind::Segment, "SYSV00000000")), "System V segment 7");
    assert_eq!(named(&name(Kind::File, "it")), "it (deleted)");
    assert_eq!(named(&name(Kind::Pipe, "")), "pipe:[7]");
    assert_eq!(named(&SharedName::SMALL), "many small files");
}

pub(crate) fn account(usage: u64, lasting: u64) -> AccountFacts {
    AccountFacts {
        index: 1,
        whose: Uid(1000).into(),
        user: Some(Uid(1000)),
        above: [0; 4],
        counts: plimsoll_sys::bpf::Counts::default(),
        usage: Pages(usage),
        hard: Pages(100),
        soft: Pages(90),
        effective: Some(Pages(100)),
        dying: Pages(0),
        dying_most: Pages(0),
        processes: 1,
        near: false,
        exact: true,
        unanswered_ns: None,
        signal: 9,
        from_default: false,
        copyable: Pages(0),
        strays: Pages(0),
        kills: 0,
        folded: 0,
        reserved: Pages(0),
        shared: Pages(0),
        lasting: Pages(lasting),
        peak: Pages(0),
    }
}

#[test]
fn what_lasts_is_told_once_when_a_second_walk_finds_it_and_not_soon_again() {
    let mut shared = Shared::default();
    let mut told = |lasting, seconds| {
        let told = shared.is_to_be_told(&account(20, lasting), at(seconds));
        (told, core::mem::take(&mut shared.wanted))
    };
    // Of one who was dying: it is gone with the next walk.
    assert_eq!(told(90, 0), (false, true));
    assert_eq!(told(0, 1), (false, false));
    assert_eq!(told(90, 2), (false, true));
    assert_eq!(told(90, 3), (true, false));
    assert_eq!(told(90, 5), (false, false));
    // Now under the line, now past it.
    assert_eq!(told(50, 6), (false, false));
    assert_eq!(told(90, 7), (false, false));
    assert_eq!(told(50, 602), (false, false));
    assert_eq!(told(90, 603), (false, true));
    assert_eq!(told(90, 604), (true, false));
    // As long as it stays so it was said.
    assert_eq!(told(90, 9000), (false, false));
}

#[test]
fn past_the_line_by_what_can_be_given_back_what_lasts_is_not_told() {
    let mut shared = Shared::default();
    assert!(!shared.is_to_be_told(&account(110, 90), at(0)));
    assert!(!shared.is_to_be_told(&account(110, 90), at(1)));
    assert!(!shared.wanted);
}

#[test]
fn no_timer_runs_until_a_cpu_has_worked_since_the_last_look_unless_somebody_may_have_to_end() {
    let mut kernel = Town::default();
    kernel.tells(true);
    let mut shared = Shared { due: at(3), ..Shared::default() };
    assert_eq!(shared.timer(), Some(at(3)));
    shared.plan(&mut kernel);
    assert_eq!((shared.timer(), kernel.awaited()), (None, Some(Nanos(kernel.now()))));
    shared.plan(&mut kernel);
    assert_eq!(shared.timer(), Some(at(3)), "woken");
    shared.due = at(4);
    shared.plan(&mut kernel);
    assert_eq!(shared.timer(), None);
    shared.wanted = true;
    assert_eq!(shared.timer(), Some(at(4)));
}

#[test]
fn where_no_program_tells_of_cpus_that_work_there_is_a_timer() {
    let mut shared = Shared { due: at(3), ..Shared::default() };
    shared.plan(&mut Town::default());
    assert_eq!(shared.timer(), Some(at(3)));
}

#[test]
fn where_not_all_files_were_found_nothing_more_ends_anybody_and_all_that_was_found_is_charged() {
    let owned = Owned { ending: Pages(70), lasting: Pages(20), ..Owned::default() };
    let before = AccountFacts { shared: Pages(40), ..account(60, 10) };
    let pages = |ending, lasting| (Pages(ending), Pages(lasting));
    assert_eq!(charged(Some(&owned), &before, true), pages(70, 20));
    assert_eq!(charged(Some(&owned), &before, false), pages(40, 50));
    // Less was found than there is: no less is charged.
    assert_eq!(charged(None, &before, false), pages(40, 10));
    assert_eq!(charged(None, &before, true), pages(0, 0));
}

/// Looks at an account before two walks, with so many pages of its own, and at what both found.
fn walked(own: [u64; 2], sure: u64) -> Shared {
    let owned = Owned { ending: Pages(80), sure: Pages(sure), ..Owned::default() };
    let mut shared = Shared { owned: [(Uid(1000), owned)].into(), is_fresh: true, ..Shared::default() };
    for own in own {
        shared.note_own(&[account(own, 0)]);
    }
    shared
}

#[test]
fn somebody_ends_only_for_what_two_walks_found_and_what_was_used_besides_all_the_time() {
    let now = |own: u64| AccountFacts { shared: Pages(80), ..account(own + 80, 0) };
    assert!(walked([30, 30], 80).is_surely_over(&now(30), &[Uid(1000)], Pages(0)));
    // The same memory, now here and now there.
    assert!(!walked([80, 80], 20).is_surely_over(&now(80), &[Uid(1000)], Pages(0)), "in another file before");
    assert!(!walked([0, 80], 80).is_surely_over(&now(80), &[Uid(1000)], Pages(0)), "in none before");
    assert!(!walked([80, 0], 80).is_surely_over(&now(80), &[Uid(1000)], Pages(0)));
    assert!(!walked([80, 80], 80).is_surely_over(&now(0), &[Uid(1000)], Pages(0)));
    // Nobody has to end for what goes with those who are on their way out.
    assert!(walked([30, 30], 80).is_surely_over(&now(30), &[Uid(1000)], Pages(9)));
    assert!(!walked([30, 30], 80).is_surely_over(&now(30), &[Uid(1000)], Pages(10)));
    let dying = AccountFacts { dying: Pages(30), ..now(30) };
    assert!(!walked([30, 30], 80).is_surely_over(&dying, &[Uid(1000)], Pages(0)));
    assert!(Shared { partly: [Uid(1000)].into(), ..walked([30, 30], 80) }.is_surely_over(
        &now(30),
        &[Uid(1000)],
        Pages(0)
    ));
    assert!(!Shared { is_fresh: false, ..walked([30, 30], 80) }.is_surely_over(
        &now(30),
        &[Uid(1000)],
        Pages(0)
    ));
    assert!(!walked([30, 30], 80).is_surely_over(
        &AccountFacts { whose: Uid(1001).into(), ..now(30) },
        &[Uid(1001)],
        Pages(0)
    ));
}

#[test]
fn when_root_draws_lines_a_walk_follows_at_once_and_no_sooner_than_any_when_users_do() {
    let mut shared = Shared { due: at(9), rested: at(5), ..Shared::default() };
    shared.drawn(Some(Uid(1000)), at(3));
    assert_eq!(shared.next(), Some(at(5)));
    shared.drawn(None, at(3));
    assert_eq!((shared.next(), shared.not_before), (Some(Nanos(0)), at(3)));
}
