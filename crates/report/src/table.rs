//! Plain aligned columns, as wide as their content: they read well, and `awk` and `cut` can take them apart.

use core::fmt;

/// Rows under headings.
#[derive(Debug)]
pub struct Table<const COLUMNS: usize> {
    headings: [&'static str; COLUMNS],
    numbers: &'static [&'static str],
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    /// No rows yet. The columns of `numbers` stand on the right, the others on the left.
    #[must_use]
    pub const fn new(headings: [&'static str; COLUMNS], numbers: &'static [&'static str]) -> Self {
        Self { headings, numbers, rows: Vec::new() }
    }

    /// Adds a row. Cells must be printable: foreign text is escaped by whoever brings it.
    pub fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells);
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    /// Headings and rows, two spaces between columns and none at the ends of lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = self.headings.map(str::to_owned);
        let lines = || core::iter::once(&headings).chain(&self.rows);
        let mut widths = [0; COLUMNS];
        for row in lines() {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in lines() {
            let mut line = String::new();
            for ((cell, width), heading) in row.iter().zip(widths).zip(self.headings) {
                if self.numbers.contains(&heading) {
                    line.push_str(&format!("{cell:>width$}  "));
                } else {
                    line.push_str(&format!("{cell:<width$}  "));
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
