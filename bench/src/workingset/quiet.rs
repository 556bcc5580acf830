//! Ordinary builds without pressure, with protection on and off in turns: nobody is killed, nothing is slower.

use super::{DEFAULTS, OFF, Stage, segment::STARTER_UID};
use crate::{
    child::Workload,
    error::BenchError,
    pairing::{Figures, interleave},
    report::{BenchReport, Series},
};
use std::{
    fmt::{Display, Write},
    fs,
    path::Path,
    time::{Duration, Instant},
};

const CASE: &str = "quiet";

/// A build must not take longer: the process that starts it ends itself when it hears nothing for five minutes.
const BUILD: Duration = Duration::from_secs(240);

/// Runs it.
pub(super) fn run(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), BenchError> {
    if !stage.options.wants(CASE) || stage.guard.is_none() {
        return Ok(());
    }
    let build = match &stage.options.build {
        Some(build) => build.clone(),
        None if crate::comparator::find_program("cc").is_some() => {
            // Some seconds: so that there are many to compare.
            let files = stage.options.sized(3, 2);
            sources(stage.data.folder(), files)?
        }
        None => {
            report.note("quiet: left out: no cc, and no --build");
            return Ok(());
        }
    };
    let kernel_before = stage.scope.kernel_kills()?;
    let victims_before = stage.floor_victims()?.len();
    let words: [&dyn Display; 6] = [&"start", &STARTER_UID, &"-", &"/bin/sh", &"-c", &build];
    let mut builder = stage.start_in_scope(&words)?;
    // Once for the caches.
    build_seconds(&mut builder, &build)?;
    let until = Instant::now() + if stage.options.quick { Duration::ZERO } else { stage.options.quiet };
    let (mut on, mut off, mut percent) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let round = interleave(2, 1, |index| {
            stage.protect(if index == 0 { &OFF[..] } else { &DEFAULTS[..] })?;
            // The first second is another.
            build_seconds(&mut builder, &build)?;
            let daemon = stage.daemon_meter();
            let seconds = build_seconds(&mut builder, &build)?;
            percent.extend(daemon.percent().filter(|_| index == 1));
            Ok(Figures { own: seconds, cpu: seconds, kept_up: seconds })
        })?;
        if let [without, with] = round.as_slice() {
            off.extend_from_slice(&without.own);
            on.extend_from_slice(&with.own);
        }
        if Instant::now() >= until {
            break;
        }
    }
    stage.protect(&OFF)?;
    let (off, on): (Series<'_>, Series<'_>) = (("off", &off), ("on", &on));
    report.add_row(CASE, off, "s");
    report.add_row(CASE, on, "s");
    report.add_row(CASE, ("on, daemon", &percent), "% of a CPU");
    report.add_ratio(CASE, on, off);
    report.note(format!(
        "quiet: {} killed by the kernel, {} by the guard",
        stage.scope.kernel_kills()?.saturating_sub(kernel_before),
        stage.floor_victims()?.len().saturating_sub(victims_before),
    ));
    Ok(())
}

fn build_seconds(builder: &mut Workload, build: &str) -> Result<f64, BenchError> {
    builder.tell("start")?;
    let numbers = builder.expect_within(BUILD, "done")?;
    match numbers.as_slice() {
        &[took_ns, 0] => Ok(took_ns as f64 / 1e9),
        _ => Err(BenchError::malformed(format!("the end of '{build}'"), &format!("{numbers:?}"))),
    }
}

/// Writes so many C files, and says how to compile them.
fn sources(folder: &Path, files: usize) -> Result<String, BenchError> {
    let folder = folder.join("build");
    fs::create_dir(&folder).map_err(BenchError::io(format!("create {}", folder.display())))?;
    for file in 0..files {
        let mut text = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
        for function in 0..200 {
            // Writing to a string does not fail.
            let _written = writeln!(
                text,
                "int f{file}_{function}(int n, char *s) {{ for (int i = 0; i < n; i++) \
                 s[i] = (char)(snprintf(s, 9, \"%d\", i * {function}) ^ (int)strlen(s)); return n * {file}; }}"
            );
        }
        let path = folder.join(format!("unit{file}.c"));
        fs::write(&path, text).map_err(BenchError::io(format!("write {}", path.display())))?;
    }
    Ok(format!("for unit in {}/*.c; do cc -O1 -S -o /dev/null \"$unit\" || exit; done", folder.display()))
}
