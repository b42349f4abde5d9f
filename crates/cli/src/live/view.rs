//! The state of the live view that keys change: pane, sort order, filter, page.

use std::cell::Cell;

use forebay_protocol::{event::Event, report::Report};
use ratatui::crossterm::event::KeyCode;

use super::Quit;
use super::panes::Pane;
use super::sheet::Sort;

/// The page that fills the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    #[default]
    Tables,
    /// The complete text from above the tables.
    Text,
    Help,
}

/// The last reports, and the user's settings for the view.
pub(super) struct View {
    pub(super) recent: Option<Report>,
    pub(super) whole: Option<Report>,
    /// The last events, oldest first.
    pub(super) events: Vec<Event>,
    /// The current date in UTC, in the format of events (`2026-11-25`).
    pub(super) today: String,
    pub(super) page: Page,
    /// The table that keys act on.
    pub(super) pane: Pane,
    /// The first visible row of that table.
    pub(super) scroll: usize,
    /// The first visible line of help or text. Drawing reduces it if it is too large.
    pub(super) text_scroll: Cell<usize>,
    /// Sort order of each pane.
    pub(super) sorts: [Sort; Pane::ALL.len()],
    /// Only rows with this text in their names are shown.
    pub(super) filter: String,
    /// True while keys are typed into the filter.
    pub(super) is_typing: bool,
    pub(super) quit: Quit,
    /// True after the first `q`. A second `q` then ends the run.
    pub(super) asks: bool,
}

impl Default for View {
    fn default() -> Self {
        Self {
            recent: None,
            whole: None,
            events: Vec::new(),
            today: String::new(),
            page: Page::Tables,
            pane: Pane::Modules,
            scroll: 0,
            text_scroll: Cell::new(0),
            sorts: Pane::ALL.map(|pane| Sort { column: pane.sorted_first(), reversed: false }),
            filter: String::new(),
            is_typing: false,
            quit: Quit::EndRun,
            asks: false,
        }
    }
}

impl View {
    /// Handles a key. `control` is true if Ctrl was pressed. `page` is the number of lines that the page keys scroll.
    /// Returns true if the key ends the view or the run.
    pub(super) fn handle_key(&mut self, key: KeyCode, control: bool, page: usize) -> bool {
        if control && key == KeyCode::Char('c') {
            return true;
        }
        if self.is_typing {
            self.type_filter(key);
            return false;
        }
        let asked_before = std::mem::take(&mut self.asks);
        match key {
            KeyCode::Char('q') if asked_before || self.quit == Quit::Leave => return true,
            KeyCode::Char('q') => self.asks = true,
            // Esc only goes back; it does not end a run.
            KeyCode::Esc if self.page != Page::Tables => self.page = Page::Tables,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => return self.quit == Quit::Leave,
            KeyCode::Char('?') => self.turn_to(Page::Help),
            KeyCode::Char('0') => self.turn_to(Page::Text),
            KeyCode::Char('/') => (self.page, self.is_typing) = (Page::Tables, true),
            KeyCode::Char(digit @ '1'..='5') => self.choose(digit as usize - '1' as usize),
            KeyCode::Tab | KeyCode::Right => self.choose(self.pane as usize + 1),
            KeyCode::BackTab | KeyCode::Left => self.choose(self.pane as usize + Pane::ALL.len() - 1),
            KeyCode::Char('<') => self.sort_by_neighbour(false),
            KeyCode::Char('>') => self.sort_by_neighbour(true),
            KeyCode::Char('r') => self.sort().reversed ^= true,
            KeyCode::Char('s') => {
                let first = self.pane.sorted_first().or(Some(0));
                let sort = self.sort();
                *sort = Sort { column: if sort.column.is_some() { None } else { first }, reversed: false };
            }
            _ => self.scroll_by(key, page),
        }
        false
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.scroll = 0;
    }

    /// Shows a page. If that page is already shown, shows the tables.
    fn turn_to(&mut self, page: Page) {
        self.page = if self.page == page { Page::Tables } else { page };
        self.text_scroll.set(0);
    }

    /// Chooses a table by its number, modulo the number of tables.
    fn choose(&mut self, pane: usize) {
        let chosen = Pane::ALL[pane % Pane::ALL.len()];
        if chosen != self.pane {
            (self.pane, self.scroll) = (chosen, 0);
        }
        self.page = Page::Tables;
    }

    /// Returns the sort order of the chosen table.
    fn sort(&mut self) -> &mut Sort {
        &mut self.sorts[self.pane as usize]
    }

    /// Sorts by the next or the previous column.
    fn sort_by_neighbour(&mut self, next: bool) {
        let Some(columns) = self.sheet_size().map(|(columns, _)| columns) else { return };
        let sort = self.sort();
        let column = sort.column.filter(|column| *column < columns);
        let now = column.unwrap_or(if next { columns - 1 } else { 0 });
        sort.column = Some(if next { (now + 1) % columns } else { (now + columns - 1) % columns });
    }

    /// Returns the number of columns and rows of the chosen table; `None` before the first report.
    fn sheet_size(&self) -> Option<(usize, usize)> {
        let mut sheet = self.pane.sheet(self.recent.as_ref()?, self.whole.as_ref()?);
        sheet.filter(&self.filter);
        Some((sheet.columns.len(), sheet.rows.len()))
    }

    fn scroll_by(&mut self, key: KeyCode, page: usize) {
        let rows = match self.page {
            Page::Tables => self.sheet_size().map_or(0, |(_, rows)| rows),
            Page::Help | Page::Text => LONGEST_TEXT,
        };
        let scroll = if self.page == Page::Tables { &mut self.scroll } else { self.text_scroll.get_mut() };
        let page = page.max(1);
        *scroll = match key {
            KeyCode::Down | KeyCode::Char('j') => *scroll + 1,
            KeyCode::Up | KeyCode::Char('k') => scroll.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => *scroll + page,
            KeyCode::PageUp => scroll.saturating_sub(page),
            KeyCode::Home => 0,
            KeyCode::End => rows,
            _ => *scroll,
        };
        *scroll = (*scroll).min(rows.saturating_sub(1));
    }
}

/// The limit for scrolling in the help or the text, in lines. It is larger than their lengths on any screen, and
/// drawing reduces the scroll position.
const LONGEST_TEXT: usize = 200;
