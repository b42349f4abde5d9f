//! Drives workers: calls their turns, on a core or in simulated time.
//!
//! A worker's thread communicates with the rest of the process only here: from time to time it looks at a stop flag and
//! a queue of orders. Between turns without work, the worker waits by its [idle policy](idle).

pub mod idle;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay_measure::{Clock, Simulated, Tsc};
use forebay_protocol::{Action, Census};
use forebay_units::{Nanos, Ticks};
use rtrb::Consumer;

use crate::observer::Observer;
use crate::scheduler::Scheduler;
use crate::wake::Wake;
use crate::worker::{ActionError, Exchange, Former, Next, Worker};

pub use idle::{Idle, IdlePolicy, Poll};

use idle::IdleWorker;

/// The largest number of turns between two looks at the stop flag and the orders.
const LOOK_EVERY: u32 = 64;
/// The time after which the worker looks at the stop flag and the orders even if it has not run [`LOOK_EVERY`] turns. A
/// turn of slow modules takes milliseconds.
const LOOK_AFTER: Nanos = Nanos(1_000_000);

/// The ticks of a simulated turn, in addition to the ticks of its calls. An empty turn takes about as many in real
/// time. A turn must take time even if its calls take none. Otherwise a source that always has packets would stop the
/// clock.
const TURN: Ticks = Ticks(64);

/// Why a worker's run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The stop flag was set.
    Stopped,
    /// The time limit has passed.
    TimeUp,
    /// All sources are used up and no packet waits.
    Finished,
    /// Other workers have taken over everything that the worker had.
    Succeeded,
}

/// An order to a running worker, which looks at orders between turns.
pub enum Order<S: Scheduler> {
    /// Apply actions. The worker sends the result.
    Act(Arc<[Action]>, mpsc::Sender<Result<(), ActionError>>),
    /// Count packets. The worker sends its census, which is exact between two turns.
    Count(mpsc::Sender<Census>),
    /// Take this observer from now on, or end the observation.
    Observe(Option<Box<dyn Observer>>),
    /// Take part in the change to a new graph.
    Change {
        /// The worker's successor. `None`: the worker ends.
        next: Option<Box<Worker<Tsc, S>>>,
        /// The exchange through which the workers of the new graph take over.
        exchange: Arc<Exchange>,
        /// Receives the worker of the old graph, if it has a successor.
        former: mpsc::Sender<Former<Tsc, S>>,
    },
}

/// The connection of a running worker to the rest of the process.
pub struct Mailbox<'a, S: Scheduler> {
    /// Set to end the run.
    pub stop: &'a AtomicBool,
    /// Orders, oldest first.
    pub orders: Consumer<Order<S>>,
    /// The worker's handle. A thread that has set the stop flag or sent an order must then call [`Wake::wake`].
    /// Otherwise a parked worker sees the flag or the order late.
    pub wake: Arc<Wake>,
}

/// A worker with its mailbox, as its idle policy sees them.
struct Driven<'a, 'm, S: Scheduler>(&'a mut Worker<Tsc, S>, &'a Mailbox<'m, S>);

impl<S: Scheduler> IdleWorker for Driven<'_, '_, S> {
    fn has_work(&self) -> bool {
        self.1.stop.load(Ordering::Relaxed) || !self.1.orders.is_empty() || self.0.is_sent_packets()
    }

    fn inputs(&self) -> Option<Vec<BorrowedFd<'_>>> {
        self.0.inputs()
    }

    fn time_until(&self, instant: Ticks) -> Duration {
        let clock = self.0.clock();
        let now = clock.now();
        if instant > now { Duration::from_nanos(clock.frequency().nanos(instant.since(now)).0) } else { Duration::ZERO }
    }

    fn note_parked(&mut self) {
        self.0.note_parked();
    }
}

/// Runs a worker on the calling thread until the stop flag is set, or until an [`Order::Change`] has no successor for
/// the worker. Between turns without work the worker waits by the policy `idle`. Afterwards the caller [ends](end) a
/// worker that was stopped, or closes a worker that has handed over ([`Former::of`]).
pub fn run<S: Scheduler>(
    worker: &mut Worker<Tsc, S>,
    mailbox: &mut Mailbox<'_, S>,
    idle: &mut impl IdlePolicy,
) -> Ended {
    let look_after = worker.clock().frequency().ticks(LOOK_AFTER);
    let mut looked = Ticks::ZERO;
    loop {
        for _ in 0..LOOK_EVERY {
            match worker.turn() {
                Next::Now if worker.began().since(looked) >= look_after => break,
                Next::Now => {}
                // After each wait the worker looks at the orders.
                next => {
                    idle.wait(next, &mut Idle { wake: &mailbox.wake, worker: &mut Driven(worker, mailbox) });
                    break;
                }
            }
        }
        looked = worker.began();
        while let Ok(order) = mailbox.orders.pop() {
            match order {
                // Here and below, the requester may be gone; ignore the send error.
                Order::Act(actions, response) => drop(response.send(worker.apply(&actions))),
                Order::Count(response) => drop(response.send(worker.census())),
                Order::Observe(observer) => worker.observe(observer),
                Order::Change { next, exchange, former } => {
                    while !worker.hand_over(&exchange) {}
                    let team = Arc::clone(worker.team());
                    team.meet();
                    let Some(mut next) = next else { return Ended::Succeeded };
                    exchange.meet();
                    next.take_over_from(&exchange);
                    let old = worker.succeed(*next);
                    // The receiver may be gone; ignore the send error.
                    let _ = former.send(old);
                }
            }
        }
        if mailbox.stop.load(Ordering::Relaxed) {
            return Ended::Stopped;
        }
    }
}

