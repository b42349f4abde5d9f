//! A worker takes over from the one before: the change of a graph while packets run.
//!
//! The new graphs are made aside. Then all workers of the old one drain what waits, each lays down what it has, and once
//! all have done so each takes up what is its own in the new graph. What is not taken up (functions and ports that are
//! gone, with the old graph itself) is left to whoever asked for the change: closing files and giving memory back need
//! not keep packets waiting.

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

/// What goes from one graph into the next.
struct Part {
    function: Box<dyn Function>,
    shelf: Shelf,
    /// When it asked to be woken.
    timer: Option<Timer>,
    /// What the flow words of the packets on the shelf stand for.
    flows: Arc<[u64]>,
}

/// What lies on the exchange, by place.
#[derive(Default)]
struct Laid {
    modules: Vec<Option<Part>>,
    ports: Vec<Option<(Box<dyn Port>, Ready)>>,
}

/// Which of a worker's own modules or ports goes where on the exchange.
type Places = Vec<(usize, usize)>;

/// Where the workers of a graph lay down what those of the next take up.
pub struct Exchange {
    laid: Mutex<Laid>,
    /// The workers of the next graph.
    next: Team,
    /// By running worker: what it lays down.
    modules: Vec<Places>,
    ports: Vec<Places>,
    /// Packets that functions hold which are taken over.
    moved: AtomicU64,
}

/// What a new graph's worker takes over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heritage {
    /// The module by its place in the plan, its name, and the worker that has it.
    pub(crate) modules: Vec<(usize, String, usize)>,
    /// The port likewise.
    pub(crate) ports: Vec<(usize, String, usize)>,
    /// The same by places on the exchange.
    taken_modules: Places,
    taken_ports: Places,
}

/// What a worker was before it was succeeded: to be [closed](Former::close), not on the way of packets.
pub struct Former<C: Clock, S: Scheduler> {
    worker: Worker<C, S>,
    /// How long no packet was taken from ports, in ticks.
    pub pause: Ticks,
}

impl Exchange {
    /// An exchange from running workers, which count here, to the next ones, which nobody has seen yet: the own counters of
    /// functions and ports that will be taken over go on.
    #[must_use]
    pub fn between<C: Clock, S: Scheduler>(running: &[Arc<Telemetry>], next: &mut [Worker<C, S>]) -> Self {
        let named = |names: &mut dyn Iterator<Item = &str>| -> HashMap<String, usize> {
            names.enumerate().map(|(at, name)| (name.to_owned(), at)).collect()
        };
        let modules: Vec<_> =
            running.iter().map(|told| named(&mut told.modules.iter().map(|module| module.name.as_str()))).collect();
        let ports: Vec<_> =
            running.iter().map(|told| named(&mut told.ports.iter().map(|port| port.name.as_str()))).collect();
        let mut exchange = Self {
            laid: Mutex::default(),
            next: Team::new(next.len()),
            modules: vec![Vec::new(); running.len()],
            ports: vec![Vec::new(); running.len()],
            moved: AtomicU64::new(0),
        };
        let mut places = [0, 0];
        for worker in next {
            let telemetry = Arc::get_mut(&mut worker.telemetry).expect("nobody has seen the next workers yet");
            let heritage = &mut worker.heritage;
            for (module, name, from) in &heritage.modules {
                let Some(known) = modules.get(*from).and_then(|names| names.get(name)) else { continue };
                telemetry.modules[*module].own.clone_from(&running[*from].modules[*known].own);
                exchange.modules[*from].push((*known, places[0]));
                heritage.taken_modules.push((*module, places[0]));
                places[0] += 1;
            }
            for (port, name, from) in &heritage.ports {
                let Some(known) = ports.get(*from).and_then(|names| names.get(name)) else { continue };
                telemetry.ports[*port].counters = Arc::clone(&running[*from].ports[*known].counters);
                exchange.ports[*from].push((*known, places[1]));
                heritage.taken_ports.push((*port, places[1]));
                places[1] += 1;
            }
        }
        let mut laid = exchange.laid();
        laid.modules.resize_with(places[0], || None);
        laid.ports.resize_with(places[1], || None);
        drop(laid);
        exchange
    }

    /// How many packets were held, and still are, by functions that were taken over.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn laid(&self) -> MutexGuard<'_, Laid> {
        self.laid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// One step of laying down: drains; once nothing waits in the whole team, lays down what others take up. Whether that
    /// is done: to be called until it is.
    pub fn lay_down(&mut self, exchange: &Exchange) -> bool {
        if !self.draining {
            self.paused = self.clock.now();
        }
        self.drain();
        if !self.team.is_quiet() {
            return false;
        }
        self.exhausted_after = Some(self.desk.pool.exhausted());
        let mut laid = exchange.laid();
        for &(module, place) in &exchange.modules[self.id] {
            let Some(function) = self.nodes[module].function.take() else { continue };
            let timer = self.timers.iter().find(|timer| timer.module == module).copied();
            let shelf = std::mem::take(&mut self.desk.shelves[module]);
            exchange.moved.fetch_add(shelf.len() as u64, Ordering::Relaxed);
            let flows = Arc::clone(&self.flows.keys);
            laid.modules[place] = Some(Part { function, shelf, timer, flows });
        }
        for &(port, place) in &exchange.ports[self.id] {
            let (gateway, told) = (&mut self.gateways[port], &self.telemetry.ports[port]);
            let Some(open) = gateway.port.take() else { continue };
            self.laid_ports.push((told.name.clone(), [told.counters.received.get(), told.counters.sent.get()]));
            laid.ports[place] = Some((open, gateway.ready));
        }
        true
    }

