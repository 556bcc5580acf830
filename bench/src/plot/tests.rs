use super::svg;
use crate::report::{Mark, Trace};

fn trace(points: Vec<[f64; 2]>) -> Trace {
    let marks = vec![Mark { at_s: 30.0, label: "a <mark> & more".to_owned() }];
    Trace { case: String::new(), variant: "timed".to_owned(), unit: "s".to_owned(), points, marks }
}

/// Where the circles are.
fn circles(picture: &str) -> Vec<(f64, f64)> {
    let number = |line: &str, name: &str| -> Option<f64> {
        line.split_once(&format!("{name}=\""))?.1.split_once('"')?.0.parse().ok()
    };
    let circles = picture.split("<circle").skip(1);
    circles.map(|line| (number(line, "cx").unwrap(), number(line, "cy").unwrap())).collect()
}

#[test]
fn later_is_further_right_and_a_decade_is_as_high_as_the_next() {
    let picture = svg(&trace(vec![[-4.0, 0.01], [0.0, 0.1], [20.0, 1.0], [60.0, 10.0]]));
    let found = circles(&picture);
    assert_eq!(found.len(), 4);
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1), "{found:?}");
    let heights: Vec<f64> = found.windows(2).map(|pair| pair[0].1 - pair[1].1).collect();
    assert!(heights.iter().all(|height| (height - heights[0]).abs() < 0.2), "{heights:?}");
    assert!(found.iter().all(|(x, y)| (0.0..=720.0).contains(x) && (0.0..=284.0).contains(y)), "{found:?}");
}

#[test]
fn what_is_between_decades_lies_between_them() {
    let found = circles(&svg(&trace(vec![[1.0, 0.013], [2.0, 5.3]])));
    assert!(found.iter().all(|(_, y)| (35.0..250.0).contains(y)), "{found:?}");
}

#[test]
fn labels_cannot_end_the_picture() {
    let picture = svg(&trace(vec![[0.0, 1.0]]));
    assert!(picture.contains("a &lt;mark&gt; &amp; more") && picture.ends_with("</svg>\n"));
}

#[test]
fn nothing_at_all_can_be_drawn() {
    let picture = svg(&Trace { marks: Vec::new(), ..trace(Vec::new()) });
    assert!(picture.contains("+1 s") && !picture.contains("NaN") && !picture.contains("inf"), "{picture}");
}
