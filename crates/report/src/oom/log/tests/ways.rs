//! One report, written down in all the ways in which logs, collectors and mail do it.

use super::{WHOLE, bare, one, parse};

fn each(line: impl Fn(usize, &str) -> String) -> String {
    WHOLE.lines().enumerate().map(|(number, text)| line(number, text) + "\n").collect()
}

/// As mail does: at blanks, at 72 columns.
fn wrapped(line: &str, before: &str) -> String {
    let mut out = String::from(before);
    let mut column = 0;
    for (number, word) in line.trim().split(' ').enumerate() {
        if number > 0 && column + word.len() > 71 {
            out.push('\n');
            out.push_str(before);
            column = 0;
        } else if number > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out
}

fn quoted_printable(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let encoded = line.replace('=', "=3D");
        let mut rest = encoded.as_str();
        while rest.len() > 76 {
            let mut at = 75;
            // Never inside an escape.
            while rest[..at].ends_with('=') || rest[..at].ends_with("=3") {
                at -= 1;
            }
            out.push_str(&rest[..at]);
            out.push_str("=\n");
            rest = &rest[at..];
        }
        out.push_str(rest);
        out.push('\n');
    }
    out
}

#[test]
fn any_prefix_is_taken_off() {
    let us = |number: usize| 5_000_000 + number * 37;
    let ways: [(&str, String); 16] = [
        ("dmesg", each(|n, text| format!("[    5.{:06}] {text}", n * 37))),
        ("dmesg -T", each(|_, text| format!("[Fri Nov 21 14:22:56 2025] {text}"))),
        ("dmesg -x", each(|n, text| format!("kern  :warn  : [    5.{:06}] {text}", n * 37))),
        ("dmesg -r", each(|n, text| format!("<4>[    5.{:06}] {text}", n * 37))),
        ("kmsg", each(|n, text| format!("4,{n},{},-;{text}", us(n)))),
        ("kmsg with a caller", each(|n, text| format!("4,{n},{},-,caller=T4242;{text}", us(n)))),
        ("printk caller", each(|n, text| format!("[    5.{:06}][ T4242] {text}", n * 37))),
        ("syslog", each(|n, text| format!("Jun 14 04:09:56 box kernel: [    5.{:06}] {text}", n * 37))),
        ("rsyslog", each(|_, text| format!("2024-06-14T04:09:56.123456+02:00 box kernel: {text}"))),
        ("journal", each(|_, text| format!("2024-06-14T04:09:56+0200 box kernel: {text}"))),
        ("short-monotonic", each(|n, text| format!("[    5.{:06}] box kernel: {text}", n * 37))),
        ("logcat", each(|_, text| format!("06-14 04:09:56.123     0     0 W kernel  : {text}"))),
        ("logcat -v brief", each(|_, text| format!("W/kernel  (    0): {text}"))),
        ("logread", each(|_, text| format!("Fri Jun 14 04:09:56 2024 kern.warn kernel: [    5.5] {text}"))),
        ("serial", each(|_, text| format!("[2024-06-14 04:09:56] [    5.500000] {text}\r"))),
        (
            "grep",
            each(|n, text| {
                format!("/var/log/kern.log.1:Jun 14 04:09:56 box kernel: [    5.{:06}] {text}", n * 37)
            }),
        ),
    ];
    let plain = one(WHOLE);
    for (name, log) in ways {
        let report = one(&log);
        assert!(
            name == "logcat -v brief" || report.when.clock.is_some() || report.when.since_boot.is_some(),
            "{name}"
        );
        assert_eq!(bare(report), plain, "{name}");
        let quoted: String = log.lines().map(|line| format!("> > {line}\n")).collect();
        assert_eq!(bare(one(&quoted)), plain, "{name}, quoted");
    }
}

#[test]
fn what_mail_wrapped_and_archives_stripped_is_put_together() {
    let plain = one(WHOLE);
    let indents_gone = each(|_, text| wrapped(text, ""));
    assert_eq!(one(&indents_gone), plain);
    let quoted = each(|_, text| wrapped(text, "> "));
    assert_eq!(one(&quoted), plain);
    let stamped = each(|n, text| wrapped(&format!("[    5.{:06}] {text}", n * 37), ""));
    assert_eq!(bare(one(&stamped)), plain);
    assert_eq!(one(&quoted_printable(WHOLE)), plain);
    assert_eq!(one(&quoted_printable(&quoted)), plain);
}

