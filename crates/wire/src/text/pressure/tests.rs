use super::*;

#[test]
fn shares_and_totals_are_read_without_a_float() {
    let pressure = parse_pressure(capture!("pressure/stalled")).unwrap();
    let some = PressureLine { avg10_permyriad: 1234, total_us: 123_456_789 };
    let full = PressureLine { avg10_permyriad: 100, total_us: 99_999 };
    assert_eq!(pressure, Pressure { some, full });
}

#[test]
fn an_idle_machine_reads_zero_and_a_missing_line_is_not_known() {
    let idle = parse_pressure(capture!("pressure/idle")).unwrap();
    assert_eq!(idle.full, idle.some);
    let cut = parse_pressure(capture!("pressure/without-full"));
    assert_eq!(cut, Err(WireError::missing(FILE, "full line")));
}

#[test]
fn parts_in_another_order_and_new_parts_are_taken() {
    let text =
        b"irq total=1\nsome total=5 avg1=9.99 avg300=0.03 avg60=0.02 avg10=0.01\nfull avg10=0.00 total=0\n";
    let expected = PressureLine { avg10_permyriad: 1, total_us: 5 };
    assert_eq!(parse_pressure(text).unwrap().some, expected);
}

#[test]
fn what_is_missing_or_strange_is_an_error() {
    assert_eq!(parse_pressure(b""), Err(WireError::missing(FILE, "some line")));
    assert_eq!(parse_pressure(b"some avg60=0.00 total=1\n"), Err(WireError::missing(FILE, "avg10")));
    for share in ["1", "1.2", "1.234", "-1.00", "1.x0", ".00", "42949673.00"] {
        let text = format!("some avg10={share} avg60=0.00 avg300=0.00 total=1\n");
        assert!(matches!(parse_pressure(text.as_bytes()), Err(WireError::Malformed { field: "avg10", .. })));
    }
}
