//! The guard of large blocks, where they run out: in the guests of the lab only, because all memory is filled for it.
#![cfg(test)]

mod support;

use rustix::process::Signal;
use serde_json::{Value, json};
use std::{fs, process::Command, thread, time::Duration};
use support::{
    Fixture, assert_has, guest,
    program::{PYTHON, Program},
    until, wait_for,
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/fragment.py");
const PROACTIVENESS: &str = "/proc/sys/vm/compaction_proactiveness";

/// A guest whose memory is in pieces, and who asks for blocks of order 3 there.
struct Fragmented(Program);

fn said(script: &mut Program) -> Value {
    serde_json::from_str(&script.line()).unwrap()
}

impl Fragmented {
    /// The kernel's own compaction ahead of need is off: with it kcompactd does the guard's work, as long as it gets whole
    /// pageblocks free by it.
    fn new() -> Self {
        fs::write(PROACTIVENESS, "0").unwrap();
        let mut command = Command::new(PYTHON);
        command.arg(SCRIPT);
        let mut script = Program::of(command);
        let state = said(&mut script);
        println!("MEASURED: {state}");
        let count = |name: &str| state[name].as_u64().unwrap();
        assert!(count("unmovable") * 10 >= count("pageblocks") * 3, "{state}");
        // A quarter of memory, an eighth of that at most in such blocks.
        let (free, in_blocks) = (count("free"), count("blocks") << 3);
        assert!(free * 4 >= count("pageblocks") * 512 && in_blocks * 8 <= free, "{state}");
        Self(script)
    }

    fn asks(&mut self, order: u32, count: u32) -> Value {
        self.0.tell(&format!("ask {order} {count}"));
        said(&mut self.0)
    }
}

fn proactiveness() -> String {
    fs::read_to_string(PROACTIVENESS).unwrap().trim().to_owned()
}

fn guarding(fixture: &Fixture) -> Value {
    fixture.status()["guards"]["fragmentation"].clone()
}

#[test]
fn where_large_blocks_run_out_they_are_made_ahead_of_need_and_the_setting_comes_back() {
    if !guest::is_one() {
        return;
    }
    let mut guest = Fragmented::new();
    let mut fixture = fixture!();
    wait_for("it is on", || guarding(&fixture)["state"] == "on");
    // Where the recipe had to compact memory itself it may be at work already, as after a daemon that ended.
    assert_has(&guarding(&fixture), &json!({"orders": []}));
    let told = until("somebody misses a block and blocks are made", Duration::from_secs(60), || {
        guest.asks(3, 50);
        // Another order may have its turn first.
        Some(guarding(&fixture)).filter(|told| told["last"]["order"] == 3)
    });
    println!("MEASURED: {told}");
    let last = &told["last"];
    let [before, after, kept] = ["before", "after", "kept"].map(|name| last[name].as_u64().unwrap());
    // An emulated CPU may be through its share of a minute before there are enough.
    let is_over = last["ended"] == "cost";
    assert!(is_over || (last["ended"] == "enough" && after >= kept), "{told}");
    assert!(after >= before + kept / 8, "{told}");
    // Another order may have its turn next.
    wait_for("the setting comes back", || proactiveness() == "0");
    let with = guest.asks(3, u32::try_from(after / 4 * 3).unwrap());
    println!("MEASURED: three quarters of {after} with: {with}");
    assert_has(&with, &json!({"failures": 0, "oom_kills": 0, "stalls": 0}));
    let incident = &fixture.incidents(1)[0];
    assert_has(
        incident,
        &json!({"guard": "fragmentation", "action": "notify", "reason": "memory-compacted", "victims": []}),
    );
    let story = fixture.ok(&["why"]);
    assert!(story.contains("blocks of 32.0 KiB ran out") && story.contains("frag --record"), "{story}");
    fixture.end_daemon(Signal::TERM);
    assert_eq!(proactiveness(), "0");

    // One that is killed while memory is compacted leaves the setting to the next. It begins at once, as requests had to
    // compact.
    fixture.launch();
    let is_seen = (0..2000).any(|_| {
        thread::sleep(Duration::from_millis(2));
        proactiveness() == "100"
    });
    println!("MEASURED: it compacts: {is_seen}");
    fixture.end_daemon(Signal::KILL);
    // Unless it had enough at that very moment.
    println!("MEASURED: left at {}", proactiveness());
    // The next may begin at once too: what it leaves at its end is what was there before the first.
    fixture.launch();
    fixture.end_daemon(Signal::TERM);
    assert_eq!(proactiveness(), "0");
    drop(fixture);

    let off = fixture!("[fragmentation]\nenabled = false\n");
    assert_eq!(guarding(&off)["state"], "off");
}
