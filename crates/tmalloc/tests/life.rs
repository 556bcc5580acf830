//! What happens to a process beside allocating: it forks, waits, is told of limits, and its coordinator dies and comes back.
#![cfg(test)]
#![expect(unsafe_code, reason = "memory by the piece, and forks, are what is tested")]

mod fake;

use fake::{Coordinator, DEADLINE, anonymous_bytes, finish, scenario as named};
use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    process::Child,
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicI32, Ordering},
    thread,
    time::{Duration, Instant},
};
use tmalloc::Transaction;

const MIB: u64 = 1 << 20;

#[test]
fn a_forked_child_asks_for_all_it_uses() {
    let coordinator = Coordinator::start(64 * MIB);
    coordinator.run("fork");
    let books = coordinator.books();
    // The parent, its child and its grandchild.
    assert_eq!(books.asked.len(), 3, "{books:?}");
    assert!(books.all_settled(), "{books:?}");
}

#[test]
fn a_child_from_before_the_first_allocation_asks_in_its_own_name() {
    let coordinator = Coordinator::start(64 * MIB);
    coordinator.run("fork_first");
    assert_eq!(coordinator.books().asked.len(), 2);
}

#[test]
fn a_program_with_threads_can_fork_at_any_moment() {
    let coordinator = Coordinator::start(512 * MIB);
    coordinator.run("fork_among_threads");
    assert!(coordinator.books().asked.len() > 20);
}

#[test]
fn without_a_coordinator_memory_is_refused_or_passed_as_was_chosen() {
    let mut coordinator = Coordinator::start(64 * MIB);
    coordinator.die();
    coordinator.run("refused_without");
    coordinator.run("passed");
    let mut command = coordinator.command("passed_by_environment");
    finish(command.env("TMALLOC_WITHOUT_DAEMON", "pass").spawn().unwrap());
}

#[test]
fn a_process_outlives_its_coordinator_and_finds_the_next_one() {
    let mut coordinator = Coordinator::start(64 * MIB);
    let mut child = coordinator.begin("restart");
    await_line(&mut child, "have some");
    coordinator.die();
    say(&mut child);
    await_line(&mut child, "refused");
    coordinator.live_again();
    say(&mut child);
    await_line(&mut child, "have more");
    // Recalls reach it as before.
    say(&mut child);
    await_line(&mut child, "freed");
    coordinator.await_watcher();
    coordinator.recall(u64::MAX);
    coordinator.await_books("what is still held", |books| books.total() <= 512 << 10);
    say(&mut child);
    finish(child);
}

#[test]
fn a_process_that_asks_for_nothing_is_found_by_the_next_coordinator() {
    let mut coordinator = Coordinator::start(64 * MIB);
    let mut child = coordinator.begin("idle");
    await_line(&mut child, "idle");
    coordinator.await_watcher();
    coordinator.die();
    coordinator.live_again();
    coordinator.await_watcher();
    coordinator.recall(u64::MAX);
    coordinator.await_books("what is still held", |books| books.total() <= 512 << 10);
    say(&mut child);
    finish(child);
}

#[test]
fn files_of_a_program_that_closes_what_it_does_not_know_are_left_alone() {
    let coordinator = Coordinator::start(64 * MIB);
    let mut child = coordinator.begin("closed");
    await_line(&mut child, "connected");
    coordinator.await_watcher();
    say(&mut child);
    await_line(&mut child, "closed");
    coordinator.tell_soft(true);
    say(&mut child);
    finish(child);
}

#[test]
fn who_waits_gets_what_another_gives_back() {
    let coordinator = Coordinator::start(8 * MIB);
    let mut holder = coordinator.begin("hold");
    await_line(&mut holder, "held");
    let mut waiter = coordinator.begin("wait");
    await_line(&mut waiter, "timed out");
    await_line(&mut waiter, "waiting");
    thread::sleep(Duration::from_millis(100));
    say(&mut holder);
    await_line(&mut waiter, "granted");
    finish(holder);
    finish(waiter);
}

#[test]
fn many_threads_wait_while_others_are_served() {
    let coordinator = Coordinator::start(8 * MIB);
    coordinator.run("wait_many");
}

