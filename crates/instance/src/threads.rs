//! A worker's thread: made on its own core, told to go or not, run to its end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use forebay_graph::{
    Exchange, Former, Links, MakeError, Observer, Plan, Scheduler, SetupError, Team, Telemetry, Worker,
    drive::{self, Ended, Mailbox, Order},
};
use forebay_measure::{Clock, Tsc, machine::pin_to};
use forebay_packet::{Pool, PoolOptions};
use forebay_units::Ticks;
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use thiserror::Error;

/// How many orders may wait for a worker.
const ORDERS: usize = 4_096;

/// Why a pipeline cannot be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// A worker's thread cannot be bound to its core.
    #[error("the worker cannot be bound to core {core}: {error}")]
    Core {
        /// The core.
        core: usize,
        /// What the system said.
        error: std::io::Error,
    },
    /// The system gave no thread.
    #[error("no thread for a worker: {0}")]
    Thread(#[from] std::io::Error),
    /// A plan that cannot run.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// A controller that does not take its parameters.
    #[error(transparent)]
    Control(#[from] SetupError),
    /// A worker's thread panicked.
    #[error("a worker ended before it began: this is a defect of Forebay")]
    Ended,
}

/// What a worker's thread ends with.
pub(crate) enum Over<S: Scheduler> {
    /// It was stopped: when, and what went wrong.
    Stopped(Ticks, Vec<(String, String)>),
    /// Others have taken over.
    Succeeded(Box<Former<Tsc, S>>),
    /// It never began.
    Never,
}

/// A worker's thread.
pub(crate) struct Thread<S: Scheduler> {
    pub(crate) orders: Producer<Order<S>>,
    pub(crate) handle: JoinHandle<Over<S>>,
    pub(crate) pool: Pool,
    pub(crate) core: usize,
    /// The system's number of the thread.
    pub(crate) tid: u32,
}

impl<S: Scheduler> Thread<S> {
    /// Gives the worker an order, and wakes it where it sleeps.
    ///
    /// # Errors
    /// As many orders wait as there is room for: the order comes back.
    pub(crate) fn give(&mut self, order: Order<S>) -> Result<(), PushError<Order<S>>> {
        self.orders.push(order)?;
        self.handle.thread().unpark();
        Ok(())
    }
}

/// What a worker is made of.
pub(crate) struct Part {
    pub(crate) plan: Plan,
    pub(crate) links: Links,
    pub(crate) team: Arc<Team>,
    pub(crate) observer: Option<Box<dyn Observer>>,
}

/// What a worker says once it is made.
pub(crate) struct Told {
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) began: Ticks,
    pool: Pool,
    tid: u32,
}

/// The system's number of the calling thread.
fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// A worker that has been made and waits for the word to go. One that is dropped instead is gone when that is done, with
/// its ports closed: who asked for it may try again at once.
pub(crate) struct Waiting<S: Scheduler>(Option<(Thread<S>, Sender<()>)>);

impl<S: Scheduler> Waiting<S> {
    fn new(thread: Thread<S>, go: Sender<()>) -> Self {
        Self(Some((thread, go)))
    }

    /// Lets it run.
    pub(crate) fn go(mut self) -> Option<Thread<S>> {
        let (thread, go) = self.0.take()?;
        // A thread that has died is found by whoever joins it.
        let _ = go.send(());
        Some(thread)
    }
}

impl<S: Scheduler> Drop for Waiting<S> {
    fn drop(&mut self) {
        if let Some((thread, go)) = self.0.take() {
            drop(go);
            // If it panicked, it has let go of everything too.
            let _ = thread.handle.join();
        }
    }
}

/// Makes a worker on a thread and core of its own, so that its memory is near them.
pub(crate) fn begin<S: Scheduler + 'static>(
    part: Part,
    core: usize,
    stop: Arc<AtomicBool>,
) -> Result<(Waiting<S>, Told), StartError> {
    let (told, tells) = channel();
    let (go, may_go) = channel();
    let (orders, taken) = RingBuffer::new(ORDERS);
    let name = format!("worker-{}", part.plan.worker);
    let handle = std::thread::Builder::new().name(name).spawn(move || {
        let made = pin_to(core).map_err(|error| StartError::Core { core, error }).and_then(|()| {
            let Part { plan, links, team, observer } = part;
            // A page's first packet would wait for it as long as for many others: up to half a millisecond for a huge one.
            let pool = Pool::new(PoolOptions { populated: true, ..plan.pool }).map_err(MakeError::from)?;
            let mut worker = Worker::<Tsc, S>::member(plan, Tsc, Vec::new(), pool.clone(), links, team)?;
            worker.observe(observer);
            Ok((worker, pool))
        });
        let worker = match made {
            Ok((worker, pool)) => {
                let answer = Told { telemetry: worker.telemetry(), began: Tsc.now(), pool, tid: own_tid() };
                // The other side waits for this and nothing else.
                let _ = told.send(Ok(answer));
                worker
            }
            Err(error) => {
                let _ = told.send(Err(error));
                return Over::Never;
            }
        };
        if may_go.recv().is_ok() { run(worker, taken, &stop) } else { Over::Never }
    })?;
    match tells.recv().map_err(|_| StartError::Ended).flatten() {
        Ok(told) => {
            Ok((Waiting::new(Thread { orders, handle, pool: told.pool.clone(), core, tid: told.tid }, go), told))
        }
        Err(error) => {
            let _ = handle.join();
            Err(error)
        }
    }
}

/// Makes ready a thread for a worker that joins those that run, as soon as it is let go.
pub(crate) fn join<S: Scheduler + 'static>(
    mut worker: Box<Worker<Tsc, S>>,
    pool: Pool,
    core: usize,
    number: usize,
    exchange: Arc<Exchange>,
    stop: Arc<AtomicBool>,
) -> Result<Waiting<S>, StartError> {
    let (orders, taken) = RingBuffer::new(ORDERS);
    let (told, tells) = channel();
    let (go, may_go) = channel();
    let handle = std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        let bound = pin_to(core).map(|()| own_tid()).map_err(|error| StartError::Core { core, error });
        let failed = bound.is_err();
        let _ = told.send(bound);
        if failed || may_go.recv().is_err() {
            return Over::Never;
        }
        drive::join(&mut worker, &exchange);
        run(*worker, taken, &stop)
    })?;
    let mut waiting = Waiting::new(Thread { orders, handle, pool, core, tid: 0 }, go);
    let tid = tells.recv().map_err(|_| StartError::Ended)??;
    if let Some((thread, _)) = &mut waiting.0 {
        thread.tid = tid;
    }
    Ok(waiting)
}

fn run<S: Scheduler>(mut worker: Worker<Tsc, S>, orders: Consumer<Order<S>>, stop: &AtomicBool) -> Over<S> {
    let mut mailbox = Mailbox { stop, orders };
    if drive::poll(&mut worker, &mut mailbox) == Ended::Succeeded {
        return Over::Succeeded(Box::new(Former::of(worker)));
    }
    let troubles = drive::end(&mut worker).err().unwrap_or_default();
    worker.observe(None);
    Over::Stopped(worker.clock().now(), troubles)
}
