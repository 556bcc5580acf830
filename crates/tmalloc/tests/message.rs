//! The library's messages are those that `plimsoll-wire` reads and writes for the coordinator.
#![cfg(test)]

use plimsoll_policy::units::{Bytes, PageSize};
use plimsoll_wire::tmalloc::{Patience, Refusal, Reply, Request};
use tmalloc::message::{
    CANCEL, FAULT, GAVE_BACK, GRANTED, HEADROOM, HEADROOM_IS, HELLO, HELLO_WATCHES, MESSAGE_BYTES, Message,
    RECALL, RECALLED, REFUSED, RESERVE, SETTLED, SOFT, VERSION, WELCOME,
};

const PAGE: u64 = 4096;

fn on_the_wire(message: Message) -> [u8; MESSAGE_BYTES] {
    let words = [message.kind, message.seq].map(u32::to_ne_bytes);
    let values = [message.a, message.b, message.c].map(u64::to_ne_bytes);
    let bytes: Vec<u8> = words.into_iter().flatten().chain(values.into_iter().flatten()).collect();
    bytes.try_into().unwrap_or_default()
}

#[test]
fn the_coordinator_reads_what_the_library_says() {
    let bytes = Bytes(3 * PAGE);
    let message = Message::new;
    for (said, read) in [
        (message(HELLO).a(VERSION), Request::Hello { watch: false }),
        (message(HELLO).a(VERSION).b(HELLO_WATCHES), Request::Hello { watch: true }),
        (message(RESERVE).seq(9).a(bytes.0), Request::Reserve { seq: 9, bytes, patience: Patience::None }),
        (
            message(RESERVE).seq(9).a(bytes.0).b(20),
            Request::Reserve { seq: 9, bytes, patience: Patience::Milliseconds(20) },
        ),
        (
            message(RESERVE).seq(9).a(bytes.0).b(u64::MAX),
            Request::Reserve { seq: 9, bytes, patience: Patience::Endless },
        ),
        (message(SETTLED), Request::Settled),
        (message(GAVE_BACK).a(bytes.0), Request::GaveBack { bytes }),
        (message(RECALLED).seq(9).a(bytes.0), Request::Recalled { seq: 9, bytes }),
        (message(CANCEL).seq(9), Request::Cancel { seq: 9 }),
        (message(HEADROOM).seq(9), Request::Headroom { seq: 9 }),
    ] {
        let page = PageSize::from_bytes(PAGE).unwrap();
        assert_eq!(Request::decode(&on_the_wire(said), page), Ok(read));
    }
}

#[test]
fn the_library_reads_what_the_coordinator_says() {
    let (bytes, usage, line) = (Bytes(PAGE), Bytes(5), Bytes(6));
    let message = Message::new;
    for (said, read) in [
        (Reply::Welcome { page: bytes, line: true }, message(WELCOME).a(VERSION).b(PAGE).c(1)),
        (Reply::Welcome { page: bytes, line: false }, message(WELCOME).a(VERSION).b(PAGE)),
        (Reply::Granted { seq: 9, bytes }, message(GRANTED).seq(9).a(PAGE)),
        (
            Reply::Refused { seq: 9, refusal: Refusal::TimedOut, usage, line },
            message(REFUSED).seq(9).a(2).b(5).c(6),
        ),
        (Reply::Recall { seq: 9, bytes }, message(RECALL).seq(9).a(PAGE)),
        (Reply::Soft { reached: true, usage, soft: line }, message(SOFT).a(1).b(5).c(6)),
        (Reply::HeadroomIs { seq: 9, bytes: Some(bytes) }, message(HEADROOM_IS).seq(9).a(PAGE)),
        (Reply::HeadroomIs { seq: 9, bytes: None }, message(HEADROOM_IS).seq(9).a(u64::MAX)),
        (Reply::Fault { errno: 71 }, message(FAULT).a(71)),
    ] {
        assert_eq!(said.encode(), on_the_wire(read));
    }
}
