use super::*;
use crate::{
    api::{control::Refusal, listener::Purpose},
    metrics::{Tally, loopback, unix},
    offload::{Haste, Lane, Offload},
};
use plimsoll_api::status::Status;
use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    sync::atomic::AtomicU64,
    time::Instant,
};

const ASKED: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// How long a scraper has.
const SOON: Duration = Duration::from_secs(10);

/// An address that is served, and how often the guard was asked.
struct Served {
    asked: Arc<AtomicU64>,
    source: Arc<Source>,
    _offload: Offload,
    _lane: Lane<()>,
}

fn serve(door: Door, users: bool, answers: bool) -> Served {
    let asked = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&asked);
    let status = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        if answers {
            Ok(Status::default())
        } else {
            Err(Refusal::Unavailable("the guard is busy".to_owned()))
        }
    };
    let source = Arc::new(Source::new(Box::new(status), Tally::default()));
    let mut service = Service::new(door, users, Arc::clone(&source)).unwrap();
    let offload = Offload::start().unwrap();
    let readable = service.readable().unwrap();
    let lane = offload.attend(Haste::Ordinary, readable, move || service.serve()).unwrap();
    Served { asked, source, _offload: offload, _lane: lane }
}

fn port() -> (Door, std::net::SocketAddr) {
    let door = loopback("127.0.0.1:0".parse().unwrap()).unwrap();
    let Door::Loopback(listener) = &door else { unreachable!() };
    let address = listener.local_addr().unwrap();
    (door, address)
}

/// What is answered until the other end closes.
fn ask(mut stream: impl Read + Write, request: &[u8]) -> String {
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn connect(address: std::net::SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

#[test]
fn a_scraper_gets_the_page_over_a_port_and_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let served = serve(unix(&path, None).unwrap(), true, true);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (door, address) = port();
    let over_port = serve(door, false, true);
    let answers = [ask(UnixStream::connect(&path).unwrap(), ASKED), ask(connect(address), ASKED)];
    for answer in answers {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        assert!(body.contains("\nplimsoll_build_info{version="), "{body}");
    }
    drop(over_port);
    drop(served);
    // Whoever is at it ends it first.
    let end = Instant::now() + SOON;
    while path.exists() {
        assert!(Instant::now() < end, "the socket stays");
        std::thread::yield_now();
    }
}

#[test]
fn whatever_else_is_asked_is_refused() {
    let (door, address) = port();
    let served = serve(door, false, true);
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404 "),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", "405 "),
        (b"nonsense\r\n\r\n", "400 "),
    ] {
        let answer = ask(connect(address), request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    assert_eq!(served.asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_guard_that_does_not_answer_is_told_of() {
    let (door, address) = port();
    let _served = serve(door, false, false);
    let answer = ask(connect(address), ASKED);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("the guard is busy"), "{answer}");
}

#[test]
fn however_often_a_page_is_asked_for_the_guard_is_asked_once_a_second() {
    let (door, address) = port();
    let served = serve(door, false, true);
    let began = Instant::now();
    for _ in 0..20 {
        assert!(ask(connect(address), ASKED).starts_with("HTTP/1.1 200"));
    }
    let most = began.elapsed().as_secs() + 1;
    assert!(served.asked.load(Ordering::Relaxed) <= most);
}

#[test]
fn clients_that_say_nothing_or_never_end_hold_up_no_scraper() {
    let (door, address) = port();
    let served = serve(door, false, true);
    let silent: Vec<_> = (0..100).map(|_| connect(address)).collect();
    let mut endless = connect(address);
    // It is cut while it writes, as a rule.
    drop(
        endless
            .write_all(b"GET /metrics HTTP/1.1\r\nX: ")
            .and_then(|()| endless.write_all(&vec![b'x'; 1 << 20])),
    );
    let mut slow = connect(address);
    slow.write_all(b"GET /met").unwrap();
    let began = Instant::now();
    assert!(ask(connect(address), ASKED).starts_with("HTTP/1.1 200"));
    assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    // Of those that say nothing no more are kept than there are places.
    assert!(served.source.cut.load(Ordering::Relaxed) >= 100 - 8);
    drop(silent);
}

#[test]
fn a_client_that_takes_no_answer_is_waited_for_with_others_and_not_for_ever() {
    let (door, address) = port();
    let served = serve(door, false, true);
    let mut silent = connect(address);
    silent.set_read_timeout(Some(SOON + SOON)).unwrap();
    let began = Instant::now();
    assert_eq!(silent.read(&mut [0; 1]).unwrap_or(0), 0);
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(ask(connect(address), ASKED).starts_with("HTTP/1.1 200"));
    assert_eq!(served.source.cut.load(Ordering::Relaxed), 1);
}

#[test]
fn a_group_may_be_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    let own = plimsoll_policy::units::Gid(nix::unistd::getegid().as_raw());
    let _door = unix(&path, Some(own)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    // Somebody else's daemon is not pushed aside.
    let taken = ServedSocket::open(&path, Purpose::Metrics).unwrap_err().to_string();
    assert!(taken.contains("metrics.listen"), "{taken}");
}
