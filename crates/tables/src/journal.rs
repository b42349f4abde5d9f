//! Records on their way to a file: workers put them into rings, and a separate thread formats and writes them as lines.
//!
//! A worker makes no system call and does not wait. The exception is a worker whose line writer may wait
//! ([`LineWriter::waiting`]). A record that finds the ring full is lost and counted. A line that the disk does not
//! accept is counted, too. The thread polls the rings, so no worker has to wake it.

mod line_writer;
mod pages;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_graph::files::{LogFile, check_writable};
use forebay_measure::{Clock, Counter, Tsc};
use forebay_units::Frequency;
use rtrb::{Consumer, RingBuffer};

pub use line_writer::{COUNTERS, LineWriter};
use pages::{Out, Page};

/// A record of an event, as a worker makes it. It becomes a line.
pub trait Record: Copy + Send + 'static {
    /// Data that formatting needs in addition to the record, for example the rules to which its numbers refer.
    type With: Send + Sync + 'static;
    /// The capacity of a worker's ring, in records.
    const RING: usize;
    /// The state that results from the records so far, if a new file must begin with this state. Otherwise `()`.
    type Memory: Memory<Self>;

    /// Returns the time of the event, in nanoseconds after 1970.
    fn nanos(&self) -> u64;

    /// Returns the line without a line break. `owner` is the name with which the file was opened
    /// ([`JournalSlot::take`]). If the result is `None`, no line is written.
    fn line(&self, owner: &str, with: &Self::With) -> Option<String>;
}

/// The state that results from records.
pub trait Memory<R>: Default {
    /// Adds a record to the state.
    fn note(&mut self, record: &R);

    /// Returns records that lead to the present state. A new file begins with them, so that it can be read without the
    /// files before it.
    fn restate(&self) -> Vec<R>;
}

/// For records that do not depend on each other, such as alerts.
impl<R> Memory<R> for () {
    fn note(&mut self, _: &R) {}

    fn restate(&self) -> Vec<R> {
        Vec::new()
    }
}

/// The interval at which the thread polls the rings.
const PERIOD: Duration = Duration::from_millis(20);
/// The size of a write, and the largest size of the lines that wait for room on the disk, in bytes.
const CHUNK: usize = 1 << 16;

/// Formats a time of nanoseconds after 1970 as RFC 3339 does.
pub fn time(nanos: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(nanos.into()).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.9}")
}

/// Checks whether a file can be written, without creating it.
///
/// # Errors
/// The error that [`take`](JournalSlot::take) would return.
pub fn check(path: &Path) -> Result<(), String> {
    // Opening a pipe would wait for its reader.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(cannot(path, &"allowed are regular files"));
    }
    check_writable(path).map_err(|error| cannot(path, &error))
}

/// Returns the message of the error that a file cannot be written.
fn cannot(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("cannot write {}: {why}", path.display())
}

/// Gives all users of a file the same journal. After a reload, the new module or state with the same name continues
/// with this journal. The slot does not keep the journal alive: the file is closed when the last user drops the
/// journal.
pub struct JournalSlot<R: Record>(Mutex<Weak<Journal<R>>>);

impl<R: Record> Default for JournalSlot<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R: Record> JournalSlot<R> {
    /// Returns the journal of the file. Opens the file if it is not open yet; otherwise the arguments are not used.
    /// `owner` is the name of the module or the state whose records the file has. It may appear in the lines.
    /// `frequency` is the frequency of the workers' clock.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn take(&self, path: &Path, owner: &str, frequency: Frequency) -> Result<Arc<Journal<R>>, String> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(journal) = slot.upgrade() {
            return Ok(journal);
        }
        let journal = Arc::new(Journal::open(path, owner, frequency)?);
        *slot = Arc::downgrade(&journal);
        Ok(journal)
    }
}

/// A file of lines, for all workers of its owner.
pub struct Journal<R: Record> {
    shared: Arc<Shared<R>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The part of a journal that its thread and its line writers use, too.
struct Shared<R: Record> {
    state: Mutex<State<R>>,
    /// Notified when a caller waits in `flush`, when the journal ends, and when all records are written.
    changed: Condvar,
    path: PathBuf,
    owner: String,
    /// The frequency of the workers' clock.
    frequency: Frequency,
    /// Time of tick 0 in nanoseconds after 1970, as last measured by the thread. With it, workers need no system call
    /// for the time.
    origin: AtomicU64,
}

/// A worker's ring, and the data for formatting its records.
struct Ring<R: Record> {
    records: Consumer<R>,
    with: Arc<R::With>,
    /// The counters ([`COUNTERS`]). The thread counts `UNWRITTEN`, the worker the others.
    counts: Arc<[Counter]>,
}

/// The state of a journal under its lock. Workers take the lock only to flush and to add a ring.
struct State<R: Record> {
    rings: Vec<Ring<R>>,
    /// The number of requested flushes.
    requested: u64,
    /// The number of completed flushes.
    completed: u64,
    /// True when the journal is being dropped. The thread then writes the remaining records and ends.
    ended: bool,
    /// The first error of a write. It is kept until the journal ends, because lines are missing from then on.
    fault: Option<String>,
    /// The error of the last attempt to open the file again, if this attempt failed. No line is missing.
    not_reopened: Option<String>,
}

impl<R: Record> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures the offset between the workers' clock and the system's clock, and stores it in `origin`.
    fn set_clock(&self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let ticks = self.frequency.nanos(Tsc.now()).0;
        self.origin.store(since.wrapping_sub(ticks), Ordering::Relaxed);
    }
}

