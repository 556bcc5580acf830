use super::*;
use plimsoll_report::oom::Kind;

fn lines(texts: &[&str]) -> Lines {
    let mut lines = Lines::default();
    append(&mut lines, texts);
    lines
}

fn append(lines: &mut Lines, texts: &[&str]) {
    for text in texts {
        lines.push(text.as_bytes());
    }
}

fn report(pid: u32) -> Vec<String> {
    vec![
        "dd invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0".to_owned(),
        "memory: usage 24576kB, limit 24576kB, failcnt 37".to_owned(),
        format!(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/w{pid},\
             task_memcg=/w{pid},task=hog,pid={pid},uid=1000"
        ),
        killed(pid),
    ]
}

fn killed(pid: u32) -> String {
    format!(
        "Memory cgroup out of memory: Killed process {pid} (hog) total-vm:79488kB, anon-rss:24064kB, \
         file-rss:2396kB, shmem-rss:0kB, UID:1000 pgtables:112kB oom_score_adj:0"
    )
}

fn limit(told: &Told) -> Option<&str> {
    let report = told.report.as_ref().filter(|report| report.kind == Kind::Memcg)?;
    report.memcg.as_ref()?.path.as_deref()
}

#[test]
fn a_report_that_was_read_while_an_earlier_kill_was_told_is_there_for_its_own() {
    let (first, second) = (report(7), report(8));
    let texts: Vec<&str> = first.iter().chain(&second).map(String::as_str).collect();
    let mut lines = lines(&texts);
    assert_eq!(limit(&lines.tell(Pid(7))), Some("/w7"));
    lines.told(&[Pid(7)]);
    assert_eq!(lines.find(Pid(7)), None, "it was told");
    let told = lines.tell(Pid(8));
    let comm = told.killed.as_ref().map(|killed| killed.comm.as_str());
    assert_eq!((limit(&told), comm), (Some("/w8"), Some("hog")));
    lines.told(&[Pid(8)]);
    assert_eq!(lines.lines.len(), second.len(), "what is older is forgotten");
    assert_eq!(lines.bytes, second.iter().map(String::len).sum::<usize>());
}

#[test]
fn the_others_of_a_cgroup_that_goes_whole_have_its_report_also_when_they_are_named_later() {
    let first = report(7);
    let mut lines = lines(&first.iter().map(String::as_str).collect::<Vec<_>>());
    lines.told(&[Pid(7)]);
    append(
        &mut lines,
        &["Tasks in /w7 are going to be killed due to memory.oom.group set", &killed(9), &killed(10)],
    );
    assert_eq!(limit(&lines.tell(Pid(9))), Some("/w7"));
    lines.told(&[Pid(9)]);
    assert_eq!(limit(&lines.tell(Pid(10))), Some("/w7"));
}

#[test]
fn a_kill_without_a_report_does_not_get_the_one_of_who_was_told_before() {
    let first = report(7);
    let mut lines = lines(&first.iter().map(String::as_str).collect::<Vec<_>>());
    lines.told(&[Pid(7)]);
    append(&mut lines, &[&killed(9)]);
    let told = lines.tell(Pid(9));
    assert!(told.report.is_none() && told.killed.is_some_and(|killed| killed.in_cgroup));
}

#[test]
fn who_is_not_named_takes_nothing_away() {
    let first = report(7);
    let mut lines = lines(&first.iter().map(String::as_str).collect::<Vec<_>>());
    lines.told(&[Pid(1), Pid(2)]);
    assert_eq!(limit(&lines.tell(Pid(7))), Some("/w7"));
}

#[test]
fn the_oldest_lines_give_way() {
    let mut lines = Lines::default();
    let long = "x".repeat(1000);
    for _ in 0..=WINDOW_BYTES_MAX / 1000 {
        lines.push(long.as_bytes());
    }
    assert_eq!((lines.lines.len(), lines.bytes), (WINDOW_BYTES_MAX / 1000, WINDOW_BYTES_MAX / 1000 * 1000));
}
