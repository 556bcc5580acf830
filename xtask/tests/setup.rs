//! Set-up on a system without apt names what is missing and changes nothing.
#![expect(clippy::tests_outside_test_module, reason = "an integration test has no module to put them in")]
#![expect(
    clippy::unwrap_used,
    reason = "clippy knows tests by their attribute, and not the functions they share"
)]

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const SETUP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tools/setup.sh");
/// What the script itself is made of; everything else is missing for it.
const SHELL_TOOLS: [&str; 13] =
    ["awk", "bash", "cat", "dirname", "head", "id", "mkdir", "printf", "sed", "sort", "tail", "tr", "uname"];

/// A folder to be the only one in PATH.
fn bare_path(name: &str, with: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    for tool in SHELL_TOOLS.iter().chain(with) {
        let real = env::split_paths(&env::var_os("PATH").unwrap())
            .map(|path| path.join(tool))
            .find(|path| path.exists());
        if let Some(real) = real {
            symlink(real, folder.join(tool)).unwrap();
        }
    }
    folder
}

fn setup(path: &Path, purpose: &str) -> Output {
    let bash = path.join("bash");
    Command::new(bash)
        .arg(SETUP)
        .arg(purpose)
        .env_clear()
        .env("PATH", path)
        .env("HOME", path)
        .output()
        .unwrap()
}

#[test]
fn without_apt_it_names_what_is_missing_in_one_line() {
    let output = setup(&bare_path("setup-bare", &[]), "build");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    for package in ["clang", "gcc", "pkg-config"] {
        assert!(told.contains(package), "{package} is not in: {told}");
    }
    assert!(!told.contains("stress-ng"), "building needs no test tools: {told}");
}

#[test]
fn testing_needs_more_than_building() {
    let output = setup(&bare_path("setup-bare-test", &[]), "test");
    let told = String::from_utf8(output.stderr).unwrap();
    for package in ["clang-format", "shellcheck", "stress-ng"] {
        assert!(told.contains(package), "{package} is not in: {told}");
    }
}

#[test]
fn an_unknown_purpose_is_refused() {
    let output = setup(&bare_path("setup-purpose", &[]), "everything");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("'everything'"));
}
