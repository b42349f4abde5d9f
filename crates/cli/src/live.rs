//! The live table on a terminal: modules, flows and totals, renewed every interval.

mod draw;

use std::io::{self, IsTerminal};
use std::time::Duration;

use forebay_graph::report::Report;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

/// What is shown of a run.
pub(crate) struct Live {
    terminal: DefaultTerminal,
    view: View,
}

/// What was told last and how the user wants to see it.
#[derive(Default)]
struct View {
    recent: Option<Report>,
    whole: Option<Report>,
    /// Modules in the order of their load; else as packets pass them.
    by_load: bool,
    /// The first row that is shown, of modules and of flows alike.
    scroll: usize,
    /// What `q` does, in a word: the run ends, or its watcher leaves.
    quit: &'static str,
}

impl Live {
    /// Takes the terminal, and says that `q` means `quit`; it is given back when this is dropped, or on a panic.
    pub(crate) fn start(quit: &'static str) -> io::Result<Self> {
        let mut live = Self { terminal: ratatui::try_init()?, view: View { by_load: true, quit, ..View::default() } };
        live.draw()?;
        Ok(live)
    }

    /// Shows the last interval and the run so far.
    pub(crate) fn show(&mut self, recent: Report, whole: Report) -> io::Result<()> {
        (self.view.recent, self.view.whole) = (Some(recent), Some(whole));
        self.draw()
    }

    fn draw(&mut self) -> io::Result<()> {
        self.terminal.draw(|frame| self.view.draw(frame))?;
        Ok(())
    }

    /// Waits up to `patience` for a key and obeys it; whether the user wants no more of it.
    pub(crate) fn handle_keys(&mut self, patience: Duration) -> io::Result<bool> {
        self.wait(patience)?;
        if !event::poll(Duration::ZERO)? {
            return Ok(false);
        }
        let quit = match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => {
                let page = usize::from(self.terminal.size()?.height / 3);
                let control = key.modifiers.contains(KeyModifiers::CONTROL);
                self.view.obey(key.code, control, page)
            }
            _ => false,
        };
        self.draw()?;
        Ok(quit)
    }
}

impl Live {
    /// Lets go of a terminal that is gone: nothing can be given back to it, and trying would say so on a standard error
    /// that is mostly gone with it, which ends the process.
    pub(crate) fn abandon(self) {
        std::mem::forget(self);
    }

    /// Waits up to `patience` for a key.
    ///
    /// # Errors
    /// The terminal has hung up: reading it gives nothing for ever, and crossterm would go on reading.
    fn wait(&self, patience: Duration) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let keyboard = io::stdin();
        if !keyboard.is_terminal() {
            std::thread::sleep(patience);
            return if io::stdout().is_terminal() { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) };
        }
        let mut keyboard = [PollFd::new(&keyboard, PollFlags::IN)];
        let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
        // A signal that interrupts the wait has done no more than that.
        let _ = poll(&mut keyboard, Some(&patience));
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if keyboard[0].revents().intersects(gone) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl View {
    /// Obeys a key; whether it means the end.
    fn obey(&mut self, key: KeyCode, control: bool, page: usize) -> bool {
        let rows = self.recent.as_ref().map_or(0, |report| report.modules.len().max(report.flows.len()));
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if control => return true,
            KeyCode::Char('s') => self.by_load = !self.by_load,
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll += page,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(page),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = rows,
            _ => {}
        }
        self.scroll = self.scroll.min(rows.saturating_sub(1));
        false
    }
}

#[cfg(test)]
pub(crate) mod tests;
