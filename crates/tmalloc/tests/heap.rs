//! Blocks under a coordinator: granted, refused, recalled, in one thread and in many.
#![cfg(test)]
#![expect(unsafe_code, reason = "memory by the piece is what is tested")]
#![expect(clippy::cast_possible_truncation, reason = "64-bit machines only")]

mod fake;

use fake::{Coordinator, anonymous_bytes, finish, scenario as named};
use proptest::{prelude::*, test_runner::TestRunner};
use std::{
    ptr::NonNull,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

const MIB: u64 = 1 << 20;

#[test]
fn what_is_granted_is_populated_and_no_more_than_that_is() {
    let coordinator = Coordinator::start(64 * MIB);
    coordinator.run("fill");
    let books = coordinator.books();
    assert!(books.all_settled(), "{books:?}");
    assert_eq!(books.refusals, 0);
}

#[test]
fn over_the_budget_there_is_null_and_what_is_freed_is_had_again() {
    let coordinator = Coordinator::start(8 * MIB);
    coordinator.run("refused");
    assert!(coordinator.books().refusals >= 1);
    assert!(coordinator.books().peak <= 8 * MIB);
}

#[test]
fn every_idle_page_comes_back_when_it_is_recalled() {
    let coordinator = Coordinator::start(256 * MIB);
    let mut child = coordinator.begin("idle");
    coordinator.await_books("the scenario's memory", |books| books.total() > 30 * MIB);
    read_line(&mut child);
    coordinator.await_watcher();
    coordinator.recall(u64::MAX);
    // What is left: the block that is used, the cache, and the pages around holes.
    coordinator.await_books("what is still held", |books| books.total() <= 512 << 10);
    drop(child.stdin.take());
    finish(child);
}

#[test]
fn contents_stay_whatever_is_done_in_whatever_order() {
    let coordinator = Coordinator::start(512 * MIB);
    coordinator.run("model");
}

#[test]
fn threads_free_what_others_took_while_memory_is_recalled() {
    let coordinator = Coordinator::start(512 * MIB);
    let child = coordinator.begin("threads");
    coordinator.await_books("the threads", |books| books.grants > 4);
    for _ in 0..50 {
        coordinator.recall(64 << 10);
        thread::sleep(Duration::from_millis(5));
    }
    finish(child);
    assert!(coordinator.books().recalled > 0);
}

#[test]
fn two_processes_share_a_budget_and_each_is_told_no() {
    let coordinator = Coordinator::start(16 * MIB);
    let children: Vec<_> = (0..4).map(|_| coordinator.begin("greedy")).collect();
    children.into_iter().for_each(|child| drop(finish(child)));
    assert!(coordinator.books().peak <= 16 * MIB);
}

/// One scenario, in a process of its own.
#[test]
fn scenario() {
    match named().as_deref() {
        Some("fill") => fill(),
        Some("refused") => refused(),
        Some("idle") => idle(),
        Some("model") => model(),
        Some("threads") => threads(),
        Some("greedy") => greedy(),
        _ => {}
    }
}

fn fill() {
    let first = tmalloc::allocate(16).unwrap();
    let before = anonymous_bytes();
    let blocks: Vec<_> = (0..2000).map(|at| tmalloc::allocate(at * 5 % 9000).unwrap()).collect();
    let large: Vec<_> = (0..10).map(|at| tmalloc::allocate((200 << 10) + at * 50_000).unwrap()).collect();
    let populated = anonymous_bytes();
    for block in blocks.iter().chain(&large) {
        assert_eq!(block.addr().get() % 16, 0);
        // SAFETY: each block holds a byte.
        unsafe { block.write(1) };
    }
    // SAFETY: each block is as large as was asked.
    large.iter().for_each(|block| unsafe { block.write_bytes(7, 200 << 10) });
    let touched = anonymous_bytes() - populated;
    assert!(touched <= 64 << 10, "{touched} bytes came by touching, {} by granting", populated - before);
    for block in blocks.into_iter().chain(large).chain([first]) {
        // SAFETY: used no more.
        unsafe { tmalloc::free(block.as_ptr()) };
    }
}

fn refused() {
    let take = |size| {
        let mut blocks = Vec::new();
        while let Some(block) = tmalloc::allocate(size) {
            blocks.push(block);
        }
        blocks
    };
    for size in [11 << 12, 100, 1 << 20, 5000] {
        let blocks = take(size);
        assert!(blocks.len() as u64 * size as u64 > 5 * MIB, "{} blocks of {size}", blocks.len());
        // SAFETY: used no more.
        blocks.into_iter().for_each(|block| unsafe { tmalloc::free(block.as_ptr()) });
    }
}

fn greedy() {
    let mut blocks = Vec::new();
    while let Some(block) = tmalloc::allocate(11 << 12) {
        // SAFETY: the block is as large.
        unsafe { block.write_bytes(3, 11 << 12) };
        blocks.push(block);
    }
    assert!(std::io::Error::last_os_error().raw_os_error().is_some());
}

fn idle() {
    let kept = tmalloc::allocate(100).unwrap();
    let blocks: Vec<_> = (0..4000).map(|at| tmalloc::allocate(at * 4).unwrap()).collect();
    let large = tmalloc::allocate(3 << 20).unwrap();
    // SAFETY: used no more.
    blocks.into_iter().chain([large]).for_each(|block| unsafe { tmalloc::free(block.as_ptr()) });
    println!("\nidle");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    // What was given back is asked for again, and is memory as before.
    let blocks: Vec<_> = (0..1000).map(|at| tmalloc::allocate(at * 30).unwrap()).collect();
    for (at, block) in blocks.iter().enumerate() {
        // SAFETY: as large as was asked.
        unsafe { block.write_bytes(9, at * 30) };
    }
    // SAFETY: used no more.
    blocks.into_iter().chain([kept]).for_each(|block| unsafe { tmalloc::free(block.as_ptr()) });
}

fn read_line(child: &mut std::process::Child) {
    use std::io::{BufRead, BufReader};
    let mut output = BufReader::new(child.stdout.as_mut().unwrap());
    let mut line = String::new();
    while !line.starts_with("idle") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the scenario ended early");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Take(usize),
    TakeZeroed(usize),
    TakeAligned(usize, u32),
    Resize(usize, usize),
    Free(usize),
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0_usize..600, 3 => 0_usize..20_000, 1 => 0_usize..400_000, 1 => 0_usize..3_000_000]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => sizes().prop_map(Step::Take),
        1 => sizes().prop_map(Step::TakeZeroed),
        1 => (sizes(), 0_u32..27).prop_map(|(size, log)| Step::TakeAligned(size, log)),
        3 => (any::<usize>(), sizes()).prop_map(|(which, size)| Step::Resize(which, size)),
        4 => any::<usize>().prop_map(Step::Free),
    ];
    proptest::collection::vec(step, 1..200)
}

