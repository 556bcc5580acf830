//! What the history promises while things go wrong: the process is killed, the disk is full or read-only. Each test has a
//! process of its own for that, and what it mounts is seen by nobody else.

#[cfg(test)]
mod tests {
    use plimsoll_daemon::history::{Caps, History, HistoryError, Outcome, PAGE_MAX};
    use plimsoll_policy::incident::Incident;
    use std::{
        env, fs,
        io::{BufRead, BufReader, Write},
        path::{Path, PathBuf},
        process::{Child, Command, Stdio},
        thread,
        time::{Duration, Instant},
    };

    const SOON: Duration = Duration::from_secs(30);
    const CAPS: Caps =
        Caps { max_bytes: 64 << 20, max_age: Duration::from_secs(1 << 33), max_incidents: 100_000 };

    /// Where the second process of a test works: it runs the same test with this set.
    const FOLDER: &str = "PLIMSOLL_HISTORY_FOLDER";

    fn incident(id: u64) -> Incident {
        serde_json::from_value(serde_json::json!({
            "id": id, "time": jiff::Timestamp::now(), "account": "user:60001", "guard": "limits",
            "trigger": "in-kernel", "action": "kill",
            "victims": [{
                "pid": id, "start_ns": 1, "uid": 60001, "comm": "hog", "usage_bytes": 300_000_000,
                "cmdline": format!("/usr/bin/hog {}", "x".repeat(200)), "cgroup": "/user.slice/user-60001.slice",
            }],
            "peers": [], "usage_bytes": 300_000_000, "hard_bytes": 268_435_456, "overshoot_bytes": 4096,
            "requested_bytes": null, "cross_to_signal_ns": 9000, "signal_to_freed_ns": null, "freed_bytes": null,
            "reason": "over-hard-limit-largest",
        }))
        .unwrap()
    }

    fn ids(history: &History) -> Vec<u64> {
        history.reader.pages(None, PAGE_MAX).flat_map(Result::unwrap).map(|one| one.id).collect()
    }

    fn open(folder: &Path) -> History {
        History::open(folder, CAPS, |_| {}).unwrap()
    }

    /// The folder to work in, in the second process of a test.
    fn inside() -> Option<PathBuf> {
        env::var_os(FOLDER).map(PathBuf::from)
    }

    /// Starts a test once more, by way of `command`.
    fn second(command: &mut Command, test: &str, folder: &Path) -> Child {
        command.args(["--exact", &format!("tests::{test}"), "--nocapture"]).env(FOLDER, folder);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a test in a mount namespace of its own, with a small file system of its own at `folder`; whether it can.
    fn in_own_mounts(test: &str, folder: &Path) -> bool {
        let able = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
        if !able.is_ok_and(|status| status.success()) {
            println!("\nSKIPPED: {test}: it mounts a file system, which is not allowed here");
            return false;
        }
        let mut command = Command::new("unshare");
        command.arg("--mount").arg(env::current_exe().unwrap());
        let output = second(&mut command, test, folder).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        true
    }

    fn mount(options: &str, folder: &Path) {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder).status();
        assert!(mounted.unwrap().success(), "mount -o {options}");
    }

