//! One request in, one reply out: the Varlink envelope around [`super::plimsoll`]. Bytes to bytes, no I/O, so that any
//! bytes at all can be thrown at it in a test.
//!
//! The `varlink` crate parses, serialises and describes. Its own `VarlinkService::handle` is not used: it reads messages
//! of any size, answers calls that want no answer, and ends the connection without a word where a reply would help.

use super::{
    control::{Control, Refusal},
    peer::Peer,
    plimsoll::{Fault, Plimsoll},
};
use plimsoll_api::message::{DESCRIPTION, INTERFACE};
use serde_json::json;
use std::{io::BufRead, sync::LazyLock};
use varlink::{Call, CallTrait, Interface, Reply, Request, VarlinkService, sansio::protocol};

/// What to do with the connection after the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for the next request.
    Listen,
    /// Close: what came was not Varlink, so nothing after it can be trusted to be.
    Close,
}

/// One request, or why it is none.
pub(super) type Read<'a> = Result<Request<'a>, Refusal>;

/// Reads one request (without its NUL).
pub(super) fn read(request: &[u8]) -> Read<'_> {
    protocol::parse_request(request).map_err(|error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Refusal::Invalid(format!("not a Varlink call: {why}"))
    })
}

/// What is asked for, as far as it has to do with the queue of those who start jobs. Nothing that is in it waits for more than
/// the guard, and for whoever changes a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// A job is to be started.
    Start,
    /// Whether one has its turn, over the connection that it was to be started by.
    Turn,
    /// Anything else.
    Other,
}

/// `after_start`: over such a connection.
pub(super) fn asked(request: &Read<'_>, after_start: bool) -> Asked {
    let Ok(request) = request else { return Asked::Other };
    let who = || request.parameters.as_ref()?.get("who")?.as_str();
    match request.method.rsplit_once('.') {
        Some((INTERFACE, "StartJob")) => Asked::Start,
        Some((INTERFACE, "ShowLimits"))
            if after_start && who().is_some_and(|who| who.starts_with("job:")) =>
        {
            Asked::Turn
        }
        Some(_) | None => Asked::Other,
    }
}

/// Answers one request. The reply ends with a NUL; it is empty for a `oneway` call.
pub(super) fn answer(control: &dyn Control, peer: Peer, request: Read<'_>) -> (Vec<u8>, Next) {
    let request = match request {
        Ok(request) => request,
        Err(refusal) => return (bytes(&refused(&refusal)), Next::Close),
    };
    let reply = if request.upgrade == Some(true) {
        bytes(&invalid_parameter("upgrade"))
    } else {
        reply_to(control, peer, &request)
    };
    // A oneway call is carried out, and nobody waits for what came of it.
    (if request.oneway == Some(true) { Vec::new() } else { reply }, Next::Listen)
}

fn reply_to(control: &dyn Control, peer: Peer, request: &Request<'_>) -> Vec<u8> {
    match request.method.rsplit_once('.') {
        Some(("org.varlink.service", _)) => describe(request),
        Some((INTERFACE, method)) => {
            let called = Plimsoll { control, peer }.call(method, request.parameters.as_ref());
            bytes(&match called {
                Ok(parameters) => Reply::parameters(Some(parameters)),
                Err(Fault::Refused(refusal)) => refused(&refusal),
                Err(Fault::NoSuchMethod) => {
                    let parameters = json!({ "method": request.method });
                    Reply::error("org.varlink.service.MethodNotFound", Some(parameters))
                }
            })
        }
        Some((interface, _)) => bytes(&interface_not_found(interface)),
        None => bytes(&interface_not_found(&request.method)),
    }
}

/// `org.varlink.service`, which the `varlink` crate implements.
fn describe(request: &Request<'_>) -> Vec<u8> {
    static SERVICE: LazyLock<VarlinkService> = LazyLock::new(|| {
        VarlinkService::new("Plimsoll", "plimsoll", env!("CARGO_PKG_VERSION"), "", vec![Box::new(Described)])
    });
    let mut reply = Vec::new();
    match Interface::call(&*SERVICE, &mut Call::new(&mut reply, request)) {
        Ok(()) => reply,
        Err(_) => bytes(&invalid_parameter("parameters")),
    }
}

/// Our interface as the `varlink` crate needs it to describe us. Calls do not come this way: what that crate hands on
/// does not know its peer.
struct Described;

impl Interface for Described {
    fn get_description(&self) -> &'static str {
        DESCRIPTION
    }

    fn get_name(&self) -> &'static str {
        INTERFACE
    }

    fn call_upgraded(&self, _call: &mut Call<'_>, _reader: &mut dyn BufRead) -> varlink::Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn call(&self, call: &mut Call<'_>) -> varlink::Result<()> {
        call.reply_method_not_implemented(INTERFACE.to_owned())
    }
}

/// The reply to a client that is turned away before it has asked for anything.
pub(super) fn busy(why: &str) -> Vec<u8> {
    bytes(&error("Busy", why))
}

/// The reply to a request that is too long to be read.
pub(super) fn too_long(max_bytes: usize) -> Vec<u8> {
    let why = format!("a request may hold {max_bytes} bytes, this one is longer");
    bytes(&refused(&Refusal::Invalid(why)))
}

fn refused(refusal: &Refusal) -> Reply {
    let name = match refusal {
        Refusal::NotPermitted(_) => "NotPermitted",
        Refusal::NotFound(_) => "NotFound",
        Refusal::Invalid(_) => "Invalid",
        Refusal::Unavailable(_) => "Unavailable",
        Refusal::Internal(_) => "Internal",
    };
    error(name, &refusal.to_string())
}

fn error(name: &str, message: &str) -> Reply {
    Reply::error(format!("{INTERFACE}.{name}"), Some(json!({ "message": message })))
}

fn invalid_parameter(parameter: &str) -> Reply {
    Reply::error("org.varlink.service.InvalidParameter", Some(json!({ "parameter": parameter })))
}

fn interface_not_found(interface: &str) -> Reply {
    Reply::error("org.varlink.service.InterfaceNotFound", Some(json!({ "interface": interface })))
}

/// A reply always is JSON; should it ever not be, the client gets an empty message, which it takes for an error.
fn bytes(reply: &Reply) -> Vec<u8> {
    protocol::serialize_reply(reply).unwrap_or_else(|_| vec![0])
}

#[cfg(test)]
mod tests;