/// A block and what was written to it: `length` bytes of `fill`.
struct Block {
    at: *mut u8,
    length: usize,
    fill: u8,
    align: usize,
}

impl Block {
    fn write(at: *mut u8, length: usize, fill: u8, align: usize) -> Self {
        // SAFETY: the block is as large as was asked.
        unsafe { at.write_bytes(fill, length) };
        Self { at, length, fill, align }
    }

    fn check(&self, length: usize) {
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(self.at, length.min(self.length)) };
        assert!(bytes.iter().all(|byte| *byte == self.fill));
    }
}

fn model() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 150, ..ProptestConfig::default() });
    runner
        .run(&steps(), |steps| {
            let mut blocks: Vec<Block> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                take_step(&mut blocks, &step, number as u8);
            }
            for block in blocks {
                block.check(usize::MAX);
                // SAFETY: used no more.
                unsafe { tmalloc::free(block.at) };
            }
            Ok(())
        })
        .unwrap();
}

fn take_step(blocks: &mut Vec<Block>, step: &Step, fill: u8) {
    use std::alloc::{GlobalAlloc, Layout};
    let heap = tmalloc::Tmalloc;
    match *step {
        Step::Take(size) => {
            blocks.push(Block::write(tmalloc::allocate(size).unwrap().as_ptr(), size, fill, 16));
        }
        Step::TakeZeroed(size) => {
            let layout = Layout::from_size_align(size, 1).unwrap();
            // SAFETY: the layout may be of size 0 with this allocator.
            let block = Block { at: unsafe { heap.alloc_zeroed(layout) }, length: size, fill: 0, align: 16 };
            block.check(size);
            blocks.push(Block::write(block.at, size, fill, 16));
        }
        Step::TakeAligned(size, log) => {
            let layout = Layout::from_size_align(size, 1 << log).unwrap();
            // SAFETY: as above.
            let at = unsafe { heap.alloc(layout) };
            assert_eq!(at.addr() % (1 << log), 0);
            blocks.push(Block::write(at, size, fill, 1 << log));
        }
        Step::Resize(which, size) if !blocks.is_empty() => {
            let index = which % blocks.len();
            let old = blocks.swap_remove(index);
            let layout = Layout::from_size_align(old.length, old.align).unwrap();
            // SAFETY: the block is in use, and is replaced by the answer.
            let at = unsafe { heap.realloc(old.at, layout, size) };
            assert!(!at.is_null() && at.addr().is_multiple_of(old.align));
            Block { at, ..old }.check(size);
            blocks.push(Block::write(at, size, fill, old.align));
        }
        Step::Free(which) if !blocks.is_empty() => {
            let index = which % blocks.len();
            let block = blocks.swap_remove(index);
            block.check(usize::MAX);
            // SAFETY: used no more.
            unsafe { tmalloc::free(block.at) };
        }
        Step::Resize(..) | Step::Free(_) => {}
    }
}

struct Sent(NonNull<u8>, usize, u8);
// SAFETY: a block belongs to no thread.
unsafe impl Send for Sent {}

fn threads() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..8).map(|_| mpsc::channel::<Sent>()).unzip();
    let workers: Vec<_> = receivers
        .into_iter()
        .enumerate()
        .map(|(number, receiver)| {
            let next = senders[(number + 1) % senders.len()].clone();
            thread::spawn(move || {
                let mut random = number as u64 + 1;
                while !OVER.load(Ordering::Relaxed) {
                    for _ in 0..64 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let size = 1 + (random >> 33) as usize % (1 << ((random >> 20) % 16));
                        let block = tmalloc::allocate(size).unwrap();
                        // SAFETY: as large as was asked.
                        unsafe { block.write_bytes(number as u8, size) };
                        next.send(Sent(block, size, number as u8)).unwrap();
                    }
                    while let Ok(Sent(block, size, fill)) = receiver.try_recv() {
                        // SAFETY: as large as was asked, and written by who sent it.
                        let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), size) };
                        assert!(bytes.iter().all(|byte| *byte == fill));
                        // SAFETY: used no more.
                        unsafe { tmalloc::free(block.as_ptr()) };
                    }
                }
                receiver
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(2));
    OVER.store(true, Ordering::Relaxed);
    // While any of them runs, all can be sent to.
    let receivers: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    for receiver in receivers {
        for Sent(block, ..) in receiver.try_iter() {
            // SAFETY: used no more.
            unsafe { tmalloc::free(block.as_ptr()) };
        }
    }
}
