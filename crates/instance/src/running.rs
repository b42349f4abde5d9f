//! The worker threads of a running pipeline, and the orders that they get.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use forebay_control::{Costs, Profiled};
use forebay_graph::drive::Order;
use forebay_graph::report::RunFacts;
use forebay_graph::{FlowError, MakeError, NamedTable, Plan, Scheduler, links};
use forebay_measure::machine::restrict;
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::PipelineParts;
use forebay_protocol::Action;
use forebay_protocol::report::FigureSource;

use crate::control_loop::{ControlInputs, ControlLoop};
use crate::control_thread::ControlThread;
use crate::cores::Cores;
use crate::pipeline_counters::PipelineCounters;
use crate::threads::{StartError, Thread, WaitingWorker, WorkerParts, new_team, new_wakes, start_worker};
use crate::worker_thread::{Watch, WorkerThread};

/// The time in which a worker must respond to an order.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A running pipeline. A thread that needs several of its locks takes them in this order: `changing`, `workers`, and
/// the lock of the [counters](PipelineCounters::state).
pub(crate) struct Running<S: Scheduler> {
    /// A reference to this value, for the control thread.
    pub(crate) own: Weak<Self>,
    /// The counters of the workers.
    pub(crate) board: Arc<PipelineCounters>,
    /// Ends the workers and the control thread when it is set.
    pub(crate) stop: Arc<AtomicBool>,
    /// The workers. The lock also protects their order queues, so that only the thread that holds the lock gives
    /// orders.
    workers: Mutex<WorkerSet<S>>,
    /// Locked during a reload, including its slow checks. Other requests can use `workers` during these checks.
    pub(crate) changing: Mutex<()>,
    /// Whether [`free_cores`](Self::free_cores) restricts the other threads of this process.
    pub(crate) keeps_cores_free: AtomicBool,
    /// Runs the control loop, if the configuration has a controller.
    pub(crate) control_thread: ControlThread,
}

/// The worker threads and the configuration that they run.
pub(crate) struct WorkerSet<S: Scheduler> {
    /// The threads, by worker number.
    pub(crate) threads: Vec<Thread<S>>,
    /// The core of each worker, with the locks of the cores.
    pub(crate) cores: Cores,
    /// The parts of the configuration that runs.
    pub(crate) made: PipelineParts,
    /// The tables that can be changed while packets run.
    pub(crate) tables: Vec<NamedTable>,
    /// Creates the observers of workers.
    pub(crate) watch: Watch,
    /// The errors of functions and ports that reloads have removed, for the result of the run.
    pub(crate) troubles: Vec<(String, String)>,
    /// The number of threads that have been started. It is the number in the name of the next thread.
    pub(crate) started: usize,
}

impl<S: Scheduler + 'static> Running<S> {
    /// Restricts the process's threads that are not workers to cores without a worker, if `keeps_cores_free` is set.
    ///
    /// A new thread inherits the cores of the thread that starts it. A thread that a function starts (a writer of logs)
    /// inherits the core of the worker on which the function is made. So every change of the configuration must call
    /// this function again.
    pub(crate) fn free_cores(&self, workers: &WorkerSet<S>) {
        if !self.keeps_cores_free.load(Ordering::Relaxed) {
            return;
        }
        let worker_threads: Vec<u32> = workers.threads.iter().map(|thread| thread.tid).collect();
        let cores = workers.cores.beside();
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let numbers = threads.filter_map(|thread| thread.file_name().to_str()?.parse::<u32>().ok());
        for thread in numbers.filter(|thread| !worker_threads.contains(thread)) {
            // A thread may have ended meanwhile. If this process may not restrict a thread, the thread stays where it
            // is.
            let _ = restrict(thread, &cores);
        }
    }

    /// Starts a worker for each plan, and the control thread if there is a controller. Returns when all workers run.
    /// After an error no worker runs.
    pub(crate) fn start(
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
        // Every worker waits until all others are ready. So no worker has run yet if the start of another one fails.
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
            board: Arc::new(PipelineCounters::new(began, telemetries, team, origin, control_loop)),
            stop,
            workers: Mutex::new(workers),
            changing: Mutex::new(()),
            keeps_cores_free: AtomicBool::new(false),
            control_thread,
        });
        running.board.state().machine.watch(&running.worker_set().system_threads());
        running.control_thread.start(&running)?;
        Ok(running)
    }

    /// Locks and returns the workers.
    pub(crate) fn worker_set(&self) -> MutexGuard<'_, WorkerSet<S>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Scheduler> WorkerSet<S> {
    /// Returns the system's numbers for the threads.
    pub(crate) fn system_threads(&self) -> Vec<WorkerThread> {
        let threads = self.threads.iter().enumerate();
        threads.map(|(worker, thread)| WorkerThread { worker, core: thread.core, tid: thread.tid }).collect()
    }
}

/// Applies actions on every worker, and waits for their responses. Returns an error if a worker has no room for an
/// order; then no worker gets the actions. Also returns an error if a worker refuses the actions or does not respond in
/// time; then other workers may have applied them.
pub(crate) fn act<S: Scheduler>(workers: &mut WorkerSet<S>, actions: &[Action]) -> Result<(), String> {
    // All workers get the actions, or none.
    if workers.threads.iter().any(|thread| thread.orders.slots() == 0) {
        return Err("a worker has too many orders waiting: try again later".to_owned());
    }
    let actions: Arc<[Action]> = actions.into();
    let (sender, responses) = channel();
    for thread in &mut workers.threads {
        let order = Order::Act(Arc::clone(&actions), sender.clone());
        // The caller holds the lock of the worker set, so that no other thread gives orders. The room found above is
        // still there.
        let _ = thread.give(order);
    }
    for _ in 0..workers.threads.len() {
        let result = responses
            .recv_timeout(RESPONSE_TIMEOUT)
            .map_err(|_| "a worker does not respond: it is unknown which workers have set the value".to_owned())?;
        result.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Creates the control loop of a configuration; `None` if it has no controller. `costs` are known costs by function or
/// by module; the controller learns the others.
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

/// Returns the facts for the report of a run on these cores of this machine.
pub(crate) fn origin(cores: &[usize]) -> RunFacts {
    RunFacts {
        kind: FigureSource::Measured,
        cpu: forebay_measure::machine::cpu(),
        cores: cores.iter().map(|core| Some(*core)).collect(),
    }
}
