//! The part of docs/kernel-policy.md that tells which tests run on which kernel: made from the lab's own lists.

/// Around what is made.
const BEGIN: &str = "<!-- Generated from lab/kernels.conf and lab/run.sh. To renew it: PLIMSOLL_BLESS=1 cargo test -p xtask -->";
const END: &str = "<!-- The end of what is generated -->";

/// The unit tests of crates/sys, which the lab's lists call so.
const UNIT_TESTS: &str = "sys";

/// One kernel of lab/kernels.conf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The first two numbers of its version.
    pub series: String,
    /// What runs there in `make test`: patterns of bash with its extglob, and `PATTERN@small`.
    pub patterns: Vec<String>,
}

/// Reads lab/kernels.conf.
///
/// # Errors
/// The line that has too few columns.
pub fn kernels(conf: &str) -> Result<Vec<Kernel>, String> {
    let lines = conf.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [_series, _suites, _package, version, tests, ..] = words.as_slice() else {
                return Err(format!("lab/kernels.conf: five columns or more: {line}"));
            };
            let numbers: Vec<_> = version.split(|one: char| !one.is_ascii_digit()).take(2).collect();
            Ok(Kernel { series: numbers.join("."), patterns: tests.split(',').map(str::to_owned).collect() })
        })
        .collect()
}

/// The patterns of `all`, as lab/run.sh has them.
///
/// # Errors
/// When it has none.
pub fn everything(run: &str) -> Result<Vec<String>, String> {
    let list = run.lines().find_map(|line| line.strip_prefix("readonly everything='")?.strip_suffix('\''));
    let list = list.ok_or("lab/run.sh: no line 'readonly everything=...'")?;
    Ok(list.split_whitespace().map(str::to_owned).collect())
}

/// The page with the part that is made, for the test binaries of these names.
///
/// # Errors
/// What one of the files lacks.
pub fn page(page: &str, conf: &str, run: &str, tests: &[String]) -> Result<String, String> {
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| format!("no line '{BEGIN}'"))?;
    let (_old, after) = rest.split_once(END).ok_or_else(|| format!("no line '{END}'"))?;
    let table = table(&kernels(conf)?, &everything(run)?, tests);
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

/// Tests that run on the same kernels share a row; those that run on most come first.
fn table(kernels: &[Kernel], everything: &[String], tests: &[String]) -> String {
    let mut names: Vec<_> = tests.iter().map(String::as_str).chain([UNIT_TESTS]).collect();
    names.sort_unstable();
    let mut rows: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for name in names {
        let cells: Vec<_> = kernels.iter().map(|kernel| cell(kernel, everything, name)).collect();
        match rows.iter_mut().find(|(known, _names)| *known == cells) {
            Some((_known, names)) => names.push(name),
            None => rows.push((cells, vec![name])),
        }
    }
    rows.sort_by_key(|(cells, _names)| {
        let missing = |word: &str| cells.iter().filter(|cell| **cell == word).count();
        (missing(NOWHERE), missing(ASKED))
    });
    let mut table = String::from("| Tests |");
    for kernel in kernels {
        table.push_str(&format!(" {} |", kernel.series));
    }
    table.push_str("\n| --- |");
    table.push_str(&" --- |".repeat(kernels.len()));
    for (cells, names) in rows {
        table.push_str(&format!("\n| `{}` | {} |", names.join("`, `"), cells.join(" | ")));
    }
    table.push('\n');
    table
}

const NOWHERE: &str = "-";
const ASKED: &str = "all";

fn cell(kernel: &Kernel, everything: &[String], name: &str) -> &'static str {
    let whole = kernel.patterns.iter().any(|pattern| matches(pattern, name));
    let small = kernel.patterns.iter().filter_map(|pattern| pattern.strip_suffix("@small"));
    let small = small.into_iter().any(|pattern| matches(pattern, name));
    let asked = kernel.patterns.iter().any(|pattern| pattern == "all");
    let all = everything.iter().any(|pattern| matches(pattern, name));
    match (whole || (asked && all), small) {
        (true, true) => "test, small",
        (true, false) => "test",
        (false, true) => "small",
        (false, false) if all => ASKED,
        (false, false) => NOWHERE,
    }
}

/// Whether bash's `[[ $name = $pattern ]]` is true: for `*`, `?` and extglob's `!(ONE|OTHER)`.
fn matches(pattern: &str, name: &str) -> bool {
    let mut rest = pattern.chars();
    if let Some((others, after)) = pattern.strip_prefix("!(").and_then(|rest| rest.split_once(')')) {
        return splits(name).any(|(head, tail)| {
            !others.split('|').any(|other| matches(other, head)) && matches(after, tail)
        });
    }
    match rest.next() {
        None => name.is_empty(),
        Some('*') => splits(name).any(|(_head, tail)| matches(rest.as_str(), tail)),
        Some(first) => {
            let mut tail = name.chars();
            tail.next().is_some_and(|one| first == '?' || one == first)
                && matches(rest.as_str(), tail.as_str())
        }
    }
}

/// Every way to part a text in two.
fn splits(text: &str) -> impl Iterator<Item = (&str, &str)> {
    (0..=text.len()).filter_map(|at| text.split_at_checked(at))
}

/// The kernels of the lab that the first line of columns in bpf/verified.txt does not name.
///
/// # Errors
/// As [`kernels`].
pub fn uncounted(conf: &str, verified: &str) -> Result<Vec<String>, String> {
    let head = verified.lines().find(|line| line.starts_with("program ")).unwrap_or_default();
    let named = |series: &str| head.split_whitespace().any(|word| word == series);
    Ok(kernels(conf)?.into_iter().map(|kernel| kernel.series).filter(|series| !named(series)).collect())
}

#[cfg(test)]
mod tests;