    /// Takes up what this worker of the new graph has from the old one, whose workers have all laid down theirs.
    pub fn take_up(&mut self, exchange: &Exchange) {
        let mut laid = exchange.laid();
        let heritage = std::mem::take(&mut self.heritage);
        for (module, place) in heritage.taken_modules {
            let Some(Part { function, mut shelf, timer, flows }) = laid.modules[place].take() else { continue };
            self.nodes[module].function = Some(function);
            if shelf.len() > 0 {
                let words = self.flows.words();
                for packet in shelf.packets() {
                    // A path that is not there any more is of no flow.
                    let key = flows.get(packet.flow() as usize);
                    packet.set_flow(key.and_then(|key| words.get(key)).copied().unwrap_or(u32::MAX));
                }
            }
            self.desk.shelves[module] = shelf;
            if let Some(timer) = timer {
                self.set_timer(module, timer.at, timer.keeps);
            }
        }
        for (port, place) in heritage.taken_ports {
            let Some((open, ready)) = laid.ports[place].take() else { continue };
            (self.gateways[port].port, self.gateways[port].ready) = (Some(open), ready);
        }
        drop(laid);
        self.desk.now = self.clock.now();
        self.began = self.desk.now;
        // The pool was another graph's before.
        self.exhausted_before = self.desk.pool.exhausted();
        self.publish();
    }

    /// Becomes `next`, which has taken up what is its own.
    pub fn succeed(&mut self, mut next: Self) -> Former<C, S> {
        // One that joins has been given its own.
        if let Some(observer) = self.observer.take() {
            next.observe(Some(observer));
        }
        let former = std::mem::replace(self, next);
        let pause = self.clock.now().since(former.paused);
        self.telemetry.worker.pause.set(pause.0);
        Former { worker: former, pause }
    }

    /// The worker's packets come from here.
    #[must_use]
    pub fn pool(&self) -> Pool {
        self.desk.pool.clone()
    }

    /// The worker's team.
    #[must_use]
    pub fn team(&self) -> &Arc<Team> {
        &self.team
    }
}

impl Exchange {
    /// Waits until every worker of the new graph has come here, which those that run do when all have laid down theirs: none
    /// takes up anything before.
    pub fn meet(&self) {
        self.next.meet();
    }
}

impl<C: Clock, S: Scheduler> Former<C, S> {
    /// Of a worker that has laid down what others take up, and ends.
    #[must_use]
    pub fn of(worker: Worker<C, S>) -> Self {
        let pause = worker.clock.now().since(worker.paused);
        Self { worker, pause }
    }

    /// What it counted until it was succeeded.
    #[must_use]
    pub fn reading(&self, at: Ticks) -> Reading {
        self.worker.publish();
        let mut reading = Reading::of(&self.worker.telemetry, at);
        reading.settle(&self.worker.laid_ports);
        reading
    }

    /// Makes what it counted one of the past: what went on is counted by those that took over.
    pub fn retire(&self, reading: &mut Reading) {
        let (modules, ports) = (&self.worker.telemetry.modules, &self.worker.telemetry.ports);
        let taken = |leader: usize| self.worker.nodes[leader].function.is_none();
        let modules = modules.iter().zip(&self.worker.leaders).filter(|(told, leader)| told.here && taken(**leader));
        let modules: HashSet<_> = modules.map(|(told, _)| told.name.as_str()).collect();
        let ports = ports.iter().zip(&self.worker.gateways).filter(|(_, gateway)| gateway.port.is_none());
        let ports: HashSet<_> = ports.map(|(told, _)| told.name.as_str()).collect();
        reading.retire(|name| modules.contains(name), |name| ports.contains(name));
    }

    /// Closes functions and ports that were not taken over; packets that they held are dropped (`wound_up`).
    ///
    /// # Errors
    /// As [`Worker::close`].
    pub fn close(&mut self) -> Result<(), Vec<(String, String)>> {
        self.worker.close()
    }

    /// Who watches what becomes of the packets that it still holds.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) {
        self.worker.observe(observer);
    }

    /// What it counted.
    #[must_use]
    pub fn telemetry(&self) -> Arc<Telemetry> {
        self.worker.telemetry()
    }
}