impl<R: Record> Journal<R> {
    /// Opens a file. New lines are appended.
    ///
    /// # Errors
    /// The file cannot be written.
    fn open(path: &Path, owner: &str, frequency: Frequency) -> Result<Self, String> {
        check(path)?;
        let wrong = |error: std::io::Error| cannot(path, &error);
        let file = LogFile::open(path, 0o666).map_err(wrong)?;
        Self::start(file, path, owner, frequency).map_err(wrong)
    }

    /// Starts a journal that writes to an open output.
    fn start(out: impl Out + Send + 'static, path: &Path, owner: &str, frequency: Frequency) -> std::io::Result<Self> {
        let state =
            State { rings: Vec::new(), requested: 0, completed: 0, ended: false, fault: None, not_reopened: None };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            path: path.to_owned(),
            owner: owner.to_owned(),
            frequency,
            origin: AtomicU64::new(0),
        });
        shared.set_clock();
        let thread = std::thread::Builder::new().name("journal".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || write_all(&shared, out)
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Returns a worker's line writer for this file, with a new ring. `counts` are the counters ([`COUNTERS`]). `rate`
    /// is the largest number of records per second, or `None` for no limit. `simulated` is true if the worker runs in
    /// simulated time.
    pub fn line_writer(
        self: &Arc<Self>,
        with: Arc<R::With>,
        counts: Arc<[Counter]>,
        rate: Option<u32>,
        simulated: bool,
    ) -> LineWriter<R> {
        let (sender, records) = RingBuffer::new(R::RING);
        let mut state = self.shared.lock();
        // The ring of a worker that has ended is removed if the ring is empty.
        state.rings.retain(|Ring { records, .. }| !records.is_abandoned() || !records.is_empty());
        state.rings.push(Ring { records, with, counts: Arc::clone(&counts) });
        LineWriter::new(sender, Arc::clone(self), counts, rate, simulated)
    }

    /// Waits until all records that are in the rings now are written.
    ///
    /// # Errors
    /// The file could not be written, now or earlier. Or the last attempt to open the file again failed, or the
    /// journal's thread has ended.
    pub fn flush(&self) -> Result<(), String> {
        let mut state = self.shared.lock();
        state.requested += 1;
        let requested = state.requested;
        self.shared.changed.notify_all();
        while state.completed < requested {
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            if thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(format!("{} is not complete: the writing thread has ended", self.shared.path.display()));
            }
            drop(thread);
            state = self.shared.changed.wait_timeout(state, PERIOD).unwrap_or_else(PoisonError::into_inner).0;
        }
        let path = self.shared.path.display();
        let not_reopened = state.not_reopened.as_ref().map(|error| format!("{path} was not opened again: {error}"));
        state.fault.clone().or(not_reopened).map_or(Ok(()), Err)
    }
}

impl<R: Record> Drop for Journal<R> {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // `flush` has reported the thread's errors.
            let _ = thread.join();
        }
    }
}

/// A record that was taken out of its ring, with its formatting data and counters.
type Taken<R> = (R, Arc<<R as Record>::With>, Arc<[Counter]>);

/// Runs the journal's thread: writes the records of all rings to `out` until the journal ends.
fn write_all<R: Record>(shared: &Shared<R>, out: impl Out) {
    let mut page = Page::new(out);
    let mut taken: Vec<Taken<R>> = Vec::with_capacity(R::RING);
    loop {
        shared.set_clock();
        let mut state = shared.lock();
        let (requested, ended) = (state.requested, state.ended);
        taken.clear();
        take(&mut state, &mut taken);
        drop(state);
        let result = page.write(&mut taken, ended, shared);
        let mut state = shared.lock();
        if let Err(error) = result {
            // Records are still taken from the rings after an error, so that no worker waits for room.
            state.fault.get_or_insert_with(|| {
                format!("cannot write {}, which is not complete: {error}", shared.path.display())
            });
        }
        state.not_reopened = page.not_reopened().map(str::to_owned);
        if state.completed < requested {
            state.completed = requested;
            shared.changed.notify_all();
        }
        if ended {
            return;
        }
        // If as many records as a ring holds were taken, there are probably more by now. Then do not wait.
        if state.requested == requested && !state.ended && taken.len() < R::RING {
            let _ = shared.changed.wait_timeout(state, PERIOD);
        }
    }
}

/// Appends the records that are in the rings now to `taken`. Later records remain in the rings, so that a worker that
/// keeps writing does not delay the thread.
fn take<R: Record>(state: &mut State<R>, taken: &mut Vec<Taken<R>>) {
    for Ring { records, with, counts } in &mut state.rings {
        for _ in 0..records.slots() {
            let Ok(record) = records.pop() else { break };
            taken.push((record, Arc::clone(with), Arc::clone(counts)));
        }
    }
}

#[cfg(test)]
mod tests;
