//! Signals that a run outlives: SIGHUP reads its configuration again and opens its logs again, SIGUSR1 opens its logs
//! again, and SIGUSR2 has no effect.
//!
//! A terminal that goes away sends SIGHUP, too. A run that has a controlling terminal therefore goes on without it and
//! with the configuration that it has; a run without one, which a service manager has started, reloads (`daemon(7)`).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_graph::files::reopen_logs;
use forebay_instance::events::{EventLog, NewEvent};
use forebay_protocol::event::EventName;
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

/// Reads the configuration again, and records what comes of it; or why it cannot be read again.
pub(crate) type Reload = Box<dyn Fn() -> Result<(), String> + Send>;

/// Signals that have been caught, and wait for a run that can follow them.
pub(crate) struct Caught {
    signals: Signals,
    has_terminal: bool,
    lost: Arc<AtomicBool>,
}

/// Signals that a run follows, until this is dropped.
pub(crate) struct Followed {
    handle: Handle,
    lost: Arc<AtomicBool>,
}

impl Caught {
    /// Catches signals from now on, also where SIGHUP was ignored (`nohup`): a run without a terminal gets it only from
    /// a user or a service manager.
    ///
    /// # Errors
    /// As installing signal handlers.
    pub(crate) fn new() -> io::Result<Self> {
        // Once the terminal is lost there is none to be found.
        let has_terminal = File::open("/dev/tty").is_ok();
        Ok(Self { signals: Signals::new([SIGHUP, SIGUSR1, SIGUSR2])?, has_terminal, lost: Arc::default() })
    }

    /// Follows them, first those that came meanwhile, and records what they did.
    ///
    /// # Errors
    /// As starting a thread.
    pub(crate) fn follow(self, log: &Arc<EventLog>, reload: Reload) -> io::Result<Followed> {
        let Self { mut signals, has_terminal, lost } = self;
        let (handle, log, is_lost) = (signals.handle(), Arc::clone(log), Arc::clone(&lost));
        let follow = move || {
            for signal in &mut signals {
                let (name, signal, message) = match signal {
                    SIGHUP if has_terminal => {
                        is_lost.store(true, Ordering::Relaxed);
                        let message = "SIGHUP: the run goes on without its terminal; logs will be opened again; \
                                       `forebay reload` reloads";
                        (EventName::TerminalLost, "SIGHUP", message)
                    }
                    SIGHUP => {
                        if let Err(why) = reload() {
                            let message = format!("SIGHUP: the configuration that runs stays: {why}");
                            log.record(NewEvent::new(EventName::ReloadRefused, message).with("by", "SIGHUP"));
                        }
                        (EventName::LogsReopened, "SIGHUP", "SIGHUP: logs will be opened again")
                    }
                    // Service managers and scripts send it by mistake: its default action would end the run.
                    SIGUSR2 => continue,
                    _ => (EventName::LogsReopened, "SIGUSR1", "SIGUSR1: logs will be opened again"),
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
    /// Whether the terminal has gone: nothing more is to be shown there.
    pub(crate) fn is_terminal_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // A reload that has begun is refused by a run that ends: nothing waits for it.
        self.handle.close();
    }
}
