//! The tree of counters of an account's usage: what `bpf/limits/tree.h` does beside its model, on as many CPUs as wanted.

#![cfg(test)]

use plimsoll_policy::counter::{Shape, Tree, kernel_batch};
use plimsoll_sys::bpf::{Call as _, Table as _};
use plimsoll_testkit::{Cpus, FakeKernel, Settings, Task};
use plimsoll_wire::abi;
use std::rc::Rc;

const UID: u32 = 1000;
const ANON: u32 = 1;

/// The same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// A line of so many pages for the user.
fn line(hard: i64) -> abi::plimsoll_line_set {
    abi::plimsoll_line_set {
        hard_pages: hard,
        soft_pages: hard - hard / 10,
        id: UID,
        of: abi::PLIMSOLL_OF_USER,
        signal: 9,
        enforce: abi::PLIMSOLL_LINE_NOW,
        user: UID,
        ..Default::default()
    }
}

struct Machine {
    kernel: Rc<FakeKernel>,
    cpus: u32,
    account: u32,
    model: Tree,
    /// What each process has.
    pages: Vec<i64>,
}

impl Machine {
    /// With a line of so many pages for one user, who runs so many processes.
    fn new(cpus: u32, hard: i64, processes: u32) -> Self {
        Self::on(FakeKernel::open(FakeKernel::of_this_tree()).unwrap(), cpus, hard, processes)
    }

    /// As [`Machine::new`], with the programs loaded anew.
    fn on(kernel: Rc<FakeKernel>, cpus: u32, hard: i64, processes: u32) -> Self {
        kernel.load(&Settings {
            cpus,
            batch: kernel_batch(cpus),
            charged_members: 0b110,
            // More than any line here: each event is looked at, as on hundreds of CPUs.
            loose_pages_per_mm: 1 << 20,
            has_task_from_pid: 1,
            has_send_signal_task: 1,
            mms: 512,
            families: 16,
            accounts: 8,
            ring_bytes: 1 << 20,
            allowance_pages: 1024,
        });
        let mut line = line(hard);
        kernel.program("line_set").unwrap().run(&mut line).unwrap();
        assert_eq!(line.result, 0);
        for place in 0..processes {
            let (task, mm) = (kernel.task(place), kernel.mm(place));
            kernel.mm_new(mm, u64::from(place) + 1, false);
            kernel.mm_used_by(mm, 1, task);
            let pid = 100 + place;
            let is = Task { mm, start_ns: 1, pid, uid: UID, leader: place, threads: 1, ..Task::default() };
            kernel.task_set(task, &is);
            kernel.enter(0, task);
            kernel.event("on_exec", &[task]);
        }
        let model = Tree::new(Shape::of(cpus), line.soft_pages);
        Self { kernel, cpus, account: line.account, model, pages: vec![0; processes as usize] }
    }

    /// One process's pages change on one CPU.
    fn step(&mut self, process: u32, cpu: u32, delta: i64) {
        let (task, mm) = (self.kernel.task(process), self.kernel.mm(process));
        self.kernel.enter(cpu, task);
        self.kernel.count(mm, cpu, ANON, delta);
        self.kernel.event("on_rss_stat", &[mm, ANON.into()]);
        self.pages[process as usize] += delta;
        self.model.add(cpu, delta);
    }

    fn usage(&self) -> i64 {
        self.pages.iter().sum()
    }

    fn agrees(&self) {
        let account = self.kernel.account(self.account);
        let kept: i64 = self.kernel.kept_of(self.account).iter().sum();
        let known = (account.usage_pages, kept, account.batch);
        assert_eq!(known, (self.usage(), self.model.kept(), self.model.batch()), "{} CPUs", self.cpus);
        let bound = Shape::of(self.cpus).bound(account.batch).0;
        assert!(kept.unsigned_abs() <= bound, "{kept} of {bound}");
    }
}

/// So many steps of processes that hop from CPU to CPU while they map and unmap. Returns the worst error of what is known
/// without a look at each CPU, in pages, and what was guaranteed then.
fn storm(machine: &mut Machine, steps: u32, most: i64, random: &mut Random) -> (u64, u64) {
    let processes = u64::try_from(machine.pages.len()).unwrap();
    let mut worst = (0, 0);
    for step in 0..steps {
        let process = u32::try_from(random.below(processes)).unwrap();
        let cpu = u32::try_from(random.below(machine.cpus.into())).unwrap();
        let has = machine.pages[process as usize];
        let size = [1, 1, 1, 16, 64, 512][usize::try_from(random.below(6)).unwrap()];
        let takes = machine.usage() + size < most && random.below(2) == 0;
        let delta = if takes { size } else { -size.min(has) };
        if delta == 0 {
            continue;
        }
        machine.step(process, cpu, delta);
        let estimate = machine.model.approximate();
        let error = estimate.pages.abs_diff(machine.usage());
        assert!(error <= estimate.bound.0);
        let soft = machine.kernel.account(machine.account).soft_pages;
        assert!(4 * estimate.bound.0 <= soft.abs_diff(estimate.pages), "{estimate:?} below {soft}");
        worst = worst.max((error, estimate.bound.0));
        // All that is compared takes longer than a step.
        if step % 97 == 0 || step + 1 == steps {
            machine.agrees();
        }
    }
    worst
}

