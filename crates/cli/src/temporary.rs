//! The temporary files and child processes of a command. If a signal ends the command, its temporary files are removed
//! and its child processes end.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use forebay_bench::program::PARENT;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tempfile::TempDir;

/// The folder of all temporary files of this process.
pub(crate) struct Folder {
    /// `None` only while it is dropped.
    folder: Option<TempDir>,
    /// Locked by the thread that removes the folder.
    removal: Arc<Mutex<()>>,
}

impl Folder {
    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        self.folder.as_ref().expect("it is there until it is dropped").path()
    }
}

impl Drop for Folder {
    /// Removes the folder. After a signal, this waits until the other thread has removed it and ended the process: if
    /// this thread went on, the process could end before that.
    fn drop(&mut self) {
        let _removal = self.removal.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.folder.take());
    }
}

/// Creates the folder of all temporary files of this process. The folder is removed when the result is dropped, or if a
/// signal ends the process.
pub(crate) fn folder() -> anyhow::Result<Folder> {
    let parent = std::env::temp_dir();
    let context =
        || format!("{}: cannot create a temporary folder there (TMPDIR sets another parent)", parent.display());
    let ignored = ignored();
    // Signals that are already ignored (`nohup`, background jobs of a script) stay ignored. Handle the others from here
    // on, before there is a file to remove.
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP].iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0))?;
    let folder = tempfile::Builder::new().prefix("forebay-").tempdir().with_context(context)?;
    let path = folder.path().to_owned();
    let removal = Arc::new(Mutex::new(()));
    // The process has one such folder: the first call sets it.
    if tempfile::env::override_temp_dir(&path).is_ok() {
        let removal = Arc::clone(&removal);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let _removal = removal.lock().unwrap_or_else(PoisonError::into_inner);
                remove(&path);
                let _ = emulate_default_handler(signal);
            }
        })?;
    }
    Ok(Folder { folder: Some(folder), removal })
}

/// Removes a folder although other processes may still be creating files in it.
fn remove(folder: &Path) {
    // After the rename, other processes cannot find the folder to create more files. A file that is being created at
    // that moment may still appear after the listing, so try again.
    let away = folder.with_extension("gone");
    let folder = if std::fs::rename(folder, &away).is_ok() { away.as_path() } else { folder };
    for _ in 0..100 {
        if !std::fs::remove_dir_all(folder).is_err_and(|error| error.kind() == ErrorKind::DirectoryNotEmpty) {
            return;
        }
    }
}

/// Returns the ignored signals of this process as a bit mask that begins with signal 1 (proc_pid_status(5), `SigIgn`).
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Makes this process end when its parent ends, if the parent is a `forebay` process that has started it for a
/// comparison or a count. Otherwise does nothing.
pub(crate) fn follow_parent() -> anyhow::Result<()> {
    let Some(parent) = std::env::var(PARENT).ok().and_then(|parent| parent.parse().ok()) else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::TERM))?;
    anyhow::ensure!(getppid().map(Pid::as_raw_pid) == Some(parent), "process {parent} ({PARENT}) has ended");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::remove;

    #[test]
    fn a_folder_is_removed_while_others_write_to_it() {
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
