//! One record of the log as one line of text, and back.
//!
//! `plimsoll1 CRC32 KIND ID JSON`: the format's version, the checksum (CRC-32 as in gzip, eight hexadecimal digits) of
//! everything behind it, `incident` or `outcome`, the incident's id, and the JSON of the value. No byte of a line is a
//! control character, whatever a process calls itself, so that `grep`, `tail` and a terminal are safe to use on it.

use plimsoll_policy::{
    human::is_hazardous,
    incident::{Course, Incident, Victim, origin::Origin},
};
use serde::{Deserialize, Serialize};
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};
use std::io::{self, Write};
use thiserror::Error;

/// The version this build writes, and the newest it reads.
pub const RECORD_VERSION: u64 = 1;

/// The longest line, with its newline: what a larger incident is cut down to, and where a reader gives up.
pub const RECORD_MAX_BYTES: usize = 256 << 10;

/// Ids are also row numbers of SQLite, which are signed.
pub const ID_MAX: u64 = i64::MAX.unsigned_abs();

/// The longest command line kept whole; Linux allows megabytes.
const CMDLINE_MAX_BYTES: usize = 4096;
const CGROUP_MAX_BYTES: usize = 1024;
/// `comm` has 15 bytes, which may have become longer when they were made printable.
const COMM_MAX_BYTES: usize = 64;
const REASON_MAX_BYTES: usize = 1024;
const VICTIMS_MAX: usize = 16;
/// A report of the kernel in words has some hundred.
const SUMMARY_MAX_BYTES: usize = 8192;
const ADVICE_MAX: usize = 3;
/// Samples of an incident's course, of the account and of the machine each: what five minutes and a tail can come to.
const SAMPLES_MAX: usize = 400;

/// What became known of an incident after it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Which incident.
    pub id: u64,
    /// From the signal to the victim's memory being returned; `None`: nothing new is known.
    pub signal_to_freed_ns: Option<u64>,
    /// What the victim gave back; `None`: nothing new is known.
    pub freed_bytes: Option<u64>,
    /// How the course of memory went on; `None`: nothing new is known. Versions before this field pass over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub course: Option<Course>,
}

impl Outcome {
    /// Writes what is known over what the incident says, and goes on with its course.
    pub fn apply(self, incident: &mut Incident) {
        if let Some(later) = self.course {
            incident.course.get_or_insert_default().go_on(later);
        }
        incident.signal_to_freed_ns = self.signal_to_freed_ns.or(incident.signal_to_freed_ns);
        incident.freed_bytes = self.freed_bytes.or(incident.freed_bytes);
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An incident, as far as it was known when it was written.
    Incident(Box<Incident>),
    /// What became known later.
    Outcome(Box<Outcome>),
}

/// Why a line is not a record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// It does not begin like one.
    #[error("not a record")]
    Malformed,
    /// A newer Plimsoll wrote it.
    #[error("a record of version {0}, newer than {RECORD_VERSION}")]
    Future(u64),
    /// Its checksum is not that of its content.
    #[error("checksum does not match")]
    Checksum,
    /// Whole, but of a kind that this build does not know.
    #[error("unknown kind of record")]
    UnknownKind,
    /// Whole, but its content is not what its kind says.
    #[error("content not understood: {0}")]
    Content(String),
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`Record::Incident`]
    Incident,
    /// [`Record::Outcome`]
    Outcome,
}

impl Kind {
    const fn text(self) -> &'static str {
        match self {
            Self::Incident => "incident",
            Self::Outcome => "outcome",
        }
    }
}

/// A line whose checksum is right and whose JSON was not looked at yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked<'a> {
    /// Its kind.
    pub kind: Kind,
    /// The incident's id; 1 to [`ID_MAX`].
    pub id: u64,
    /// Its checksum.
    pub checksum: u32,
    /// The content.
    pub json: &'a [u8],
}

