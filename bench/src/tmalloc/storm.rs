//! `storm`: 64 processes ask and free by chance; some are killed, others take their place; the daemon is killed too. Then
//! all stand still, and nothing may be reserved.

use super::{MIB, Stage, allocators::TMALLOC};
use crate::{
    child::{Workload, look_until},
    error::BenchError,
    guarded::{AccountReading, Line, is_our_kill},
    proc,
    report::BenchReport,
    workload::Random,
};
use std::{
    thread,
    time::{Duration, Instant},
};

const CASE: &str = "storm";
pub(super) const UID: u32 = 60_403;

const PROCESSES: usize = 64;

/// Less than the processes would like to have.
const LINE: Line = Line { uid: UID, hard_bytes: 256 * MIB, soft_bytes: None };

/// A round: somebody is killed so often before the daemon is, while it is dead, and after it lives again.
const KILLS: [u64; 3] = [16, 6, 16];
const KILL_EVERY: Duration = Duration::from_millis(15);

/// The daemon settles for those who do not come back after ten seconds; what is reserved after twice that stays so.
const REST_WITHIN: Duration = Duration::from_secs(20);
const QUICK_REST_WITHIN: Duration = Duration::from_secs(12);

/// Between two readings of the account.
const POLL: Duration = Duration::from_millis(5);

/// What the rounds showed.
#[derive(Default)]
pub(super) struct Findings {
    /// From the last `stopped` until nothing was reserved, in milliseconds.
    rest_ms: Vec<f64>,
    reserved_at_first_bytes: Vec<f64>,
    /// When nothing moved any more.
    reserved_at_rest_bytes: Vec<f64>,
    /// Usage minus what the page tables say.
    off_bytes: Vec<f64>,
    killed: usize,
    lost: usize,
    grants: u64,
    refusals: u64,
}

/// Runs it.
pub(super) fn run(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    if !stage.options.wants(CASE) {
        return Ok(());
    }
    let before = stage.guard.incidents()?.len();
    stage.guard.set_line(LINE)?;
    let mut crowd = Crowd::seeded(6);
    let wanted = stage.options.sized(PROCESSES, PROCESSES / 8);
    let mut findings = Findings::default();
    for _ in 0..stage.options.sized(20, 2) {
        crowd.fill(stage, wanted)?;
        disturb(stage, &mut crowd, &mut findings)?;
        rest(stage, &mut crowd, &mut findings)?;
    }
    drop(crowd);
    let empty = wait_for_rest(stage, |account| account.usage_bytes == 0)?.0;
    findings.add_rows(CASE, report);
    let fresh = stage.guard.incidents()?.split_off(before);
    let kills = fresh.iter().filter(|incident| is_our_kill(incident)).count();
    report.note(format!(
        "{CASE}: {} processes and the daemon {} times were killed by the bench, {kills} processes by the guard, {} ended otherwise; {} grants and {} refusals; with all gone {} bytes are charged and {} reserved",
        findings.killed,
        findings.rest_ms.len(),
        findings.lost,
        findings.grants,
        findings.refusals,
        empty.usage_bytes,
        empty.reserved_bytes,
    ));
    stage.guard.clear_line(UID)
}

/// The processes that live.
pub(super) struct Crowd {
    members: Vec<Workload>,
    random: Random,
    started: u64,
}

impl Crowd {
    /// Of nobody yet.
    pub(super) fn seeded(seed: u64) -> Self {
        Self { members: Vec::new(), random: Random::seeded(seed), started: 0 }
    }

    /// Starts as many as are missing, and lets them go.
    pub(super) fn fill(&mut self, stage: &Stage<'_>, wanted: usize) -> Result<(), BenchError> {
        while self.members.len() < wanted {
            self.started += 1;
            let Some(tmalloc) = stage.contenders.iter().find(|contender| contender.name == TMALLOC) else {
                return Ok(());
            };
            let mut member = stage.start(tmalloc, "grab", UID, &[&self.started])?;
            member.tell("go")?;
            self.members.push(member);
        }
        Ok(())
    }

    /// Kills one by chance and starts another.
    fn replace(&mut self, stage: &Stage<'_>) -> Result<(), BenchError> {
        let wanted = self.members.len();
        let chosen = self.random.below(wanted);
        if chosen < wanted {
            self.members.swap_remove(chosen).kill()?;
        }
        self.fill(stage, wanted)
    }

