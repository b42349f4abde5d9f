//! The layout of the live view: text at the top, tables, keys at the bottom.

use forebay_protocol::report::Report;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::panes::Pane;
use super::{Page, Quit, View, happened, head, help};
use crate::format::wrapped;

/// The smallest height at which a table is useful, in lines: title, headings, and some rows.
const TABLE: usize = 7;
/// Lines that are reserved for tables on small screens.
const LEAST: usize = 4;
/// Minimum width for tables in two columns, in characters.
const TWO_COLUMNS: usize = 150;
/// The space between two columns.
const GUTTER: usize = 3;

/// A pane, its upper left corner, and its width and height, in characters.
type PlacedPane = (Pane, (usize, usize), (usize, usize));

impl View {
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        let foot = self.foot(width);
        let room = height.saturating_sub(foot.len());
        let show = |frame: &mut Frame<'_>, lines: Vec<Line<'static>>, (x, y): (usize, usize), width: usize| {
            let fit = |value: usize| u16::try_from(value).unwrap_or(u16::MAX);
            let part = Rect::new(fit(x), fit(y), fit(width), fit(lines.len())).intersection(frame.area());
            frame.render_widget(Paragraph::new(lines), part);
        };
        show(frame, foot, (0, room), width);
        let (Some(recent), Some(so_far)) = (&self.recent, &self.whole) else {
            let text = wrapped("running; figures come after the first interval", 0, width.max(1));
            show(frame, text.lines().take(room).map(|line| Line::from(line.to_owned())).collect(), (0, 0), width);
            return;
        };
        let page = match self.page {
            Page::Help => Some(help::lines(self.quit, width)),
            Page::Text => Some(head::lines(&head::notes(recent, so_far, self.happened(happened::ON_PAGE)), width)),
            Page::Tables => None,
        };
        if let Some(lines) = page {
            let first = self.text_scroll.get().min(lines.len().saturating_sub(room));
            self.text_scroll.set(first);
            show(frame, lines.into_iter().skip(first).take(room).collect(), (0, 0), width);
            return;
        }
        let tables = if room >= 4 * TABLE { 2 * TABLE } else { LEAST.max(room / 3) };
        let above = head::notes(recent, so_far, self.happened(happened::ABOVE));
        let (mut text, rest) = head::fitting(&above, width, room.saturating_sub(tables.min(room)));
        if rest > 0 && text.len() < room {
            let more =
                if rest == 1 { "1 line more: press 0".to_owned() } else { format!("{rest} lines more: press 0") };
            text.push(Line::from(more).style(Style::new().add_modifier(Modifier::DIM)));
        }
        let top = text.len();
        show(frame, text, (0, 0), width);
        for (pane, (x, y), size) in self.placed_panes((width, room.saturating_sub(top)), recent, so_far) {
            show(frame, self.table(pane, recent, so_far, size), (x, top + y), size.0);
        }
    }

    /// Returns notes on the last `count` events.
    fn happened(&self, count: usize) -> Vec<head::Note> {
        happened::notes(&self.events, count, &self.today)
    }

    /// Returns the tables that fit, each with its position and size. The chosen table is the first.
    fn placed_panes(&self, (width, height): (usize, usize), recent: &Report, so_far: &Report) -> Vec<PlacedPane> {
        let two = width >= TWO_COLUMNS && height >= TABLE;
        let chosen = Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0);
        let count = (height / TABLE * if two { 2 } else { 1 }).clamp(1, Pane::ALL.len());
        let panes: Vec<_> = Pane::ALL.iter().cycle().skip(chosen).take(count).copied().collect();
        // The left column has few tables, so that the chosen table is long.
        let left = if two { count.div_ceil(2).min(2) } else { count };
        let column = if two { (width - GUTTER) / 2 } else { width };
        let mut placed_panes = Vec::new();
        for (x, panes) in [(0, &panes[..left]), (column + GUTTER, &panes[left..])] {
            let wanted: Vec<_> = panes.iter().map(|pane| pane.sheet(recent, so_far).rows.len() + 3).collect();
            let mut y = 0;
            for (pane, height) in panes.iter().zip(shared(&wanted, height)) {
                placed_panes.push((*pane, (x, y), (column, height)));
                y += height;
            }
        }
        placed_panes
    }

    /// Returns the lines of a table: title, headings and rows.
    fn table(
        &self,
        pane: Pane,
        recent: &Report,
        so_far: &Report,
        (width, height): (usize, usize),
    ) -> Vec<Line<'static>> {
        let mut sheet = pane.sheet(recent, so_far);
        let all = sheet.rows.len();
        sheet.filter(&self.filter);
        let sort = self.sorts[pane as usize];
        sheet.sort(sort);
        // Only the chosen table is scrolled. Other tables begin with their first row.
        let rows = height.saturating_sub(2);
        let scroll = if pane == self.pane { self.scroll } else { 0 };
        let first = scroll.min(sheet.rows.len().saturating_sub(1));
        let (lines, left_out) = sheet.lines((width, height.saturating_sub(1)), first, sort);
        let shown = sheet.rows.len().saturating_sub(first).min(rows);
        let mut title = match (all, sheet.rows.len()) {
            (0, _) => format!("{}: none", pane.name()),
            (all, 0) => format!("{}: none of {all}", pane.name()),
            (all, _) if shown < all => format!("{} {}-{} of {all}", pane.name(), first + 1, first + shown),
            (all, _) => format!("{} {all}", pane.name()),
        };
        if !self.filter.is_empty() {
            title.push_str(&format!(" with '{}'", self.filter));
        }
        if left_out > 0 && !sheet.rows.is_empty() {
            title.push_str(&format!(", {left_out} more column{}", if left_out == 1 { "" } else { "s" }));
        }
        let title: String = format!("── {title} ").chars().take(width).collect();
        let line = "─".repeat(width.saturating_sub(title.chars().count()));
        let style = Style::new().add_modifier(if pane == self.pane { Modifier::BOLD } else { Modifier::DIM });
        let title = Line::from(vec![Span::styled(title, style), Span::styled(line, style)]);
        let rows = if sheet.rows.is_empty() { Vec::new() } else { lines };
        std::iter::once(title).chain(rows).take(height).collect()
    }

    /// Returns the line of keys, or the text that is being typed.
    fn foot(&self, width: usize) -> Vec<Line<'static>> {
        let text = match (self.asks, self.is_typing, self.page) {
            (true, ..) => "q again ends the run, any other key goes on".to_owned(),
            (_, true, _) => format!("names with: {}_   Enter keeps, Esc removes", self.filter),
            (_, _, Page::Help | Page::Text) => format!("↑ ↓ scroll   Esc back   {}", self.quit_key()),
            (_, _, Page::Tables) => {
                let keys = [self.quit_key(), "? help", "Tab table", "/ filter", "< > sort", "r reverse", "↑ ↓ scroll"];
                keys.join("   ")
            }
        };
        let style = if self.asks || self.is_typing { Modifier::BOLD } else { Modifier::DIM };
        let fits = text.chars().count() <= width;
        let text = match self.page {
            // On a small screen, show one line; the help lists all keys.
            Page::Tables if !fits && !self.asks && !self.is_typing => {
                format!("{}  ? help  Tab table  / filter", self.quit_key())
            }
            _ => text,
        };
        let text = if text.chars().count() <= width { text } else { wrapped(&text, 0, width.max(1)) };
        text.lines().map(|line| Line::from(line.to_owned()).style(Style::new().add_modifier(style))).collect()
    }

    /// Returns the help for the key `q`.
    fn quit_key(&self) -> &'static str {
        match self.quit {
            Quit::EndRun => "q end",
            Quit::Leave => "q leave",
        }
    }
}

/// Divides `height` lines among tables. Each table first gets an equal number of lines, but at most its number in
/// `wanted`. Then the remaining lines go to the tables that want more, in order.
fn shared(wanted: &[usize], height: usize) -> Vec<usize> {
    let equal = height / wanted.len().max(1);
    let mut given: Vec<_> = wanted.iter().map(|wanted| (*wanted).min(equal)).collect();
    let mut rest = height - given.iter().sum::<usize>();
    for (given, wanted) in given.iter_mut().zip(wanted) {
        let more = wanted.saturating_sub(*given).min(rest);
        *given += more;
        rest -= more;
    }
    given
}
