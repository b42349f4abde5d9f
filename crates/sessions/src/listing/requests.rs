//! The rings between operators and a worker's tables. The worker serves a request a few entries at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_graph::Context;
use forebay_units::{Frequency, Nanos, Ticks};
use rtrb::{Consumer, Producer, RingBuffer};

use super::WorkerTables;
use super::row::Row;
use super::select::Selector;

/// Maximum number of entries that are visited in a call with packets.
pub(crate) const LOOKS_WITH_PACKETS: u32 = 64;
/// Maximum number of entries that are visited in a call without packets.
pub(crate) const LOOKS_WHEN_WOKEN: u32 = 256;
/// Cost of ending an entry, as a number of visited entries.
const ENDING: u32 = 8;
/// Number of a worker's tables whose entries are counted.
const TABLES: usize = 2;

/// Time limit for a response. A worker without packets checks for requests four times a second.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which the operators' side checks for the response.
const LOOK: Duration = Duration::from_micros(100);

/// A request to a worker. The worker sends it back as the response.
pub(super) struct Request {
    /// Number of the request, by which its response is recognised. [`OperatorSide::request`] sets it.
    pub(super) number: u64,
    pub(super) select: Selector,
    /// Number of the table.
    pub(super) table: u8,
    /// Index of the next entry to visit.
    pub(super) index: u32,
    /// Number of entries that may still be visited.
    pub(super) walk: u32,
    /// True if matching entries are ended instead of listed.
    pub(super) ends: bool,
    /// Matching rows, up to the capacity of the vector. The worker does not allocate.
    pub(super) rows: Vec<Row>,
    /// Number of ended entries.
    pub(super) ended: u64,
    /// True if the end of the table was reached.
    pub(super) over: bool,
}

impl Request {
    /// A template with default values.
    pub(super) const NONE: Self = Self {
        number: 0,
        select: Selector::ALL,
        table: 0,
        index: 0,
        walk: 0,
        ends: false,
        rows: Vec::new(),
        ended: 0,
        over: false,
    };

    /// Visits up to `looks` entries. Returns true if the request is complete: the end of the table or the limit `walk`
    /// is reached, or `rows` is full.
    fn advance(&mut self, tables: &mut impl WorkerTables, mut looks: u32) -> bool {
        loop {
            if self.index >= tables.index_limit(self.table) {
                self.over = true;
                return true;
            }
            let full = !self.ends && self.rows.len() == self.rows.capacity();
            if self.walk == 0 || full {
                return true;
            }
            if looks == 0 {
                return false;
            }
            let row = tables.row(self.table, self.index).filter(|row| self.select.matches(row));
            looks -= 1;
            if let Some(row) = row {
                if self.ends {
                    tables.end(self.table, self.index);
                    self.ended += 1;
                    looks = looks.saturating_sub(ENDING);
                } else {
                    self.rows.push(row.at(self.table, self.index));
                }
            }
            self.index += 1;
            self.walk -= 1;
        }
    }
}

/// The operators' ends of both rings.
struct OperatorRings {
    requests: Producer<Request>,
    responses: Consumer<Request>,
    /// Number of the last request.
    number: u64,
}

/// The operators' side of one worker's tables.
#[derive(Default)]
pub(crate) struct OperatorSide {
    rings: Mutex<Option<OperatorRings>>,
    /// Number of modules that serve requests for the tables.
    modules: AtomicUsize,
    /// Number of entries of each table, as last published.
    open: [AtomicUsize; TABLES],
}

impl OperatorSide {
    /// Creates the worker's side. Requests to a previous worker's side are no longer served.
    pub(crate) fn worker_side(self: &Arc<Self>) -> WorkerSide {
        let (requests, incoming) = RingBuffer::new(1);
        let (outgoing, responses) = RingBuffer::new(1);
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(OperatorRings { requests, responses, number: 0 });
        self.open.iter().for_each(|open| open.store(0, Ordering::Relaxed));
        WorkerSide { requests: incoming, responses: outgoing, current: None, operators: Arc::clone(self) }
    }

    /// Returns true if a module serves requests for the tables.
    pub(super) fn is_served(&self) -> bool {
        self.modules.load(Ordering::Acquire) > 0
    }

    /// Returns the number of entries of a table.
    pub(super) fn len(&self, table: u8) -> usize {
        self.open.get(usize::from(table)).map_or(0, |open| open.load(Ordering::Relaxed))
    }

