use super::{Ink, bar, draw};
use crate::commands::top::{
    ask::{News, Page, Row},
    keys::Key,
    state::{
        State,
        tests::{account, at, fresh, incident},
    },
};
use plimsoll_api::{
    accounts::{AccountProcesses, AccountView, ProcessView},
    client::CallError,
    protect::{FloorView, ProtectView, TierView},
    status::{FragmentationView, GuardView, MarginView, OrderView, Status},
};
use plimsoll_policy::{
    account::Account,
    incident::{Incident, Victim},
    units::{Pid, Uid},
    workingset::floor::Standing,
};
use plimsoll_report::story::{Reader, story};
use ratatui::{Terminal, backend::TestBackend, style::Color};
use std::ffi::OsStr;

const COLOURED: &str = "xterm-256color";

fn process(pid: u32, comm: &str, error_bytes: u64) -> ProcessView {
    ProcessView {
        pid: Pid(pid),
        start_ns: 1,
        uid: Uid(60_001),
        comm: comm.to_owned(),
        charged_bytes: Some(300 << 20),
        anon_bytes: 301 << 20,
        swap_bytes: 0,
        shared_bytes: 4 << 20,
        file_bytes: 8 << 20,
        error_bytes,
    }
}

fn named(name: &str, view: AccountView) -> AccountView {
    AccountView { name: Some(name.to_owned()), ..view }
}

fn status() -> Status {
    let mut status = Status { daemon: true, ..Status::default() };
    let guard = |state: &str| GuardView { state: state.to_owned(), ..GuardView::default() };
    (status.guards.limits, status.guards.pressure) = (guard("on"), guard("on"));
    status.guards.limits.dying = 1;
    status.guards.own.uptime_seconds = Some(7_384);
    status.guards.own.resident_bytes = Some(18 << 20);
    status.guards.workingset = Some(guard("on"));
    let order = OrderView {
        order: 9,
        blocks: 12,
        kept: 48,
        gone_in_ns: Some(14_000_000_000),
        ..OrderView::default()
    };
    status.guards.fragmentation = Some(FragmentationView {
        state: "on".to_owned(),
        orders: vec![order],
        ..FragmentationView::default()
    });
    status.pressure.mem_total_bytes = Some(8 << 30);
    status.pressure.mem_available_bytes = Some(2 << 30);
    status.pressure.swap_total_bytes = Some(2 << 30);
    status.pressure.swap_free_bytes = Some(1 << 30);
    status.pressure.term_at_mem_bytes = Some(800 << 20);
    status.pressure.term_at_swap_bytes = Some(200 << 20);
    status.pressure.kill_at_mem_bytes = Some(400 << 20);
    status.pressure.exhausted_in_ns = Some(30_000_000_000);
    status.pressure.margin = Some(MarginView {
        bytes: 100 << 20,
        fill_bytes_per_second: 200 << 20,
        detect_ns: 1,
        select_ns: 1,
        signal_ns: 1,
        reap_ns: 1,
        reap_bytes_per_second: 1 << 30,
    });
    status.accounts = vec![
        named("alice", account(60_001, 1_000 << 20, 1 << 30)),
        named("bob", account(60_002, 200 << 20, 1 << 30)),
        account(60_003, 0, 512 << 20),
        named("carol", account(60_004, 600 << 20, 512 << 20)),
        AccountView { account: Account::System, ..account(0, 4 << 30, 7 << 30) },
    ];
    status
}

fn held() -> ProtectView {
    ProtectView {
        hard: TierView { budget_bytes: 1 << 30, locked_bytes: 300 << 20, files: 34 },
        floor: Some(FloorView {
            line_bytes: 500 << 20,
            clean_bytes: Some(900 << 20),
            standing: Standing::Above,
            kills: 0,
            last_incident: None,
        }),
        ..ProtectView::default()
    }
}

fn news() -> News {
    let rows = (14..=17).map(incident).collect();
    let processes = (0..12).map(|number| process(4_000 + number, "worker", 0)).collect();
    let of = AccountProcesses { account: Account::User(Uid(60_004)), processes, more: 988 };
    News {
        status: Some(status()),
        held: Some(held()),
        processes: Some(of),
        pages: vec![Page { rows, before: None, next: Some(14) }],
        story: None,
    }
}

fn shown(state: &State, size: (u16, u16), ink: Ink) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(frame, state, ink)).unwrap();
    terminal
}

fn text(state: &State, size: (u16, u16)) -> String {
    shown(state, size, Ink::of(None, Some(COLOURED))).backend().to_string()
}

fn all() -> State {
    fresh().heard(Ok(news()), at(1))
}

