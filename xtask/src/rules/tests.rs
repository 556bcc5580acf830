use super::*;

/// The messages of one rule over these files, each as `path:line: message`.
fn told(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
    rule(&Tree::of(files)).iter().map(ToString::to_string).collect()
}

/// One finding, about this place, with these words in it.
fn assert_one(found: &[String], place: &str, words: &str) {
    assert!(
        matches!(found, [only] if only.starts_with(place) && only.contains(words)),
        "expected one finding '{place}...{words}', found {found:?}"
    );
}

#[test]
fn a_file_of_801_lines_is_too_long_and_one_of_800_is_not() {
    assert!(told(sizes::check, &[("a.rs", &"\n".repeat(800))]).is_empty());
    assert_one(&told(sizes::check, &[("a.rs", &"\n".repeat(801))]), "a.rs: ", "801 lines");
}

#[test]
fn a_message_may_be_as_long_as_it_has_to_be_but_not_the_code_around_it() {
    let message = format!("    say(\"{}\");", "x".repeat(150));
    assert!(told(sizes::check, &[("a.rs", &message)]).is_empty());
    let code = format!("    say(\"x\", {});", "x".repeat(150));
    assert_eq!(told(sizes::check, &[("a.rs", &code)]).len(), 1);
}

#[test]
fn a_line_of_129_columns_is_too_long_and_a_tab_counts_to_the_next_stop() {
    let line = "x".repeat(128);
    assert!(told(sizes::check, &[("a.rs", &line)]).is_empty());
    assert_one(&told(sizes::check, &[("a.rs", &format!("\n{line}y"))]), "a.rs:2: ", "129 columns");
    assert!(told(sizes::check, &[("a.c", &format!("a\t{}", "x".repeat(120)))]).is_empty());
    assert_one(&told(sizes::check, &[("a.c", &format!("a\t{}", "x".repeat(121)))]), "a.c:1: ", "129");
    assert!(told(sizes::check, &[("a.md", &format!("{line}y"))]).is_empty());
}

#[test]
fn unfinished_work_is_found_where_it_is_written_and_not_where_it_is_spoken_of() {
    for (path, text) in [
        ("a.rs", "fn f() { todo!() }"),
        ("a.rs", "fn f() { unimplemented!(\"later\") }"),
        ("a.rs", "// FIXME"),
        ("a.c", "/* XXX: why */"),
        ("a.rs", "/// TODO tell more"),
        ("tools/a.sh", "# TODO(someone): mend"),
        ("Makefile", "# TODO(#): mend"),
    ] {
        assert_one(&told(words::check, &[(path, text)]), &format!("{path}:1: "), "");
    }
    for (path, text) in [
        ("a.rs", "let a = \"FIXME todo!()\";"),
        ("a.rs", "// TODO(#12): see the issue"),
        ("a.rs", "// todo!() is not allowed; XXXX is a name"),
        ("a.sh", "mktemp /tmp/a.XXXXXX"),
        ("a.md", "no TODO without an issue"),
    ] {
        assert!(told(words::check, &[(path, text)]).is_empty(), "{path}: {text}");
    }
}

#[test]
fn an_ignored_test_is_found() {
    assert_one(
        &told(words::check, &[("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}")]),
        "a.rs:2: ",
        "ignored",
    );
    assert!(told(words::check, &[("a.rs", "let ignore = 1; // #[ignore]")]).is_empty());
}

#[test]
fn unsafe_is_for_sys_and_tmalloc() {
    let text = "pub unsafe fn f() {}";
    assert_one(
        &told(words::check, &[("crates/daemon/src/a.rs", text)]),
        "crates/daemon/src/a.rs:1: ",
        "unsafe",
    );
    assert!(
        told(words::check, &[("crates/sys/src/a.rs", text), ("crates/tmalloc/src/a.rs", text)]).is_empty()
    );
    assert!(told(words::check, &[("a.rs", "#![forbid(unsafe_code)] // nothing unsafe")]).is_empty());
}

#[test]
fn names_that_say_nothing_are_found_in_files_and_folders() {
    assert_one(&told(names::check, &[("a/memory_manager.rs", "")]), "a/memory_manager.rs: ", "manager");
    assert_one(&told(names::check, &[("a/common/mod.rs", "")]), "a/common: ", "common");
    assert!(told(names::check, &[("a/commonwealth.rs", "")]).is_empty());
}

const LICENCE_TEXTS: [(&str, &str); 4] =
    [("LICENSE-APACHE", ""), ("LICENSE-MIT", ""), ("bpf/LICENSE-GPL-2.0", ""), ("bpf/LICENSE-MIT", "")];

