use super::page;
use plimsoll_policy::incident::{Course, Incident, MachineSample, UsageSample};
use plimsoll_report::story::Reader;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// What others may choose, at its worst.
const HOSTILE: [&str; 9] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onload='alert(1)",
    "</style><script>",
    "</title></svg>--><b>",
    "&lt;script&gt;&#x3c;",
    "\u{202e}\u{2066}drowssap\u{0}\u{1b}[2J\r\n",
    "javascript:alert(1)",
    "]]><!--",
];

fn process(name: &str, mib: u64) -> serde_json::Value {
    serde_json::json!({
        "pid": 7, "start_ns": 1, "uid": 60001, "comm": name, "cmdline": name, "cgroup": name,
        "usage_bytes": mib * MIB,
    })
}

fn incident(name: &str) -> Incident {
    let mut incident: Incident = serde_json::from_value(serde_json::json!({
        "id": 3, "time": "2026-11-21T10:00:00Z", "account": "user:60001", "guard": "limits",
        "trigger": "in-kernel", "action": "kill", "victims": [process(name, 60)], "peers": [process(name, 2)],
        "usage_bytes": 64 * MIB, "hard_bytes": 64 * MIB, "overshoot_bytes": 4096, "cross_to_signal_ns": 9000,
        "signal_to_freed_ns": null, "freed_bytes": null, "reason": name,
    }))
    .unwrap();
    let usage = |at_ms, mib| UsageSample { at_ms, usage_bytes: mib * MIB, line_bytes: Some(64 * MIB) };
    let machine = |at_ms, share| MachineSample {
        at_ms,
        mem_available_bytes: Some(900 * MIB),
        anon_bytes: None,
        swap_free_bytes: Some(5 * MIB),
        some_permille: Some(share),
        full_permille: None,
    };
    incident.course = Some(Course {
        account: vec![usage(-4000, 10), usage(-2000, 30), usage(-1000, 50), usage(2000, 3)],
        machine: vec![machine(-4000, 0), machine(-1000, 220), machine(2000, 0)],
        mem_total_bytes: Some(1024 * MIB),
        swap_total_bytes: Some(8 * MIB),
        trace: None,
    });
    incident
}

/// Every tag, in order: the page without its text and without the values of attributes.
fn bones(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut rest, mut style) = (page, false);
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at..=end];
        let name: String = tag.chars().take_while(|one| !one.is_whitespace() && *one != '>').collect();
        style = name == "<style" || (style && name != "</style");
        if !style || name == "<style" {
            let attributes = tag.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
            found.push(attributes);
        }
        rest = &rest[end + 1..];
    }
    found
}

