//! The methods of `io.plimsoll`: read the parameters, ask policy whether this peer may, do it, take out what this peer
//! may not see. In that order, in every method, and nowhere else.

use super::{
    control::{
        Control, HistoryQuery, Inspected, Pick, Refusal, SetLimit, Standing, StartJob, default_view,
        group_view,
    },
    peer::Peer,
};
use plimsoll_api::accounts::{DefaultView, GroupView, UNCOVERED_MAX, UserView};
use plimsoll_api::message::{
    AwaitIncident, AwaitIncidentReply, ClearLimitCall, ClearLimitReply, ExpediteCall, ExpediteReply,
    GetIncident, HistoryCall, HistoryPage, IncidentReply, Limits, Nothing, ProcessesReply, ProtectionReply,
    SetLimitCall, SetProtectionCall, ShowLimits, ShowProcesses, ShowProtection, StartJobCall, StartJobReply,
};
use plimsoll_policy::{
    account::{Account, Action},
    incident::Incident,
    lines::{JOB_NAME_MAX, Job, Line, Target},
    permission::{self, Request},
    units::{Pid, Uid},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    thread,
    time::{Duration, Instant},
};

/// The most incidents in one reply.
pub const PAGE_INCIDENTS: usize = 64;
/// The most files in one reply: with a path of the usual length it stays well under what a client reads.
const FILES_TOLD_MAX: usize = 1024;
/// About how large a reply with incidents may become, in bytes of JSON; one incident always fits.
const PAGE_BYTES_MAX: usize = 256 * 1024;
/// How long a call waits for an incident at most: half of what a client waits for an answer.
const AWAITED_AT_MOST: Duration = Duration::from_secs(30);
/// From one look for an incident that is awaited to the next, which takes in what is new alone.
const AWAITED_APART: Duration = Duration::from_millis(20);
/// How many pages are searched for the newest incident that a peer may see, so that one call stays a small matter.
const PAGES_SEARCHED_MAX: usize = 16;

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum Fault {
    /// There is no such method.
    NoSuchMethod,
    /// The daemon's answer.
    Refused(Refusal),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// One peer's view of the daemon.
pub(super) struct Plimsoll<'a> {
    pub(super) control: &'a dyn Control,
    pub(super) peer: Peer,
}

