use super::*;

fn drawn(unit: Unit, window: (i64, i64), points: Vec<(i64, u64)>, style: Style) -> String {
    let rows = [Row { name: "usage".to_owned(), style, points }];
    let (title, description, marks) = ("T", "D", &[(0, "killed")]);
    Plot { id: "a", title, description, unit, window, marks, rows: &rows }.draw().into_string()
}

#[test]
fn points_lie_where_they_were_in_time_and_size() {
    let mib = 1 << 20;
    let svg =
        drawn(Unit::Bytes, (-10_000, 10_000), vec![(-10_000, 0), (0, 64 * mib), (10_000, 0)], Style::Plain);
    // A scale of 72 MiB over 216 units: 64 MiB are 192 above the ground at 250.
    assert!(svg.contains("class=\"row second\" d=\"M0 250L360 58L720 250\""), "{svg}");
    assert!(svg.contains("<path class=\"mark\" d=\"M360 26V250\"/>"), "{svg}");
    for label in [">32.0 MiB<", ">64.0 MiB<", ">\u{2212}5 s<", ">0<", ">+10 s<", ">killed<"] {
        assert!(svg.contains(label), "{label} in {svg}");
    }
}

#[test]
fn a_limit_keeps_its_height_until_it_is_another() {
    let svg =
        drawn(Unit::Permille, (-4000, 4000), vec![(-4000, 400), (-2000, 200), (-1000, 200)], Style::Limit);
    assert!(svg.contains("H180V"), "{svg}");
    assert!(svg.contains("H720\"/>"), "{svg}");
}

#[test]
fn what_lies_outside_of_the_window_does_not_get_in() {
    let svg = drawn(
        Unit::Permille,
        (-2000, 1000),
        vec![(-9000, 900), (-8000, 10), (-1000, 20), (9000, 30)],
        Style::Area,
    );
    // From the last point before it, at its edge; the 900 are neither drawn nor part of the scale.
    assert!(svg.contains("class=\"row first\" d=\"M0 "), "{svg}");
    assert!(!svg.contains("25 %") && svg.contains(">5 %<"), "{svg}");
}

#[test]
fn no_numbers_whatever_make_a_plot_that_does_not_end_or_overflows() {
    for window in [(i64::MIN, i64::MAX), (0, 0), (-1, 1), (5, -5), (i64::MAX, i64::MIN)] {
        for unit in [Unit::Bytes, Unit::Permille, Unit::Micros] {
            for style in [Style::Area, Style::Plain, Style::Limit, Style::Dots] {
                let points = vec![(i64::MIN, u64::MAX), (0, 0), (i64::MAX, u64::MAX)];
                assert!(drawn(unit, window, points, style).len() < 20_000);
                assert!(drawn(unit, window, vec![], style).len() < 20_000);
            }
        }
    }
}
