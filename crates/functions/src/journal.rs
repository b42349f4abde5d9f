//! Records on their way to a file: put into a ring by workers, made into lines and written by a thread of its own.
//!
//! A worker makes no system call and does not wait, unless its pen may wait ([`Pen::waiting`]). A record that finds the
//! ring full is lost and counted. So is a line that the disk does not take. The thread looks
//! into the rings every so often, so that no worker wakes it.

mod pages;
mod pen;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_graph::files::{LogFile, check_writable};
use forebay_measure::{Clock, Counter, Tsc};
use forebay_units::Frequency;
use rtrb::{Consumer, RingBuffer};

use pages::{Out, Page};
pub(crate) use pen::{COUNTERS, Pen};

/// What a worker knows of something that becomes a line.
pub(crate) trait Record: Copy + Send + 'static {
    /// What lines are made with beside the record: the rules that numbers in it are of, say.
    type With: Send + Sync + 'static;
    /// Records that wait for the thread at most, of one worker.
    const RING: usize;
    /// The state that the records so far lead to, where a new file must begin with it.
    type Memory: Memory<Self>;

    /// Nanoseconds after 1970.
    fn nanos(&self) -> u64;

    /// The line, of a file that belongs to `owner`.
    fn line(&self, owner: &str, with: &Self::With) -> Option<String>;
}

/// The state that records lead to.
pub(crate) trait Memory<R>: Default {
    /// One more record has come.
    fn note(&mut self, record: &R);

    /// The records that a file begins with, so that it says by itself what those before it have come to.
    fn restate(&self) -> Vec<R>;
}

/// Of records each of which stands for itself, such as alerts.
impl<R> Memory<R> for () {
    fn note(&mut self, _: &R) {}

    fn restate(&self) -> Vec<R> {
        Vec::new()
    }
}

/// How often the thread looks for more.
const PERIOD: Duration = Duration::from_millis(20);
/// What is written at once, and waits for room on the disk at most, in bytes.
const CHUNK: usize = 1 << 16;

/// A time as lines have it (RFC 3339), of nanoseconds after 1970.
pub(crate) fn time(nanos: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(nanos.into()).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.9}")
}

/// Looks at a file for lines without making it.
///
/// # Errors
/// What [taking](Slot::take) it would say.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    // A pipe would wait for its reader.
    if path.metadata().is_ok_and(|told| !told.is_file()) {
        return Err(cannot(path, &"allowed are regular files"));
    }
    check_writable(path).map_err(|error| cannot(path, &error))
}

fn cannot(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("cannot write {}: {why}", path.display())
}

/// The journal of a file. The next owner of the same name, in a configuration that has changed, goes on with it.
pub(crate) struct Slot<R: Record>(Mutex<Weak<Journal<R>>>);

impl<R: Record> Default for Slot<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R: Record> Slot<R> {
    /// The journal of the file, open already or not.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn take(&self, path: &Path, owner: &str, frequency: Frequency) -> Result<Arc<Journal<R>>, String> {
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
pub(crate) struct Journal<R: Record> {
    shared: Arc<Shared<R>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared<R: Record> {
    state: Mutex<State<R>>,
    /// Told when somebody waits for all to be written, or there will be no more; and when all is.
    told: Condvar,
    path: PathBuf,
    owner: String,
    frequency: Frequency,
    /// Nanoseconds after 1970 at tick 0, as the thread saw last: workers ask no clock of the system.
    origin: AtomicU64,
}

/// A worker's records, and what lines are made of them with.
struct Ring<R: Record> {
    records: Consumer<R>,
    with: Arc<R::With>,
    /// What is counted ([`COUNTERS`]), of which [`UNWRITTEN`] is the thread's.
    counts: Arc<[Counter]>,
}

struct State<R: Record> {
    rings: Vec<Ring<R>>,
    /// How often somebody asked for all to be written, and how often it was.
    asked: u64,
    done: u64,
    ended: bool,
    /// What went wrong.
    fault: Option<String>,
    /// Why the file could not be opened again, while that is so: no line is missing.
    not_reopened: Option<String>,
}

impl<R: Record> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how the workers' clock and the system's stand to each other.
    fn set_clock(&self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let ticks = self.frequency.nanos(Tsc.now()).0;
        self.origin.store(since.wrapping_sub(ticks), Ordering::Relaxed);
    }
}

impl<R: Record> Journal<R> {
    /// Opens a file: lines come after those that are in it.
    ///
    /// # Errors
    /// It cannot be written.
    fn open(path: &Path, owner: &str, frequency: Frequency) -> Result<Self, String> {
        check(path)?;
        let wrong = |error: std::io::Error| cannot(path, &error);
        let file = LogFile::open(path, 0o666).map_err(wrong)?;
        Self::over(file, path, owner, frequency).map_err(wrong)
    }

