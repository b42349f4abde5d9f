//! A thread that reads memory at random on its own core: a function with known accesses.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_instance::WorkerThread;
use forebay_measure::machine::pin_to;

/// The size of a cache line in bytes, and in words.
const LINE: usize = 64;
const WORDS: usize = LINE / size_of::<u64>();
/// The number of reads that are in progress at the same time. The thread makes this many independent rows of reads: a
/// read depends only on the previous read of its row.
const ROWS: usize = 4;
/// The number of reads between two checks of the flags.
const SLICE: usize = 4_096;

/// The reader thread. It ends when this value is dropped.
pub(super) struct Reader {
    stop: Arc<AtomicBool>,
    active: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    worker: WorkerThread,
}

impl Reader {
    /// Starts a thread on this core, with a memory of this many bytes. The thread reads only while it is
    /// [active](Self::set_active). Fails if the thread cannot be bound to the core.
    pub(super) fn start(core: usize, bytes: usize) -> std::io::Result<Self> {
        let (stop, active, reads) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default(), Arc::default());
        let (report, reported) = channel();
        let thread = {
            let (stop, active, reads) = (Arc::clone(&stop), Arc::clone(&active), Arc::clone(&reads));
            std::thread::Builder::new().name("reader".to_owned()).spawn(move || {
                let pinned = pin_to(core).map(|()| own_number());
                let may_begin = pinned.is_ok();
                // The memory is filled with ones, because the pages of zeroed memory may all map to a single page.
                let memory = vec![1_u64; if may_begin { bytes.max(LINE) / LINE * WORDS } else { 0 }];
                if report.send(pinned).is_ok() && may_begin {
                    read(&memory, &stop, &active, &reads);
                }
            })?
        };
        let ended = || std::io::Error::other("a thread ended before it began");
        let tid = reported.recv().map_err(|_| ended())??;
        let worker = WorkerThread { worker: core, core, tid };
        Ok(Self { stop, active, reads, thread: Some(thread), worker })
    }

    /// Starts or pauses reading.
    pub(super) fn set_active(&self, is_active: bool) {
        self.active.store(is_active, Ordering::Relaxed);
    }

    /// Returns the worker description of the thread.
    pub(super) fn worker(&self) -> WorkerThread {
        self.worker
    }

    /// Returns the reads per second during a span.
    pub(super) fn rate(&self, span: Duration) -> f64 {
        let (reads, began) = (self.reads.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(span);
        (self.reads.load(Ordering::Relaxed) - reads) as f64 / began.elapsed().as_secs_f64()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that has panicked has already printed its message.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Reads until `stop` is set, and adds the number of reads to `reads`. While `active` is false, it sleeps.
fn read(memory: &[u64], stop: &AtomicBool, active: &AtomicBool, reads: &AtomicU64) {
    let lines = (memory.len() / WORDS) as u64;
    let mut rows: [u64; ROWS] = std::array::from_fn(|row| row as u64);
    while !stop.load(Ordering::Relaxed) {
        if !active.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        for _ in 0..SLICE / ROWS {
            for row in &mut rows {
                // Knuth's linear congruential generator. Its upper half selects the line.
                let line = ((*row >> 32) * lines) >> 32;
                *row = row.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(memory[line as usize * WORDS]);
            }
        }
        reads.fetch_add(SLICE as u64, Ordering::Relaxed);
    }
    black_box(rows);
}

/// Returns the number of this thread (`proc(5)`: `/proc/thread-self` is a link to `PID/task/TID`), or 0 if there is no
/// such link.
fn own_number() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}
