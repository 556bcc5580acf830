//! `plimsoll run --tmalloc`: programs that were not written for libtmalloc are told no at the line, and not killed.
#![cfg(test)]

mod support;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use support::Fixture;

/// Who runs them.
const USER: u32 = 60_310;

/// Cargo builds the library beside this test.
fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join(name)
}

/// A folder of the user's, with the program and the library beside each other.
fn place(fixture: &Fixture) -> PathBuf {
    let folder = fixture.path("home");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_plimsoll"), folder.join("plimsoll")).unwrap();
    fs::copy(built("libtmalloc_preload.so"), folder.join("libtmalloc_preload.so")).unwrap();
    folder
}

/// Runs a program by `plimsoll run --tmalloc`, in that folder.
fn run(fixture: &Fixture, folder: &Path, command: &[&str]) -> Output {
    let mut plimsoll = fixture.as_user(USER, folder.join("plimsoll"));
    plimsoll.args(["run", "--tmalloc", "--"]).args(command);
    outcome(&mut plimsoll, folder)
}

/// What comes of a command in that folder, which may read `large`.
fn outcome(command: &mut Command, folder: &Path) -> Output {
    if let Ok(large) = fs::File::open(folder.join("large")) {
        command.stdin(large);
    }
    command.current_dir(folder).env("HOME", folder).output().unwrap()
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// One of the programs in `preloaded`.
fn compiled(folder: &Path, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/preloaded/{name}.c"));
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fno-builtin", "-w", "-o"]).arg(&program).arg(source).arg("-lpthread");
    assert!(cc.status().unwrap().success());
    program
}

/// A preloaded program, without `plimsoll run` before it, which would take memory as well.
fn preloaded(fixture: &Fixture, user: u32, folder: &Path, program: impl AsRef<Path>) -> Command {
    let mut command = fixture.as_user(user, program);
    command.env("LD_PRELOAD", folder.join("libtmalloc_preload.so"));
    command
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// A program, and what it says when there is no memory for it.
struct Case {
    command: Vec<&'static str>,
    refused: &'static str,
}

fn cases() -> Vec<Case> {
    let python = "import sys\nkept = {}\nfor i in range(400000): kept[i] = str(i)\nprint(len(kept))";
    let block = "print(len(b'x' * (100 << 20)))";
    let sql = "create table t(a, b); with recursive c(x) as (select 1 union all select x+1 from c where x<600000) \
               insert into t select x, hex(x*7919) from c; select count(*), sum(length(b)) from t;";
    let gcc = ["gcc", "-x", "c++", "-O1", "-S", "-o", "-", "template.cc"];
    [
        (vec!["/usr/bin/python3", "-c", python], "MemoryError"),
        (vec!["/usr/bin/python3", "-c", block], "MemoryError"),
        (vec!["sqlite3", ":memory:", "-cmd", "pragma cache_size=-400000", sql], "out of memory"),
        (vec!["git", "stripspace"], "memory"),
        (gcc.to_vec(), "memory"),
    ]
    .into_iter()
    .map(|(command, refused)| Case { command, refused })
    .collect()
}

/// What the cases read.
fn prepare(folder: &Path) {
    let units: String = (0..120).map(|i| format!("template struct S<{i}>;\n")).collect();
    let template = "#include <map>\n#include <string>\n#include <vector>\ntemplate <int N> struct S { std::map<std::string, \
                    std::vector<int>> m; void f() { m[std::to_string(N)].push_back(N); } };\n";
    fs::write(folder.join("template.cc"), format!("{template}{units}")).unwrap();
    let large: Vec<u8> = (0..40_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.join("large"), large).unwrap();
}

#[test]
fn programs_do_as_ever_below_their_line_and_are_told_no_at_it() {
    let fixture = fixture!();
    let folder = place(&fixture);
    prepare(&folder);
    for Case { command, refused } in cases() {
        if !is_there(command[0]) {
            support::skip(format!("there is no {} here", command[0]));
            continue;
        }
        fixture.limit(USER, "1G", &["--action", "kill"]);
        let plain = outcome(fixture.as_user(USER, command[0]).args(&command[1..]), &folder);
        assert!(plain.status.success(), "{command:?}: {}", told(&plain));
        let below = run(&fixture, &folder, &command);
        assert_eq!((below.status.code(), &below.stdout), (Some(0), &plain.stdout), "{}", told(&below));
        fixture.limit(USER, "16M", &["--action", "kill"]);
        let at = run(&fixture, &folder, &command);
        assert!(!at.status.success() && at.status.code().is_some(), "{command:?}: {:?}", at.status);
        assert!(told(&at).contains(refused), "{command:?}: {}", told(&at));
        fixture.assert_nothing_reserved(USER);
        fixture.assert_nobody_killed();
    }
}

#[test]
fn malloc_and_mmap_do_what_programs_expect_of_them_with_a_daemon_and_without() {
    let fixture = fixture!();
    let folder = place(&fixture);
    let program = compiled(&folder, "family");
    let program = program.to_str().unwrap();
    fixture.limit(USER, "512M", &["--action", "kill"]);
    let granted = run(&fixture, &folder, &[program]);
    assert_eq!(told(&granted), "well\n", "{:?}", granted.status);
    let without = run(&fixture, &folder, &[program, "no environment"]);
    assert_eq!(told(&without), "well\n", "{:?}", without.status);
    let first_ends = run(&fixture, &folder, &[program, "first thread ends"]);
    assert_eq!((told(&first_ends).as_str(), first_ends.status.code()), ("well\n", Some(0)));
    fixture.assert_nothing_reserved(USER);
    let mut alone = Command::new(folder.join("plimsoll"));
    alone.args(["run", "--tmalloc", "--", program]).env("TMALLOC_WITHOUT_DAEMON", "pass");
    let alone = alone.env("PLIMSOLL_SOCKET", "/nonexistent/socket").output().unwrap();
    assert_eq!(told(&alone), "well\n", "{:?}", alone.status);
}

#[test]
fn a_crowd_of_one_users_is_told_no_and_another_user_is_none_the_wiser() {
    const OTHER: u32 = 60_311;
    let fixture = fixture!();
    let folder = place(&fixture);
    let program = compiled(&folder, "crowd");
    fixture.limit(USER, "128M", &["--action", "kill"]);
    fixture.limit(OTHER, "64M", &["--action", "kill"]);
    let mut crowd: Vec<_> = (0..300)
        .map(|_| preloaded(&fixture, USER, &folder, &program).stdin(Stdio::piped()).spawn().unwrap())
        .collect();
    let mut other = preloaded(&fixture, OTHER, &folder, &program);
    assert_eq!(other.stdin(Stdio::null()).status().unwrap().code(), Some(0));
    crowd.iter_mut().for_each(|one| drop(one.stdin.take()));
    let ends: Vec<_> = crowd.iter_mut().map(|one| one.wait().unwrap()).collect();
    let with = |code| ends.iter().filter(|status| status.code() == Some(code)).count();
    assert!(with(0) > 0 && with(3) > 0 && with(0) + with(3) == ends.len(), "{ends:?}");
    fixture.assert_nothing_reserved(USER);
    fixture.assert_nobody_killed();
}

#[test]
fn a_program_that_is_content_with_little_asks_nobody() {
    let fixture = fixture!();
    let folder = place(&fixture);
    fixture.limit(USER, "64M", &["--action", "kill"]);
    let granted = || fixture.json(&["status"])["guards"]["tmalloc"]["granted"].as_u64().unwrap();
    let shell =
        preloaded(&fixture, USER, &folder, "sh").args(["-c", "true; echo $((1 + 1))"]).output().unwrap();
    assert_eq!((told(&shell).as_str(), granted()), ("2\n", 0));
    let program = compiled(&folder, "crowd");
    assert!(preloaded(&fixture, USER, &folder, program).stdin(Stdio::null()).status().unwrap().success());
    assert!(granted() > 0);
}

#[test]
fn the_library_as_it_is_installed_has_the_functions_that_it_replaces_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libtmalloc-preload.so");
    let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tmalloc/link.sh");
    let linked = Command::new(link).arg(built("libtmalloc_preload.a")).arg(&library).output().unwrap();
    assert!(linked.status.success(), "{}", told(&linked));
    let symbols = told(&Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap());
    let symbols: Vec<_> = symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let wanted = "aligned_alloc calloc free malloc malloc_usable_size memalign mmap mmap64 mremap munmap posix_memalign \
                  pvalloc realloc reallocarray valloc";
    assert_eq!(symbols.join(" "), wanted);
    let dynamic = told(&Command::new("readelf").arg("-d").arg(&library).output().unwrap());
    assert!(dynamic.contains("soname: [libtmalloc-preload.so]") && dynamic.contains("NODELETE"), "{dynamic}");
    assert!(!dynamic.contains("libgcc_s"), "{dynamic}");
}

#[test]
fn run_ends_as_the_program_does_and_says_why_it_did_not_start_it() {
    let fixture = fixture!();
    let folder = place(&fixture);
    let ends = |command: &[&str]| {
        let output = run(&fixture, &folder, command);
        (output.status.code(), told(&output))
    };
    assert_eq!(ends(&["sh", "-c", "exit 7"]), (Some(7), String::new()));
    let (status, why) = ends(&["no-such-program-here"]);
    assert!(status == Some(127) && why.contains("'no-such-program-here' is not found"), "{why}");
    fs::write(folder.join("text"), "no program").unwrap();
    let (status, why) = ends(&["./text"]);
    assert!(status == Some(126) && why.contains("cannot be executed"), "{why}");
    fs::write(folder.join("empty.c"), "int main(void) { return 0; }\n").unwrap();
    let made = Command::new("cc").args(["-static", "-o", "static", "empty.c"]).current_dir(&folder).status();
    if made.is_ok_and(|status| status.success()) {
        let (status, why) = ends(&["./static"]);
        assert!(status == Some(125) && why.contains("is statically linked"), "{why}");
    } else {
        support::skip("there is no static C library here");
    }
    let mut without = Command::new(folder.join("plimsoll"));
    without.args(["run", "--tmalloc", "--", "true"]).env("PLIMSOLL_SOCKET", "/nonexistent/socket");
    let without = without.output().unwrap();
    assert!(
        without.status.code() == Some(125) && told(&without).contains("no daemon grants"),
        "{}",
        told(&without)
    );
}
