//! Set-up on a system without apt names what is missing and changes nothing. With apt it takes the first compiler that is
//! new enough: the one that is there, the distribution's under any name, rustup's.
#![cfg(test)]

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
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
fn checking_needs_more_than_building_and_less_than_testing() {
    let output = setup(&bare_path("setup-bare-check", &[]), "check");
    let told = String::from_utf8(output.stderr).unwrap();
    for package in ["clang-format", "procps", "shellcheck"] {
        assert!(told.contains(package), "{package} is not in: {told}");
    }
    assert!(!told.contains("stress-ng"), "checking takes no memory: {told}");
}

#[test]
fn an_unknown_purpose_is_refused() {
    let output = setup(&bare_path("setup-purpose", &[]), "everything");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("'everything'"));
}

/// A tree of its own with set-up in it, a distribution whose apt knows what the test says, and nothing else in PATH.
struct Distribution {
    folder: PathBuf,
}

impl Distribution {
    /// `offers`: packages and their versions.
    fn new(name: &str, offers: &[(&str, &str)]) -> Distribution {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir_all(folder.join("tree/tools")).unwrap();
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for file in ["Cargo.toml", "rust-toolchain.toml", "tools/setup.sh"] {
            fs::copy(tree.join(file), folder.join("tree").join(file)).unwrap();
        }
        let path = bare_path(
            &format!("{name}/bin"),
            &["chmod", "env", "grep", "ln", "readlink", "rm", "shellcheck"],
        );
        let offers: String =
            offers.iter().map(|(package, version)| format!("{package} {version}\n")).collect();
        fs::write(folder.join("offers"), offers).unwrap();
        let distribution = Distribution { folder };
        for present in ["cc", "clang", "clang-format", "pkg-config", "ps"] {
            distribution.program(&path.join(present), "");
        }
        fs::remove_file(path.join("id")).unwrap();
        distribution.program(&path.join("id"), "echo 0");
        distribution.program(&path.join("apt-cache"), APT_CACHE);
        distribution.program(&path.join("apt-get"), APT_GET);
        distribution
            .program(&path.join("dpkg"), r#"case $2 in */cargo) cat "$FOLDER/owner" ;; *) exit 1 ;; esac"#);
        distribution
    }

    fn program(&self, path: &Path, body: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bash = self.folder.join("bin/bash");
        fs::write(path, format!("#!{}\nFOLDER={}\n{body}\n", bash.display(), self.folder.display())).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn cargo(&self, version: &str) {
        self.program(&self.folder.join("bin/cargo"), &format!("echo cargo {version}"));
    }

    /// Runs set-up with the search path that make gives it; returns its status, and what it wrote.
    fn set_up(&self, purpose: &str) -> (Option<i32>, String) {
        let [chosen, path] = ["tree/target/tools/rust", "bin"].map(|part| self.folder.join(part));
        let output = Command::new(path.join("bash"))
            .arg(self.folder.join("tree/tools/setup.sh"))
            .arg(purpose)
            .env_clear()
            .env("PATH", env::join_paths([chosen, path]).unwrap())
            .env("HOME", &self.folder)
            .output()
            .unwrap();
        let told = [output.stdout, output.stderr].map(|part| String::from_utf8(part).unwrap()).concat();
        (output.status.code(), told)
    }

    /// What apt installed, one call a line.
    fn installed(&self) -> String {
        fs::read_to_string(self.folder.join("installed")).unwrap_or_default()
    }

    fn chosen(&self) -> Option<PathBuf> {
        fs::read_link(self.folder.join("tree/target/tools/rust")).ok()
    }
}

const APT_CACHE: &str = r#"
case $1 in
pkgnames) awk -v prefix="$2" 'index($1, prefix) == 1 { print $1 }' "$FOLDER/offers" ;;
policy) awk -v name="$2" '$1 == name { print name ":\n  Installed: (none)\n  Candidate: " $2 }' "$FOLDER/offers" ;;
esac"#;

/// Simulates with -s, and fails then for what `refused` names. What it installs prints its version, cargos with a number
/// in their names into folders of their own.
const APT_GET: &str = r#"
packages=""
for argument in "$@"; do
    case $argument in
    -s) simulated=yes ;;
    -* | install | update) ;;
    *) packages="$packages $argument" ;;
    esac
done
[ "$1" = install ] || exit 0
if [ -n "$simulated" ]; then
    [ ! -e "$FOLDER/refused" ] || ! grep -q "^${packages# }\$" "$FOLDER/refused"
    exit
fi
echo "${packages# }" >>"$FOLDER/installed"
for package in $packages; do
    version=$(awk -v name="$package" '$1 == name { sub(/[+-].*/, "", $2); print $2 }' "$FOLDER/offers")
    file=""
    case $package in
    cargo-[0-9]*) file=$FOLDER/lib/rust-${package#cargo-}/bin/cargo ;;
    cargo*) file=$FOLDER/bin/cargo ;;
    rustup)
        printf '#!%s\necho 1.95.0-x86_64-unknown-linux-gnu\n' "$BASH" >"$FOLDER/bin/rustup"
        chmod 755 "$FOLDER/bin/rustup"
        file=$FOLDER/bin/cargo version=1.95.0
        ;;
    rustc-[0-9]*) ln -s "../lib/rust-${package#rustc-}/bin/cargo" "$FOLDER/bin/$package" ;;
    esac
    [ -n "$file" ] || continue
    mkdir -p "${file%/*}"
    printf '#!%s\n[ "$1" = --version ] && echo cargo %s\n' "$BASH" "$version" >"$file"
    chmod 755 "$file"
