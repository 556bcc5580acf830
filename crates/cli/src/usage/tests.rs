use super::{Usage, judge};
use crate::arguments::CommandLine;
use clap::Parser;

fn judged(arguments: &[&str]) -> Usage {
    judge(&CommandLine::try_parse_from([&["plimsoll"], arguments].concat()).unwrap_err())
}

#[test]
fn help_and_version_are_answers() {
    for asked in [&["--help"][..], &["--version"], &["limit", "set", "--help"], &[], &["limit"]] {
        assert_eq!(judged(asked), Usage::Asked, "{asked:?}");
    }
}

#[test]
fn what_is_wrong_fits_one_line_and_names_the_input() {
    for (arguments, named) in [
        (&["explode"][..], "'explode'"),
        (&["statsu"], "'status'"),
        (&["status", "--jsn"], "'--json'"),
        (&["limit", "set"], "<WHO> <HARD>"),
        (&["limit", "set", "alice", "1G", "--action", "explode"], "'explode'"),
        (&["limit", "set", "alice", "1G", "--action", "explode"], "kill"),
        (&["history", "--limit", "0"], "'0'"),
        (&["bench", "everything"], "'everything'"),
        (&["daemon", "--stop-guarding", "--dry-run"], "'--dry-run'"),
    ] {
        let Usage::Wrong(line) = judged(arguments) else { panic!("{arguments:?}") };
        assert!(line.contains(named) && !line.contains('\n') && !line.starts_with("error"), "{line}");
    }
}
