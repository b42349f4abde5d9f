//! A running pipeline: its workers are started together, told what to do, ended together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use forebay_control::{Costs, Profiled};
use forebay_graph::{
    FlowError, MakeError, NamedTable, Observer, Plan, RunToCompletion, Scheduler, Team, WeightedFair, drive::Order,
    links, report::RunFacts,
};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Made, Source};
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
use crate::threads::{Over, Part, StartError, Thread, Waiting, begin};

/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// When it ended, on the workers' clock.
    pub at: Ticks,
    /// Ports and modules that failed: which and why.
    pub troubles: Vec<(String, String)>,
}

/// Makes each worker's observer, where it is to have one.
pub type Watch = Box<dyn FnMut(usize) -> Option<Box<dyn Observer>> + Send>;

/// A worker's thread, as the system knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerThread {
    /// The worker.
    pub worker: usize,
    /// The core that it is bound to.
    pub core: usize,
    /// The thread's number (`/proc/self/task/TID`).
    pub tid: u32,
}

/// A running pipeline, whichever scheduler its workers have.
pub trait Instance: Send + Sync {
    /// What is counted.
    fn board(&self) -> Arc<Board>;

    /// How many workers there are.
    fn workers(&self) -> usize;

    /// The workers' threads, for whoever watches them from outside.
    fn threads(&self) -> Vec<WorkerThread>;

    /// The graph that runs, with the workers' cores.
    fn graph(&self) -> GraphReport;

    /// The tables that can be changed while packets run.
    fn tables(&self) -> Vec<NamedTable>;

    /// Where every packet is: each worker says so between two of its turns, so that nothing is missing. What has been given
    /// to another worker and not been taken yet is `handed` and not `taken`. `None` where a worker does not answer.
    fn census(&self) -> Option<Census>;

    /// Has actions applied by every worker, all at once.
    ///
    /// # Errors
    /// A worker refuses one, and does nothing, or does not answer: in words.
    fn act(&self, actions: &[Action]) -> Result<(), String>;

    /// Has each worker, those that will join included, watched by an observer that `watch` makes for it, or with `None` by
    /// none.
    fn observe(&self, watch: Watch);

    /// Changes to the configuration `source`. `accept` is called once nothing can be wrong with it any more, just before
    /// it takes effect.
    ///
    /// # Errors
    /// [`ReloadError`]: nothing has changed then.
    fn reload(&self, source: &Source, accept: &mut dyn FnMut() -> std::io::Result<()>)
    -> Result<Reloaded, ReloadError>;

    /// Moves modules to other workers, and returns the configuration that is in force then; `None` where none had to
    /// move. `accept` is called with it once nothing can be wrong any more, just before it takes effect.
    ///
    /// # Errors
    /// [`NotMoved`]: nothing has changed then.
    fn move_modules(
        &self,
        order: MoveOrder<'_>,
        accept: &mut dyn FnMut(&Source) -> std::io::Result<()>,
    ) -> Result<(Moved, Option<Source>), NotMoved>;

    /// Whether a worker has ended by itself, which only a defect can make it do.
    fn has_died(&self) -> bool;

    /// Ends the run: nothing stays queued or held, and all is closed. A second time nothing happens.
    fn end(&self) -> Outcome;
}

/// Starts a worker for each plan, on these cores, with the scheduler that the plans name; `watch` makes each
/// one's observer. Where the configuration names a controller, it sets triggers, with what `control_inputs` gives it.
///
/// # Errors
/// [`StartError`]: nothing runs then.
pub fn start(
    plans: Vec<Plan>,
    cores: impl Into<Cores>,
    made: Made,
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
    /// Itself, for threads that work for it.
    pub(crate) own: Weak<Self>,
    pub(crate) board: Arc<Board>,
    pub(crate) stop: Arc<AtomicBool>,
    crew: Mutex<Crew<S>>,
    /// Held while a change is made.
    pub(crate) changing: Mutex<()>,
    /// Who sets the triggers.
    pub(crate) control_thread: ControlThread,
}

/// The threads, and what they run.
pub(crate) struct Crew<S: Scheduler> {
    pub(crate) threads: Vec<Thread<S>>,
    pub(crate) cores: Cores,
    pub(crate) made: Made,
    /// The tables that can be changed.
    pub(crate) tables: Vec<NamedTable>,
    /// Who watches workers.
    pub(crate) watch: Watch,
    /// What went wrong with functions and ports that have gone.
    pub(crate) troubles: Vec<(String, String)>,
    /// Numbers threads.
    pub(crate) started: usize,
}

