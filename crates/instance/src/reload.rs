//! Reloads: a changed configuration replaces the running one, completely or not at all, while packets run.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};

use forebay_control::Arrangement;
use forebay_graph::{Exchange, Former, MakeError, NamedTable, Plan, Scheduler, Team, Telemetry, Worker, drive::Order};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, PipelineParts, Problems, Source, shown_setting};
use forebay_protocol::{Action, ConfigurationChange, Reloaded};
use forebay_units::Ticks;
use rtrb::PushError;
use thiserror::Error;

use crate::control_loop::ControlLoop;
use crate::cores::{CoreError, Cores};
use crate::running::{Running, WorkerSet, act, make_control_loop, origin, tables};
use crate::succession::{Successors, settle};
use crate::threads::{StartError, WaitingWorker, WorkerEnd, new_team, new_wakes, prepare_join};

/// Why a configuration was refused. The pipeline continues to run with the old configuration.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// The configuration has errors.
    #[error(transparent)]
    Problems(#[from] Problems),
    /// There are no cores for the workers of the configuration.
    #[error(transparent)]
    Cores(#[from] CoreError),
    /// The workers of the configuration cannot be created.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// A worker cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A running worker cannot change its core.
    #[error(
        "worker {worker}: core {core} cannot become core {requested} while packets run: keep core {core}, or restart \
         the pipeline"
    )]
    Bound {
        /// The worker.
        worker: usize,
        /// The core it is bound to.
        core: usize,
        /// The requested core.
        requested: usize,
    },
    /// The configuration could not be saved for the next start.
    #[error("cannot save the configuration for the next start: {0}")]
    Keep(std::io::Error),
    /// The run is ending.
    #[error("the run is ending")]
    Ending,
}

/// A new configuration with everything that it needs to take over. It is not in force yet. If it is dropped, the
/// running configuration stays as it is.
struct Prepared<S: Scheduler> {
    /// The differences from the running configuration.
    change: ConfigurationChange,
    /// The parts of the new configuration.
    made: PipelineParts,
    /// The tables that can be changed while packets run.
    tables: Vec<NamedTable>,
    /// The core of each worker, with the locks of the cores.
    cores: Cores,
    /// The team of all workers of the new configuration.
    team: Arc<Team>,
    /// The counters of each new worker.
    telemetries: Vec<Arc<Telemetry>>,
    /// Passes functions and ports from the old workers to the new ones.
    exchange: Arc<Exchange>,
    /// The successors of the workers that stay.
    successors: Vec<Worker<Tsc, S>>,
    /// The workers that are added. Their threads wait for their release.
    joining: Vec<WaitingWorker<S>>,
    /// The control loop, if the configuration has a controller.
    control_loop: Option<Arc<ControlLoop>>,
}

