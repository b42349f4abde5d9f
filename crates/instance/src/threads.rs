//! A worker's thread: it creates the worker on its core, waits for the start, and runs the worker to its end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use forebay_graph::{
    Exchange, Former, Links, MakeError, Observer, Plan, Scheduler, SetupError, Team, Telemetry, Wake, Worker,
    drive::{self, Ended, Mailbox, Order, Poll},
};
use forebay_measure::{Clock, Tsc, machine::pin_to};
use forebay_packet::{Pool, PoolOptions};
use forebay_units::Ticks;
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use thiserror::Error;

/// The largest number of orders that may wait for a worker.
const ORDERS: usize = 4_096;

/// The idle policy of all workers. A team and its workers must have the same policy.
const IDLE: Poll = Poll;

/// Why a pipeline cannot be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// A worker's thread cannot be bound to its core.
    #[error("the worker cannot be bound to core {core}: {error}")]
    Core {
        /// The core.
        core: usize,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The system cannot create the thread.
    #[error("no thread for a worker: {0}")]
    Thread(#[from] std::io::Error),
    /// The system has no descriptor for a worker's handle.
    #[error("no descriptor to wake a worker: {0}")]
    Wake(std::io::Error),
    /// The plan cannot run.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The controller does not accept its parameters.
    #[error(transparent)]
    Control(#[from] SetupError),
    /// A worker's thread panicked.
    #[error("a worker ended before its start: this is a defect of Forebay")]
    Ended,
}

/// The result of a worker's thread.
pub(crate) enum WorkerEnd<S: Scheduler> {
    /// The worker was stopped at this instant, with these errors.
    Stopped(Ticks, Vec<(String, String)>),
    /// Other workers have taken over. The caller must close the old worker.
    Succeeded(Box<Former<Tsc, S>>),
    /// The worker could not be created, or was not released.
    NotStarted,
}

/// A worker's thread.
pub(crate) struct Thread<S: Scheduler> {
    /// The queue of orders that the worker has not taken yet.
    pub(crate) orders: Producer<Order<S>>,
    /// The handle that wakes the worker. It must be used after each order (as `give` does) and after the stop flag is
    /// set.
    pub(crate) wake: Arc<Wake>,
    pub(crate) handle: JoinHandle<WorkerEnd<S>>,
    /// The worker's packet pool, which its successor takes over.
    pub(crate) pool: Pool,
    /// The core that the thread is bound to.
    pub(crate) core: usize,
    /// The thread ID.
    pub(crate) tid: u32,
}

impl<S: Scheduler> Thread<S> {
    /// Gives the worker an order, and wakes the worker if it is parked.
    ///
    /// # Errors
    /// Returns the order if the queue of orders is full.
    pub(crate) fn give(&mut self, order: Order<S>) -> Result<(), PushError<Order<S>>> {
        self.orders.push(order)?;
        self.wake.wake();
        Ok(())
    }
}

/// Creates the handles that wake `count` workers.
pub(crate) fn new_wakes(count: usize) -> Result<Vec<Arc<Wake>>, StartError> {
    (0..count).map(|_| Wake::new().map(Arc::new).map_err(StartError::Wake)).collect()
}

/// Creates a team of the workers with these handles.
pub(crate) fn new_team(wakes: &[Arc<Wake>]) -> Arc<Team> {
    Arc::new(Team::with_policy(&IDLE, wakes.to_vec()))
}

/// The parts of a new worker.
pub(crate) struct WorkerParts {
    pub(crate) plan: Plan,
    /// The worker's ends of the rings between workers.
    pub(crate) links: Links,
    pub(crate) team: Arc<Team>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) observer: Option<Box<dyn Observer>>,
}

/// The facts about a worker that its thread reports when the worker is ready.
pub(crate) struct WorkerFacts {
    pub(crate) telemetry: Arc<Telemetry>,
    /// When the worker was ready, on the workers' clock.
    pub(crate) began: Ticks,
    pool: Pool,
    tid: u32,
}

/// Returns the system's ID of the calling thread.
fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// A worker that is ready and waits for its release. When this value is dropped without a release, the drop waits until
/// the thread has ended and its ports are closed, so that the caller can try again at once.
pub(crate) struct WaitingWorker<S: Scheduler>(Option<(Thread<S>, Sender<()>)>);

impl<S: Scheduler> WaitingWorker<S> {
    fn new(thread: Thread<S>, start: Sender<()>) -> Self {
        Self(Some((thread, start)))
    }

    /// Lets the worker run, and returns its thread. Never returns `None`: only this function and the drop take the
    /// thread.
    pub(crate) fn release(mut self) -> Option<Thread<S>> {
        let (thread, start) = self.0.take()?;
        // Ignores a thread that has panicked: joining it returns the error.
        let _ = start.send(());
        Some(thread)
    }
}

impl<S: Scheduler> Drop for WaitingWorker<S> {
    fn drop(&mut self) {
        if let Some((thread, start)) = self.0.take() {
            drop(start);
            // Ignores a panic: a thread that panicked has released its resources, too.
            let _ = thread.handle.join();
        }
    }
}

/// Creates a worker on a new thread. The thread is bound to its core first, so that the memory of the worker is local
/// to the core. Returns when the worker is ready. The worker runs when the caller releases it.
pub(crate) fn start_worker<S: Scheduler + 'static>(
    parts: WorkerParts,
    core: usize,
    stop: Arc<AtomicBool>,
) -> Result<(WaitingWorker<S>, WorkerFacts), StartError> {
    let (ready, when_ready) = channel();
    let (start, when_started) = channel();
    let (orders, order_queue) = RingBuffer::new(ORDERS);
    let name = format!("worker-{}", parts.plan.worker);
    let wake = Arc::clone(&parts.wake);
    let handle = std::thread::Builder::new().name(name).spawn(move || {
        let made = pin_to(core).map_err(|error| StartError::Core { core, error }).and_then(|()| {
            let WorkerParts { plan, links, team, wake, observer } = parts;
            // Populates the pages now. Otherwise the first packet on a page waits until the system has provided the
            // page: up to 0.5 ms for a huge page.
            let pool = Pool::new(PoolOptions { populated: true, ..plan.pool }).map_err(MakeError::from)?;
            let mut worker = Worker::<Tsc, S>::member(plan, Tsc, Vec::new(), pool.clone(), links, team)?;
            worker.observe(observer);
            Ok((worker, pool, wake))
        });
        let (worker, wake) = match made {
            Ok((worker, pool, wake)) => {
                let facts = WorkerFacts { telemetry: worker.telemetry(), began: Tsc.now(), pool, tid: own_tid() };
                // The receiver exists: it waits for this message.
                let _ = ready.send(Ok(facts));
                (worker, wake)
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                return WorkerEnd::NotStarted;
            }
        };
        if when_started.recv().is_ok() { run(worker, order_queue, wake, &stop) } else { WorkerEnd::NotStarted }
    })?;
    match when_ready.recv().map_err(|_| StartError::Ended).flatten() {
        Ok(facts) => {
            let thread = Thread { orders, wake, handle, pool: facts.pool.clone(), core, tid: facts.tid };
            Ok((WaitingWorker::new(thread, start), facts))
        }
        Err(error) => {
            let _ = handle.join();
            Err(error)
        }
    }
}

