//! A task that fits once the soft tier is released: does it live?

use super::{OFF, Stage, segment::STARTER_UID, tunables};
use crate::{child::STEP, error::BenchError, report::BenchReport};

const CASE: &str = "fits once released";

/// No hard tier and no floor: only what is released stands in the way.
const SOFT_ONLY: [(&str, u64); 4] = tunables(0, 0, 40);

/// Runs it, and the same with a peer that releases nothing.
pub(super) fn run(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    if !stage.options.wants(CASE) {
        return Ok(());
    }
    if stage.guard.is_some() {
        let rounds = stage.options.sized(20, 2);
        attempts(stage, report, "protected, clean_low_ratio 40", &SOFT_ONLY, rounds)?;
    }
    if stage.vmtouch.is_some() {
        attempts(stage, report, "vmtouch -l", &OFF, stage.options.sized(3, 1))?;
    }
    Ok(())
}

fn attempts(
    stage: &mut Stage<'_>,
    report: &mut BenchReport,
    variant: &str,
    settings: &[(&str, u64)],
    rounds: usize,
) -> Result<(), BenchError> {
    let (mut lived, mut locked) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (alive, locked_bytes) = attempt(stage, settings)?;
        lived.push(f64::from(u8::from(alive)));
        locked.push(locked_bytes as f64 / f64::from(1 << 20));
    }
    stage.protect(&OFF)?;
    let count = lived.iter().filter(|alive| **alive > 0.0).count();
    let most = stage.sizes.large_bytes as f64 / f64::from(1 << 20) * 0.9;
    let held = locked.iter().filter(|mib| **mib >= most).count();
    report.note(format!(
        "{CASE}: {variant}: {count} of {rounds} tasks lived; the file was locked before {held} of them"
    ));
    report.add_row(CASE, (variant, &lived), "lived");
    report.add_row(CASE, (&format!("{variant}, locked before"), &locked), "MiB");
    Ok(())
}

/// Whether the task had all its memory, and what was locked when it began.
fn attempt(stage: &mut Stage<'_>, settings: &[(&str, u64)]) -> Result<(bool, u64), BenchError> {
    stage.protect(&OFF)?;
    stage.data.forget()?;
    stage.protect(settings)?;
    let file = stage.data.large.clone();
    let mut reader = stage.start_reader(&file)?;
    let quick = stage.options.quick;
    // A reused file, read as often as the demo's: cold, and three times more.
    for _ in 0..4 {
        reader.tell("read")?;
        reader.expect("done")?;
        std::thread::sleep(stage.sizes.pause / 4);
    }
    let peer = match (&stage.vmtouch, settings == OFF) {
        (Some(vmtouch), true) => Some(stage.lock_by_peer(vmtouch, &[file])?),
        _ => None,
    };
    stage.wait_locked(stage.sizes.large_bytes / 10 * 9, if quick { STEP / 60 } else { STEP / 4 })?;
    let locked_bytes = stage.scope.locked_bytes()?;
    // All of the memory but what is locked, and half of that: too much while it is, enough once it is not.
    let bytes = stage.sizes.memory_bytes - stage.sizes.large_bytes / 2;
    let mut task = stage.start_in_scope(&[&"hog", &STARTER_UID])?;
    let alive = task.take(bytes)?.is_some();
    drop(peer);
    task.kill()?;
    reader.finish(STEP)?;
    Ok((alive, locked_bytes))
}
