//! `plimsoll notify`: tells whoever lost a process, on the channels they look at.
//!
//! A process of its own, beside the daemon: it asks for incidents as any client does, so that nothing here can delay a kill.

use crate::{
    exit::{Ending, Failure},
    names::Names,
};
use clap::Args;
use nix::unistd;
use plimsoll_api::{
    accounts::NearView,
    client::{CallError, Client},
    message::AwaitIncident,
};
use plimsoll_policy::{account::Account, incident::Incident, lines::Target, units::Uid};
use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

mod notice;
mod pace;
mod ways;

use notice::Notice;
use pace::Pace;
use ways::{Deliveries, Ways};

/// So long the daemon waits for an incident before it answers that there is none.
const AWAITED: Duration = Duration::from_secs(30);
/// From one try to reach the daemon to the next.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// From one warning to the same user to the next.
const WARNED_APART: Duration = Duration::from_secs(600);
/// Of so many users it is known; more are not warned meanwhile.
const WARNED_MAX: usize = 4096;
/// So many processes are named in a warning.
const LARGEST: u64 = 3;
/// So many incidents are looked at of those that came at once: the rest is in the history.
const AT_ONCE: u64 = 512;

/// By which ways.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Show it in this desktop session, by notify-send; what is done where nothing else is said.
    #[arg(long)]
    desktop: bool,
    /// Write it to the terminals of whoever lost a process, unless they refuse messages (mesg n).
    #[arg(long)]
    terminals: bool,
    /// Send the D-Bus signal that systembus-notify shows in every session. It names processes to all users.
    #[arg(long)]
    bus: bool,
    /// Run this for each notice, with JSON on its standard input; it is ended after 10 seconds. The last option.
    #[arg(long, num_args = 1.., allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Arguments {
    fn ways(&self) -> Ways {
        let none = !self.terminals && !self.bus && self.command.is_empty();
        Ways {
            desktop: self.desktop || none,
            terminals: self.terminals,
            bus: self.bus,
            command: self.command.clone(),
        }
    }
}

/// Tells until it is stopped.
pub(crate) fn run(arguments: &Arguments, socket: &Path) -> Ending {
    let mut notifier = Notifier {
        own: Some(Uid(unistd::getuid().as_raw())).filter(|uid| uid.0 != 0),
        names: Names::default(),
        pace: Pace::default(),
        deliveries: Deliveries::new(arguments.ways()),
        last: None,
        near: Vec::new(),
        warned: BTreeMap::new(),
    };
    // Whoever started it by hand is to know at once that there is no daemon.
    let mut client = Some(Client::connect(socket)?);
    let mut said = false;
    loop {
        let asked = match &mut client {
            Some(client) => notifier.turn(client),
            None => Client::connect(socket).map(|connected| client = Some(connected)),
        };
        match asked {
            Ok(()) => said = false,
            Err(CallError::NotPermitted(why)) => return Err(Failure::from(CallError::NotPermitted(why))),
            Err(error) => {
                client = None;
                if !said {
                    eprintln!("plimsoll notify: {error}; trying again every {} s", TRY_AGAIN.as_secs());
                }
                said = true;
                notifier.tell_due();
                thread::sleep(TRY_AGAIN);
            }
        }
    }
}

/// Who is told what.
struct Notifier {
    /// Whom alone it tells; `None`: everybody, since it runs as root.
    own: Option<Uid>,
    names: Names,
    pace: Pace,
    deliveries: Deliveries,
    /// The newest incident seen; `None`: it has just begun, and what was before is not told.
    last: Option<u64>,
    /// The accounts that are near their line, as far as is known.
    near: Vec<Account>,
    /// Who was warned when.
    warned: BTreeMap<Account, Instant>,
}

impl Notifier {
    /// Waits for incidents, and tells of them.
    fn turn(&mut self, client: &mut Client) -> Result<(), CallError> {
        let due = self.pace.next_due(Instant::now()).map_or(AWAITED, |due| AWAITED.min(due));
        let wait = self.last.map_or(Duration::ZERO, |_| due);
        let news = client.await_incident(&AwaitIncident {
            after_id: self.last.unwrap_or(0),
            within_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            near: Some(self.near.clone()),
        })?;
        if let Some(last) = self.last.filter(|last| news.newest_id > *last) {
            for incident in client.history_after(last, AT_ONCE, |_| true)? {
                self.take(&incident);
            }
        }
        self.last = Some(news.newest_id);
        for one in news.near.iter().filter(|one| !self.near.contains(&one.account)).collect::<Vec<_>>() {
            self.warn(client, one)?;
        }
        self.near = news.near.into_iter().map(|one| one.account).collect();
        self.tell_due();
        Ok(())
    }

    /// Whose account comes near its line is told how long there is, and who is the largest.
    fn warn(&mut self, client: &mut Client, near: &NearView) -> Result<(), CallError> {
        let now = Instant::now();
        self.warned.retain(|_, at| now.saturating_duration_since(*at) < WARNED_APART);
        let (uid, target) = match (&near.account, self.own) {
            (Account::User(uid), own) if own.is_none_or(|own| own == *uid) => (*uid, Target::User(*uid)),
            // Who is in a group, or has a job, is told of it by their own.
            (Account::Group(gid), Some(own)) => (own, Target::Group(*gid)),
            (Account::Job(id), Some(own)) => (own, Target::Job(*id)),
            _ => return Ok(()),
        };
        if self.warned.contains_key(&near.account) || self.warned.len() >= WARNED_MAX {
            return Ok(());
        }
        self.warned.insert(near.account.clone(), now);
        let listed = client.show_processes(Some(target), Some(LARGEST))?;
        let largest = listed.into_iter().flat_map(|account| account.processes).collect::<Vec<_>>();
        let notice = Notice::near(uid, self.names.of_uid(uid), near, &largest);
        self.deliver(notice);
        Ok(())
    }

    /// Tells now, or with the next notice of whom it concerns.
    fn take(&mut self, incident: &Incident) {
        let now = Instant::now();
        let own = self.own;
        for uid in notice::concerned(incident).into_iter().filter(|uid| own.is_none_or(|own| own == *uid)) {
            if self.pace.offer(uid, incident, now) {
                self.tell(uid, incident, 0);
            }
        }
    }

    /// Tells what was held back, where its time has come.
    fn tell_due(&mut self) {
        for (uid, incident, count) in self.pace.take_due(Instant::now()) {
            self.tell(uid, &incident, count.saturating_sub(1));
        }
    }

    fn tell(&mut self, uid: Uid, incident: &Incident, more: u64) {
        let notice = Notice::of(uid, self.names.of_uid(uid), incident, more);
        self.deliver(notice);
    }

    fn deliver(&self, notice: Notice) {
        let (uid, what) = (notice.uid, notice.about());
        if let Err(why) = self.deliveries.begin(notice) {
            eprintln!("plimsoll notify: {what} was not told to uid {uid}: {why}");
        }
    }
}

#[cfg(test)]
fn sample() -> Incident {
    serde_json::from_str(include_str!("../../../policy/src/incident/sample.json")).unwrap()
}
