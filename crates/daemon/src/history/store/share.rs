//! Forgets what is too old or too much. Each account has a share: one that has more gives up its own oldest incidents.

use super::{Store, StoreError, count, incident, put};
use crate::history::{
    Caps,
    entry::{Row, payer},
};
use plimsoll_policy::{incident::Incident, reason::Reason};
use rusqlite::{Connection, Transaction, params};
use std::time::{SystemTime, UNIX_EPOCH};

/// A thinning out makes so much room, in parts of the cap, so that it is not done each time.
const ROOM_PARTS: u64 = 16;

impl Store {
    /// Forgets what is too old or too much.
    pub(in crate::history) fn thin_out(&mut self, caps: &Caps, now: SystemTime) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        let before = transaction.total_changes();
        // A clock before 1970 cannot tell how old anything is.
        if let Some(oldest) =
            now.duration_since(UNIX_EPOCH).ok().and_then(|time| time.checked_sub(caps.max_age))
        {
            let oldest_us = i64::try_from(oldest.as_micros()).unwrap_or(i64::MAX);
            transaction.execute("DELETE FROM incident WHERE time_us < ?1", [oldest_us])?;
        }
        if self.incidents > caps.max_incidents {
            let excess = count(&transaction)?.saturating_sub(caps.max_incidents);
            if excess > 0 {
                let excess = excess.saturating_add(caps.max_incidents / 64);
                for cut in cuts(&transaction, "1", excess)? {
                    cut.delete(&transaction)?;
                }
            }
        }
        let used = used_bytes(&transaction)?;
        if used > caps.max_bytes {
            let over = used.saturating_sub(caps.max_bytes).saturating_add(caps.max_bytes / ROOM_PARTS);
            let sql = "SELECT coalesce(sum(bytes), 0) FROM incident";
            let held: i64 = transaction.query_row(sql, [], |row| row.get(0))?;
            for cut in cuts(&transaction, "bytes", share_of(held.unsigned_abs(), over, used))? {
                cut.fold(&transaction)?;
            }
        }
        let changed = transaction.total_changes() != before;
        transaction.commit()?;
        if changed {
            self.incidents = count(&self.connection)?;
            self.unmoved_bytes = u64::MAX;
            self.give_back(caps)?;
        }
        Ok(())
    }

    /// Shortens a file that is longer than its cap: what was forgotten leaves room in it, which is used again otherwise.
    fn give_back(&self, caps: &Caps) -> Result<(), StoreError> {
        let pages: i64 = self.connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
        let page: i64 = self.connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        if pages.saturating_mul(page).unsigned_abs() > caps.max_bytes {
            let mut statement = self.connection.prepare("PRAGMA incremental_vacuum")?;
            let mut steps = statement.query([])?;
            while steps.next()?.is_some() {}
        }
        Ok(())
    }
}

/// `part / whole` of `all`, and 1 at least.
fn share_of(all: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(all).saturating_mul(u128::from(part)).checked_div(u128::from(whole));
    share.and_then(|share| u64::try_from(share).ok()).unwrap_or(all).max(1)
}

/// What of the file is in use.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let read = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let pages = read("page_count")?.saturating_sub(read("freelist_count")?);
    Ok(pages.saturating_mul(read("page_size")?).unsigned_abs())
}

/// What one account gives up: all up to an id.
struct Cut {
    account: Option<String>,
    up_to: i64,
}

/// Who gives up what so that `excess` is gone: who has most gives up their own oldest, until others have as much. An incident
/// costs `cost`, an expression of SQL.
fn cuts(transaction: &Transaction<'_>, cost: &str, excess: u64) -> rusqlite::Result<Vec<Cut>> {
    let sql = format!(
        "SELECT account, max(id) FROM (SELECT account, id, \
         sum(cost) OVER (ORDER BY held DESC, id ROWS UNBOUNDED PRECEDING) - cost AS gone FROM \
         (SELECT account, id, {cost} AS cost, sum({cost}) OVER (PARTITION BY account ORDER BY id DESC) AS held \
         FROM incident)) WHERE gone < ?1 GROUP BY account"
    );
    let mut statement = transaction.prepare(&sql)?;
    let excess = i64::try_from(excess).unwrap_or(i64::MAX);
    let found = statement.query_map([excess], |row| Ok(Cut { account: row.get(0)?, up_to: row.get(1)? }))?;
    found.collect()
}

impl Cut {
    fn delete(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let sql = "DELETE FROM incident WHERE account IS ?1 AND id <= ?2";
        transaction.execute(sql, params![self.account, self.up_to]).map(drop)
    }

    /// Leaves one incident that stands for all of them, in the place of the newest.
    fn fold(&self, transaction: &Transaction<'_>) -> Result<(), StoreError> {
        let sql = "SELECT body, (SELECT sum(stands_for) FROM incident WHERE account IS ?1 AND id <= ?2) \
                   FROM incident WHERE id = ?2";
        let (newest, stands_for) = transaction.query_row(sql, params![self.account, self.up_to], |row| {
            Ok((incident(row)?, row.get::<_, i64>(1)?))
        })?;
        self.delete(transaction)?;
        let fold = Incident {
            account: payer(&newest),
            victims: Vec::new(),
            usage_bytes: 0,
            hard_bytes: None,
            overshoot_bytes: 0,
            requested_bytes: None,
            unrecorded: Some(stands_for.unsigned_abs()),
            cross_to_signal_ns: None,
            signal_to_freed_ns: None,
            freed_bytes: None,
            reason: Reason::IncidentsFolded.to_string(),
            peers: Vec::new(),
            origin: None,
            compaction: None,
            course: None,
            ..newest
        };
        put(transaction, &Row::of(fold)?, 0)?;
        Ok(())
    }
}
