//! Log files: files to which lines are appended while other programs rotate them by renaming, removing, or copying and
//! truncating.
//!
//! `logrotate(8)` can do each of these. After a rename, the process continues to write to the renamed file until it
//! receives a request to open the name again ([`reopen_logs`]). A truncated file remains the same file. It is open for
//! appending, so the next byte goes to its start.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;

use super::check;

/// The number of requests to this process to reopen its logs. Signals go to the process, not to one of its pipelines.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Requests that every log of this process reopens its file if the name belongs to another file now, or to no file. A
/// log does so at its next [look](LogFile::look).
pub fn reopen_logs() {
    REQUESTS.fetch_add(1, Ordering::Release);
}

/// Failures to reopen a log that have not been reported yet.
static FAILURES: Mutex<Vec<(PathBuf, String)>> = Mutex::new(Vec::new());

/// Takes the failures to reopen a log since the last call: the log's path and the reason. A log that fails tries again
/// until it succeeds, and reports one failure for each request.
pub fn take_reopen_failures() -> Vec<(PathBuf, String)> {
    std::mem::take(&mut *FAILURES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A change of a log's file since the last look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// No change.
    Same,
    /// The file has another name now. From here on lines go to a new file.
    Renamed,
    /// The file has no name any more, so no program can open it to read its lines. From here on lines go to a new file,
    /// if one can be created.
    Removed,
    /// The file is shorter than the data written to it.
    Truncated,
}

/// A file to which lines are appended.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    /// The length of the file, in bytes: after the last write, or at the last look if that was later.
    len: u64,
    /// The number of the last request that this log has completed.
    requested: u64,
    /// The number of the request after which a failure was last recorded. `None` if the last look had no failure.
    failed: Option<u64>,
}

impl LogFile {
    /// Opens the file at `path`, or creates it. `mode` are the permissions of a new file, without the process's umask.
    ///
    /// # Errors
    /// Those of opening, and a file that is not regular.
    pub fn open(path: &Path, mode: u32) -> io::Result<Self> {
        let requested = REQUESTS.load(Ordering::Acquire);
        let (file, metadata) = open(path, mode)?;
        Ok(Self { path: path.to_owned(), file, len: metadata.len(), requested, failed: None })
    }

    /// Returns the path at which the file was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file was empty after the last write or at the last [look](Self::look).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the file has no name any more, so that no program can open it.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    /// Checks whether the file was renamed, removed or truncated, and opens its successor. A rename is noticed only
    /// after a request ([`reopen_logs`]). After an error the present file stays open, and the next call tries again.
    pub fn look(&mut self) -> (Turn, io::Result<()>) {
        let looked = self.turn();
        match &looked.1 {
            Ok(()) => self.failed = None,
            Err(error) => {
                let requested = REQUESTS.load(Ordering::Acquire);
                if self.failed.replace(requested) != Some(requested) {
                    let failure = (self.path.clone(), error.to_string());
                    FAILURES.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
                }
            }
        }
        looked
    }

    /// Does the work of [`look`](Self::look) without recording failures.
    fn turn(&mut self) -> (Turn, io::Result<()>) {
        let metadata = match self.file.metadata() {
            Ok(metadata) => metadata,
            Err(error) => return (Turn::Same, Err(error)),
        };
        if metadata.nlink() == 0 {
            return (Turn::Removed, self.reopen(&metadata));
        }
        let requested = REQUESTS.load(Ordering::Acquire);
        if requested != self.requested {
            let same =
                self.path.metadata().is_ok_and(|named| (named.dev(), named.ino()) == (metadata.dev(), metadata.ino()));
            if !same {
                return match self.reopen(&metadata) {
                    Ok(()) => {
                        self.requested = requested;
                        (Turn::Renamed, Ok(()))
                    }
                    error => (Turn::Same, error),
                };
            }
            self.requested = requested;
        }
        let shorter = metadata.len() < self.len;
        // The file may be longer if another process appends to it.
        self.len = metadata.len();
        (if shorter { Turn::Truncated } else { Turn::Same }, Ok(()))
    }

