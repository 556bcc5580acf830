//! Mistakes that are planted in a copy of the programs, one at a time: the simulator must find each.

use super::simulate_quietly;
use plimsoll_testkit::{FakeKernel, compile};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// So many seeds are tried for each; how many steps of each.
const SEEDS: u64 = 1000;
const STEPS: u64 = 800;

/// Each found a mistake that no lower one did, when this was written down: they are tried first, as others take minutes.
const LIKELY: [u64; 12] = [1, 4, 13, 17, 19, 27, 46, 53, 127, 197, 690, 1041];

struct Mistake {
    what: &'static str,
    /// In `bpf/`.
    file: &'static str,
    /// Where it comes from: there once.
    right: &'static str,
    wrong: &'static str,
}

macro_rules! mistakes {
    ($($what:literal in $file:literal: $right:literal => $wrong:literal;)*) => {
        &[$(Mistake { what: $what, file: $file, right: $right, wrong: $wrong },)*]
    };
}

const MISTAKES: &[Mistake] = mistakes! {
    "a tick charges a page that is not there" in "limits/tick.h":
        "	__s64 pages = settle_all_cpus(e->mm);\n" => "	__s64 pages = settle_all_cpus(e->mm) + 1;\n";
    "an end gives nothing back" in "limits/track.h":
        "	account_add(a, -word_pages(word));\n	settle_dying_space(e->mm);" => "	settle_dying_space(e->mm);";
    "an end leaves its reservation" in "limits/track.h":
        "	release_reserved(e->mm);\n	leave_family(e);\n	if (!a)" => "	leave_family(e);\n	if (!a)";
    "an end is still a process of the account" in "limits/track.h":
        "	settle_dying_space(e->mm);\n	add_to_all(a, PROCESSES, -1);" => "	settle_dying_space(e->mm);";
    "an end names its account still" in "limits/track.h":
        "	count_name(word_account(word), -1);\n" => "";
    "who moved names the account before still" in "limits/track.h":
        "	count_name(from, -1);\n" => "";
    "a family that ended names its account still" in "limits/family.h":
        "	orphan(f, account);\n" => "";
    "a line goes, and who runs is charged to its account still" in "limits/calls.h":
        "	if (a->named || a->reserved_pages) {\n" => "	if (a->reserved_pages) {\n";
    "an end leaves what was dying" in "limits/track.h":
        "	settle_dying_space(e->mm);\n	add_to_all(a, PROCESSES, -1);" => "	add_to_all(a, PROCESSES, -1);";
    "an end leaves its family as it was" in "limits/family.h":
        "	give_up_shares(id, __sync_lock_test_and_set(&e->shared_pages, 0), PLIMSOLL_NOBODY, 0);\n"
        => "	__sync_lock_test_and_set(&e->shared_pages, 0);\n";
    "a family's charge stays when it ends" in "limits/family.h":
        "	family_moved(a, -shares, -charged);" => "	family_moved(a, -shares, -charged);\n	return;";
    "a fork charges a family nothing" in "limits/family.h":
        "	__sync_fetch_and_add(&f->pages, own);\n" => "";
    "copies are charged, and shared still" in "limits/family.h":
        "	give_up_shares(id, pages, word_account(old), pages);\n	return pages;"
        => "	account_add(account_at(word_account(old)), pages);\n	return pages;";
    "what is freed is charged still" in "limits/copies.h":
        "	if (freed > 0 && share_again(e->mm, freed))\n		judge(e, -freed, true);" => "	if (freed > 0)\n		share_again(e->mm, freed);";
    "what is taken for shared is shared still" in "limits/exchange.h":
        "	kept = take_up_to(&e->shared_pages, pages);" => "	kept = pages;";
    "a forked child has none of its shares" in "limits/family.h":
        "	__sync_fetch_and_add(&child->shared_pages, pages);\n" => "";
    "whoever changes its user is charged nowhere" in "limits/track.h":
        "	add_beside(index, from, USAGE, own);\n	move_reserved" => "	move_reserved";
    "an entry that goes is counted still" in "limits/track.h":
        "		__sync_fetch_and_add(&counters.entries, -1);\n" => "";
    "an account is idle though somebody runs" in "limits/track.h":
        " && !a->processes && !a->usage_pages &&" => " && !a->usage_pages &&";
    "an account follows from what somebody acts with" in "limits/track.h":
        "user_of_cred(BPF_CORE_READ(task, real_cred))" => "user_of_cred(BPF_CORE_READ(task, cred))";
    "what is reserved stays behind when the user changes" in "limits/track.h":
        "	move_reserved(e->mm, index);\n" => "";
    "what is dying stays behind when the user changes" in "limits/track.h":
        "	settle_dying_space(e->mm);\n	add_beside(index" => "	add_beside(index";
    "what goes is charged still" in "limits/account.h":
        "	add_beside(from, to, USAGE, -less);\n" => "";
    "what a dying process takes is not dying" in "limits/charge.h":
        "	if (delta > 0)\n		settle_dying_space(key);\n" => "";
    "what comes is charged nobody" in "limits/account.h":
        "	add_beside(to, from, USAGE, more);\n" => "";
    "those above are not charged" in "limits/account.h":
        "	if (above)\n		add_above(above, count, pages);\n	return now;" => "	return now;";
    "who is charged for both is charged what was before" in "limits/account.h":
        "above_alone(to, from)), USAGE, more - less);" => "above_alone(to, from)), USAGE, more);";
    "what is left when a line goes is charged above still" in "limits/calls.h":
        "	move_all(a, a->above, -1);\n" => "";
    "one member is not settled" in "limits/charge.h":
        " + settle_member(e, key, 2) +" => " +";
    "what a CPU keeps to itself is not settled" in "limits/charge.h":
        "	now = remainder_on(cpu, counter);\n	delta = now ?" => "	now = 0;\n	delta = now ?";
    "whoever changes the own line has it ratcheted past the one in force" in "limits/calls.h":
        "	if (ctx->enforce == PLIMSOLL_LINE_WITHIN && reach > a->effective_pages)\n		reach = a->effective_pages;\n" => "";
    "who dies counts as living" in "limits/largest.h":
        "	settle_dying_space(e->mm);\n	settle_living(e);\n	/* It touches" => "	settle_living(e);\n	/* It touches";
    "a victim is taken though one is dying" in "limits/act.h":
        "	if (remaining(a, a->usage_pages) > a->effective_pages)\n		return true;\n	__sync_lock_test_and_set(&a->taking, 0);"
        => "	if (a->usage_pages > a->effective_pages)\n		return true;\n	__sync_lock_test_and_set(&a->taking, 0);";
    "a claim is never ended" in "limits/act.h":
        "		count_one(&counters.kills);\n	}\n	__sync_lock_test_and_set(&a->taking, 0);" => "		count_one(&counters.kills);\n	}";
    "a signal that failed counts as sent" in "limits/act.h":
        "(ev->task, ev->signal);\n	if (ev->signal_error) {" => "(ev->task, ev->signal);\n	if (false) {";
    "who lives again is dying still" in "limits/act.h":
        "	settle_dying_space(key);\n	settle_living(e);\n	search_anew_from(" => "	settle_living(e);\n	search_anew_from(";
    "who is protected may be taken" in "limits/largest.h":
        "	(PLIMSOLL_MM_PROTECTED | PLIMSOLL_MM_NEVER | PLIMSOLL_MM_DYING |" => "	(PLIMSOLL_MM_DYING |";
    "the smallest is looked for" in "limits/largest.h":
        "	if (rank > search->rank[least]) {" => "	if (rank < search->rank[least] || search->rank[least] == RANK_NONE) {";
    "whoever came to count more without an event is not looked for" in "limits/largest.h":
        " && !a->must_search ?" => " ?";
    "who gives nothing back is taken" in "limits/rank.h":
        "? pages : pages - SHORT_RANKS;" => "? pages : pages;";
    "who shares most of what it has counts all of it" in "limits/rank.h":
        "	if (pages > back * COUNTS_TIMES_BACK)\n		pages = back * COUNTS_TIMES_BACK;\n" => "";
    "what a session stands on is like anybody" in "limits/rank.h":
        "(carries_session(a, e) ? SESSION_RANKS : " => "(false ? SESSION_RANKS : ";
    "what nobody runs in is not noticed" in "limits/largest.h":
        "	return !users;" => "	return false;";
    "an account is near for ever" in "limits/act.h":
        "	if (!since || a->usage_pages >= a->soft_pages - (a->soft_pages >> 6) ||" => "	if (true ||";
    "a grant goes one page too far" in "limits/grants.h":
        "	if (claim->usage + claim->pages > claim->limit) {" => "	if (claim->usage + claim->pages > claim->limit + 1) {";
    "a grant is not taken from what is left" in "limits/grants.h":
        "	add_to_all(a, RESERVED, pages);\n	for (i = 0;" => "	for (i = 0;";
    "nothing is kept for copies" in "limits/grants.h":
        "a->hard_pages - headroom - kept_free(a));" => "a->hard_pages - headroom);";
    "what is given back is reserved still" in "limits/reserved.h":
        "	add_to_all(a, RESERVED, -pages);\n	account_add(a, -pages);\n	if (untouched" => "	account_add(a, -pages);\n	if (untouched";
    "a walk settles nothing" in "limits.bpf.c":
        "	a = pages ? charge(e, pages, &usage) : 0;" => "	a = 0;";
    "an address is its last owner's still after a fork" in "limits.bpf.c":
        "		drop_stale(mm, child);\n" => "		{ }\n";
    "what other CPUs keep is not settled on the first event" in "limits.bpf.c":
        "	e->epoch = a->exact;\n	pages = settle_all_cpus(e->mm);\n	if (pages)\n		charge(e, pages, &usage);\n"
        => "	e->epoch = a->exact;\n";
    "what lies in a tree stays there as the line comes near" in "limits/tree.h":
        "		bpf_loop(nr_cpus + tree_branches(), collect_node, &account, 0);\n" => "";
    "usage comes near, and lies in its tree still" in "limits/tree.h":
        "	if (is_too_near(a)) {" => "	if (0) {";
    "memory is granted though usage lies in its tree" in "limits/grants.h":
        "	charge_at_once(a);\n	result = claim_pages(" => "	__sync_fetch_and_add(&a->direct, 1);\n	result = claim_pages(";
};

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for one in fs::read_dir(from).unwrap() {
        let one = one.unwrap();
        let into = to.join(one.file_name());
        if one.file_type().unwrap().is_dir() {
            copy(&one.path(), &into);
        } else {
            fs::copy(one.path(), into).unwrap();
        }
    }
}

