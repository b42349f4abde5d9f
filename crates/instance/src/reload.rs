//! A changed configuration takes the place of the running one, whole or not at all, while packets run.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};

use forebay_control::Arrangement;
use forebay_graph::{Exchange, Former, MakeError, NamedTable, Plan, Scheduler, Team, Telemetry, Worker, drive::Order};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Made, Problems, Source, shown_setting};
use forebay_protocol::{Action, ConfigurationChange, Reloaded};
use forebay_units::Ticks;
use rtrb::PushError;
use thiserror::Error;

use crate::control_loop::ControlLoop;
use crate::cores::{CoreError, Cores};
use crate::running::{Crew, Running, act, make_control_loop, origin, tables};
use crate::succession::{Successors, settle};
use crate::threads::{Over, StartError, Waiting, join};

/// Why a configuration was refused: the old one runs on.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// What is wrong with it.
    #[error(transparent)]
    Problems(#[from] Problems),
    /// Its workers cannot be given cores.
    #[error(transparent)]
    Cores(#[from] CoreError),
    /// It cannot be run.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// A worker cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A worker that runs cannot change its core.
    #[error("worker {worker} runs on core {core} and would run on {asked}: it cannot change while packets run")]
    Bound {
        /// The worker.
        worker: usize,
        /// The core it is bound to.
        core: usize,
        /// The core asked for.
        asked: usize,
    },
    /// It could not be kept for the next start.
    #[error("the configuration cannot be kept for the next start: {0}")]
    Keep(std::io::Error),
    /// The run is ending.
    #[error("the run is ending")]
    Ending,
}

/// A configuration with all that it needs to take over, and nothing of it in force.
struct Prepared<S: Scheduler> {
    change: ConfigurationChange,
    made: Made,
    tables: Vec<NamedTable>,
    cores: Cores,
    team: Arc<Team>,
    telemetries: Vec<Arc<Telemetry>>,
    exchange: Arc<Exchange>,
    /// What workers that run on become.
    heirs: Vec<Worker<Tsc, S>>,
    /// Workers that join.
    joining: Vec<Waiting<S>>,
    /// What sets the triggers.
    control_loop: Option<Arc<ControlLoop>>,
}

impl<S: Scheduler + 'static> Running<S> {
    /// Changes to another configuration. Everything that can fail is done before anything changes.
    pub(crate) fn change_to(
        &self,
        source: &Source,
        accept: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> Result<Reloaded, ReloadError> {
        let began = Tsc.now();
        // One change after the other; whoever asks for something else waits for the switch alone.
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let running = self.crew().made.clone();
        let checked = forebay_pipeline::prepare(source, conditions(), Some(&running))?;
        let told = self.follow(began, checked, None, accept)?;
        // Without a thread the pipeline runs with the triggers that it has: that is told as what went wrong with the control.
        if let Err(error) = self.control_thread.start(self)
            && let Some(control_loop) = &self.board.state().control_loop
        {
            control_loop.note(Some(format!("no thread for the controller: {error}")));
        }
        Ok(Reloaded { sets: source.given().iter().map(|set| shown_setting(set)).collect(), ..told })
    }

    /// Arranges the running configuration otherwise, if it still is the one that `present` decides for: whether it was. `next` decides
    /// from then on, and what `in_force` says stays so.
    pub(crate) fn rearrange(
        &self,
        arrangement: &Arrangement,
        present: &Arc<ControlLoop>,
        next: &Arc<ControlLoop>,
        in_force: &[Action],
    ) -> Result<Option<Reloaded>, ReloadError> {
        let began = Tsc.now();
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.board.state().control_loop.as_ref().is_some_and(|control_loop| Arc::ptr_eq(control_loop, present)) {
            return Ok(None);
        }
        let running = self.crew().made.clone();
        let checked = forebay_pipeline::rearrange(&running, conditions(), arrangement)?;
        let told = self.follow(began, checked, Some(Arc::clone(next)), &mut || Ok(()))?;
        next.note(act(&mut self.crew(), in_force).err());
        Ok(Some(told))
    }

    /// Has another configuration follow. What sets the triggers is what is given, or what it says itself.
    pub(crate) fn follow(
        &self,
        began: Ticks,
        checked: forebay_pipeline::Prepared,
        control_loop: Option<Arc<ControlLoop>>,
        accept: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> Result<Reloaded, ReloadError> {
        let frequency = Tsc.frequency();
        // What can be refused without asking anybody else is, before files are made and ports opened: from here on
        // everything is undone by being dropped, before the refusal is told: threads that were to join are waited for.
        let cores = self.choose_beside(checked.cores())?;
        let loaded = checked.open()?;
        let mut crew = self.crew();
        let prepared = self.prepare(&mut crew, loaded, cores, control_loop)?;
        accept().map_err(ReloadError::Keep)?;

        // From here on nothing can fail but the machine itself. Whoever reads counters waits.
        let mut state = self.board.state();
        let Prepared { change, made, tables, cores, team, telemetries, exchange, heirs, joining, control_loop } =
            prepared;
        let formers = switch(&mut crew, heirs, joining, &exchange);
        let mut told = Reloaded { change, ..Reloaded::default() };
        told.took_ms = frequency.seconds(Tsc.now().since(began)) * 1e3;
        (state.telemetries, state.team, state.origin) = (telemetries, team, origin(&cores));
        state.control_loop = control_loop;
        state.machine.watch(&crew.watched());
        told.cores = cores.to_vec();
        (crew.made, crew.tables, crew.cores) = (made, tables, cores);
        let left = settle(&mut state, formers, &exchange, self.board.began(), || Tsc.now(), &mut crew.watch);
        (told.dropped, told.missing) = (left.dropped, left.missing);
        told.pause_us = frequency.micros(left.pause.0 as f64);
        crew.troubles.extend(left.troubles);
        Ok(told)
    }

    fn refuse_ending(&self, crew: &Crew<S>) -> Result<(), ReloadError> {
        let ending = self.stop.load(Ordering::Relaxed) || crew.threads.iter().any(|thread| thread.handle.is_finished());
        if ending { Err(ReloadError::Ending) } else { Ok(()) }
    }

    /// A core for each worker: whoever runs on keeps its own.
    fn choose_beside(&self, cores: &[Option<usize>]) -> Result<Cores, ReloadError> {
        let crew = self.crew();
        self.refuse_ending(&crew)?;
        let bound: Vec<_> = crew.threads.iter().map(|thread| thread.core).take(cores.len()).collect();
        let other = |at: usize| Some((at, cores[at].filter(|core| *core != bound[at])?));
        if let Some((worker, asked)) = (0..bound.len()).find_map(other) {
            return Err(ReloadError::Bound { worker, core: bound[worker], asked });
        }
        let asked: Vec<_> = bound.iter().map(|core| Some(*core)).chain(cores[bound.len()..].iter().copied()).collect();
        Ok(crew.cores.choose_next(&asked)?)
    }

    /// Makes workers of the plans, threads for those that join, and what is between them and those that run.
    fn prepare(
        &self,
        crew: &mut Crew<S>,
        loaded: Loaded,
        cores: Cores,
        given: Option<Arc<ControlLoop>>,
    ) -> Result<Prepared<S>, ReloadError> {
        self.refuse_ending(crew)?;
        let Loaded { plans, made, .. } = loaded;
        let change = crew.made.change_to(&made);
        let tables = tables_over(crew, &plans);
        let control_loop = match given {
            Some(given) => Some(given),
            None => make_control_loop(&made, &plans[0], &self.control_thread.costs).map_err(MakeError::from)?,
        };
        let pool = |worker: usize| crew.threads.get(worker).map(|thread| thread.pool.clone());
        let made_next = Successors::make(plans, &self.board.telemetries(), &[], || Tsc, pool)?;
        let Successors { team, workers: mut next, exchange } = made_next;
        let exchange = Arc::new(exchange);
        let telemetries = next.iter().map(Worker::telemetry).collect();
        let stay = crew.threads.len().min(next.len());
        let mut joining = Vec::new();
        for (mut worker, core) in next.split_off(stay).into_iter().zip(&cores[stay..]) {
            worker.observe((crew.watch)(stay + joining.len()));
            let (pool, number) = (worker.pool(), crew.started);
            crew.started += 1;
            joining.push(join(Box::new(worker), pool, *core, number, Arc::clone(&exchange), Arc::clone(&self.stop))?);
        }
        Ok(Prepared { change, made, tables, cores, team, telemetries, exchange, heirs: next, joining, control_loop })
    }
}

pub(crate) fn conditions() -> Conditions {
    Conditions { frequency: Tsc.frequency(), simulated: false }
}

/// The tables that can be changed once `plans` are in force: modules that are taken over keep theirs.
fn tables_over<S: Scheduler>(crew: &Crew<S>, plans: &[Plan]) -> Vec<NamedTable> {
    let modules = plans.iter().flat_map(|plan| &plan.modules);
    let kept: HashSet<_> = modules.filter(|module| module.from.is_some()).map(|module| &module.name).collect();
    let mut all = tables(plans);
    // Those of a module that has come to further workers are told already.
    let told = |table: &NamedTable| all.iter().any(|new| (&new.module, &new.name) == (&table.module, &table.name));
    let others = crew.tables.iter().filter(|table| kept.contains(&table.module) && !told(table));
    let others: Vec<_> = others.cloned().collect();
    all.extend(others);
    all
}

/// Has all workers change together; what they were.
fn switch<S: Scheduler + 'static>(
    crew: &mut Crew<S>,
    heirs: Vec<Worker<Tsc, S>>,
    joining: Vec<Waiting<S>>,
    exchange: &Arc<Exchange>,
) -> Vec<Former<Tsc, S>> {
    let (former, formers) = channel();
    let stay = heirs.len();
    let mut heirs = heirs.into_iter();
    for thread in &mut crew.threads {
        let next = heirs.next().map(Box::new);
        let mut order = Order::Change { next, exchange: Arc::clone(exchange), former: former.clone() };
        // Only the crew gives orders: there will be room.
        while let Err(PushError::Full(back)) = thread.give(order) {
            order = back;
            std::thread::yield_now();
        }
    }
    drop(former);
    let leaving = crew.threads.split_off(stay);
    crew.threads.extend(joining.into_iter().filter_map(Waiting::go));
    let mut formers: Vec<_> = formers.iter().collect();
    for thread in leaving {
        if let Ok(Over::Succeeded(former)) = thread.handle.join() {
            formers.push(*former);
        }
    }
    formers
}
