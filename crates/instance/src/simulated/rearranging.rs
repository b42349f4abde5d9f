//! Modules change their worker in simulated time: as in a running pipeline, one step of every worker after the other.

use forebay_control::Move;
use forebay_graph::{Exchange, Former, Scheduler, Telemetry, Worker, report::RunFacts};
use forebay_measure::{Clock, Simulated};
use forebay_pipeline::{Conditions, rearrange};
use forebay_protocol::{Action, report::FigureSource};
use forebay_units::Ticks;

use super::{SimulatedTeam, Simulation};
use crate::control_loop::ControlLoop;
use crate::reload::ReloadError;
use crate::succession::{Left, Successors, settle};

/// What a turn takes in which a worker waits for others.
const TURN: Ticks = Ticks(64);

impl<S: Scheduler> SimulatedTeam<S> {
    /// Has modules change their worker, if whoever sets the triggers finds that they should: whether it was tried.
    pub(super) fn move_modules(&mut self) -> bool {
        let Some((mut decider, at)) = self.decider.take() else { return false };
        let moved = decider.rearrangement();
        if let Some(moved) = &moved {
            let next = decider.control_loop_after(moved);
            match self.rearrange(moved, &next, &decider.in_force()) {
                Ok(left) => {
                    let pause_us = Simulation::frequency().micros(left.pause.0 as f64);
                    let (instants, telemetries) = ((Ticks::ZERO, self.latest()), self.board.telemetries());
                    // Its parameters have been checked.
                    drop(decider.moved(moved, next, telemetries, instants, pause_us, self.log.as_deref_mut()));
                }
                Err(error) => decider.stayed(moved, error.to_string()),
            }
        }
        self.decider = Some((decider, at));
        moved.is_some()
    }

    /// The latest of all workers' clocks.
    pub(super) fn latest(&self) -> Ticks {
        self.workers.iter().map(|worker| worker.clock().now()).max().unwrap_or_default()
    }

    fn rearrange(
        &mut self,
        moved: &Move,
        next: &std::sync::Arc<ControlLoop>,
        in_force: &[Action],
    ) -> Result<Left, ReloadError> {
        let Some(made) = &self.made else { return Err(ReloadError::Ending) };
        let conditions = Conditions { frequency: Simulation::frequency(), simulated: true };
        let loaded = rearrange(made, conditions, &moved.arrangement())?.open()?;
        let running = self.board.telemetries();
        let (clock, pool) = (
            || Simulated::new(Simulation::frequency()),
            |worker: usize| self.workers.get(worker).map(|worker: &Worker<Simulated, S>| worker.pool()),
        );
        let Successors { team, workers: heirs, exchange } =
            Successors::make(loaded.plans, &running, &self.costs, clock, pool)?;
        self.made = Some(loaded.made);
        let telemetries: Vec<_> = heirs.iter().map(Worker::telemetry).collect();
        telemetries.iter().for_each(|told| keep_objectives(&running[0], told));
        let formers = self.switch(heirs, &exchange);
        let mut state = self.board.state();
        state.origin =
            RunFacts { kind: FigureSource::Simulated, cores: vec![None; telemetries.len()], ..state.origin.clone() };
        (state.telemetries, state.team, state.control_loop) = (telemetries, team, Some(next.clone()));
        let now = self.workers[0].clock().now();
        let left = settle(&mut state, formers, &exchange, Ticks::ZERO, || now, &mut self.watch);
        drop(state);
        let trouble = self.workers.iter_mut().find_map(|worker| worker.apply(in_force).err());
        next.note(trouble.map(|error| error.to_string()));
        Ok(left)
    }

    /// Has all workers change together; what they were.
    fn switch(&mut self, heirs: Vec<Worker<Simulated, S>>, exchange: &Exchange) -> Vec<Former<Simulated, S>> {
        while !self.workers.iter_mut().fold(true, |done, worker| done & step(worker, exchange)) {}
        let latest = self.latest();
        self.workers.iter().for_each(|worker| worker.clock().advance_to(latest));
        let mut formers = Vec::new();
        let mut running = std::mem::take(&mut self.workers).into_iter();
        for (id, mut heir) in heirs.into_iter().enumerate() {
            heir.clock().advance_to(latest);
            heir.take_up(exchange);
            match running.next() {
                Some(mut worker) => {
                    formers.push(worker.succeed(heir));
                    self.workers.push(worker);
                }
                None => {
                    heir.observe((self.watch)(id));
                    self.workers.push(heir);
                }
            }
        }
        formers.extend(running.map(Former::of));
        formers
    }
}

/// One step of laying down; whether it is done.
fn step<S: Scheduler>(worker: &mut Worker<Simulated, S>, exchange: &Exchange) -> bool {
    let done = worker.lay_down(exchange);
    if !done {
        worker.clock().spend(TURN);
        // What was sent to it is there when it was sent.
        if let Some(sent) = worker.sent_to() {
            worker.clock().advance_to(sent);
        }
    }
    done
}

/// Objectives that were changed while packets run stay changed.
fn keep_objectives(before: &Telemetry, after: &Telemetry) {
    before.flows.iter().zip(&after.flows).for_each(|(before, after)| after.set_objective(before.objective()));
}
