use super::{ListenError, Purpose, ServedSocket, lock_beside};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

#[test]
fn the_folder_is_made_and_everyone_may_reach_the_socket() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run/control.sock");
    let _socket = ServedSocket::open(&path, Purpose::Control).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    assert_eq!(fs::metadata(place.path().join("run")).unwrap().permissions().mode() & 0o7777, 0o755);
    let lock = fs::metadata(place.path().join("run/control.sock.lock")).unwrap();
    assert_eq!(lock.permissions().mode() & 0o777, 0o600, "no user may hold the lock");
}

#[test]
fn a_second_daemon_on_the_same_socket_is_told_and_the_first_one_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("control.sock");
    let first = ServedSocket::open(&path, Purpose::Control).unwrap();
    let refused = ServedSocket::open(&path, Purpose::Control).unwrap_err();
    assert!(matches!(&refused, ListenError::AlreadyRunning(at, _) if *at == path), "{refused}");
    assert!(!refused.to_string().contains('\n'));
    UnixStream::connect(&path).unwrap();
    drop(first);
}

#[test]
fn a_live_server_that_holds_no_lock_is_not_replaced_either() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("control.sock");
    let _other = UnixListener::bind(&path).unwrap();
    assert!(matches!(ServedSocket::open(&path, Purpose::Control), Err(ListenError::AlreadyRunning(..))));
    UnixStream::connect(&path).unwrap();
}

#[test]
fn the_socket_of_a_dead_daemon_is_replaced() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("control.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a closed listener leaves its file");
    let _socket = ServedSocket::open(&path, Purpose::Control).unwrap();
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("control.sock");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(ServedSocket::open(&path, Purpose::Control), Err(ListenError::NotASocket(..))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn closing_removes_the_socket_but_never_a_successors() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("control.sock");
    let socket = ServedSocket::open(&path, Purpose::Control).unwrap();
    drop(socket);
    assert!(!path.exists());

    let socket = ServedSocket::open(&path, Purpose::Control).unwrap();
    fs::rename(&path, place.path().join("kept")).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    drop(socket);
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
}

#[test]
fn closing_leaves_nothing_but_the_folder() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("control.sock");
    let first = ServedSocket::open(&path, Purpose::Control).unwrap();
    // Who is turned away takes nothing along.
    ServedSocket::open(&path, Purpose::Control).unwrap_err();
    assert!(place.path().join("control.sock.lock").exists());
    drop(first);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn never_do_two_hold_a_lock_file_that_comes_and_goes() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("control.sock");
    let (holders, held) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let come_and_go = || {
        while held.load(Ordering::Relaxed) < 1000 {
            match lock_beside(&path, Purpose::Control) {
                Ok(lock) => {
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                    held.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_micros(20));
                    holders.fetch_sub(1, Ordering::SeqCst);
                    drop(lock);
                }
                Err(ListenError::AlreadyRunning(..)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(come_and_go))));
    assert!(!place.path().join("control.sock.lock").exists());
}

#[test]
fn a_path_too_long_for_a_socket_is_one_clear_line() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x".repeat(120));
    let error = ServedSocket::open(&path, Purpose::Control).unwrap_err().to_string();
    assert!(error.contains("open the socket") && !error.contains('\n'), "{error}");
}