    fn until(what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + SOON;
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Records without end, a few at a time, and says which are on the disk.
    fn record_without_end(folder: &Path) {
        let history = open(folder);
        let mut first = history.next_id;
        loop {
            // One, or a burst that is one transaction.
            let last = first + first % 8;
            for id in first..=last {
                history.writer.record(incident(id));
                history.writer.outcome(Outcome { id, freed_bytes: Some(id), ..Outcome::default() });
            }
            history.writer.flush(SOON).unwrap();
            // In one piece: it is killed at any moment.
            std::io::stderr().write_all(format!("written {first} {last}\n").as_bytes()).unwrap();
            first = last + 1;
        }
    }

    #[test]
    fn a_process_that_is_killed_at_any_moment_loses_nothing_that_was_written() {
        const NAME: &str = "a_process_that_is_killed_at_any_moment_loses_nothing_that_was_written";
        if let Some(folder) = inside() {
            return record_without_end(&folder);
        }
        let folder = tempfile::tempdir().unwrap();
        let mut written = Vec::new();
        for round in 0..100_u64 {
            let mut child = second(&mut Command::new(env::current_exe().unwrap()), NAME, folder.path());
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
            let mut said: Vec<String> = lines.by_ref().take(1 + (round % 7) as usize).collect();
            // Anywhere in the next commits, which take some hundred microseconds to some milliseconds each.
            thread::sleep(Duration::from_micros(round * 7919 % 20_011));
            child.kill().unwrap();
            child.wait().unwrap();
            said.extend(lines);
            for line in said {
                let ids = line.strip_prefix("written ").and_then(|ids| ids.split_once(' '));
                let (first, last) = ids.unwrap_or_else(|| panic!("{line}"));
                written.extend(first.parse::<u64>().unwrap()..=last.parse().unwrap());
            }
            let history = open(folder.path());
            let kept = ids(&history);
            assert!(written.iter().all(|id| kept.binary_search(id).is_ok()), "round {round}");
            assert_eq!(history.next_id, kept.last().unwrap() + 1);
            history.writer.close(SOON).unwrap();
        }
        println!("{} incidents were acknowledged in 100 rounds, and none was lost", written.len());
        // What was waited for, however slow the disk is.
        let waited_for: u64 = (0..100).map(|round| 1 + round % 7).sum();
        assert!(written.len() as u64 >= waited_for, "{}", written.len());
    }

    #[test]
    fn what_finds_the_disk_full_is_written_when_there_is_room() {
        const NAME: &str = "what_finds_the_disk_full_is_written_when_there_is_room";
        let Some(folder) = inside() else {
            in_own_mounts(NAME, tempfile::tempdir().unwrap().path());
            return;
        };
        mount("size=1m", &folder);
        let state = folder.join("state");
        let history = open(&state);
        let mut id = 1;
        history.writer.record(incident(id));
        history.writer.flush(SOON).unwrap();
        let filler = folder.join("filler");
        let full =
            fs::File::create(&filler).and_then(|mut file| file.write_all(&vec![0; 2 << 20])).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        // What room there is in the files is used up first.
        let refused = loop {
            id += 1;
            let before = Instant::now();
            history.writer.record(incident(id));
            assert!(before.elapsed() < SOON / 10);
            match history.writer.flush(SOON) {
                Ok(()) => assert!(id < 1000, "the disk is not full"),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, HistoryError::Unwritten(1, _)), "{refused}");
        assert!(refused.to_string().contains("full"), "{refused}");
        assert_eq!(history.writer.counts().waiting, 1);
        assert_eq!(history.reader.last().unwrap().unwrap().id, id - 1);
        fs::remove_file(&filler).unwrap();
        until("it is written", || history.writer.counts().waiting == 0);
        assert_eq!(ids(&history), (1..=id).collect::<Vec<_>>());
        let counts = history.writer.counts();
        assert_eq!((counts.dropped, counts.unwritten, counts.set_aside), (0, 0, 0));
        history.writer.close(SOON).unwrap();
    }

    #[test]
    fn a_daemon_starts_on_a_disk_that_is_read_only_and_writes_when_it_is_not() {
        const NAME: &str = "a_daemon_starts_on_a_disk_that_is_read_only_and_writes_when_it_is_not";
        let Some(folder) = inside() else {
            in_own_mounts(NAME, tempfile::tempdir().unwrap().path());
            return;
        };
        mount("size=4m,mode=700", &folder);
        for empty in [true, false] {
            mount("remount,ro", &folder);
            let history = open(&folder);
            // Nobody knows which ids there were, but that they are lower.
            assert!(history.next_id > 1_000_000_000 && history.written_below == 0, "{}", history.next_id);
            history.writer.record(incident(history.next_id));
            assert!(matches!(history.writer.flush(SOON), Err(HistoryError::Unwritten(1, _))));
            history.reader.last().unwrap_err();
            mount("remount,rw", &folder);
            until("it is written", || history.writer.counts().waiting == 0);
            assert_eq!(ids(&history).len(), if empty { 1 } else { 2 });
            assert_eq!(history.writer.counts().set_aside, 0);
            history.writer.close(SOON).unwrap();
            assert_eq!(open(&folder).next_id, history.next_id + 1);
            // Ids by the clock are never the same.
            thread::sleep(Duration::from_millis(2100));
        }
    }

    #[test]
    fn an_incident_is_on_the_disk_soon_after_it_was_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let history = open(folder.path());
        let mut took: Vec<u64> = (1..=100)
            .map(|id| {
                history.writer.record(incident(id));
                history.writer.flush(SOON).unwrap();
                history.writer.commit_ns().unwrap().0
            })
            .collect();
        took.sort_unstable();
        println!("100 commits, one by one: median {} us, longest {} us", took[50] / 1000, took[99] / 1000);
        assert_eq!(history.writer.commit_ns().unwrap().1, took[99]);
        // A disk that is busy takes its time; seconds would be a fault.
        assert!(took[50] < 1_000_000_000, "{took:?}");
    }
}
