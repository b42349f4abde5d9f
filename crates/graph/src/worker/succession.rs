//! The change to another graph while packets run: the new workers take over from the old ones.
//!
//! The new graphs are created in advance. Then all workers of the old graph drain their queues. When all queues are
//! empty, each worker hands over its functions and ports, and each worker of the new graph takes over the functions and
//! ports that its plan names. The rest (removed functions and ports, and the old graph itself) goes to the caller,
//! which requested the change. So no packet waits while files are closed and memory is freed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_measure::Clock;
use forebay_packet::Pool;
use forebay_units::Ticks;

use super::{Timer, Worker};
use crate::function::Function;
use crate::observer::Observer;
use crate::port::{Port, Ready};
use crate::report::Reading;
use crate::scheduler::Scheduler;
use crate::shelf::Shelf;
use crate::team::Team;
use crate::telemetry::Telemetry;

/// A function that goes from one graph to the next, with its state in the engine.
struct HandedFunction {
    function: Box<dyn Function>,
    shelf: Shelf,
    /// The function's pending wake-up.
    timer: Option<Timer>,
    /// By flow word of the old graph: the word's key (`FlowTable::keys`). By these keys, the new graph finds its own
    /// flow words for the packets on the shelf.
    flows: Arc<[u64]>,
}

/// The functions and ports that have been handed over and not yet taken over, by slot.
#[derive(Default)]
struct HandedOver {
    modules: Vec<Option<HandedFunction>>,
    /// Each port with its last response.
    ports: Vec<Option<(Box<dyn Port>, Ready)>>,
}

/// For a worker's modules or ports: pairs of the index of the module or port, and the index of its slot in the
/// exchange.
type Slots = Vec<(usize, usize)>;

/// The functions and ports on their way from the workers of a graph to the workers of the next graph.
///
/// The order of calls is: every running worker calls [`Worker::hand_over`] until it returns true, and then
/// [`Team::meet`] of the running team. Then every worker of the next graph calls [`meet`](Self::meet) and
/// [`Worker::take_over_from`]. A running worker with a successor ends with [`Worker::succeed`]
/// ([`drive::run`](crate::drive::run)).
pub struct Exchange {
    handed_over: Mutex<HandedOver>,
    /// The workers of the next graph.
    next: Team,
    /// By running worker: the modules that it hands over, with their slots.
    modules: Vec<Slots>,
    /// By running worker: the ports that it hands over, with their slots.
    ports: Vec<Slots>,
    /// The number of packets that are held by functions that were handed over.
    moved: AtomicU64,
}

/// The modules and ports that a worker of a new graph takes over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inherited {
    /// Modules: the index in the plan, the name, and the running worker that has the module.
    pub(crate) modules: Vec<(usize, String, usize)>,
    /// Ports, in the same form.
    pub(crate) ports: Vec<(usize, String, usize)>,
    /// The modules that the running worker has, with their slots in the exchange.
    module_slots: Slots,
    /// The ports that the running worker has, with their slots in the exchange.
    port_slots: Slots,
}

/// A worker of an old graph, after another worker took over. It must be [closed](Former::close), on a thread that
/// processes no packets.
pub struct Former<C: Clock, S: Scheduler> {
    worker: Worker<C, S>,
    /// How long no packets were taken from ports because of the change, in ticks.
    pub pause: Ticks,
}

