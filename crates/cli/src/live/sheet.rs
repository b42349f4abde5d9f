//! A table that fits the screen: rows are filtered and sorted, and columns without room are left out.

use std::cmp::Ordering;

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// The space between two columns.
const GAP: usize = 2;
/// The minimum width of a shortened name, in characters.
const NAME: usize = 12;

/// A column.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) head: &'static str,
    /// True if its text is aligned to the left.
    left: bool,
    /// Columns are left out in the order of their ranks, the largest rank first.
    rank: u8,
}

impl Column {
    pub(super) fn left(head: &'static str, rank: u8) -> Self {
        Self { head, left: true, rank }
    }

    pub(super) fn right(head: &'static str, rank: u8) -> Self {
        Self { head, left: false, rank }
    }
}

/// A cell.
#[derive(Clone)]
pub(super) struct Entry {
    text: String,
    /// The sort key. Without it, the text is the sort key.
    number: Option<f64>,
    style: Style,
}

impl Entry {
    /// Returns a cell that is sorted by its text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), number: None, style: Style::new() }
    }

    /// Returns a cell with this text that is sorted by `number`.
    pub(super) fn number(text: String, number: f64) -> Self {
        Self { text, number: Some(number), style: Style::new() }
    }

    pub(super) fn styled(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

/// The sort order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sort {
    /// The column to sort by. If it is `None`, or a column that the table no longer has, rows keep the order of the
    /// report; for modules, this is the order in which packets pass them.
    pub(super) column: Option<usize>,
    /// False if large numbers come first and texts are in alphabetical order. True for the opposite order.
    pub(super) reversed: bool,
}

/// A complete table.
pub(super) struct Sheet {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Entry>>,
}

impl Sheet {
    /// Keeps the rows with `filter` in their names (the first cell), ignoring case.
    pub(super) fn filter(&mut self, filter: &str) {
        let filter = filter.to_lowercase();
        self.rows.retain(|row| row[0].text.to_lowercase().contains(&filter));
    }

    /// Sorts the rows: large numbers first, texts alphabetically. Equal rows keep their order.
    pub(super) fn sort(&mut self, sort: Sort) {
        let Some(column) = sort.column.filter(|column| *column < self.columns.len()) else {
            if sort.reversed {
                self.rows.reverse();
            }
            return;
        };
        let order = |a: &Entry, b: &Entry| match (a.number, b.number) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.text.cmp(&b.text),
        };
        self.rows.sort_by(|a, b| {
            let order = order(&a[column], &b[column]);
            if sort.reversed { order.reverse() } else { order }
        });
    }

    /// Returns the columns that fit, each with its width. The first column and the column that rows are sorted by
    /// always stay.
    fn fitting(&self, width: usize, sort: Sort) -> Vec<(usize, usize)> {
        let widest = |at: usize| {
            let cells = self.rows.iter().map(|row| row[at].text.chars().count());
            cells.max().unwrap_or(0).max(self.head(at, sort).chars().count())
        };
        let mut columns: Vec<_> = (0..self.columns.len()).map(|at| (at, widest(at))).collect();
        loop {
            let taken = columns.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP);
            if taken <= width {
                return columns;
            }
            // A shortened name with more columns is more useful than one long name.
            let name = columns[0].1.saturating_sub(taken - width);
            if name >= NAME.max(columns[0].1 / 2) {
                columns[0].1 = name;
                return columns;
            }
            let rest = columns.iter().enumerate().skip(1).filter(|(_, (at, _))| sort.column != Some(*at));
            let Some((least, _)) = rest.max_by_key(|(_, (at, _))| (self.columns[*at].rank, *at)) else {
                columns[0].1 = name.max(1);
                return columns;
            };
            columns.remove(least);
        }
    }

    /// Returns a column's heading, with an arrow if rows are sorted by it.
    fn head(&self, at: usize, sort: Sort) -> String {
        let head = self.columns[at].head;
        match sort {
            Sort { column: Some(column), reversed } if column == at => {
                format!("{head}{}", if reversed { '▲' } else { '▼' })
            }
            _ => head.to_owned(),
        }
    }

    /// Returns the headings and the rows that fit, beginning with row `first`, and the number of columns that are left
    /// out.
    pub(super) fn lines(&self, size: (usize, usize), first: usize, sort: Sort) -> (Vec<Line<'static>>, usize) {
        let (width, height) = size;
        let columns = self.fitting(width, sort);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let heads: Vec<_> =
            (0..self.columns.len()).map(|at| Entry { style: bold, ..Entry::text(self.head(at, sort)) }).collect();
        let rows = std::iter::once(&heads).chain(self.rows.iter().skip(first)).take(height);
        let lines = rows.map(|row| {
            let cells = columns.iter().enumerate().flat_map(|(position, (at, width))| {
                let gap = if position > 0 { GAP } else { 0 };
                let text = shortened(&row[*at].text, *width);
                let space = width.saturating_sub(text.chars().count());
                let (before, after) = if self.columns[*at].left { (gap, space) } else { (gap + space, 0) };
                let text = Span::styled(text, row[*at].style);
                [Span::raw(" ".repeat(before)), text, Span::raw(" ".repeat(after))]
            });
            Line::from(cells.collect::<Vec<_>>())
        });
        (lines.collect(), self.columns.len() - columns.len())
    }
}

