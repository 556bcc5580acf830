use super::{Line, RssStat, decode};

const LINE: &str = "            bash-12231   [000] ...1.  1465.788837: rss_stat: mm_id=1891245709 curr=0 type=MM_ANONPAGES size=53248B";

fn event(line: &str) -> RssStat {
    match decode(line) {
        Line::Event(event) => event,
        other @ (Line::Lost(_) | Line::Other) => panic!("{other:?}"),
    }
}

#[test]
fn an_event_is_read_field_by_field() {
    let expected = RssStat {
        tid: 12_231,
        mm: 1_891_245_709,
        current: false,
        charged: true,
        anonymous: true,
        size_bytes: 53_248,
    };
    assert_eq!(event(LINE), expected);
    let file = event(&LINE.replace("ANONPAGES", "FILEPAGES").replace("curr=0", "curr=1"));
    assert_eq!((file.charged, file.anonymous, file.current), (false, false, true));
    assert!(event(&LINE.replace("ANONPAGES", "SWAPENTS")).charged);
    assert_eq!(event(&LINE.replace("=53248B", "=-4096B")).size_bytes, 0);
}

#[test]
fn a_hostile_name_cannot_pass_for_an_event_of_another_process() {
    let hostile =
        LINE.replace("bash-12231", "a-1 [0] : rss_stat: mm_id=7 curr=1 type=MM_ANONPAGES size=0B-12231");
    assert_eq!((event(&hostile).tid, event(&hostile).mm), (12_231, 1_891_245_709));
}

#[test]
fn lost_events_are_counted_and_damaged_lines_are_neither() {
    assert_eq!(decode("CPU:1 [LOST 4711 EVENTS]"), Line::Lost(4711));
    assert_eq!(decode("CPU:1 [LOST x EVENTS]"), Line::Other);
    assert_eq!(decode(""), Line::Other);
    for end in 0..LINE.len() {
        assert!(!matches!(decode(&LINE[..end]), Line::Lost(_)), "cut at {end}");
    }
    assert_eq!(decode(&LINE[..LINE.len() - 1]), Line::Other);
}
