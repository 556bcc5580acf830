//! What is shown, and what keys and answers make of it. Pure: no clock, no terminal, no daemon.

use super::{
    ask::{News, Page, Row, Wanted},
    keys::Key,
};
use crate::output;
use jiff::{Timestamp, tz::TimeZone};
use plimsoll_api::{
    accounts::{AccountProcesses, AccountView},
    client::CallError,
    protect::ProtectView,
    status::Status,
};
use plimsoll_policy::account::Account;
use std::{cmp::Reverse, collections::BTreeMap};

/// How far a page key goes in a list, and in a story.
const PAGE: usize = 10;
const STORY_PAGE: usize = 5;
/// When the mark comes so near to the oldest incident known, the page before it is asked for.
const AHEAD: usize = 5;
/// How many incidents are kept; older ones are for `plimsoll history`.
const KEPT: usize = 4096;

/// Which screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Accounts,
    History,
}

/// Where the arrow keys go on the screen of accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    Accounts,
    Processes,
}

/// Everything that a frame shows.
#[derive(Debug)]
pub(super) struct State {
    pub(super) zone: TimeZone,
    /// Of the last answer, or of what came in its place.
    pub(super) now: Timestamp,
    pub(super) view: View,
    pub(super) focus: Focus,
    /// What was last told, accounts with the fullest first.
    pub(super) status: Option<Status>,
    pub(super) held: Option<ProtectView>,
    /// Why there is no answer, and when there was one.
    pub(super) trouble: Option<(String, Option<Timestamp>)>,
    /// The account with the mark.
    pub(super) account: Option<Account>,
    pub(super) shows_processes: bool,
    pub(super) processes: Option<AccountProcesses>,
    /// The first process shown.
    pub(super) process: usize,
    /// By number.
    pub(super) incidents: BTreeMap<u64, Row>,
    /// What the page before the oldest of them is before; `None`: there is none, or none was asked for.
    older: Option<u64>,
    /// The incident with the mark; `None`: the newest.
    marked: Option<u64>,
    pub(super) story: Option<(u64, String)>,
    /// The first line of it shown.
    pub(super) story_line: usize,
    left: bool,
}

impl State {
    /// Before there was any answer.
    pub(super) const fn new(zone: TimeZone, now: Timestamp) -> Self {
        Self {
            zone,
            now,
            view: View::Accounts,
            focus: Focus::Accounts,
            status: None,
            held: None,
            trouble: None,
            account: None,
            shows_processes: true,
            processes: None,
            process: 0,
            incidents: BTreeMap::new(),
            older: None,
            marked: None,
            story: None,
            story_line: 0,
            left: false,
        }
    }

    /// Whether it is over.
    pub(super) const fn is_left(&self) -> bool {
        self.left
    }

    /// The accounts, in the order shown.
    pub(super) fn accounts(&self) -> &[AccountView] {
        self.status.as_ref().map_or(&[], |status| &status.accounts)
    }

    /// The place of the mark among accounts.
    pub(super) fn account_at(&self) -> usize {
        let marked = |view: &AccountView| Some(&view.account) == self.account.as_ref();
        self.accounts().iter().position(marked).unwrap_or(0)
    }

    /// The incident with the mark.
    pub(super) fn incident(&self) -> Option<u64> {
        self.marked
            .filter(|id| self.incidents.contains_key(id))
            .or_else(|| self.incidents.keys().last().copied())
    }

    /// What is needed to show this.
    pub(super) fn wanted(&self) -> Wanted {
        match self.view {
            View::Accounts => Wanted {
                processes_of: self.account.clone().filter(|_| self.shows_processes),
                ..Wanted::default()
            },
            View::History => {
                let incident = self.incident();
                let older_ones = self.incidents.keys().take_while(|id| Some(**id) != incident).count();
                let wants_older = older_ones < AHEAD && self.incidents.len() < KEPT;
                Wanted {
                    processes_of: None,
                    older_than: self.older.filter(|_| wants_older),
                    story_of: incident,
                }
            }
        }
    }

    /// With an answer, or the lack of one.
    pub(super) fn heard(mut self, news: Result<News, CallError>, now: Timestamp) -> Self {
        let last =
            self.trouble.take().map_or_else(|| self.status.as_ref().map(|_| self.now), |(_, last)| last);
        self.now = now;
        match news {
            Ok(news) => self.with(news),
            Err(error) => {
                self.trouble = Some((error.to_string(), last));
                self
            }
        }
    }

