//! earlyoom (1.8 and 1.9): the options in `EARLYOOM_ARGS` of `/etc/default/earlyoom`.

use super::{ImportError, Page, Tenths, regex::patterns};
use plimsoll_policy::human::escaped;

/// Of what programs can have, an amount is written as half: right wherever they can have twice that.
const HALF: Tenths = Tenths(500);

#[derive(Debug, Default)]
struct Options {
    memory: Option<(Tenths, Tenths)>,
    swap: Option<(Tenths, Tenths)>,
    /// In KiB.
    memory_size: Option<(u64, u64)>,
    wait_seconds: Option<u64>,
    /// What to do, and with whom.
    names: Vec<(&'static str, String)>,
}

pub(super) fn import(text: &str) -> Result<Page, ImportError> {
    let mut page = Page::default();
    let options = read(&words(&arguments(text))?, &mut page)?;
    thresholds(&options, &mut page);
    if let Some(seconds) = options.wait_seconds {
        page.comment("-w: here SIGKILL follows then.");
        page.key("term_grace_ms", seconds.saturating_mul(1000).min(86_400_000));
    }
    page.comment("earlyoom selects at once, and not for thrashing: spike_ms = 0 and stall = 100 do so, too.");
    for (option, regex) in &options.names {
        rule(option, regex, &mut page);
    }
    Ok(page)
}

/// The value of `EARLYOOM_ARGS`, without the quotes around it; the last one holds.
fn arguments(text: &str) -> String {
    let value = text.lines().filter_map(|line| line.trim().strip_prefix("EARLYOOM_ARGS=")).next_back();
    let value = value.unwrap_or_default().trim();
    let quoted = |quote| value.strip_prefix(quote).and_then(|rest: &str| rest.strip_suffix(quote));
    match quoted('"') {
        Some(inner) => inner.replace("\\\"", "\"").replace("\\\\", "\\"),
        None => quoted('\'').unwrap_or(value).to_owned(),
    }
}

/// Words as systemd and a shell part them.
fn words(text: &str) -> Result<Vec<String>, ImportError> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (None | Some('"'), '\\') => {
                // A regular expression keeps its own.
                let next = characters.next().unwrap_or('\\');
                let word = word.get_or_insert_default();
                if !matches!(next, '"' | '\'' | ' ' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            _ => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err(ImportError("EARLYOOM_ARGS has a quote that is not closed".to_owned()));
    }
    words.extend(word);
    Ok(words)
}

fn read(words: &[String], page: &mut Page) -> Result<Options, ImportError> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let takes_value = ["prefer", "avoid", "ignore"].into_iter().find(|known| *known == name);
            match takes_value {
                Some(known) => {
                    let value = value.or_else(|| words.next().map(String::as_str));
                    let value = value.ok_or_else(|| ImportError(format!("--{known} has no value")))?;
                    options.names.retain(|(option, _)| *option != known);
                    options.names.push((known, value.to_owned()));
                }
                None => long_switch(name, page),
            }
            continue;
        }
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Err(ImportError::value("argument", word, "an option of earlyoom"));
        };
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            if !"msMSrwNP".contains(letter) {
                switch(letter, page);
                continue;
            }
            let rest = letters.as_str();
            let value = if rest.is_empty() { words.next().map(String::as_str) } else { Some(rest) };
            let value = value.ok_or_else(|| ImportError(format!("-{letter} has no value")))?;
            valued(letter, value, &mut options, page)?;
            break;
        }
    }
    Ok(options)
}