impl<S: Scheduler + 'static> Running<S> {
    fn start(
        plans: Vec<Plan>,
        cores: Cores,
        made: Made,
        mut watch: Watch,
        control_inputs: ControlInputs,
    ) -> Result<Arc<Self>, StartError> {
        let control_thread = ControlThread::new(control_inputs);
        let control_loop = make_control_loop(&made, &plans[0], &control_thread.costs).map_err(MakeError::from)?;
        let team = Arc::new(Team::new(plans.len()));
        let rings = links(&plans[0], &plans[0].placement);
        let tables = tables(&plans);
        let stop = Arc::new(AtomicBool::new(false));
        // Whoever has begun waits for all others, so that a start that fails leaves nothing behind.
        let (mut starting, mut failed) = (Vec::new(), None);
        for ((plan, ring), core) in plans.into_iter().zip(rings).zip(&*cores) {
            let observer = watch(plan.worker);
            let part = Part { plan, links: ring, team: Arc::clone(&team), observer };
            match begin::<S>(part, *core, Arc::clone(&stop)) {
                Ok(begun) => starting.push(begun),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let (mut threads, mut telemetries, mut began) = (Vec::new(), Vec::new(), Tsc.now());
        for (thread, told) in starting {
            telemetries.push(told.telemetry);
            began = began.min(told.began);
            threads.push(thread);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let origin = origin(&cores);
        let threads = threads.into_iter().filter_map(Waiting::go).collect::<Vec<_>>();
        let started = threads.len();
        let crew = Crew { threads, cores, made, tables, watch, troubles: Vec::new(), started };
        let running = Arc::new_cyclic(|own| Self {
            own: Weak::clone(own),
            board: Arc::new(Board::new(began, telemetries, team, origin, control_loop)),
            stop,
            crew: Mutex::new(crew),
            changing: Mutex::new(()),
            control_thread,
        });
        running.board.state().machine.watch(&running.threads());
        running.control_thread.start(&running)?;
        Ok(running)
    }

    pub(crate) fn crew(&self) -> MutexGuard<'_, Crew<S>> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Scheduler + 'static> Instance for Running<S> {
    fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    fn workers(&self) -> usize {
        self.crew().threads.len()
    }

    fn threads(&self) -> Vec<WorkerThread> {
        self.crew().watched()
    }

    fn graph(&self) -> GraphReport {
        let crew = self.crew();
        let workers = crew.threads.iter().enumerate().map(|(id, thread)| GraphWorker { id, core: Some(thread.core) });
        GraphReport { workers: workers.collect(), ..crew.made.graph().clone() }
    }

    fn tables(&self) -> Vec<NamedTable> {
        self.crew().tables.clone()
    }

    fn census(&self) -> Option<Census> {
        let mut crew = self.crew();
        let (answer, answers) = channel();
        for thread in &mut crew.threads {
            thread.give(Order::Count(answer.clone())).ok()?;
        }
        drop(answer);
        let told: Vec<_> = (0..crew.threads.len()).filter_map(|_| answers.recv_timeout(PATIENCE).ok()).collect();
        let mut all = self.board.state().past.census();
        told.iter().for_each(|census| all.add(census));
        (told.len() == crew.threads.len()).then_some(all)
    }

    fn act(&self, actions: &[Action]) -> Result<(), String> {
        act(&mut self.crew(), actions)
    }

    fn observe(&self, mut watch: Watch) {
        let mut crew = self.crew();
        for (worker, thread) in crew.threads.iter_mut().enumerate() {
            // With thousands of orders before it, a trace is not missed.
            let _ = thread.give(Order::Observe(watch(worker)));
        }
        crew.watch = watch;
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
        self.crew().threads.iter().any(|thread| thread.handle.is_finished())
    }

    fn end(&self) -> Outcome {
        let mut crew = self.crew();
        // Of a thread that has ended the system tells nothing any more.
        drop(self.board.state().machine.taken(Duration::ZERO));
        self.stop.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut crew.threads);
        threads.iter().for_each(|thread| thread.handle.thread().unpark());
        let mut outcome = Outcome { at: Tsc.now(), troubles: std::mem::take(&mut crew.troubles) };
        for thread in threads {
            match thread.handle.join() {
                Ok(Over::Stopped(at, troubles)) => {
                    outcome.at = outcome.at.max(at);
                    outcome.troubles.extend(troubles);
                }
                Ok(Over::Succeeded(_) | Over::Never) => {}
                Err(_) => outcome
                    .troubles
                    .push(("worker".to_owned(), "its thread panicked: this is a defect of Forebay".to_owned())),
            }
        }
        drop(crew);
        if self.control_thread.end().is_err() {
            let what = "its thread panicked, and triggers stayed as they were: this is a defect of Forebay";
            outcome.troubles.push(("control".to_owned(), what.to_owned()));
        }
        outcome
    }
}

impl<S: Scheduler> Crew<S> {
    /// The threads, as the system knows them.
    pub(crate) fn watched(&self) -> Vec<WorkerThread> {
        let threads = self.threads.iter().enumerate();
        threads.map(|(worker, thread)| WorkerThread { worker, core: thread.core, tid: thread.tid }).collect()
    }
}

/// Has every worker apply actions.
pub(crate) fn act<S: Scheduler>(crew: &mut Crew<S>, actions: &[Action]) -> Result<(), String> {
    // All of them, or none.
    if crew.threads.iter().any(|thread| thread.orders.slots() == 0) {
        return Err("a worker has too many orders waiting".to_owned());
    }
    let actions: Arc<[Action]> = actions.into();
    let (answer, answers) = channel();
    for thread in &mut crew.threads {
        let order = Order::Act(Arc::clone(&actions), answer.clone());
        // Only the crew gives orders: there is room.
        let _ = thread.give(order);
    }
    for _ in 0..crew.threads.len() {
        let told = answers.recv_timeout(PATIENCE).map_err(|_| "a worker does not answer".to_owned())?;
        told.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What sets the triggers of a pipeline that is made so.
pub(crate) fn make_control_loop(
    made: &Made,
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

/// The tables of all plans; replicas share theirs.
pub(crate) fn tables(plans: &[Plan]) -> Vec<NamedTable> {
    let mut all: Vec<NamedTable> = Vec::new();
    for table in plans.iter().flat_map(Plan::tables) {
        if all.iter().all(|known| (&known.module, &known.name) != (&table.module, &table.name)) {
            all.push(table);
        }
    }
    all
}

pub(crate) fn origin(cores: &[usize]) -> RunFacts {
    RunFacts {
        kind: FigureSource::Measured,
        cpu: forebay_measure::machine::cpu(),
        cores: cores.iter().map(|core| Some(*core)).collect(),
    }
}