/// Checks a line (without its newline) as far as that is cheap.
///
/// # Errors
/// Every [`RecordError`] but those of the JSON.
pub fn check(line: &[u8]) -> Result<Checked<'_>, RecordError> {
    let (prefix, rest) = word(line)?;
    let version = prefix.strip_prefix(b"plimsoll").and_then(decimal).ok_or(RecordError::Malformed)?;
    if version > RECORD_VERSION {
        return Err(RecordError::Future(version));
    }
    if version == 0 {
        return Err(RecordError::Malformed);
    }
    let (checksum, rest) = word(rest)?;
    let checksum = core::str::from_utf8(checksum)
        .ok()
        .filter(|digits| {
            digits.len() == 8 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        })
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .ok_or(RecordError::Malformed)?;
    if crc32fast::hash(rest) != checksum {
        return Err(RecordError::Checksum);
    }
    let (kind, rest) = word(rest)?;
    let kind = [Kind::Incident, Kind::Outcome]
        .into_iter()
        .find(|known| known.text().as_bytes() == kind)
        .ok_or(RecordError::UnknownKind)?;
    let (id, json) = word(rest)?;
    let id = decimal(id).filter(|id| (1..=ID_MAX).contains(id)).ok_or(RecordError::Malformed)?;
    Ok(Checked { kind, id, checksum, json })
}

/// Decodes a line (without its newline). Never panics, whatever it is given.
///
/// # Errors
/// [`RecordError`]
pub fn decode(line: &[u8]) -> Result<Record, RecordError> {
    check(line)?.decode()
}

impl Checked<'_> {
    /// Decodes the JSON.
    ///
    /// # Errors
    /// [`RecordError::Content`], also where the JSON is about another incident than the line says.
    pub fn decode(&self) -> Result<Record, RecordError> {
        let failed = |error: serde_json::Error| RecordError::Content(error.to_string());
        let (record, id) = match self.kind {
            Kind::Incident => {
                let incident: Incident = serde_json::from_slice(self.json).map_err(failed)?;
                let id = incident.id;
                (Record::Incident(Box::new(incident)), id)
            }
            Kind::Outcome => {
                let outcome: Outcome = serde_json::from_slice(self.json).map_err(failed)?;
                let id = outcome.id;
                (Record::Outcome(Box::new(outcome)), id)
            }
        };
        if id == self.id {
            Ok(record)
        } else {
            Err(RecordError::Content(format!("the line says id {}, its content {id}", self.id)))
        }
    }
}

fn word(bytes: &[u8]) -> Result<(&[u8], &[u8]), RecordError> {
    let end = bytes.iter().position(|byte| *byte == b' ').ok_or(RecordError::Malformed)?;
    let (word, rest) = bytes.split_at_checked(end).ok_or(RecordError::Malformed)?;
    Ok((word, rest.get(1..).unwrap_or_default()))
}

/// Digits only, in the shortest form: `+1` and `01` are not how a number was written here.
fn decimal(bytes: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(bytes).ok()?;
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| canonical)
}

/// Appends the incident's line, newline included, to `buffer`. Strings and lists that are out of all proportion are
/// shortened first, so that the line is at most [`RECORD_MAX_BYTES`] long.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for an id of 0 or above [`ID_MAX`], and for what is too large even when shortened;
/// `buffer` is then as it was.
pub fn encode_incident(buffer: &mut Vec<u8>, incident: &mut Incident) -> io::Result<()> {
    shorten_strings(incident);
    let json = fit(incident)?;
    push_line(buffer, Kind::Incident, incident.id, &json)
}

/// Appends the outcome's line, newline included, to `buffer`. A course out of all proportion is shortened first.
///
/// # Errors
/// As [`encode_incident`].
pub fn encode_outcome(buffer: &mut Vec<u8>, outcome: &mut Outcome) -> io::Result<()> {
    outcome.course.iter_mut().for_each(|course| course.keep_newest(SAMPLES_MAX));
    push_line(buffer, Kind::Outcome, outcome.id, &to_json(&*outcome)?)
}

