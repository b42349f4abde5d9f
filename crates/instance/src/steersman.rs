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

use crate::running::{Running, act};
use crate::steering::{Helm, Steer, Steering};

/// How long the thread sleeps where nothing sets triggers.
const IDLE: Duration = Duration::from_millis(100);

/// The thread, once there is one.
pub(crate) struct Steersman {
    pub(crate) costs: BTreeMap<String, Profiled>,
    state: Mutex<State>,
}

enum State {
    /// Nothing has set triggers yet; who would see it.
    Waits(Option<Box<dyn Log>>),
    Runs(JoinHandle<()>),
    Ended,
}

impl Steersman {
    pub(crate) fn new(steer: Steer) -> Self {
        Self { costs: steer.costs, state: Mutex::new(State::Waits(steer.log)) }
    }

    /// Starts the thread, unless it runs already or nothing sets triggers.
    pub(crate) fn start<S: Scheduler + 'static>(&self, running: &Running<S>) -> std::io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Waits(log) = &mut *state
            && running.board.state().steering.is_some()
        {
            let mut log = log.take();
            // Here, and not on the thread: however soon the run ends, it is told what was controlled.
            let helm = begin(running, log.as_deref_mut());
            let running = Weak::clone(&running.own);
            let steers = move || steer(&running, helm, log);
            let thread = std::thread::Builder::new().name("control".to_owned()).spawn(steers)?;
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
fn begin<S: Scheduler>(running: &Running<S>, log: Option<&mut (dyn Log + 'static)>) -> Option<Helm> {
    let (steering, telemetries) = running.board.steered();
    // Its parameters have been checked.
    steering.and_then(|steering| Helm::new(steering, telemetries, running.board.began(), Tsc.now(), log).ok())
}

/// How long after a decision the next is made.
fn patience(helm: Option<&Helm>) -> Duration {
    helm.map_or(IDLE, |helm| Duration::from_nanos(helm.patience().0))
}

/// Decides until the run ends.
fn steer<S: Scheduler + 'static>(running: &Weak<Running<S>>, mut helm: Option<Helm>, mut log: Option<Box<dyn Log>>) {
    let mut next = Instant::now() + patience(helm.as_ref());
    loop {
        std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
        let Some(running) = running.upgrade().filter(|running| !running.stop.load(Ordering::Relaxed)) else { return };
        if Instant::now() < next {
            continue;
        }
        let steering = running.board.steered().0;
        // A change of the configuration begins anew.
        if helm.as_ref().map(|helm| Arc::as_ptr(&helm.steering)) != steering.as_ref().map(Arc::as_ptr) {
            helm = begin(&running, log.as_deref_mut());
        } else if let Some(helm) = &mut helm {
            let steering = Arc::clone(&helm.steering);
            let actions = helm.decide(Tsc.now(), &running.board.away(), log.as_deref_mut());
            let trouble = if actions.is_empty() { None } else { running.act_for(&steering, actions).err() };
            steering.note(trouble);
            if let Some(moved) = helm.rearrangement() {
                running.move_modules(helm, &moved, log.as_deref_mut());
            }
        }
        // A machine that was elsewhere for longer than a period has missed it.
        next = (next + patience(helm.as_ref())).max(Instant::now());
    }
}

impl<S: Scheduler + 'static> Running<S> {
    /// Has actions applied that were decided on for this pipeline; if it is another one by now, they mean nothing.
    fn act_for(&self, steering: &Arc<Steering>, actions: &[Action]) -> Result<(), String> {
        // Held while a change takes effect.
        let mut crew = self.crew();
        let same = self.board.state().steering.as_ref().is_some_and(|present| Arc::ptr_eq(present, steering));
        if same { act(&mut crew, actions) } else { Ok(()) }
    }

    /// Has modules change their worker, unless another configuration is in force by now.
    fn move_modules(&self, helm: &mut Helm, moved: &Move, log: Option<&mut (dyn Log + 'static)>) {
        let next = helm.steering_after(moved);
        match self.rearrange(&moved.arrangement(), &helm.steering, &next, &helm.in_force()) {
            Ok(Some(told)) => {
                let instants = (self.board.began(), Tsc.now());
                let done = helm.moved(moved, next, self.board.telemetries(), instants, told.pause_us, log);
                // Its parameters have been checked.
                drop(done);
            }
            // The next look begins anew.
            Ok(None) => {}
            Err(error) => helm.stayed(moved, error.to_string()),
        }
    }
}