/// The seed that shows a mistake.
fn found(mistake: &Mistake) -> Option<u64> {
    let folder = tempfile::tempdir().unwrap();
    for part in ["bpf", "testkit/native"] {
        copy(&tree().join(part), &folder.path().join(part));
    }
    let file = folder.path().join("bpf").join(mistake.file);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches(mistake.right).count(), 1, "{}: {}", mistake.file, mistake.what);
    fs::write(&file, text.replace(mistake.right, mistake.wrong)).unwrap();
    let programs = folder.path().join("limits.so");
    // To compile takes longer than to run what was compiled.
    compile(folder.path(), &programs, &["-w", "-O0"]).unwrap();
    let kernel = FakeKernel::open(&programs).unwrap();
    let mut seeds = LIKELY.into_iter().chain((1..=SEEDS).filter(|seed| !LIKELY.contains(seed)));
    seeds.find(|seed| simulate_quietly(*seed, STEPS, &kernel).is_err())
}

#[test]
fn each_planted_mistake_is_found() {
    let next = AtomicUsize::new(0);
    let look = || {
        let mut missed = Vec::new();
        while let Some(mistake) = MISTAKES.get(next.fetch_add(1, Ordering::Relaxed)) {
            match found(mistake) {
                Some(seed) => println!("{}: seed {seed}", mistake.what),
                None => missed.push(mistake.what),
            }
        }
        missed
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let missed: Vec<&str> = thread::scope(|scope| {
        let all: Vec<_> = (0..workers).map(|_| scope.spawn(look)).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    assert!(missed.is_empty(), "not found with {SEEDS} seeds: {missed:#?}");
}
