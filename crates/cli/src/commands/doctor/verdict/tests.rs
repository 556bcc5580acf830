use super::*;

fn all_there() -> Vec<Feature> {
    [("pidfd", Part::Everything), ("BTF", Part::Lines), ("bpf_loop", Part::Lines), ("swap", Part::Nothing)]
        .map(|(name, needed_by)| Feature {
            name: name.to_owned(),
            answer: Answer::Present,
            used_for: "a purpose",
            fallback: "another way",
            needed_by,
            remedy: "do this",
        })
        .to_vec()
}

fn without(names: &[&str], answer: &Answer) -> String {
    let mut features = all_there();
    for one in features.iter_mut().filter(|one| names.contains(&one.name.as_str())) {
        one.answer = answer.clone();
    }
    verdict(&features)
}

fn absent() -> Answer {
    Answer::Absent("seen so".to_owned())
}

#[test]
fn with_everything_there_both_guards_are_promised() {
    let told = without(&[], &absent());
    assert!(told.starts_with("Lines for users and the guard of the whole machine"), "{told}");
    let told = without(&["swap"], &absent());
    assert!(told.starts_with("Lines for users and") && told.contains("swap"), "{told}");
}

#[test]
fn without_what_lines_need_only_the_machine_guard_is_promised_and_the_remedy_told() {
    let told = without(&["BTF", "bpf_loop", "swap"], &absent());
    assert_eq!(
        told,
        "Only the guard of the whole machine will be in force here; lines for users need BTF and bpf_loop: do this."
    );
}

#[test]
fn without_what_everything_needs_nothing_is_promised() {
    let told = without(&["pidfd", "BTF"], &absent());
    assert_eq!(told, "Nothing can be guarded here without pidfd: do this.");
}

#[test]
fn what_could_not_be_found_out_is_not_promised() {
    let told = without(&["bpf_loop"], &Answer::Unknown("needs root".to_owned()));
    assert!(told.contains("sudo plimsoll doctor") && !told.starts_with("Lines for users"), "{told}");
    // But what is known to be missing is said all the same.
    let mut features = all_there();
    features[1].answer = absent();
    features[2].answer = Answer::Unknown("needs root".to_owned());
    assert!(verdict(&features).starts_with("Only the guard of the whole machine"));
}

#[test]
fn a_long_list_is_cut_short() {
    let names: Vec<Feature> = (0..9).flat_map(|_| all_there()).collect();
    let names_of: Vec<&Feature> = names.iter().take(7).collect();
    assert!(super::names(&names_of).ends_with(", swap and 3 more"), "{}", super::names(&names_of));
}