#[test]
fn the_programs_do_what_the_model_does_on_any_number_of_cpus() {
    for (cpus, seed) in [(1, 11), (2, 12), (3, 13), (16, 14), (17, 15), (64, 16), (100, 17), (256, 18)] {
        let mut random = Random(seed);
        // Lines that are all near, or all far, or come into reach.
        for hard in [20_000, 200_000, 524_288] {
            let mut machine = Machine::new(cpus, hard, 20);
            // Below the soft limit: past it somebody ends.
            storm(&mut machine, 3000, hard - hard / 8, &mut random);
        }
    }
}

/// Seed 003's storm: 64 processes under a line of 2 GiB. What is known at once is off by no more than what is guaranteed, and
/// that is no more than 16 MiB or a quarter of the distance to the soft limit.
#[test]
fn in_a_storm_on_256_cpus_usage_is_known_within_the_bound() {
    let mut machine = Machine::new(256, 524_288, 64);
    // As much as that error was seen, with what was guaranteed then.
    let (error, bound) = storm(&mut machine, 60_000, 300_000, &mut Random(1));
    let distance = machine.model.approximate();
    println!("worst error {error} pages of {bound} that are guaranteed; at the end {distance:?}");
    assert!(error > 0, "nothing lies in the tree: the storm shows nothing");
    // At rest nothing is off.
    let mut context = abi::plimsoll_of_account { account: machine.account, result: 1 };
    machine.kernel.program("collect").unwrap().run(&mut context).unwrap();
    machine.model.collect();
    assert_eq!(context.result, 0);
    assert!(machine.kernel.kept_of(machine.account).iter().all(|kept| *kept == 0));
    machine.agrees();
}

/// All CPUs in one account, far from its line: how often memory is written that others write, counted in the programs.
#[test]
fn far_from_the_line_one_event_in_1_000_writes_where_other_cpus_do() {
    let mut machine = Machine::new(256, 12 << 18, 256);
    let (tree, accounts) = (machine.kernel.map("tree").unwrap(), machine.kernel.map("accounts").unwrap());
    let mut account = [0; size_of::<abi::plimsoll_account>()];
    let mut written = |cpu: u32, index: u32| {
        let mut branch = [0; 8];
        tree.read(&((256 + cpu / 16) * 8 + index).to_ne_bytes(), &mut branch).unwrap();
        accounts.read(&index.to_ne_bytes(), &mut account).unwrap();
        (branch, account.first_chunk::<8>().copied())
    };
    let (mut shared, mut events) = (0_u32, 0_u32);
    // Each takes more than any batch, and gives some of it back.
    for round in 0..4000 {
        for cpu in 0..256 {
            let before = written(cpu, machine.account);
            machine.step(cpu, cpu, if round < 3000 { 1 } else { -1 });
            let after = written(cpu, machine.account);
            shared += u32::from(before.0 != after.0) + u32::from(before.1 != after.1);
            events += 1;
        }
    }
    machine.agrees();
    println!("{shared} writes to memory that other CPUs write, of {events} events");
    assert!(shared > 0, "the tree is not used");
    assert!(shared <= events / 1000);
}

/// A line is crossed by the very page, whatever lay in the tree before: the programs take somebody then, and not before.
#[test]
fn a_line_is_crossed_by_the_very_page_on_256_cpus() {
    let hard = 524_288;
    let mut machine = Machine::new(256, hard, 64);
    let mut random = Random(7);
    storm(&mut machine, 20_000, 300_000, &mut random);
    while machine.usage() < hard {
        let cpu = u32::try_from(random.below(256)).unwrap();
        let delta = if hard - machine.usage() > 2000 { 512 } else { 1 };
        machine.step(cpu % 64, cpu, delta);
        let account = machine.kernel.account(machine.account);
        assert!(machine.usage() < account.soft_pages || machine.kernel.kept_of(machine.account) == [0; 272]);
        assert_eq!(account.near != 0, machine.usage() >= account.soft_pages);
        assert_eq!((account.kills, account.unanswered_ns), (0, 0), "at {} of {hard}", machine.usage());
    }
    machine.step(0, 200, 1);
    let account = machine.kernel.account(machine.account);
    assert!(account.kills == 1 || account.unanswered_ns != 0, "{account:?}");
}