impl Exchange {
    /// Creates an exchange between the running workers, of which `running` is the telemetry, and the workers of the
    /// `next` graph. Nothing else may own the telemetry of the next workers yet. Functions and ports that will be taken
    /// over keep their own counters.
    #[must_use]
    pub fn between<C: Clock, S: Scheduler>(running: &[Arc<Telemetry>], next: &mut [Worker<C, S>]) -> Self {
        let named = |names: &mut dyn Iterator<Item = &str>| -> HashMap<String, usize> {
            names.enumerate().map(|(at, name)| (name.to_owned(), at)).collect()
        };
        let modules: Vec<_> = running
            .iter()
            .map(|telemetry| named(&mut telemetry.modules.iter().map(|module| module.name.as_str())))
            .collect();
        let ports: Vec<_> =
            running.iter().map(|telemetry| named(&mut telemetry.ports.iter().map(|port| port.name.as_str()))).collect();
        let mut exchange = Self {
            handed_over: Mutex::default(),
            next: Team::new(next.len()),
            modules: vec![Vec::new(); running.len()],
            ports: vec![Vec::new(); running.len()],
            moved: AtomicU64::new(0),
        };
        let mut slots = [0, 0];
        for worker in next {
            let telemetry = Arc::get_mut(&mut worker.telemetry).expect("no other owner yet");
            let inherited = &mut worker.inherited;
            for (module, name, from) in &inherited.modules {
                let Some(known) = modules.get(*from).and_then(|names| names.get(name)) else { continue };
                telemetry.modules[*module].own.clone_from(&running[*from].modules[*known].own);
                exchange.modules[*from].push((*known, slots[0]));
                inherited.module_slots.push((*module, slots[0]));
                slots[0] += 1;
            }
            for (port, name, from) in &inherited.ports {
                let Some(known) = ports.get(*from).and_then(|names| names.get(name)) else { continue };
                telemetry.ports[*port].counters = Arc::clone(&running[*from].ports[*known].counters);
                exchange.ports[*from].push((*known, slots[1]));
                inherited.port_slots.push((*port, slots[1]));
                slots[1] += 1;
            }
        }
        let mut handed = exchange.handed_over();
        handed.modules.resize_with(slots[0], || None);
        handed.ports.resize_with(slots[1], || None);
        drop(handed);
        exchange
    }

    /// Returns how many packets were held by functions that were taken over. These packets are still held.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn handed_over(&self) -> MutexGuard<'_, HandedOver> {
        self.handed_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Runs one step of handing over. The worker drains. When no packet waits in the whole team, it hands over its
    /// functions and ports, and returns true. Call this until it returns true, and not again.
    pub fn hand_over(&mut self, exchange: &Exchange) -> bool {
        if !self.draining {
            self.paused = self.clock.now();
        }
        self.drain();
        if !self.team.is_quiet() {
            return false;
        }
        self.exhausted_after = Some(self.desk.pool.exhausted());
        let mut handed = exchange.handed_over();
        for &(module, slot) in &exchange.modules[self.id] {
            let Some(function) = self.nodes[module].function.take() else { continue };
            let timer = self.timers.iter().find(|timer| timer.module == module).copied();
            let shelf = std::mem::take(&mut self.desk.shelves[module]);
            exchange.moved.fetch_add(shelf.len() as u64, Ordering::Relaxed);
            let flows = Arc::clone(&self.flows.keys);
            handed.modules[slot] = Some(HandedFunction { function, shelf, timer, flows });
        }
        for &(port, slot) in &exchange.ports[self.id] {
            let (gateway, telemetry) = (&mut self.gateways[port], &self.telemetry.ports[port]);
            let Some(open) = gateway.port.take() else { continue };
            self.handed_ports
                .push((telemetry.name.clone(), [telemetry.counters.received.get(), telemetry.counters.sent.get()]));
            handed.ports[slot] = Some((open, gateway.ready));
        }
        true
    }

