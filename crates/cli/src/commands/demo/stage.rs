//! Where the demo is told: its output, its clock, and the signals that end it early.

use crate::{exit::Failure, interrupt::Interrupt, output};
use std::{
    io::Write,
    time::{Duration, Instant},
};

/// Between two steps, so that they can be watched.
pub(super) const PACE: Duration = Duration::from_millis(120);

/// No demo takes longer, whatever hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

/// How wide the bar is.
const BAR_CELLS: u64 = 32;

/// The stage.
pub(super) struct Stage<'a> {
    out: &'a mut dyn Write,
    began: Instant,
    interrupt: Interrupt,
}

impl<'a> Stage<'a> {
    /// From here on Ctrl-C ends the demo at its next wait, with everything cleaned up, and nothing at all in between.
    pub(super) fn new(out: &'a mut dyn Write) -> Result<Self, Failure> {
        Ok(Self { out, began: Instant::now(), interrupt: Interrupt::new()? })
    }

    /// A line without a time.
    pub(super) fn title(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.out, "{text}")?;
        // Each line is seen when it happens.
        self.out.flush()?;
        Ok(())
    }

    /// A line with its time.
    pub(super) fn tell(&mut self, text: &str) -> Result<(), Failure> {
        let tenths = self.began.elapsed().as_millis() / 100;
        self.title(&format!("{:>4}.{} s  {text}", tenths / 10, tenths % 10))
    }

    /// How full it is.
    pub(super) fn bar(&mut self, held: u64, of: u64, usage: &str, remark: &str) -> Result<(), Failure> {
        let full = output::share(held, of, BAR_CELLS).unwrap_or_default();
        let cell = |index| if index < full { '#' } else { '.' };
        let bar: String = (0..BAR_CELLS).map(cell).collect();
        self.tell(&format!("  {held:>4} MiB [{bar}] the guard counts {usage:>9}{remark}"))
    }

    /// Waits so long, unless a signal comes.
    pub(super) fn pause(&self, time: Duration) -> Result<(), Failure> {
        if self.began.elapsed() > WATCHDOG {
            return Err(Failure::failed(
                "the demo took too long and was given up; is the machine very busy?",
            ));
        }
        if self.interrupt.wait(time)? {
            return Err(Failure::failed("interrupted: the demo was ended early, and has cleaned up"));
        }
        Ok(())
    }
}
