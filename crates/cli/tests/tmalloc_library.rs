//! Programs that allocate by libtmalloc, under a real daemon and a line: told no, and not killed.
#![cfg(test)]

mod support;

use plimsoll_sys::bpf::AccountFacts;
use rustix::process::Signal;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use support::{Fixture, program::Program};

/// Who allocates.
const USER: u32 = 60_300;

/// Before every script: the library.
const LIBRARY: &str = r#"
lib = ctypes.CDLL(LIBRARY, use_errno=True)
lib.tmalloc.restype = lib.tmalloc_wait.restype = ctypes.c_void_p
lib.tmalloc.argtypes = [ctypes.c_size_t]
lib.tmalloc_wait.argtypes = [ctypes.c_size_t, ctypes.c_int]
lib.tfree.argtypes = [ctypes.c_void_p]
lib.tmalloc_headroom.restype = ctypes.c_size_t
MIB = 1 << 20
def take(size):
    p = lib.tmalloc(size)
    if p is not None: ctypes.memset(p, 1, size)
    return p
def take_all(size):
    got = []
    while (p := take(size)) is not None: got.append(p)
    return got
def give(got):
    for p in got: lib.tfree(p)
"#;

/// Cargo builds the library beside this test.
fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join(name)
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tmalloc").join(path)
}

fn script(fixture: &Fixture, user: u32, script: &str) -> Program {
    let library = fixture.path("libtmalloc.so");
    if !library.exists() {
        fs::copy(built("libtmalloc.so"), &library).unwrap();
    }
    fixture.python(user, &format!("LIBRARY = {library:?}\n{LIBRARY}{script}"))
}

/// The example in C, which takes pieces until it is told no.
fn compile_pieces(fixture: &Fixture) -> PathBuf {
    let program = fixture.path("pieces");
    let status = Command::new("cc")
        .args(["-O2", "-I"])
        .arg(source("include"))
        .arg(source("examples/pieces.c"))
        .arg(built("libtmalloc.a"))
        .args(["-lgcc_s", "-lpthread", "-ldl", "-o"])
        .arg(&program)
        .status()
        .unwrap();
    assert!(status.success());
    program
}

/// The run that the idea was shown by: processes that each want a gigabyte under a line of 16 MiB.
#[test]
fn whoever_asks_for_a_gigabyte_under_sixteen_mebibytes_is_told_no_and_ends_well() {
    let fixture = fixture!();
    let program = compile_pieces(&fixture);
    for processes in [1, 4, 8] {
        fixture.limit(USER, "16M", &["--action", "kill"]);
        let mut running: Vec<Program> = (0..processes)
            .map(|_| {
                Program::of(fixture.as_user(USER, program.to_str().unwrap()).args(["1000000000", "45056"]))
            })
            .collect();
        for one in &mut running {
            let told = one.line();
            assert!(told.contains("Cannot allocate memory after"), "{told}");
            println!("{processes} processes: {told}");
        }
        for one in &mut running {
            let status = one.end();
            assert!(status.success(), "{status}");
        }
        let AccountFacts { peak, hard, .. } = fixture.facts(USER);
        println!("{processes} processes: the most that was used: {peak} of {hard} pages");
        assert!(peak <= hard, "{peak} pages of {hard}");
        fixture.assert_nothing_reserved(USER);
        fixture.assert_nobody_killed();
    }
}

#[test]
fn what_lies_idle_in_one_program_is_had_by_another() {
    let fixture = fixture!();
    fixture.limit(USER, "128M", &["--action", "kill"]);
    let idle = "blocks = [take(20000) for _ in range(3000)]\nkept = blocks.pop()\ngive(blocks)\nsay(None in blocks)\nhear()\n\
                say(take(MIB) is not None)\nhear()\n";
    let mut idle = script(&fixture, USER, idle);
    assert_eq!(idle.line(), "False");
    let mut asker = script(
        &fixture,
        USER,
        "p = take(80 * MIB)\nsay(p is not None)\nhear()\ngive([p])\nsay('freed')\nhear()\n",
    );
    assert_eq!(asker.line(), "True");
    asker.tell("");
    assert_eq!(asker.line(), "freed");
    idle.tell("");
    assert_eq!(idle.line(), "True");
    fixture.assert_nothing_reserved(USER);
    fixture.assert_nobody_killed();
}

#[test]
fn a_program_lives_on_through_a_daemon_that_is_killed() {
    let mut fixture = fixture!();
    fixture.limit(USER, "96M", &["--action", "kill"]);
    let lives = "first = [take(50000) for _ in range(200)]\nsay(None in first)\nhear()\nsay(take(10 * MIB))\nhear()\n\
                 p = lib.tmalloc_wait(10 * MIB, 20000)\nsay(p is not None)\nhear()\ngive(first + [p])\n\
                 say(len(take_all(MIB)) > 30)\nhear()\n";
    let mut program = script(&fixture, USER, lives);
    assert_eq!(program.line(), "False");
    fixture.end_daemon(Signal::KILL);
    program.tell("");
    assert_eq!(program.line(), "None");
    fixture.launch();
    program.tell("");
    assert_eq!(program.line(), "True");
    program.tell("");
    assert_eq!(program.line(), "True");
    let AccountFacts { peak, hard, .. } = fixture.facts(USER);
    assert!(peak <= hard, "{peak} pages of {hard}");
    program.tell("");
    fixture.assert_nothing_reserved(USER);
    fixture.assert_nobody_killed();
}

#[test]
fn who_waits_is_served_when_another_frees() {
    let fixture = fixture!();
    fixture.limit(USER, "96M", &["--action", "kill"]);
    let mut holder = script(
        &fixture,
        USER,
        "got = [take(MIB) for _ in range(50)]\nsay(None in got)\nhear()\ngive(got)\nhear()\n",
    );
    assert_eq!(holder.line(), "False");
    let waits = "say(lib.tmalloc_wait(40 * MIB, 100))\nsay('waits')\nsay(lib.tmalloc_wait(40 * MIB, -1) is not None)\nhear()\n";
    let mut waiter = script(&fixture, USER, waits);
    assert_eq!((waiter.line(), waiter.line()), ("None".to_owned(), "waits".to_owned()));
    holder.tell("");
    assert_eq!(waiter.line(), "True");
    fixture.assert_nothing_reserved(USER);
    fixture.assert_nobody_killed();
}
