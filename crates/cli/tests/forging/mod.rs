//! Pinned maps as an earlier daemon, another version or a lost event would have left them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use plimsoll_wire::abi;
use std::{mem::offset_of, path::Path};

fn map(pin: &Path, name: &str) -> MapHandle {
    MapHandle::from_pinned_path(pin.join("maps").join(name)).unwrap()
}

fn put(value: &mut [u8], offset: usize, bytes: &[u8]) {
    value[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn word(value: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(value[offset..offset + 8].try_into().unwrap())
}

fn change(map: &MapHandle, key: &[u8], change: impl FnOnce(&mut [u8])) {
    let mut value = map.lookup(key, MapFlags::ANY).unwrap().unwrap();
    change(&mut value);
    map.update(key, &value, MapFlags::ANY).unwrap();
}

/// The programs are of another build; the maps are as before.
pub fn another_build(pin: &Path) {
    change(&map(pin, "meta"), &[0; 4], |meta| {
        put(meta, offset_of!(abi::plimsoll_meta, build), &4711_u64.to_ne_bytes());
    });
}

/// The maps are laid out otherwise.
pub fn another_layout(pin: &Path) {
    change(&map(pin, "meta"), &[0; 4], |meta| {
        put(meta, offset_of!(abi::plimsoll_meta, layout), &4711_u64.to_ne_bytes());
    });
}

/// The maps mean something else.
pub fn another_schema(pin: &Path) {
    change(&map(pin, "meta"), &[0; 4], |meta| {
        put(meta, offset_of!(abi::plimsoll_meta, schema), &4711_u32.to_ne_bytes());
    });
}

/// Adds to the fields of an account.
fn charge(pin: &Path, account: u32, usage: u64, dying: u64) {
    change(&map(pin, "accounts"), &account.to_ne_bytes(), |value| {
        for (offset, pages) in [
            (offset_of!(abi::plimsoll_account, usage_pages), usage),
            (offset_of!(abi::plimsoll_account, dying_pages), dying),
        ] {
            let sum = word(value, offset) + pages;
            put(value, offset, &sum.to_ne_bytes());
        }
    });
}

/// An address space that ended without an event, with so many pages charged to an account.
pub fn lost_exit(pin: &Path, number: u64, account: u32, user: u32, pages: u64) {
    // An address of the kernel's half where nothing is.
    let key: u64 = 0xffff_8000_dead_0000 + number * 4096;
    let mms = map(pin, "mms");
    let mut value = vec![0; mms.value_size() as usize];
    let charged = u64::from(account) << abi::PLIMSOLL_WORD_SHIFT | (abi::PLIMSOLL_WORD_BIAS + pages);
    put(&mut value, offset_of!(abi::plimsoll_mm, word), &charged.to_ne_bytes());
    let nothing = u64::from(account) << abi::PLIMSOLL_WORD_SHIFT | abi::PLIMSOLL_WORD_BIAS;
    for none in [offset_of!(abi::plimsoll_mm, reserved), offset_of!(abi::plimsoll_mm, dying)] {
        put(&mut value, none, &nothing.to_ne_bytes());
    }
    put(&mut value, offset_of!(abi::plimsoll_mm, uid), &user.to_ne_bytes());
    put(&mut value, offset_of!(abi::plimsoll_mm, mm), &key.to_ne_bytes());
    put(&mut value, offset_of!(abi::plimsoll_mm, tgid), &4_000_000_u32.to_ne_bytes());
    mms.update(&key.to_ne_bytes(), &value, MapFlags::ANY).unwrap();
    charge(pin, account, pages, 0);
    // It was known as its account's largest, if that is near.
    change(&map(pin, "accounts"), &account.to_ne_bytes(), |value| {
        put(value, offset_of!(abi::plimsoll_account, largest), &key.to_ne_bytes());
    });
}

/// A daemon claimed this process as a victim, and died before it sent the signal.
pub fn claimed(pin: &Path, account: u32, pid: u32, now_ns: u64) {
    let mms = map(pin, "mms");
    let tgid = offset_of!(abi::plimsoll_mm, tgid);
    let key = mms
        .keys()
        .find(|key| {
            let value = mms.lookup(key, MapFlags::ANY).unwrap();
            value.is_some_and(|value| value[tgid..tgid + 4] == pid.to_ne_bytes())
        })
        .unwrap();
    let mut pages = 0;
    change(&mms, &key, |value| {
        pages = (word(value, offset_of!(abi::plimsoll_mm, word)) & abi::PLIMSOLL_WORD_MASK)
            - abi::PLIMSOLL_WORD_BIAS;
        put(value, offset_of!(abi::plimsoll_mm, flags), &abi::PLIMSOLL_MM_DYING.to_ne_bytes());
        put(value, offset_of!(abi::plimsoll_mm, claimed), &account.to_ne_bytes());
        // All that it has as its own, in its account: as its word has it.
        let dying = word(value, offset_of!(abi::plimsoll_mm, word));
        put(value, offset_of!(abi::plimsoll_mm, dying), &dying.to_ne_bytes());
    });
    charge(pin, account, 0, pages);
    change(&map(pin, "accounts"), &account.to_ne_bytes(), |value| {
        put(value, offset_of!(abi::plimsoll_account, unanswered_ns), &now_ns.to_ne_bytes());
    });
}
