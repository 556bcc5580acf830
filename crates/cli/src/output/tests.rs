use super::{counted, printable, wrapped};

#[test]
fn what_could_act_on_a_terminal_is_escaped_and_words_stay_as_they_are() {
    for (text, safe) in [
        ("plain 'words' \"quoted\" C:\\ jérôme", "plain 'words' \"quoted\" C:\\ jérôme"),
        ("two\nlines\tand\rmore", "two lines and more"),
        ("\u{1b}[2J", "\\u{1b}[2J"),
        ("a\u{202e}b", "a\\u{202e}b"),
    ] {
        assert_eq!(printable(text), safe);
    }
}

#[test]
fn one_is_singular() {
    assert_eq!(
        (counted(1, "process", "processes"), counted(0, "process", "processes")),
        ("1 process".into(), "0 processes".into())
    );
}

#[test]
fn a_word_longer_than_a_line_stands_alone() {
    assert_eq!(wrapped("a b cccccc d", 3), ["a b", "cccccc", "d"]);
}