impl<S: Scheduler + 'static> Running<S> {
    /// Changes to another configuration. Everything that can fail happens before anything changes. Calls `accept`
    /// immediately before the configuration takes effect.
    pub(crate) fn change_to(
        &self,
        source: &Source,
        accept: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> Result<Reloaded, ReloadError> {
        let began = Tsc.now();
        // Reloads happen one after the other. Other requests wait only for the switch itself.
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let running = self.worker_set().made.clone();
        let checked = forebay_pipeline::prepare(source, conditions(), Some(&running))?;
        let reloaded = self.follow(began, checked, None, accept)?;
        // Without the control thread the pipeline keeps its triggers. The control report contains the error.
        if let Err(error) = self.control_thread.start(self)
            && let Some(control_loop) = &self.board.state().control_loop
        {
            control_loop.note(Some(format!("no thread for the controller: {error}")));
        }
        Ok(Reloaded { sets: source.given().iter().map(|set| shown_setting(set)).collect(), ..reloaded })
    }

    /// Changes which workers run the modules of the running configuration. Returns `None`, and changes nothing, if
    /// `present` is no longer the control loop of the running configuration. After the change, `next` is the control
    /// loop. The actions `in_force` are applied to the new workers.
    pub(crate) fn rearrange(
        &self,
        arrangement: &Arrangement,
        present: &Arc<ControlLoop>,
        next: &Arc<ControlLoop>,
        in_force: &[Action],
    ) -> Result<Option<Reloaded>, ReloadError> {
        let began = Tsc.now();
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.board.state().control_loop.as_ref().is_some_and(|control_loop| Arc::ptr_eq(control_loop, present)) {
            return Ok(None);
        }
        let running = self.worker_set().made.clone();
        let checked = forebay_pipeline::rearrange(&running, conditions(), arrangement)?;
        let reloaded = self.follow(began, checked, Some(Arc::clone(next)), &mut || Ok(()))?;
        next.note(act(&mut self.worker_set(), in_force).err());
        Ok(Some(reloaded))
    }

    /// Replaces the running configuration by a checked one. The new control loop is `control_loop` if it is given, else
    /// one for the controller that the configuration names. `began` is the start of the whole change, for its duration.
    /// The caller must hold the lock `changing`. After an error nothing has changed.
    pub(crate) fn follow(
        &self,
        began: Ticks,
        checked: forebay_pipeline::Prepared,
        control_loop: Option<Arc<ControlLoop>>,
        accept: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> Result<Reloaded, ReloadError> {
        let frequency = Tsc.frequency();
        // The cores are checked first, before files are created and ports are opened. After an error, everything that
        // was created is dropped before the function returns. The drop waits for the threads of the workers that were
        // to join.
        let cores = self.choose_beside(checked.cores())?;
        let loaded = checked.open()?;
        let mut workers = self.worker_set();
        let prepared = self.prepare(&mut workers, loaded, cores, control_loop)?;
        accept().map_err(ReloadError::Keep)?;

        // Nothing can fail from here on. Readers of counters wait for this lock.
        let mut state = self.board.state();
        let Prepared { change, made, tables, cores, team, telemetries, exchange, successors, joining, control_loop } =
            prepared;
        let formers = switch(&mut workers, successors, joining, &exchange);
        let mut reloaded = Reloaded { change, ..Reloaded::default() };
        reloaded.took_ms = frequency.seconds(Tsc.now().since(began)) * 1e3;
        (state.telemetries, state.team, state.origin) = (telemetries, team, origin(&cores));
        state.control_loop = control_loop;
        state.machine.watch(&workers.system_threads());
        reloaded.cores = cores.to_vec();
        (workers.made, workers.tables, workers.cores) = (made, tables, cores);
        let result = settle(&mut state, formers, &exchange, self.board.began(), || Tsc.now(), &mut workers.watch);
        (reloaded.dropped, reloaded.missing) = (result.dropped, result.missing);
        reloaded.pause_us = frequency.micros(result.pause.0 as f64);
        workers.troubles.extend(result.troubles);
        self.free_cores(&workers);
        Ok(reloaded)
    }

    /// Returns an error if the run is ending or a worker has ended.
    fn refuse_ending(&self, workers: &WorkerSet<S>) -> Result<(), ReloadError> {
        let ending =
            self.stop.load(Ordering::Relaxed) || workers.threads.iter().any(|thread| thread.handle.is_finished());
        if ending { Err(ReloadError::Ending) } else { Ok(()) }
    }

    /// Chooses a core for each worker. Workers that stay keep their cores.
    fn choose_beside(&self, cores: &[Option<usize>]) -> Result<Cores, ReloadError> {
        let workers = self.worker_set();
        self.refuse_ending(&workers)?;
        let bound: Vec<_> = workers.threads.iter().map(|thread| thread.core).take(cores.len()).collect();
        let other_core = |worker: usize| Some((worker, cores[worker].filter(|core| *core != bound[worker])?));
        if let Some((worker, requested)) = (0..bound.len()).find_map(other_core) {
            return Err(ReloadError::Bound { worker, core: bound[worker], requested });
        }
        let requested: Vec<_> =
            bound.iter().map(|core| Some(*core)).chain(cores[bound.len()..].iter().copied()).collect();
        Ok(workers.cores.choose_next(&requested)?)
    }

    /// Creates the workers of the plans, threads for the workers that join, and the exchange between old and new
    /// workers. `given` is a control loop to use in place of a new one.
    fn prepare(
        &self,
        workers: &mut WorkerSet<S>,
        loaded: Loaded,
        cores: Cores,
        given: Option<Arc<ControlLoop>>,
    ) -> Result<Prepared<S>, ReloadError> {
        self.refuse_ending(workers)?;
        let Loaded { plans, made, .. } = loaded;
        let change = workers.made.change_to(&made);
        let tables = tables_after(workers, &plans);
        let control_loop = match given {
            Some(given) => Some(given),
            None => make_control_loop(&made, &plans[0], &self.control_thread.costs).map_err(MakeError::from)?,
        };
        let pool = |worker: usize| workers.threads.get(worker).map(|thread| thread.pool.clone());
        // Workers that stay keep their handles, because they keep their threads.
        let mut wakes: Vec<_> =
            workers.threads.iter().map(|thread| Arc::clone(&thread.wake)).take(plans.len()).collect();
        wakes.extend(new_wakes(plans.len() - wakes.len())?);
        let team = new_team(&wakes);
        let Successors { workers: mut successors, exchange } =
            Successors::make(plans, &team, &self.board.telemetries(), &[], || Tsc, pool)?;
        let exchange = Arc::new(exchange);
        let telemetries = successors.iter().map(Worker::telemetry).collect();
        let stay = workers.threads.len().min(successors.len());
        let mut joining = Vec::new();
        let joiners = successors.split_off(stay).into_iter().zip(&cores[stay..]).zip(wakes.split_off(stay));
        for ((mut worker, core), wake) in joiners {
            worker.observe((workers.watch)(stay + joining.len()));
            let (pool, number) = (worker.pool(), workers.started);
            workers.started += 1;
            joining.push(prepare_join(
                Box::new(worker),
                pool,
                *core,
                number,
                wake,
                Arc::clone(&exchange),
                Arc::clone(&self.stop),
            )?);
        }
        Ok(Prepared { change, made, tables, cores, team, telemetries, exchange, successors, joining, control_loop })
    }
}

/// Returns the conditions of a pipeline that runs on the machine's clock.
pub(crate) fn conditions() -> Conditions {
    Conditions { frequency: Tsc.frequency(), simulated: false }
}

/// Returns the tables that can be changed when `plans` are in force: the tables of new modules, and the present tables
/// of modules that are taken over.
fn tables_after<S: Scheduler>(workers: &WorkerSet<S>, plans: &[Plan]) -> Vec<NamedTable> {
    let modules = plans.iter().flat_map(|plan| &plan.modules);
    let kept: HashSet<_> = modules.filter(|module| module.from.is_some()).map(|module| &module.name).collect();
    let mut all = tables(plans);
    // A module that is added to further workers has its tables in `all` already.
    let is_listed = |table: &NamedTable| all.iter().any(|new| (&new.module, &new.name) == (&table.module, &table.name));
    let others = workers.tables.iter().filter(|table| kept.contains(&table.module) && !is_listed(table));
    let others: Vec<_> = others.cloned().collect();
    all.extend(others);
    all
}

/// Switches all workers to their successors at the same time: starts the workers that join, and ends the threads of
/// workers without a successor. Returns the old workers. It cannot fail.
fn switch<S: Scheduler + 'static>(
    workers: &mut WorkerSet<S>,
    successors: Vec<Worker<Tsc, S>>,
    joining: Vec<WaitingWorker<S>>,
    exchange: &Arc<Exchange>,
) -> Vec<Former<Tsc, S>> {
    let (former, formers) = channel();
    let stay = successors.len();
    let mut successors = successors.into_iter();
    for thread in &mut workers.threads {
        let next = successors.next().map(Box::new);
        let mut order = Order::Change { next, exchange: Arc::clone(exchange), former: former.clone() };
        // The caller holds the lock of the worker set, so that no other thread gives orders. The worker makes room
        // soon.
        while let Err(PushError::Full(returned)) = thread.give(order) {
            order = returned;
            std::thread::yield_now();
        }
    }
    drop(former);
    let leaving = workers.threads.split_off(stay);
    workers.threads.extend(joining.into_iter().filter_map(WaitingWorker::release));
    let mut formers: Vec<_> = formers.iter().collect();
    for thread in leaving {
        if let Ok(WorkerEnd::Succeeded(former)) = thread.handle.join() {
            formers.push(*former);
        }
    }
    formers
}