fn with_licence_texts<'a>(file: (&'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
    LICENCE_TEXTS.into_iter().chain([file]).collect()
}

#[test]
fn each_kind_of_file_names_its_own_licence() {
    let bpf = "/* SPDX-License-Identifier: GPL-2.0 OR MIT */";
    let rest = "// SPDX-License-Identifier: Apache-2.0 OR MIT";
    for (path, text) in [
        ("bpf/a.bpf.c", bpf),
        ("lab/workloads/a.c", rest),
        ("tools/a.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0 OR MIT"),
        ("crates/a/Cargo.toml", "[package]\nlicense.workspace = true"),
        ("fuzz/Cargo.toml", "[package]\nlicense = \"Apache-2.0 OR MIT\""),
    ] {
        assert!(told(licences::check, &with_licence_texts((path, text))).is_empty(), "{path}");
    }
    for (path, text) in [
        ("bpf/a.bpf.c", rest),
        ("bpf/wire/a.h", "#pragma once"),
        ("lab/workloads/a.c", bpf),
        ("tools/a.sh", "#!/bin/sh\n\n# SPDX-License-Identifier: Apache-2.0 OR MIT"),
        ("crates/a/Cargo.toml", "[package]\nlicense = \"MIT\""),
    ] {
        assert_one(&told(licences::check, &with_licence_texts((path, text))), path, "licence");
    }
}

#[test]
fn a_missing_licence_text_is_found() {
    assert_one(&told(licences::check, LICENCE_TEXTS.get(1..).unwrap()), "LICENSE-APACHE: ", "missing");
}

#[test]
fn a_dead_link_is_found_and_a_live_one_is_not() {
    let page = "[a](b.md) [up](../README.md#tour) [web](https://example.org/x) [here](#top) [dir](..) `[c](no.md)`\n\
                ```\n[code](no.md)\n```\n";
    let files = [("docs/a.md", page), ("docs/b.md", ""), ("README.md", "")];
    assert!(told(links::check, &files).is_empty());
    assert_one(&told(links::check, &[("docs/a.md", "\n[a](c.md)")]), "docs/a.md:2: ", "c.md");
    assert_one(&told(links::check, &[("docs/a.md", "[a](../../c.md)")]), "docs/a.md:1: ", "c.md");
    assert_one(&told(links::check, &[("docs/a.md", "[a]: c.json \"b | c\"")]), "docs/a.md:1: ", "c.json");
}

const CHANGELOG: &str = "# Changelog\n\n## [Unreleased]\n\n### Added\n- a\n\n## [0.2.0] - 2026-12-01\n### Fixed\n- b\n\
                         \n## [0.1.0] - 2026-11-21\n";

#[test]
fn a_changelog_in_form_passes_and_each_breach_is_found() {
    assert!(told(changelog::check, &[("CHANGELOG.md", CHANGELOG)]).is_empty());
    for (from, to, words) in [
        ("# Changelog", "# Changes", "first line"),
        ("Added", "New", "unknown kind 'New'"),
        ("2026-12-01", "December", "is not '[X.Y.Z] - YYYY-MM-DD'"),
        ("0.2.0", "0.0.9", "newest release first"),
        ("### Added\n", "", "outside of a kind"),
    ] {
        let text = CHANGELOG.replace(from, to);
        assert_one(&told(changelog::check, &[("CHANGELOG.md", &text)]), "CHANGELOG.md:", words);
    }
    assert_one(&told(changelog::check, &[]), "CHANGELOG.md: ", "missing");
    let text = CHANGELOG.replace("## [Unreleased]", "");
    assert!(!told(changelog::check, &[("CHANGELOG.md", &text)]).is_empty());
}

fn manifest(name: &str, dependencies: &str) -> String {
    format!("[package]\nname = \"{name}\"\n\n{dependencies}\n")
}

#[test]
fn dependencies_point_one_way() {
    for (from, dependency) in [
        ("plimsoll-wire", "[dependencies]\nplimsoll-policy.workspace = true"),
        ("plimsoll", "[dependencies]\nplimsoll-bench = { workspace = true }\nserde = \"1\""),
        ("plimsoll-daemon", "[features]\nplimsoll = []"),
    ] {
        let text = manifest(from, dependency);
        assert!(told(directions::check, &[("crates/a/Cargo.toml", &text)]).is_empty(), "{text}");
    }
    for (from, dependency) in [
        ("plimsoll-policy", "[dependencies]\nplimsoll-wire.workspace = true"),
        ("plimsoll-wire", "[dev-dependencies]\nplimsoll-sys = { path = \"../sys\" }"),
        ("plimsoll-sys", "[target.'cfg(unix)'.dependencies]\ndaemon = { package = \"plimsoll-daemon\" }"),
        ("plimsoll-daemon", "[build-dependencies]\nplimsoll-bench.workspace = true"),
        ("plimsoll-daemon", "[dependencies]\nplimsoll-new.workspace = true"),
        ("newcomer", "[dependencies]\nplimsoll-sys.workspace = true"),
    ] {
        let text = manifest(from, dependency);
        assert_one(
            &told(directions::check, &[("crates/a/Cargo.toml", &text)]),
            "crates/a/Cargo.toml:5: ",
            "",
        );
    }
}

