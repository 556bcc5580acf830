use super::{json::explained, lines, tell};
use plimsoll_report::oom::diagnose;
use plimsoll_report::oom::log::{LINE_BYTES_MAX, Parser};
use std::io::BufReader;

const BINDER: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fuzz/corpus/oom/arm64-5.10-binder-order3-wrapped"
));
const WHOLE: &[u8] =
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/oom/made-up-whole-report"));

#[test]
fn json_has_the_fields_that_scripts_rely_on() {
    let reports = plimsoll_report::oom::log::parse(&[BINDER, WHOLE].concat());
    let told = reports.iter().map(|report| {
        let diagnosis = diagnose(report);
        serde_json::to_value(explained(report, &diagnosis)).unwrap()
    });
    let sample: Vec<serde_json::Value> = serde_json::from_str(include_str!("sample.json")).unwrap();
    assert_eq!(told.collect::<Vec<_>>(), sample);
}

#[test]
fn a_report_is_told_with_its_cause_first_and_what_to_do_last() {
    let reports = plimsoll_report::oom::log::parse(BINDER);
    let mut out = Vec::new();
    tell(&mut out, (1, 1), &reports[0], &diagnose(&reports[0])).unwrap();
    let text = String::from_utf8(out).unwrap();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("OOM report, Linux 5.10.168-android12"), "{text}");
    assert_eq!(lines.next(), Some("Cause: fragmented (global)."));
    assert!(text.contains("\nWhat to do: ") && text.lines().last().unwrap().starts_with("Or: "), "{text}");
}

#[test]
fn of_a_line_without_an_end_no_more_is_kept_than_the_parser_looks_at() {
    let mut log = vec![b'x'; 10 * LINE_BYTES_MAX];
    log.extend_from_slice(b"\nOut of memory: Killed process 7 (a) total-vm:1kB, anon-rss:1kB");
    let mut parser = Parser::default();
    lines(&mut BufReader::with_capacity(1000, log.as_slice()), &mut parser).unwrap();
    assert_eq!(parser.finish().reports.len(), 1);
}

#[test]
fn the_example_in_the_documentation_is_what_is_printed() {
    let docs = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explain.md"));
    let reports = plimsoll_report::oom::log::parse(BINDER);
    let mut out = Vec::new();
    tell(&mut out, (1, 1), &reports[0], &diagnose(&reports[0])).unwrap();
    let out = String::from_utf8(out).unwrap();
    let example = docs
        .split("```")
        .find_map(|block| block.strip_prefix("text\n").filter(|text| text.starts_with("OOM report")))
        .unwrap();
    for line in example.lines() {
        // What is left out at a line's end is marked.
        let (part, cut) = line.strip_suffix("...").map_or((line, false), |part| (part, true));
        assert!(
            out.lines().any(|told| if cut { told.starts_with(part) } else { told == part }),
            "{line}\n{out}"
        );
    }
}
