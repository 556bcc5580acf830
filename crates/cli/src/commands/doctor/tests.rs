use super::*;
use features::Part;

fn feature(name: &str, answer: Answer) -> Feature {
    Feature {
        name: name.to_owned(),
        answer,
        used_for: "a purpose",
        fallback: "another way",
        needed_by: Part::Nothing,
        remedy: "",
    }
}

fn report(features: &[Feature]) -> Report {
    Report {
        kernel: Some("6.12.1".to_owned()),
        features: features.iter().map(Row::from).collect(),
        default: None,
        counters: Some(Counters::of(256)),
        verdict: "All is well.".to_owned(),
    }
}

#[test]
fn what_is_there_has_no_replacement_and_what_is_not_known_is_null() {
    let report = report(&[
        feature("one", Answer::Present),
        feature("two", Answer::Absent("not built".to_owned())),
        feature("three", Answer::Unknown("needs root".to_owned())),
    ]);
    let json = serde_json::to_value(&report).unwrap();
    let of = |index: usize| {
        (json["features"][index]["present"].clone(), json["features"][index]["fallback"].clone())
    };
    assert_eq!(of(0), (true.into(), serde_json::Value::Null));
    assert_eq!(of(1), (false.into(), "another way".into()));
    assert_eq!(of(2), (serde_json::Value::Null, serde_json::Value::Null));
    assert_eq!(json["features"][1]["detail"], "not built");
}

#[test]
fn features_that_lack_for_the_same_reason_are_told_together() {
    let report = report(&[
        feature("one", Answer::Present),
        feature("two", Answer::Unknown("needs root".to_owned())),
        feature("three", Answer::Unknown("needs root".to_owned())),
        feature("four", Answer::Absent("bad \u{1b}[2J name".to_owned())),
    ]);
    let mut text = Vec::new();
    show(&mut text, &report, &mut Names::default()).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("Kernel 6.12.1.\n"), "{text}");
    assert!(text.contains("  two, three: needs root.\n"), "{text}");
    assert!(text.contains("  four: ") && text.contains("    In its place: another way.\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    assert!(text.ends_with("\nAll is well.\n"), "{text}");
}

#[test]
fn how_well_usage_is_known_is_told_for_the_cpus_that_there_may_be() {
    let mut text = Vec::new();
    show(&mut text, &report(&[]), &mut Names::default()).unwrap();
    let text = String::from_utf8(text).unwrap();
    let page = page_size().to_bytes(plimsoll_policy::units::Pages(1)).0;
    assert_eq!(Counters::of(256).bound_bytes, 409_600 * page);
    assert!(text.contains("CPUs: 256. Usage is exact within "), "{text}");
}
