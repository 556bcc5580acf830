//! Copies that forked processes make of what they share: no counter of the kernel tells them, and they end at the line.

#![cfg(test)]

mod support;

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};
use support::{ALICE, BOB, Fixture, exact, program::Program, slowness, until, wait_for};

/// What may be passed the line by, of copies made at full speed.
const PAST: u64 = 50 << 20;

/// What children who write to all they inherited held at most and hold in the end, in bytes.
struct Written {
    peak: u64,
    left: u64,
}

/// They have inherited it, and are about to write.
fn writers(fixture: &Fixture, settings: &[&str]) -> Program {
    let still = format!("--still={}", 500 * slowness());
    fixture.root_workload("copies", &[&["--seconds=100", &still], settings].concat()).ready()
}

fn write(fixture: &Fixture, settings: &[&str]) -> Written {
    written(writers(fixture, settings), settings)
}

fn written(mut copies: Program, settings: &[&str]) -> Written {
    let told = until("they have written, or are dead", Duration::from_secs(60), || copies.try_line());
    copies.end();
    println!("{settings:?}: {told}");
    let bytes = |name: &str| -> u64 {
        let rest = told.split(name).nth(1).unwrap();
        rest.split(' ').next().unwrap().trim().parse::<u64>().unwrap() << 10
    };
    Written { peak: bytes("peak_kib="), left: bytes("left_kib=") }
}

/// Returns what they held at most, those among it that were ending.
fn end_at_the_line(fixture: &Fixture, line: u64, settings: &[&str]) -> u64 {
    fixture.owns(ALICE);
    fixture.limit(ALICE, &line.to_string(), &[]);
    let before = fixture.history().len();
    let Written { peak, left } = write(fixture, settings);
    let first = fixture.incidents(before + 1).remove(before);
    assert!(first["usage_bytes"].as_u64().unwrap() <= line + PAST, "{settings:?}: {first}");
    assert!(left <= line, "{settings:?}: {left} bytes are left at a line of {line}");
    wait_for("all have ended", || fixture.usage_pages(ALICE) == 0);
    peak
}

#[test]
fn four_children_that_write_to_200_mib_at_full_speed_end_at_the_line() {
    let fixture = fixture!();
    let peak = end_at_the_line(&fixture, 300 << 20, &["--children=4", "--mebibytes=200", "--no-thp"]);
    assert!(peak <= 600 << 20, "{peak}");
}

/// By read(2), by `MADV_POPULATE_WRITE`, each to a sibling, each copy among other pages that come and go, beside a thread whose
/// pages do, by another program.
#[test]
fn so_they_do_however_they_write() {
    let fixture = fixture!();
    for by in ["--by=1", "--by=2", "--by=3", "--by=4", "--by=5", "--by=10"] {
        let peak = end_at_the_line(&fixture, 150 << 20, &["--children=4", "--mebibytes=100", by]);
        assert!(peak <= 300 << 20, "{by}: {peak}");
    }
}

/// Those that are ending get little of a CPU among so many; what they hold is bounded as well.
#[test]
fn thousands_of_small_children_end_at_the_line() {
    let fixture = fixture!();
    // Where a fork takes longer, fewer of them.
    let (children, line) =
        if slowness() > 1 { ("--children=800", 80 << 20) } else { ("--children=4000", 300 << 20) };
    end_at_the_line(&fixture, line, &[children, "--mebibytes=1"]);
    let most = fixture.history().iter().filter_map(|incident| incident["usage_bytes"].as_u64()).max();
    // An eighth of the line is dying before it matters who is taken; some that are taken lose the CPU before they have ended.
    assert!(most.unwrap() <= line + line / 4 + (16 << 20), "{most:?}");
}

/// Their counters stay what they were: each takes a page of its own and gives up one that it shares.
#[test]
fn so_do_those_that_take_new_pages_for_those_they_share() {
    let fixture = fixture!();
    for by in ["--by=6", "--by=7", "--by=8", "--by=9"] {
        for size in [["--children=24", "--mebibytes=48"], ["--children=3", "--mebibytes=100"]] {
            let line = 128 << 20;
            let mut settings = [&size[..], &[by, "--no-thp"]].concat();
            // Some of these a survey alone finds, within half a second or as soon as it has a CPU.
            let still = format!("--still={}", 2000 * slowness());
            if by >= "--by=8" {
                settings.push(&still);
            }
            let peak = end_at_the_line(&fixture, line, &settings);
            // Those that are ending among them.
            assert!(peak <= line + 2 * PAST, "{by} {size:?}: {peak}");
        }
    }
}

/// Whoever draws a line has the daemon tell the programs that it is there, as a new one would.
#[test]
fn a_line_that_is_drawn_meanwhile_lets_nobody_past_another() {
    let fixture = fixture!();
    let line = 128 << 20;
    fixture.owns(ALICE);
    fixture.limit(ALICE, &line.to_string(), &[]);
    let settings = ["--children=24", "--mebibytes=48", "--by=6", "--no-thp", "--wait"];
    let mut copies = writers(&fixture, &settings);
    // By the second time copies are counted.
    for size in ["1G", "2G"] {
        fixture.limit(BOB, size, &[]);
    }
    // And at the end.
    copies.tell("\n");
    let Written { peak, left } = written(copies, &settings);
    assert!(left <= line && peak <= line + 2 * PAST, "{peak}, {left} are left");
}

