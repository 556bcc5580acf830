//! Metrics of a daemon at work: what a kill adds to them, who is told of whom, and that a flood of clients holds up neither a
//! kill nor a scraper.
#![cfg(test)]

mod support;

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use support::{ALICE, Fixture, SOON, skip, until};

/// Both transports of one daemon.
struct Served {
    fixture: Fixture,
    socket: PathBuf,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("metrics.sock");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!("[metrics]\nlisten = [\"{}\", \"127.0.0.1:{port}\"]\n", socket.display());
        let fixture = Fixture::start(&config, &[])?;
        Some(Self { fixture, socket, port, _folder: folder })
    }

    fn over_port(&self) -> String {
        let stream = self.connect();
        stream.set_read_timeout(Some(SOON)).unwrap();
        scrape(stream)
    }

    fn over_socket(&self) -> String {
        scrape(UnixStream::connect(&self.socket).unwrap())
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }

    /// A sample of the page for root.
    fn sample(&self, name: &str) -> Option<f64> {
        let page = self.over_socket();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    fn hog(&self) {
        self.fixture.workload(ALICE, "bloat", &["--mebibytes=96", "--no-thp"]).killed();
    }
}

fn scrape(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body.to_owned()
}

const TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What `promtool` says; `None`: there is none, which is said.
#[track_caller]
fn promtool(arguments: &[&str], input: &str) -> Option<String> {
    let unpacked = Path::new(TREE).join("target/tools/usr/bin/promtool");
    let program = if unpacked.exists() { unpacked } else { PathBuf::from("promtool") };
    let started = Command::new(program)
        .args(arguments)
        .current_dir(Path::new(TREE).join("packaging/prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        skip("there is no promtool (tools/setup.sh test)");
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(output.status.success(), "promtool {arguments:?}: {told}");
    Some(told)
}

#[test]
fn a_kill_is_counted_and_a_port_tells_of_no_user() {
    let Some(served) = Served::start() else { return };
    assert_eq!(fs::metadata(&served.socket).unwrap().permissions().mode() & 0o777, 0o600);
    served.fixture.limit(ALICE, "64M", &[]);
    let (kills, user) = ("plimsoll_incidents_total{action=\"kill\",guard=\"limits\"}", ALICE.to_string());
    assert_eq!(served.sample(kills), Some(0.0));
    served.hog();
    until("the kill is counted", SOON, || served.sample(kills).filter(|count| *count == 1.0));
    until("its memory is back", SOON, || {
        served.sample("plimsoll_signal_to_freed_seconds_count").filter(|count| *count >= 1.0)
    });
    let of_user = |name: &str| format!("plimsoll_account_{name}{{kind=\"user\",user=\"{user}\"}}");
    assert_eq!(served.sample(&of_user("hard_bytes")), Some(f64::from(64 << 20)));
    assert_eq!(served.sample(&of_user("kills_total")), Some(1.0));
    assert!(served.sample("plimsoll_cross_to_signal_seconds_count{trigger=\"in-kernel\"}") >= Some(1.0));
    assert!(served.sample("plimsoll_cpu_seconds_total") > Some(0.0));
    let of_machine = served.over_port();
    assert!(of_machine.contains(&format!("\n{kills} 1\n")), "{of_machine}");
    assert!(!of_machine.contains(&user) && !of_machine.contains("kind=\"user\""), "{of_machine}");
    for page in [of_machine, served.over_socket()] {
        // Its remarks on names leave the status as it is.
        assert_eq!(promtool(&["check", "metrics"], &page).unwrap_or_default(), "");
    }
}

#[test]
fn clients_that_flood_or_hang_delay_neither_a_kill_nor_a_scraper() {
    let Some(served) = Served::start() else { return };
    served.fixture.limit(ALICE, "64M", &[]);
    let silent: Vec<TcpStream> = (0..100).map(|_| served.connect()).collect();
    let mut endless = served.connect();
    // It is cut at that, sooner or later.
    drop(endless.write_all(&vec![b'x'; 1 << 20]));
    served.hog();
    let took = served.fixture.incidents(1)[0]["cross_to_signal_ns"].as_u64().unwrap();
    assert!(Duration::from_nanos(took) < Duration::from_secs(1), "{took} ns");
    let began = Instant::now();
    assert!(served.over_port().contains("plimsoll_build_info"));
    assert!(served.over_socket().contains("plimsoll_build_info"));
    assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    drop(silent);
}

#[test]
fn the_alert_rules_ask_for_what_there_is_and_fire_when_they_are_to() {
    let rules = fs::read_to_string(Path::new(TREE).join("packaging/prometheus/plimsoll.rules.yml")).unwrap();
    let docs = fs::read_to_string(Path::new(TREE).join("docs/metrics.md")).unwrap();
    let words = rules.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
    let names: Vec<&str> = words.filter(|word| word.starts_with("plimsoll_")).collect();
    assert!(!names.is_empty());
    for name in names {
        assert!(docs.contains(&format!("| `{name}` |")), "{name} is not in docs/metrics.md");
    }
    if promtool(&["check", "rules", "plimsoll.rules.yml"], "").is_some() {
        promtool(&["test", "rules", "plimsoll.rules.test.yml"], "");
    }
}
