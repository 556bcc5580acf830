//! Calls of the control socket that no client of ours makes.

use super::{Fixture, SOON, slowness};
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    thread,
};

/// A connection to the control socket as a user.
pub struct Caller(UnixStream);

impl Caller {
    pub fn of(fixture: &Fixture, user: u32) -> Self {
        let socket = fixture.path("socket");
        // Of that thread alone, and for the one call that the kernel notes a peer's user in.
        let connected = thread::spawn(move || {
            let user = rustix::process::Uid::from_raw(user);
            rustix::thread::set_thread_res_uid(None, user, None).unwrap();
            UnixStream::connect(socket).unwrap()
        });
        let stream = connected.join().unwrap();
        stream.set_read_timeout(Some(SOON * slowness())).unwrap();
        Self(stream)
    }

    /// Sends a message, whatever it is.
    pub fn send(&mut self, message: &Value) {
        self.0.write_all(format!("{message}\0").as_bytes()).unwrap();
    }

    /// The next message that comes.
    pub fn hear(&mut self) -> Value {
        let mut answer = Vec::new();
        while answer.last() != Some(&0) {
            let mut piece = [0; 4096];
            let read = self.0.read(&mut piece).unwrap();
            assert!(read > 0, "the connection was closed after {answer:?}");
            answer.extend_from_slice(&piece[..read]);
        }
        answer.pop();
        serde_json::from_slice(&answer).unwrap()
    }

    pub fn begin(&mut self, method: &str, parameters: &Value) {
        self.send(&json!({"method": format!("io.plimsoll.{method}"), "parameters": parameters}));
    }

    /// The parameters of the answer to what was begun, or the name of its error with its own.
    pub fn answer(&mut self) -> Result<Value, String> {
        let mut answer = self.hear();
        match answer["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", answer["parameters"])),
            None => Ok(answer["parameters"].take()),
        }
    }

    pub fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, String> {
        self.begin(method, parameters);
        self.answer()
    }
}
