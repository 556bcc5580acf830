use super::{Log, Parser, REPORTS_MAX, parse};
use crate::oom::{Cause, Kind, Report, When, diagnose};
use plimsoll_policy::units::{Bytes, Nanos, Pid};

mod causes;
mod ways;

const WHOLE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/oom/made-up-whole-report"));

fn one(log: &str) -> Report {
    let mut reports = parse(log.as_bytes());
    assert_eq!(reports.len(), 1, "{log}");
    reports.remove(0)
}

/// The report without what only prefixes say.
fn bare(report: Report) -> Report {
    Report { when: When::default(), ..report }
}

#[test]
fn a_whole_report_is_read_whole() {
    let report = one(WHOLE);
    assert!(!report.truncated && report.reaped, "{report:?}");
    assert_eq!((report.kind, report.order), (Kind::Global, Some(0)));
    assert_eq!(report.tasks.len(), 3);
    assert_eq!(report.tasks[2].comm, "(sd pam) x");
    assert_eq!(report.tasks[1].swap, Some(Bytes(240_000 * 4096)));
    assert_eq!(report.tasks[1].pgtables, Some(Bytes(5_840_896)));
    let victim = report.victim.as_ref().unwrap();
    assert_eq!((victim.pid, victim.pgtables), (Some(Pid(4242)), Some(Bytes(5704 << 10))));
    assert_eq!(report.task_memcg.as_deref(), Some("/user.slice/user-1000.slice/session-2.scope"));
    let diagnosis = diagnose(&report);
    assert_eq!(diagnosis.cause, Cause::Exhausted);
    assert!(diagnosis.summary.contains("Swap was full"), "{}", diagnosis.summary);
    assert!(diagnosis.advice[0].contains("plimsoll limit set 1000"), "{:?}", diagnosis.advice);
}

#[test]
fn several_reports_in_a_file_stay_apart() {
    let reports = parse(WHOLE.repeat(7).as_bytes());
    assert_eq!(reports.len(), 7);
    assert!(reports.iter().all(|report| *report == one(WHOLE)));
}

#[test]
fn of_too_many_reports_the_last_are_kept_and_the_others_counted() {
    let mut parser = Parser::default();
    for number in 0..REPORTS_MAX + 5 {
        parser.line(
            format!("[{number}.5] Out of memory: Killed process {number} (a) total-vm:1kB, anon-rss:1kB")
                .as_bytes(),
        );
    }
    let Log { reports, left_out } = parser.finish();
    assert_eq!((reports.len(), left_out), (REPORTS_MAX, 5));
    assert_eq!(reports[0].victim.as_ref().unwrap().pid, Some(Pid(5)));
}

#[test]
fn every_beginning_and_every_end_of_a_report_is_read_as_far_as_it_goes() {
    for end in 0..WHOLE.len() {
        for report in parse(&WHOLE.as_bytes()[..end]) {
            // What is complete needs every part; the reaper's line is no part of it.
            assert!(report.truncated || end > WHOLE.find("UID:1000 pg").unwrap() - 60, "{end}");
            assert!(!diagnose(&report).story.is_empty());
        }
    }
    let mut without_head = 0;
    for start in 0..WHOLE.len() {
        for report in parse(&WHOLE.as_bytes()[start..]) {
            without_head += usize::from(report.order.is_none());
            assert!(!diagnose(&report).story.is_empty());
        }
    }
    assert!(without_head > 1000, "{without_head}");
}

#[test]
fn a_name_cannot_pretend_to_be_a_field() {
    let line = "Out of memory: Killed process 7 (a) total-vm) score 9 (x) total-vm:8kB, anon-rss:4kB, file-rss:0kB, UID:5 ";
    let victim = one(line).victim.unwrap();
    assert_eq!(victim.pid, Some(Pid(7)));
    let line =
        "oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/,task=evil,pid=1,uid=0,pid=77,uid=1000";
    assert_eq!(one(line).victim.unwrap().pid, Some(Pid(77)));
    let odd = one(&WHOLE.replace("(hog)", "(\u{1b}[2J\u{202e}hog)"));
    let shown = odd.victim.unwrap().comm.unwrap();
    assert!(!shown.chars().any(char::is_control) && !shown.contains('\u{202e}'), "{shown:?}");
}

