//! Plain aligned columns, as wide as their content: they read well, and `awk` and `cut` can take them apart.

use core::fmt;

/// On which side a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows under headings.
#[derive(Debug)]
pub struct Table<const COLUMNS: usize> {
    columns: [(&'static str, Align); COLUMNS],
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    /// No rows yet.
    #[must_use]
    pub const fn new(columns: [(&'static str, Align); COLUMNS]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row. Cells must be printable: foreign text is escaped by whoever brings it.
    pub fn row(&mut self, cells: [String; COLUMNS]) {
        self.rows.push(cells);
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    /// Headings and rows, two spaces between columns and none at the ends of lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = self.columns.map(|(heading, _)| heading.to_owned());
        let lines = || core::iter::once(&headings).chain(&self.rows);
        let mut widths = [0; COLUMNS];
        for row in lines() {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in lines() {
            let mut line = String::new();
            for ((cell, width), (_, align)) in row.iter().zip(widths).zip(self.columns) {
                match align {
                    Align::Left => line.push_str(&format!("{cell:<width$}  ")),
                    Align::Right => line.push_str(&format!("{cell:>width$}  ")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