/// Creates a thread for a worker that joins the running workers when it is released. `number` is the number of threads
/// that were started before. It is part of the thread's name.
pub(crate) fn prepare_join<S: Scheduler + 'static>(
    mut worker: Box<Worker<Tsc, S>>,
    pool: Pool,
    core: usize,
    number: usize,
    wake: Arc<Wake>,
    exchange: Arc<Exchange>,
    stop: Arc<AtomicBool>,
) -> Result<WaitingWorker<S>, StartError> {
    let (orders, order_queue) = RingBuffer::new(ORDERS);
    let (ready, when_ready) = channel();
    let (start, when_started) = channel();
    let own_wake = Arc::clone(&wake);
    let handle = std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        let bound = pin_to(core).map(|()| own_tid()).map_err(|error| StartError::Core { core, error });
        let failed = bound.is_err();
        let _ = ready.send(bound);
        if failed || when_started.recv().is_err() {
            return WorkerEnd::NotStarted;
        }
        drive::join(&mut worker, &exchange);
        run(*worker, order_queue, own_wake, &stop)
    })?;
    let mut waiting = WaitingWorker::new(Thread { orders, wake, handle, pool, core, tid: 0 }, start);
    let tid = when_ready.recv().map_err(|_| StartError::Ended)??;
    if let Some((thread, _)) = &mut waiting.0 {
        thread.tid = tid;
    }
    Ok(waiting)
}

/// Runs the worker until it is stopped or replaced. If it is stopped, closes its ports and functions.
fn run<S: Scheduler>(
    mut worker: Worker<Tsc, S>,
    orders: Consumer<Order<S>>,
    wake: Arc<Wake>,
    stop: &AtomicBool,
) -> WorkerEnd<S> {
    let mut mailbox = Mailbox { stop, orders, wake };
    if drive::run(&mut worker, &mut mailbox, &mut { IDLE }) == Ended::Succeeded {
        return WorkerEnd::Succeeded(Box::new(Former::of(worker)));
    }
    let troubles = drive::end(&mut worker).err().unwrap_or_default();
    worker.observe(None);
    WorkerEnd::Stopped(worker.clock().now(), troubles)
}