impl Plimsoll<'_> {
    /// Carries out `method` (its name within the interface).
    pub(super) fn call(&self, method: &str, parameters: Option<&Value>) -> Result<Value, Fault> {
        Ok(match method {
            "Status" => self.status(read(parameters)?)?,
            "ShowLimits" => to_value(&self.show_limits(&read(parameters)?)?)?,
            "ShowProcesses" => to_value(&self.show_processes(read(parameters)?)?)?,
            "SetLimit" => to_value(&self.set_limit(read(parameters)?)?)?,
            "ClearLimit" => to_value(&self.clear_limit(&read(parameters)?)?)?,
            "StartJob" => to_value(&self.start_job(read(parameters)?)?)?,
            "ShowProtection" => to_value(&self.show_protection(read(parameters)?)?)?,
            "SetProtection" => to_value(&self.set_protection(&read(parameters)?)?)?,
            "Expedite" => to_value(&self.expedite(read(parameters)?)?)?,
            "History" => to_value(&self.history(read(parameters)?)?)?,
            "AwaitIncident" => to_value(&self.await_incident(&read(parameters)?)?)?,
            "GetIncident" => to_value(&self.get_incident(read(parameters)?)?)?,
            _ => return Err(Fault::NoSuchMethod),
        })
    }

    /// Where permission is decided, but for two things that go by whom the peer counts for: [`permission::may_draw`], and
    /// [`permission::may_expedite`], which goes by whose the process is, too.
    fn permit(&self, request: &Request) -> Result<Standing, Refusal> {
        let standing = self.control.standing()?;
        permission::may(self.peer.uid, request, &standing.book, standing.mem_total, standing.page_size)
            .map_err(not_permitted)?;
        Ok(standing)
    }

    fn status(&self, Nothing {}: Nothing) -> Result<Value, Refusal> {
        let standing = self.permit(&Request::ReadStatus)?;
        let mut status = self.control.status(self.peer)?;
        status
            .accounts
            .retain(|account| permission::visible(&account.account, self.peer.uid, &standing.book));
        status.groups = self.groups(&standing);
        status.default = self.default(&standing);
        to_value(&status)
    }

    fn show_limits(&self, call: &ShowLimits) -> Result<Limits, Refusal> {
        let only = match &call.who {
            Some(Target::User(uid)) => Some(Account::User(*uid)),
            Some(Target::Group(gid)) => Some(Account::Group(*gid)),
            Some(Target::Job(id)) => Some(Account::Job(*id)),
            Some(target) => target.measured(),
            None => None,
        };
        let request = match (&call.who, &only) {
            (_, Some(account)) => Request::ReadAccount(account.clone()),
            (Some(Target::Members(gid)), None) => Request::ReadGroup(*gid),
            (_, None) => Request::ReadDefault,
        };
        let standing = self.permit(&request)?;
        let mut accounts = match &call.who {
            Some(Target::Default) => Vec::new(),
            Some(_) | None => self.accounts(&standing, only.as_ref())?,
        };
        if let Some(group @ Target::Members(_)) = &call.who {
            accounts.retain(|account| account.target.as_ref() == Some(group));
        }
        let groups = match &call.who {
            None => self.groups(&standing),
            Some(Target::Members(gid)) => group_view(&standing, *gid).into_iter().collect(),
            Some(_) => Vec::new(),
        };
        let default = match &call.who {
            None | Some(Target::Default) => self.default(&standing),
            Some(_) => None,
        };
        Ok(Limits { accounts, groups, default })
    }

    /// Whose account it is sees all of it; of others, who is not root sees their own.
    fn show_processes(&self, call: ShowProcesses) -> Result<ProcessesReply, Refusal> {
        let ShowProcesses { who, most } = call;
        let limits = self.show_limits(&ShowLimits { who })?;
        let wanted = Inspected {
            accounts: limits.accounts.into_iter().map(|account| account.account).collect(),
            only_of: (!self.peer.is_root()).then_some(self.peer.uid),
            most: most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX),
        };
        Ok(ProcessesReply { accounts: self.control.processes(self.peer, &wanted)? })
    }

    /// The lines of groups that the peer may see.
    fn groups(&self, standing: &Standing) -> Vec<GroupView> {
        let views = standing.book.gids().into_iter().filter_map(|gid| group_view(standing, gid));
        views.filter(|view| permission::group_visible(&view.account, self.peer.uid, &standing.book)).collect()
    }

    /// The `default` line, and whom of those that the peer may see it leaves out.
    fn default(&self, standing: &Standing) -> Option<DefaultView> {
        let mut view = default_view(standing)?;
        let Standing { book, mem_total, page_size } = standing;
        let running = match self.peer {
            peer if peer.is_root() => self.control.running(),
            // Who has a subordinate uid is charged to its owner.
            Peer { uid, owner, .. } => Vec::from_iter((uid == owner).then_some(uid)),
        };
        let left_out =
            |uid: &Uid| book.range().leaves_out(*uid) && book.resolve(*uid, *mem_total, *page_size).is_none();
        let uncovered = running.into_iter().filter(left_out).take(UNCOVERED_MAX);
        view.uncovered = uncovered.map(|uid| UserView { uid, name: None }).collect();
        Some(view)
    }

    fn accounts(
        &self,
        standing: &Standing,
        only: Option<&Account>,
    ) -> Result<Vec<plimsoll_api::accounts::AccountView>, Refusal> {
        let mut accounts = self.control.limits(self.peer, only)?;
        accounts.retain(|account| permission::visible(&account.account, self.peer.uid, &standing.book));
        Ok(accounts)
    }

    fn set_limit(&self, call: SetLimitCall) -> Result<Limits, Refusal> {
        let SetLimitCall { who: target, hard, soft, action, now } = call;
        permission::may_draw(self.peer.uid, self.peer.owner).map_err(not_permitted)?;
        let action = match action {
            Some(action) => action,
            None if self.is_strict(&target)? => Action::Deny,
            None => Action::Kill,
        };
        let line = Line { hard, soft, action };
        let now = now.unwrap_or(false);
        self.permit(&Request::SetLine { target: target.clone(), line, now })?;
        self.control.set_limit(self.peer, SetLimit { target: target.clone(), line, now })?;
        self.show_limits(&ShowLimits { who: Some(target) })
    }

    /// Whether it is a job that is strict, and stays so.
    fn is_strict(&self, target: &Target) -> Result<bool, Refusal> {
        let Target::Job(id) = target else { return Ok(false) };
        Ok(self.control.standing()?.book.jobs().get(*id).is_some_and(Job::is_strict))
    }

    fn clear_limit(&self, call: &ClearLimitCall) -> Result<ClearLimitReply, Refusal> {
        self.permit(&Request::ClearLine { target: call.who.clone() })?;
        let result = self.control.clear_limit(self.peer, call.who.clone())?;
        Ok(ClearLimitReply { result })
    }

    /// Anybody may start one: it only ever tightens what holds for them.
    fn start_job(&self, call: StartJobCall) -> Result<StartJobReply, Refusal> {
        let StartJobCall { name, hard, soft, action, reserve } = call;
        permission::may_draw(self.peer.uid, self.peer.owner).map_err(not_permitted)?;
        if hard.is_none() && (soft.is_some() || action.is_some()) {
            return Err(Refusal::Invalid(
                "a job without a hard limit has neither a soft one nor an action".to_owned(),
            ));
        }
        if let Some(name) = &name {
            let is_shown = |name: &str| !name.is_empty() && !name.chars().any(char::is_control);
            if !is_shown(name) || name.len() > JOB_NAME_MAX {
                return Err(Refusal::Invalid(format!(
                    "a job's name has 1 to {JOB_NAME_MAX} bytes and no control characters"
                )));
            }
        }
        let line = hard.map(|hard| Line { hard, soft, action: action.unwrap_or(Action::Kill) });
        self.control.start_job(self.peer, StartJob { name, line, reserve })
    }

    fn show_protection(&self, call: ShowProtection) -> Result<ProtectionReply, Refusal> {
        self.permit(&Request::ReadStatus)?;
        self.protection(call.files)
    }

    fn set_protection(&self, call: &SetProtectionCall) -> Result<ProtectionReply, Refusal> {
        self.permit(&Request::ControlDaemon)?;
        self.control.set_protection(self.peer, &call.settings)?;
        self.protection(Some(0))
    }

    /// Which files others use is root's to know: others are told how much is held of how many.
    fn protection(&self, files: Option<u64>) -> Result<ProtectionReply, Refusal> {
        let mut protection = self.control.protection(self.peer)?;
        let asked = files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
        protection.files.truncate(if self.peer.is_root() { asked.min(FILES_TOLD_MAX) } else { 0 });
        Ok(ProtectionReply { protection })
    }

    fn expedite(&self, call: ExpediteCall) -> Result<ExpediteReply, Refusal> {
        self.permit(&Request::Expedite)?;
        let ExpediteCall { pid, start_ns } = call;
        Ok(ExpediteReply { taken: self.control.expedite(self.peer, Pid(pid), start_ns)? })
    }

    fn history(&self, call: HistoryCall) -> Result<HistoryPage, Refusal> {
        self.permit(&Request::ReadIncidents)?;
        let limit = match call.limit {
            None => PAGE_INCIDENTS,
            Some(0) => return Err(Refusal::Invalid("limit 0: give at least 1".to_owned())),
            Some(limit) => usize::try_from(limit).map_or(PAGE_INCIDENTS, |limit| limit.min(PAGE_INCIDENTS)),
        };
        let query = HistoryQuery { since: call.since, after_id: 0, before_id: call.before_id, limit };
        let page = self.page(query)?;
        let standing = self.control.standing()?;
        let visible = page
            .incidents
            .iter()
            .filter_map(|incident| permission::redact(incident, self.peer.uid, &standing.book));
        Ok(HistoryPage { incidents: visible.collect(), next_before_id: page.next_before_id })
    }

    /// A page with everything in it, cut at its old end to what fits one reply.
    fn page(&self, query: HistoryQuery) -> Result<HistoryPage, Refusal> {
        // One more than asked for tells whether there is an older page.
        let ask = HistoryQuery { limit: query.limit.saturating_add(1), ..query };
        let mut incidents = self.control.history(self.peer, ask)?;
        // A list is told without: `GetIncident` has it.
        incidents.iter_mut().for_each(|incident| incident.course = None);
        let found = incidents.len();
        let mut kept = 0_usize;
        let mut size_bytes = 0_usize;
        for incident in incidents.iter().rev().take(query.limit) {
            size_bytes = size_bytes.saturating_add(json_bytes(incident)?);
            if kept > 0 && size_bytes > PAGE_BYTES_MAX {
                break;
            }
            kept = kept.saturating_add(1);
        }
        let incidents = incidents.split_off(found.saturating_sub(kept));
        let oldest = incidents.first().map(|incident| incident.id);
        Ok(HistoryPage { next_before_id: oldest.filter(|_| found > kept), incidents })
    }

    fn get_incident(&self, call: GetIncident) -> Result<IncidentReply, Refusal> {
        self.permit(&Request::ReadIncidents)?;
        let pick = match (call.id, call.pid) {
            (Some(id), None) => Pick::Id(id),
            (None, Some(pid)) => Pick::Pid(Pid(pid)),
            (None, None) => Pick::Last,
            (Some(_), Some(_)) => {
                return Err(Refusal::Invalid("both id and pid: give one of them".to_owned()));
            }
        };
        let incident = match pick {
            Pick::Last if !self.peer.is_root() => self.newest_visible()?,
            Pick::Id(_) | Pick::Pid(_) | Pick::Last => self.visible(pick)?,
        };
        Ok(IncidentReply { incident })
    }

    fn await_incident(&self, call: &AwaitIncident) -> Result<AwaitIncidentReply, Refusal> {
        self.permit(&Request::ReadIncidents)?;
        let until = Instant::now() + Duration::from_millis(call.within_ms).min(AWAITED_AT_MOST);
        let mut told = self.control.await_news(None, Duration::ZERO);
        let found = |found| match found {
            Err(Refusal::NotFound(_)) => Ok(0),
            found => found,
        };
        // What the caller knows is not searched, and nothing is looked at twice.
        let mut looked_to = call.after_id;
        let mut newest = found(self.newest_id(&mut looked_to, PAGES_SEARCHED_MAX))?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut near = self.control.near();
            let standing = self.control.standing()?;
            near.retain(|one| permission::visible(&one.account, self.peer.uid, &standing.book));
            let known = |known: &Vec<Account>| near.iter().all(|one| known.contains(&one.account));
            if newest > call.after_id || left.is_zero() || !call.near.as_ref().is_none_or(known) {
                return Ok(AwaitIncidentReply { newest_id: newest.max(call.after_id), near });
            }
            // Whoever takes incident after incident has nobody look more often than so, nor further back than at what is new.
            thread::sleep(AWAITED_APART.min(left));
            told = self.control.await_news(Some(told), until.saturating_duration_since(Instant::now()));
            newest = newest.max(found(self.newest_id(&mut looked_to, 1))?);
        }
    }

    /// One incident as the peer may see it. One that is not theirs is 'not found': its number alone would tell that
    /// something happened to somebody.
    fn visible(&self, pick: Pick) -> Result<Incident, Refusal> {
        let incident = self.control.incident(self.peer, pick)?;
        let standing = self.control.standing()?;
        permission::redact(&incident, self.peer.uid, &standing.book).ok_or_else(|| not_found(pick))
    }

    fn newest_visible(&self) -> Result<Incident, Refusal> {
        self.visible(Pick::Id(self.newest_id(&mut 0, PAGES_SEARCHED_MAX)?))
    }

    /// Of the newest incident after that one that the peer may see, on the newest of so many pages; and how far this looked.
    fn newest_id(&self, looked_to: &mut u64, pages: usize) -> Result<u64, Refusal> {
        let mut query =
            HistoryQuery { after_id: *looked_to, limit: PAGE_INCIDENTS, ..HistoryQuery::default() };
        let standing = self.control.standing()?;
        for _ in 0..pages {
            let page = self.page(query)?;
            *looked_to = page.incidents.last().map_or(*looked_to, |last| last.id.max(*looked_to));
            let mut newest_first = page.incidents.iter().rev();
            let visible =
                newest_first.find(|incident| permission::may_see(incident, self.peer.uid, &standing.book));
            if let Some(incident) = visible {
                return Ok(incident.id);
            }
            if page.next_before_id.is_none() {
                return Err(not_found(Pick::Last));
            }
            query.before_id = page.next_before_id;
        }
        Err(Refusal::NotFound("none of the latest incidents is yours; see 'plimsoll history'".to_owned()))
    }
}