#[test]
fn who_meets_too_many_others_asks_again() {
    let coordinator = Coordinator::start(8 * MIB);
    coordinator.books().busy = 2;
    coordinator.run("allocate");
    coordinator.books().busy = 20;
    coordinator.run("wait_once");
    coordinator.books().busy = 20;
    coordinator.run("refused");
    assert_eq!(coordinator.books().busy, 16);
}

#[test]
fn a_block_given_back_twice_ends_the_program() {
    let coordinator = Coordinator::start(8 * MIB);
    for scenario in ["small_twice", "large_twice"] {
        let output = coordinator.begin(scenario).wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{scenario}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("freed twice"));
    }
}

#[test]
fn a_large_block_grows_again_and_again() {
    let coordinator = Coordinator::start(128 * MIB);
    coordinator.run("grow");
    let books = coordinator.books();
    assert!(books.all_settled() && books.refusals == 0, "{books:?}");
}

#[test]
fn giving_back_keeps_errno() {
    let mut coordinator = Coordinator::start(64 * MIB);
    let mut child = coordinator.begin("errno");
    await_line(&mut child, "have some");
    coordinator.die();
    say(&mut child);
    finish(child);
}

#[test]
fn a_transaction_takes_all_or_none() {
    let coordinator = Coordinator::start(16 * MIB);
    coordinator.run("transaction");
    assert!(coordinator.books().peak <= 16 * MIB);
}

#[test]
fn nobody_is_refused_for_what_lies_idle_in_its_own_hands() {
    for scenario in ["transaction", "small_then_large", "small_beside_kept"] {
        let coordinator = Coordinator::start(16 * MIB);
        coordinator.books().unheard = true;
        coordinator.run(scenario);
    }
}

#[test]
fn a_transaction_of_small_blocks_may_be_larger_than_a_region() {
    let coordinator = Coordinator::start(128 * MIB);
    coordinator.run("transaction_of_many");
    let books = coordinator.books();
    assert!(books.all_settled() && books.refusals == 0, "{books:?}");
}

#[test]
fn the_soft_limit_is_told_by_descriptor_and_by_callback() {
    let coordinator = Coordinator::start(64 * MIB);
    let mut child = coordinator.begin("soft");
    await_line(&mut child, "listening");
    coordinator.await_watcher();
    coordinator.tell_soft(true);
    await_line(&mut child, "reached");
    coordinator.tell_soft(false);
    finish(child);
}

#[test]
fn headroom_is_what_the_coordinator_would_grant() {
    let coordinator = Coordinator::start(10 * MIB);
    coordinator.run("headroom");
}

/// One scenario, in a process of its own.
#[test]
fn scenario() {
    match named().as_deref() {
        Some("fork") => fork(),
        Some("fork_first") => fork_first(),
        Some("fork_among_threads") => fork_among_threads(),
        Some("refused_without") => refused_without(),
        Some("passed") => {
            tmalloc::without_daemon(tmalloc::WithoutDaemon::Pass);
            passed();
        }
        Some("passed_by_environment") => passed(),
        Some("restart") => restart(),
        Some("idle") => idle(),
        Some("closed") => closed(),
        Some("hold") => hold(),
        Some("wait") => wait(),
        Some("allocate") => give(take(1, 1 << 20)),
        Some("wait_once") => give(vec![tmalloc::wait(1 << 20, None).unwrap()]),
        Some("refused") => assert!(tmalloc::allocate(1 << 20).is_none()),
        Some("small_twice") => free_twice(1000),
        Some("large_twice") => free_twice(512 << 10),
        Some("grow") => grow(),
        Some("errno") => errno(),
        Some("wait_many") => wait_many(),
        Some("transaction_of_many") => transaction_of_many(),
        Some("transaction") => transaction(),
        Some("small_then_large") => small_then_large(),
        Some("small_beside_kept") => small_beside_kept(),
        Some("soft") => soft(),
        Some("headroom") => headroom(),
        _ => {}
    }
}

/// Waits for a line of a scenario.
fn await_line(child: &mut Child, wanted: &str) {
    // One byte at a time: a reader that buffers would take lines that the next call waits for.
    let output = child.stdout.as_mut().unwrap();
    let mut lines = BufReader::with_capacity(1, output);
    let mut line = String::new();
    while line.trim() != wanted {
        line.clear();
        if lines.read_line(&mut line).unwrap() == 0 {
            let mut error = String::new();
            std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut error).unwrap();
            panic!("the scenario ended before '{wanted}': {error}");
        }
    }
}

