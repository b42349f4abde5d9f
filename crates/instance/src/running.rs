//! A running pipeline: starts its workers together, gives them orders, and ends them together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use forebay_control::{Costs, Profiled};
use forebay_graph::{
    FlowError, MakeError, NamedTable, Observer, Plan, RunToCompletion, Scheduler, WeightedFair, drive::Order, links,
    report::RunFacts,
};
use forebay_measure::{Clock, Tsc, machine::restrict};
use forebay_pipeline::{PipelineParts, Source};
use forebay_protocol::{
    Action, Census, Moved, Reloaded, SchedulerKind,
    graph::{GraphReport, GraphWorker},
    report::FigureSource,
};
use forebay_units::Ticks;

use crate::board::Board;
use crate::control_loop::{ControlInputs, ControlLoop};
use crate::control_thread::ControlThread;
use crate::cores::Cores;
use crate::moves::{MoveOrder, NotMoved};
use crate::reload::ReloadError;
use crate::threads::{StartError, Thread, WaitingWorker, WorkerEnd, WorkerParts, new_team, new_wakes, start_worker};

/// How long a worker may take to respond to an order.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// When the run ended, on the workers' clock.
    pub at: Ticks,
    /// The ports and modules that failed, and why.
    pub troubles: Vec<(String, String)>,
}

/// Creates the observer of a worker, given its number. Returns `None` if the worker is not observed.
pub type Watch = Box<dyn FnMut(usize) -> Option<Box<dyn Observer>> + Send>;

/// The system's numbers for a worker's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerThread {
    /// The worker's number.
    pub worker: usize,
    /// The core that the thread is bound to.
    pub core: usize,
    /// The thread ID (`/proc/self/task/TID`).
    pub tid: u32,
}

/// A running pipeline, independent of the scheduler of its workers.
pub trait Instance: Send + Sync {
    /// Returns the counters.
    fn board(&self) -> Arc<Board>;

    /// Returns the number of workers.
    fn workers(&self) -> usize;

    /// Returns the workers' threads.
    fn threads(&self) -> Vec<WorkerThread>;

    /// Keeps all other threads of this process off the workers' cores while another core is allowed, now and after each
    /// change. Only for a process that runs one instance and nothing else.
    fn keep_cores_free(&self);

    /// Returns the running graph, with the workers' cores.
    fn graph(&self) -> GraphReport;

    /// Returns the tables that can be changed while packets run.
    fn tables(&self) -> Vec<NamedTable>;

    /// Returns where every packet is. Each worker counts between two of its turns, so that no packet is missing. A
    /// packet on its way to another worker is counted in `handed`, and not yet in `taken`. Returns `None` if a worker
    /// does not respond.
    fn census(&self) -> Option<Census>;

    /// Applies actions on every worker. A worker applies all of them or none.
    ///
    /// # Errors
    /// Returns the reason if a worker refuses an action, does not respond, or has too many orders waiting.
    fn act(&self, actions: &[Action]) -> Result<(), String>;

    /// Sets the observer of each worker, also of workers that join later, to the one that `watch` creates.
    fn observe(&self, watch: Watch);

    /// Changes to the configuration `source`. Calls `accept` after all checks, just before the configuration takes
    /// effect.
    ///
    /// # Errors
    /// Returns a [`ReloadError`] if the configuration is refused. Then nothing has changed.
    fn reload(&self, source: &Source, accept: &mut dyn FnMut() -> std::io::Result<()>)
    -> Result<Reloaded, ReloadError>;

    /// Moves modules to other workers, and returns the new configuration; `None` if no module had to move. Calls
    /// `accept` with the new configuration after all checks, just before it takes effect.
    ///
    /// # Errors
    /// Returns [`NotMoved`] if modules cannot move. Then nothing has changed.
    fn move_modules(
        &self,
        order: MoveOrder<'_>,
        accept: &mut dyn FnMut(&Source) -> std::io::Result<()>,
    ) -> Result<(Moved, Option<Source>), NotMoved>;

