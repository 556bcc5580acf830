//! `plimsoll frag`: free memory by the size of its blocks, and who asks for blocks of several pages.
//!
//! No daemon is asked. What is recorded is counted by programs in the kernel that are there for as long as this command
//! records, and for nobody else.

use crate::{
    exit::{Ending, Exit, Failure},
    interrupt::Interrupt,
    output, since,
};
use clap::Args;
use plimsoll_policy::units::Nanos;
use plimsoll_report::frag::{Memory, Page, Recorded, Request, call_sites, told, words};
use plimsoll_sys::{
    bpf::{Asked, Recorder, Recording, Totals},
    process::{ProcessError, compactions, free_blocks, page_size, pagetypes, zone_marks},
    symbols::{kernel_functions, shows_kernel_functions},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal as _, Write},
    time::{Duration, Instant},
};

/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// What to look at, and how to print it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Count who asks for blocks of several pages for so long (30s, 5m, 1h; seconds without a unit), or until Ctrl-C.
    /// Root only.
    #[arg(long, value_name = "TIME", value_parser = time)]
    record: Option<Duration>,
    /// The smallest order that is counted: blocks of 2 to the power of it pages.
    #[arg(long, value_name = "ORDER", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20), requires = "record")]
    order: u32,
    /// Show the call trace of each place that asked.
    #[arg(long, requires = "record")]
    stacks: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Longer than nobody waits, and shorter than what overflows.
const TIME_MAX: Duration = Duration::from_secs(7 * 86_400);

fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{}' is no time up to 7 days; write 30s, 5m or 1h", output::printable(text));
    let whole =
        if text.bytes().all(|byte| byte.is_ascii_digit()) { format!("{text}s") } else { text.to_owned() };
    let seconds = since::seconds(&whole).and_then(|seconds| u64::try_from(seconds).ok()).ok_or_else(wrong)?;
    Some(Duration::from_secs(seconds)).filter(|time| !time.is_zero() && *time <= TIME_MAX).ok_or_else(wrong)
}

/// Reads, records where that is asked for, tells.
pub(crate) fn run(arguments: &Arguments, out: &mut dyn Write) -> Ending {
    let Some(time) = arguments.record else {
        let memory = read()?;
        return tell(arguments, out, &Page { memory: &memory, orders: &memory.orders(None), recorded: None });
    };
    if !rustix::process::geteuid().is_root() {
        let message = "not permitted: recording loads programs into the kernel, which sees everybody's requests; run it with sudo";
        return Err(Failure::not_permitted(message));
    }
    if !shows_kernel_functions().map_err(Failure::failed)? {
        let message = "the kernel hides the addresses of its functions, so no call site could be named; set \
                       'sysctl kernel.kptr_restrict=1' while you record";
        return Err(Failure::not_permitted(message));
    }
    let before = read()?;
    let (took, recording) = record(arguments.order, before.pageblock_order(), time)?;
    let now = read()?;
    let sites = call_sites(&named(&recording)?);
    let Totals { requests, unkept, stolen, polluting } = recording.totals;
    let recorded = Recorded {
        took_ns: took,
        order_min: arguments.order,
        requests,
        unkept,
        stolen,
        polluting,
        sites: &sites,
    };
    let orders = now.orders(Some((&before, &recorded)));
    tell(arguments, out, &Page { memory: &now, orders: &orders, recorded: Some(recorded) })
}

fn tell(arguments: &Arguments, out: &mut dyn Write, page: &Page<'_>) -> Ending {
    if arguments.json {
        output::json(out, &told(page))?;
    } else {
        output::lines(out, &words(page, arguments.stacks))?;
    }
    Ok(Exit::Done)
}

fn read() -> Result<Memory, Failure> {
    let types = match pagetypes() {
        Ok(types) => Some(types),
        // Root's, and some kernels do not show it.
        Err(ProcessError::Denied { .. } | ProcessError::Unsupported { .. }) => None,
        Err(error) => return Err(Failure::failed(error)),
    };
    Ok(Memory {
        page: page_size(),
        zones: free_blocks().map_err(Failure::failed)?,
        marks: zone_marks().map_err(Failure::failed)?,
        types,
        compaction: compactions().map_err(Failure::failed)?,
    })
}

/// Counts for so long or until a signal, and says how it goes where somebody watches.
fn record(order_min: u32, pageblock_order: u32, time: Duration) -> Result<(Nanos, Recording), Failure> {
    let interrupt = Interrupt::new()?;
    let recorder = Recorder::start(order_min, pageblock_order).map_err(Failure::failed)?;
    let began = Instant::now();
    let watched = io::stderr().is_terminal();
    loop {
        let left = time.saturating_sub(began.elapsed());
        if left.is_zero() || interrupt.wait(left.min(PROGRESS))? {
            break;
        }
        if watched {
            let totals = recorder.totals().map_err(Failure::failed)?;
            let (seconds, of) = (began.elapsed().as_secs(), time.as_secs());
            // Nobody is harmed where it cannot be written.
            write!(io::stderr(), "\r{seconds} of {of} s, {} requests ", totals.requests).ok();
        }
    }
    if watched {
        write!(io::stderr(), "\r\x1b[K").ok();
    }
    let took = Nanos(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    recorder.stop().map(|recording| (took, recording)).map_err(Failure::failed)
}

/// With the names of the functions; one without a symbol has its address.
fn named(recording: &Recording) -> Result<Vec<Request>, Failure> {
    let addresses: BTreeSet<u64> = recording.asked.iter().flat_map(|asked| &asked.frames).copied().collect();
    let addresses: Vec<u64> = addresses.into_iter().collect();
    let found = kernel_functions(&addresses).map_err(Failure::failed)?;
    let names: BTreeMap<u64, Option<String>> = addresses.into_iter().zip(found).collect();
    let name = |address: &u64| {
        let found = names.get(address).cloned().flatten();
        found.unwrap_or_else(|| format!("{address:#x}"))
    };
    let request = |asked: &Asked| Request {
        stack: asked.frames.iter().map(name).collect(),
        order: asked.site.order,
        gfp: asked.site.gfp,
        comm: asked.site.comm.map(|comm| comm.to_string()),
        user: asked.site.user,
        counts: asked.counts,
    };
    Ok(recording.asked.iter().map(request).collect())
}

#[cfg(test)]
mod tests;
