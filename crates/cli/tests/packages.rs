//! The Debian packages hold what `make install` puts into place, each file once, and lintian finds no fault with them.
#![cfg(test)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// What packages have besides: policy wants it.
const DOCUMENTS: [&str; 4] = ["changelog", "changelog.Debian", "copyright", "third-party-notices"];

fn is_there(program: &str) -> bool {
    let there = Path::new("/usr/bin").join(program).exists();
    if !there {
        support::skip(format_args!("{program} is not installed"));
    }
    there
}

fn ran(command: &mut Command) -> String {
    let output = command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {told}{}", String::from_utf8_lossy(&output.stderr));
    told
}

fn emptied(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Of the program and the libraries that are there: a release build takes too long.
static PACKAGES: LazyLock<Vec<PathBuf>> = LazyLock::new(|| {
    let folder = emptied("packages");
    ran(Command::new("packaging/deb.sh").arg(&folder).arg("debug")).lines().map(PathBuf::from).collect()
});

/// What is no folder, below this one, by name. A compressed manual is the manual.
fn names(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(names(&entry.path()));
        } else {
            let name = entry.file_name().into_string().unwrap();
            found.push(name.strip_suffix(".gz").map(str::to_owned).unwrap_or(name));
        }
    }
    found
}

#[test]
fn the_packages_hold_what_make_install_puts_into_place_and_each_file_once() {
    if !is_there("dh") {
        return;
    }
    let (installed, packed) = (emptied("installed"), emptied("packed"));
    ran(Command::new("make")
        .args(["install", "profile=debug"])
        .arg(format!("DESTDIR={}", installed.display())));
    for package in PACKAGES.iter() {
        let folder = packed.join(package.file_stem().unwrap());
        ran(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&folder));
    }
    let mut held = names(&packed);
    held.retain(|name| !DOCUMENTS.contains(&name.as_str()));
    held.sort();
    let mut wanted = names(&installed);
    wanted.sort();
    assert_eq!(held, wanted);
    assert_eq!(fs::read_dir(&packed).unwrap().count(), 3);
}

#[test]
fn lintian_finds_no_fault_with_the_packages() {
    if is_there("dh") && is_there("lintian") {
        let told = ran(Command::new("lintian").args(["--fail-on", "error,warning"]).args(PACKAGES.iter()));
        assert_eq!(told, "");
    }
}