    /// Returns whether a worker has ended by itself. Only a defect can cause this.
    fn has_died(&self) -> bool;

    /// Ends the run: drains queued and held packets, and closes ports and functions. A second call does nothing.
    fn end(&self) -> Outcome;
}

/// Starts a worker for each plan, on these cores, with the scheduler that the plans name. `watch` creates the observer
/// of each worker. If the configuration names a controller, also starts the control loop with `control_inputs`.
///
/// # Errors
/// Returns a [`StartError`] if the pipeline cannot start. Then nothing runs.
pub fn start(
    plans: Vec<Plan>,
    cores: impl Into<Cores>,
    made: PipelineParts,
    watch: Watch,
    control_inputs: ControlInputs,
) -> Result<Arc<dyn Instance>, StartError> {
    let cores = cores.into();
    Ok(match plans[0].scheduler {
        SchedulerKind::RunToCompletion => Running::<RunToCompletion>::start(plans, cores, made, watch, control_inputs)?,
        SchedulerKind::WeightedFair => Running::<WeightedFair>::start(plans, cores, made, watch, control_inputs)?,
    })
}

/// A running pipeline.
pub(crate) struct Running<S: Scheduler> {
    /// A reference to this value, for the control thread.
    pub(crate) own: Weak<Self>,
    pub(crate) board: Arc<Board>,
    pub(crate) stop: Arc<AtomicBool>,
    workers: Mutex<WorkerSet<S>>,
    /// Locked during a reload.
    pub(crate) changing: Mutex<()>,
    /// Whether other threads of this process are kept off the workers' cores.
    keeps_cores_free: AtomicBool,
    /// Runs the control loop, if the configuration has a controller.
    pub(crate) control_thread: ControlThread,
}

/// The worker threads and the configuration that they run.
pub(crate) struct WorkerSet<S: Scheduler> {
    pub(crate) threads: Vec<Thread<S>>,
    pub(crate) cores: Cores,
    pub(crate) made: PipelineParts,
    /// The tables that can be changed while packets run.
    pub(crate) tables: Vec<NamedTable>,
    /// Creates the observers of workers.
    pub(crate) watch: Watch,
    /// The errors of functions and ports that have been removed.
    pub(crate) troubles: Vec<(String, String)>,
    /// The number of threads started so far: the number of the next thread.
    pub(crate) started: usize,
}

