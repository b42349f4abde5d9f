//! The live view on a terminal: totals, objectives and tables, updated every interval.

mod draw;
mod happened;
mod head;
mod help;
mod panes;
mod sheet;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use forebay_protocol::report::Report;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use view::{Page, View};

/// The live view of a run.
pub(crate) struct Live {
    terminal: DefaultTerminal,
    view: View,
}

/// Number of recent events that the view needs.
pub(crate) const EVENTS: usize = 2 * happened::ON_PAGE;

/// The effect of the key `q`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Quit {
    /// Ends the run, after a second `q`.
    #[default]
    EndRun,
    /// Leaves the view; the run continues.
    Leave,
}

/// Returns true if this process may draw on its terminal and read its keys. This is so if the process is in the
/// terminal's foreground, or if there is no job control. The system stops a background process that draws or reads
/// (`termios(3)`), and a stopped process forwards no packets.
pub(crate) fn is_in_foreground() -> bool {
    let foreground = |group| group == rustix::process::getpgrp();
    rustix::termios::tcgetpgrp(io::stdout()).map_or(true, foreground)
}

impl Live {
    /// Takes over the terminal. It is released on a panic, or when this value is dropped while the process is in the
    /// terminal's foreground.
    ///
    /// # Errors
    /// Drawing failed, or the process is in the background.
    pub(crate) fn start(quit: Quit) -> io::Result<Self> {
        if !is_in_foreground() {
            return Err(io::Error::other("the process is in the background"));
        }
        let mut live = Self { terminal: ratatui::try_init()?, view: View { quit, ..View::default() } };
        live.draw()?;
        Ok(live)
    }

    /// Shows the report of the last interval (`recent`), the report of the run so far (`whole`), and the last events.
    pub(crate) fn show(
        &mut self,
        recent: Report,
        whole: Report,
        events: Vec<forebay_protocol::event::Event>,
    ) -> io::Result<()> {
        (self.view.recent, self.view.whole, self.view.events) = (Some(recent), Some(whole), events);
        self.view.today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
        self.draw()
    }

    fn draw(&mut self) -> io::Result<()> {
        self.terminal.draw(|frame| self.view.draw(frame))?;
        Ok(())
    }

    /// Waits up to `patience`, less than a second, for a key and handles it. Returns true if the user wants to quit.
    ///
    /// # Errors
    /// The terminal has gone away, or the process is in the background. The caller must then [abandon](Self::abandon)
    /// this value.
    pub(crate) fn handle_keys(&mut self, patience: Duration) -> io::Result<bool> {
        self.wait(patience)?;
        if !event::poll(Duration::ZERO)? {
            return Ok(false);
        }
        let mut quit = false;
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            if control && key.code == KeyCode::Char('z') {
                self.suspend()?;
            } else {
                let page = usize::from(self.terminal.size()?.height / 3);
                quit = self.view.handle_key(key.code, control, page);
            }
        }
        self.draw()?;
        Ok(quit)
    }

    /// Releases the terminal and stops this process group (which may include `make`, for example), as Ctrl-Z does
    /// without the live view. Returns when the process continues.
    ///
    /// # Errors
    /// The process was continued in the background.
    fn suspend(&mut self) -> io::Result<()> {
        ratatui::restore();
        rustix::process::kill_current_process_group(rustix::process::Signal::TSTP)?;
        if !is_in_foreground() {
            return Err(io::Error::other("the process is in the background"));
        }
        self.terminal = ratatui::try_init()?;
        Ok(())
    }
}

impl Live {
    /// Drops this value without restoring the terminal. If the terminal has gone away, restoring it would fail, and the
    /// error message on a closed standard error would end the process. If the process is in the background, the system
    /// would stop it.
    pub(crate) fn abandon(self) {
        std::mem::forget(self);
    }

    /// Waits up to `patience` for a key. `patience` must be less than a second.
    ///
    /// # Errors
    /// The terminal has hung up (crossterm would then read from it forever), or the process is in the background.
    fn wait(&self, patience: Duration) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        if !is_in_foreground() {
            return Err(io::Error::other("the process is in the background"));
        }
        let keyboard = io::stdin();
        if !keyboard.is_terminal() {
            std::thread::sleep(patience);
            return if io::stdout().is_terminal() { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) };
        }
        let mut keyboard = [PollFd::new(&keyboard, PollFlags::IN)];
        let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
        // An interrupting signal only shortens the wait.
        let _ = poll(&mut keyboard, Some(&patience));
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if keyboard[0].revents().intersects(gone) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if is_in_foreground() {
            ratatui::restore();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
