use super::{FrameError, Frames, Patience, write_within};
use std::{
    io::Write,
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

const SHORT: Patience = Patience { idle: Duration::from_millis(80), message: Duration::from_millis(80) };
const LONG: Patience = Patience { idle: Duration::from_secs(20), message: Duration::from_secs(20) };

fn sent(bytes: &[u8]) -> (UnixStream, UnixStream) {
    let (mut client, server) = UnixStream::pair().unwrap();
    client.write_all(bytes).unwrap();
    (client, server)
}

#[test]
fn two_messages_in_one_packet_come_apart() {
    let (client, server) = sent(b"one\0two\0");
    drop(client);
    let mut frames = Frames::new(&server, 64);
    assert_eq!(frames.read(LONG).unwrap().unwrap(), b"one");
    assert_eq!(frames.read(LONG).unwrap().unwrap(), b"two");
    assert_eq!(frames.read(LONG).unwrap(), None);
}

#[test]
fn a_message_in_many_pieces_is_put_together() {
    let (mut client, server) = UnixStream::pair().unwrap();
    let text = vec![b'x'; 20_000];
    let expected = text.clone();
    let writer = thread::spawn(move || {
        for piece in text.chunks(777) {
            client.write_all(piece).unwrap();
        }
        client.write_all(b"\0").unwrap();
    });
    assert_eq!(Frames::new(&server, 64 * 1024).read(LONG).unwrap().unwrap(), expected);
    writer.join().unwrap();
}

#[test]
fn the_longest_message_allowed_is_read_and_one_byte_more_is_not() {
    let (_client, server) = sent(b"1234567\0");
    assert_eq!(Frames::new(&server, 8).read(LONG).unwrap().unwrap(), b"1234567");
    let (_client, server) = sent(b"12345678\0");
    assert!(matches!(Frames::new(&server, 8).read(LONG), Err(FrameError::TooLong { max_bytes: 8 })));
}

#[test]
fn half_a_message_and_a_closed_connection_is_told_from_a_closed_connection() {
    let (client, server) = sent(b"half");
    drop(client);
    assert!(matches!(Frames::new(&server, 64).read(LONG), Err(FrameError::Truncated)));
}

#[test]
fn silence_ends_when_the_patience_does() {
    let (_client, server) = UnixStream::pair().unwrap();
    let began = Instant::now();
    let idle_only = Patience { message: LONG.message, ..SHORT };
    assert!(matches!(Frames::new(&server, 64).read(idle_only), Err(FrameError::TimedOut)));
    assert!(began.elapsed() >= SHORT.idle);
}

#[test]
fn dripping_bytes_does_not_extend_the_deadline_of_a_message() {
    let (mut client, server) = UnixStream::pair().unwrap();
    let writer = thread::spawn(move || {
        // Ends when the other side closes; 10 s at most.
        for _ in 0..500 {
            if client.write_all(b"x").is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let began = Instant::now();
    let half = Patience { message: Duration::from_millis(200), ..LONG };
    assert!(matches!(Frames::new(&server, 65_536).read(half), Err(FrameError::TimedOut)));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(server);
    writer.join().unwrap();
}

#[test]
fn a_reader_that_takes_nothing_does_not_hold_the_writer() {
    let (_client, server) = UnixStream::pair().unwrap();
    let much = vec![b'x'; 8 << 20];
    assert!(matches!(write_within(&server, &much, SHORT.message), Err(FrameError::TimedOut)));
}

#[test]
fn a_reader_that_is_gone_is_an_error_and_no_signal() {
    let (client, server) = UnixStream::pair().unwrap();
    drop(client);
    assert!(matches!(write_within(&server, b"x", LONG.message), Err(FrameError::Io(_))));
}
