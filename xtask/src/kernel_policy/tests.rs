use super::*;

const CONF: &str = "\
# SERIES SUITES PACKAGE VERSION TESTS
6.1  a,b  linux-image-6.1.0-56-amd64  6.1.192-2  kill_*,lab_!(one|two),lab_two@small
7    sid  linux-image-7.2.13-amd64    7.2.13-1   all
";
const RUN: &str = "readonly seconds_max=1\nreadonly everything='kill_* lab_* sys'\n";

fn tests() -> Vec<String> {
    ["access", "kill_choice", "lab_one", "lab_three", "lab_two"].map(str::to_owned).to_vec()
}

#[test]
fn tests_that_run_on_the_same_kernels_share_a_row() {
    let told = table(&kernels(CONF).unwrap(), &everything(RUN).unwrap(), &tests());
    let wanted = "\
| Tests | 6.1 | 7.2 |
| --- | --- | --- |
| `kill_choice`, `lab_three` | test | test |
| `lab_two` | small | test |
| `lab_one`, `sys` | all | test |
| `access` | - | - |
";
    assert_eq!(told, wanted);
}

#[test]
fn only_what_is_between_the_marks_is_made() {
    let stale = format!("# Title\n\n{BEGIN}\nold\n{END}\nby hand\n");
    let made = page(&stale, CONF, RUN, &tests()).unwrap();
    assert!(made.starts_with(&format!("# Title\n\n{BEGIN}\n| Tests |")), "{made}");
    assert!(made.ends_with(&format!("| - | - |\n{END}\nby hand\n")), "{made}");
    assert_eq!(page(&made, CONF, RUN, &tests()).unwrap(), made);
    assert!(page("# Title\n", CONF, RUN, &tests()).unwrap_err().starts_with("no line"));
}

#[test]
fn patterns_mean_what_bash_takes_them_for() {
    for (pattern, name, told) in [
        ("lab_!(workingset|memory)", "lab_memory", false),
        ("lab_!(workingset|memory)", "lab_memory_2", true),
        ("lab_!(workingset|memory)", "lab_", true),
        ("lab_!(work*)", "lab_workingset", false),
        ("accounting_*", "accounting_users", true),
        ("accounting_*", "accounting", false),
        ("*", "", true),
        ("sys", "system", false),
        ("sy?", "sys", true),
    ] {
        let bash = std::process::Command::new("bash")
            .args(["-c", "shopt -s extglob; [[ $2 = $1 ]]", "bash", pattern, name])
            .status()
            .unwrap();
        assert_eq!(bash.success(), told, "bash: {pattern} {name}");
        assert_eq!(matches(pattern, name), told, "{pattern} {name}");
    }
}

#[test]
fn a_kernel_without_counts_is_named() {
    assert_eq!(uncounted(CONF, "# about\nprogram  6.1  6.12\n").unwrap(), ["7.2"]);
    assert!(uncounted(CONF, "program 6.1 7.2\n").unwrap().is_empty());
    assert!(uncounted("6.1 only\n", "").unwrap_err().ends_with("6.1 only"));
}
