//! What the history costs: memory over many incidents, and wake-ups over none. In a process of its own, because other
//! tests beside it would be measured too.

#[cfg(test)]
mod tests {
    use plimsoll_daemon::history::{Caps, History, Outcome, PAGE_MAX, QUEUE_MAX};
    use plimsoll_policy::incident::Incident;
    use std::{
        fs,
        sync::{Mutex, PoisonError},
        thread,
        time::Duration,
    };

    /// Each test measures the whole process.
    static ALONE: Mutex<()> = Mutex::new(());

    const SOON: Duration = Duration::from_secs(60);
    const CAPS: Caps =
        Caps { max_bytes: 64 << 20, max_age: Duration::from_secs(1 << 33), max_incidents: 100_000 };

    fn incident(id: u64) -> Incident {
        let victim = |pid: u64| {
            serde_json::json!({
                "pid": pid, "start_ns": 1, "uid": 60001, "comm": "hog", "usage_bytes": 300_000_000,
                "cmdline": format!("/usr/bin/hog {}", "x".repeat(200)), "cgroup": "/user.slice/user-60001.slice",
            })
        };
        serde_json::from_value(serde_json::json!({
            "id": id, "time": "2026-11-21T10:00:00Z", "account": "user:60001", "guard": "limits",
            "trigger": "in-kernel", "action": "kill", "victims": [victim(id)],
            "peers": [victim(2), victim(3), victim(4), victim(5)],
            "usage_bytes": 300_000_000, "hard_bytes": 268_435_456, "overshoot_bytes": 4096,
            "requested_bytes": null, "cross_to_signal_ns": 9000, "signal_to_freed_ns": null, "freed_bytes": null,
            "reason": "over-hard-limit-largest",
        }))
        .unwrap()
    }

    fn record(history: &History, ids: std::ops::RangeInclusive<u64>) {
        for id in ids {
            history.writer.record(incident(id));
            history.writer.outcome(Outcome {
                id,
                signal_to_freed_ns: Some(id),
                freed_bytes: Some(4096),
                course: None,
            });
            if id % (QUEUE_MAX as u64 / 4) == 0 {
                history.writer.flush(SOON).unwrap();
            }
        }
        history.writer.flush(SOON).unwrap();
    }

    fn field(status: &str, name: &str) -> u64 {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Anonymous memory of this process: what files are mapped does not count.
    fn anonymous_kib() -> u64 {
        field(&fs::read_to_string("/proc/self/status").unwrap(), "RssAnon:")
    }

    #[test]
    fn ten_thousand_incidents_need_no_more_memory_than_one_thousand() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path(), CAPS, |_| {}).unwrap();
        record(&history, 1..=1000);
        assert_eq!(history.reader.pages(None, PAGE_MAX).map(|page| page.unwrap().len()).sum::<usize>(), 1000);
        history.reader.close();
        let before_kib = anonymous_kib();
        record(&history, 1001..=11_000);
        let mut seen = 0;
        for page in history.reader.pages(None, PAGE_MAX) {
            seen += page.unwrap().len();
        }
        let last = history.reader.by_id(11_000).unwrap().unwrap();
        assert_eq!((last.signal_to_freed_ns, last.freed_bytes), (Some(11_000), Some(4096)));
        history.reader.close();
        let after_kib = anonymous_kib();
        assert_eq!((seen, history.writer.dropped()), (11_000, 0));
        println!("RssAnon {before_kib} KiB after 1,000 incidents, {after_kib} KiB after 11,000");
        // The incidents written in between are 20 MiB.
        assert!(after_kib < before_kib + 1024, "{before_kib} KiB grew to {after_kib} KiB");
        history.writer.close(SOON).unwrap();
    }

    /// Voluntary context switches of the thread that writes: each is a wake-up.
    fn wake_ups() -> u64 {
        let found: Vec<u64> = fs::read_dir("/proc/self/task")
            .unwrap()
            .map(|task| task.unwrap().path())
            .filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm == "history\n"))
            .map(|task| field(&fs::read_to_string(task.join("status")).unwrap(), "voluntary_ctxt_switches:"))
            .collect();
        let [switches] = found[..] else { panic!("threads: {found:?}") };
        switches
    }

    #[test]
    fn with_nothing_to_record_the_thread_does_not_wake_up() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let history = History::open(folder.path(), CAPS, |_| {}).unwrap();
        record(&history, 1..=3);
        assert_eq!(history.reader.last().unwrap().unwrap().id, 3);
        // It goes to sleep some time after it has answered.
        thread::sleep(Duration::from_millis(300));
        let before = wake_ups();
        thread::sleep(Duration::from_millis(1500));
        assert_eq!(wake_ups(), before);
        record(&history, 4..=4);
        thread::sleep(Duration::from_millis(300));
        assert!(wake_ups() > before, "the measure itself does not work");
        history.writer.close(SOON).unwrap();
    }
}
