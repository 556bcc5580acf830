//! The library as others use it: its symbols, and the examples in C and Python.
#![cfg(test)]

mod fake;

use fake::Coordinator;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const MIB: u64 = 1 << 20;

/// Where cargo puts what it builds for tests: beside the test binary.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a command that must succeed, and gives what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {:?}\n{error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The library as it is installed, in a folder of its own.
fn link() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libtmalloc.so.0");
    // The tests' own build of the crate; a test is built after the library it links.
    let archive = static_library();
    run(Command::new(here("link.sh")).arg(archive).arg(&library));
    std::os::unix::fs::symlink("libtmalloc.so.0", folder.path().join("libtmalloc.so")).unwrap();
    folder
}

fn static_library() -> PathBuf {
    let plain = built().join("libtmalloc.a");
    assert!(plain.exists(), "{} is not built: cargo build -p plimsoll-tmalloc", plain.display());
    plain
}

/// What the header declares.
fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(here("include/tmalloc.h")).unwrap();
    let mut names: Vec<_> = header
        .lines()
        .filter(|line| line.contains('(') && line.ends_with(';') && !line.starts_with([' ', '\t', '/', '#']))
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next().map(str::to_owned))
        .collect();
    names.sort();
    names
}

#[test]
fn the_library_exports_what_its_header_declares_and_nothing_else() {
    let folder = link();
    let library = folder.path().join("libtmalloc.so.0");
    let symbols =
        run(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(&library));
    let mut exported: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| !name.starts_with("LIBTMALLOC"))
        .collect();
    exported.sort_unstable();
    let wanted: Vec<_> = declared().iter().map(|name| format!("{name}@@LIBTMALLOC_0.1")).collect();
    assert_eq!(wanted.len(), 15);
    assert_eq!(exported, wanted);
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("soname: [libtmalloc.so.0]") && dynamic.contains("NODELETE"), "{dynamic}");
    let plain = run(Command::new("nm").args(["-D", "--defined-only"]).arg(built().join("libtmalloc.so")));
    assert_eq!(plain.lines().count(), wanted.len(), "{plain}");
}

#[test]
fn the_example_in_c_is_told_no_and_ends_well() {
    let coordinator = Coordinator::start(16 * MIB);
    let folder = link();
    let program = folder.path().join("pieces");
    run(Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2"])
        .arg("-I")
        .arg(here("include"))
        .arg(here("examples/pieces.c"))
        .arg("-L")
        .arg(folder.path())
        .arg("-ltmalloc")
        .arg("-o")
        .arg(&program));
    let output = run(Command::new(&program)
        .env("LD_LIBRARY_PATH", folder.path())
        .env("PLIMSOLL_TMALLOC_SOCKET", coordinator.path()));
    assert!(output.contains("Cannot allocate memory after"), "{output}");
    assert!(coordinator.books().peak > 15 * MIB);
}

#[test]
fn the_example_in_python_is_told_no_and_ends_well() {
    let coordinator = Coordinator::start(16 * MIB);
    let folder = link();
    let output = run(Command::new("python3")
        .arg(here("examples/pieces.py"))
        .arg(folder.path().join("libtmalloc.so.0"))
        .env("PLIMSOLL_TMALLOC_SOCKET", coordinator.path()));
    assert!(output.contains("Cannot allocate memory after"), "{output}");
}

#[test]
fn a_c_plus_plus_program_can_use_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.cc");
    std::fs::write(&source, "#include <tmalloc.h>\nint main() { tfree(nullptr); }\n").unwrap();
    run(Command::new("c++")
        .args(["-fsyntax-only", "-Wall", "-Werror", "-I"])
        .arg(here("include"))
        .arg(source));
}

#[test]
fn the_manual_names_every_function() {
    let manual = std::fs::read_to_string(here("man/tmalloc.3")).unwrap();
    for name in declared() {
        assert!(manual.contains(&name), "{name} is not in the manual");
    }
}
