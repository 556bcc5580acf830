//! `plimsoll notify`: who is told of an incident, by which way, and what becomes of it when the daemon is started again.
#![cfg(test)]

mod fake_daemon;
mod support;

use fake_daemon::{FakeDaemon, incident, own_uid};
use nix::pty::{OpenptyResult, openpty};
use plimsoll_daemon::api::server::Server;
use serde_json::Value;
use std::{
    fs::{self, File, Permissions},
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};
use support::{ALICE, program::PYTHON, skip, until};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);
/// It has asked for the newest incident by then: what comes later is told.
const BEGUN: Duration = Duration::from_millis(500);

struct Scene {
    folder: TempDir,
    daemon: Arc<FakeDaemon>,
    server: Option<Server>,
    notifier: Option<Child>,
}

impl Scene {
    /// With three incidents that happened before.
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let daemon = Arc::new(FakeDaemon::new(3));
        let mut scene = Self { folder, daemon, server: None, notifier: None };
        scene.serve();
        scene
    }

    fn serve(&mut self) {
        let control = Arc::clone(&self.daemon);
        self.server = Some(Server::start(&self.path("control.sock"), control).unwrap());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn notify(&mut self, arguments: &[&str]) {
        let notifier = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("notify")
            .args(arguments)
            .env("PLIMSOLL_SOCKET", self.path("control.sock"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.notifier = Some(notifier);
        thread::sleep(BEGUN);
    }

    /// One more incident.
    fn happens(&self) {
        let mut incidents = self.daemon.incidents.lock().unwrap();
        let id = u32::try_from(incidents.len()).unwrap() + 1;
        incidents.push(incident(id));
    }

    /// A command that keeps each notice in a file of its own.
    fn keeper(&self) -> String {
        format!("cat > \"$(mktemp '{}/notice.XXXXXX')\"", self.folder.path().display())
    }

    fn notices(&self) -> Vec<Value> {
        let entries = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let kept = entries.filter(|path| path.to_string_lossy().contains("/notice."));
        // One may be half written.
        kept.filter_map(|path| serde_json::from_slice(&fs::read(path).unwrap()).ok()).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut notifier) = self.notifier.take() {
            notifier.kill().unwrap();
            notifier.wait().unwrap();
        }
    }
}

#[test]
fn a_command_is_told_of_what_happens_from_now_on_and_once_a_minute() {
    let mut scene = Scene::new();
    let keeper = scene.keeper();
    scene.notify(&["--command", "sh", "-c", &keeper]);
    assert!(scene.notices().is_empty(), "what was before is not told");
    scene.happens();
    let notice = until("the notice", SOON, || scene.notices().into_iter().next());
    assert_eq!(notice["incident"]["id"], 4);
    assert_eq!(notice["uid"], own_uid());
    assert_eq!(notice["more"], 0);
    let text = notice["text"].as_str().unwrap();
    assert!(text.contains("was killed") && text.contains("plimsoll why 4"), "{text}");
    for _ in 0..100 {
        scene.happens();
    }
    thread::sleep(BEGUN);
    assert_eq!(scene.notices().len(), 1, "the next one comes after a minute");
}

#[test]
fn it_goes_on_when_the_daemon_is_started_again() {
    let mut scene = Scene::new();
    let keeper = scene.keeper();
    scene.notify(&["--command", "sh", "-c", &keeper]);
    scene.server.take().unwrap().stop();
    // While nobody answers.
    scene.happens();
    thread::sleep(BEGUN);
    scene.serve();
    let notice = until("the notice", SOON, || scene.notices().into_iter().next());
    assert_eq!(notice["incident"]["id"], 4);
}

/// A terminal of this user's, and what is written to it.
struct Terminal {
    _slave: File,
    master: File,
}

impl Terminal {
    fn open(mode: u32) -> Self {
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let slave = File::from(slave);
        slave.set_permissions(Permissions::from_mode(mode)).unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        Self { _slave: slave, master: File::from(master) }
    }

    fn written(&mut self) -> String {
        let mut some = [0; 4096];
        let mut all = String::new();
        while let Ok(count) = self.master.read(&mut some)
            && count > 0
        {
            all.push_str(&String::from_utf8_lossy(&some[..count]));
        }
        all
    }
}

#[test]
fn terminals_are_written_to_unless_they_refuse_messages() {
    if !Path::new("/dev/pts/ptmx").exists() {
        return skip("there is no /dev/pts here");
    }
    let (mut open, mut closed) = (Terminal::open(0o620), Terminal::open(0o600));
    let mut scene = Scene::new();
    scene.notify(&["--terminals"]);
    scene.happens();
    let mut shown = String::new();
    until("the text", SOON, || {
        shown.push_str(&open.written());
        shown.contains("plimsoll why 4").then_some(())
    });
    assert!(shown.contains("A process of yours was killed"), "{shown:?}");
    assert_eq!(closed.written(), "");
}

#[test]
fn without_a_daemon_it_says_so_and_ends() {
    let folder = TempDir::new().unwrap();
    let told = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["notify", "--terminals"])
        .env("PLIMSOLL_SOCKET", folder.path().join("nobody"))
        .output()
        .unwrap();
    assert_eq!(told.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&told.stderr).contains("not running"));
}

