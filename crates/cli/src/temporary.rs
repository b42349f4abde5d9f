//! What a command leaves for its time only: its temporary files, and the processes that it starts. A signal ends it with all
//! of them.

use anyhow::Context;
use forebay_lean::process::PARENT;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
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
        let ignored = ignored();
        // Who started this with `nohup`, or in the background of a script, has said that a signal is not to end it.
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP].iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0))?;
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let _ = std::fs::remove_dir_all(&path);
                let _ = emulate_default_handler(signal);
            }
        })?;
    }
    Ok(folder)
}

/// The signals that this process ignores, a bit each from 1 (proc_pid_status(5), `SigIgn`).
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Ends this process when the one that started it for a comparison or a count ends, or has ended.
pub(crate) fn follow_parent() -> anyhow::Result<()> {
    let Some(parent) = std::env::var(PARENT).ok().and_then(|parent| parent.parse().ok()) else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::TERM))?;
    anyhow::ensure!(
        getppid().map(Pid::as_raw_pid) == Some(parent),
        "process {parent} ({PARENT}) is not there any more"
    );
    Ok(())
}
