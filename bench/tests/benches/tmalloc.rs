//! `bench tmalloc` with a library that grants by itself and a guard that only counts: an allocator which does not keep its
//! word is found out.

use super::{has_ratio, measure, processes_of, quick as options};
use plimsoll_bench::{BenchError, BenchReport, Guarded, Options, guarded::AccountReading};
use plimsoll_policy::incident::Incident;
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Command, sync::Mutex};
use tempfile::TempDir;

/// Grants one process `LIMIT_MIB` in all, in leases of 256 KiB that are populated at once; then does what `AT_THE_END` says.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic size_t held_bytes, lease_bytes;

void *tmalloc(size_t size)
{
	if (atomic_fetch_add(&held_bytes, size) + size > LIMIT_MIB << 20) {
		AT_THE_END;
		atomic_fetch_sub(&held_bytes, size);
		return NULL;
	}
	if (atomic_fetch_add(&lease_bytes, size) + size > 1 << 18) {
		char *lease = malloc(1 << 18);
		memset(lease, 1, 1 << 18);
		atomic_store(&lease_bytes, 0);
	}
	size_t *block = malloc(size + 16);
	*block = size;
	return (char *)block + 16;
}

void tfree(void *block)
{
	size_t *head = (size_t *)((char *)block - 16);
	atomic_fetch_sub(&held_bytes, *head);
	free(head);
}
"#;

/// Compiled, in a folder of its own.
fn library(limit_mib: u32, at_the_end: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let source = folder.path().join("tmalloc.c");
    fs::write(&source, LIBRARY).unwrap();
    let status = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(folder.path().join("libtmalloc.so"))
        .args([format!("-DLIMIT_MIB={limit_mib}"), format!("-DAT_THE_END={at_the_end}")])
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success(), "cc: {status}");
    folder
}

/// Knows what its users' processes hold; kills nobody and grants nothing.
#[derive(Debug, Default)]
struct CountingGuard {
    /// What it says is reserved for ever.
    reserved_bytes: u64,
    /// It has no coordinator.
    alone: bool,
    crashes: usize,
    restarts: usize,
}

impl Guarded for CountingGuard {
    heeds_no_line!();

    fn account(&mut self, uid: u32) -> Result<AccountReading, BenchError> {
        assert_eq!(self.crashes, self.restarts, "asked while it was dead");
        let usage_bytes = processes_of(uid).iter().map(|(_, bytes)| bytes).sum();
        Ok(AccountReading { usage_bytes, reserved_bytes: self.reserved_bytes, peak_bytes: Some(8 << 20) })
    }

    fn incidents(&mut self) -> Result<Vec<Incident>, BenchError> {
        Ok(Vec::new())
    }

    fn coordinator(&self) -> Option<PathBuf> {
        (!self.alone).then(|| PathBuf::from("/nonexistent/tmalloc.sock"))
    }

    fn crash(&mut self) -> Result<(), BenchError> {
        self.crashes += 1;
        Ok(())
    }

    fn restart(&mut self) -> Result<(), BenchError> {
        self.restarts += 1;
        Ok(())
    }
}

fn quick(only: &str, at_the_end: &str) -> BenchReport {
    quick_with(only, &library(1, at_the_end), 0)
}

fn quick_with(only: &str, libraries: &TempDir, reserved_bytes: u64) -> BenchReport {
    run(only, libraries, CountingGuard { reserved_bytes, ..CountingGuard::default() }).unwrap()
}

fn run(only: &str, libraries: &TempDir, guard: CountingGuard) -> Result<BenchReport, BenchError> {
    let options = Options { libraries: Some(libraries.path().to_owned()), ..options(Some(only)) };
    let guard = Mutex::new(Some(guard));
    measure("tmalloc", &options, |_| Ok(guard.lock().unwrap().take().unwrap()))
}

fn p50(report: &BenchReport, case: &str, variant: &str) -> Option<f64> {
    report.rows.iter().find(|row| row.case == case && row.variant == variant).map(|row| row.figures.p50)
}

#[test]
fn the_same_calls_are_put_to_each_allocator_that_is_here() {
    let report = quick("pairs", "");
    for threads in ["1 thread", "8 threads"] {
        for case in ["pairs 16B", "pairs 4KiB", "pairs 64KiB", "pairs all sizes"] {
            let case = format!("{case}, {threads}");
            for name in ["malloc", "tmalloc"] {
                assert!(p50(&report, &case, name).is_some_and(|each_ns| each_ns > 1.0), "{case}: {report}");
            }
            for name in ["jemalloc", "mimalloc"] {
                let left_out = format!("{name} is not installed: it is left out");
                assert!(p50(&report, &case, name).is_some() != report.notes.contains(&left_out), "{report}");
            }
            assert!(has_ratio(&report, &case, "tmalloc", "malloc"), "{report}");
        }
    }
}