    /// Stops all: those that live on say what they did, those that died are let go.
    fn stop(&mut self, findings: &mut Findings) -> Result<(), BenchError> {
        let mut stopped = Vec::new();
        for mut member in self.members.drain(..) {
            let answer = member.tell("stop").and_then(|()| member.expect_numbers("stopped"));
            match answer {
                Ok([grants, refusals]) => {
                    findings.grants += grants;
                    findings.refusals += refusals;
                    stopped.push(member);
                }
                Err(error) if member.wait_dead_ns(Duration::from_secs(1))?.is_none() => return Err(error),
                Err(_) => findings.lost += 1,
            }
        }
        self.members = stopped;
        Ok(())
    }

    /// Lets those that stopped go on.
    fn resume(&mut self) -> Result<(), BenchError> {
        self.members.iter_mut().try_for_each(|member| member.tell("go"))
    }
}

/// Kills some, and the daemon in between.
pub(super) fn disturb(
    stage: &mut Stage<'_>,
    crowd: &mut Crowd,
    findings: &mut Findings,
) -> Result<(), BenchError> {
    let mut kill = |stage: &Stage<'_>, crowd: &mut Crowd, times: u64| -> Result<(), BenchError> {
        for _ in 0..times {
            thread::sleep(KILL_EVERY);
            crowd.replace(stage)?;
            findings.killed += 1;
        }
        Ok(())
    };
    let [before, dead, after] = KILLS;
    kill(stage, crowd, before)?;
    stage.guard.crash()?;
    kill(stage, crowd, dead)?;
    stage.guard.restart()?;
    kill(stage, crowd, after)
}

/// Has all stand still, looks what is reserved, and lets them go on.
pub(super) fn rest(
    stage: &mut Stage<'_>,
    crowd: &mut Crowd,
    findings: &mut Findings,
) -> Result<(), BenchError> {
    crowd.stop(findings)?;
    let first = stage.guard.account(UID)?;
    let (rest, waited) = wait_for_rest(stage, |account| account.reserved_bytes == 0)?;
    findings.rest_ms.push(waited.as_secs_f64() * 1e3);
    findings.reserved_at_first_bytes.push(first.reserved_bytes as f64);
    findings.reserved_at_rest_bytes.push(rest.reserved_bytes as f64);
    let mut held_bytes = 0;
    for pid in proc::pids_of_user(UID)? {
        held_bytes += proc::charged_bytes_if_alive(pid)?.unwrap_or(0);
    }
    findings.off_bytes.push(rest.usage_bytes as f64 - held_bytes as f64);
    crowd.resume()
}

/// Reads the account until it is at rest, or has not come to it in time: what it is then, and how long that took.
fn wait_for_rest(
    stage: &mut Stage<'_>,
    at_rest: impl Fn(&AccountReading) -> bool,
) -> Result<(AccountReading, Duration), BenchError> {
    let within = if stage.options.quick { QUICK_REST_WITHIN } else { REST_WITHIN };
    let (began, guard) = (Instant::now(), stage.guard.as_mut());
    let resting = look_until(within, POLL, || Ok(Some(guard.account(UID)?).filter(&at_rest)))?;
    let elapsed = began.elapsed();
    Ok((resting.map_or_else(|| guard.account(UID), Ok)?, elapsed))
}

impl Findings {
    /// What there is to say of them, in figures.
    pub(super) fn add_rows(&self, case: &str, report: &mut BenchReport) {
        for (variant, figures, unit) in [
            ("tmalloc, reserved when all had just stopped", &self.reserved_at_first_bytes, "bytes"),
            ("tmalloc, reserved at rest", &self.reserved_at_rest_bytes, "bytes"),
            ("tmalloc, until rest", &self.rest_ms, "ms"),
            ("tmalloc, usage minus page tables", &self.off_bytes, "bytes"),
        ] {
            report.add_row(case, (variant, figures), unit);
        }
    }

    /// Processes that the bench killed.
    pub(super) const fn killed(&self) -> usize {
        self.killed
    }

    /// Grants and refusals of those that lived on.
    pub(super) const fn answers(&self) -> (u64, u64) {
        (self.grants, self.refusals)
    }

    /// How often something was reserved when nothing moved any more.
    pub(super) fn unrested(&self) -> usize {
        self.reserved_at_rest_bytes.iter().filter(|bytes| **bytes > 0.0).count()
    }
}