/// Starts a worker that joins a running pipeline. Its thread calls this before it [runs](run) the worker.
pub fn join<S: Scheduler>(worker: &mut Worker<Tsc, S>, exchange: &Exchange) {
    exchange.meet();
    worker.take_over_from(exchange);
}

/// Ends a worker when its whole team ends: [drains](Worker::drain) it until no packet waits anywhere, and closes it.
/// Each worker of the team must call this on its own thread, because the workers wait for each other.
///
/// # Errors
/// Those of [`Worker::close`].
pub fn end<S: Scheduler>(worker: &mut Worker<Tsc, S>) -> Result<(), Vec<(String, String)>> {
    loop {
        worker.drain();
        if worker.team().is_quiet() {
            let closed = worker.close();
            // When all workers have closed their ports, a ring between two ports is empty. So the census now finds the
            // final number of packets in flight.
            let team = Arc::clone(worker.team());
            team.meet();
            let _ = worker.census();
            return closed;
        }
    }
}

/// Runs a worker in simulated time until `until`. Its clock skips the times in which nothing happens. The same plan,
/// seed and costs give the same run.
pub fn simulate<S: Scheduler>(worker: &mut Worker<Simulated, S>, until: Ticks) -> Ended {
    while worker.clock().now() < until {
        match worker.turn() {
            Next::Now => worker.clock().spend(TURN),
            // Only housekeeping remains, which the run does not wait for.
            Next::At(_) | Next::OnInput(..) if worker.team().is_quiet() => return Ended::Finished,
            Next::At(instant) | Next::OnInput(_, Some(instant)) => worker.clock().advance_to(instant.min(until)),
            // No input comes from outside in simulated time.
            Next::OnInput(_, None) | Next::Never => return Ended::Finished,
        }
    }
    Ended::TimeUp
}

/// Runs the workers of one pipeline in simulated time until `until`. The next turn goes to the worker with the earliest
/// work, and among equals to the first one. Packets from another worker arrive at the time at which they were sent, and
/// are not taken earlier.
pub fn simulate_team<S: Scheduler>(workers: &mut [Worker<Simulated, S>], until: Ticks) -> Ended {
    simulate_team_by(workers, until, Worker::turn)
}

/// Runs the workers of one pipeline like [`simulate_team`], but calls `turn` for each turn. So a caller can observe the
/// turns. `turn` must call [`Worker::turn`] and return its result.
pub fn simulate_team_by<S: Scheduler>(
    workers: &mut [Worker<Simulated, S>],
    until: Ticks,
    turn: impl Fn(&mut Worker<Simulated, S>) -> Next,
) -> Ended {
    let mut wants = vec![Next::Now; workers.len()];
    loop {
        let mut earliest = None;
        for (at, (worker, want)) in workers.iter_mut().zip(&wants).enumerate() {
            let instant = match *want {
                Next::Now => Some(Ticks::ZERO),
                Next::At(instant) => Some(instant),
                Next::OnInput(_, instant) => worker.sent_to().into_iter().chain(instant).min(),
                Next::Never => None,
            };
            let instant = instant.map(|instant| instant.max(worker.clock().now()));
            if let Some(instant) = instant.filter(|instant| earliest.is_none_or(|(_, least)| *instant < least)) {
                earliest = Some((at, instant));
            }
        }
        let Some((at, instant)) = earliest else { return Ended::Finished };
        if instant >= until {
            workers.iter().for_each(|worker| worker.clock().advance_to(until));
            return Ended::TimeUp;
        }
        workers[at].clock().advance_to(instant);
        wants[at] = turn(&mut workers[at]);
        if wants[at] == Next::Now {
            workers[at].clock().spend(TURN);
        } else if workers[at].team().is_quiet() {
            // Only housekeeping remains, which the run does not wait for.
            return Ended::Finished;
        }
    }
}

/// [Drains](Worker::drain) and closes simulated workers. Returns the errors of ports and functions, each with the name
/// of the port or module.
pub fn shut_down_team<S: Scheduler>(workers: &mut [Worker<Simulated, S>]) -> Vec<(String, String)> {
    // Other workers may have sent packets at times that a worker's own clock has not reached. The worker can take these
    // packets only after its clock has advanced.
    let latest = workers.iter().map(|worker| worker.clock().now()).max().unwrap_or_default();
    workers.iter().for_each(|worker| worker.clock().advance_to(latest));
    while !workers.iter_mut().fold(true, |done, worker| {
        let drained = worker.drain();
        worker.clock().spend(TURN);
        done && drained && worker.sent_to().is_none()
    }) {}
    let errors = workers.iter_mut().flat_map(|worker| worker.close().err().unwrap_or_default()).collect();
    for worker in workers {
        let _ = worker.census();
    }
    errors
}