#[test]
fn a_few_accounts_fit_80_by_24() {
    let frame = text(&all(), (80, 24));
    let lines: Vec<_> = frame.lines().map(|line| line.trim_matches('"').trim_end()).collect();
    assert!(
        include_str!("../../../../../../docs/top.md").contains(&lines.join("\n")),
        "docs/top.md shows another"
    );
    insta::assert_snapshot!("accounts", frame);
}

#[test]
fn a_large_screen_is_used() {
    insta::assert_snapshot!("large", text(&all(), (200, 60)));
}

#[test]
fn a_user_sees_the_own_account() {
    let mut news = news();
    let status = news.status.as_mut().unwrap();
    status.accounts.retain(|view| view.name.as_deref() == Some("bob"));
    status.pressure.swap_total_bytes = Some(0);
    (status.pressure.exhausted_in_ns, status.guards.workingset) = (None, None);
    (news.held, news.pages) = (None, Vec::new());
    insta::assert_snapshot!("user", text(&fresh().heard(Ok(news), at(1)), (80, 24)));
}

#[test]
fn without_a_daemon_it_says_so_and_keeps_what_was_known() {
    let gone = || Err(CallError::NotRunning { socket: "/run/plimsoll/control.sock".into() });
    insta::assert_snapshot!("no-daemon", text(&fresh().heard(gone(), at(1)), (80, 24)));
    insta::assert_snapshot!("daemon-gone", text(&all().heard(gone(), at(3)), (80, 24)));
}

#[test]
fn the_history_shows_the_story_as_why_tells_it() {
    let Row { incident, .. } = incident(16);
    let told = story(&incident, Some("alice"), Reader::User);
    let state = all().after(Key::History).after(Key::Down);
    let state = state.heard(Ok(News { story: Some((16, told)), ..News::default() }), at(2));
    insta::assert_snapshot!("history", text(&state, (80, 24)));
}

#[test]
fn no_name_can_act_on_the_terminal() {
    let mut news = news();
    let victims =
        vec![Victim { comm: "\u{1b}]0;x\u{7}".to_owned(), ..incident(1).incident.victims[0].clone() }];
    let row = Row { incident: Incident { victims, ..incident(18).incident }, whose: "carol".to_owned() };
    news.pages = vec![Page { rows: vec![row], before: None, next: None }];
    let hostile = ["\u{1b}[2J\u{1b}[31mx", "a\nb\rc", "\u{202e}evil", "日本語", "\\x1b[2J"];
    let processes = hostile.iter().map(|comm| process(4_000, comm, 128 << 10)).collect();
    news.processes = Some(AccountProcesses { account: Account::User(Uid(60_004)), processes, more: 0 });
    let text = text(&fresh().heard(Ok(news), at(1)), (80, 24));
    assert!(!text.contains(['\u{1b}', '\u{7}', '\r', '\u{202e}']), "{text:?}");
    insta::assert_snapshot!("hostile", text);
}

#[test]
fn without_colour_the_words_and_signs_are_the_same() {
    let coloured = shown(&all(), (80, 24), Ink::of(None, Some(COLOURED)));
    let colours = |terminal: &Terminal<TestBackend>| {
        terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(colours(&coloured));
    for (no_color, term) in [(Some("1"), COLOURED), (None, "xterm-mono"), (None, "vt100"), (None, "dumb")] {
        let plain = shown(&all(), (80, 24), Ink::of(no_color.map(OsStr::new), Some(term)));
        assert!(!colours(&plain), "{term}");
        assert_eq!(plain.backend().to_string(), coloured.backend().to_string(), "{term}");
        let attributes = plain.backend().buffer().content().iter().any(|cell| !cell.modifier.is_empty());
        assert_eq!(attributes, term != "dumb", "{term}");
    }
}

#[test]
fn a_bar_shows_usage_the_soft_limit_and_what_is_over() {
    for (used, expected) in [
        (0, "[..................|.]"),
        (50, "[##########........|.]"),
        (100, "[##################|#]"),
        (101, "[##################|!]"),
    ] {
        assert_eq!(bar(used, Some(90), 100), expected);
    }
    assert_eq!(bar(1, None, 0), "[...................!]");
}

#[test]
fn a_screen_of_any_size_is_no_failure() {
    for size in [(1, 1), (20, 3), (80, 8), (300, 200)] {
        text(&all(), size);
        text(&all().after(Key::History), size);
    }
}

#[test]
fn a_mark_far_down_is_on_the_screen() {
    let mut news = news();
    let accounts = (0..100).map(|number| account(60_100 + number, 100 - u64::from(number), 1_000)).collect();
    news.status.as_mut().unwrap().accounts = accounts;
    let state = (0..60).fold(fresh().heard(Ok(news), at(1)), |state, _| state.after(Key::Down));
    let text = text(&state, (80, 24));
    assert!(text.contains("\">user:60160") || text.contains("\"> user:60160"), "{text}");
}
