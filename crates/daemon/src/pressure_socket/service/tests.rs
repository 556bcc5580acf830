use super::*;
use crate::{
    api::listener::Purpose,
    journal::Journal,
    pressure_socket::{Link, Teller, link},
};
use plimsoll_policy::units::Uid;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    os::unix::net::UnixDatagram,
    thread,
};
use tempfile::TempDir;

/// A service, its guard's end, and who keeps connections for it.
struct Scene {
    folder: TempDir,
    manager: UnixDatagram,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let manager = UnixDatagram::bind(folder.path().join("manager")).unwrap();
        manager.set_nonblocking(true).unwrap();
        Self { folder, manager }
    }

    fn service(&self, managed: bool, kept: Vec<UnixStream>) -> (Service, Link) {
        let (link, inbox) = link().unwrap();
        let name: Option<OsString> = managed.then(|| self.folder.path().join("manager").into());
        let supervisor = Supervisor::new(name, None).unwrap();
        let socket = ServedSocket::open(&self.folder.path().join("socket"), Purpose::Pressure).unwrap();
        let notices = Notices::new(Journal::mute());
        (Service::new(ServiceSetup { socket, supervisor, notices, inbox }, kept).unwrap(), link)
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("socket")).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// What the manager was given since.
    fn given(&self) -> Vec<UnixStream> {
        let mut streams = Vec::new();
        let (mut words, mut space) = ([0; 64], [MaybeUninit::uninit(); 2048]);
        loop {
            let mut rights = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut words)];
            let Ok(message) = recvmsg(&self.manager, &mut parts, &mut rights, RecvFlags::empty()) else {
                return streams;
            };
            for part in rights.drain() {
                if let RecvAncillaryMessage::ScmRights(given) = part {
                    streams.extend(given.map(UnixStream::from));
                }
            }
            assert_eq!(&words[..message.bytes], b"FDSTORE=1\nFDNAME=pressure");
        }
    }
}

fn uid() -> Uid {
    Uid(rustix::process::getuid().as_raw())
}

/// What a connection hears: nothing, a word, or its end.
fn hears(stream: &mut UnixStream) -> Option<String> {
    let mut bytes = [0; 64];
    let length = stream.read(&mut bytes).ok()?;
    Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
}

fn come_near(teller: &mut Teller, service: &mut Service) {
    teller.settle(|| BTreeSet::from([uid().into()]));
    assert!(service.serve());
}

#[test]
fn connections_outlive_a_daemon_with_a_service_manager_and_are_told_by_the_next() {
    let scene = Scene::new();
    let (mut service, link) = scene.service(true, Vec::new());
    let mut old = scene.connect();
    assert!(service.serve());
    assert_eq!(scene.given().len(), 0, "one that comes and goes does not trouble the manager");
    thread::sleep(Duration::from_nanos(KEPT_AFTER.0));
    assert!(service.serve());
    let mut kept = scene.given();
    assert_eq!(kept.len(), 1);
    // One that has just come, and one that still waits at the door.
    let mut young = scene.connect();
    assert!(service.serve());
    let mut waiting = scene.connect();
    link.stop();
    assert!(!service.serve(), "it has ended");
    drop(service);
    kept.extend(scene.given());
    assert_eq!(kept.len(), 3);
    let all = [&mut old, &mut young, &mut waiting];
    for stream in all {
        assert_eq!(hears(stream), None, "nothing, and no end");
    }
    let (mut next, link) = scene.service(true, kept);
    let mut teller = Teller::new(link);
    come_near(&mut teller, &mut next);
    for stream in [&mut old, &mut young, &mut waiting] {
        assert_eq!(hears(stream).as_deref(), Some("near\n"));
    }
    thread::sleep(Duration::from_nanos(KEPT_AFTER.0));
    assert!(next.serve());
    assert_eq!(scene.given().len(), 0, "they are kept already");
}

