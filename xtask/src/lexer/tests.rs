use super::{Split, split};
use crate::tree::Language;

fn rust(text: &str) -> Split {
    split(text, Language::Rust)
}

#[test]
fn comments_and_code_part_and_lines_stay() {
    let halves = rust("let a = 1; // why\n/* two\nlines */ let b;\n");
    assert_eq!(halves.code, "let a = 1;       \n      \n         let b;\n");
    assert_eq!(halves.comments, "           // why\n/* two\nlines */       \n");
}

#[test]
fn text_in_literals_is_neither() {
    let halves = rust(r##"f("// not", 'x', '\'', r#"/* "not" */"#, br"\", b"\"") // yes"##);
    assert!(!halves.code.contains("not") && !halves.comments.contains("not"), "{halves:?}");
    assert!(halves.comments.trim_start().starts_with("// yes"), "{halves:?}");
}

#[test]
fn lifetimes_and_raw_names_are_code() {
    let halves = rust("fn f<'a>(r#type: &'a str) {} // yes");
    assert!(halves.code.starts_with("fn f<'a>(r#type: &'a str) {}"), "{halves:?}");
}

#[test]
fn rust_nests_comments_and_c_does_not() {
    let text = "/* /* */ code */";
    assert!(!rust(text).code.contains("code"));
    assert!(split(text, Language::C).code.contains("code"));
}

#[test]
fn an_unclosed_comment_or_string_ends_with_the_text() {
    assert_eq!(rust("/* open").comments, "/* open");
    assert_eq!(rust("\"open\\").code.trim(), "");
}
