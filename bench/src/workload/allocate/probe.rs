//! `probe UID SEED`: asks the coordinator itself, in its own words (docs/tmalloc-protocol.md), and looks whether what it
//! says is so.
//!
//! `probe REQUESTS` asks so often, by chance for more or less and with or without patience, gives back what it is granted
//! at once, and answers `probed GRANTED REFUSED FALSE LOST`: how often it was granted, refused, refused though by the
//! refusal's own numbers there was room, and how often the connection ended.

use crate::{
    error::BenchError,
    workload::{Commands, number, random::Random, say, usage},
};
use plimsoll_policy::units::Pages;
use plimsoll_sys::process::page_size;
use plimsoll_wire::tmalloc::{MESSAGE_BYTES, Patience, Refusal, Reply, Request};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
    sockopt::{Timeout, set_socket_timeout},
};
use std::{env, os::fd::OwnedFd, path::PathBuf, thread, time::Duration};

const SOCKET_VARIABLE: &str = "PLIMSOLL_TMALLOC_SOCKET";

/// What it asks for at most.
const PAGES_MAX: usize = 1024;
/// One in so many waits, at most this long.
const PATIENT_ONE_IN: usize = 4;
const PATIENCE_MS_MAX: usize = 50;
/// A coordinator that is silent for longer is taken for dead.
const SILENCE: Duration = Duration::from_secs(5);
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
pub(in crate::workload) fn run(arguments: &[String]) -> Result<(), BenchError> {
    let (uid, seed) = (number(arguments, 0)?, number(arguments, 1)?);
    let path = env::var_os(SOCKET_VARIABLE).map(PathBuf::from).ok_or_else(|| usage(SOCKET_VARIABLE))?;
    let address = SocketAddrUnix::new(&path).map_err(BenchError::io("the coordinator's address"))?;
    let mut random = Random::seeded(seed);
    let mut commands = Commands::open_as(uid)?;
    let mut connection = None;
    while let Some((word, numbers)) = commands.next()? {
        let ("probe", &[requests]) = (word.as_str(), numbers.as_slice()) else { return Err(usage(&word)) };
        let mut tally = Tally::default();
        for seq in 0..u32::try_from(requests).unwrap_or(u32::MAX) {
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
fn greet(address: &SocketAddrUnix) -> Option<OwnedFd> {
    let open = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).ok()?;
    set_socket_timeout(&open, Timeout::Recv, Some(SILENCE)).ok()?;
    connect(&open, address).ok()?;
    tell(&open, Request::Hello { watch: false })?;
    hear(&open).map(|_welcome| open)
}

/// One request and its answer. `None`: the connection ended.
fn ask(open: &OwnedFd, seq: u32, random: &mut Random, tally: &mut Tally) -> Option<()> {
    let bytes = page_size().to_bytes(Pages(1 + random.below(PAGES_MAX) as u64));
    let waits = random.below(PATIENT_ONE_IN) == 0;
    let patience = match waits {
        true => Patience::Milliseconds(1 + random.below(PATIENCE_MS_MAX) as u64),
        false => Patience::None,
    };
    tell(open, Request::Reserve { seq, bytes, patience })?;
    match hear(open)? {
        Reply::Granted { .. } => {
            tally.granted += 1;
            tell(open, Request::Settled)?;
        }
        Reply::Refused { refusal, usage, line, .. } => {
            tally.refused += 1;
            // Only these say how much there was.
            let room = matches!(refusal, Refusal::OverLine | Refusal::TimedOut)
                && usage.0.saturating_add(bytes.0) <= line.0;
            tally.false_refusals += u64::from(room);
        }
        Reply::Welcome { .. }
        | Reply::Recall { .. }
        | Reply::Soft { .. }
        | Reply::HeadroomIs { .. }
        | Reply::Fault { .. } => return None,
    }
    Some(())
}

fn tell(open: &OwnedFd, request: Request) -> Option<()> {
    let message = request.encode();
    let sent = send(open, &message, SendFlags::NOSIGNAL).ok()?;
    (sent == message.len()).then_some(())
}

fn hear(open: &OwnedFd) -> Option<Reply> {
    let mut message = [0; MESSAGE_BYTES];
    let (length, _) = recv(open, &mut message, RecvFlags::empty()).ok()?;
    Reply::decode(message.get(..length)?).ok()
}
