//! What a command leaves for its time only: its temporary files, and the processes that it starts. A signal ends it with all
//! of them.

use anyhow::Context;
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tempfile::TempDir;

/// A folder that all temporary files of this process go to; with it they are gone, also where a signal ends the process.
pub(crate) fn folder() -> anyhow::Result<TempDir> {
    let parent = std::env::temp_dir();
    let told = || format!("{}: a temporary folder is needed there (TMPDIR names another place)", parent.display());
    let folder = tempfile::Builder::new().prefix("forebay-").tempdir().with_context(told)?;
    let path = folder.path().to_owned();
    // Once a process; whoever asked first keeps it.
    if tempfile::env::override_temp_dir(&path).is_ok() {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let _ = std::fs::remove_dir_all(&path);
                let _ = emulate_default_handler(signal);
            }
        })?;
    }
    Ok(folder)
}

/// Ends this process when the one that started it ends.
pub(crate) fn follow_parent() -> anyhow::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
}
