//! What is wrong with a command line, in one line.

use clap::error::ErrorKind;

/// The program's own answer to `--help` and the like, or one line about what is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Text that was asked for.
    Asked,
    /// The command line makes no sense.
    Wrong(String),
}

/// Tells the two apart. `clap` puts what is wrong into its first paragraph, then hints and the usage into others.
pub(crate) fn judge(error: &clap::Error) -> Usage {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        return Usage::Asked;
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(|paragraph| {
        let words: Vec<_> = paragraph.split_whitespace().collect();
        words.join(" ")
    });
    let wrong = paragraphs.next().unwrap_or_default();
    let wrong = wrong.strip_prefix("error: ").unwrap_or(&wrong).trim_end_matches('.').to_owned();
    let tip = paragraphs.find_map(|paragraph| paragraph.strip_prefix("tip: ").map(str::to_owned));
    Usage::Wrong(match tip {
        Some(tip) => format!("{wrong}; {tip}"),
        None => format!("{wrong}; see 'plimsoll --help'"),
    })
}

#[cfg(test)]
mod tests;
