use super::*;
use std::{os::unix::process::ExitStatusExt as _, process::Stdio, thread};

#[test]
fn a_bound_program_ends_with_the_thread_that_started_it() {
    let start = || {
        let mut command = Command::new("sleep");
        spawn_bound(command.arg("20").stdin(Stdio::null()), CapabilitySet::empty()).unwrap()
    };
    let mut child = thread::spawn(start).join().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let error = spawn_bound(&mut Command::new("/nonexistent"), CapabilitySet::empty()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

/// Ours are changed on the thread, and for the process, of a child of our own: the test's stay as they are.
#[test]
fn a_bound_program_has_neither_our_priority_nor_our_oom_score_nor_other_capabilities() {
    let kept = CapabilitySet::DAC_READ_SEARCH;
    let before = capabilities(None).unwrap();
    let start = move || {
        // Of this thread alone (setpriority(2), NOTES): it gives way.
        setpriority_process(None, 5).unwrap();
        let mut command = Command::new("sh");
        let script =
            "grep -E 'Cap(Inh|Prm|Eff|Amb)|NoNewPrivs' /proc/self/status; cat /proc/self/oom_score_adj; nice";
        command.args(["-c", script]).stdout(Stdio::piped());
        let lower = CapabilitySets { inheritable: CapabilitySet::empty(), ..before };
        set_capabilities(None, lower).unwrap();
        spawn_bound(&mut command, kept).unwrap().wait_with_output().unwrap()
    };
    // Not root, or a limit on nice: then the kernel may refuse to go back to 0.
    if !before.effective.contains(CapabilitySet::SYS_NICE) {
        return crate::process::testing::skip("no CAP_SYS_NICE");
    }
    let output = thread::spawn(start).join().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    let bits = format!("{:016x}", (before.permitted & kept).bits());
    let none = format!("{:016x}", 0);
    assert_eq!(
        words,
        [
            "CapInh:",
            &none,
            "CapPrm:",
            &bits,
            "CapEff:",
            &bits,
            "CapAmb:",
            &none,
            "NoNewPrivs:",
            "1",
            "0",
            "0"
        ],
        "{text}"
    );
}