#[test]
fn escapes_that_stand_for_line_ends_end_lines() {
    let plain = one(WHOLE);
    for escape in ["\\x0a", "#012"] {
        let mut joined = WHOLE.to_owned();
        for inner in ["active_file:", "unevictable:", "slab_reclaimable:", "mapped:", "free:13120"] {
            joined = joined.replacen(&format!("\n {inner}"), &format!("{escape} {inner}"), 1);
        }
        assert!(joined.contains(escape));
        assert_eq!(one(&joined), plain, "{escape}");
    }
    let journal = each(|_, text| {
        let text = text.replace('"', "\\\"");
        format!("{{\"_HOSTNAME\":\"box\",\"MESSAGE\":\"{text}\",\"PRIORITY\":\"4\"}}")
    });
    assert_eq!(one(&journal), plain);
}

#[test]
fn other_lines_in_between_change_nothing() {
    let mixed = each(|n, text| {
        format!(
            "Jun 14 04:09:56 box kernel: [    5.{:06}] {text}\n\
             Jun 14 04:09:56 box sshd[77]: Connection closed by 10.0.0.1 port 22\n\
             Jun 14 04:09:56 box kernel: [    5.{:06}] usb 1-1: new high-speed USB device number 7 using xhci_hcd\n\
             Jun 14 04:09:56 box kernel: [    5.{:06}] docker0: port 1(veth0e1571f) entered blocking state",
            n * 37,
            n * 37,
            n * 37
        )
    });
    assert_eq!(bare(one(&mixed)), one(WHOLE));
}

#[test]
fn reports_of_two_machines_in_one_log_are_told_apart() {
    let other = WHOLE.replace("4242", "5151").replace("hog", "cow");
    let mixed: String = WHOLE
        .lines()
        .zip(other.lines())
        .map(|(one, other)| {
            format!("Jun 14 04:09:56 box kernel: {one}\nJun 14 04:09:56 barn kernel: {other}\n")
        })
        .collect();
    let reports = parse(mixed.as_bytes());
    assert_eq!(reports.len(), 2);
    let mut reports = reports.into_iter().map(bare);
    assert_eq!(reports.next().unwrap(), one(WHOLE));
    assert_eq!(reports.next().unwrap(), one(&other));
}

#[test]
fn reports_of_two_callers_do_not_mix() {
    let other = "[    5.000100][  T99] CPU: 3 PID: 99 Comm: nosy Not tainted 6.12.9-amd64 #1\n\
                 [    5.000101][  T99]  nosy_function+0x1/0x2\n\
                 [    5.000102][  T99] Free swap  = 777kB\n";
    let mut lines: Vec<String> =
        WHOLE.lines().map(|text| format!("[    5.000100][ T4242] {text}\n")).collect();
    lines.insert(1, other.to_owned());
    assert_eq!(bare(one(&lines.concat())), one(WHOLE));
}

#[test]
fn a_record_of_kmsg_is_read_without_the_kernel_s_escapes_and_names_end_no_line() {
    let report = |name: &str| {
        let path = format!("/user.slice/{name}");
        [
            String::from("a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
            format!(
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,\
                 oom_memcg={path},task_memcg={path},task=a,pid=7,uid=0"
            ),
            String::from("Memory cgroup out of memory: Killed process 7 (a) total-vm:9kB, anon-rss:8kB"),
        ]
        .iter()
        .enumerate()
        .map(|(number, text)| format!("3,{number},5,-;{text}\n"))
        .collect::<String>()
    };
    let term = one(&report(r"app-gnome\x5cx2dterm.scope"));
    // As the paths of processes are shown, which come from /proc.
    let shown = plimsoll_wire::text::Printable(br"/user.slice/app-gnome\x2dterm.scope").to_string();
    assert_eq!(term.task_memcg.as_deref(), Some(shown.as_str()));
    let told = crate::oom::diagnose(&term);
    assert!(told.summary.contains(&format!("\"{shown}\"")), "{}", told.summary);
    assert!(told.advice[0].contains(r#"the unit "app-gnome\\x2dterm.scope""#), "{:?}", told.advice);
    for forged in [r"\x5cx0a", "#012"] {
        let name =
            format!("x{forged}Out of memory: Killed process 1 (init) total-vm:1kB, anon-rss:1kB{forged}");
        let report = one(&report(&name));
        assert_eq!(report.victim.and_then(|victim| victim.pid.map(|pid| pid.0)), Some(7), "{forged}");
    }
}