#[test]
fn without_a_service_manager_connections_end_and_what_they_said_is_no_error() {
    let scene = Scene::new();
    let (mut service, link) = scene.service(false, Vec::new());
    let mut client = scene.connect();
    assert!(service.serve());
    client.write_all(b"some 200000 2000000\0").unwrap();
    link.stop();
    assert!(!service.serve());
    drop(service);
    assert_eq!(hears(&mut client).as_deref(), Some(""), "its end, and not that it was reset");
}

#[test]
fn a_connection_that_never_reads_has_a_few_words_and_one_that_ends_has_none() {
    let scene = Scene::new();
    let (mut service, link) = scene.service(false, Vec::new());
    let (mut deaf, gone) = (scene.connect(), scene.connect());
    assert!(service.serve());
    let mut teller = Teller::new(link);
    drop(gone);
    come_near(&mut teller, &mut service);
    for _ in 0..1000 {
        service.accounts.get_mut(&uid().into()).unwrap().leave();
        service.accounts.insert(uid().into(), Rounds::far());
        service.accounts.get_mut(&uid().into()).unwrap().come_near(now());
        service.tell_due(now());
    }
    assert_eq!(service.clients.len(), 1);
    let told = service.told;
    assert!((1..20).contains(&told), "{told} words wait in its buffer");
    let heard = hears(&mut deaf).unwrap();
    assert!(heard.starts_with("near\nnear\n") || heard == "near\n", "{heard:?}");
    // Who talks without end wakes nobody after the first time.
    deaf.write_all(b"x").unwrap();
    assert!(service.serve());
    deaf.write_all(&[b'x'; 8192]).unwrap();
    let mut room = [EpollEvent::empty(); 8];
    assert_eq!(service.waits.ready(&mut room).iter().filter(|event| event.data() >= FIRST).count(), 0);
}

#[test]
fn who_names_a_job_is_told_of_that_alone_and_nobody_of_anothers() {
    let scene = Scene::new();
    let (mut service, link) = scene.service(true, Vec::new());
    let mut teller = Teller::new(link);
    let (mut plain, mut watcher, mut other) = (scene.connect(), scene.connect(), scene.connect());
    watcher.write_all(b"job:7\n").unwrap();
    other.write_all(b"job:8\n").unwrap();
    // The first turn takes them, the next hears what they say.
    assert!(service.serve() && service.serve());
    assert_eq!(hears(&mut watcher).as_deref(), Some("listening\n"));
    assert_eq!(hears(&mut other).as_deref(), Some("listening\n"));
    assert_eq!(hears(&mut plain), None);
    let job = |owner, id| Topic { owner, job: Some(JobId(id)) };
    // Job 8 is somebody else's.
    teller.done_in([job(uid(), 7), job(Uid(uid().0 + 1), 8)].into_iter());
    teller.settle(|| BTreeSet::from([uid().into(), job(Uid(uid().0 + 1), 8)]));
    assert!(service.serve());
    assert_eq!(hears(&mut watcher).as_deref(), Some("incident\n"));
    assert_eq!(hears(&mut plain).as_deref(), Some("near\n"));
    teller.settle(|| BTreeSet::from([job(uid(), 7)]));
    assert!(service.serve());
    assert_eq!(hears(&mut watcher).as_deref(), Some("near\n"));
    assert_eq!([hears(&mut plain), hears(&mut other)], [None, None]);
    // Who comes later hears of it with the answer.
    let mut late = scene.connect();
    late.write_all(b"job:7\nand more").unwrap();
    assert!(service.serve() && service.serve());
    assert_eq!(hears(&mut late).as_deref(), Some("listening\nnear\n"));
    // The next daemon would not know what these listen for.
    thread::sleep(Duration::from_nanos(KEPT_AFTER.0));
    assert!(service.serve());
    assert_eq!(scene.given().len(), 1, "the plain one alone");
}