    fn with(mut self, news: News) -> Self {
        let News { status, held, processes, pages, story } = news;
        if let Some(mut status) = status {
            status
                .accounts
                .sort_by_cached_key(|view| (Reverse((view.near, fullness(view))), view.account.clone()));
            if !status.accounts.iter().any(|view| Some(&view.account) == self.account.as_ref()) {
                self.account = status.accounts.first().map(|view| view.account.clone());
            }
            (self.status, self.held) = (Some(status), held);
        }
        self.processes = processes.or_else(|| self.processes.take());
        for page in pages {
            self = self.with_page(page);
        }
        self.story = story.or_else(|| self.story.take());
        self
    }

    fn with_page(mut self, page: Page) -> Self {
        let Page { rows, before, next } = page;
        let known = self.incidents.keys().last();
        // More came in the meantime than a page holds: what was known before is not next to it.
        let is_apart = rows.first().is_some_and(|row| known.is_none_or(|known| row.incident.id > *known));
        if before.is_some() || is_apart || self.incidents.is_empty() {
            self.older = next;
        }
        if before.is_none() && is_apart {
            self.incidents.clear();
        }
        self.incidents.extend(rows.into_iter().map(|row| (row.incident.id, row)));
        self
    }

    /// With a key pressed.
    pub(super) fn after(mut self, key: Key) -> Self {
        match (key, self.view) {
            (Key::Leave, _) => self.left = true,
            (Key::Back, View::Accounts) | (Key::Suspend, _) => {}
            (Key::History, View::Accounts) => self.view = View::History,
            (Key::History | Key::Back, View::History) => self.view = View::Accounts,
            (Key::Processes, View::Accounts) => {
                self.shows_processes = !self.shows_processes;
                self.focus = Focus::Accounts;
            }
            (Key::Other, View::Accounts) if self.shows_processes => {
                self.focus = match self.focus {
                    Focus::Accounts => Focus::Processes,
                    Focus::Processes => Focus::Accounts,
                };
            }
            (Key::Other | Key::Processes, _) => {}
            (Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::First | Key::Last, View::Accounts) => {
                match self.focus {
                    Focus::Accounts => self.mark_account(key),
                    Focus::Processes => {
                        let count = self.processes.as_ref().map_or(0, |of| of.processes.len());
                        self.process = moved(key, self.process, count, PAGE);
                    }
                }
            }
            (Key::PageUp | Key::PageDown, View::History) => {
                let lines = self.story.as_ref().map_or(0, |(_, story)| story.len() / 40);
                self.story_line = moved(key, self.story_line, lines, STORY_PAGE);
            }
            (Key::Up | Key::Down | Key::First | Key::Last, View::History) => self.mark_incident(key),
        }
        self
    }

    fn mark_account(&mut self, key: Key) {
        let to = moved(key, self.account_at(), self.accounts().len(), PAGE);
        let account = self.accounts().get(to).map(|view| view.account.clone());
        if account != self.account {
            (self.account, self.processes, self.process) = (account, None, 0);
        }
    }

    fn mark_incident(&mut self, key: Key) {
        // The newest stands first.
        let ids: Vec<u64> = self.incidents.keys().rev().copied().collect();
        let at = ids.iter().position(|id| Some(*id) == self.incident()).unwrap_or(0);
        self.marked = ids.get(moved(key, at, ids.len(), PAGE)).copied();
        self.story_line = 0;
    }
}

/// How full, in thousandths of the line.
pub(super) fn fullness(view: &AccountView) -> Option<u64> {
    output::share(view.usage_bytes, view.hard_bytes?, 1_000)
}

/// Where a mark at `at` of `count` goes.
fn moved(key: Key, at: usize, count: usize, page: usize) -> usize {
    let last = count.saturating_sub(1);
    match key {
        Key::Up => at.saturating_sub(1),
        Key::Down => at.saturating_add(1).min(last),
        Key::PageUp => at.saturating_sub(page),
        Key::PageDown => at.saturating_add(page).min(last),
        Key::First => 0,
        Key::Last => last,
        Key::Other | Key::Processes | Key::History | Key::Back | Key::Suspend | Key::Leave => at,
    }
}

#[cfg(test)]
pub(super) mod tests;
