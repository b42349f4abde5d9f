//! Tests how idle workers wait: the arguments of their policy, and that packets, orders and the stop flag wake a parked
//! worker.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use forebay_measure::Tsc;
use forebay_packet::Pool;
use rtrb::{Producer, RingBuffer};
use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::drive::{self, Ended, Idle, IdlePolicy, Mailbox, Order};
use crate::links::{Links, links};
use crate::{Team, Wake};

/// Longer than any test: a worker that nothing wakes does not go on by itself.
const HOUR: Duration = Duration::from_secs(3_600);
/// How long a test waits before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// The packets that wait at a device, and a descriptor that is readable while packets wait.
struct Supply {
    waiting: AtomicU32,
    event: OwnedFd,
}

impl Supply {
    fn new() -> Arc<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("a free descriptor");
        Arc::new(Self { waiting: AtomicU32::new(0), event })
    }

    fn give(&self, packets: u32) {
        self.waiting.fetch_add(packets, Ordering::SeqCst);
        rustix::io::write(&self.event, &1u64.to_ne_bytes()).expect("the counter has room");
    }
}

/// A port to a device. Without `has_descriptor`, only a call finds its packets.
struct Device {
    supply: Arc<Supply>,
    source: Source,
    has_descriptor: bool,
}

impl Port for Device {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        // Without a signal there is nothing to read.
        let _ = rustix::io::read(&self.supply.event, &mut [0; 8]);
        let count = self.supply.waiting.swap(0, Ordering::SeqCst);
        self.source.remaining += count;
        self.source.receive(batch, intake);
        if self.source.remaining > 0 { Ready::Now } else { Ready::Input(intake.now) }
    }

    fn wait_on(&self) -> Waits<'_> {
        if self.has_descriptor { Waits::On(vec![self.supply.event.as_fd()]) } else { Waits::None }
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

/// Returns a plan of two modules behind a device.
fn device_plan(supply: &Arc<Supply>, has_descriptor: bool, trigger: usize, log: &Log) -> Plan {
    let modules = vec![
        module("first", TestFunction::Pass, vec![Target::Module(1)], trigger),
        module("second", TestFunction::Pass, vec![Target::Port(1)], 0),
    ];
    let mut plan = plan(source(0), drain(log), modules, 4_096);
    let device = Device { supply: Arc::clone(supply), source: source(0), has_descriptor };
    plan.ports[0].open = Some(open(Box::new(device), true));
    plan
}

fn tsc_worker(plan: Plan) -> Worker<Tsc, RunToCompletion> {
    Worker::new(plan, Tsc, Vec::new()).expect("a sound plan")
}

fn new_wake() -> Arc<Wake> {
    Arc::new(Wake::new().expect("a free descriptor"))
}

/// Lets as many packets arrive as the worker waits for. Halfway it orders another trigger.
struct Exact<'a> {
    supply: Arc<Supply>,
    remaining: usize,
    counts: Vec<usize>,
    stop: &'a AtomicBool,
    orders: Producer<Order<RunToCompletion>>,
    halfway: Option<(usize, usize)>,
}

impl IdlePolicy for Exact<'_> {
    fn parks_on_input(&self) -> bool {
        false
    }

    fn wait(&mut self, next: Next, _: &mut Idle<'_>) {
        let Next::OnInput(count, _) = next else { panic!("a device may have packets at any time, so not {next:?}") };
        if let Some((_, trigger)) = self.halfway.take_if(|(remaining, _)| *remaining == self.remaining) {
            let actions = [Action::SetTrigger { module: 0, trigger }];
            let order = Order::Act(Arc::new(actions), channel().0);
            assert!(self.orders.push(order).is_ok(), "there is room for an order");
            return;
        }
        if self.remaining == 0 {
            return self.stop.store(true, Ordering::Relaxed);
        }
        let give = count.min(self.remaining);
        self.counts.push(count);
        self.remaining -= give;
        self.supply.give(give as u32);
    }
}

/// Runs 64 packets through a module with this trigger, and another trigger for the second half. Returns the counts that
/// the policy was given, and the number of calls of the module.
fn counts(trigger: usize, then: usize) -> (Vec<usize>, u64) {
    let (log, supply, stop) = (Log::default(), Supply::new(), AtomicBool::new(false));
    let mut worker = tsc_worker(device_plan(&supply, true, trigger, &log));
    // No packet waits so long that the module runs with fewer packets than its trigger.
    worker.apply(&[Action::SetHold { module: 0, hold: Nanos(HOUR.as_nanos() as u64) }]).expect("the module exists");
    let (orders, queue) = RingBuffer::new(1);
    let mut policy =
        Exact { supply, remaining: 64, counts: Vec::new(), stop: &stop, orders, halfway: Some((32, then)) };
    let mut mailbox = Mailbox { stop: &stop, orders: queue, wake: new_wake() };
    assert_eq!(drive::run(&mut worker, &mut mailbox, &mut policy), Ended::Stopped);
    assert_eq!(log.lock().expect("no test thread has panicked").len(), 64);
    let calls = worker.counters[0].batches();
    (policy.counts, calls)
}

