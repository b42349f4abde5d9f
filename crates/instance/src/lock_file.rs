//! A lock that one process at a time can have, in the form of a locked file.
//!
//! The kernel releases the lock when the process ends, however it ends. A file that is left over has no effect.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use thiserror::Error;

/// The number of attempts to open and lock the file, if another process removes it each time between the two.
const TRIES: usize = 100;

/// Why a lock cannot be taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process has the lock. Contains the ID of that process, if the lock file contains it.
    #[error("{} has it", .0.map_or_else(|| "another process".to_owned(), |process| format!("process {process}")))]
    Taken(Option<u32>),
    /// The file cannot be locked.
    #[error("{}: {error}", .path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// A lock of this process. It is released when this value is dropped.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    /// The file is locked as long as it is open.
    _file: File,
}

impl LockFile {
    /// Takes the lock for the file at `path`. The locked file is `path.lock`, because the file itself may be replaced.
    ///
    /// # Errors
    /// Returns an error if another process has the lock, or if the lock file cannot be opened and locked.
    pub fn of(path: &Path) -> Result<Self, LockError> {
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        Self::take(Path::new(&lock_path))
    }

    /// Creates and locks the file at `path`. The file is removed when the lock is released.
    fn take(path: &Path) -> Result<Self, LockError> {
        let failed = |error| LockError::Lock { path: path.to_owned(), error };
        for _ in 0..TRIES {
            // NOFOLLOW: another user who can write in the folder must not direct the lock to another file by a link.
            // NONBLOCK: opening a pipe must not wait.
            let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
            let mut file = options.open(path).map_err(failed)?;
            let opened = file.metadata().map_err(failed)?;
            if !opened.is_file() {
                return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a regular file")));
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(LockError::Taken(holder(&mut file))),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The previous holder may have removed the file after it was opened here. A lock on the removed file does
            // not keep other processes out.
            if path.symlink_metadata().is_ok_and(|now| (now.dev(), now.ino()) == (opened.dev(), opened.ino())) {
                // The process ID is for error messages of other processes. The lock is valid without it.
                let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                return Ok(Self { path: path.to_owned(), _file: file });
            }
        }
        Err(failed(io::Error::other("other processes repeatedly removed the file: try again")))
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The file is still locked here, so that it cannot belong to another process.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the process ID in the lock file; `None` if the file has none yet.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_holder_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let (path, lock) = (folder.path().join("state"), folder.path().join("state.lock"));
        // The file of a killed process has no effect, whatever it contains.
        fs::write(&lock, "4294967295 and more").expect("a writable folder");
        let held = LockFile::of(&path).expect("the lock is free");
        assert_eq!(fs::read_to_string(&lock).expect("the file exists"), format!("{}\n", std::process::id()));
        let error = LockFile::of(&path).expect_err("the lock is taken").to_string();
        assert_eq!(error, format!("process {} has it", std::process::id()));
        fs::write(&lock, "no number").expect("a writable folder");
        assert_eq!(LockFile::of(&path).expect_err("the lock is taken").to_string(), "another process has it");
        drop(held);
        assert!(!lock.exists());
        drop(LockFile::of(&path).expect("the lock is free"));
    }

    /// Regression: a waiting process got the lock of a file that its holder then removed. The next process locked a new
    /// file.
    #[test]
    fn one_of_several_threads_has_the_lock_at_a_time() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let (path, inside, had) = (folder.path().join("state"), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        match LockFile::of(&path) {
                            Ok(held) => {
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                                had.fetch_add(1, Ordering::SeqCst);
                                inside.fetch_sub(1, Ordering::SeqCst);
                                drop(held);
                            }
                            Err(LockError::Taken(_)) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        assert!(had.into_inner() >= 1);
    }

    #[test]
    fn links_and_missing_folders_are_errors() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let (path, precious) = (folder.path().join("state"), folder.path().join("precious"));
        std::os::unix::fs::symlink(&precious, folder.path().join("state.lock")).expect("a link");
        assert!(matches!(LockFile::of(&path), Err(LockError::Lock { .. })));
        assert!(!precious.exists(), "links are not followed");
        assert!(matches!(LockFile::of(&folder.path().join("not/there")), Err(LockError::Lock { .. })));
    }
}
