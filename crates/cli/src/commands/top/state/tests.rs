use super::{Focus, State, View};
use crate::commands::top::{
    ask::{News, Page, Row, Wanted},
    keys::Key,
};
use jiff::{Timestamp, tz::TimeZone};
use plimsoll_api::{
    accounts::{AccountProcesses, AccountView},
    client::CallError,
    status::Status,
};
use plimsoll_policy::{
    account::{Account, Action, Source},
    incident::Incident,
    units::Uid,
};

pub(in super::super) fn account(uid: u32, usage_bytes: u64, hard_bytes: u64) -> AccountView {
    AccountView {
        account: Account::User(Uid(uid)),
        name: None,
        usage_bytes,
        reserved_bytes: 0,
        shared_bytes: None,
        shared_files: Vec::new(),
        peak_bytes: Some(usage_bytes),
        soft_bytes: Some(hard_bytes / 10 * 9),
        hard_bytes: Some(hard_bytes),
        effective_bytes: Some(hard_bytes),
        action: Action::Kill,
        near: usage_bytes >= hard_bytes / 10 * 9,
        processes: 3,
        source: Source::State,
        target: None,
        set_by: None,
        note: None,
        job: None,
        strict: None,
        process_list: None,
        process_list_more: None,
    }
}

pub(in super::super) fn incident(id: u64) -> Row {
    let sample: Incident =
        serde_json::from_str(include_str!("../../../../../policy/src/incident/sample.json")).unwrap();
    Row { incident: Incident { id, ..sample }, whose: "alice".to_owned() }
}

pub(in super::super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

pub(in super::super) fn fresh() -> State {
    State::new(TimeZone::UTC, at(0))
}

fn told(accounts: Vec<AccountView>, pages: Vec<Page>) -> News {
    News { status: Some(Status { accounts, ..Status::default() }), pages, ..News::default() }
}

fn page(ids: &[u64], before: Option<u64>, next: Option<u64>) -> Page {
    Page { rows: ids.iter().copied().map(incident).collect(), before, next }
}

fn pressed(state: State, keys: &[Key]) -> State {
    keys.iter().fold(state, |state, key| state.after(*key))
}

#[test]
fn the_fullest_account_stands_first_and_the_mark_stays_with_its_account() {
    let two = vec![account(60_001, 10, 1_000), account(60_002, 500, 1_000)];
    let state = fresh().heard(Ok(told(two, Vec::new())), at(1));
    assert_eq!(state.account, Some(Account::User(Uid(60_002))));
    let state = pressed(state, &[Key::Down]);
    assert_eq!((state.account.clone(), state.account_at()), (Some(Account::User(Uid(60_001))), 1));
    let other = vec![account(60_001, 950, 1_000), account(60_002, 500, 1_000)];
    let state = state.heard(Ok(told(other, Vec::new())), at(3));
    assert_eq!((state.account.clone(), state.account_at()), (Some(Account::User(Uid(60_001))), 0));
    let state = state.heard(Ok(told(vec![account(60_002, 500, 1_000)], Vec::new())), at(5));
    assert_eq!(state.account, Some(Account::User(Uid(60_002))));
}

#[test]
fn processes_are_asked_for_of_one_account_and_only_while_they_are_shown() {
    let state = fresh().heard(Ok(told(vec![account(60_001, 10, 1_000)], Vec::new())), at(1));
    let of_it = Wanted { processes_of: Some(Account::User(Uid(60_001))), ..Wanted::default() };
    assert_eq!(state.wanted(), of_it);
    let state = pressed(state, &[Key::Processes]);
    assert_eq!(state.wanted(), Wanted::default());
    let state = pressed(state, &[Key::Processes, Key::History]);
    assert_eq!(state.wanted().processes_of, None);
}

#[test]
fn without_an_answer_what_was_known_stays_with_its_time() {
    let state = fresh().heard(Ok(told(vec![account(60_001, 10, 1_000)], Vec::new())), at(1));
    let gone = || Err(CallError::NotRunning { socket: "s".into() });
    let state = state.heard(gone(), at(3)).heard(gone(), at(5));
    let (trouble, last) = state.trouble.clone().unwrap();
    assert!(trouble.contains("not running") && last == Some(at(1)), "{trouble}");
    assert_eq!(state.accounts().len(), 1);
    let state = state.heard(Ok(told(Vec::new(), Vec::new())), at(7));
    assert!(state.trouble.is_none() && state.accounts().is_empty());
}

#[test]
fn older_incidents_are_asked_for_as_the_mark_comes_near_to_the_oldest() {
    let ids: Vec<u64> = (11..=30).collect();
    let state = fresh().heard(Ok(told(Vec::new(), vec![page(&ids, None, Some(11))])), at(1));
    let state = pressed(state, &[Key::History]);
    assert_eq!((state.wanted().older_than, state.wanted().story_of), (None, Some(30)));
    let state = pressed(state, &[Key::Last]);
    assert_eq!((state.wanted().older_than, state.wanted().story_of), (Some(11), Some(11)));
    // A page can be empty while there are older ones.
    let state = state.heard(Ok(News { pages: vec![page(&[], Some(11), Some(6))], ..News::default() }), at(2));
    assert_eq!(state.wanted().older_than, Some(6));
    let state = state.heard(Ok(News { pages: vec![page(&[2, 3], Some(6), None)], ..News::default() }), at(3));
    assert_eq!((state.wanted().older_than, state.incident()), (None, Some(11)));
    assert_eq!(pressed(state, &[Key::Last]).incident(), Some(2));
}

#[test]
fn incidents_that_do_not_join_on_to_those_known_take_their_place() {
    let state = fresh().heard(Ok(told(Vec::new(), vec![page(&[1, 2], None, None)])), at(1));
    let state = state.heard(Ok(told(Vec::new(), vec![page(&[2, 3], None, Some(2))])), at(2));
    assert_eq!(state.incidents.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    let state = state.heard(Ok(told(Vec::new(), vec![page(&[90, 91], None, Some(90))])), at(3));
    assert_eq!(state.incidents.keys().copied().collect::<Vec<_>>(), [90, 91]);
    assert_eq!(pressed(state, &[Key::History, Key::Last]).wanted().older_than, Some(90));
}

#[test]
fn arrows_go_to_the_pane_that_has_them_and_escape_leads_back() {
    let three = (1..=3).map(|uid| account(60_000 + uid, 10, 1_000)).collect();
    let state = fresh().heard(Ok(told(three, Vec::new())), at(1));
    let processes = AccountProcesses { account: Account::User(Uid(60_001)), processes: Vec::new(), more: 0 };
    let state = state.heard(Ok(News { processes: Some(processes), ..News::default() }), at(2));
    let state = pressed(state, &[Key::Other, Key::Down]);
    assert_eq!((state.focus, state.account_at()), (Focus::Processes, 0));
    let state = pressed(state, &[Key::Other, Key::Last]);
    assert_eq!((state.focus, state.account_at()), (Focus::Accounts, 2));
    let state = pressed(state, &[Key::History, Key::Back, Key::Back]);
    assert!(state.view == View::Accounts && !state.is_left());
    assert!(pressed(state, &[Key::Leave]).is_left());
}
