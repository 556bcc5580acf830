//! The server over a real socket: who is who, what a bad client costs, how it starts and stops.

use super::{Allowance, Server, StartError};
use crate::api::{
    client::{CallError, Client},
    control::{Control, HistoryQuery, Pick, Refusal, SetLimit, Standing},
    fake::{ALICE, BOB, Fake},
    frame::Patience,
    listener::ListenError,
    message::{ClearResult, GetIncident, HistoryCall, SetLimitCall},
    peer::Peer,
    seats::SeatLimits,
};
use plimsoll_policy::{
    account::AccountView,
    incident::Incident,
    lines::{Cleared, Target},
    size::Size,
    status::Status,
    units::{Bytes, Uid},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Barrier, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Far longer than anything here takes: what a test waits for before it fails.
const DEADLINE: Duration = Duration::from_secs(20);

struct Daemon {
    server: Option<Server>,
    fake: Arc<Fake>,
    socket: PathBuf,
    folder: TempDir,
}

fn daemon(allowance: Allowance) -> Daemon {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let socket = folder.path().join("run/control.sock");
    let fake = Fake::new();
    let server = Server::start_with(&socket, fake.clone(), allowance).unwrap();
    Daemon { server: Some(server), fake, socket, folder }
}

fn patient(total: usize) -> Allowance {
    Allowance {
        seats: SeatLimits { total, per_user: total, kept_for_root: 0 },
        patience: Patience { idle: DEADLINE, message: DEADLINE },
    }
}

fn hasty() -> Allowance {
    let short = Duration::from_millis(100);
    Allowance { patience: Patience { idle: short, message: short }, ..patient(2) }
}

impl Daemon {
    fn client(&self) -> Client {
        Client::connect(&self.socket).unwrap()
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn until(&self, what: &str, reached: impl Fn(&Server) -> bool) {
        let began = Instant::now();
        while !reached(self.server()) {
            assert!(began.elapsed() < DEADLINE, "{what}: {:?}", self.server().counts());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn reply(stream: &mut impl Read) -> Value {
    let mut bytes = Vec::new();
    BufReader::new(stream).read_until(0, &mut bytes).unwrap();
    assert_eq!(bytes.pop(), Some(0), "no reply");
    serde_json::from_slice(&bytes).unwrap()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A caller of another uid than root: this very test program, run again as uid 60001; where the tests do not run as
/// root, this process is one.
fn as_another_user(daemon: &Daemon, requests: &[Value]) -> (Uid, Vec<Value>) {
    if !is_root() {
        let uid = Uid(nix::unistd::geteuid().as_raw());
        return (uid, converse(&daemon.socket, requests));
    }
    // A copy, because the build folder may be out of that user's reach.
    let program = daemon.folder.path().join("another-user");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = Command::new(&program)
        .args(["api::server::tests::speak_for_another_user", "--exact", "--ignored", "--nocapture"])
        .env_clear()
        .env("PLIMSOLL_TEST_SOCKET", &daemon.socket)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .uid(ALICE.0)
        .gid(ALICE.0)
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for request in requests {
        writeln!(input, "{request}").unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // The test harness writes its own words on the same output, at times in front of ours.
    let replies = text.lines().filter_map(|line| Some(line.split_once("REPLY ")?.1));
    let replies: Vec<_> = replies.map(|json| serde_json::from_str(json).unwrap()).collect();
    assert_eq!(replies.len(), requests.len(), "{text}");
    (ALICE, replies)
}

fn converse(socket: &Path, requests: &[Value]) -> Vec<Value> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let ask = |request: &Value| {
        write!(stream, "{request}\0").unwrap();
        reply(&mut stream)
    };
    requests.iter().map(ask).collect()
}

#[test]
#[ignore = "the other half of `as_another_user`, which runs it in a process of its own"]
fn speak_for_another_user() {
    let socket = PathBuf::from(std::env::var_os("PLIMSOLL_TEST_SOCKET").unwrap());
    let requests: Vec<_> =
        std::io::stdin().lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    for reply in converse(&socket, &requests) {
        println!("\nREPLY {reply}");
    }
}

fn call(method: &str, parameters: Value) -> Value {
    json!({"method": format!("io.plimsoll.{method}"), "parameters": parameters})
}

#[test]
fn each_call_as_another_user_is_refused_or_redacted() {
    let daemon = daemon(Allowance::SERVER);
    let others = format!("user:{}", BOB.0);
    let (uid, replies) = as_another_user(
        &daemon,
        &[
            call("ShowLimits", json!({"who": others})),
            call("SetLimit", json!({"who": others, "hard": "64M", "now": true})),
            call("SetLimit", json!({"who": "default", "hard": "64M"})),
            call("SetLimit", json!({"who": "user:0", "hard": "64M"})),
            call("ClearLimit", json!({"who": others})),
            call("ClearLimit", json!({"who": "default"})),
            // What a client claims to be is not even a parameter.
            call("ClearLimit", json!({"who": others, "uid": 0})),
            call("GetIncident", json!({"id": 2})),
            call("GetIncident", json!({"pid": 4000 + BOB.0})),
            call("Status", json!({})),
            call("ShowLimits", json!({})),
            call("History", json!({})),
        ],
    );
    for refused in &replies[..6] {
        assert_eq!(refused["error"], "io.plimsoll.NotPermitted", "{refused}");
    }
    assert_eq!(replies[6]["error"], "io.plimsoll.Invalid");
    for hidden in &replies[7..9] {
        assert_eq!(hidden["error"], "io.plimsoll.NotFound", "{hidden}");
    }
    for list in &replies[9..11] {
        let accounts = list["parameters"]["accounts"].as_array().unwrap();
        assert!(accounts.iter().all(|account| account["account"] == format!("user:{uid}")), "{list}");
    }
    let all = replies[11].to_string();
    assert!(!all.contains("secret-of=60002") && !all.contains("secret-of=0"), "{all}");
    let allowed = ["incident by", "status by", "limits by", "history by"];
    let calls = daemon.fake.calls();
    assert!(calls.iter().all(|call| allowed.iter().any(|start| call.starts_with(start))), "{calls:?}");
    assert!(calls.iter().all(|call| call.ends_with(&format!(" {uid}"))), "{calls:?}");
}

#[test]
fn another_user_sets_and_clears_a_line_of_their_own() {
    let daemon = daemon(Allowance::SERVER);
    let uid = if is_root() { ALICE } else { Uid(nix::unistd::geteuid().as_raw()) };
    let own = format!("user:{}", uid.0);
    let (_, replies) = as_another_user(
        &daemon,
        &[
            call("SetLimit", json!({"who": own, "hard": "64M"})),
            call("SetLimit", json!({"who": own, "hard": "3G"})),
            call("ShowLimits", json!({"who": own})),
            call("ClearLimit", json!({"who": own})),
        ],
    );
    assert_eq!(replies[0]["parameters"]["accounts"][0]["hard_bytes"], 64 << 20, "{}", replies[0]);
    assert_eq!(replies[1]["error"], "io.plimsoll.NotPermitted", "above the administrator's");
    assert_eq!(replies[2]["parameters"]["accounts"][0]["hard_bytes"], 64 << 20);
    assert_eq!(replies[3]["parameters"]["result"], "removed");
}

/// Every method through the typed client. Root's rights are needed for some of it; where the tests do not run as root,
/// the refusals of those are what is checked.
#[test]
fn each_call_as_root() {
    let daemon = daemon(Allowance::SERVER);
    let mut client = daemon.client();
    let limit = |bytes: u64| SetLimitCall {
        who: Target::User(BOB),
        hard: Size::Bytes(Bytes(bytes)),
        soft: None,
        action: None,
        now: None,
    };
    if !is_root() {
        assert!(matches!(client.set_limit(&limit(1 << 29)), Err(CallError::NotPermitted(_))));
        return;
    }
    assert_eq!(client.status().unwrap().accounts.len(), 2);
    assert_eq!(client.show_limits(None).unwrap().default.unwrap().hard_bytes, 2 << 30);
    assert_eq!(client.set_limit(&limit(1 << 29)).unwrap().accounts[0].hard_bytes, Some(1 << 29));
    assert!(matches!(client.set_limit(&limit(0)), Err(CallError::Invalid(_))));
    assert_eq!(client.clear_limit(Target::User(BOB)).unwrap(), ClearResult::Removed);
    assert_eq!(client.clear_limit(Target::User(Uid(60_003))).unwrap(), ClearResult::NothingSet);
    assert_eq!(client.history(HistoryCall::default()).unwrap().len(), 2);
    assert_eq!(client.incident(GetIncident { id: Some(2), pid: None }).unwrap().id, 2);
    let missing = client.incident(GetIncident { id: Some(9), pid: None });
    assert!(matches!(missing, Err(CallError::NotFound(_))));
    assert!(daemon.fake.calls().iter().all(|call| call.ends_with(" by 0")));
}

#[test]
fn the_client_reads_every_page_and_keeps_the_newest_of_a_limit() {
    if !is_root() {
        eprintln!("not run: needs root, since other users' pages are empty (`plimsoll::tests` has those)");
        return;
    }
    let daemon = daemon(Allowance::SERVER);
    *daemon.fake.incidents.lock().unwrap() =
        (1..=200).map(|id| crate::api::fake::incident(id, BOB)).collect();
    let ids = |limit| {
        let query = HistoryCall { limit, ..HistoryCall::default() };
        daemon.client().history(query).unwrap().iter().map(|incident| incident.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(None), (1..=200).collect::<Vec<_>>());
    assert_eq!(ids(Some(70)), (131..=200).collect::<Vec<_>>());
}

#[test]
fn several_calls_share_a_connection_and_an_error_does_not_end_it() {
    let daemon = daemon(patient(1));
    let calls = [
        call("Status", json!({})),
        call("Explode", json!({})),
        call("SetLimit", json!({"who": 7})),
        call("Status", json!({})),
    ];
    let replies = converse(&daemon.socket, &calls);
    assert_eq!(replies[1]["error"], "org.varlink.service.MethodNotFound");
    assert_eq!(replies[2]["error"], "io.plimsoll.Invalid");
    assert_eq!(replies[3]["parameters"]["daemon"], true);
    daemon.until("one connection", |server| server.counts().served == 1);
}

#[test]
fn a_foreign_varlink_client_finds_our_interface() {
    use varlink::{Connection, OrgVarlinkServiceClient, OrgVarlinkServiceInterface};
    let daemon = daemon(patient(1));
    let connection = Connection::new(&format!("unix:{}", daemon.socket.display())).unwrap();
    let mut service = OrgVarlinkServiceClient::new(connection);
    let info = service.get_info().unwrap();
    assert!(
        info.product == "plimsoll" && info.interfaces.iter().any(|name| name == "io.plimsoll"),
        "{info:?}"
    );
    let described = service.get_interface_description("io.plimsoll").unwrap().description.unwrap();
    assert_eq!(described, crate::api::message::DESCRIPTION);
}

#[test]
fn a_request_that_is_too_long_is_refused_without_being_kept() {
    let daemon = daemon(patient(1));
    let mut stream = daemon.raw();
    let mut writer = stream.try_clone().unwrap();
    // Whether all of it can be written depends on when the server closes.
    let writing = thread::spawn(move || drop(writer.write_all(&vec![b'x'; 4 << 20])));
    let refused = reply(&mut stream);
    assert_eq!(refused["error"], "io.plimsoll.Invalid");
    assert!(refused["parameters"]["message"].as_str().unwrap().contains("65536"));
    writing.join().unwrap();
    daemon.until("the seat to be free", |server| server.connections() == 0);
    daemon.client().status().unwrap();
}

#[test]
fn what_is_not_json_is_refused_and_the_connection_closed() {
    let daemon = daemon(patient(1));
    let mut stream = daemon.raw();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n\0{\"method\":\"io.plimsoll.Status\"}\0").unwrap();
    assert_eq!(reply(&mut stream)["error"], "io.plimsoll.Invalid");
    daemon.until("the cut", |server| server.counts().cut == 1 && server.connections() == 0);
    assert_eq!(daemon.fake.calls().len(), 0);
}

#[test]
fn clients_that_say_nothing_or_half_lose_their_seats() {
    let daemon = daemon(hasty());
    let silent = daemon.raw();
    let mut half = daemon.raw();
    half.write_all(b"{\"method\":\"io.plimsoll.Sta").unwrap();
    daemon.until("both to be cut", |server| server.counts().cut == 2 && server.connections() == 0);
    let mut gone = daemon.raw();
    gone.write_all(b"{").unwrap();
    drop(gone);
    daemon.until("the truncated one", |server| server.counts().cut == 3 && server.connections() == 0);
    drop((silent, half));
}

#[test]
fn one_connection_too_many_is_told_so_and_gets_in_when_another_ends() {
    let daemon = daemon(patient(3));
    let held: Vec<_> = (0..3).map(|_| daemon.client()).collect();
    daemon.until("three seats", |server| server.connections() == 3);
    for _ in 0..50 {
        let refused = daemon.client().status().unwrap_err();
        assert!(
            matches!(&refused, CallError::Refused(why) if why.contains("too many connections")),
            "{refused}"
        );
    }
    assert_eq!(daemon.server().counts().turned_away, 50);
    drop(held);
    daemon.until("free seats", |server| server.connections() == 0);
    daemon.client().status().unwrap();
}

#[test]
fn many_clients_at_once_are_all_answered() {
    let daemon = Arc::new(daemon(patient(16)));
    let start = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let (daemon, start) = (Arc::clone(&daemon), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                let mut client = daemon.client();
                (0..25).all(|_| client.status().is_ok_and(|status| status.daemon))
            })
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

#[test]
fn a_second_server_on_the_same_socket_is_refused_and_the_first_goes_on() {
    let daemon = daemon(patient(2));
    let second = Server::start(&daemon.socket, Fake::new()).unwrap_err();
    assert!(matches!(&second, StartError::Listen(ListenError::AlreadyRunning(_))), "{second}");
    daemon.client().status().unwrap();
}

#[test]
fn a_stop_removes_the_socket_ends_idle_connections_and_lets_another_start() {
    let mut daemon = daemon(patient(4));
    let mut idle = daemon.client();
    idle.status().unwrap();
    daemon.server.take().unwrap().stop();
    assert!(!daemon.socket.exists());
    assert!(matches!(Client::connect(&daemon.socket), Err(CallError::NotRunning { .. })));
    assert!(matches!(idle.status(), Err(CallError::NoAnswer { .. })));
    daemon.server = Some(Server::start(&daemon.socket, daemon.fake.clone()).unwrap());
    daemon.client().status().unwrap();
}

/// Answers `status` only once it is told to; everything else is the fake's.
struct Slow {
    fake: Arc<Fake>,
    asked: mpsc::Sender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Control for Slow {
    fn standing(&self) -> Result<Standing, Refusal> {
        self.fake.standing()
    }
    fn status(&self, peer: Peer) -> Result<Status, Refusal> {
        self.asked.send(()).unwrap();
        self.go_on.lock().unwrap().recv_timeout(DEADLINE).unwrap();
        self.fake.status(peer)
    }
    fn limits(&self, peer: Peer, user: Option<Uid>) -> Result<Vec<AccountView>, Refusal> {
        self.fake.limits(peer, user)
    }
    fn set_limit(&self, peer: Peer, limit: SetLimit) -> Result<(), Refusal> {
        self.fake.set_limit(peer, limit)
    }
    fn clear_limit(&self, peer: Peer, target: Target) -> Result<Cleared, Refusal> {
        self.fake.clear_limit(peer, target)
    }
    fn history(&self, peer: Peer, query: HistoryQuery) -> Result<Vec<Incident>, Refusal> {
        self.fake.history(peer, query)
    }
    fn incident(&self, peer: Peer, pick: Pick) -> Result<Incident, Refusal> {
        self.fake.incident(peer, pick)
    }
}

#[test]
fn a_stop_does_not_wait_for_an_answer_that_its_caller_would_have_to_give_and_the_answer_still_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let (asked, was_asked) = mpsc::channel();
    let (go_on, told_to) = mpsc::channel();
    let slow = Slow { fake: Fake::new(), asked, go_on: Mutex::new(told_to) };
    let server = Server::start_with(&socket, Arc::new(slow), patient(2)).unwrap();
    let mut client = Client::connect(&socket).unwrap();
    let asking = thread::spawn(move || client.status());
    was_asked.recv_timeout(DEADLINE).unwrap();
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < Duration::from_secs(5));
    go_on.send(()).unwrap();
    assert!(asking.join().unwrap().unwrap().daemon);
}

#[test]
fn nobody_talking_costs_not_one_wake_up() {
    // In a process of its own, where no other test has a server.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["api::server::tests::count_wake_ups", "--exact", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let counted = text.lines().find_map(|line| Some(line.split_once("WAKE-UPS ")?.1)).unwrap();
    assert_eq!(counted, "0", "{text}");
}

#[test]
#[ignore = "the other half of `nobody_talking_costs_not_one_wake_up`, which runs it in a process of its own"]
fn count_wake_ups() {
    let daemon = daemon(Allowance::SERVER);
    daemon.client().status().unwrap();
    daemon.until("silence", |server| server.connections() == 0);
    let comm = |task: &Path| fs::read_to_string(task.join("comm")).unwrap_or_default();
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let acceptor: Vec<_> = tasks.filter(|task| comm(task) == "control\n").collect();
    assert_eq!(acceptor.len(), 1);
    let switches = || -> u64 {
        let status = fs::read_to_string(acceptor[0].join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse().unwrap()
    };
    // Long enough for the thread to be back in its sleep.
    thread::sleep(Duration::from_millis(100));
    let before = switches();
    thread::sleep(Duration::from_secs(1));
    println!("\nWAKE-UPS {}", switches() - before);
}
