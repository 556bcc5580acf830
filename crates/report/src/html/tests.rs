use super::Html;

#[test]
fn text_never_becomes_markup_and_says_what_cannot_be_seen() {
    let mut html = Html::default();
    html.raw("<b title=\"")
        .text("a\"b'c")
        .raw("\">")
        .text("<script>&\u{202e}\u{0}\u{7f}\u{2028}\\ é 猫")
        .raw("</b>");
    assert_eq!(
        html.into_string(),
        "<b title=\"a&quot;b&#39;c\">&lt;script&gt;&amp;\\u{202e}\\0\\u{7f}\\u{2028}\\ é 猫</b>"
    );
}

#[test]
fn numbers_are_numbers() {
    let mut html = Html::default();
    assert!(html.is_empty());
    html.number(-5).raw(" ").number(u64::MAX);
    assert_eq!(html.into_string(), "-5 18446744073709551615");
}
