use super::*;
use plimsoll_policy::reading::Reading;

fn account(path: &str) -> Account {
    Account::Cgroup(path.parse().unwrap())
}

/// A daemon.
struct Daemon {
    file: InForceFile,
    lines: LinesInForce,
    has_begun: bool,
}

fn begun(folder: &Path) -> Daemon {
    let mut file = InForceFile::new(folder, Journal::mute());
    Daemon { lines: LinesInForce::new(file.read()), file, has_begun: false }
}

/// What a daemon finds that looks at these: the line in force, and as it was drawn.
fn looked(daemon: &mut Daemon, seen: &[(&str, u64, Option<u64>)]) -> Vec<Option<u64>> {
    let inherits = !std::mem::replace(&mut daemon.has_begun, true);
    let order = |(path, line, hard): &(&str, u64, Option<u64>)| Order {
        key: 0,
        account: account(path),
        line: Bytes(*line),
        hard: hard.map(Bytes),
        inherits,
    };
    let orders: Vec<Order> = seen.iter().map(order).collect();
    let look = |_| Look { key: 0, usage: Reading::Absent, members: None, inherited: None };
    let mut looks: Vec<Look> = seen.iter().map(look).collect();
    daemon.lines.take(&orders, &mut looks);
    daemon.lines.hand(|lines| {
        daemon.file.write(lines);
        true
    });
    looks.iter().map(|look| look.inherited.map(|bytes| bytes.0)).collect()
}

const OPEN: u64 = super::OPEN.0;

#[test]
fn what_was_in_force_is_in_force_for_the_next_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let load = || begun(folder.path());
    let mut first = load();
    assert_eq!(looked(&mut first, &[("/a", OPEN, Some(10)), ("/b", OPEN, Some(20))]), [None, None]);
    // The other was drawn below usage.
    looked(&mut first, &[("/a", 10, Some(10)), ("/b", 400, Some(20)), ("/gone", 5, Some(5))]);
    // It falls with usage.
    for raised in [380, 300, 280] {
        looked(&mut first, &[("/b", raised, Some(20))]);
    }
    looked(&mut first, &[("/gone", 5, None)]);
    // Those who come later are asked about for the first time as well, and it is the same to each.
    for _ in 0..2 {
        let mut next = load();
        let seen = [("/a", OPEN, Some(10)), ("/b", OPEN, Some(20)), ("/gone", OPEN, Some(5))];
        assert_eq!(looked(&mut next, &seen), [Some(10), Some(300), None]);
    }
    InForceFile::forget(folder.path()).unwrap();
    assert_eq!(looked(&mut load(), &[("/a", OPEN, Some(10))]), [None]);
    looked(&mut first, &[("/a", 11, Some(10))]);
    looked(&mut first, &[("/a", 10, Some(10))]);
    let mut next = load();
    looked(&mut next, &[("/b", OPEN, Some(20))]);
    // Drawn later: it is another line.
    assert_eq!(looked(&mut next, &[("/a", OPEN, Some(10))]), [None]);
}

#[test]
fn nothing_is_believed_of_another_boot_or_that_makes_no_sense() {
    let folder = tempfile::tempdir().unwrap();
    let load = || begun(folder.path());
    looked(&mut load(), &[("/a", 10, Some(10))]);
    let path = folder.path().join(NAME);
    let text = std::fs::read_to_string(&path).unwrap();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    std::fs::write(&path, text.replace(boot_id.trim(), "another")).unwrap();
    assert_eq!(looked(&mut load(), &[("/a", OPEN, Some(10))]), [None]);
    std::fs::write(&path, "{").unwrap();
    assert_eq!(looked(&mut load(), &[("/a", OPEN, Some(10))]), [None]);
}
