//! Signals that a run outlives: SIGHUP reads its configuration again and opens its logs again, SIGUSR1 opens its logs
//! again, and SIGUSR2 has no effect.
//!
//! A terminal that goes away sends SIGHUP, too. A run that has a controlling terminal therefore goes on without it and
//! with the configuration that it has; a run without one, which a service manager has started, reloads (`daemon(7)`).

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_graph::files::{reopen_logs, take_reopen_failures};
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use crate::printed;

/// Reads the configuration again: a line about the change, or why the one that runs stays.
pub(crate) type Reload = Box<dyn Fn() -> Result<String, String> + Send>;

/// Reports the logs of the run called `name` that could not be opened again since the last call.
pub(crate) fn report_reopen_failures(name: &str) {
    for (path, why) in take_reopen_failures() {
        let _ = writeln!(
            printed::err(),
            "{name}: {} was not opened again: {why}; lines go to the file that is open, and the run tries again",
            path.display()
        );
    }
}

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

    /// Follows them for the pipeline called `name`, first those that came meanwhile.
    ///
    /// # Errors
    /// As starting a thread.
    pub(crate) fn follow(self, name: &str, reload: Reload) -> io::Result<Followed> {
        let Self { mut signals, has_terminal, lost } = self;
        let (handle, name, is_lost) = (signals.handle(), name.to_owned(), Arc::clone(&lost));
        let follow = move || {
            for signal in &mut signals {
                let message = match signal {
                    SIGHUP if has_terminal => {
                        is_lost.store(true, Ordering::Relaxed);
                        reopen_logs();
                        "SIGHUP: the run goes on without its terminal; logs will be opened again; `forebay reload` \
                         reloads"
                            .to_owned()
                    }
                    SIGHUP => {
                        let reloaded = reload();
                        reopen_logs();
                        match reloaded {
                            Ok(done) => format!("SIGHUP: {done}; logs will be opened again"),
                            Err(why) => {
                                format!("SIGHUP: logs will be opened again; the configuration that runs stays: {why}")
                            }
                        }
                    }
                    // Service managers and scripts send it by mistake: its default action would end the run.
                    SIGUSR2 => continue,
                    _ => {
                        reopen_logs();
                        "SIGUSR1: logs will be opened again".to_owned()
                    }
                };
                // A standard error that is gone with the terminal does not end the run.
                let _ = writeln!(printed::err(), "{name}: {message}");
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
