mod ranking;
mod slice;

use super::{
    HEADROOM_AUTO_MIN, HEADROOM_MIN, Headroom, LastDefenceConfig, MemoryMaxState, Needs, SLICE_STEP,
    Standing, memory_max,
};
use crate::{size::Permyriad, units::Bytes};
use proptest::{prop_assert, prop_assert_eq, proptest};
use std::string::ToString as _;

const MIB: u64 = 1 << 20;
const RAM: Bytes = Bytes(64 << 30);

fn needs(line: u64, held: u64) -> Needs {
    Needs { line: Bytes(line), held: Bytes(held), set: None }
}

#[test]
fn a_small_line_gets_the_least_headroom_and_a_large_one_a_quarter() {
    assert_eq!(Headroom::Auto.above(Bytes(64 * MIB)), HEADROOM_AUTO_MIN);
    assert_eq!(Headroom::Auto.above(Bytes(1024 * MIB)), Bytes(256 * MIB));
    assert_eq!(Headroom::Auto.above(Bytes(8192 * MIB)), Bytes(2048 * MIB));
}

#[test]
fn a_share_is_one_of_the_line_and_never_nothing() {
    let tenth = Headroom::OfLine(Permyriad::new(1000).unwrap());
    assert_eq!(tenth.above(Bytes(1000 * MIB)), Bytes(100 * MIB));
    assert_eq!(tenth.above(Bytes(10 * MIB)), HEADROOM_MIN);
}

#[test]
fn a_headroom_is_read_as_it_is_written() {
    for text in ["auto", "16M", "1G", "25%", "0.5%", "100%"] {
        assert_eq!(text.parse::<Headroom>().unwrap().to_string(), text);
    }
    for text in ["", "Auto", "0", "15M", "0%", "101%", "-1M", "much"] {
        let error = text.parse::<Headroom>().unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("auto"), "{error}");
    }
}

#[test]
fn memory_max_is_above_the_line_by_the_headroom() {
    let value = memory_max(Headroom::Auto, needs(4096 * MIB, 100 * MIB), RAM);
    assert_eq!(value, Some(Bytes((4096 + 1024) * MIB)));
}

#[test]
fn memory_max_is_above_what_is_held_and_cannot_be_reclaimed() {
    let value = memory_max(Headroom::Bytes(Bytes(100 * MIB)), needs(1024 * MIB, 3000 * MIB), RAM);
    assert_eq!(value, Some(Bytes(3100 * MIB)));
}

#[test]
fn what_is_set_falls_with_what_is_held_and_never_rises_with_it() {
    let headroom = Headroom::Bytes(Bytes(100 * MIB));
    let value = |held: u64, set: u64| {
        memory_max(headroom, Needs { set: Some(Bytes(set * MIB)), ..needs(1024 * MIB, held * MIB) }, RAM)
    };
    assert_eq!(value(1100, 1124), Some(Bytes(1124 * MIB)));
    assert_eq!(value(3500, 3100), Some(Bytes(3100 * MIB)));
    assert_eq!(value(2000, 3100), Some(Bytes(2100 * MIB)));
    assert_eq!(value(500, 2100), Some(Bytes(1124 * MIB)));
    // A line that rises takes it along.
    assert_eq!(value(500, 600), Some(Bytes(1124 * MIB)));
}

#[test]
fn memory_max_that_would_never_be_reached_is_not_set() {
    assert_eq!(memory_max(Headroom::Auto, needs(60 << 30, 0), RAM), None);
    assert_eq!(memory_max(Headroom::Auto, needs(u64::MAX, 0), RAM), None);
}

proptest! {
    #[test]
    fn memory_max_is_never_at_the_line(line in 1_u64..1 << 40, held in 0_u64..1 << 40, share in 1_u16..=10_000) {
        let headroom = Headroom::OfLine(Permyriad::new(share).unwrap());
        if let Some(value) = memory_max(headroom, needs(line, held), Bytes(1 << 42)) {
            prop_assert!(value.0 >= line.max(held) + HEADROOM_MIN.0);
            prop_assert!(value.0 < line.max(held) + headroom.above(Bytes(line)).0 + SLICE_STEP.0);
            prop_assert_eq!(value.0 % SLICE_STEP.0, 0);
        }
    }
}

fn standing() -> Standing {
    Standing {
        config: LastDefenceConfig::default(),
        memory_max: MemoryMaxState::Possible,
        slices: 0,
        raised: 0,
        lines: true,
        dry_run: false,
    }
}

#[test]
fn status_says_what_is_in_force_and_nothing_more() {
    let all = standing();
    assert_eq!(
        Standing { slices: 2, raised: 1, ..all }.words(),
        "memory.max + oom_score_adj: 2 user slices have one, 1 process is raised"
    );
    let without = Standing { memory_max: MemoryMaxState::NoSystemd, ..all };
    assert_eq!(
        without.words(),
        "oom_score_adj only: no systemd runs here; nobody is near a line, so nobody is raised"
    );
    assert!(Standing { config: LastDefenceConfig::OFF, ..all }.words().starts_with("off: "));
    assert!(Standing { lines: false, ..all }.words().starts_with("idle: "));
    assert!(Standing { dry_run: true, ..all }.words().starts_with("dry run: "));
    let only_slices = LastDefenceConfig { oom_score_adj: false, ..LastDefenceConfig::default() };
    assert!(Standing { config: only_slices, ..all }.words().starts_with("memory.max only: "));
    assert!(Standing { config: only_slices, ..without }.words().starts_with("not in force: no systemd"));
}
