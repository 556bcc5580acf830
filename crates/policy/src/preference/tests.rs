use super::{
    AVOIDED, Effect, Exe, Facts, JudgedBy, MARKED_BY_USER, Mark, PREFERRED, Pattern, Rule, RuleError, Rules,
    Scope, Wish, adj_weight, cgroup,
};
use crate::{
    selection::{Protection, Weight},
    units::Uid,
};
use proptest::{prop_assert, proptest};
use std::{vec, vec::Vec};

const SOMEBODY: Facts<'static> = Facts {
    uid: Uid(1000),
    comm: b"firefox",
    exe: Some(Exe { path: b"/usr/lib/firefox/firefox", only_root_writes: true }),
    cgroup: Some(b"/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox-7.scope/tab"),
    cmdline: Some(b"/usr/lib/firefox/firefox -contentproc -isForBrowser"),
    oom_score_adj: 0,
    child_of_init: false,
    mark: None,
    leads_terminal: false,
};

fn patterns(text: &str) -> Vec<Pattern> {
    vec![Pattern::new(text).unwrap()]
}

fn weight(permille: u16) -> Weight {
    Weight::from_permille(permille).unwrap()
}

fn prefer() -> Rule {
    Rule::new(Effect::Weight(PREFERRED))
}

fn judge(rule: Rule, facts: &Facts<'_>) -> super::Judgement {
    Rules::new(vec![rule]).unwrap().judge(facts)
}

#[test]
fn without_rules_marks_and_adj_everybody_counts_the_same() {
    let judgement = Rules::default().judge(&SOMEBODY);
    assert_eq!((judgement.weight, judgement.protection), (Weight::NEUTRAL, None));
    assert_eq!((judgement.scope, judgement.by), (Scope::Process, JudgedBy::OomScoreAdj));
}

#[test]
fn each_part_of_a_rule_is_held_against_its_own_fact() {
    let rules = [
        Rule { exe: patterns("/usr/lib/firefox/*"), ..prefer() },
        Rule { unit: patterns("app-firefox-*.scope"), ..prefer() },
        Rule { unit: patterns("user@1000.service"), ..prefer() },
        Rule { cgroup: patterns("/user.slice/user-1000.slice"), ..prefer() },
        Rule { cmdline: patterns("*-isForBrowser*"), ..prefer() },
        Rule { comm: patterns("fire?ox"), ..prefer() },
        Rule { uid: vec![Uid(1), Uid(1000)], ..prefer() },
    ];
    for rule in rules {
        assert_eq!(judge(rule.clone(), &SOMEBODY).weight, PREFERRED, "{rule:?}");
        let other = Facts {
            uid: Uid(7),
            comm: b"x",
            exe: Some(Exe { path: b"/usr/bin/x", only_root_writes: true }),
            cgroup: Some(b"/system.slice/x.service"),
            cmdline: Some(b"x"),
            ..SOMEBODY
        };
        assert_eq!(judge(rule.clone(), &other).weight, Weight::NEUTRAL, "{rule:?}");
        let unread = Facts { uid: Uid(7), comm: b"", exe: None, cgroup: None, cmdline: None, ..SOMEBODY };
        assert_eq!(judge(rule.clone(), &unread).weight, Weight::NEUTRAL, "{rule:?}");
    }
}

#[test]
fn all_parts_of_a_rule_must_match_and_any_pattern_of_a_part_is_enough() {
    let both = Rule { comm: patterns("firefox"), uid: vec![Uid(7)], ..prefer() };
    assert_eq!(judge(both, &SOMEBODY).weight, Weight::NEUTRAL);
    let either = ["chrome", "firefox"].map(|text| Pattern::new(text).unwrap());
    assert_eq!(judge(Rule { comm: either.into(), ..prefer() }, &SOMEBODY).weight, PREFERRED);
}

#[test]
fn the_first_rule_that_matches_decides_and_never_is_not_undone_by_an_earlier_one() {
    let rule = |effect| Rule { exe: patterns("/usr/lib/firefox/*"), ..Rule::new(effect) };
    let rules = vec![rule(Effect::Weight(AVOIDED)), rule(Effect::Weight(PREFERRED))];
    let judgement = Rules::new(rules).unwrap().judge(&SOMEBODY);
    assert_eq!((judgement.weight, judgement.by), (AVOIDED, JudgedBy::Rule(0)));
    let rules = vec![rule(Effect::Weight(PREFERRED)), rule(Effect::Never)];
    let judgement = Rules::new(rules).unwrap().judge(&SOMEBODY);
    assert_eq!((judgement.protection, judgement.by), (Some(Protection::Executable), JudgedBy::Rule(1)));
}

