//! What a command leaves for its time only: its temporary files, and the processes that it starts. A signal ends it with all
//! of them.

use std::io::ErrorKind;
use std::path::Path;

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
    let ignored = ignored();
    // Who started this with `nohup`, or in the background of a script, has said that a signal is not to end it. The others wait
    // from here on, before there is anything to remove.
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP].iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0))?;
    let folder = tempfile::Builder::new().prefix("forebay-").tempdir().with_context(told)?;
    let path = folder.path().to_owned();
    // Once a process; whoever asked first keeps it.
    if tempfile::env::override_temp_dir(&path).is_ok() {
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                remove(&path);
                let _ = emulate_default_handler(signal);
            }
        })?;
    }
    Ok(folder)
}

/// Removes a folder that others may still be writing new files to.
fn remove(folder: &Path) {
    // Under another name nobody finds it to put more into it, however fast they are. A file that is being made just then may
    // still arrive between the look and the removal.
    let away = folder.with_extension("gone");
    let folder = if std::fs::rename(folder, &away).is_ok() { away.as_path() } else { folder };
    for _ in 0..100 {
        if !std::fs::remove_dir_all(folder).is_err_and(|error| error.kind() == ErrorKind::DirectoryNotEmpty) {
            return;
        }
    }
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

#[cfg(test)]
mod tests {
    use super::remove;

    #[test]
    fn a_folder_goes_while_others_write_to_it() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().to_owned();
            let writer = std::thread::spawn({
                let path = path.clone();
                move || (0..).take_while(|name| std::fs::write(path.join(name.to_string()), "").is_ok()).count()
            });
            while std::fs::read_dir(&path).is_ok_and(|entries| entries.count() < 50) {}
            remove(&path);
            assert!(!path.exists() && !path.with_extension("gone").exists());
            assert!(writer.join().expect("it ends") >= 50);
        }
    }
}
