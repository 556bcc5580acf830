//! The page for the terminal.

use super::{CallSite, Memory, Order, Page, Recorded};
use crate::table::Table;
use plimsoll_policy::{human, units::Nanos};
use std::fmt::Write as _;

/// Call sites that are shown; JSON has all.
const SITES_MAX: usize = 30;

/// The page, with the call trace of each call site where `stacks` is set. What others chose, names of threads, was made
/// printable before.
#[must_use]
pub fn words(page: &Page<'_>, stacks: bool) -> String {
    let mut text = orders(page);
    pageblocks(&mut text, page.memory);
    compaction(&mut text, page.memory);
    if let Some(recorded) = &page.recorded {
        sites(&mut text, recorded, stacks);
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // A string takes everything.
    writeln!(text, "{line}").ok();
}

/// Thousandths as a percentage.
fn percent(permille: u64) -> String {
    format!("{} %", permille.saturating_add(5).checked_div(10).unwrap_or(0))
}

/// Thousandths as the kernel shows them.
fn index(permille: Option<i64>) -> String {
    permille.map_or_else(
        || String::from("-"),
        |value| {
            let sign = if value < 0 { "-" } else { "" };
            let (whole, rest) = (value.unsigned_abs() / 1000, value.unsigned_abs() % 1000);
            format!("{sign}{whole}.{rest:03}")
        },
    )
}

fn orders(page: &Page<'_>) -> String {
    const NOW: [&str; 6] = ["ORDER", "SIZE", "BLOCKS", "FREE", "OF NO USE", "INDEX"];
    const THEN: [&str; 8] = ["ORDER", "SIZE", "BLOCKS", "FREE", "OF NO USE", "INDEX", "REQUESTS", "GONE IN"];
    let now = |order: &Order| {
        [
            order.order.to_string(),
            human::bytes(order.block_bytes),
            order.blocks.to_string(),
            human::bytes(order.free_bytes),
            percent(order.unusable_permille),
            index(order.index_permille),
        ]
    };
    let Some(recorded) = &page.recorded else {
        let mut table = Table::new(NOW, &NOW);
        page.orders.iter().for_each(|order| table.row(now(order)));
        return table.to_string();
    };
    let mut table = Table::new(THEN, &THEN);
    for order in page.orders {
        let [number, size, blocks, free, unusable, index] = now(order);
        let counted = order.requests.filter(|_| order.order >= recorded.order_min);
        let requests = counted.map_or_else(|| String::from("-"), |requests| requests.to_string());
        let gone_in = order.gone_in_ns.map_or_else(|| String::from("-"), human::span);
        table.row([number, size, blocks, free, unusable, index, requests, gone_in]);
    }
    table.to_string()
}

/// What the kernel keeps pageblocks for. One that is for movable pages may hold others too: that is not counted.
fn pageblocks(text: &mut String, memory: &Memory) {
    let Some(types) = &memory.types else {
        line(text, format_args!("\nWhat pageblocks are for is told to root only."));
        return;
    };
    let of = |wanted: Option<&str>| {
        let blocks =
            types.pageblocks.iter().filter(|(_, kind, _)| wanted.is_none_or(|wanted| kind == wanted));
        blocks.map(|(_, _, count)| *count).fold(0, u64::saturating_add)
    };
    let (all, unmovable, reclaimable) = (of(None), of(Some("Unmovable")), of(Some("Reclaimable")));
    let share = |part: u64| percent(plimsoll_policy::units::part(part, 1000, all).unwrap_or(0));
    line(
        text,
        format_args!(
            "\nPageblocks: {all}; {unmovable} ({}) are for pages that cannot be moved, {reclaimable} ({}) for pages that can \
             be given back. Others may hold such pages too.",
            share(unmovable),
            share(reclaimable)
        ),
    );
}

fn compaction(text: &mut String, memory: &Memory) {
    let counts = &memory.compaction;
    let (Some(stalls), Some(failures)) = (counts.stalls, counts.failures) else {
        line(text, format_args!("This kernel does not compact memory (CONFIG_COMPACTION)."));
        return;
    };
    let woken = counts.daemon_wakes.map_or_else(|| String::from("?"), |wakes| wakes.to_string());
    line(
        text,
        format_args!(
            "Compaction since boot: requests began it {stalls} times, {failures} of them in vain; kcompactd was woken {woken} times."
        ),
    );
}

fn sites(text: &mut String, recorded: &Recorded<'_>, stacks: bool) {
    let failures = recorded.sites.iter().map(|site| site.failures).fold(0, u64::saturating_add);
    line(
        text,
        format_args!(
            "\nRecorded for {}. Requests of order {} and above: {}; {failures} failed. Pages that cannot be moved were put \
             among movable ones {} times.",
            human::span(recorded.took_ns),
            recorded.order_min,
            recorded.requests,
            recorded.polluting
        ),
    );
    if recorded.unkept > 0 {
        line(text, format_args!("{} of them are not in the list: there was no room.", recorded.unkept));
    }
    if recorded.sites.is_empty() {
        return;
    }
    text.push('\n');
    let shown = recorded.sites.get(..SITES_MAX).unwrap_or(recorded.sites);
    if stacks {
        for site in shown {
            text.push_str(&table(core::slice::from_ref(site)));
            line(text, format_args!("    {}", site.gfp));
            for function in &site.stack {
                line(text, format_args!("    {function}"));
            }
            text.push('\n');
        }
    } else {
        text.push_str(&table(shown));
    }
    let left = recorded.sites.len().saturating_sub(shown.len());
    if left > 0 {
        line(text, format_args!("And {left} more: --json has all."));
    }
}

fn table(sites: &[CallSite]) -> String {
    let mut table = Table::new(
        ["ON FAILURE", "ORDER", "REQUESTS", "FAILED", "STALLED", "LONGEST", "ASKED BY", "CALL SITE"],
        &["ORDER", "REQUESTS", "FAILED", "STALLED", "LONGEST"],
    );
    for site in sites {
        let span = |span: Nanos| if span.0 == 0 { String::from("-") } else { human::span(span) };
        table.row([
            site.on_failure.to_owned(),
            site.order.to_string(),
            site.requests.to_string(),
            site.failures.to_string(),
            span(site.stalled_ns),
            span(site.longest_stall_ns),
            askers(site),
            site.call_site.clone().unwrap_or_else(|| String::from("?")),
        ]);
    }
    table.to_string()
}

/// The first one, and how many others.
fn askers(site: &CallSite) -> String {
    if site.in_interrupt {
        return String::from("(an interrupt)");
    }
    let name = site.asked_by.first().map(|asker| asker.comm.as_deref().unwrap_or("(several)"));
    let others =
        u64::try_from(site.asked_by.len().saturating_sub(1)).unwrap_or(0).saturating_add(site.others);
    match (name, others) {
        (Some(name), 0) => name.to_owned(),
        (Some(name), others) => format!("{name} and {others} more"),
        (None, _) => String::from("?"),
    }
}
