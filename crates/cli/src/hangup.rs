//! Signals during a run: SIGHUP reloads the configuration and reopens logs, SIGUSR1 reopens logs, and SIGUSR2 has no
//! effect.
//!
//! A closed terminal also sends SIGHUP. Therefore a run with a controlling terminal does not reload: it continues
//! without the terminal. A run without a terminal, which a service manager started, reloads (`daemon(7)`).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_graph::files::reopen_logs;
use forebay_instance::events::{EventLog, NewEvent};
use forebay_protocol::event::EventName;
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

/// Reloads the configuration and records the result. Returns an error if the configuration cannot be read again.
pub(crate) type Reload = Box<dyn Fn() -> Result<(), String> + Send>;

/// The signals that have been caught. They take effect when the run [follows](Self::follow) them.
pub(crate) struct Caught {
    signals: Signals,
    /// Whether the process had a controlling terminal at the start.
    has_terminal: bool,
    /// Set when the terminal has gone away.
    lost: Arc<AtomicBool>,
}

/// The thread that handles signals. It stops when this value is dropped.
pub(crate) struct Followed {
    handle: Handle,
    /// Set when the terminal has gone away.
    lost: Arc<AtomicBool>,
}

impl Caught {
    /// Catches signals from now on, even if SIGHUP was ignored (`nohup`), because a run without a terminal receives
    /// SIGHUP only from a user or a service manager.
    ///
    /// # Errors
    /// The errors of installing signal handlers.
    pub(crate) fn new() -> io::Result<Self> {
        // Test now: once the terminal is lost, it cannot be found.
        let has_terminal = File::open("/dev/tty").is_ok();
        Ok(Self { signals: Signals::new([SIGHUP, SIGUSR1, SIGUSR2])?, has_terminal, lost: Arc::default() })
    }

    /// Handles signals on a thread from now on, and records an event for each.
    ///
    /// # Errors
    /// The errors of starting a thread.
    pub(crate) fn follow(self, log: &Arc<EventLog>, reload: Reload) -> io::Result<Followed> {
        let Self { mut signals, has_terminal, lost } = self;
        let (handle, log, is_lost) = (signals.handle(), Arc::clone(log), Arc::clone(&lost));
        let follow = move || {
            for signal in &mut signals {
                let (name, signal, message) = match signal {
                    SIGHUP if has_terminal => {
                        is_lost.store(true, Ordering::Relaxed);
                        let message = "SIGHUP: the run continues without its terminal; logs will be reopened; \
                                       `forebay reload` reads the configuration again";
                        (EventName::TerminalLost, "SIGHUP", message)
                    }
                    SIGHUP => {
                        if let Err(why) = reload() {
                            let message = format!("SIGHUP: the running configuration stays: {why}");
                            log.record(NewEvent::new(EventName::ReloadRefused, message).with("by", "SIGHUP"));
                        }
                        (EventName::LogsReopened, "SIGHUP", "SIGHUP: logs will be reopened")
                    }
                    // Service managers and scripts send SIGUSR2 by mistake. Its default action would end the run.
                    SIGUSR2 => continue,
                    _ => (EventName::LogsReopened, "SIGUSR1", "SIGUSR1: logs will be reopened"),
                };
                reopen_logs();
                log.record(NewEvent::new(name, message).with("signal", signal));
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(follow)?;
        Ok(Followed { handle, lost })
    }
}

impl Followed {
    /// Returns true if the terminal has gone away. Then nothing can be shown on it.
    pub(crate) fn is_terminal_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // Does not wait for a reload in progress, because a run that ends refuses the reload.
        self.handle.close();
    }
}