/// Shortens a text to `width` characters. Keeps the beginning and the end, which distinguish names.
fn shortened(text: &str, width: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let end = kept / 2;
    letters[..kept - end].iter().chain(&['…']).chain(&letters[letters.len() - end..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let row = |name: &str, load: Option<f64>, count: &str| {
            let load = load.map_or_else(|| Entry::text("n/a"), |load| Entry::number(format!("{load}"), load));
            vec![Entry::text(name), load, Entry::text(count)]
        };
        Sheet {
            columns: vec![Column::left("module", 0), Column::right("load", 1), Column::right("packets", 2)],
            rows: vec![row("route", Some(2.0), "10"), row("nat", None, "7"), row("Access", Some(30.0), "8")],
        }
    }

    fn shown(sheet: &Sheet, width: usize, sort: Sort) -> Vec<String> {
        sheet.lines((width, 9), 0, sort).0.iter().map(|line| line.to_string()).collect()
    }

    #[test]
    fn rows_are_sorted_by_number_or_text_and_filtered_by_name() {
        let by = |column, reversed| {
            let mut sheet = sheet();
            sheet.sort(Sort { column, reversed });
            sheet.rows.iter().map(|row| row[0].text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(by(Some(1), false), ["Access", "route", "nat"]);
        assert_eq!(by(Some(0), true), ["route", "nat", "Access"]);
        assert_eq!(by(None, false), ["route", "nat", "Access"]);
        assert_eq!(by(None, true), ["Access", "nat", "route"]);
        let mut few = sheet();
        few.filter("a");
        assert_eq!(few.rows.len(), 2);
        few.filter("access");
        assert_eq!(few.rows.len(), 1);
    }

    #[test]
    fn columns_without_room_are_left_out_but_the_sorted_one_is_not() {
        let plain = Sort::default();
        assert_eq!(shown(&sheet(), 40, plain)[..2], ["module  load  packets", "route      2       10"]);
        assert_eq!(shown(&sheet(), 12, plain)[0], "module  load");
        assert_eq!(sheet().lines((12, 9), 0, plain).1, 1);
        let sorted = Sort { column: Some(2), reversed: false };
        assert_eq!(shown(&sheet(), 16, sorted)[0], "module  packets▼");
        assert_eq!(shown(&sheet(), 3, plain)[0], "m…e");
    }

    #[test]
    fn long_names_keep_their_beginning_and_end() {
        assert_eq!(shortened("tenant-00001-firewall", 9), "tena…wall");
        assert_eq!((shortened("ab", 2), shortened("abc", 1)), ("ab".to_owned(), "…".to_owned()));
    }
}