#[test]
fn a_rule_that_names_nobody_or_protects_by_what_anybody_can_choose_is_refused() {
    assert_eq!(prefer().validate(), Err(RuleError::NamesNobody));
    let never = || Rule::new(Effect::Never);
    let narrowed = Rule { exe: patterns("/usr/bin/java"), cmdline: patterns("*db*"), ..never() };
    assert_eq!(narrowed.validate(), Err(RuleError::ProtectsByCommandLine));
    for rule in [
        Rule { comm: patterns("sshd"), ..never() },
        Rule { cmdline: patterns("*sshd*"), ..never() },
        Rule { uid: vec![Uid(1000)], ..never() },
    ] {
        assert_eq!(Rules::new(vec![rule]).unwrap_err(), (0, RuleError::ProtectsByName));
    }
    assert_eq!(
        Rule { comm: patterns("sshd"), exe: patterns("/usr/sbin/sshd"), ..never() }.validate(),
        Ok(())
    );
}

#[test]
fn what_a_user_can_make_up_protects_nobody() {
    let by_exe = Rule { exe: patterns("/usr/sbin/sshd"), ..Rule::new(Effect::Never) };
    let forged = Exe { path: b"/usr/sbin/sshd", only_root_writes: false };
    assert_eq!(judge(by_exe, &Facts { exe: Some(forged), ..SOMEBODY }).protection, None);
    // A user's own manager names its units as it likes; so does what runs in a container.
    let by_unit = Rule { unit: patterns("sshd.service"), ..Rule::new(Effect::Never) };
    for path in [
        "/user.slice/user-1000.slice/user@1000.service/app.slice/sshd.service",
        "/machine.slice/machine-c.scope/payload/system.slice/sshd.service",
        "/lxc.payload.c1/system.slice/sshd.service",
        "/docker/0123abcd/system.slice/sshd.service",
    ] {
        let facts = Facts { cgroup: Some(path.as_bytes()), ..SOMEBODY };
        assert_eq!(judge(by_unit.clone(), &facts).protection, None, "{path}");
        let by_path = Rule { cgroup: patterns("*/sshd.service"), ..Rule::new(Effect::Never) };
        assert_eq!(judge(by_path, &facts).protection, None, "{path}");
    }
    let facts = Facts { cgroup: Some(b"/system.slice/sshd.service"), ..SOMEBODY };
    assert_eq!(judge(by_unit, &facts).protection, Some(Protection::Unit));
}

#[test]
fn a_protected_unit_protects_what_is_below_it() {
    let never = Rule { unit: patterns("db.service"), ..Rule::new(Effect::Never) };
    let facts = Facts { cgroup: Some(b"/system.slice/db.service/workers/3"), ..SOMEBODY };
    assert_eq!(judge(never, &facts).protection, Some(Protection::Unit));
    let never = Rule { cgroup: patterns("/system.slice/db.service"), ..Rule::new(Effect::Never) };
    assert_eq!(judge(never, &facts).protection, Some(Protection::Cgroup));
}

#[test]
fn marks_of_root_are_followed_and_those_of_users_within_bounds() {
    let marked = |wish, owner, uid| {
        let facts = Facts { mark: Some(Mark { wish, owner: Uid(owner) }), uid: Uid(uid), ..SOMEBODY };
        let judgement = Rules::default().judge(&facts);
        (judgement.weight, judgement.protection)
    };
    assert_eq!(marked(Wish::Omit, 0, 1000), (Weight::NEUTRAL, Some(Protection::Cgroup)));
    assert_eq!(marked(Wish::Avoid, 0, 1000), (AVOIDED, None));
    assert_eq!(marked(Wish::Avoid, 1000, 1000), (MARKED_BY_USER, None));
    assert_eq!(marked(Wish::Omit, 1000, 1000), (MARKED_BY_USER, None));
    assert_eq!(marked(Wish::Omit, 1001, 1000), (Weight::NEUTRAL, None));
}