/// Lets a scenario go on.
fn say(child: &mut Child) {
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
}

fn tell(line: &str) {
    println!("\n{line}");
}

fn await_word() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn take(count: usize, size: usize) -> Vec<NonNull<u8>> {
    (0..count).map(|_| tmalloc::allocate(size).unwrap()).collect()
}

fn give(blocks: Vec<NonNull<u8>>) {
    for block in blocks {
        // SAFETY: used no more.
        unsafe { tmalloc::free(block.as_ptr()) };
    }
}

/// Runs `body` in a forked child, which must return.
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child goes on with this thread alone, and ends without returning from here.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child without running what the parent registered.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "the child failed");
}

fn fork() {
    let blocks = take(500, 4000);
    let freed = take(500, 4000);
    give(freed);
    let large = tmalloc::allocate(1 << 20).unwrap();
    // SAFETY: as large as was asked.
    unsafe { large.write_bytes(5, 1 << 20) };
    in_child(|| {
        // What was inherited is there, and can be given back, and is not handed out again.
        // SAFETY: as large as was asked.
        assert!(unsafe { std::slice::from_raw_parts(large.as_ptr(), 1 << 20) }.iter().all(|byte| *byte == 5));
        give(blocks.clone());
        let own = take(500, 4000);
        assert!(own.iter().all(|block| !blocks.contains(block)));
        let before = anonymous_bytes();
        for block in &own {
            // SAFETY: as large as was asked.
            unsafe { block.write_bytes(1, 4000) };
        }
        assert!(anonymous_bytes() - before <= 64 << 10);
        // SAFETY: inherited, and resized into memory of its own.
        let grown = unsafe {
            std::alloc::GlobalAlloc::realloc(&tmalloc::Tmalloc, large.as_ptr(), layout(1 << 20), 2 << 20)
        };
        assert!(!grown.is_null());
        in_child(|| give(take(10, 100_000)));
        // SAFETY: used no more.
        unsafe { tmalloc::free(grown) };
        give(own);
    });
    give(take(500, 4000));
    give(blocks);
    give(vec![large]);
}

fn fork_first() {
    assert!(tmalloc::headroom() > 0);
    in_child(|| give(take(10, 1000)));
    give(take(10, 1000));
}

fn fork_among_threads() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let workers: Vec<_> = (0..4)
        .map(|number| {
            thread::spawn(move || {
                while !OVER.load(Ordering::Relaxed) {
                    give(take(50, 100 + number * 3000));
                    give(take(1, 200_000 + number));
                }
            })
        })
        .collect();
    for _ in 0..30 {
        let inherited = take(20, 1000);
        in_child(|| {
            give(inherited.clone());
            let own = take(200, 700);
            give(take(2, 300_000));
            give(own);
        });
        give(inherited);
    }
    OVER.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

fn layout(size: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(size, 16).unwrap()
}

fn refused_without() {
    for size in [10, 5000, 1 << 20] {
        assert!(tmalloc::allocate(size).is_none());
    }
    let began = Instant::now();
    assert!(tmalloc::wait(100, Some(Duration::from_millis(200))).is_none());
    assert!((Duration::from_millis(200)..DEADLINE).contains(&began.elapsed()));
    assert_eq!(tmalloc::headroom(), 0);
}

fn passed() {
    let blocks = [10, 5000, 1 << 20].map(|size| take(20, size));
    blocks.into_iter().for_each(give);
    assert_eq!(tmalloc::headroom(), usize::MAX);
    let mut both = Transaction::begin();
    both.reserve(100).unwrap();
    both.reserve(1 << 20).unwrap();
    let mut blocks = [std::ptr::null_mut(); 2];
    assert!(both.commit(&mut blocks));
    give(blocks.into_iter().filter_map(NonNull::new).collect());
}

/// Allocates until it is granted, as a program does that was told no while nobody was there.
fn insist(size: usize) -> NonNull<u8> {
    let began = Instant::now();
    loop {
        if let Some(block) = tmalloc::allocate(size) {
            return block;
        }
        assert!(began.elapsed() < DEADLINE);
        thread::sleep(Duration::from_millis(5));
    }
}