/// The JSON of a value without a control character in it.
///
/// # Errors
/// Where serde_json has one.
pub fn to_json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut json = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut json, Printable))?;
    Ok(json)
}

pub(super) fn push_line(buffer: &mut Vec<u8>, kind: Kind, id: u64, json: &[u8]) -> io::Result<()> {
    if !(1..=ID_MAX).contains(&id) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("incident id {id} is out of range")));
    }
    let mut body = format!("{} {id} ", kind.text()).into_bytes();
    body.extend_from_slice(json);
    write!(buffer, "plimsoll{RECORD_VERSION} {:08x} ", crc32fast::hash(&body))?;
    buffer.extend_from_slice(&body);
    buffer.push(b'\n');
    Ok(())
}

/// Leaves room for version, checksum, kind and id.
const JSON_MAX_BYTES: usize = RECORD_MAX_BYTES - 64;

/// The JSON of the incident, after as many cuts as it takes: first the peers, then command lines, then its course, then
/// victims. 16 victims with a cgroup of 1 KiB and an origin of 17 KiB, each byte of which becomes six, stay under the 256 KiB.
fn fit(incident: &mut Incident) -> io::Result<Vec<u8>> {
    let cuts: [fn(&mut Incident); 5] = [
        |_| {},
        |incident| incident.peers.clear(),
        |incident| incident.victims.iter_mut().for_each(|victim| victim.cmdline = None),
        |incident| incident.course = None,
        |incident| incident.victims.truncate(VICTIMS_MAX),
    ];
    for cut in cuts {
        cut(incident);
        let json = to_json(incident)?;
        if json.len() <= JSON_MAX_BYTES {
            return Ok(json);
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("incident {} is too large", incident.id)))
}

fn shorten_strings(incident: &mut Incident) {
    shorten(&mut incident.reason, REASON_MAX_BYTES);
    if let Some(origin) = &mut incident.origin {
        shorten_origin(origin);
    }
    incident.course.iter_mut().for_each(|course| course.keep_newest(SAMPLES_MAX));
    let Incident { victims, peers, .. } = incident;
    for Victim { comm, cmdline, cgroup, .. } in victims.iter_mut().chain(peers) {
        shorten(comm, COMM_MAX_BYTES);
        cmdline.iter_mut().for_each(|text| shorten(text, CMDLINE_MAX_BYTES));
        cgroup.iter_mut().for_each(|text| shorten(text, CGROUP_MAX_BYTES));
    }
}

fn shorten_origin(origin: &mut Origin) {
    let Origin { cgroup, container, invoker, gfp, cause, summary, advice, .. } = origin;
    advice.truncate(ADVICE_MAX);
    let words = [gfp, cause].into_iter().flatten().chain(advice);
    words.for_each(|text| shorten(text, REASON_MAX_BYTES));
    let paths = cgroup.iter_mut().chain(
        container
            .iter_mut()
            .flat_map(|one| [&mut one.runtime, &mut one.id, &mut one.pod].into_iter().flatten()),
    );
    paths.for_each(|text| shorten(text, CGROUP_MAX_BYTES));
    invoker.iter_mut().for_each(|one| shorten(&mut one.comm, COMM_MAX_BYTES));
    summary.iter_mut().for_each(|text| shorten(text, SUMMARY_MAX_BYTES));
}

fn shorten(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        let boundary = (0..=max_bytes).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(boundary.unwrap_or(0));
        text.push('…');
    }
}

/// JSON with everything escaped that a terminal might obey: serde_json leaves DEL, the C1 controls and the characters
/// that turn the direction of writing as they are.
struct Printable;

impl Formatter for Printable {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, character)) = rest.char_indices().find(|(_, character)| is_hazardous(*character))
        {
            let (plain, from) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            // All of them lie in the basic plane, so that one escape is enough.
            write!(writer, "\\u{:04x}", u32::from(character))?;
            rest = from.get(character.len_utf8()..).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        CompactFormatter.write_char_escape(writer, escape)
    }
}

#[cfg(test)]
mod tests;