impl<S: Scheduler + 'static> Running<S> {
    /// Restricts the process's threads that are not workers to cores without a worker, if that was requested.
    ///
    /// Threads started later inherit this from the thread that starts them. Threads that functions start (writers of
    /// logs) inherit the core of the worker on which the function is made, so every change restricts them again.
    pub(crate) fn free_cores(&self, workers: &WorkerSet<S>) {
        if !self.keeps_cores_free.load(Ordering::Relaxed) {
            return;
        }
        let worker_threads: Vec<u32> = workers.threads.iter().map(|thread| thread.tid).collect();
        let cores = workers.cores.beside();
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse::<u32>().ok());
        for thread in numbers.filter(|thread| !worker_threads.contains(thread)) {
            // A thread may have ended meanwhile. Without the right to change it, it stays where it is.
            let _ = restrict(thread, &cores);
        }
    }

    fn start(
        plans: Vec<Plan>,
        cores: Cores,
        made: PipelineParts,
        mut watch: Watch,
        control_inputs: ControlInputs,
    ) -> Result<Arc<Self>, StartError> {
        let control_thread = ControlThread::new(control_inputs);
        let control_loop = make_control_loop(&made, &plans[0], &control_thread.costs).map_err(MakeError::from)?;
        let wakes = new_wakes(plans.len())?;
        let team = new_team(&wakes);
        let rings = links(&plans[0], &plans[0].placement);
        let tables = tables(&plans);
        let stop = Arc::new(AtomicBool::new(false));
        // Every worker waits until all others are ready, so that a failed start leaves nothing behind.
        let (mut starting, mut failed) = (Vec::new(), None);
        for (((plan, ring), wake), core) in plans.into_iter().zip(rings).zip(wakes).zip(&*cores) {
            let observer = watch(plan.worker);
            let parts = WorkerParts { plan, links: ring, team: Arc::clone(&team), wake, observer };
            match start_worker::<S>(parts, *core, Arc::clone(&stop)) {
                Ok(ready) => starting.push(ready),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let (mut threads, mut telemetries, mut began) = (Vec::new(), Vec::new(), Tsc.now());
        for (thread, facts) in starting {
            telemetries.push(facts.telemetry);
            began = began.min(facts.began);
            threads.push(thread);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let origin = origin(&cores);
        let threads = threads.into_iter().filter_map(WaitingWorker::release).collect::<Vec<_>>();
        let started = threads.len();
        let workers = WorkerSet { threads, cores, made, tables, watch, troubles: Vec::new(), started };
        let running = Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            board: Arc::new(Board::new(began, telemetries, team, origin, control_loop)),
            stop,
            workers: Mutex::new(workers),
            changing: Mutex::new(()),
            keeps_cores_free: AtomicBool::new(false),
            control_thread,
        });
        running.board.state().machine.watch(&running.threads());
        running.control_thread.start(&running)?;
        Ok(running)
    }

    pub(crate) fn worker_set(&self) -> MutexGuard<'_, WorkerSet<S>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Scheduler + 'static> Instance for Running<S> {
    fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    fn workers(&self) -> usize {
        self.worker_set().threads.len()
    }

    fn threads(&self) -> Vec<WorkerThread> {
        self.worker_set().system_threads()
    }

    fn keep_cores_free(&self) {
        self.keeps_cores_free.store(true, Ordering::Relaxed);
        self.free_cores(&self.worker_set());
    }

    fn graph(&self) -> GraphReport {
        let workers = self.worker_set();
        let cores = workers.threads.iter().enumerate().map(|(id, thread)| GraphWorker { id, core: Some(thread.core) });
        GraphReport { workers: cores.collect(), ..workers.made.graph().clone() }
    }

    fn tables(&self) -> Vec<NamedTable> {
        self.worker_set().tables.clone()
    }

    fn census(&self) -> Option<Census> {
        let mut workers = self.worker_set();
        let (sender, responses) = channel();
        for thread in &mut workers.threads {
            thread.give(Order::Count(sender.clone())).ok()?;
        }
        drop(sender);
        let expected = workers.threads.len();
        let censuses: Vec<_> = (0..expected).filter_map(|_| responses.recv_timeout(RESPONSE_TIMEOUT).ok()).collect();
        let mut all = self.board.state().past.census();
        censuses.iter().for_each(|census| all.add(census));
        (censuses.len() == expected).then_some(all)
    }

    fn act(&self, actions: &[Action]) -> Result<(), String> {
        act(&mut self.worker_set(), actions)
    }

    fn observe(&self, mut watch: Watch) {
        let mut workers = self.worker_set();
        for (worker, thread) in workers.threads.iter_mut().enumerate() {
            // Ignores a full queue: a worker with thousands of waiting orders does not need a trace.
            let _ = thread.give(Order::Observe(watch(worker)));
        }
        workers.watch = watch;
    }

    fn reload(
        &self,
        source: &Source,
        accept: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> Result<Reloaded, ReloadError> {
        self.change_to(source, accept)
    }

    fn move_modules(
        &self,
        order: MoveOrder<'_>,
        accept: &mut dyn FnMut(&Source) -> std::io::Result<()>,
    ) -> Result<(Moved, Option<Source>), NotMoved> {
        self.make_moves(order, accept)
    }

    fn has_died(&self) -> bool {
        self.worker_set().threads.iter().any(|thread| thread.handle.is_finished())
    }

    fn end(&self) -> Outcome {
        let mut workers = self.worker_set();
        // Reads the threads' times now: the system does not report a thread that has ended.
        drop(self.board.state().machine.taken(Duration::ZERO));
        self.stop.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut workers.threads);
        threads.iter().for_each(|thread| thread.wake.wake());
        let mut outcome = Outcome { at: Tsc.now(), troubles: std::mem::take(&mut workers.troubles) };
        for thread in threads {
            match thread.handle.join() {
                Ok(WorkerEnd::Stopped(at, troubles)) => {
                    outcome.at = outcome.at.max(at);
                    outcome.troubles.extend(troubles);
                }
                Ok(WorkerEnd::Succeeded(_) | WorkerEnd::NotStarted) => {}
                Err(_) => outcome
                    .troubles
                    .push(("worker".to_owned(), "its thread panicked: this is a defect of Forebay".to_owned())),
            }
        }
        drop(workers);
        if self.control_thread.end().is_err() {
            let trouble = "its thread panicked, and triggers stayed as they were: this is a defect of Forebay";
            outcome.troubles.push(("control".to_owned(), trouble.to_owned()));
        }
        outcome
    }
}

impl<S: Scheduler> WorkerSet<S> {
    /// Returns the system's numbers for the threads.
    pub(crate) fn system_threads(&self) -> Vec<WorkerThread> {
        let threads = self.threads.iter().enumerate();
        threads.map(|(worker, thread)| WorkerThread { worker, core: thread.core, tid: thread.tid }).collect()
    }
}

/// Applies actions on every worker.
pub(crate) fn act<S: Scheduler>(workers: &mut WorkerSet<S>, actions: &[Action]) -> Result<(), String> {
    // All workers get the actions, or none.
    if workers.threads.iter().any(|thread| thread.orders.slots() == 0) {
        return Err("a worker has too many orders waiting".to_owned());
    }
    let actions: Arc<[Action]> = actions.into();
    let (sender, responses) = channel();
    for thread in &mut workers.threads {
        let order = Order::Act(Arc::clone(&actions), sender.clone());
        // The lock of the worker set keeps others from giving orders: there is room.
        let _ = thread.give(order);
    }
    for _ in 0..workers.threads.len() {
        let result = responses.recv_timeout(RESPONSE_TIMEOUT).map_err(|_| "a worker does not answer".to_owned())?;
        result.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Creates the control loop of a configuration; `None` if it has no controller.
pub(crate) fn make_control_loop(
    made: &PipelineParts,
    plan: &Plan,
    costs: &BTreeMap<String, Profiled>,
) -> Result<Option<Arc<ControlLoop>>, FlowError> {
    let Some(settings) = made.control() else { return Ok(None) };
    let known = plan
        .modules
        .iter()
        .map(|module| costs.get(&ControlInputs::module_key(&module.name)).or_else(|| costs.get(module.kind)).copied());
    let costs = Costs::learnt(known);
    ControlLoop::new(settings.clone(), plan, costs).map(|control_loop| Some(Arc::new(control_loop)))
}

/// Returns the tables of all plans. Replicas of a module share their tables: each is listed once.
pub(crate) fn tables(plans: &[Plan]) -> Vec<NamedTable> {
    let mut all: Vec<NamedTable> = Vec::new();
    for table in plans.iter().flat_map(Plan::tables) {
        if all.iter().all(|known| (&known.module, &known.name) != (&table.module, &table.name)) {
            all.push(table);
        }
    }
    all
}

/// Returns the facts about a run on these cores for its report.
pub(crate) fn origin(cores: &[usize]) -> RunFacts {
    RunFacts {
        kind: FigureSource::Measured,
        cpu: forebay_measure::machine::cpu(),
        cores: cores.iter().map(|core| Some(*core)).collect(),
    }
}
