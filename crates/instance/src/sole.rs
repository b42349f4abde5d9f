//! One process at a time: a file that is locked by whoever has a thing, for as long as it has it.
//!
//! The lock is the kernel's, so that it ends with the process whatever ends that; a file that is left says nothing.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use thiserror::Error;

/// How often a file may be taken away between its opening and its locking.
const TRIES: usize = 100;

/// Why a thing cannot be had.
#[derive(Debug, Error)]
pub enum SoleError {
    /// Another process has it.
    #[error("{} has it", .0.map_or_else(|| "another process".to_owned(), |process| format!("process {process}")))]
    Taken(Option<u32>),
    /// There can be no lock.
    #[error("{}: {error}", .path.display())]
    Lock {
        /// The file that was to be locked.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// What this process alone has, until this is dropped.
#[derive(Debug)]
pub struct Sole {
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Sole {
    /// Has the file at `path`, by a lock on `path.lock` beside it: the file itself may be replaced by another.
    ///
    /// # Errors
    /// [`SoleError`].
    pub fn of(path: &Path) -> Result<Self, SoleError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        Self::take(Path::new(&beside))
    }

    /// Locks the file at `path`, which is made and is taken away again.
    fn take(path: &Path) -> Result<Self, SoleError> {
        let failed = |error| SoleError::Lock { path: path.to_owned(), error };
        for _ in 0..TRIES {
            // Who may write in the folder must not make another file of it; a pipe is opened without a wait.
            let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
            let mut file = options.open(path).map_err(failed)?;
            let told = file.metadata().map_err(failed)?;
            if !told.is_file() {
                return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, "it is no regular file")));
            }
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(SoleError::Taken(holder(&mut file))),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // Whoever had it before may have taken the file away: a lock on that one keeps nobody out.
            if path.symlink_metadata().is_ok_and(|now| (now.dev(), now.ino()) == (told.dev(), told.ino())) {
                // For the message of those who come too late; the lock is there without it.
                let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                return Ok(Self { path: path.to_owned(), _file: file });
            }
        }
        Err(failed(io::Error::other("it is taken away again and again")))
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        // While it is still locked: it is this one's own.
        let _ = fs::remove_file(&self.path);
    }
}

/// The process that says it has locked the file.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(20).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_one_holders_until_it_is_dropped() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let (path, lock) = (folder.path().join("state"), folder.path().join("state.lock"));
        // What a process that was killed has left keeps nobody out, whatever it says.
        fs::write(&lock, "4294967295 and more").expect("a writable folder");
        let held = Sole::of(&path).expect("nobody has it");
        assert_eq!(fs::read_to_string(&lock).expect("it is there"), format!("{}\n", std::process::id()));
        let told = Sole::of(&path).expect_err("it is had").to_string();
        assert_eq!(told, format!("process {} has it", std::process::id()));
        fs::write(&lock, "nobody").expect("a writable folder");
        assert_eq!(Sole::of(&path).expect_err("it is had").to_string(), "another process has it");
        drop(held);
        assert!(!lock.exists());
        drop(Sole::of(&path).expect("nobody has it"));
    }

    /// One that waited for the lock got that of a file which its holder then took away, and the next a new one.
    #[test]
    fn of_many_who_come_and_go_one_has_it_at_a_time() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let (path, inside, had) = (folder.path().join("state"), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        match Sole::of(&path) {
                            Ok(held) => {
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                                had.fetch_add(1, Ordering::SeqCst);
                                inside.fetch_sub(1, Ordering::SeqCst);
                                drop(held);
                            }
                            Err(SoleError::Taken(_)) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        });
        assert!(had.into_inner() >= 1);
    }

    #[test]
    fn what_is_no_file_is_not_locked() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let (path, precious) = (folder.path().join("state"), folder.path().join("precious"));
        std::os::unix::fs::symlink(&precious, folder.path().join("state.lock")).expect("a link");
        assert!(matches!(Sole::of(&path), Err(SoleError::Lock { .. })));
        assert!(!precious.exists(), "links are not followed");
        assert!(matches!(Sole::of(&folder.path().join("not/there")), Err(SoleError::Lock { .. })));
    }
}