/// What one CPU does while another is in the middle of something.
type Does = fn(&Rc<FakeKernel>, u32);

/// One page, of the process that runs on this CPU.
fn takes_a_page(kernel: &Rc<FakeKernel>, cpu: u32) {
    changes(kernel, cpu, 1);
}

/// So many that the line is near then.
fn comes_near(kernel: &Rc<FakeKernel>, cpu: u32) {
    changes(kernel, cpu, 1600);
}

/// So many that the line is less far.
fn comes_closer(kernel: &Rc<FakeKernel>, cpu: u32) {
    changes(kernel, cpu, 1500);
}

fn changes(kernel: &Rc<FakeKernel>, cpu: u32, pages: i64) {
    let mm = kernel.mm(cpu);
    kernel.count(mm, cpu, ANON, pages);
    kernel.event("on_rss_stat", &[mm, ANON.into()]);
}

/// The line is drawn again, nearer, as a daemon does.
fn is_drawn_again(kernel: &Rc<FakeKernel>, _cpu: u32) {
    let mut line = line(1000);
    kernel.program("line_set").unwrap().run(&mut line).unwrap();
}

/// Two CPUs, each stopped at any of its reads and writes of what is shared while the other goes on: in every order with one
/// stop each, nothing is lost, and nothing stays in the tree that may not lie there.
#[test]
fn wherever_two_cpus_are_stopped_nothing_is_lost_and_nothing_stays_behind() {
    let all: [(&str, Does); 4] = [
        ("takes a page", takes_a_page),
        ("comes near", comes_near),
        ("comes closer", comes_closer),
        ("is drawn again", is_drawn_again),
    ];
    let kernel = FakeKernel::open(FakeKernel::of_this_tree()).unwrap();
    let mut orders = 0;
    for (first, does_first) in all {
        for (second, does_second) in all {
            for stops in 1.. {
                let run = |later| {
                    in_order(&kernel, (does_first, stops), (does_second, later), &|| {
                        format!("{first}, stopped after {stops}; {second}, stopped after {later}")
                    })
                };
                // To its end; then stopped wherever it can be.
                let (was_stopped, _) = run(0);
                orders += 1;
                if !was_stopped {
                    break;
                }
                for later in (1..).take_while(|later| run(*later).1) {
                    orders += later.min(1);
                }
            }
        }
    }
    println!("{orders} orders");
}

/// Returns which of both were stopped.
fn in_order(
    kernel: &Rc<FakeKernel>,
    first: (Does, u32),
    second: (Does, u32),
    what: &dyn Fn() -> String,
) -> (bool, bool) {
    let mut machine = Machine::on(Rc::clone(kernel), 2, 2000, 2);
    // Leaves that hold something, some of it less than nothing.
    for (cpu, delta) in [(0, 64), (0, 90), (1, 40), (1, 13), (0, -9)] {
        machine.step(cpu, cpu, delta);
    }
    machine.agrees();
    assert_ne!(machine.model.kept(), 0);
    let cpus = Cpus::new(Rc::clone(kernel), 2);
    let begin = |cpu: u32, (does, stops): (Does, u32)| {
        let on = Rc::clone(kernel);
        !cpus.begin(cpu, kernel.task(cpu), stops, move || does(&on, cpu))
    };
    let stopped = (begin(0, first), begin(1, second));
    cpus.go_on(0, 0);
    cpus.go_on(1, 0);
    let account = kernel.account(machine.account);
    let kept = kernel.kept_of(machine.account);
    let spaces: i64 = kernel.spaces().iter().map(|space| pages_of(space.value.word)).sum();
    assert_eq!(account.usage_pages, spaces, "{}", what());
    let most = i64::from(account.batch.max(1));
    assert!(kept.iter().all(|kept| kept.abs() < most), "{kept:?} for {most}: {}", what());
    assert_eq!(account.direct, 0, "{}", what());
    // What is known without a look at the leaves says that the line is far, or there is nothing in them.
    let known = account.usage_pages - kept.iter().sum::<i64>();
    let bound = i64::try_from(Shape::of(2).bound(account.batch).0).unwrap();
    assert!(bound == 0 || account.soft_pages - known >= 4 * bound, "{}: {account:?} {kept:?}", what());
    stopped
}

/// As `word_pages()` in bpf/limits/account.h.
fn pages_of(word: u64) -> i64 {
    let mask = (1_u64 << abi::PLIMSOLL_WORD_SHIFT) - 1;
    (word & mask).cast_signed() - (1_i64 << 46)
}