fn restart() {
    let mut blocks = take(100, 30_000);
    let large = tmalloc::allocate(20 << 20).unwrap();
    tell("have some");
    await_word();
    while let Some(block) = tmalloc::allocate(100_000) {
        blocks.push(block);
    }
    // Freed while nobody is there: the next coordinator is told.
    give(vec![large]);
    tell("refused");
    await_word();
    blocks.push(insist(1 << 20));
    blocks.extend((0..20).map(|_| insist(100_000)));
    tell("have more");
    await_word();
    give(blocks);
    // The last word on what is freed is said with the next question.
    assert!(tmalloc::headroom() > 0);
    tell("freed");
    await_word();
}

fn idle() {
    give(take(1000, 20_000));
    tell("idle");
    await_word();
}

fn closed() {
    give(vec![NonNull::new(soft_fd_in_use()).unwrap()]);
    tell("connected");
    await_word();
    // SAFETY: closes what this process does not know, as programs do that start others.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    // SAFETY: a name that ends with a zero.
    let files: Vec<_> = (0..16).map(|_| unsafe { libc::memfd_create(c"program's".as_ptr(), 0) }).collect();
    assert!(files.contains(&3) && files.iter().all(|file| *file >= 3), "{files:?}");
    tell("closed");
    await_word();
    // A new connection is made, beside the files.
    let blocks = take(3000, 1000);
    give(blocks);
    give(take(3, 5 << 20));
    for file in files {
        // SAFETY: takes numbers.
        let length = unsafe { libc::lseek(file, 0, libc::SEEK_END) };
        assert_eq!(length, 0, "{:?}", std::io::Error::last_os_error());
    }
}

/// A block, with the descriptor of the soft limit open.
fn soft_fd_in_use() -> *mut u8 {
    assert!(soft_fd() >= 0);
    tmalloc::allocate(100).unwrap().as_ptr()
}

fn hold() {
    let mut blocks = Vec::new();
    while let Some(block) = tmalloc::allocate(1 << 20) {
        blocks.push(block);
    }
    tell("held");
    await_word();
    give(blocks);
}

fn wait() {
    let began = Instant::now();
    assert!(tmalloc::wait(2 << 20, Some(Duration::from_millis(150))).is_none());
    assert!(began.elapsed() >= Duration::from_millis(150));
    tell("timed out");
    tell("waiting");
    let large = tmalloc::wait(2 << 20, None).unwrap();
    tell("granted");
    let small = tmalloc::wait(100, Some(DEADLINE)).unwrap();
    give(vec![large, small]);
}

fn wait_many() {
    let held = tmalloc::allocate(7 << 20).unwrap();
    let held_at = held.as_ptr().expose_provenance();
    let waiters: Vec<_> = (0..16)
        .map(|_| {
            thread::spawn(|| {
                for _ in 0..5 {
                    let block = tmalloc::wait(2 << 20, None).unwrap();
                    give(vec![block]);
                }
            })
        })
        .collect();
    let served = thread::spawn(|| {
        for _ in 0..50 {
            give(vec![tmalloc::allocate(1000).unwrap()]);
            thread::sleep(Duration::from_millis(1));
        }
    });
    served.join().unwrap();
    give(vec![NonNull::new(std::ptr::with_exposed_provenance_mut(held_at)).unwrap()]);
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
}

fn free_twice(size: usize) {
    // No core of a death that is wanted.
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit, which is read.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    let block = tmalloc::allocate(size).unwrap();
    give(vec![block, block]);
}

fn errno() {
    const ANY: i32 = 77;
    let small = take(3000, 1000);
    let large = take(3, 5 << 20);
    tell("have some");
    await_word();
    // SAFETY: the thread's own, which always exists.
    let errno = unsafe { libc::__errno_location() };
    for block in small.into_iter().chain(large) {
        // SAFETY: as above.
        unsafe { errno.write(ANY) };
        // SAFETY: used no more.
        unsafe { tmalloc::free(block.as_ptr()) };
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(ANY));
    }
}

/// Resizes one block up and down, with others mapped around it, and finds its first bytes each time.
fn grow() {
    const KIB: usize = 1 << 10;
    let sizes =
        [200, 400, 900, 1700, 300, 2500, 5000, 9000, 20_000, 4000, 6000, 30_000].map(|size| size * KIB);
    let mut between = Vec::new();
    let mut length = 150 * KIB;
    let mut block = tmalloc::allocate(length).unwrap().as_ptr();
    for (size, fill) in sizes.into_iter().zip(1..) {
        // SAFETY: as large as was asked.
        unsafe { block.write_bytes(fill, length) };
        // SAFETY: in use, and replaced by the answer.
        block = unsafe { std::alloc::GlobalAlloc::realloc(&tmalloc::Tmalloc, block, layout(length), size) };
        assert!(!block.is_null());
        // SAFETY: as large as was asked.
        let bytes = unsafe { std::slice::from_raw_parts(block, length.min(size)) };
        assert!(bytes.iter().all(|byte| *byte == fill));
        length = size;
        between.extend(take(1, 300 * KIB));
    }
    give(between);
    give(NonNull::new(block).into_iter().collect());
}

