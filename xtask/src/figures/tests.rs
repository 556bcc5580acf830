use super::*;
use crate::tree::Tree;

const JSON: &str = r#"{"rows":[{"case":"a, b","variant":"plain","n":7,"p50":23.14,"unit":"MB/s"}],
    "ratios":[{"case":"a, b","of":"fast","to":"plain","median":551.4}],"notes":["seed: 3 of 3 were refused"]}"#;
const TEXT: &str = "x: Linux 6.1, 960 MiB, load 0\ncase  variant  n   p50  unit\na     off      10  99.73  ns/page\n\n\
    case  ratio     n   median  95 % confidence\na     on / off  10  1.005   0.9 to 1.1\nnote: a: 11 MiB\n\n\
    x: Linux 6.12, 967 MiB, load 0\ncase  variant  n   p50  unit\na     off      10  5  ns/page\nb     off      10  3  kills\n";

/// What is wrong with a page that has this figure, marked so.
fn told(figure: &str, mark: &str) -> Vec<String> {
    let text =
        format!("It is [{figure}][x], `[1][y]`.\n```text\n[1][z]\n```\n\n[x]: ../bench/results/{mark}\n");
    let tree = Tree::of(&[("docs/a.md", &text)]);
    let read = |file: &str| match file {
        "a.json" => Ok(JSON.to_owned()),
        "a.txt" => Ok(TEXT.to_owned()),
        _ => Err("it is not there".to_owned()),
    };
    check(tree.source("docs/a.md").unwrap(), &read).iter().map(ToString::to_string).collect()
}

#[test]
fn a_figure_is_the_one_of_the_row_that_it_names() {
    for (figure, mark) in [
        ("23 MB/s", "a.json \"a, b | plain | p50\""),
        ("0.0231 GB/s", "a.json \"a, b | plain | p50\""),
        ("551 times", "a.json \"a, b | fast / plain | median\""),
        ("3 of 3", "a.json \"note | seed\""),
        ("99.7 ns/page", "a.txt \"960 MiB | a | off | p50\""),
        ("1.005", "a.txt \"a | on / off | median\""),
        ("0.9", "a.txt \"a | on / off | low\""),
        ("3", "a.txt \"b | off | p50\""),
        ("11 MiB", "a.txt \"note | a: \""),
    ] {
        assert_eq!(told(figure, mark), Vec::<String>::new());
    }
}

#[test]
fn a_wrong_figure_and_a_row_that_is_gone_are_found() {
    for (figure, mark, words) in [
        ("24 MB/s", "a.json \"a, b | plain | p50\"", "it is 23"),
        ("23 ms", "a.json \"a, b | plain | p50\"", "0 rows"),
        ("23 MB/s", "a.json \"a, c | plain | p50\"", "0 rows"),
        ("23 MB/s", "a.json \"a, b | plain | p99\"", "no such field"),
        ("23 MB/s", "a.json \"a, b | plain\"", "name a row"),
        ("3 of", "a.json \"note | grain\"", "no such note"),
        ("3 of 3 wer", "a.json \"note | seed\"", "no such note"),
        ("99.7 ns/page", "a.txt \"a | off | p50\"", "2 rows"),
        ("23 MB/s", "b.json \"a, b | plain | p50\"", "not there"),
    ] {
        let told = told(figure, mark);
        assert!(
            matches!(told.as_slice(), [only] if only.starts_with("docs/a.md:1: ") && only.contains(words)),
            "{told:?}"
        );
    }
}

#[test]
fn a_mark_without_a_figure_and_a_figure_without_a_mark_are_found() {
    let tree = Tree::of(&[("a.md", "[1][x]\n[y]: bench/results/a.json \"a | b | p50\"\n")]);
    let told = check(tree.source("a.md").unwrap(), &|_| Ok(JSON.to_owned()));
    let lines: Vec<usize> = told.iter().map(|one| one.line).collect();
    assert_eq!(lines, [2, 1], "{told:?}");
}