done"#;

/// Debian 12 as it is: what is called rustc is old.
const DEBIAN_12: [(&str, &str); 4] = [
    ("rustc", "1.63.0+dfsg1-2"),
    ("cargo", "0.66.0+ds1-1"),
    ("rustc-web", "1.96.0+dfsg1-1~deb12u2"),
    ("cargo-web", "1.96.0+dfsg1-1~deb12u2"),
];

#[test]
fn a_cargo_that_is_new_enough_is_taken_and_nothing_installed() {
    let distribution = Distribution::new("setup-there", &DEBIAN_12);
    distribution.cargo("1.99.0");
    assert_eq!(distribution.set_up("build"), (Some(0), String::new()));
    assert_eq!((distribution.installed(), distribution.chosen()), (String::new(), None));
}

#[test]
fn a_compiler_of_another_name_is_found_in_the_distribution() {
    let distribution = Distribution::new("setup-web", &DEBIAN_12);
    let (status, told) = distribution.set_up("build");
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(distribution.installed(), "rustc-web cargo-web\n");
}

#[test]
fn the_newest_of_the_compilers_with_numbers_is_chosen_and_led_to() {
    let offers = [
        ("rustc", "1.75.0+dfsg0ubuntu1-0ubuntu7.4"),
        ("cargo", "1.75.0+dfsg0ubuntu1-0ubuntu7.4"),
        ("rustc-1.9", "1.9.0-1"),
        ("cargo-1.9", "1.9.0-1"),
        ("rustc-1.97", "1.97.1+dfsg~24.04-0ubuntu1"),
        ("cargo-1.97", "1.97.1+dfsg~24.04-0ubuntu1"),
        ("rustc-1.100", "1.100.0-1"),
        ("cargo-1.100", "1:1.100.0-1"),
        // Has no cargo.
        ("rustc-1.101", "1.101.0-1"),
        ("rustup", "1.26.0-5"),
    ];
    let distribution = Distribution::new("setup-numbers", &offers);
    distribution.cargo("1.75.0");
    let (status, told) = distribution.set_up("build");
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(distribution.installed(), "rustc-1.100 cargo-1.100\n");
    let folder = distribution.folder.join("lib/rust-1.100/bin");
    assert_eq!(distribution.chosen(), Some(folder.clone()));
    // It is there by the next time, though PATH has only the old one.
    assert_eq!(distribution.set_up("build"), (Some(0), String::new()));
    assert_eq!(distribution.chosen(), Some(folder));
    distribution.cargo("1.99.0");
    assert_eq!(distribution.set_up("build"), (Some(0), String::new()));
    assert_eq!(distribution.chosen(), None, "the one in PATH is new enough by now");
}

#[test]
fn rustup_is_taken_where_every_compiler_is_too_old() {
    let offers = [("rustc", "1.85.1-1"), ("cargo", "1.85.1-1"), ("rustup", "1.27.1-3")];
    let distribution = Distribution::new("setup-rustup", &offers);
    let (status, told) = distribution.set_up("build");
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(distribution.installed(), "rustup\n");
}

#[test]
fn without_any_of_these_it_says_how_to_install_rustup() {
    let distribution = Distribution::new("setup-by-hand", &DEBIAN_12[..2]);
    distribution.cargo("1.63.0");
    let (status, told) = distribution.set_up("build");
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("found 1.63.0") && told.contains("rustup-init.sh"), "{told}");
    assert_eq!(distribution.installed(), "");
}

#[test]
fn a_compiler_that_would_remove_packages_is_left_to_the_administrator() {
    let distribution = Distribution::new("setup-in-the-way", &DEBIAN_12);
    fs::write(distribution.folder.join("refused"), "rustc-web cargo-web\n").unwrap();
    let (status, told) = distribution.set_up("build");
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("apt-get install rustc-web cargo-web"), "{told}");
    assert_eq!(distribution.installed(), "");
}

#[test]
fn lints_are_those_of_the_compiler_in_use() {
    let mut offers = DEBIAN_12.to_vec();
    offers.extend([("rust-clippy", "1.63.0"), ("rustfmt", "1.63.0"), ("rust-web-clippy", "1.96.0")]);
    let distribution = Distribution::new("setup-lints", &offers);
    fs::write(distribution.folder.join("owner"), "cargo-web: /usr/bin/cargo\n").unwrap();
    let (status, told) = distribution.set_up("check");
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(distribution.installed(), "rustc-web cargo-web\nrust-web-clippy\n");
    assert!(told.contains("what is missing is skipped"), "nothing is left out in silence: {told}");
}