    /// Returns the number of entries of all tables. If this is 0 and no packets come, the worker is possibly never
    /// woken, and then it does not respond to requests.
    pub(super) fn open(&self) -> usize {
        self.open.iter().map(|open| open.load(Ordering::Relaxed)).sum()
    }

    /// Sends a request and waits for the response. Returns `None` if no response comes within [`PATIENCE`], or no
    /// module serves requests. Only one request to a worker's tables is in progress at a time: other callers wait.
    pub(super) fn request(&self, mut request: Request) -> Option<Request> {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let OperatorRings { requests, responses, number } = rings.as_mut()?;
        *number += 1;
        request.number = *number;
        let until = Instant::now() + PATIENCE;
        let mut waiting = Some(request);
        loop {
            // Responses that no caller waits for any more are dropped, so that there is room.
            while let Ok(response) = responses.pop() {
                if response.number == *number {
                    return Some(response);
                }
            }
            if let Some(request) = waiting.take() {
                waiting = requests.push(request).err().map(|rtrb::PushError::Full(request)| request);
            }
            if Instant::now() > until || !self.is_served() {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The worker's side of its tables.
pub(crate) struct WorkerSide {
    requests: Consumer<Request>,
    responses: Producer<Request>,
    /// The request that is being served.
    current: Option<Request>,
    operators: Arc<OperatorSide>,
}

impl WorkerSide {
    /// Returns true if there is a request to serve.
    #[inline(always)]
    pub(crate) fn has_request(&self) -> bool {
        self.current.is_some() || !self.requests.is_empty()
    }

    /// Publishes the number of entries of each table.
    pub(crate) fn publish(&self, open: [usize; TABLES]) {
        self.operators.open.iter().zip(open).for_each(|(published, open)| published.store(open, Ordering::Relaxed));
    }
}

/// Serves a pending request for a module's tables, if there is one. Visits about `looks` entries. If more remains to be
/// done, the module is woken again at once.
#[inline(always)]
pub(crate) fn serve_requests(tables: &mut impl WorkerTables, looks: u32, context: &mut Context<'_>) {
    if tables.worker_side().has_request() && serve_request(tables, looks) {
        context.wake_at(context.now());
    }
}

/// As [`serve_requests`]. Returns true if there is more to do.
#[cold]
pub(super) fn serve_request(tables: &mut impl WorkerTables, looks: u32) -> bool {
    let worker_side = tables.worker_side();
    let Some(mut request) = worker_side.current.take().or_else(|| worker_side.requests.pop().ok()) else {
        return false;
    };
    // Normally there is room for the response, because only one request is in progress at a time. Without room, the
    // request stays in `current`, and its response is sent later.
    let done = request.advance(tables, looks) && !tables.worker_side().responses.is_full();
    let worker_side = tables.worker_side();
    if done {
        // There is room, as checked above.
        let _ = worker_side.responses.push(request);
    } else {
        worker_side.current = Some(request);
    }
    worker_side.has_request()
}

/// The registration of a module that serves requests for a worker's tables. The module is woken for this when no
/// packets come. The registration ends when this value is dropped.
pub(crate) struct ServingModule {
    operators: Arc<OperatorSide>,
    /// Interval at which the counters are published.
    period: Ticks,
    /// Time of the next publication.
    next: Ticks,
    /// True if the module will be woken at `next`.
    waits: bool,
}

impl ServingModule {
    /// Registers a module for these tables.
    pub(crate) fn new(operators: Arc<OperatorSide>, frequency: Frequency) -> Self {
        operators.modules.fetch_add(1, Ordering::AcqRel);
        Self { operators, period: frequency.ticks(Nanos(250_000_000)), next: Ticks::ZERO, waits: false }
    }

    /// Returns true if the module should now publish its counters and call [`schedule`](Self::schedule). Returns true
    /// four times per second. Also returns true if the tables have entries and no wake is scheduled. `empty` is true if
    /// the tables have no entries.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: Ticks, empty: bool) -> bool {
        now >= self.next || !(self.waits || empty)
    }

    /// Sets the time of the next publication. If the tables are not empty, the module is woken at this time, and also
    /// serves requests then.
    pub(crate) fn schedule(&mut self, empty: bool, context: &mut Context<'_>) {
        self.next = context.now() + self.period;
        self.waits = !empty;
        if self.waits {
            context.look_at(self.next);
        }
    }
}

impl Drop for ServingModule {
    fn drop(&mut self) {
        self.operators.modules.fetch_sub(1, Ordering::AcqRel);
    }
}
