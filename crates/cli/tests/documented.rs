//! What README.md and the pages of docs/ show is what is printed: each block of commands is run, and what it prints is compared
//! with the block after it. CONTRIBUTING.md tells how blocks are tagged, and what may differ.
#![cfg(test)]

mod support;

use plimsoll_daemon::config;
use rustix::process::Signal;
use std::{
    fmt::Write as _,
    fs,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        process::ExitStatusExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use support::{
    Fixture,
    apart::{apart, etc},
    program::PYTHON,
    wait_for,
};

/// The user whom the pages call alice.
const ALICE: u32 = 60_222;

/// The killed process's number in the pages, for which the test's own is put.
const VICTIM: &str = "12842";

/// Without a machine guard that could act here, and with lines for the users of tests only.
const CONFIG: &str = "[machine]\nterm_memory = 0.1\nkill_memory = 0.1\nnotice = false\nreclaim = false\n\
    [limits]\nuid_min = 60000\nuid_max = 60999\n";

/// The machine's users in the pages: alice, in the group staff.
const ETC: [(&str, &str); 3] = [
    ("passwd", "root:x:0:0::/root:/bin/sh\nalice:x:60222:60222::/:/bin/sh\n"),
    ("group", "root:x:0:\nalice:x:60222:\nstaff:x:60250:alice\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\n"),
];

/// `sudo` for a root who may have none: as root, or as alice.
const SUDO: &str = "#!/bin/sh\n[ \"$1\" = -u ] || exec \"$@\"\nuser=$(id -u \"$2\")\nshift 2\n\
    exec setpriv --reuid \"$user\" --regid \"$user\" --clear-groups -- \"$@\"\n";

/// A fenced block of a page.
#[derive(Debug, Clone, Copy)]
struct Block<'a> {
    page: &'a str,
    line: usize,
    /// What stands behind the opening fence.
    tag: &'a str,
    text: &'a str,
    /// Whether nothing but empty lines stands between this block and the one before.
    follows: bool,
}

/// What is to be done with a block.
#[derive(Debug, PartialEq)]
enum Use<'a> {
    Commands,
    Config,
    Output,
    Left(&'a str),
}

impl<'a> Block<'a> {
    fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    fn use_of(&self) -> Result<Use<'a>, String> {
        if let Some((_language, why)) = self.tag.split_once(" no-run: ") {
            return Ok(Use::Left(why));
        }
        match self.tag {
            "sh run" => Ok(Use::Commands),
            "toml run" => Ok(Use::Config),
            "text" => Ok(Use::Output),
            tag => Err(format!("the tag '{tag}' says neither 'run' nor 'no-run: WHY'")),
        }
    }
}

fn blocks<'a>(page: &'a str, text: &'a str) -> Vec<Block<'a>> {
    let (mut found, mut at, mut follows) = (Vec::new(), 0, false);
    let mut open: Option<(usize, &str, usize)> = None;
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        match (line.trim().strip_prefix("```"), open) {
            (Some(tag), None) => open = Some((number, tag, at + line.len())),
            (Some(_), Some((line, tag, from))) => {
                found.push(Block { page, line, tag, text: &text[from..at], follows });
                (open, follows) = (None, true);
            }
            (None, None) => follows &= line.trim().is_empty(),
            (None, Some(_)) => {}
        }
        at += line.len();
    }
    assert!(open.is_none(), "{page}: the block at {open:?} has no end");
    found
}

/// A line without what may differ: each number, the unit behind it, names in quotes, bars, the width of columns.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for (index, part) in line.split('"').enumerate() {
        if index % 2 == 1 {
            shape.push_str("\"NAME\"");
            continue;
        }
        let mut after_number = false;
        for word in part.split_whitespace() {
            let bare = word.trim_end_matches(['.', ',', ';', ':', ')']);
            let is_unit = after_number && ["bytes", "KiB", "MiB", "GiB", "us", "ms", "s"].contains(&bare);
            let is_bar =
                word.len() > 2 && word.starts_with('[') && bare.trim_matches(['[', '#', '.', ']']).is_empty();
            match (is_unit, is_bar) {
                (true, _) => write!(shape, " UNIT{}", &word[bare.len()..]).unwrap(),
                (_, true) => shape.push_str(" [BAR]"),
                (false, false) => write!(shape, " {}", without_numbers(word)).unwrap(),
            }
            after_number = bare.ends_with(|last: char| last.is_ascii_digit());
        }
    }
    shape.trim().to_owned()
}