#[test]
fn another_dump_of_memory_is_no_report() {
    let failure = WHOLE.replace(
        "hog invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP), order=0, oom_score_adj=0",
        "hog: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), nodemask=(null)",
    );
    let end = failure.find("Tasks state").unwrap();
    assert_eq!(parse(&failure.as_bytes()[..end]), []);
    // And it leaves a report before it as it is.
    let both = format!("{WHOLE}{}", &failure[..end]);
    assert_eq!(one(&both), one(WHOLE));
    let user_space =
        "Jun 14 04:09:56 box earlyoom[12]: Out of memory: Killed process 1 (x) total-vm:1kB, anon-rss:1kB";
    assert_eq!(parse(user_space.as_bytes()), []);
}

#[test]
fn the_first_stamp_of_the_report_tells_when() {
    let log = "Jun 14 04:09:50 box kernel: [    0.010000] CPU: 0 PID: 0 Comm: swapper Not tainted 6.1.0 #1\n\
               Jun 14 04:09:56 box kernel: [ 1234.500000] hog invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0\n";
    let report = one(log);
    assert_eq!(report.when.clock.as_deref(), Some("Jun 14 04:09:56"));
    assert_eq!(report.when.since_boot, Some(Nanos(1_234_500_000_000)));
    assert_eq!(report.when.host.as_deref(), Some("box"));
    assert_eq!(report.invoker.pid, None);
}

#[test]
fn lines_however_long_and_files_without_an_end_are_read_in_bounds() {
    let mut log = vec![b'a'; 1 << 20];
    log.extend_from_slice(b" invoked oom-killer: order=3");
    assert_eq!(parse(&log), []);
    let endless = "Node 0\n".repeat(100_000);
    assert_eq!(parse(endless.as_bytes()), []);
    let wrapped = format!("hog invoked oom-killer: order=1,\n{}", "x=1,\n".repeat(100_000));
    assert_eq!(one(&wrapped).order, Some(1));
}

#[test]
fn a_table_without_its_head_is_read_by_how_many_numbers_it_has() {
    let task = |row: &str| {
        let report = one(&format!(
            "a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n{row}\n"
        ));
        report.tasks.into_iter().next()
    };
    for (row, tables, swap) in [
        // 4.15 to 6.8, 4.1 to 4.10, 4.11 to 4.14, 6.9 and later.
        ("[   5802]  1000  5802   542739   1000    40960      2          -900 fool x", 40960, 2),
        ("[ 5802]  1000  5802   542739   1000     774       6        3          -900 fool x", 780 << 12, 3),
        ("[ 5802]  1000  5802   542739   1000     774       6    1   4          -900 fool x", 781 << 12, 4),
        ("[   5802]  1000  5802   542739   1000  900  90  10  40960      5          -900 fool x", 40960, 5),
    ] {
        let task = task(row).unwrap();
        assert_eq!(
            (task.comm.as_str(), task.pid, task.oom_score_adj),
            ("fool x", Pid(5802), Some(-900)),
            "{row}"
        );
        assert_eq!(task.rss, Some(Bytes(1000 << 12)), "{row}");
        assert_eq!((task.pgtables, task.swap), (Some(Bytes(tables)), Some(Bytes(swap << 12))), "{row}");
    }
    // A name that is a number is left to be the name.
    assert_eq!(task("[   5802]  1000  5802   542739   1000    40960      0          0 7").unwrap().comm, "7");
    assert_eq!(task("[   5802]  1000  5802   542739 fool"), None);
}