/// What to say when there is no such incident, or none for the peer's eyes.
#[must_use]
pub fn not_found(pick: Pick) -> Refusal {
    Refusal::NotFound(match pick {
        Pick::Id(id) => format!("there is no incident {id}; see 'plimsoll history'"),
        Pick::Last => "there is no incident yet".to_owned(),
        Pick::Pid(pid) => format!("no incident is known for process {pid}; see 'plimsoll history'"),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn not_permitted(refused: permission::Refused) -> Refusal {
    Refusal::NotPermitted(refused.to_string())
}

/// Parameters; a call without any means an empty object.
fn read<T: DeserializeOwned>(parameters: Option<&Value>) -> Result<T, Refusal> {
    let empty = Value::Object(serde_json::Map::new());
    let parameters = parameters.unwrap_or(&empty);
    if !parameters.is_object() {
        return Err(Refusal::Invalid("parameters not understood: give an object".to_owned()));
    }
    T::deserialize(parameters)
        .map_err(|error| Refusal::Invalid(format!("parameters not understood: {error}")))
}

fn to_value<T: Serialize>(reply: &T) -> Result<Value, Refusal> {
    serde_json::to_value(reply).map_err(unwritable)
}

fn json_bytes(incident: &Incident) -> Result<usize, Refusal> {
    serde_json::to_vec(incident).map(|json| json.len()).map_err(unwritable)
}

fn unwritable(error: serde_json::Error) -> Refusal {
    Refusal::Internal(format!("the answer cannot be put into words: {error}"))
}

#[cfg(test)]
mod tests;