#[test]
fn growth_is_drawn_with_its_line_its_end_and_words_for_who_does_not_see_it() {
    let page = page(&incident("hog"), Some("alice"), Reader::User);
    for part in [
        "<title>hog (process 7) was killed</title>",
        "alice (uid 60001)",
        "Usage grew from 10.0 MiB to 64.0 MiB in the last 4 s.",
        "<title id=\"usage-title\">Usage and the line</title>",
        "aria-labelledby=\"usage-title usage-description\"",
        "rises from 10.0 MiB 4 s before the decision to 64.0 MiB at it.",
        "<li class=\"limit\">the line, 64.0 MiB</li>",
        "At most 22 % of the time.",
        "After 2 s usage was 3.0 MiB",
        "<summary>The numbers as tables</summary>",
        "<td class=\"n\">\u{2212}2.0 s</td><td class=\"n\">30.0 MiB</td>",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn the_page_asks_for_nothing_from_anywhere_and_runs_nothing() {
    let page = page(&incident("hog"), None, Reader::Administrator);
    assert!(
        page.contains("default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'")
    );
    for part in ["http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link", "style=\"", " on"]
    {
        let found = bones(&page).into_iter().find(|tag| tag.contains(part));
        assert_eq!(found, None, "{part}");
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

#[test]
fn whatever_a_process_calls_itself_stays_text() {
    let tame = bones(&page(&incident("hog"), Some("hog"), Reader::User));
    for name in HOSTILE {
        let page = page(&incident(name), Some(name), Reader::User);
        assert_eq!(bones(&page), tame, "{name:?}");
        assert!(!page.contains(['\u{202e}', '\u{2066}', '\0', '\u{1b}', '\r']), "{name:?}");
    }
}

#[test]
fn the_same_incident_gives_the_same_page() {
    let draw = || page(&incident("hog"), Some("alice"), Reader::User);
    assert_eq!(draw(), draw());
}

#[test]
fn what_was_not_recorded_is_left_out() {
    let bare = Incident {
        course: None,
        account: None,
        victims: Vec::new(),
        peers: Vec::new(),
        hard_bytes: None,
        cross_to_signal_ns: None,
        ..incident("over-hard-limit-largest")
    };
    let page = page(&bare, None, Reader::User);
    assert!(page.contains("The machine ran short of memory"), "{page}");
    assert!(!page.contains("<svg") && !page.contains("<table") && !page.contains("Over by"), "{page}");
}

fn foreign(killer: &str, account: Option<&str>, usage_bytes: u64) -> Incident {
    let mut foreign: Incident = serde_json::from_value(serde_json::json!({
        "id": 3, "time": "2026-11-21T10:00:00Z", "account": account, "guard": "kernel", "trigger": "kernel",
        "action": "kill", "victims": [], "peers": [], "usage_bytes": usage_bytes, "hard_bytes": null,
        "overshoot_bytes": 0, "cross_to_signal_ns": null, "signal_to_freed_ns": null, "freed_bytes": null,
        "reason": "kernel-out-of-memory",
        "origin": {"killer": killer, "scope": null, "cgroup": "/user.slice/<b>", "container": null, "invoker": null,
                   "order": null, "gfp": null, "cause": null, "summary": null},
    }))
    .unwrap();
    foreign.course = incident("hog").course;
    foreign
}

#[test]
fn a_kill_that_was_not_ours_shows_what_its_victim_held_and_no_line() {
    let mut global = foreign("kernel", None, 2048 * MIB);
    global.victims = incident("hog").victims;
    let course = global.course.as_mut().unwrap();
    course.account.clear();
    course.machine.iter_mut().for_each(|one| one.anon_bytes = Some(20 << 30));
    let page = page(&global, None, Reader::User);
    for part in [
        "<dt>Killed by</dt><dd>the kernel&#39;s OOM killer</dd>",
        "<dt>Victim held</dt><dd>2.0 GiB</dd>",
        "<title id=\"usage-title\">Memory of all programs</title>",
        "The memory of all programs is 20.0 GiB at the decision.",
        "What a victim held is as its killer counted it",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    for part in ["Whose line", "<dt>Usage</dt>", "where the guard acts", "is 2.0 GiB at the decision"] {
        assert!(!page.contains(part), "{part} in {page}");
    }
}

#[test]
fn without_a_victim_the_page_is_called_by_who_killed() {
    let titles = |incident: &Incident| {
        let page = page(incident, None, Reader::User);
        page.split("<title>").nth(1).unwrap().split("</title>").next().unwrap().to_owned()
    };
    let slice = foreign("systemd-oomd", Some("user:60001"), 0);
    assert_eq!(titles(&slice), "systemd-oomd took a cgroup");
    let page = page(&slice, None, Reader::User);
    assert!(page.contains("<dt>Of</dt><dd>user 60001</dd>"), "{page}");
    assert!(page.contains("<dt>Cgroup</dt><dd>/user.slice/&lt;b&gt;</dd>"), "{page}");
    assert!(!page.contains("Victim held") && !page.contains("0 bytes"), "{page}");
    let lost = Incident { unrecorded: Some(7), origin: None, ..foreign("kernel", None, 0) };
    assert_eq!(titles(&lost), "7 kills were not recorded");
    assert_eq!(titles(&foreign("earlyoom", None, 0)), "earlyoom ended a process");
}

proptest! {
    #[test]
    fn any_text_and_any_numbers_make_a_page_with_the_same_bones(
        name: String, usage: u64, at_ms: i64, share: u16, hard: Option<u64>,
    ) {
        let with = |name: &str| {
            let mut incident = incident(name);
            incident.usage_bytes = usage;
            incident.hard_bytes = hard;
            let course = incident.course.as_mut().unwrap();
            course.account[1].usage_bytes = usage;
            course.account[1].at_ms = at_ms;
            course.machine[1].some_permille = Some(share);
            incident
        };
        let tame = bones(&page(&with("hog"), Some("hog"), Reader::User));
        prop_assert_eq!(bones(&page(&with(&format!("x{name}")), Some(&name), Reader::User)), tame);
    }
}
