//! Files that are renamed, removed or truncated while lines are written. Each line is in one of the files, or counted.

use std::fs::{self, File};
use std::path::PathBuf;

use forebay_graph::files::reopen_logs;
use forebay_units::{Frequency, Ticks};

use super::super::line_writer::{COUNTERS, WRITTEN};
use super::super::{Journal, LineWriter};
use super::*;

/// A number to add. A new file begins with the sum of all numbers before it.
#[derive(Clone, Copy, Debug)]
struct Added(u64);

#[derive(Default)]
struct Sum(u64);

impl Memory<Added> for Sum {
    fn note(&mut self, added: &Added) {
        self.0 += added.0;
    }

    fn restate(&self) -> Vec<Added> {
        vec![Added(self.0)]
    }
}

impl Record for Added {
    type With = ();
    const RING: usize = 64;
    type Memory = Sum;

    fn nanos(&self) -> u64 {
        0
    }

    fn line(&self, _: &str, (): &()) -> Option<String> {
        Some(self.0.to_string())
    }
}

struct Log {
    folder: PathBuf,
    journal: Arc<Journal<Added>>,
    writer: LineWriter<Added>,
    counts: Arc<[Counter]>,
}

impl Log {
    fn new(name: &str) -> Self {
        let folder = new_folder(name);
        let journal = Arc::new(Journal::open(&folder.join("log"), "me", Frequency::new(1e9)).expect("a new file"));
        let counts: Arc<[Counter]> = COUNTERS.iter().map(|_| Counter::new()).collect();
        let writer = journal.line_writer(Arc::new(()), Arc::clone(&counts), None, true);
        Self { folder, journal, writer, counts }
    }

    fn add(&mut self, number: u64) -> Result<(), String> {
        self.writer.write(Ticks(0), |_| Added(number));
        self.journal.flush()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("the file exists")
    }

    fn counted(&self) -> [u64; 2] {
        [WRITTEN, UNWRITTEN].map(|which| self.counts[which].get())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_renamed_log_is_followed_by_a_new_one_with_the_whole_state() {
    let mut log = Log::new("renamed");
    log.add(1).expect("room");
    fs::rename(log.path("log"), log.path("log.1")).expect("the same folder");
    log.add(2).expect("room");
    reopen_logs();
    log.add(4).expect("room");
    reopen_logs();
    log.add(8).expect("room");
    // The first file stays open until a request comes. A request of another test may come earlier.
    let all = format!("{}{}", log.read("log.1"), log.read("log"));
    assert!(["1\n2\n3\n4\n8\n", "1\n1\n2\n4\n8\n"].contains(&all.as_str()), "{all}");
    assert_eq!(log.counted(), [4, 0]);
}

/// Regression: lines went into a removed file that no program could read, and were counted as written.
#[test]
fn lines_of_a_removed_log_are_counted_and_the_next_ones_written() {
    let mut log = Log::new("removed");
    log.add(1).expect("room");
    log.add(2).expect("room");
    fs::remove_file(log.path("log")).expect("the file exists");
    let error = log.add(4).expect_err("lines are gone");
    assert!(error.contains("the file was removed with 2 lines"), "{error}");
    assert_eq!((log.read("log"), log.counted()), ("3\n4\n".to_owned(), [3, 2]));
}

#[test]
fn lines_of_a_log_that_is_removed_at_the_end_are_counted() {
    let mut log = Log::new("end");
    log.add(1).expect("room");
    fs::remove_dir_all(&log.folder).expect("made above");
    // No file can be created there. Lines that go into the removed file are counted as unwritten, too.
    assert!(log.add(2).is_err());
    let counts = Arc::clone(&log.counts);
    drop(log);
    assert_eq!([WRITTEN, UNWRITTEN].map(|which| counts[which].get()), [2, 2]);
}

#[test]
fn a_log_that_is_copied_and_truncated_goes_on_at_its_beginning() {
    let mut log = Log::new("truncated");
    log.add(1).expect("room");
    log.add(2).expect("room");
    fs::copy(log.path("log"), log.path("log.1")).expect("room");
    File::options().write(true).open(log.path("log")).and_then(|file| file.set_len(0)).expect("our own file");
    log.add(4).expect("room");
    assert_eq!((log.read("log.1"), log.read("log")), ("1\n2\n".to_owned(), "3\n4\n".to_owned()));
    assert_eq!(log.counted(), [3, 0]);
}

/// A disk with room for a number of bytes, in several files.
struct Disk {
    files: Vec<String>,
    room: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.room);
        if fits == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.room -= fits;
        let text = std::str::from_utf8(&bytes[..fits]).expect("digits");
        self.files.last_mut().expect("at least one file").push_str(text);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Out for Disk {}

#[test]
fn a_line_that_is_cut_by_a_full_disk_stays_in_the_file_that_has_its_beginning() {
    let counts: Arc<[Counter]> = COUNTERS.iter().map(|_| Counter::new()).collect();
    let mut lines = Lines::new(Disk { files: vec![String::new()], room: 6 });
    for line in ["one\n", "two\n", "six\n"] {
        lines.add(line, Some(&counts)).expect("there is room here");
    }
    assert!(lines.flush().is_err());
    lines.out.files.push(String::new());
    lines.out.room = 100;
    lines.begin_file();
    lines.flush().expect("room");
    assert_eq!(lines.out.files, ["one\ntw", "six\n"]);
    assert_eq!(counts[UNWRITTEN].get(), 1);
}

/// Regression: a run whose log's name had become a pipe never ended, because it waited for a writer of the pipe.
#[test]
fn a_log_whose_name_is_a_pipe_is_checked_without_waiting() {
    let folder = new_folder("pipe");
    let path = folder.join("log");
    let mut log = LogFile::open(&path, 0o666).expect("a writable folder");
    log.write_all(b"cut").expect("room");
    assert!(Out::is_cut(&log));
    fs::remove_file(&path).expect("the file exists");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("the command mkfifo").success());
    assert!(!Out::is_cut(&log));
    fs::remove_dir_all(&folder).expect("made above");
}

fn new_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("forebay-pages-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a writable folder for temporary files");
    folder
}
