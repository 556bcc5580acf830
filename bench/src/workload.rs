//! The processes that a bench starts: small programs inside the same binary, behind a hidden subcommand.
//!
//! Each speaks lines on its standard input and output, says `ready` first, and ends when its input closes. Each fails where
//! its arguments are bad, where it is not root, and where the kernel refuses what it asks for. Each is bounded in size and
//! under two watchdogs: an alarm, renewed with each command, and the death of its parent. Only `leash` becomes another
//! program.
//!
//! The benches and the demo use these, for they have to be in `plimsoll` itself. The workloads of the tests are in
//! `lab/workloads`, in C.

mod allocate;
mod broom;
mod busy;
mod files;
mod hold;
mod kit;
mod leash;
pub(crate) mod memory;
mod pingpong;
mod random;
mod storm;
mod timer;
mod touch;
mod trace;
mod victim;

pub(crate) use memory::HUGE_PAGE_BYTES;
pub(crate) use random::Random;
pub(crate) use victim::UNITS_MAX;

use crate::error::BenchError;
pub(crate) use kit::{
    Commands, SILENCE_SECONDS, UIDS, arm_watchdogs, become_user, forbid_huge_pages, number, say,
    sleep_until_ns, stay_dumpable, until_input_ends, usage,
};

/// Runs the workload that `arguments` names (`touch 60010 0`, ...) and gives its exit status: 0 done, 1 failed, 2 usage.
///
/// This is what the hidden subcommand `plimsoll bench-workload` calls. A failure is said on standard output, as
/// `error ...`, where the bench hears it.
#[must_use]
pub fn workload_main(arguments: &[String]) -> i32 {
    let Some((name, rest)) = arguments.split_first() else { return 2 };
    let outcome = match name.as_str() {
        "touch" => touch::run(rest),
        "pingpong" => pingpong::run(rest),
        "busy" => busy::run(rest),
        "hold" => hold::hold(rest),
        "victim" => victim::run(rest),
        "storm" => storm::run(rest),
        "broom" => broom::run(rest),
        "leash" => leash::run(rest),
        "hog" => hold::hog(rest),
        "stream" => files::stream(rest),
        "read" => files::read(rest),
        "start" => files::start(rest),
        "churn" => allocate::churn::run(rest),
        "grow" => allocate::grow::run(rest),
        "ask" => allocate::ask::run(rest),
        "grab" => allocate::grab::run(rest),
        "probe" => allocate::probe::run(rest),
        "exit" => Ok(()),
        "timer" => timer::run(rest),
        "trace" => trace::run(rest),
        _ => Err(usage(name)),
    };
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            // The bench may have gone; then nobody is left to hear it.
            drop(say(&format!("error {error}")));
            if matches!(error, BenchError::Malformed { .. }) { 2 } else { 1 }
        }
    }
}