#[test]
fn a_worker_waits_for_as_many_packets_as_complete_a_batch() {
    for (trigger, then) in [(8, 4), (4, 32), (32, 8)] {
        let (given, calls) = counts(trigger, then);
        let expected = [vec![trigger; 32 / trigger], vec![then; 32 / then]].concat();
        assert_eq!(given, expected, "trigger {trigger}, then {then}");
        assert_eq!(calls, expected.len() as u64, "each wait ends with a whole batch");
    }
    // Without a trigger each packet can run.
    assert_eq!(counts(0, 0).0, [1; 64]);
}

#[test]
fn packets_that_wait_already_reduce_the_count() {
    let (log, supply) = (Log::default(), Supply::new());
    let mut worker = tsc_worker(device_plan(&supply, true, 8, &log));
    for (given, lacking) in [(0, 8), (3, 5), (4, 1), (1, 8), (8, 8)] {
        supply.give(given);
        let next = loop {
            match worker.turn() {
                Next::Now => {}
                next => break next,
            }
        };
        assert!(matches!(next, Next::OnInput(count, _) if count == lacking), "{given}: {next:?} instead of {lacking}");
    }
}

/// Parks whenever it may.
struct Park {
    parked: Arc<AtomicUsize>,
}

impl IdlePolicy for Park {
    fn parks_on_input(&self) -> bool {
        true
    }

    fn wait(&mut self, next: Next, idle: &mut Idle<'_>) {
        let longest = match next {
            Next::Now => return,
            Next::At(instant) | Next::OnInput(_, Some(instant)) => idle.time_until(instant),
            Next::OnInput(_, None) | Next::Never => HOUR,
        };
        assert!(idle.park(longest), "the device has a descriptor");
        self.parked.fetch_add(1, Ordering::Relaxed);
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "no one woke the worker: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_parked_worker_is_woken_by_packets_orders_and_the_stop_flag() {
    let (log, supply, stop) = (Log::default(), Supply::new(), AtomicBool::new(false));
    let placement = Arc::new(Placement {
        workers: 2,
        modules: vec![vec![0], vec![1]],
        ports: vec![vec![0], vec![1]],
        keyed: vec![false; 2],
    });
    let shape = device_plan(&supply, true, 0, &log);
    let parked: [Arc<AtomicUsize>; 2] = std::array::from_fn(|_| Arc::default());
    let wakes = [new_wake(), new_wake()];
    let team = Arc::new(Team::with_policy(&Park { parked: Arc::clone(&parked[0]) }, wakes.to_vec()));
    let member = |id: usize, links: Links| {
        let mut plan = device_plan(&supply, true, 0, &log);
        (plan.worker, plan.placement) = (id, Arc::clone(&placement));
        plan.modules[1 - id].function = None;
        plan.ports[1 - id].open = None;
        let pool = Pool::new(plan.pool).expect("memory for a small pool");
        let made = Worker::<_, RunToCompletion>::member(plan, Tsc, Vec::new(), pool, links, Arc::clone(&team));
        made.expect("a sound plan")
    };
    let ends = links(&shape, &placement);
    let workers: Vec<_> = ends.into_iter().enumerate().map(|(id, links)| member(id, links)).collect();
    let left = || log.lock().expect("no test thread has panicked").len();
    std::thread::scope(|scope| {
        let mut orders = Vec::new();
        for (id, mut worker) in workers.into_iter().enumerate() {
            let (sender, queue) = RingBuffer::new(8);
            orders.push(sender);
            let mut mailbox = Mailbox { stop: &stop, orders: queue, wake: Arc::clone(&wakes[id]) };
            let mut policy = Park { parked: Arc::clone(&parked[id]) };
            scope.spawn(move || {
                assert_eq!(drive::run(&mut worker, &mut mailbox, &mut policy), Ended::Stopped);
                assert!(drive::end(&mut worker).is_ok());
            });
        }
        let mut given = 0;
        for round in 0..500 {
            let packets = 1 + round % 3;
            supply.give(packets);
            given += packets as usize;
            wait_until("packets", || left() == given);
            if round % 8 == 0 {
                for (orders, wake) in orders.iter_mut().zip(&wakes) {
                    let (sender, response) = channel();
                    assert!(orders.push(Order::Count(sender)).is_ok(), "there is room for an order");
                    wake.wake();
                    assert!(response.recv_timeout(PATIENCE).is_ok(), "no one woke the worker: an order");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        wakes.iter().for_each(|wake| wake.wake());
    });
    assert!(parked.iter().all(|parked| parked.load(Ordering::Relaxed) > 100), "{parked:?}");
}

/// Checks that a worker does not park while only a call can find packets.
struct Refused<'a>(&'a AtomicBool);

impl IdlePolicy for Refused<'_> {
    fn parks_on_input(&self) -> bool {
        true
    }

    fn wait(&mut self, _: Next, idle: &mut Idle<'_>) {
        assert!(!idle.park(HOUR));
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_worker_does_not_park_if_a_port_has_no_descriptor() {
    let (log, supply, stop) = (Log::default(), Supply::new(), AtomicBool::new(false));
    let mut worker = tsc_worker(device_plan(&supply, false, 0, &log));
    let mut mailbox = Mailbox { stop: &stop, orders: RingBuffer::new(1).1, wake: new_wake() };
    assert_eq!(drive::run(&mut worker, &mut mailbox, &mut Refused(&stop)), Ended::Stopped);
}