/// What mail(1) and its like do with a message: the subject, the text, and what is attached.
const READ_MAIL: &str = "\
import email, email.policy, json, sys
mail = email.message_from_binary_file(open(sys.argv[1], 'rb'), policy=email.policy.default)
page = next(mail.iter_attachments())
text = mail.get_body(['plain']).get_content()
print(json.dumps([mail['To'], mail['Subject'], text, page.get_filename(), page.get_content()]))
";

#[test]
fn the_documented_mail_has_the_story_and_the_page_with_the_plot() {
    let fixture = fixture!();
    fixture.limit(ALICE, "64M", &[]);
    fixture.workload(ALICE, "bloat", &["--mebibytes=96", "--no-thp"]).killed();
    let incident = fixture.incidents(1)[0].clone();
    let page = include_str!("../../../docs/notices.md");
    let (_, recipe) = page.split_once("#!/usr/bin/python3\n").unwrap();
    let (recipe, _) = recipe.split_once("```").unwrap();
    fs::write(fixture.path("plimsoll-mail"), recipe).unwrap();
    let folder = fixture.path("");
    let sendmail = format!("#!/bin/sh\n[ \"$*\" = '-t -i' ] && exec cat > '{}/mail'\n", folder.display());
    fs::write(fixture.path("sendmail"), sendmail).unwrap();
    fs::set_permissions(fixture.path("sendmail"), Permissions::from_mode(0o755)).unwrap();
    drop(fixture.plimsoll_as(ALICE));
    let notice = serde_json::json!({
        "uid": ALICE, "name": "alice", "title": "A process of yours was killed: memory",
        "text": "User alice was over the line.\n", "more": 0, "incident": incident, "near": null,
    });
    fs::write(fixture.path("notice"), notice.to_string()).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let sent = Command::new(PYTHON)
        .arg(fixture.path("plimsoll-mail"))
        .env("PATH", path)
        .env("PLIMSOLL_SOCKET", fixture.path("socket"))
        .stdin(File::open(fixture.path("notice")).unwrap())
        .status();
    assert!(sent.unwrap().success());
    let read = Command::new(PYTHON).args(["-c", READ_MAIL]).arg(fixture.path("mail")).output().unwrap();
    let [to, subject, text, name, page]: [String; 5] =
        serde_json::from_slice(&read.stdout).unwrap_or_else(|_| panic!("{read:?}"));
    assert_eq!((to.as_str(), subject.as_str()), ("alice", "A process of yours was killed: memory"));
    assert_eq!(text, "User alice was over the line.\n");
    assert_eq!(name, format!("incident-{}.html", incident["id"]));
    let victim = incident["victims"][0]["pid"].to_string();
    assert!(page.contains("<svg") && page.contains(&victim), "{page}");
}
