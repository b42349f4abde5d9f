//! Moves modules to other workers in simulated time. The steps are those of a running pipeline, but the workers take
//! them one after the other on one thread.

use std::sync::Arc;

use forebay_control::Move;
use forebay_graph::{Exchange, Former, Scheduler, Team, Telemetry, Worker, report::RunFacts};
use forebay_measure::{Clock, Simulated};
use forebay_pipeline::{Conditions, rearrange};
use forebay_protocol::{Action, report::FigureSource};
use forebay_units::Ticks;

use super::{SimulatedTeam, Simulation};
use crate::control_loop::ControlLoop;
use crate::reload::ReloadError;
use crate::succession::{Successors, SwitchResult, settle};

/// The duration of a turn in which a worker waits for others, in simulated ticks of 1 ns.
const TURN: Ticks = Ticks(64);

impl<S: Scheduler> SimulatedTeam<S> {
    /// Moves modules to other workers, if the controller decides so. Returns whether a move was attempted, successfully
    /// or not.
    pub(super) fn move_modules(&mut self) -> bool {
        let Some((mut decider, at)) = self.decider.take() else { return false };
        let moved = decider.rearrangement();
        if let Some(moved) = &moved {
            let next = decider.control_loop_after(moved);
            match self.rearrange(moved, &next, &decider.in_force()) {
                Ok(result) => {
                    let pause_us = Simulation::frequency().micros(result.pause.0 as f64);
                    let (instants, telemetries) = ((Ticks::ZERO, self.latest()), self.board.telemetries());
                    // No error: the parameters of the controller were checked before.
                    drop(decider.moved(moved, next, telemetries, instants, pause_us, self.log.as_deref_mut()));
                }
                Err(error) => decider.move_failed(moved, error.to_string()),
            }
        }
        self.decider = Some((decider, at));
        moved.is_some()
    }

    /// Returns the latest instant of all workers' clocks.
    pub(super) fn latest(&self) -> Ticks {
        self.workers.iter().map(|worker| worker.clock().now()).max().unwrap_or_default()
    }

    /// Replaces the workers by workers of the same configuration, to which the modules are assigned as in `moved`. The
    /// counterpart for a running pipeline is `Running::rearrange`; the steps and their order must be the same. After an
    /// error nothing has changed.
    fn rearrange(
        &mut self,
        moved: &Move,
        next: &Arc<ControlLoop>,
        in_force: &[Action],
    ) -> Result<SwitchResult, ReloadError> {
        let Some(made) = &self.made else { return Err(ReloadError::Ending) };
        let conditions = Conditions { frequency: Simulation::frequency(), simulated: true };
        let loaded = rearrange(made, conditions, &moved.arrangement())?.open()?;
        let running = self.board.telemetries();
        let (clock, pool) = (
            || Simulated::new(Simulation::frequency()),
            |worker: usize| self.workers.get(worker).map(|worker: &Worker<Simulated, S>| worker.pool()),
        );
        let team = Arc::new(Team::new(loaded.plans.len()));
        let Successors { workers: successors, exchange } =
            Successors::make(loaded.plans, &team, &running, &self.costs, clock, pool)?;
        self.made = Some(loaded.made);
        let telemetries: Vec<_> = successors.iter().map(Worker::telemetry).collect();
        telemetries.iter().for_each(|telemetry| keep_objectives(&running[0], telemetry));
        let formers = self.switch(successors, &exchange);
        let mut state = self.board.state();
        state.origin =
            RunFacts { kind: FigureSource::Simulated, cores: vec![None; telemetries.len()], ..state.origin.clone() };
        (state.telemetries, state.team, state.control_loop) = (telemetries, team, Some(next.clone()));
        let now = self.workers[0].clock().now();
        let result = settle(&mut state, formers, &exchange, Ticks::ZERO, || now, &mut self.watch);
        drop(state);
        let trouble = self.workers.iter_mut().find_map(|worker| worker.apply(in_force).err());
        next.note(trouble.map(|error| error.to_string()));
        Ok(result)
    }

    /// Switches all workers to their successors at the same time. Returns the old workers.
    fn switch(&mut self, successors: Vec<Worker<Simulated, S>>, exchange: &Exchange) -> Vec<Former<Simulated, S>> {
        while !self.workers.iter_mut().fold(true, |done, worker| done & hand_over_step(worker, exchange)) {}
        let latest = self.latest();
        self.workers.iter().for_each(|worker| worker.clock().advance_to(latest));
        let mut formers = Vec::new();
        let mut running = std::mem::take(&mut self.workers).into_iter();
        for (id, mut successor) in successors.into_iter().enumerate() {
            successor.clock().advance_to(latest);
            successor.take_over_from(exchange);
            match running.next() {
                Some(mut worker) => {
                    formers.push(worker.succeed(successor));
                    self.workers.push(worker);
                }
                None => {
                    successor.observe((self.watch)(id));
                    self.workers.push(successor);
                }
            }
        }
        formers.extend(running.map(Former::of));
        formers
    }
}

/// Lets a worker take one step of its handover. Returns whether the handover is done.
fn hand_over_step<S: Scheduler>(worker: &mut Worker<Simulated, S>, exchange: &Exchange) -> bool {
    let done = worker.hand_over(exchange);
    if !done {
        worker.clock().spend(TURN);
        // Packets from other workers arrive at the instant at which they were sent.
        if let Some(sent) = worker.sent_to() {
            worker.clock().advance_to(sent);
        }
    }
    done
}

/// Copies the objectives, which may have been changed while packets run, to the new graph.
fn keep_objectives(before: &Telemetry, after: &Telemetry) {
    before.flows.iter().zip(&after.flows).for_each(|(before, after)| after.set_objective(before.objective()));
}
