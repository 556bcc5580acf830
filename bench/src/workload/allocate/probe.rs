//! `probe UID SEED`: asks the coordinator itself, in its own words (docs/tmalloc-protocol.md), and looks whether what it
//! says is so.
//!
//! `probe REQUESTS` asks so often, by chance for more or less and with or without patience, gives back what it is granted
//! at once, and answers `probed GRANTED REFUSED FALSE LOST`: how often it was granted, refused, refused though by the
//! refusal's own numbers there was room, and how often the connection ended.

use crate::{
    error::BenchError,
    workload::{Commands, become_user, number, random::Random, say, usage},
};
use nix::sys::{
    socket::{
        AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, setsockopt, socket,
        sockopt,
    },
    time::{TimeVal, TimeValLike},
};
use std::{
    env,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    thread,
    time::Duration,
};

const SOCKET_VARIABLE: &str = "PLIMSOLL_TMALLOC_SOCKET";
const MESSAGE_BYTES: usize = 32;
const PAGE_BYTES: u64 = 4096;

const HELLO: u32 = 1;
const RESERVE: u32 = 2;
const SETTLED: u32 = 3;
const GRANTED: u32 = 130;
const REFUSED: u32 = 131;
/// Refusals that say how much there was: over the line, and time is over.
const WITH_NUMBERS: [u64; 2] = [1, 2];

/// What it asks for at most.
const PAGES_MAX: usize = 1024;
/// One in so many waits, at most this long.
const PATIENT_ONE_IN: usize = 4;
const PATIENCE_MS_MAX: usize = 50;
/// A coordinator that is silent for longer is taken for dead.
const SILENCE_SECONDS: i64 = 5;
/// Between two requests, and between two tries to connect.
const REST: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
struct Tally {
    granted: u64,
    refused: u64,
    false_refusals: u64,
    lost: u64,
}

/// Runs it.
///
/// # Errors
/// Bad arguments, not root, no socket named.
pub(in crate::workload) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let (uid, seed) = (number(arguments, 0)?, number(arguments, 1)?);
    let path = env::var_os(SOCKET_VARIABLE).map(PathBuf::from).ok_or_else(|| usage(SOCKET_VARIABLE))?;
    let address = UnixAddr::new(&path).map_err(BenchError::io("the coordinator's address"))?;
    let mut random = Random::seeded(seed);
    let mut commands = Commands::open();
    become_user(uid)?;
    say("ready")?;
    let mut connection = None;
    while let Some((word, numbers)) = commands.next()? {
        let ("probe", &[requests]) = (word.as_str(), numbers.as_slice()) else { return Err(usage(&word)) };
        let mut tally = Tally::default();
        for seq in 0..requests {
            thread::sleep(REST);
            let Some(open) = connection.take().or_else(|| greet(&address)) else { continue };
            // The end of a connection is told by dropping it.
            match ask(&open, seq, &mut random, &mut tally) {
                Some(()) => connection = Some(open),
                None => tally.lost += 1,
            }
        }
        let Tally { granted, refused, false_refusals, lost } = tally;
        say(&format!("probed {granted} {refused} {false_refusals} {lost}"))?;
    }
    Ok(())
}

/// A connection that was welcomed.
fn greet(address: &UnixAddr) -> Option<OwnedFd> {
    let open = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).ok()?;
    setsockopt(&open, sockopt::ReceiveTimeout, &TimeVal::seconds(SILENCE_SECONDS)).ok()?;
    connect(open.as_raw_fd(), address).ok()?;
    tell(&open, HELLO, 0, [1, 0])?;
    hear(&open).map(|_welcome| open)
}

/// One request and its answer. `None`: the connection ended.
fn ask(open: &OwnedFd, seq: u64, random: &mut Random, tally: &mut Tally) -> Option<()> {
    let bytes = (1 + random.below(PAGES_MAX) as u64) * PAGE_BYTES;
    let waits = random.below(PATIENT_ONE_IN) == 0;
    let patience_ms = if waits { 1 + random.below(PATIENCE_MS_MAX) as u64 } else { 0 };
    tell(open, RESERVE, seq, [bytes, patience_ms])?;
    let (kind, [reason, used_bytes, line_bytes]) = hear(open)?;
    match kind {
        GRANTED => {
            tally.granted += 1;
            tell(open, SETTLED, 0, [0, 0])?;
        }
        REFUSED => {
            tally.refused += 1;
            let room = WITH_NUMBERS.contains(&reason) && used_bytes.saturating_add(bytes) <= line_bytes;
            tally.false_refusals += u64::from(room);
        }
        _ => return None,
    }
    Some(())
}

fn tell(open: &OwnedFd, kind: u32, seq: u64, [a, b]: [u64; 2]) -> Option<()> {
    let first = u64::from(kind) | seq << 32;
    let mut message = Vec::with_capacity(MESSAGE_BYTES);
    for word in [first, a, b, 0] {
        message.extend(word.to_le_bytes());
    }
    let sent = send(open.as_raw_fd(), &message, MsgFlags::MSG_NOSIGNAL).ok()?;
    (sent == MESSAGE_BYTES).then_some(())
}

/// The kind of the next message, and its values.
fn hear(open: &OwnedFd) -> Option<(u32, [u64; 3])> {
    let mut message = [0; MESSAGE_BYTES];
    let length = recv(open.as_raw_fd(), &mut message, MsgFlags::empty()).ok()?;
    let (words, rest) = message.as_chunks::<8>();
    let &[first, a, b, c] = words else { return None };
    let kind = u32::try_from(u64::from_le_bytes(first) & u64::from(u32::MAX)).ok()?;
    (length == MESSAGE_BYTES && rest.is_empty()).then(|| (kind, [a, b, c].map(u64::from_le_bytes)))
}
