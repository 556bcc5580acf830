//! What each process of an account holds.

use plimsoll_api::{
    accounts::{AccountProcesses, AccountView, ProcessView},
    client::{CallError, Client},
};
use plimsoll_policy::{human, lines::Target, units::Bytes};
use plimsoll_report::table::Table;
use std::io::{self, Write};

/// So many of each account are in a table; JSON has all.
const TABLE_MOST: u64 = 10;

/// Those of `who`, or of all accounts, as the command line has it: `--processes`, and `--json`.
pub(crate) fn ask(
    client: &mut Client,
    who: Option<Target>,
    (processes, json): (bool, bool),
) -> Result<Vec<AccountProcesses>, CallError> {
    if processes { client.show_processes(who, (!json).then_some(TABLE_MOST)) } else { Ok(Vec::new()) }
}

/// Puts them into the accounts that they are of.
pub(crate) fn fill_in(accounts: &mut [AccountView], found: Vec<AccountProcesses>) {
    for AccountProcesses { account, processes, more } in found {
        if let Some(view) = accounts.iter_mut().find(|view| view.account == account) {
            (view.process_list, view.process_list_more) = (Some(processes), Some(more));
        }
    }
}

/// A table, below a line of its own, and what else is to be known of it.
pub(crate) fn table(out: &mut dyn Write, found: &[AccountProcesses]) -> io::Result<()> {
    let mut table = Table::new(
        ["ACCOUNT", "PID", "NAME", "CHARGED", "ANONYMOUS", "SWAPPED", "SHARED", "FILES"],
        &["PID", "CHARGED", "ANONYMOUS", "SWAPPED", "SHARED", "FILES"],
    );
    for AccountProcesses { account, processes, .. } in found {
        for process in processes {
            let size = |bytes| {
                let about = if process.error_bytes > 0 { "~" } else { "" };
                format!("{about}{}", human::bytes(Bytes(bytes)))
            };
            table.row([
                human::escaped(&account.to_string()),
                process.pid.to_string(),
                human::shown(&process.comm),
                process.charged_bytes.map_or_else(|| "-".to_owned(), |bytes| human::bytes(Bytes(bytes))),
                size(process.anon_bytes),
                size(process.swap_bytes),
                size(process.shared_bytes),
                size(process.file_bytes),
            ]);
        }
    }
    writeln!(out)?;
    write!(out, "{table}")?;
    for AccountProcesses { account, more, .. } in found.iter().filter(|of| of.more > 0) {
        writeln!(
            out,
            "Note: {}: {more} more, smaller ones; --json has up to a thousand of all accounts.",
            human::escaped(&account.to_string())
        )?;
    }
    let errors =
        found.iter().flat_map(|of| of.processes.iter().map(|process: &ProcessView| process.error_bytes));
    match errors.max() {
        Some(error @ 1..) => {
            let error = human::bytes(Bytes(error));
            writeln!(out, "Note: counts that begin with ~ may be off by up to {error}.")
        }
        Some(0) | None => Ok(()),
    }
}
