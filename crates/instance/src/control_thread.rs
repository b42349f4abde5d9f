//! Has a running pipeline's controller decide once a period, on a thread of its own.

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

/// How long the thread sleeps where nothing sets triggers.
const IDLE: Duration = Duration::from_millis(100);

/// The thread, once there is one.
pub(crate) struct ControlThread {
    pub(crate) costs: BTreeMap<String, Profiled>,
    state: Mutex<State>,
}

enum State {
    /// Nothing has set triggers yet; who would see it.
    Waits(Option<Box<dyn Log>>),
    Runs(JoinHandle<()>),
    Ended,
}

impl ControlThread {
    pub(crate) fn new(control_inputs: ControlInputs) -> Self {
        Self { costs: control_inputs.costs, state: Mutex::new(State::Waits(control_inputs.log)) }
    }

    /// Starts the thread, unless it runs already or nothing sets triggers.
    pub(crate) fn start<S: Scheduler + 'static>(&self, running: &Running<S>) -> std::io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Waits(log) = &mut *state
            && running.board.state().control_loop.is_some()
        {
            let mut log = log.take();
            // Here, and not on the thread: however soon the run ends, it is told what was controlled.
            let decider = begin(running, log.as_deref_mut());
            let running = Weak::clone(&running.own);
            let body = move || run_control_loop(&running, decider, log);
            let thread = std::thread::Builder::new().name("control".to_owned()).spawn(body)?;
            *state = State::Runs(thread);
        }
        Ok(())
    }

    /// Ends it: it must have been told to stop.
    ///
    /// # Errors
    /// It has panicked.
    pub(crate) fn end(&self) -> std::thread::Result<()> {
        let state = std::mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), State::Ended);
        let State::Runs(thread) = state else { return Ok(()) };
        thread.thread().unpark();
        thread.join()
    }
}

/// What decides from now on, if anything does.
fn begin<S: Scheduler>(running: &Running<S>, log: Option<&mut (dyn Log + 'static)>) -> Option<Decider> {
    let (control_loop, telemetries) = running.board.control_loop_and_telemetries();
    // Its parameters have been checked.
    control_loop
        .and_then(|control_loop| Decider::new(control_loop, telemetries, running.board.began(), Tsc.now(), log).ok())
}

/// How long after a decision the next is made.
fn patience(decider: Option<&Decider>) -> Duration {
    decider.map_or(IDLE, |decider| Duration::from_nanos(decider.patience().0))
}

/// Decides until the run ends.
fn run_control_loop<S: Scheduler + 'static>(
    running: &Weak<Running<S>>,
    mut decider: Option<Decider>,
    mut log: Option<Box<dyn Log>>,
) {
    let mut next = Instant::now() + patience(decider.as_ref());
    loop {
        std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        let Some(running) = running.upgrade().filter(|running| !running.stop.load(Ordering::Relaxed)) else { return };
        if Instant::now() < next {
            continue;
        }
        let control_loop = running.board.control_loop_and_telemetries().0;
        // A change of the configuration begins anew.
        if decider.as_ref().map(|decider| Arc::as_ptr(&decider.control_loop)) != control_loop.as_ref().map(Arc::as_ptr)
        {
            decider = begin(&running, log.as_deref_mut());
        } else if let Some(decider) = &mut decider {
            let control_loop = Arc::clone(&decider.control_loop);
            let actions = decider.decide(Tsc.now(), &running.board.away(), log.as_deref_mut());
            let trouble = if actions.is_empty() { None } else { running.act_for(&control_loop, actions).err() };
            control_loop.note(trouble);
            if let Some(moved) = decider.rearrangement() {
                running.move_modules(decider, &moved, log.as_deref_mut());
            }
        }
        // A machine that was elsewhere for longer than a period has missed it.
        next = (next + patience(decider.as_ref())).max(Instant::now());
    }
}

impl<S: Scheduler + 'static> Running<S> {
    /// Has actions applied that were decided on for this pipeline; if it is another one by now, they mean nothing.
    fn act_for(&self, control_loop: &Arc<ControlLoop>, actions: &[Action]) -> Result<(), String> {
        // Held while a change takes effect.
        let mut crew = self.crew();
        let same = self.board.state().control_loop.as_ref().is_some_and(|present| Arc::ptr_eq(present, control_loop));
        if same { act(&mut crew, actions) } else { Ok(()) }
    }

    /// Has modules change their worker, unless another configuration is in force by now.
    fn move_modules(&self, decider: &mut Decider, moved: &Move, log: Option<&mut (dyn Log + 'static)>) {
        let next = decider.control_loop_after(moved);
        match self.rearrange(&moved.arrangement(), &decider.control_loop, &next, &decider.in_force()) {
            Ok(Some(told)) => {
                let instants = (self.board.began(), Tsc.now());
                let done = decider.moved(moved, next, self.board.telemetries(), instants, told.pause_us, log);
                // Its parameters have been checked.
                drop(done);
            }
            // The next look begins anew.
            Ok(None) => {}
            Err(error) => decider.stayed(moved, error.to_string()),
        }
    }
}