#[test]
fn a_rule_goes_before_a_mark_and_a_mark_before_adj() {
    let facts =
        Facts { mark: Some(Mark { wish: Wish::Omit, owner: Uid(0) }), oom_score_adj: 900, ..SOMEBODY };
    assert_eq!(judge(Rule { uid: vec![Uid(1000)], ..prefer() }, &facts).weight, PREFERRED);
    assert_eq!(Rules::default().judge(&facts).by, JudgedBy::Mark);
}

#[test]
fn adj_is_a_factor_between_a_quarter_and_two() {
    let permille = |adj, uid| adj_weight(adj, Uid(uid)).permille();
    assert_eq!([0, 300, 1000].map(|adj| permille(adj, 1000)), [1000, 1300, 2000]);
    assert_eq!([-100, -500, -999].map(|adj| permille(adj, 1000)), [925, 625, 251]);
    assert_eq!(permille(-1000, 0), 250);
    assert_eq!([i16::MIN, i16::MAX].map(|adj| permille(adj, 0)), [250, 2000]);
}

#[test]
fn an_inherited_adj_of_minus_1000_protects_nobody() {
    let shell = Facts { oom_score_adj: -1000, ..SOMEBODY };
    let judgement = Rules::default().judge(&shell);
    assert_eq!((judgement.weight, judgement.protection), (Weight::NEUTRAL, None));
    // Root's, but inherited from what the service manager started.
    let roots = Facts { uid: Uid(0), ..shell };
    assert_eq!(Rules::default().judge(&roots).weight, weight(250));
    let service = Facts { child_of_init: true, ..roots };
    assert_eq!(Rules::default().judge(&service).protection, Some(Protection::OomScoreAdj));
}

#[test]
fn a_scope_comes_from_the_first_matching_rule_that_has_one() {
    let rule = |scope| Rule { uid: vec![Uid(1000)], scope, ..prefer() };
    let rules = Rules::new(vec![rule(None), rule(Some(Scope::Tree)), rule(Some(Scope::Cgroup))]).unwrap();
    assert_eq!(rules.judge(&SOMEBODY).scope, Scope::Tree);
}

#[test]
fn paths_are_taken_apart_as_the_service_manager_made_them() {
    let path = b"/a.slice/b.scope/c/d.service";
    let units = |of_root| cgroup::units(path, of_root).collect::<Vec<_>>();
    assert_eq!(units(false), [b"a.slice" as &[u8], b"b.scope", b"d.service"]);
    assert_eq!(units(true), [b"a.slice" as &[u8], b"b.scope"]);
    let ancestry = |of_root| cgroup::ancestry(path, of_root).collect::<Vec<_>>();
    assert_eq!(ancestry(true), [b"/a.slice" as &[u8], b"/a.slice/b.scope"]);
    assert_eq!(ancestry(false).len(), 4);
    assert!(cgroup::ancestry(b"/", true).all(|path| path == b"/"));
    assert_eq!(cgroup::units(b"", true).count(), 0);
}

#[test]
fn patterns_reach_across_slashes_and_need_the_whole() {
    let matches = |pattern: &str, text: &str| Pattern::new(pattern).unwrap().matches(text.as_bytes());
    assert!(matches("/opt/*/java", "/opt/a/b/java") && matches("a\\*b", "a*b") && matches("*", ""));
    assert!(!matches("java", "javac") && !matches("a\\*b", "axb") && !matches("?", ""));
    for bad in ["", "a\\", "a\\b", &"x".repeat(5000)] {
        assert!(Pattern::new(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn every_judgement_lies_in_the_range_that_selection_counts_with(adj in -1000_i16..=1000, uid in 0_u32..3) {
        let rules = Rules::new(vec![Rule { uid: vec![Uid(2)], ..prefer() }]).unwrap();
        let facts = Facts { uid: Uid(uid), oom_score_adj: adj, ..SOMEBODY };
        for mark in [None, Some(Mark { wish: Wish::Avoid, owner: Uid(0) }), Some(Mark { wish: Wish::Omit, owner: Uid(1) })] {
            let judged = rules.judge(&Facts { mark, ..facts }).weight;
            let range = rules.range().with(adj_weight(adj, Uid(uid)));
            prop_assert!(range.lightest <= judged && judged <= range.heaviest);
        }
    }

    #[test]
    fn any_path_is_taken_apart_without_a_panic(path: Vec<u8>, of_root: bool) {
        prop_assert!(cgroup::ancestry(&path, of_root).all(|part| path.starts_with(part)));
        prop_assert!(cgroup::units(&path, of_root).count() <= path.len() + 1);
    }
}
