//! Memory asked for past the daemon: the programs' own answers.

use super::{ALICE, Fixture, exact, program::Program, scripted::Scripted, wait_for};
use plimsoll_policy::{
    reservation::HEADROOM,
    units::{Pages, Pid},
};
use plimsoll_sys::{
    bpf::{Grants, Reserved, Space},
    process::page_size,
};

/// Pages of a size in KiB.
pub fn pages(kib: u64) -> Pages {
    Pages(exact::pages_of_kib(kib))
}

/// What stays free below a line.
pub fn headroom() -> Pages {
    page_size().to_pages(HEADROOM)
}

/// The address space of a process, which must be tracked.
#[track_caller]
pub fn space(grants: &mut Grants, pid: u32) -> Space {
    let space = grants.find(Pid(pid)).unwrap().expect("it is tracked");
    assert_eq!(space.pid, Pid(pid));
    space
}

/// Reserves without headroom; it must be granted: the account's usage.
#[track_caller]
pub fn granted(grants: &Grants, space: &Space, pages: Pages) -> Pages {
    let answer = grants.reserve(space, pages, Pages(0)).unwrap();
    let Reserved::Granted { usage } = answer else {
        panic!("{pages} pages: {answer:?}");
    };
    usage
}

/// Waits until nothing is charged to a user, or reserved.
#[track_caller]
pub fn nothing_is_left(fixture: &Fixture, user: u32) {
    wait_for("nothing is charged or reserved", || {
        let facts = fixture.facts(user);
        (facts.usage, facts.reserved) == (Pages(0), Pages(0))
    });
}

/// A process of Alice's under a line, far from it, who answers it when it asks, and its address space.
pub fn asking(fixture: &Fixture, line: &str) -> (Grants, Scripted, u32, Space) {
    fixture.limit(ALICE, line, &[]);
    let (mut grants, mut scripted) = (fixture.grants(), fixture.scripted(&[ALICE]));
    let pid = scripted.make(1, "start 60100");
    let space = space(&mut grants, pid);
    (grants, scripted, pid, space)
}

/// Maps so many MiB, and touches them when it is told to.
pub fn toucher(fixture: &Fixture, mebibytes: u64) -> Program {
    let script = format!(
        "m = mmap.mmap(-1, {mebibytes} << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
         m.madvise(15)\nb = (ctypes.c_char * len(m)).from_buffer(m)\nsay('ready')\n\
         hear()\nctypes.memset(b, 1, len(m))\nsay('touched')\nhear()\n"
    );
    let mut program = fixture.python(ALICE, &script);
    program.stage("ready");
    program
}