    /// Takes over this worker's functions and ports from the exchange. All workers of the old graph must have handed
    /// over theirs.
    pub fn take_over_from(&mut self, exchange: &Exchange) {
        let mut handed = exchange.handed_over();
        let inherited = std::mem::take(&mut self.inherited);
        for (module, slot) in inherited.module_slots {
            let Some(HandedFunction { function, mut shelf, timer, flows }) = handed.modules[slot].take() else {
                continue;
            };
            self.nodes[module].function = Some(function);
            if shelf.len() > 0 {
                let words = self.flows.words();
                for packet in shelf.packets() {
                    // If the packet's path does not exist in the new graph, the packet belongs to no flow.
                    let key = flows.get(packet.flow() as usize);
                    packet.set_flow(key.and_then(|key| words.get(key)).copied().unwrap_or(u32::MAX));
                }
            }
            self.desk.shelves[module] = shelf;
            if let Some(timer) = timer {
                self.set_timer(module, timer.at, timer.keeps);
            }
        }
        for (port, slot) in inherited.port_slots {
            let Some((open, ready)) = handed.ports[slot].take() else { continue };
            (self.gateways[port].port, self.gateways[port].ready) = (Some(open), ready);
        }
        drop(handed);
        self.desk.now = self.clock.now();
        self.began = self.desk.now;
        // The exhaustions of the pool until now belong to the old graph.
        self.exhausted_before = self.desk.pool.exhausted();
        self.publish();
    }

    /// Replaces this worker by `next`, which has taken over functions and ports. The observer moves to `next`. Returns
    /// the old worker.
    pub fn succeed(&mut self, mut next: Self) -> Former<C, S> {
        // If this worker has no observer, `next` keeps the observer that it may have.
        if let Some(observer) = self.observer.take() {
            next.observe(Some(observer));
        }
        let former = std::mem::replace(self, next);
        let pause = self.clock.now().since(former.paused);
        self.telemetry.worker.pause.set(pause.0);
        Former { worker: former, pause }
    }

    /// Returns the pool of the worker's packets.
    #[must_use]
    pub fn pool(&self) -> Pool {
        self.desk.pool.clone()
    }

    /// Returns the worker's team.
    #[must_use]
    pub fn team(&self) -> &Arc<Team> {
        &self.team
    }
}

impl Exchange {
    /// Waits until every worker of the new graph has called this. A running worker that continues in the new graph
    /// calls it only after all running workers have handed over. So no worker takes over anything before that.
    pub fn meet(&self) {
        self.next.meet();
    }
}

impl<C: Clock, S: Scheduler> Former<C, S> {
    /// Wraps a worker that has handed over its functions and ports, and ends.
    #[must_use]
    pub fn of(worker: Worker<C, S>) -> Self {
        let pause = worker.clock.now().since(worker.paused);
        Self { worker, pause }
    }

    /// Returns the worker's counters up to the change.
    #[must_use]
    pub fn reading(&self, at: Ticks) -> Reading {
        self.worker.publish();
        let mut reading = Reading::of(&self.worker.telemetry, at);
        reading.settle(&self.worker.handed_ports);
        reading
    }

    /// Removes from a reading of the old worker the counts that the new workers continue: those of the functions and
    /// ports that they took over, and all gauges ([`Reading::retire`]). So old and new readings can be added.
    pub fn retire(&self, reading: &mut Reading) {
        let (modules, ports) = (&self.worker.telemetry.modules, &self.worker.telemetry.ports);
        let taken = |leader: usize| self.worker.nodes[leader].function.is_none();
        let modules =
            modules.iter().zip(&self.worker.leaders).filter(|(module, leader)| module.here && taken(**leader));
        let modules: HashSet<_> = modules.map(|(module, _)| module.name.as_str()).collect();
        let ports = ports.iter().zip(&self.worker.gateways).filter(|(_, gateway)| gateway.port.is_none());
        let ports: HashSet<_> = ports.map(|(port, _)| port.name.as_str()).collect();
        reading.retire(|name| modules.contains(name), |name| ports.contains(name));
    }

    /// Closes functions and ports that were not taken over. Drops the packets that they held (`held_at_close`).
    ///
    /// # Errors
    /// Those of [`Worker::close`].
    pub fn close(&mut self) -> Result<(), Vec<(String, String)>> {
        self.worker.close()
    }

    /// Sets the observer of the packets that the worker still holds.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) {
        self.worker.observe(observer);
    }

    /// Returns the worker's counters.
    #[must_use]
    pub fn telemetry(&self) -> Arc<Telemetry> {
        self.worker.telemetry()
    }
}