fn commit(sizes: &[usize]) -> Vec<*mut u8> {
    let mut transaction = Transaction::begin();
    for (index, size) in sizes.iter().enumerate() {
        assert_eq!(transaction.reserve(*size), Some(index));
    }
    let mut blocks = vec![std::ptr::null_mut(); sizes.len()];
    let taken = transaction.commit(&mut blocks);
    assert!(blocks.iter().all(|block| block.is_null() != taken));
    blocks
}

fn transaction_of_many() {
    const SIZE: usize = 128 << 10;
    let blocks = commit(&[SIZE; 300]);
    for (block, fill) in blocks.iter().zip((0_u8..=250).cycle()) {
        assert!(!block.is_null());
        // SAFETY: as large as was asked.
        unsafe { block.write_bytes(fill, SIZE) };
    }
    for (block, fill) in blocks.iter().zip((0_u8..=250).cycle()) {
        // SAFETY: as above.
        assert!(unsafe { std::slice::from_raw_parts(*block, SIZE) }.iter().all(|byte| *byte == fill));
    }
    give(blocks.into_iter().filter_map(NonNull::new).collect());
}

fn transaction() {
    let sizes = [100, 5000, 300_000, 1 << 20, 16, 70_000];
    for _ in 0..20 {
        let blocks = commit(&sizes);
        for (block, size) in blocks.iter().zip(sizes) {
            assert!(!block.is_null());
            // SAFETY: as large as was asked.
            unsafe { block.write_bytes(1, size) };
        }
        give(blocks.into_iter().filter_map(NonNull::new).collect());
    }
    let small = commit(&[200; 300]);
    give(small.into_iter().filter_map(NonNull::new).collect());
    assert!(commit(&[10 << 20, 100, 10 << 20]).iter().all(|block| block.is_null()));
    // Nothing is left of the one that was refused.
    give(take(1, 12 << 20));
    drop(Transaction::begin());
}

fn small_then_large() {
    give(take(80_000, 150));
    let large = take(1, 14 << 20);
    give(take(1000, 150));
    give(large);
    give(take(80_000, 150));
}

fn small_beside_kept() {
    // A freed block of this size is kept for the next one like it.
    give(take(1, 900 << 10));
    let small: Vec<_> = std::iter::from_fn(|| tmalloc::allocate(1000)).collect();
    // 15,000 at most where it stays kept.
    assert!(small.len() > 15_200, "{} blocks", small.len());
    give(small);
}

static REACHED: AtomicI32 = AtomicI32::new(-1);

fn soft() {
    assert!(tmalloc::on_soft(|reached| REACHED.store(i32::from(reached), Ordering::SeqCst)));
    give(take(1, 100));
    let descriptor = soft_fd();
    tell("listening");
    let mut ready = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let limit = i32::try_from(DEADLINE.as_millis()).unwrap();
    // SAFETY: one descriptor.
    assert_eq!(unsafe { libc::poll(&raw mut ready, 1, limit) }, 1);
    await_value(1);
    tell("reached");
    await_value(0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::poll(&raw mut ready, 1, 0) }, 0);
}

fn soft_fd() -> i32 {
    unsafe extern "C" {
        safe fn tmalloc_soft_fd() -> i32;
    }
    tmalloc_soft_fd()
}

fn await_value(wanted: i32) {
    let began = Instant::now();
    while REACHED.load(Ordering::SeqCst) != wanted {
        assert!(began.elapsed() < DEADLINE);
        thread::sleep(Duration::from_millis(1));
    }
}

fn headroom() {
    assert_eq!(tmalloc::headroom() as u64, 10 * MIB);
    let block = tmalloc::allocate(4 << 20).unwrap();
    assert_eq!(tmalloc::headroom() as u64, 6 * MIB - 4096);
    give(vec![block]);
}
