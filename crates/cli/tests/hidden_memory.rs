//! Memory that no process shows is charged to who hides it: pages that lie in pipes.
#![cfg(test)]

mod support;

use std::fs;
use support::{ALICE, BOB, Fixture, program::Program, skip, wait_for};

const MIB: u64 = 1 << 20;

const OWNED: &str = "[limits]\nshared = \"owner\"\n";

/// Hides memory in pipes: of each huge page one page is handed to a pipe, and the whole is let go of.
const HIDE: &str = "import fcntl\n\
    HUGE = 2 << 20\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    class Piece(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]\n\
    def huge():\n\
    \x20   area = mmap.mmap(-1, 2 * HUGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
    \x20   at = ctypes.addressof(ctypes.c_char.from_buffer(area)); at += -at % HUGE\n\
    \x20   area.madvise(mmap.MADV_HUGEPAGE); ctypes.memset(at, 1, HUGE)\n\
    \x20   for _ in range(50):\n\
    \x20       # MADV_COLLAPSE: where there was no block for a huge page, it is made one now.\n\
    \x20       if not libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(HUGE), 25): return area, at\n\
    \x20       time.sleep(0.1)\n\
    \x20   raise OSError(ctypes.get_errno())\n\
    def lay(end, at, size=4096):\n\
    \x20   laid = libc.vmsplice(end, ctypes.byref(Piece(at, size)), ctypes.c_ulong(1), 0)\n\
    \x20   if laid != size: raise OSError(ctypes.get_errno())\n\
    def lay_at_once(end, kept):\n\
    \x20   for _, at in kept: lay(end, at)\n\
    def hide(size, pipes):\n\
    \x20   for turn in range(size // HUGE):\n\
    \x20       area, at = huge(); lay(pipes[turn % len(pipes)][1], at); area.close()\n";

/// Whether anonymous memory can be of huge pages here.
fn has_huge_pages() -> bool {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let has = !enabled.is_empty() && !enabled.contains("[never]");
    if !has {
        skip("there are no huge pages here");
    }
    has
}

/// Draws Alice's line, and waits for the first walk.
fn limit(fixture: &Fixture, size: &str) {
    fixture.limit(ALICE, size, &[]);
    wait_for("it is walked", || !fixture.account(ALICE).unwrap()["shared_bytes"].is_null());
}

fn shared_bytes(fixture: &Fixture, user: u32) -> u64 {
    fixture.account(user).unwrap()["shared_bytes"].as_u64().unwrap()
}

/// A program of a user's that says when it has done what it is told to.
fn hider(fixture: &Fixture, user: u32, script: &str) -> Program {
    fixture.python(user, &format!("{HIDE}say('ready')\nhear()\n{script}\nsay('full')\nhear()\n")).ready()
}

fn fill(program: &mut Program) {
    program.tell("go");
    program.stage("full");
}

#[test]
fn who_hides_memory_in_pipes_is_ended_at_the_line_and_nobody_else() {
    let fixture = fixture!(OWNED);
    if !has_huge_pages() {
        return;
    }
    limit(&fixture, "64M");
    if fixture.log().contains("does not tell who is handed a file") {
        skip("nobody ends for what has a descriptor where programs do not see who is handed it");
        return;
    }
    let mut bystander = fixture.python(ALICE, "kept = bytearray(24 << 20)\nsay('ready')\nhear()\n").ready();
    let mut reader = hider(&fixture, BOB, "hide(16 << 20, [os.pipe()])");
    fill(&mut reader);
    let mut hog = hider(&fixture, ALICE, "hide(100 << 20, [os.pipe() for _ in range(8)])");
    hog.tell("go");
    hog.killed();
    let incidents = fixture.incidents(1);
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    assert_eq!(incidents[0]["victims"][0]["pid"].as_u64(), Some(hog.pid().into()), "{incidents:?}");
    wait_for("it is gone", || shared_bytes(&fixture, ALICE) == 0);
    assert!(bystander.runs() && reader.runs());
}

#[test]
fn what_lies_in_pipes_is_counted_once_and_what_is_mapped_as_its_processs() {
    let fixture = fixture!(OWNED);
    if !has_huge_pages() {
        return;
    }
    limit(&fixture, "200M");
    let counted = |script: &str, bytes: u64| {
        let mut program = hider(&fixture, ALICE, script);
        fill(&mut program);
        wait_for(&format!("{bytes} bytes are counted of {script}"), || {
            shared_bytes(&fixture, ALICE) == bytes
        });
        drop(program);
        wait_for("it is gone", || shared_bytes(&fixture, ALICE) == 0);
    };
    counted("pipe = os.pipe(); hide(32 << 20, [pipe]); os.fork()", 32 * MIB);
    // Written, in pieces of a page.
    counted(
        "ends = [os.pipe() for _ in range(16)]\n\
         for _, end in ends: os.write(end, bytes(fcntl.fcntl(end, 1031, 1 << 20)))",
        16 * MIB,
    );
    // The same again in another pipe, and each of its pages.
    counted(
        "one, other, third = os.pipe(), os.pipe(), os.pipe(); hide(32 << 20, [one])\n\
         assert libc.tee(one[0], other[1], ctypes.c_size_t(1 << 20), 0) == 16 * 4096\n\
         fcntl.fcntl(third[1], 1031, 1 << 20)\n\
         area, at = huge(); lay(third[1], at, 256 * 4096); area.close()",
        34 * MIB,
    );
    // Mapped still, and let go of later: all but a page.
    let mut program = hider(
        &fixture,
        ALICE,
        "ends = os.pipe(); kept = []\n\
         for _ in range(16): kept.append(huge()); lay(ends[1], kept[-1][1])\n\
         say('laid'); hear()\n\
         for _, at in kept: libc.munmap(ctypes.c_void_p(at + 4096), ctypes.c_size_t(HUGE - 4096))",
    );
    program.tell("go");
    program.stage("laid");
    let mut another = hider(&fixture, ALICE, "hide(16 << 20, [os.pipe()])");
    fill(&mut another);
    wait_for("the other's is counted", || shared_bytes(&fixture, ALICE) == 16 * MIB);
    program.tell("go");
    program.stage("full");
    drop(another);
    // Before 6.3 the kernel does not tell how much of a huge page is mapped: it may be half then.
    wait_for("what is not mapped is counted", || {
        let bytes = shared_bytes(&fixture, ALICE);
        bytes == 16 * (2 * MIB - 4096) || bytes == 16 * MIB
    });
    fixture.assert_nobody_killed();
}

#[test]
fn a_pipe_that_another_user_was_handed_and_filled_ends_nobody_though_they_let_go_of_it_at_once() {
    let fixture = fixture!(OWNED);
    if !has_huge_pages() {
        return;
    }
    limit(&fixture, "64M");
    let mut bob = fixture.python(
        BOB,
        &format!(
            "{HIDE}import socket\n\
             door = socket.socket(socket.AF_UNIX); door.bind('\\0plimsoll-test-pipe'); door.listen(1)\n\
             kept = [huge() for _ in range(50)]\n\
             say('ready')\nend = socket.recv_fds(door.accept()[0], 1, 1)[1][0]\n\
             lay_at_once(end, kept); os.close(end)\nfor area, _ in kept: area.close()\nsay('full')\nhear()\n"
        ),
    );
    bob.stage("ready");
    let mut alice = fixture.python(
        ALICE,
        &format!(
            "{HIDE}import socket\nends = os.pipe()\nfcntl.fcntl(ends[1], 1031, 1 << 20)\n\
             to = socket.socket(socket.AF_UNIX); to.connect('\\0plimsoll-test-pipe')\n\
             socket.send_fds(to, [b'x'], [ends[1]])\nsay('ready')\nhear()\n"
        ),
    );
    alice.stage("ready");
    bob.stage("full");
    let told = &fixture.incidents(1)[0];
    assert_eq!(told["reason"], "over-hard-limit-shared-lasts", "{told}");
    assert_eq!(told["victims"].as_array().map(Vec::len), Some(0), "{told}");
    let shown = fixture.ok(&["limit", "show"]);
    assert!(shown.contains("pipe:["), "{shown}");
    // Has it walked.
    let mut another = hider(&fixture, ALICE, "hide(16 << 20, [os.pipe()])");
    fill(&mut another);
    wait_for("it is walked", || shared_bytes(&fixture, ALICE) == 116 * MIB);
    assert!(alice.runs() && bob.runs() && another.runs());
    assert_eq!(fixture.history().len(), 1, "{:?}", fixture.history());
}

#[test]
fn who_became_another_user_with_a_pipe_and_filled_it_ends_nobody_of_the_one_who_made_it() {
    let fixture = fixture!(OWNED);
    if !has_huge_pages() {
        return;
    }
    limit(&fixture, "64M");
    // Root's, as a service that a user asks for something, and that becomes another for it.
    let mut alice = fixture.root_python(&format!(
        "{HIDE}os.setresuid({ALICE}, {ALICE}, 0)\nends = os.pipe()\n\
         fcntl.fcntl(ends[1], 1031, 1 << 20)\nif not os.fork():\n\
         \x20   os.seteuid(0); os.setresuid(0, 0, 0); kept = [huge() for _ in range(50)]\n\
         \x20   os.setresuid({BOB}, {BOB}, {BOB}); lay_at_once(ends[1], kept); os._exit(0)\n\
         os.setresuid({ALICE}, {ALICE}, {ALICE}); os.wait()\nsay('full')\nhear()\n"
    ));
    alice.stage("full");
    let told = &fixture.incidents(1)[0];
    assert_eq!(told["reason"], "over-hard-limit-shared-lasts", "{told}");
    assert!(alice.runs());
    assert_eq!(fixture.history().len(), 1, "{:?}", fixture.history());
}
