use super::{Ratio, Setting, Tunable, Tunables};
use crate::{units::Pages, workingset::Budget};
use proptest::{prop_assert, prop_assert_eq, proptest};
use std::string::{String, ToString};

fn tunables(settings: &[&str]) -> Tunables {
    let mut tunables = Tunables::default();
    settings.iter().for_each(|text| tunables.apply(text.parse().unwrap()));
    tunables
}

#[test]
fn the_defaults_are_le9uos() {
    let values = Tunable::ALL.map(|one| Tunables::default().get(one));
    assert_eq!(values, [0, 15, 15, 0]);
}

#[test]
fn a_setting_is_read_as_it_is_written() {
    for (tunable, most) in Tunable::ALL.into_iter().zip([1, 100, 100, 100]) {
        for value in 0..=most {
            let setting = Setting::new(tunable, value).unwrap();
            assert_eq!(setting.to_string().parse(), Ok(setting));
            let mut tunables = Tunables::default();
            tunables.apply(setting);
            assert_eq!(tunables.get(tunable), value);
        }
        assert_eq!(Setting::new(tunable, most + 1), None);
    }
    assert_eq!(" vm.clean_low_ratio = 7 ".parse(), Ok(Setting::new(Tunable::CleanLowRatio, 7).unwrap()));
}

#[test]
fn what_is_wrong_with_a_setting_is_said_in_one_line() {
    for (given, error) in [
        ("clean_min_ratio", "'clean_min_ratio': give NAME=VALUE, for example clean_min_ratio=15"),
        (
            "clean_max_ratio=3",
            "unknown tunable 'clean_max_ratio'; there are workingset_protection, anon_min_ratio, clean_min_ratio and \
             clean_low_ratio",
        ),
        ("clean_min_ratio=101", "clean_min_ratio: '101' is out of range; give a whole number from 0 to 100"),
        ("clean_min_ratio=+1", "clean_min_ratio: '+1' is out of range; give a whole number from 0 to 100"),
        ("anon_min_ratio=", "anon_min_ratio: '' is out of range; give a whole number from 0 to 100"),
        (
            "workingset_protection=2",
            "workingset_protection: '2' is out of range; give a whole number from 0 to 1",
        ),
        ("clean_low_ratio=1\n", "clean_low_ratio"),
    ] {
        match given.parse::<Setting>() {
            Ok(setting) => assert_eq!(setting.tunable().name(), error, "a line end is no part of the number"),
            Err(found) => assert_eq!(found.to_string(), error),
        }
    }
}

#[test]
fn the_switch_is_a_number_in_json_and_may_be_a_boolean() {
    let on = Tunables { workingset_protection: true, ..Tunables::default() };
    let json = r#"{"workingset_protection":1,"anon_min_ratio":15,"clean_min_ratio":15,"clean_low_ratio":0}"#;
    assert_eq!(serde_json::to_string(&on).unwrap(), json);
    for text in [json, r#"{"workingset_protection":true}"#, r#"{"workingset_protection":1}"#] {
        assert_eq!(serde_json::from_str::<Tunables>(text).unwrap(), on);
    }
    for (text, error) in [
        (r#"{"workingset_protection":2}"#, "workingset_protection = 2; give 0 or 1"),
        (r#"{"workingset_protection":-1}"#, "workingset_protection = -1; give 0 or 1"),
        (r#"{"workingset_protection":"on"}"#, "expected 0 or 1"),
        (r#"{"clean_min_ratio":101}"#, "101 per cent of memory; give 0 to 100"),
        (r#"{"clean_min":1}"#, "unknown field"),
    ] {
        let found = serde_json::from_str::<Tunables>(text).unwrap_err().to_string();
        assert!(found.contains(error), "{text}: {found}");
    }
}

#[test]
fn what_was_used_last_is_for_the_kernel_to_keep_where_nothing_else_does() {
    let on = "workingset_protection=1";
    assert!(tunables(&[on, "clean_min_ratio=0"]).keeps_last_used());
    for others in [
        &[on][..],
        &[on, "clean_min_ratio=0", "clean_low_ratio=1"],
        &[on, "clean_min_ratio=0", "anon_min_ratio=0"],
        &["clean_min_ratio=0"],
    ] {
        assert!(!tunables(others).keeps_last_used(), "{others:?}");
    }
}

#[test]
fn nothing_is_locked_while_protection_is_off() {
    assert_eq!(Tunables::default().budget(Pages(1 << 20)), Budget::default());
    let on = tunables(&["workingset_protection=1", "clean_low_ratio=10"]);
    // Of 150 an eighth is the floor's alone.
    assert_eq!(on.budget(Pages(1000)), Budget { hard: Pages(132), soft: Pages(100) });
    let all = tunables(&["workingset_protection=1", "clean_low_ratio=100", "clean_min_ratio=60"]);
    assert_eq!(all.budget(Pages(1000)), Budget { hard: Pages(525), soft: Pages(400) });
}

proptest! {
    #[test]
    fn a_share_is_never_more_than_the_whole(per_cent in 0_u8..=100, whole: u64) {
        let share = Ratio::new(per_cent).unwrap().of(Pages(whole)).0;
        prop_assert!(share <= whole);
        prop_assert!(u128::from(share) * 100 <= u128::from(whole) * u128::from(per_cent));
    }

    #[test]
    fn no_text_breaks_the_parser(text: String) {
        if let Ok(setting) = text.parse::<Setting>() {
            prop_assert_eq!(setting.to_string().parse(), Ok(setting));
        }
    }
}
