//! Calls a worker's turns: by polling on a core, or in simulated time.
//!
//! Only what is here waits, and only here a worker's thread meets the rest of the process: a stop flag and a queue of
//! actions, looked at now and then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay_measure::{Clock, Simulated, Tsc};
use forebay_protocol::{Action, Census};
use forebay_units::{Nanos, Ticks};
use rtrb::Consumer;

use crate::observer::Observer;
use crate::scheduler::Scheduler;
use crate::worker::{ActionError, Exchange, Former, Next, Worker};

/// Between how many turns the stop flag and the orders are looked at, at most.
const LOOK_EVERY: u32 = 64;
/// They are looked at after so long besides, since a turn of slow modules takes milliseconds.
const LOOK_AFTER: Nanos = Nanos(1_000_000);

/// How long a worker sleeps at most that has nothing to do. An order wakes its thread.
const OVER: Duration = Duration::from_millis(10);

/// What a simulated turn takes by itself, about as much as an empty one does for real: a turn takes time even if no
/// call in it does, or a saturating source would stop the clock.
const TURN: Ticks = Ticks(64);

/// Why a worker's run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The stop flag was set.
    Stopped,
    /// The time was up.
    TimeUp,
    /// Every source is used up and nothing waits.
    Finished,
    /// Other workers have taken over all that it had.
    Succeeded,
}

/// What a running worker is told. It looks between turns.
pub enum Order<S: Scheduler> {
    /// To apply actions, and to say whether it could.
    Act(Arc<[Action]>, mpsc::Sender<Result<(), ActionError>>),
    /// To say where every packet is: exactly, between two turns.
    Count(mpsc::Sender<Census>),
    /// To be watched from now on, or no more.
    Observe(Option<Box<dyn Observer>>),
    /// To take part in the change to a new graph.
    Change {
        /// What it becomes; `None`: it ends.
        next: Option<Box<Worker<Tsc, S>>>,
        /// Where workers lay down what those of the new graph take up.
        exchange: Arc<Exchange>,
        /// Who gets what it was.
        former: mpsc::Sender<Former<Tsc, S>>,
    },
}

/// What the rest of the process may say to a running worker.
pub struct Mailbox<'a, S: Scheduler> {
    /// Set to make the run end.
    pub stop: &'a AtomicBool,
    /// Orders, oldest first.
    pub orders: Consumer<Order<S>>,
}

/// Runs a worker on the calling thread, which is its own, until it is stopped, or until it is told to end in favour of
/// others. It parks only when nothing can come, from a port or another worker; an order must unpark the thread.
pub fn poll<S: Scheduler>(worker: &mut Worker<Tsc, S>, mailbox: &mut Mailbox<'_, S>) -> Ended {
    let look_after = worker.clock().frequency().ticks(LOOK_AFTER);
    let mut looked = Ticks::ZERO;
    loop {
        for _ in 0..LOOK_EVERY {
            match worker.turn() {
                Next::Now if worker.began().since(looked) >= look_after => break,
                Next::Now => {}
                Next::Never => {
                    std::thread::park_timeout(OVER);
                    break;
                }
                // An instant that is some time away leaves room for looking around.
                Next::At(_) | Next::OnInput(..) => {
                    std::hint::spin_loop();
                    break;
                }
            }
        }
        looked = worker.began();
        while let Ok(order) = mailbox.orders.pop() {
            match order {
                // Who has asked may have gone: here and below.
                Order::Act(actions, answer) => drop(answer.send(worker.apply(&actions))),
                Order::Count(answer) => drop(answer.send(worker.census())),
                Order::Observe(observer) => worker.observe(observer),
                Order::Change { next, exchange, former } => {
                    while !worker.lay_down(&exchange) {}
                    let team = Arc::clone(worker.team());
                    team.meet();
                    let Some(mut next) = next else { return Ended::Succeeded };
                    exchange.meet();
                    next.take_up(&exchange);
                    let old = worker.succeed(*next);
                    // Nobody is there to look at what was: so be it.
                    let _ = former.send(old);
                }
            }
        }
        if mailbox.stop.load(Ordering::Relaxed) {
            return Ended::Stopped;
        }
    }
}

/// Begins a worker that has joined a running pipeline: its thread calls this before it [polls](poll).
pub fn join<S: Scheduler>(worker: &mut Worker<Tsc, S>, exchange: &Exchange) {
    exchange.meet();
    worker.take_up(exchange);
}

/// Ends a worker whose whole team ends: [drains](Worker::drain) it until nothing waits anywhere, and closes it.
///
/// # Errors
/// As [`Worker::close`].
pub fn end<S: Scheduler>(worker: &mut Worker<Tsc, S>) -> Result<(), Vec<(String, String)>> {
    loop {
        worker.drain();
        if worker.team().is_quiet() {
            let closed = worker.close();
            // A ring between two ports is empty once both are closed.
            let team = Arc::clone(worker.team());
            team.meet();
            let _ = worker.census();
            return closed;
        }
    }
}

/// Runs a worker in simulated time until `until`, moving its clock on over the times in which nothing happens. With
/// the same plan, seed and costs every run is the same.
pub fn simulate<S: Scheduler>(worker: &mut Worker<Simulated, S>, until: Ticks) -> Ended {
    while worker.clock().now() < until {
        match worker.turn() {
            Next::Now => worker.clock().spend(TURN),
            // Only housekeeping remains: the run does not wait for it.
            Next::At(_) | Next::OnInput(..) if worker.team().is_quiet() => return Ended::Finished,
            Next::At(instant) | Next::OnInput(_, Some(instant)) => worker.clock().advance_to(instant.min(until)),
            // No input comes from outside in simulated time.
            Next::OnInput(_, None) | Next::Never => return Ended::Finished,
        }
    }
    Ended::TimeUp
}

/// The same for the workers of one pipeline: of those that have something to do, the one that is earliest has its turn
/// next, and of several the first. What a worker sends arrives when it was sent, and is not taken before.
pub fn simulate_team<S: Scheduler>(workers: &mut [Worker<Simulated, S>], until: Ticks) -> Ended {
    simulate_team_by(workers, until, Worker::turn)
}

/// The same where `turn` calls the turns: for who watches them from outside.
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
            // Only housekeeping remains: the run does not wait for it.
            return Ended::Finished;
        }
    }
}

/// [Drains](Worker::drain) and closes simulated workers. What ports and functions say went wrong.
pub fn wind_up_team<S: Scheduler>(workers: &mut [Worker<Simulated, S>]) -> Vec<(String, String)> {
    // Whoever is behind may be sent what the others have sent already.
    let latest = workers.iter().map(|worker| worker.clock().now()).max().unwrap_or_default();
    workers.iter().for_each(|worker| worker.clock().advance_to(latest));
    while !workers.iter_mut().fold(true, |done, worker| {
        let drained = worker.drain();
        worker.clock().spend(TURN);
        done && drained && worker.sent_to().is_none()
    }) {}
    let troubles = workers.iter_mut().flat_map(|worker| worker.close().err().unwrap_or_default()).collect();
    for worker in workers {
        let _ = worker.census();
    }
    troubles
}
