//! Lines as tables, sentences and JSON.

use crate::{names::Names, output};
use plimsoll_api::accounts::{AccountView, DefaultView, GroupView, SharedFileView, UserView};
use plimsoll_api::message::Limits;
use plimsoll_policy::{
    account::{Action, Source},
    human,
    lines::Target,
    units::{Bytes, Uid},
};
use plimsoll_report::table::Table;
use serde::Serialize;
use std::io::{self, Write};

/// Where subordinate uids begin (`SUB_UID_MIN` of login.defs, where it is not set).
const SUBORDINATE_UID_MIN: Uid = Uid(100_000);

/// How many users without a line are told by name.
const USERS_TOLD: usize = 5;

/// One element of `limit show --json`: an account, or the line of a group or of `default` in the same words, with `null`
/// for what only an account has.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Entry {
    Account(Box<AccountView>),
    Shared(SharedEntry),
}

/// The line of a group, or the `default` one.
#[derive(Debug, Serialize)]
pub(super) struct SharedEntry {
    account: Target,
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
    #[serde(flatten)]
    whom: Whom,
}

/// Whom such a line is for.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Whom {
    Members { members: u64, doubt: Option<String> },
    Range { uid_min: u32, uid_max: u32, uncovered: Vec<UserView> },
}

impl SharedEntry {
    fn of_group(view: GroupView) -> Self {
        Self {
            account: view.account,
            name: view.name,
            soft_bytes: view.soft_bytes,
            hard_bytes: view.hard_bytes,
            action: view.action,
            source: view.source,
            whom: Whom::Members { members: view.members, doubt: view.doubt },
            usage_bytes: None,
            reserved_bytes: None,
            effective_bytes: None,
            near: None,
            processes: None,
        }
    }

    fn of_default(line: DefaultView) -> Self {
        Self {
            account: Target::Default,
            name: None,
            soft_bytes: line.soft_bytes,
            hard_bytes: line.hard_bytes,
            action: line.action,
            source: line.source,
            whom: Whom::Range { uid_min: line.uid_min, uid_max: line.uid_max, uncovered: line.uncovered },
            usage_bytes: None,
            reserved_bytes: None,
            effective_bytes: None,
            near: None,
            processes: None,
        }
    }
}

/// Lines as `--json` has them, accounts and groups with their names.
pub(super) fn entries(limits: &Limits, names: &mut Names) -> Vec<Entry> {
    let accounts = limits.accounts.iter().map(|view| Entry::Account(Box::new(names.fill_in(view))));
    let mut entries: Vec<_> = accounts.collect();
    let groups = limits.groups.iter().map(|view| SharedEntry::of_group(names.fill_in_group(view)));
    let groups: Vec<_> = groups.collect();
    let default = limits.default.as_ref().map(|line| SharedEntry::of_default(names.fill_in_default(line)));
    entries.extend(groups.into_iter().chain(default).map(Entry::Shared));
    entries
}

const fn source(source: Source) -> &'static str {
    match source {
        Source::State => "limit set",
        Source::Config => "configuration",
    }
}

/// Where an account's line comes from: where it is kept, and whose it is when it is not the administrator's for this very
/// user.
pub(crate) fn provenance(view: &AccountView, names: &mut Names) -> String {
    let kept = source(view.source);
    match (&view.target, view.set_by) {
        // What all members have together is no user's own line.
        (Some(Target::Group(_)), _) if view.account.user().is_none() => kept.to_owned(),
        (Some(target @ (Target::Members(_) | Target::Group(_))), _) => {
            format!("{kept}, {}", group(target, names))
        }
        (Some(Target::Default), _) => format!("{kept}, default"),
        (Some(Target::Job(_)), _) => "the job".to_owned(),
        (Some(Target::User(_)), Some(Uid(1..))) => format!("{kept}, by the user"),
        (Some(Target::User(_) | Target::Cgroup(_) | Target::System) | None, _) => kept.to_owned(),
    }
}

/// A group as it is written on the command line: by its name, where it has one.
fn group(target: &Target, names: &mut Names) -> String {
    match (names.of_group(target), target) {
        (Some(name), Target::Members(_)) => format!("@{}", human::escaped(&name)),
        (Some(name), Target::Group(_)) => format!("group:{}", human::escaped(&name)),
        _ => target.to_string(),
    }
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| human::bytes(Bytes(bytes)))
}