fn valued(letter: char, value: &str, options: &mut Options, page: &mut Page) -> Result<(), ImportError> {
    let option = format!("-{letter}");
    let both = || value.split_once(',').map_or((value, None), |(term, kill)| (term, Some(kill)));
    let shares = || {
        let (term, kill) = both();
        let term = Tenths::parse(term)?;
        let kill = kill.map_or(Some(Tenths(term.0 >> 1)), Tenths::parse)?;
        Some((term, kill.min(term)))
    };
    let sizes = || {
        let (term, kill) = both();
        let term = term.parse::<u64>().ok().filter(|kib| *kib <= 1 << 40)?;
        let kill = kill.map_or(Some(term >> 1), |kill| kill.parse().ok())?;
        Some((term, kill.min(term)))
    };
    match letter {
        'm' | 's' => {
            let shares =
                shares().ok_or_else(|| ImportError::value(&option, value, "PERCENT or PERCENT,PERCENT"))?;
            let place = if letter == 'm' { &mut options.memory } else { &mut options.swap };
            *place = Some(shares);
        }
        'M' | 'S' => {
            let sizes = sizes().ok_or_else(|| ImportError::value(&option, value, "KIB or KIB,KIB"))?;
            if letter == 'M' {
                options.memory_size = Some(sizes);
            } else {
                page.missing(
                    &format!("-S {value}"),
                    "swap goes by shares of it: set term_swap and kill_swap",
                );
            }
        }
        'w' => {
            let seconds = value
                .parse()
                .map_err(|_no_number| ImportError::value(&option, value, "a number of seconds"))?;
            options.wait_seconds = Some(seconds);
        }
        'r' => page
            .missing(&format!("-r {value}"), "nothing is reported from time to time; see 'plimsoll status'"),
        _ => page.missing(
            &format!("-{letter} {value}"),
            "no script is run; 'plimsoll history --json' tells of each kill",
        ),
    }
    Ok(())
}

fn switch(letter: char, page: &mut Page) {
    let instead = match letter {
        'g' => "write a rule with scope = \"tree\" or \"cgroup\" for what is to go as a whole",
        'p' => "the daemon does so by itself",
        'n' => "each kill is in the journal, 'plimsoll history' and 'plimsoll why'",
        'd' | 'v' | 'h' => "there is no need for it",
        'i' | 'k' => "earlyoom ignores it, too",
        _ => "not known",
    };
    page.missing(&format!("-{letter}"), instead);
}

fn long_switch(name: &str, page: &mut Page) {
    let instead = match name {
        "dryrun" => "start 'plimsoll daemon --dry-run'",
        "ignore-root-user" => "a process is protected by its executable, unit or cgroup: see [protect]",
        "sort-by-rss" => "the largest is always who gives back most memory",
        "syslog" => "the daemon writes to the journal",
        "debug" | "help" | "version" => "there is no need for it",
        _ => "not known",
    };
    page.missing(&format!("--{name}"), instead);
}

fn thresholds(options: &Options, page: &mut Page) {
    let default = (Tenths(100), Tenths(50));
    let (mut term, mut kill) =
        options.memory.unwrap_or(if options.memory_size.is_some() { (HALF, HALF) } else { default });
    page.comment("Of MemAvailable + AnonPages, as earlyoom has it from 1.8 on.");
    if let Some((size, kill_size)) = options.memory_size {
        // So much that the share of it is the amount.
        let whole = size.saturating_mul(1000).checked_div(u64::from(term.within(999).0)).unwrap_or(size);
        let whole = whole.clamp(1 << 10, 1 << 30);
        let of_whole =
            kill_size.saturating_mul(1000).checked_div(whole).and_then(|share| u32::try_from(share).ok());
        kill = kill.min(Tenths(of_whole.unwrap_or(u32::MAX)));
        page.comment("-M: the shares are taken of no more than this, and less where programs have less.");
        page.key("memory_max", format_args!("\"{whole}K\""));
    } else {
        page.comment("earlyoom's shares have no most.");
        page.key("memory_max", "\"1T\"");
    }
    term = term.within(999);
    page.key("term_memory", term);
    page.key("kill_memory", kill.within(term.0));
    let (term, kill) = options.swap.unwrap_or(default);
    let term = term.within(1000);
    page.key("term_swap", term);
    page.key("kill_swap", kill.within(term.0));
}

fn rule(option: &str, regex: &str, page: &mut Page) {
    let Some(patterns) = patterns(regex).filter(|patterns| !patterns.is_empty()) else {
        page.missing(&format!("--{option} {regex}"), "no list of names: write a rule with patterns");
        return;
    };
    let (effect, note) = match option {
        "prefer" => ("effect = \"prefer\"", "counts four times, where earlyoom adds 300 to its score"),
        "avoid" => ("effect = \"avoid\"", "counts a quarter, where earlyoom takes 300 from its score"),
        _ => (
            "effect = \"avoid\"\nweight = 1",
            "a name protects nobody: counts a hundredth; [protect] goes by executables",
        ),
    };
    // Each is of ASCII without control characters, of which a TOML string and Rust's have the same escapes.
    let list: Vec<String> = patterns.iter().map(|pattern| format!("{pattern:?}")).collect();
    page.rules.push(format!(
        "\n# --{option} {}: {note}.\n[[rules]]\n{effect}\ncomm = [{}]",
        escaped(regex),
        list.join(", ")
    ));
}