    /// Opens the file again, with the permissions of the previous one.
    fn reopen(&mut self, before: &Metadata) -> io::Result<()> {
        let (file, metadata) = open(&self.path, before.mode() & 0o777)?;
        (self.file, self.len) = (file, metadata.len());
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a regular file for appending, or creates it.
fn open(path: &Path, mode: u32) -> io::Result<(File, Metadata)> {
    // Without this flag, opening a pipe would wait for a reader of the pipe.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().append(true).create(true).mode(mode).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    check(metadata.file_type())?;
    Ok((file, metadata))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Requests concern the whole process, so the tests run one after the other.
    static ONE: Mutex<()> = Mutex::new(());

    struct Folder(PathBuf, #[expect(dead_code, reason = "held until the test's end")] MutexGuard<'static, ()>);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("forebay-log-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a writable folder for temporary files");
            Self(folder, ONE.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn turn(log: &mut LogFile) -> Turn {
        let (turn, result) = log.look();
        result.expect("a writable folder");
        turn
    }

    #[test]
    fn a_renamed_file_stays_open_until_a_request_to_reopen() {
        let folder = Folder::new("renamed");
        let (path, old) = (folder.0.join("log"), folder.0.join("log.1"));
        let mut log = LogFile::open(&path, 0o640).expect("a writable folder");
        log.write_all(b"1\n").expect("room");
        fs::rename(&path, &old).expect("the same folder");
        assert_eq!(turn(&mut log), Turn::Same);
        log.write_all(b"2\n").expect("room");
        reopen_logs();
        assert_eq!(turn(&mut log), Turn::Renamed);
        log.write_all(b"3\n").expect("room");
        assert_eq!(fs::read(&old).expect("it exists"), b"1\n2\n");
        assert_eq!(fs::read(&path).expect("it exists"), b"3\n");
        assert_eq!(path.metadata().expect("it exists").permissions().mode() & 0o037, 0);
        // On another request, the file that has the name stays open.
        reopen_logs();
        assert_eq!(turn(&mut log), Turn::Same);
    }

    #[test]
    fn a_removed_file_is_found_without_a_request() {
        let folder = Folder::new("removed");
        let path = folder.0.join("log");
        let mut log = LogFile::open(&path, 0o666).expect("a writable folder");
        log.write_all(b"1\n").expect("room");
        fs::remove_file(&path).expect("it exists");
        assert_eq!(turn(&mut log), Turn::Removed);
        log.write_all(b"2\n").expect("room");
        assert_eq!(fs::read(&path).expect("it exists"), b"2\n");
        // If no file can be created, each look reports an error, and the run goes on.
        fs::remove_dir_all(&folder.0).expect("made above");
        for _ in 0..2 {
            let (turn, result) = log.look();
            assert!(turn == Turn::Removed && result.is_err());
            log.write_all(b"3\n").expect("a file without a name");
        }
    }

    #[test]
    fn a_truncated_file_is_written_from_its_start() {
        let folder = Folder::new("truncated");
        let path = folder.0.join("log");
        let mut log = LogFile::open(&path, 0o666).expect("a writable folder");
        log.write_all(b"first\n").expect("room");
        fs::copy(&path, folder.0.join("log.1")).expect("room");
        File::options().write(true).open(&path).and_then(|file| file.set_len(0)).expect("our own file");
        assert_eq!(turn(&mut log), Turn::Truncated);
        assert!(log.is_empty());
        log.write_all(b"2\n").expect("room");
        assert_eq!((turn(&mut log), fs::read(&path).expect("it exists")), (Turn::Same, b"2\n".to_vec()));
    }

    #[test]
    fn a_pipe_of_the_same_name_is_refused_without_waiting() {
        let folder = Folder::new("pipe");
        let path = folder.0.join("log");
        let mut log = LogFile::open(&path, 0o666).expect("a writable folder");
        fs::rename(&path, folder.0.join("log.1")).expect("the same folder");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("the command mkfifo").success());
        reopen_logs();
        let (turn, result) = log.look();
        assert!(turn == Turn::Same && result.is_err());
        log.write_all(b"on\n").expect("the file that is open");
        assert_eq!(fs::read(folder.0.join("log.1")).expect("it exists"), b"on\n");
    }

    /// Once, a failed reopening was not tried again.
    #[test]
    fn a_reopening_that_failed_is_tried_again() {
        let folder = Folder::new("again");
        let path = folder.0.join("log");
        let mut log = LogFile::open(&path, 0o666).expect("a writable folder");
        fs::rename(&path, folder.0.join("log.1")).expect("the same folder");
        fs::create_dir(&path).expect("a writable folder");
        reopen_logs();
        for _ in 0..2 {
            let (turn, result) = log.look();
            assert!(turn == Turn::Same && result.is_err());
        }
        let failures = || take_reopen_failures().into_iter().filter(|(failed, _)| *failed == path).count();
        assert_eq!(failures(), 1, "once for each request");
        fs::remove_dir(&path).expect("it is empty");
        assert_eq!(turn(&mut log), Turn::Renamed);
        log.write_all(b"on\n").expect("room");
        assert_eq!((fs::read(&path).expect("it exists"), failures()), (b"on\n".to_vec(), 0));
        assert_eq!(turn(&mut log), Turn::Same);
    }
}