fn without_numbers(word: &str) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(start) = rest.find(|one: char| one.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let end = number.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        write!(out, "{before}0{}", if number.ends_with('.') { "." } else { "" }).unwrap();
        rest = after;
    }
    out + rest
}

/// Whether a command printed what its page shows. A line `...` stands for any lines, `...` at a line's end for its rest.
fn compare(shown: &str, printed: &str) -> Result<(), String> {
    let mut lines = printed.lines();
    let mut skips = false;
    for line in shown.lines() {
        if line == "..." {
            skips = true;
            continue;
        }
        let (wanted, cut) = line.strip_suffix("...").map_or((line, false), |part| (part, true));
        let wanted = shape(wanted);
        let fits = |one: &str| if cut { shape(one).starts_with(&wanted) } else { shape(one) == wanted };
        let found = if skips { lines.any(fits) } else { lines.next().is_some_and(fits) };
        if !found {
            return Err(format!("shown: {line}\nprinted:\n{printed}"));
        }
        skips = false;
    }
    match lines.next() {
        Some(line) if !skips => Err(format!("not shown: {line}\nprinted:\n{printed}")),
        Some(_) | None => Ok(()),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Text and name of README.md, then of the pages of docs/.
fn pages() -> Vec<(String, String)> {
    let listed = fs::read_dir(root().join("docs")).unwrap();
    let mut names: Vec<String> = listed
        .map(|entry| format!("docs/{}", entry.unwrap().file_name().into_string().unwrap()))
        .filter(|name| name.ends_with(".md"))
        .collect();
    names.sort();
    names.insert(0, "README.md".to_owned());
    let read = |name: String| (fs::read_to_string(root().join(&name)).unwrap(), name);
    names.into_iter().map(read).collect()
}

/// A terminal in which the pages' commands are typed.
struct Terminal {
    fixture: Fixture,
    folder: PathBuf,
}

impl Terminal {
    fn open(fixture: Fixture) -> Self {
        let folder = fixture.path("typed");
        fs::create_dir_all(folder.join("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_plimsoll"), folder.join("bin/plimsoll")).unwrap();
        fs::write(folder.join("bin/sudo"), SUDO).unwrap();
        fs::set_permissions(folder.join("bin/sudo"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(root().join("fuzz/corpus/oom/arm64-5.10-binder-order3-wrapped"), folder.join("kern.log"))
            .unwrap();
        symlink(root().join("docs"), folder.join("docs")).unwrap();
        Self { fixture, folder }
    }

    /// What it prints, with what a shell says of a command that was killed.
    fn types(&self, command: &str) -> Result<String, String> {
        let victim = self.fixture.history().first().map(|one| one["victims"][0]["pid"].to_string());
        let command = victim.map_or_else(|| command.to_owned(), |pid| command.replace(VICTIM, &pid));
        let ran = Command::new("timeout")
            .args(["60", "bash", "-o", "pipefail", "-c", &format!("exec 2>&1\n{command}")])
            .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.folder.join("bin").display()))
            .env("PLIMSOLL_SOCKET", self.fixture.path("socket"))
            .env("TZ", "UTC")
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let mut printed = String::from_utf8(ran.stdout).unwrap();
        match (ran.status.code(), ran.status.signal()) {
            (Some(0), _) => {}
            (Some(137), _) | (_, Some(9)) => {
                printed.push_str("Killed\n");
                wait_for("the memory is back", || {
                    self.fixture.history().iter().all(|one| !one["signal_to_freed_ns"].is_null())
                });
            }
            ended => return Err(format!("{command}: {ended:?}\n{printed}")),
        }
        Ok(printed)
    }

    fn types_all(&self, commands: &str) -> Result<String, String> {
        commands.lines().map(|line| self.types(line)).collect()
    }
}

/// Does with each block what its tag says: a line for each, with what is wrong where something is.
fn check(blocks: &[Block<'_>], terminal: &Terminal) -> Vec<Result<String, String>> {
    let mut printed = None;
    let mut check = |block: &Block<'_>| {
        let last: Option<String> = printed.take().filter(|_| block.follows);
        match block.use_of()? {
            Use::Commands => printed = Some(terminal.types_all(block.text)?),
            Use::Config => loaded(block.text, &terminal.folder)?,
            Use::Output => compare(block.text, &last.ok_or("no block of commands stands before it")?)?,
            Use::Left(why) => return Ok(format!("not run: {}: {why}", block.place())),
        }
        Ok(format!("run: {}", block.place()))
    };
    blocks
        .iter()
        .map(|block| check(block).map_err(|what: String| format!("{}: {what}", block.place())))
        .collect()
}

/// A part of the configuration: the daemon must take it.
fn loaded(text: &str, folder: &Path) -> Result<(), String> {
    let main = folder.join("shown.toml");
    fs::write(&main, text).unwrap();
    let places =
        config::Places { main, main_required: true, drop_ins: None, login_defs: folder.join("login.defs") };
    config::load(&places).map(drop).map_err(|error| error.to_string())
}

fn run_pages() {
    let _etc = etc(&ETC);
    let fixture = fixture!();
    fixture.owns(ALICE);
    fs::write(fixture.path("plimsoll.toml"), CONFIG).unwrap();
    fixture.signal(Signal::HUP);
    wait_for("the machine is guarded", || fixture.status()["guards"]["pressure"]["state"] == "on");
    let terminal = Terminal::open(fixture);
    let checked = pages().into_iter().flat_map(|(text, page)| check(&blocks(&page, &text), &terminal));
    let (told, wrong): (Vec<_>, Vec<_>) = checked.partition(Result::is_ok);
    let told: Vec<String> = told.into_iter().flatten().collect();
    let run = told.iter().filter(|one| one.starts_with("run: ")).count();
    println!("\n{run} blocks were run, {} were not:\n{}", told.len() - run, told.join("\n"));
    let wrong: Vec<String> = wrong.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn what_the_pages_show_is_what_is_printed() {
    if !Path::new(PYTHON).exists() {
        return support::skip(format_args!("it runs {PYTHON}"));
    }
    apart(run_pages);
}

#[test]
fn a_false_word_is_found_and_another_number_is_not() {
    let printed = "Process 7 (\"a b\") was killed; 1.0 GiB were back 900.2 us later.\nNAME  USED\nbob   2\n  [##..] end\n";
    for shown in [
        printed,
        "Process 12842 (\"python3\") was killed; 20 KiB were back 3 s later.\nNAME USED\nbob  17\n[#...] end\n",
        "Process 7 (\"a\") was killed; ...\n...\n  [##..] end\n",
        "...\nNAME  USED\n...\n",
    ] {
        assert_eq!(compare(shown, printed), Ok(()));
    }
    for (shown, named) in [
        (printed.replace("killed", "ended"), "shown: Process"),
        (printed.replace("bob", "eve"), "shown: eve"),
        (printed.replace("  USED", ""), "shown: NAME"),
        (printed.replace("  [##..] end\n", ""), "not shown:   [##..] end"),
        (format!("{printed}more\n"), "shown: more"),
        ("...\nNAME  USED\n".to_owned(), "not shown: bob"),
    ] {
        let wrong = compare(&shown, printed).unwrap_err();
        assert!(wrong.starts_with(named), "{wrong}");
    }
}

#[test]
fn each_block_says_what_is_done_with_it() {
    let page = "```sh run\na\nb\n```\n\n```text\nc\n```\nd\n```sh no-run: needs systemd\n```\n```toml run\n```\n```\ne\n```\n";
    let found = blocks("p", page);
    let uses: Vec<_> = found.iter().map(Block::use_of).collect();
    let untagged = "the tag '' says neither 'run' nor 'no-run: WHY'".to_owned();
    let wanted =
        [Ok(Use::Commands), Ok(Use::Output), Ok(Use::Left("needs systemd")), Ok(Use::Config), Err(untagged)];
    assert_eq!(uses, wanted);
    let [first, second, third, ..] = found.as_slice() else { unreachable!("{found:?}") };
    assert_eq!((first.text, second.text, second.follows, third.follows), ("a\nb\n", "c\n", true, false));
}
