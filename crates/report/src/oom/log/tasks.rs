//! The table of processes. Its columns changed with the kernel; its head names them.

use super::{
    draft::{Draft, name},
    scan::{after, decimal, first_word, leading_number, leading_signed, words},
};
use crate::oom::Task;
use plimsoll_policy::units::{Bytes, Pid, Uid};

/// How many rows are kept; the rest is counted.
const ROWS_MAX: usize = 10_000;
/// How many columns the head may have.
const COLUMNS_MAX: usize = 16;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Uid,
    Tgid,
    TotalVm,
    Rss,
    Anon,
    /// Pages of page tables: `nr_ptes`, `nr_pmds`, `nr_puds`.
    TablePages,
    TableBytes,
    Swap,
    Adj,
    Name,
    Other,
}

/// Before the page tables, in all kernels.
const FIRST: [Column; 4] = [Column::Uid, Column::Tgid, Column::TotalVm, Column::Rss];
/// And after them.
const LAST: [Column; 3] = [Column::Swap, Column::Adj, Column::Name];

/// The columns of a table whose head is missing, by how many numbers stand before the name (`dump_tasks`, mm/oom_kill.c):
/// one for page tables up to 4.0 (pages) and in 4.15 to 6.8 (bytes), two from 4.1 and three from 4.11 on (pages), and from
/// 6.9 on three parts of rss besides. `None`: none of these.
fn guessed(rest: &[u8]) -> Option<Vec<Column>> {
    let numbers = words(rest).take_while(|word| leading_signed(word).is_some() && is_number(word)).count();
    // The name may be a number, too: something must be left for it.
    let numbers = numbers.min(words(rest).count().saturating_sub(1));
    let middle: &[Column] = match numbers {
        7 => &[Column::TableBytes],
        8 => &[Column::TablePages; 2],
        9 => &[Column::TablePages; 3],
        10 => &[Column::Anon, Column::Other, Column::Other, Column::TableBytes],
        _ => return None,
    };
    Some([&FIRST, middle, &LAST].concat())
}

fn is_number(word: &[u8]) -> bool {
    decimal(word.strip_prefix(b"-").unwrap_or(word)).is_some()
}

/// `[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name`
pub(super) fn table_head(draft: &mut Draft, text: &[u8]) {
    let Some(rest) = after(text, b"]") else { return };
    draft.columns = words(rest)
        .take(COLUMNS_MAX)
        .map(|word| match word {
            b"uid" => Column::Uid,
            b"tgid" => Column::Tgid,
            b"total_vm" => Column::TotalVm,
            b"rss" => Column::Rss,
            b"rss_anon" => Column::Anon,
            b"nr_ptes" | b"nr_pmds" | b"nr_puds" => Column::TablePages,
            b"pgtables_bytes" => Column::TableBytes,
            b"swapents" => Column::Swap,
            b"oom_score_adj" => Column::Adj,
            b"name" => Column::Name,
            _ => Column::Other,
        })
        .collect();
}

/// A row, its sizes still in pages.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) task: Task,
    pub(super) table_pages: Option<u64>,
}

/// `[   2092]     0  2092   636502   416405  ...  0 node`
pub(super) fn table_row(draft: &mut Draft, text: &[u8]) {
    if draft.rows.len() >= ROWS_MAX {
        draft.report.tasks_left_out = draft.report.tasks_left_out.saturating_add(1);
        return;
    }
    if let Some(row) = row(text, &draft.columns) {
        draft.rows.push(row);
    }
}

fn row(text: &[u8], columns: &[Column]) -> Option<Row> {
    let inside = text.strip_prefix(b"[")?.trim_ascii_start();
    let (pid, rest) = leading_number(inside)?;
    let mut rest = rest.trim_ascii_start().strip_prefix(b"]")?.trim_ascii_start();
    let mut row = Row::default();
    row.task.pid = Pid(u32::try_from(pid).ok()?);
    let by_numbers;
    let columns = if columns.is_empty() {
        by_numbers = guessed(rest)?;
        &by_numbers
    } else {
        columns
    };
    for column in columns {
        if *column == Column::Name {
            row.task.comm = name(rest.trim_ascii_end()).unwrap_or_default();
            return Some(row);
        }
        let (word, after) = first_word(rest);
        rest = after;
        let pages = decimal(word);
        let number = || pages.and_then(|number| u32::try_from(number).ok());
        match column {
            Column::Uid => row.task.uid = number().map(Uid),
            Column::Tgid => row.task.tgid = number().map(Pid),
            Column::TotalVm => row.task.total_vm = pages.map(Bytes),
            Column::Rss => row.task.rss = pages.map(Bytes),
            Column::Anon => row.task.anon = pages.map(Bytes),
            Column::TablePages => {
                row.table_pages = pages.map(|pages| row.table_pages.unwrap_or(0).saturating_add(pages));
            }
            Column::TableBytes => row.task.pgtables = pages.map(Bytes),
            Column::Swap => row.task.swap = pages.map(Bytes),
            Column::Adj => row.task.oom_score_adj = leading_signed(word),
            Column::Name | Column::Other => {}
        }
    }
    Some(row)
}

/// The row with its sizes in bytes.
pub(super) fn finished(row: Row, page: u64) -> Task {
    let bytes = |pages: Option<Bytes>| pages.map(|pages| Bytes(pages.0.saturating_mul(page)));
    let tables = row.table_pages.map(|pages| Bytes(pages.saturating_mul(page)));
    Task {
        total_vm: bytes(row.task.total_vm),
        rss: bytes(row.task.rss),
        anon: bytes(row.task.anon),
        swap: bytes(row.task.swap),
        pgtables: row.task.pgtables.or(tables),
        ..row.task
    }
}