#[test]
fn an_allocator_that_refuses_where_there_is_plenty_is_an_error_and_not_a_figure() {
    // A thousand blocks of up to 64 KiB are more than it grants.
    let error = run("mixed", &library(1, ""), CountingGuard::default()).unwrap_err().to_string();
    assert!(error.starts_with("workload churn 60400 tmalloc: ") && error.contains("refused"), "{error}");
}

#[test]
fn a_library_that_the_loader_passes_over_is_not_taken_for_the_one_it_should_be() {
    let folder = library(1, "");
    fs::write(folder.path().join("libjemalloc.so.2"), "no library").unwrap();
    let error = run("pairs", &folder, CountingGuard::default()).unwrap_err().to_string();
    assert!(error.ends_with("jemalloc.so was not loaded into it"), "{error}");
}

#[test]
fn without_a_coordinator_only_the_allocators_are_compared_and_that_is_said() {
    let guard = CountingGuard { alone: true, ..CountingGuard::default() };
    let report = run("seed", &library(1, ""), guard).unwrap();
    assert!(report.rows.is_empty() && report.notes.last().unwrap().starts_with("nobody answers"), "{report}");
}

#[test]
fn a_refill_is_a_call_in_which_a_lease_came_in() {
    let report = quick_with("refill", &library(64, ""), 0);
    // Of two processes: the third block of 128 KiB does not fit into a lease of 256 KiB, and begins the next one.
    let row = |variant: &str| {
        report.rows.iter().find(|row| row.case == "refill 128KiB" && row.variant == variant).unwrap()
    };
    assert_eq!(row("tmalloc").figures.n, 2 * (256 / 3), "{report}");
    assert!((row("tmalloc, brought in at once").figures.p50 - 64.0).abs() <= 3.0, "{report}");
    assert_eq!(row("malloc and first touch").figures.n, 512, "{report}");
    assert!(p50(&report, "refill 4KiB", "tmalloc").is_some_and(|refill_us| refill_us > 1.0), "{report}");
}

#[test]
fn the_seeds_processes_are_refused_and_exit_with_what_they_had() {
    let report = quick("seed", "");
    for (case, processes) in [("seed-1", 1.0), ("seed-4", 4.0), ("seed-8", 8.0)] {
        assert_eq!(p50(&report, case, "tmalloc, granted in all"), Some(processes), "{report}");
        let ratio = report.ratios.iter().find(|ratio| ratio.case == case).unwrap();
        assert!(
            (ratio.of.as_str(), ratio.to.as_str()) == ("tmalloc", "malloc") && ratio.rounds.n == 2,
            "{report}"
        );
    }
    let said = "seed-4: 8 of 8 processes were refused, 8 exited with 0; 0 kills; the account was over its line of \
                16777216 bytes in 0 of 2 rounds; 0 refusals are recorded";
    assert!(report.notes.iter().any(|note| note == said), "{report}");
}

#[test]
fn a_process_that_dies_instead_of_being_refused_is_found_out() {
    let report = quick("seed-4", "raise(SIGKILL)");
    let said = "seed-4: 0 of 8 processes were refused, 0 exited with 0;";
    assert!(report.notes.iter().any(|note| note.starts_with(said)), "{report}");
}

#[test]
fn the_storm_kills_processes_and_the_daemon_and_looks_at_what_stays_reserved() {
    let report = quick("storm", "");
    assert_eq!(p50(&report, "storm", "tmalloc, reserved at rest"), Some(0.0), "{report}");
    assert_eq!(p50(&report, "storm", "tmalloc, usage minus page tables"), Some(0.0), "{report}");
    let note = report.notes.iter().find(|note| note.starts_with("storm: ")).unwrap();
    assert!(
        note.starts_with("storm: 76 processes and the daemon 2 times were killed by the bench, 0 "),
        "{note}"
    );
    assert!(note.ends_with("with all gone 0 bytes are charged and 0 reserved"), "{note}");
}

#[test]
fn reservations_that_never_end_are_found_out() {
    let report = quick_with("storm", &library(1, ""), 4096);
    assert_eq!(p50(&report, "storm", "tmalloc, reserved at rest"), Some(4096.0), "{report}");
}