/// A table of lines.
pub(crate) fn list(out: &mut dyn Write, limits: &Limits, names: &mut Names) -> io::Result<()> {
    let mut table = Table::new(
        ["ACCOUNT", "NAME", "USAGE", "SOFT", "HARD", "IN FORCE", "ACTION", "PROCESSES", "NEAR", "FROM"],
        &["USAGE", "SOFT", "HARD", "IN FORCE", "PROCESSES"],
    );
    for view in &limits.accounts {
        let name = names.of_view(view).map_or_else(|| "-".to_owned(), |name| human::escaped(&name));
        table.row([
            human::escaped(&view.account.to_string()),
            name,
            human::bytes(Bytes(view.usage_bytes)),
            size(view.soft_bytes),
            size(view.hard_bytes),
            size(view.effective_bytes),
            view.hard_bytes.map_or_else(|| "-".to_owned(), |_| view.action.to_string()),
            view.processes.to_string(),
            if view.near { "near" } else { "no" }.to_owned(),
            provenance(view, names),
        ]);
    }
    let groups = limits.groups.iter().map(|view| {
        let members = output::counted(view.members, "member", "members");
        let whom = format!("{}, {members}", group(&view.account, names));
        (SharedEntry::of_group(view.clone()), whom)
    });
    let groups: Vec<_> = groups.collect();
    let default = limits.default.iter().map(|line| {
        (SharedEntry::of_default(line.clone()), format!("uids {}-{}", line.uid_min, line.uid_max))
    });
    for (line, whom) in groups.into_iter().chain(default) {
        let none = || "-".to_owned();
        table.row([
            line.account.to_string(),
            whom,
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
    write!(out, "{table}")
}

/// What else is to be known of accounts.
pub(crate) fn notes(out: &mut dyn Write, accounts: &[AccountView]) -> io::Result<()> {
    for view in accounts {
        if let Some(note) = &view.note {
            let account = human::escaped(&view.account.to_string());
            writeln!(out, "Note: {account}: {}.", output::printable(note))?;
        }
    }
    Ok(())
}

/// Which shared memory is charged and ends with no process for sure.
pub(crate) fn lasting(out: &mut dyn Write, accounts: &[AccountView]) -> io::Result<()> {
    for view in accounts.iter().filter(|view| !view.shared_files.is_empty()) {
        let told = |file: &SharedFileView| {
            format!("{} ({})", output::printable(&file.name), human::bytes(Bytes(file.bytes)))
        };
        let files: Vec<String> = view.shared_files.iter().map(told).collect();
        writeln!(
            out,
            "Note: {} owns shared memory for which nobody is killed; the largest: {}.",
            view.account,
            files.join(", ")
        )?;
    }
    Ok(())
}

/// Which groups' members are not all known, and why.
pub(crate) fn doubts(out: &mut dyn Write, groups: &[GroupView], names: &mut Names) -> io::Result<()> {
    for view in groups {
        if let Some(doubt) = &view.doubt {
            writeln!(out, "Note: members of {}: {}.", group(&view.account, names), output::printable(doubt))?;
        }
    }
    Ok(())
}

/// Who runs something and has no line for a uid above those of `default`, and the setting that includes them. Who has no
/// name above [`SUBORDINATE_UID_MIN`] is in a container, most likely, and not told of.
pub(crate) fn uncovered(
    out: &mut dyn Write,
    default: Option<&DefaultView>,
    names: &mut Names,
) -> io::Result<()> {
    let Some(line) = default.map(|line| names.fill_in_default(line)) else { return Ok(()) };
    let DefaultView { uid_min, uid_max, mut uncovered, .. } = line;
    uncovered.retain(|user| user.name.is_some() || user.uid < SUBORDINATE_UID_MIN);
    let Some(highest) = uncovered.iter().map(|user| user.uid).max() else { return Ok(()) };
    let told = |user: &UserView| match &user.name {
        Some(name) => format!("{} ({})", human::escaped(name), user.uid),
        None => user.uid.to_string(),
    };
    let more = uncovered.len().saturating_sub(USERS_TOLD);
    let mut users: Vec<String> = uncovered.iter().take(USERS_TOLD).map(told).collect();
    users.extend((more > 0).then(|| format!("{more} more")));
    writeln!(
        out,
        "Note: without a line, and running something here: {}. default is for uids {uid_min} to {uid_max}; to include \
         them, set limits.uid_max = {highest} and reload.",
        users.join(", ")
    )
}

/// What holds after a line was drawn, a sentence each.
pub(super) fn sentences(limits: &Limits, names: &mut Names) -> Vec<String> {
    // A group's line is told as the group's: its members' accounts are for `limit show`.
    let accounts = if limits.groups.is_empty() { limits.accounts.as_slice() } else { &[] };
    let mut sentences: Vec<_> = accounts
        .iter()
        .map(|view| {
            let name = names
                .of(&view.account)
                .map_or_else(String::new, |name| format!(" ({})", human::escaped(&name)));
            let line = match (&view.target, view.hard_bytes) {
                (Some(group), None) => format!("no line but that of {group}"),
                (_, hard) if view.action == Action::Deny => {
                    format!("hard {}, action {}", size(hard), view.action)
                }
                (_, hard) => {
                    format!("hard {}, soft {}, action {}", size(hard), size(view.soft_bytes), view.action)
                }
            };
            let mut sentence = format!(
                "{}{name}: {line}; usage {} in {}.",
                human::escaped(&view.account.to_string()),
                human::bytes(Bytes(view.usage_bytes)),
                output::counted(view.processes, "process", "processes"),
            );
            if view.effective_bytes > view.hard_bytes {
                sentence.push_str(&format!(
                    " Usage is above it: {} is in force until usage falls; enforce it at once with --now.",
                    size(view.effective_bytes)
                ));
            }
            if let Some(note) = &view.note {
                sentence.push_str(&format!(" Note: {}.", output::printable(note)));
            }
            sentence
        })
        .collect();
    sentences.extend(limits.groups.iter().map(|view| {
        let name = names
            .of_group(&view.account)
            .map_or_else(String::new, |name| format!(" ({})", human::escaped(&name)));
        let mut sentence = format!(
            "{}{name}: hard {}, soft {}, action {}; for each of {} without a line of their own.",
            view.account,
            size(Some(view.hard_bytes)),
            size(Some(view.soft_bytes)),
            view.action,
            output::counted(view.members, "member", "members"),
        );
        if let Some(doubt) = &view.doubt {
            sentence.push_str(&format!(" Not all is known: {}.", output::printable(doubt)));
        }
        sentence
    }));
    sentences.extend(limits.default.as_ref().map(|line| {
        format!(
            "default: hard {}, soft {}, action {}; for uids {} to {} without a line of their own or of a group.",
            size(Some(line.hard_bytes)),
            size(Some(line.soft_bytes)),
            line.action,
            line.uid_min,
            line.uid_max
        )
    }));
    sentences
}
