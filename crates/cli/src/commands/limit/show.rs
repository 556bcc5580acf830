//! Lines as tables, sentences and JSON.

use crate::{
    names::Names,
    output,
    table::{Align, Table},
};
use plimsoll_daemon::api::{control::DefaultView, message::Limits};
use plimsoll_policy::{
    account::{AccountView, Action, Source},
    human,
    units::Bytes,
};
use serde::Serialize;
use std::io::{self, Write};

/// One element of `limit show --json`: an account, or the `default` line in the same words, with `null` for what only
/// an account has.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Entry {
    Account(AccountView),
    Default(DefaultEntry),
}

/// The `default` line.
#[derive(Debug, Serialize)]
pub(super) struct DefaultEntry {
    account: &'static str,
    name: Option<String>,
    usage_bytes: Option<u64>,
    reserved_bytes: Option<u64>,
    soft_bytes: u64,
    hard_bytes: u64,
    effective_bytes: Option<u64>,
    action: Action,
    near: Option<bool>,
    processes: Option<u64>,
    source: Source,
    uid_min: u32,
    uid_max: u32,
}

/// Lines as `--json` has them, accounts with their names.
pub(super) fn entries(limits: &Limits, names: &mut Names) -> Vec<Entry> {
    let accounts = limits.accounts.iter().map(|view| Entry::Account(names.fill_in(view)));
    let mut entries: Vec<_> = accounts.collect();
    entries.extend(limits.default.as_ref().map(|line| {
        Entry::Default(DefaultEntry {
            account: "default",
            name: None,
            usage_bytes: None,
            reserved_bytes: None,
            soft_bytes: line.soft_bytes,
            hard_bytes: line.hard_bytes,
            effective_bytes: None,
            action: line.action,
            near: None,
            processes: None,
            source: line.source,
            uid_min: line.uid_min,
            uid_max: line.uid_max,
        })
    }));
    entries
}

const fn source(source: Source) -> &'static str {
    match source {
        Source::State => "limit set",
        Source::Config => "configuration",
    }
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| human::bytes(Bytes(bytes)))
}

/// A table of lines.
pub(crate) fn list(
    out: &mut dyn Write,
    accounts: &[AccountView],
    default: Option<&DefaultView>,
    names: &mut Names,
) -> io::Result<()> {
    let mut table = Table::new([
        ("ACCOUNT", Align::Left),
        ("NAME", Align::Left),
        ("USAGE", Align::Right),
        ("SOFT", Align::Right),
        ("HARD", Align::Right),
        ("IN FORCE", Align::Right),
        ("ACTION", Align::Left),
        ("PROCESSES", Align::Right),
        ("NEAR", Align::Left),
        ("FROM", Align::Left),
    ]);
    for view in accounts {
        let name = names.of(view.account).map_or_else(|| "-".to_owned(), |name| human::escaped(&name));
        table.row([
            view.account.to_string(),
            name,
            human::bytes(Bytes(view.usage_bytes)),
            size(view.soft_bytes),
            size(view.hard_bytes),
            size(view.effective_bytes),
            view.action.to_string(),
            view.processes.to_string(),
            if view.near { "near" } else { "no" }.to_owned(),
            source(view.source).to_owned(),
        ]);
    }
    if let Some(line) = default {
        let none = || "-".to_owned();
        table.row([
            "default".to_owned(),
            format!("uids {}-{}", line.uid_min, line.uid_max),
            none(),
            size(Some(line.soft_bytes)),
            size(Some(line.hard_bytes)),
            none(),
            line.action.to_string(),
            none(),
            none(),
            source(line.source).to_owned(),
        ]);
    }
    table.write(out)
}

/// What holds after a line was drawn, a sentence each.
pub(super) fn sentences(limits: &Limits, names: &mut Names) -> Vec<String> {
    let mut sentences: Vec<_> = limits
        .accounts
        .iter()
        .map(|view| {
            let name = names
                .of(view.account)
                .map_or_else(String::new, |name| format!(" ({})", human::escaped(&name)));
            let mut sentence = format!(
                "{}{name}: hard {}, soft {}, action {}; usage {} in {}.",
                view.account,
                size(view.hard_bytes),
                size(view.soft_bytes),
                view.action,
                human::bytes(Bytes(view.usage_bytes)),
                output::counted(view.processes, "process", "processes"),
            );
            if view.effective_bytes > view.hard_bytes {
                sentence.push_str(&format!(
                    " Usage is above it: {} is in force until usage falls; enforce it at once with --now.",
                    size(view.effective_bytes)
                ));
            }
            sentence
        })
        .collect();
    sentences.extend(limits.default.as_ref().map(|line| {
        format!(
            "default: hard {}, soft {}, action {}; for uids {} to {} without a line of their own.",
            size(Some(line.hard_bytes)),
            size(Some(line.soft_bytes)),
            line.action,
            line.uid_min,
            line.uid_max
        )
    }));
    sentences
}
