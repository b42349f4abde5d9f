//! The control thread of a running pipeline: it runs the control loop once per period.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_control::{Log, Move, Profiled};
use forebay_graph::Scheduler;
use forebay_measure::{Clock, Tsc};
use forebay_protocol::Action;

use crate::control_loop::{ControlInputs, ControlLoop, Decider};
use crate::running::{Running, act};

/// The time for which the thread sleeps if the pipeline has no controller.
const IDLE: Duration = Duration::from_millis(100);

/// The control thread. It starts as soon as the configuration has a controller, and runs until the run ends.
pub(crate) struct ControlThread {
    /// The measured costs of a call ([`ControlInputs::costs`]), for control loops of later configurations, too.
    pub(crate) costs: BTreeMap<String, Profiled>,
    state: Mutex<State>,
}

enum State {
    /// The configurations so far had no controller. Keeps the log for the thread.
    NotStarted(Option<Box<dyn Log>>),
    Running(JoinHandle<()>),
    Ended,
}

impl ControlThread {
    pub(crate) fn new(control_inputs: ControlInputs) -> Self {
        Self { costs: control_inputs.costs, state: Mutex::new(State::NotStarted(control_inputs.log)) }
    }

    /// Starts the thread if the pipeline has a controller and the thread does not run yet. Returns an error if the
    /// system cannot create a thread.
    pub(crate) fn start<S: Scheduler + 'static>(&self, running: &Running<S>) -> std::io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::NotStarted(log) = &mut *state
            && running.board.state().control_loop.is_some()
        {
            let mut log = log.take();
            // Created here and not on the new thread, so that the log gets the settings and the layout even if the run
            // ends at once.
            let decider = new_decider(running, log.as_deref_mut());
            let running = Weak::clone(&running.own);
            let body = move || run_control_loop(&running, decider, log);
            let thread = std::thread::Builder::new().name("control".to_owned()).spawn(body)?;
            *state = State::Running(thread);
        }
        Ok(())
    }

    /// Waits for the thread to end. The caller must have set the stop flag.
    ///
    /// # Errors
    /// Returns an error if the thread panicked.
    pub(crate) fn end(&self) -> std::thread::Result<()> {
        let state = std::mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), State::Ended);
        let State::Running(thread) = state else { return Ok(()) };
        thread.thread().unpark();
        thread.join()
    }
}

/// Returns a new decider for the graph that runs now; `None` if it has no controller.
fn new_decider<S: Scheduler>(running: &Running<S>, log: Option<&mut (dyn Log + 'static)>) -> Option<Decider> {
    let (control_loop, telemetries) = running.board.control_loop_and_telemetries();
    // No error: the parameters of the controller were checked before.
    control_loop
        .and_then(|control_loop| Decider::new(control_loop, telemetries, running.board.began(), Tsc.now(), log).ok())
}

/// Returns the time until the next decision.
fn wait(decider: Option<&Decider>) -> Duration {
    decider.map_or(IDLE, |decider| Duration::from_nanos(decider.wait().0))
}

/// Runs the control loop until the run ends.
fn run_control_loop<S: Scheduler + 'static>(
    running: &Weak<Running<S>>,
    mut decider: Option<Decider>,
    mut log: Option<Box<dyn Log>>,
) {
    let mut next = Instant::now() + wait(decider.as_ref());
    loop {
        std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        let Some(running) = running.upgrade().filter(|running| !running.stop.load(Ordering::Relaxed)) else { return };
        if Instant::now() < next {
            continue;
        }
        let control_loop = running.board.control_loop_and_telemetries().0;
        // The configuration has changed: start over with a new decider.
        if decider.as_ref().map(|decider| Arc::as_ptr(&decider.control_loop)) != control_loop.as_ref().map(Arc::as_ptr)
        {
            decider = new_decider(&running, log.as_deref_mut());
        } else if let Some(decider) = &mut decider {
            let control_loop = Arc::clone(&decider.control_loop);
            let actions = decider.decide(Tsc.now(), &running.board.away(), log.as_deref_mut());
            let trouble = if actions.is_empty() { None } else { running.act_for(&control_loop, actions).err() };
            control_loop.note(trouble);
            if let Some(moved) = decider.rearrangement() {
                running.move_modules(decider, &moved, log.as_deref_mut());
            }
        }
        // The thread may have had no core for longer than a period. It then skips the decisions that it has missed.
        next = (next + wait(decider.as_ref())).max(Instant::now());
    }
}

impl<S: Scheduler + 'static> Running<S> {
    /// Applies the actions of this control loop. Ignores the actions if another configuration is in force by now,
    /// because they may name modules of the old configuration.
    fn act_for(&self, control_loop: &Arc<ControlLoop>, actions: &[Action]) -> Result<(), String> {
        // The lock keeps a reload from taking effect between the comparison and the actions.
        let mut workers = self.worker_set();
        let same = self.board.state().control_loop.as_ref().is_some_and(|present| Arc::ptr_eq(present, control_loop));
        if same { act(&mut workers, actions) } else { Ok(()) }
    }

    /// Moves modules to other workers. Does nothing if another configuration is in force by now. The decider records
    /// the result.
    fn move_modules(&self, decider: &mut Decider, moved: &Move, log: Option<&mut (dyn Log + 'static)>) {
        let next = decider.control_loop_after(moved);
        match self.rearrange(&moved.arrangement(), &decider.control_loop, &next, &decider.in_force()) {
            Ok(Some(reloaded)) => {
                let instants = (self.board.began(), Tsc.now());
                let done = decider.moved(moved, next, self.board.telemetries(), instants, reloaded.pause_us, log);
                // No error: the parameters of the controller were checked before.
                drop(done);
            }
            // The configuration has changed: the next iteration of the loop creates a new decider.
            Ok(None) => {}
            Err(error) => decider.move_failed(moved, error.to_string()),
        }
    }
}
