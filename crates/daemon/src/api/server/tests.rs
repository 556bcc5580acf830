//! The server over a real socket: who is who, what a bad client costs, how it starts and stops.

mod another_user;
mod stopping;

use super::{Allowance, Server, StartError};
use crate::api::{
    fake::{BOB, Fake},
    listener::ListenError,
    slots::SlotLimits,
};
use plimsoll_api::{
    client::{CallError, Client},
    frame::Patience,
    message::{GetIncident, HistoryCall, SetLimitCall},
};
use plimsoll_policy::{
    lines::{Cleared, Target},
    size::Size,
    units::{Bytes, Uid},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Barrier},
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
        slots: SlotLimits { total, per_user: total, kept_for_root: 0 },
        waiting: SlotLimits { total: 0, per_user: 0, kept_for_root: 0 },
        wait: DEADLINE,
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

fn converse(socket: &Path, requests: &[Value]) -> Vec<Value> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let ask = |request: &Value| {
        write!(stream, "{request}\0").unwrap();
        reply(&mut stream)
    };
    requests.iter().map(ask).collect()
}

fn call(method: &str, parameters: Value) -> Value {
    json!({"method": format!("io.plimsoll.{method}"), "parameters": parameters})
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
    assert_eq!(client.clear_limit(Target::User(BOB)).unwrap(), Cleared::Removed);
    assert_eq!(client.clear_limit(Target::User(Uid(60_003))).unwrap(), Cleared::NothingSet);
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
    let after = |id, most| {
        let found = daemon.client().history_after(id, most, |_| true).unwrap();
        found.iter().map(|incident| incident.id).collect::<Vec<_>>()
    };
    assert_eq!(after(130, 512), (131..=200).collect::<Vec<_>>());
    assert_eq!(after(20, 70), (131..=200).collect::<Vec<_>>());
    assert_eq!(after(200, 512), Vec::<u64>::new());
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
    assert_eq!(described, plimsoll_api::message::DESCRIPTION);
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
    daemon.until("the slot to be free", |server| server.connections() == 0);
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
fn the_deepest_nesting_that_is_parsed_fits_a_connections_stack() {
    let daemon = daemon(patient(1));
    for depth in [100, 126, 127, 128, 5_000] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let mut stream = daemon.raw();
        write!(stream, "{{\"method\":\"io.plimsoll.Status\",\"parameters\":{{\"x\":{nested}}}}}\0").unwrap();
        assert_eq!(reply(&mut stream)["error"], "io.plimsoll.Invalid", "{depth}");
        drop(stream);
        daemon.until("the slot to be free", |server| server.connections() == 0);
    }
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
    daemon.until("three slots", |server| server.connections() == 3);
    for _ in 0..50 {
        let refused = daemon.client().status().unwrap_err();
        assert!(
            matches!(&refused, CallError::Busy(why) if why.contains("too many connections")),
            "{refused}"
        );
    }
    assert_eq!(daemon.server().counts().turned_away, 50);
    drop(held);
    daemon.until("free slots", |server| server.connections() == 0);
    daemon.client().status().unwrap();
}

#[test]
fn those_for_whom_there_is_no_slot_wait_for_one_and_are_told_where_none_comes() {
    let waiting = SlotLimits { total: 2, per_user: 2, kept_for_root: 0 };
    let daemon = daemon(Allowance { waiting, wait: Duration::from_secs(1), ..patient(1) });
    let held = daemon.client();
    daemon.until("it is served", |server| server.connections() == 1);
    let began = Instant::now();
    let mut waits = [daemon.client(), daemon.client()];
    let refused = daemon.client().status().unwrap_err();
    assert!(matches!(refused, CallError::Busy(_)) && began.elapsed() < Duration::from_secs(1), "{refused}");
    for one in &mut waits {
        let refused = one.status().unwrap_err();
        assert!(matches!(refused, CallError::Busy(_)), "{refused}");
    }
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(daemon.server().counts().turned_away, 3);
    // In its thread, once the one before has ended; who has gone meanwhile is passed over.
    let (gone, mut waits) = (daemon.client(), daemon.client());
    assert!(matches!(daemon.client().status(), Err(CallError::Busy(_))), "both wait");
    drop(gone);
    drop(held);
    waits.status().unwrap();
    drop(waits);
    daemon.until("none is served", |server| server.connections() == 0);
    let counts = daemon.server().counts();
    assert_eq!((counts.served, counts.cut), (2, 1), "{counts:?}");
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
    assert!(matches!(&second, StartError::Listen(ListenError::AlreadyRunning(..))), "{second}");
    daemon.client().status().unwrap();
}

#[test]
fn an_answer_is_noted_in_full_and_what_the_daemon_did_for_others_is_not() {
    let ms = Duration::from_millis;
    assert_eq!(super::cost(ms(300), ms(310)), ms(300), "its own, longer than others' share");
    assert_eq!(super::cost(ms(1), ms(15)), ms(15), "the guard worked for it");
    assert_eq!(super::cost(ms(1), ms(900)), super::OTHERS_MAX, "others asked for something costly");
}

#[test]
fn nobody_talking_costs_not_one_wake_up() {
    // In a process of its own, where no other test has a server.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["api::server::tests::count_wake_ups", "--exact", "--nocapture"])
        .env(COUNTING, "1")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let counted = text.lines().find_map(|line| Some(line.split_once("WAKE-UPS ")?.1)).unwrap();
    assert_eq!(counted, "0", "{text}");
}

/// Set for the process that counts.
const COUNTING: &str = "PLIMSOLL_TEST_COUNTING";

/// The other half of `nobody_talking_costs_not_one_wake_up`, which runs it in a process of its own.
#[test]
fn count_wake_ups() {
    if std::env::var_os(COUNTING).is_none() {
        return;
    }
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
