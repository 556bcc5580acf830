//! The layouts shared with the eBPF programs, generated from the headers in `bpf/wire`; the meaning of each field is told
//! there. Nothing here is written by hand.

#![expect(
    missing_docs,
    non_camel_case_types,
    clippy::unreadable_literal,
    reason = "generated from C, where the names are the kernel's style and the documentation stands"
)]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));
