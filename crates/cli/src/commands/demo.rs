//! `plimsoll demo`: the whole story in ten seconds.

use crate::exit::{Ending, Failure};
use clap::Args;
use std::io::Write;

/// It takes none.
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

/// Shows the story.
pub(crate) fn run(Arguments {}: &Arguments, _out: &mut dyn Write) -> Ending {
    Err(Failure::failed("'plimsoll demo' is not part of this build"))
}
