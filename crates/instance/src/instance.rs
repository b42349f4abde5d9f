//! A running pipeline, independent of the scheduler of its workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use forebay_graph::drive::Order;
use forebay_graph::{NamedTable, Plan, RunToCompletion, Scheduler, WeightedFair};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{PipelineParts, Source};
use forebay_protocol::graph::{GraphReport, GraphWorker};
use forebay_protocol::{Action, Census, Moved, Reloaded, SchedulerKind};
use forebay_units::Ticks;

use crate::control_loop::ControlInputs;
use crate::cores::Cores;
use crate::moves::{MoveOrder, NotMoved};
use crate::pipeline_counters::PipelineCounters;
use crate::reload::ReloadError;
use crate::running::{RESPONSE_TIMEOUT, Running, act};
use crate::threads::{StartError, WorkerEnd};
use crate::worker_thread::{Watch, WorkerThread};

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// When the run ended, on the workers' clock.
    pub at: Ticks,
    /// The ports and modules that failed, and why.
    pub troubles: Vec<(String, String)>,
}

/// A running pipeline, independent of the scheduler of its workers.
pub trait Instance: Send + Sync {
    /// Returns the counters.
    fn board(&self) -> Arc<PipelineCounters>;

    /// Returns the number of workers.
    fn workers(&self) -> usize;

    /// Returns the workers' threads.
    fn threads(&self) -> Vec<WorkerThread>;

    /// Moves all other threads of this process to the allowed cores without a worker of this process, now and after
    /// each change of the configuration. If each allowed core has such a worker, the other threads may use all allowed
    /// cores. Only for a process that runs one instance and nothing else.
    fn keep_cores_free(&self);

    /// Returns the running graph, with the workers' cores.
    fn graph(&self) -> GraphReport;

    /// Returns the tables that can be changed while packets run.
    fn tables(&self) -> Vec<NamedTable>;

    /// Returns the number of packets of each origin and fate. Each worker counts between two of its turns, so that no
    /// packet is missing. A packet on its way to another worker is counted in `handed`, and not yet in `taken`. Returns
    /// `None` if a worker does not respond in time, or has too many orders waiting.
    fn census(&self) -> Option<Census>;

    /// Applies actions on every worker. A worker applies all actions or none.
    ///
    /// # Errors
    /// Returns the reason if a worker refuses an action, does not respond in time, or has too many orders waiting. In
    /// the last case no worker has applied the actions. In the other cases, some workers may have applied them.
    fn act(&self, actions: &[Action]) -> Result<(), String>;

    /// Sets the observer of each worker, also of workers that join later, to the observer that `watch` creates. A
    /// running worker with too many orders waiting keeps its observer.
    fn observe(&self, watch: Watch);

    /// Changes to the configuration `source`. Calls `accept` after all checks, immediately before the configuration
    /// takes effect.
    ///
    /// # Errors
    /// Returns a [`ReloadError`] if the configuration is refused. Then nothing has changed.
    fn reload(&self, source: &Source, accept: &mut dyn FnMut() -> std::io::Result<()>)
    -> Result<Reloaded, ReloadError>;

    /// Moves modules to other workers, and returns the new configuration; `None` if no module had to move. Calls
    /// `accept` with the new configuration after all checks, immediately before it takes effect.
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

/// Starts a worker for each plan, on these cores, with the scheduler that the plans name. `plans` must have at least
/// one plan, and `made` must be the configuration that they were created from. `watch` creates the observer of each
/// worker. If the configuration names a controller, also starts the control loop with `control_inputs`.
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
    start_on(plans, cores.into(), made, watch, control_inputs)
}

/// Does the same as [`start`]. It is not generic, so that the worker is compiled in this crate, and not in each crate
/// that starts an instance.
fn start_on(
    plans: Vec<Plan>,
    cores: Cores,
    made: PipelineParts,
    watch: Watch,
    control_inputs: ControlInputs,
) -> Result<Arc<dyn Instance>, StartError> {
    Ok(match plans[0].scheduler {
        SchedulerKind::RunToCompletion => Running::<RunToCompletion>::start(plans, cores, made, watch, control_inputs)?,
        SchedulerKind::WeightedFair => Running::<WeightedFair>::start(plans, cores, made, watch, control_inputs)?,
    })
}

impl<S: Scheduler + 'static> Instance for Running<S> {
    fn board(&self) -> Arc<PipelineCounters> {
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
        // Reads the time that the machine took from the threads now, because the system does not report a thread that
        // has ended.
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