/// Their ends would be enough, too, for a page more than the line allows.
#[test]
fn small_processes_beside_those_that_copy_are_left_alone() {
    for (line, settings) in
        [(150, ["--children=4", "--mebibytes=100"]), (128, ["--children=24", "--mebibytes=48"])]
    {
        let fixture = fixture!();
        let small = |number: u32| {
            let size = format!("--mebibytes={}", 1 + number % 2);
            fixture.workload(ALICE, "bloat", &[&size, "--no-thp"]).filled()
        };
        let mut all: Vec<_> = (0..8).map(small).collect();
        fixture.owns(ALICE);
        fixture.limit(ALICE, &format!("{line}M"), &[]);
        let written = write(&fixture, &settings);
        assert!(written.left <= line << 20, "{}", written.left);
        assert!(all.iter_mut().all(Program::runs), "{:?}", fixture.history());
    }
}

/// A hundred processes that share 200 MiB and do nothing: each survey reads some of them.
const IDLE: &str = "
held = mmap.mmap(-1, 200 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, 200 << 20, 4096): held[at] = 1
for number in range(100):
    if os.fork() == 0:
        time.sleep(100)
        os._exit(0)
say('idle'); hear()
";

#[test]
fn a_large_family_that_copies_nothing_is_charged_nothing_and_left_alone() {
    let fixture = fixture!();
    fixture.limit(ALICE, "320M", &[]);
    let mut family = fixture.python(ALICE, IDLE);
    assert_eq!(family.line(), "idle");
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(500));
        let usage = fixture.usage_pages(ALICE) * exact::page_bytes();
        // What Python itself copies as it forks is charged.
        assert!(usage < 290 << 20, "{usage}");
    }
    assert_eq!(fixture.history(), Vec::<serde_json::Value>::new());
}

/// Pages that a forked process takes for something else than a copy.
const NO_COPIES: &str = "
held = mmap.mmap(-1, 100 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, 100 << 20, 4096): held[at] = 1
child = os.fork()
if child == 0:
    # Files of a tmpfs are nobody's anonymous memory.
    with open(FOLDER + '/shared', 'wb') as file:
        for _ in range(160): file.write(b'x' * (1 << 20))
    # A private page of a file is one more, and charged as such.
    with open(FOLDER + '/shared', 'r+b') as file:
        private = mmap.mmap(file.fileno(), 20 << 20, mmap.MAP_PRIVATE)
        for at in range(0, 20 << 20, 4096): private[at] = 1
    read, write = os.pipe()
    for _ in range(20000):
        os.write(write, b'x' * 4096); os.read(read, 4096)
    say('done'); hear(); os._exit(0)
os.waitpid(child, 0)
";

#[test]
fn pages_that_are_no_copies_are_not_charged_as_such() {
    let fixture = fixture!();
    fixture.limit(ALICE, "200M", &["--soft", "110M"]);
    let folder = tempfile::Builder::new().prefix("plimsoll-test-").tempdir_in("/dev/shm").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut python = fixture.python(ALICE, &format!("FOLDER = {:?}\n{NO_COPIES}", folder.path()));
    assert_eq!(python.line(), "done");
    let usage = fixture.usage_pages(ALICE) * exact::page_bytes();
    // What Python itself copies, by counting who refers to what, is some MiB.
    assert!((120 << 20..140 << 20).contains(&usage), "{usage}");
    python.stop();
    assert_eq!(fixture.history(), Vec::<serde_json::Value>::new());
}

/// A forked process whose threads take memory of their own and free it, each now on one CPU and then on another.
const CHURN: &str = "
import threading
held = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, 64 << 20, 4096): held[at] = 1
child = os.fork()
if child == 0:
    cpus = sorted(os.sched_getaffinity(0))
    def churn(number):
        for turn in range(40):
            own = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for at in range(0, 8 << 20, 4096):
                own[at] = 1
                if at % (1 << 20) == 0: os.sched_setaffinity(0, [cpus[(number + turn + (at >> 20)) % len(cpus)]])
            own.close()
    threads = [threading.Thread(target=churn, args=[number]) for number in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    say('churned'); hear()
    # Now they are its own, as many as it gives up.
    own = mmap.mmap(-1, 32 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, 32 << 20, 4096): own[at] = 1
    held.madvise(mmap.MADV_DONTNEED, 0, 32 << 20)
    for at in range(0, 32 << 20, 4096): own[at] = 2
    say('exchanged'); hear()
    own.close()
    say('freed'); hear(); os._exit(0)
os.waitpid(child, 0)
";

#[test]
fn what_a_forked_process_frees_of_its_own_is_charged_no_more() {
    let fixture = fixture!();
    fixture.limit(ALICE, "300M", &["--soft", "100M"]);
    let mut python = fixture.python(ALICE, CHURN);
    // What Python itself copies is some MiB; so many pages of each account nobody sees freed.
    let slack = (-4 << 20)..(16 << 20);
    for (stage, expected) in [("churned", 64_i64), ("exchanged", 96), ("freed", 64)] {
        assert_eq!(python.line(), stage);
        let usage = i64::try_from(fixture.usage_pages(ALICE) * exact::page_bytes()).unwrap();
        println!("{stage}: {} KiB", usage >> 10);
        assert!(slack.contains(&(usage - (expected << 20))), "{stage}: {usage}");
        python.tell("");
    }
    python.stop();
    assert_eq!(fixture.history(), Vec::<serde_json::Value>::new());
}