#[test]
fn everyday_commands_need_neither_the_daemon_nor_what_it_is_made_of() {
    let uses =
        |path: &str, name: &str| told(directions::check, &[(path, &format!("use {name}::client::Client;"))]);
    assert!(uses("crates/cli/src/commands/why.rs", "plimsoll_api").is_empty());
    assert!(uses("crates/cli/src/commands/demo/guard.rs", "plimsoll_daemon").is_empty());
    assert!(uses("crates/cli/src/commands/why/tests.rs", "plimsoll_daemon").is_empty());
    for heavy in ["plimsoll_bench", "plimsoll_daemon", "plimsoll_sys", "plimsoll_wire"] {
        assert_one(
            &uses("crates/cli/src/commands/why.rs", heavy),
            "crates/cli/src/commands/why.rs:1: ",
            heavy,
        );
    }
}

#[test]
fn a_generated_page_names_a_source_that_exists() {
    let code = ("crates/a/keys.rs", "");
    let page = |mark| [code, ("a.md", mark)];
    assert!(
        told(generated::check, &page("# A\n\n<!-- Generated from crates/a/keys.rs. To renew it: x -->"))
            .is_empty()
    );
    assert!(told(generated::check, &page("# A\n")).is_empty());
    let gone = "<!-- Generated from crates/b/keys.rs. To renew it: x -->";
    assert_one(&told(generated::check, &page(gone)), "a.md:1: ", "crates/b/keys.rs");
    assert_one(&told(generated::check, &page("# A\n<!-- Generated by hand -->")), "a.md:2: ", "made from");
}

/// A crate whose modules import these.
fn crate_of<'a>(files: &'a [(&'a str, &'a str)]) -> Vec<String> {
    let root = ("crates/a/src/lib.rs", "mod a; mod b; mod c; mod d;");
    told(circles::check, &[&[root], files].concat())
}

#[test]
fn four_files_that_import_each_other_are_one_too_many() {
    let three = [
        ("crates/a/src/a.rs", "use crate::b::B;"),
        ("crates/a/src/b.rs", "use super::c::C;"),
        ("crates/a/src/c.rs", "fn f() { crate::a::g() }"),
    ];
    assert!(crate_of(&three).is_empty());
    let closes =
        [("crates/a/src/c.rs", "fn f() { told!(crate::d::D) }"), ("crates/a/src/d.rs", "use crate::a;")];
    let four = [&three[..2], closes.as_slice()].concat();
    assert_one(&crate_of(&four), "crates/a/src/a.rs: ", "4 files import each other");
    // Without one of the arrows there is no way round.
    assert!(crate_of(&four[..3]).is_empty());
}

#[test]
fn a_name_that_is_passed_on_leads_to_where_it_is_from() {
    let passed = |of_a: &'static str| {
        crate_of(&[
            ("crates/a/src/a.rs", of_a),
            ("crates/a/src/a/one.rs", "use super::Two;"),
            ("crates/a/src/a/two.rs", "use crate::b::B;"),
            ("crates/a/src/b.rs", "use crate::c::C;"),
            ("crates/a/src/c.rs", "use crate::a::One;"),
        ])
    };
    assert!(passed("mod one; mod two; pub use one::One; pub use two::Two;").len() == 1, "one, two, b, c");
    assert!(passed("mod one; mod two; pub use one::One; struct Two;").is_empty(), "two is not imported");
}

#[test]
fn what_tests_import_is_nobody_s_concern() {
    let mut files = vec![
        ("crates/a/src/a.rs", "use crate::b::B; #[cfg(test)] mod tests;"),
        ("crates/a/src/a/tests.rs", "use crate::d::D;"),
        ("crates/a/src/b.rs", "use crate::c::C;"),
        ("crates/a/src/c.rs", "use crate::d::D;"),
        ("crates/a/src/d.rs", "#[cfg(test)] use crate::a::A;"),
    ];
    assert!(crate_of(&files).is_empty());
    files[4] = ("crates/a/src/d.rs", "use crate::a::A;");
    assert_eq!(crate_of(&files).len(), 1);
}