    /// Writes to what is open already.
    fn over(out: impl Out + Send + 'static, path: &Path, owner: &str, frequency: Frequency) -> std::io::Result<Self> {
        let state = State { rings: Vec::new(), asked: 0, done: 0, ended: false, fault: None, not_reopened: None };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            told: Condvar::new(),
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

    /// A worker's way to the file: at most `rate` lines a second where there is one.
    pub(crate) fn pen(
        self: &Arc<Self>,
        with: Arc<R::With>,
        counts: Arc<[Counter]>,
        rate: Option<u32>,
        simulated: bool,
    ) -> Pen<R> {
        let (sender, records) = RingBuffer::new(R::RING);
        let mut state = self.shared.lock();
        // Those of workers that are gone have nothing more to say once they are empty.
        state.rings.retain(|Ring { records, .. }| !records.is_abandoned() || !records.is_empty());
        state.rings.push(Ring { records, with, counts: Arc::clone(&counts) });
        Pen::new(sender, Arc::clone(self), counts, rate, simulated)
    }

    /// Waits until all that was put into the rings is written.
    ///
    /// # Errors
    /// It could not be.
    pub(crate) fn flush(&self) -> Result<(), String> {
        let mut state = self.shared.lock();
        state.asked += 1;
        let asked = state.asked;
        self.shared.told.notify_all();
        while state.done < asked {
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            if thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(format!("{} is not complete: the writing thread has ended", self.shared.path.display()));
            }
            drop(thread);
            state = self.shared.told.wait_timeout(state, PERIOD).unwrap_or_else(PoisonError::into_inner).0;
        }
        let path = self.shared.path.display();
        let not_reopened = state.not_reopened.as_ref().map(|error| format!("{path} was not opened again: {error}"));
        state.fault.clone().or(not_reopened).map_or(Ok(()), Err)
    }
}

impl<R: Record> Drop for Journal<R> {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.told.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // What went wrong in it was told by `flush`.
            let _ = thread.join();
        }
    }
}

/// A record that was taken out of its ring, and what belongs to it.
type Taken<R> = (R, Arc<<R as Record>::With>, Arc<[Counter]>);

fn write_all<R: Record>(shared: &Shared<R>, out: impl Out) {
    let mut page = Page::new(out);
    let mut taken: Vec<Taken<R>> = Vec::with_capacity(R::RING);
    loop {
        shared.set_clock();
        let mut state = shared.lock();
        let (asked, ended) = (state.asked, state.ended);
        taken.clear();
        take(&mut state, &mut taken);
        drop(state);
        let result = page.write(&mut taken, ended, shared);
        let mut state = shared.lock();
        if let Err(error) = result {
            // What comes is taken all the same, so that nobody waits for it.
            state.fault.get_or_insert_with(|| {
                format!("cannot write {}, which is not complete: {error}", shared.path.display())
            });
        }
        state.not_reopened = page.not_reopened().map(str::to_owned);
        if state.done < asked {
            state.done = asked;
            shared.told.notify_all();
        }
        if ended {
            return;
        }
        // Where so many came, more are there by now.
        if state.asked == asked && !state.ended && taken.len() < R::RING {
            let _ = shared.told.wait_timeout(state, PERIOD);
        }
    }
}

/// Takes what is in the rings now and no more, so that a worker that goes on writing does not delay the thread.
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
