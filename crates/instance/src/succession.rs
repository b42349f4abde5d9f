//! The workers of one graph follow those of another: what both kinds of pipelines, running and simulated, do in the same way.

use std::sync::Arc;

use forebay_graph::{
    Cost, Exchange, Former, MakeError, Plan, Scheduler, Team, Telemetry, Worker, links, report::Reading,
};
use forebay_measure::Clock;
use forebay_packet::Pool;
use forebay_units::Ticks;

use crate::board::State;
use crate::running::Watch;

/// Workers that nobody has seen yet, and what is between them and those that they follow.
pub(crate) struct Successors<C: Clock, S: Scheduler> {
    pub(crate) team: Arc<Team>,
    pub(crate) workers: Vec<Worker<C, S>>,
    pub(crate) exchange: Exchange,
}

impl<C: Clock, S: Scheduler> Successors<C, S> {
    /// Workers of `plans`, which follow those that count in `running`. `pool`: the packets of a worker that runs already.
    pub(crate) fn make(
        plans: Vec<Plan>,
        running: &[Arc<Telemetry>],
        costs: &[Cost],
        clock: impl Fn() -> C,
        pool: impl Fn(usize) -> Option<Pool>,
    ) -> Result<Self, MakeError> {
        let (team, mut workers) = members(plans, costs, clock, pool)?;
        let exchange = Exchange::between(running, &mut workers);
        Ok(Self { team, workers, exchange })
    }
}

/// Workers of one graph, and what they share.
type Members<C, S> = (Arc<Team>, Vec<Worker<C, S>>);

/// A worker for each of `plans`, and what they share. `pool`: the packets of a worker that runs already.
pub(crate) fn members<C: Clock, S: Scheduler>(
    plans: Vec<Plan>,
    costs: &[Cost],
    clock: impl Fn() -> C,
    pool: impl Fn(usize) -> Option<Pool>,
) -> Result<Members<C, S>, MakeError> {
    let (team, rings) = (Arc::new(Team::new(plans.len())), links(&plans[0], &plans[0].placement));
    let workers = plans.into_iter().zip(rings).map(|(plan, ring)| {
        let pool = pool(plan.worker).map_or_else(|| Pool::new(plan.pool), Ok)?;
        Worker::member(plan, clock(), costs.to_vec(), pool, ring, Arc::clone(&team))
    });
    let workers = workers.collect::<Result<_, MakeError>>()?;
    Ok((team, workers))
}

/// What workers that were followed leave behind.
pub(crate) struct Left {
    /// Packets that functions held which are gone: they were dropped.
    pub(crate) dropped: u64,
    /// The longest that a worker took no packets from ports.
    pub(crate) pause: Ticks,
    /// Packets that are unaccounted for.
    pub(crate) missing: i64,
    /// Functions and ports that failed when they were closed.
    pub(crate) troubles: Vec<(String, String)>,
}

/// Closes what was not taken over, and makes what the old graph counted part of the past. `now` is asked for the present instant of the
/// workers' clock; the run began at `began`.
pub(crate) fn settle<C: Clock, S: Scheduler>(
    state: &mut State,
    mut formers: Vec<Former<C, S>>,
    exchange: &Exchange,
    began: Ticks,
    now: impl Fn() -> Ticks,
    watch: &mut Watch,
) -> Left {
    let frequency = state.telemetries[0].frequency;
    let pause = formers.iter().map(|former| former.pause).max().unwrap_or_default();
    let mut left = Left { dropped: 0, pause, missing: 0, troubles: Vec::new() };
    let mut gone = Reading::nothing(frequency, began);
    // Ports and held packets go on from graph to graph: only all of them together must come to nothing.
    let mut census = state.past.census();
    for former in &mut formers {
        let telemetry = former.telemetry();
        // What is dropped now is seen as what was dropped before.
        former.observe(watch(telemetry.id));
        let before = telemetry.worker.wound_up.get();
        left.troubles.extend(former.close().err().unwrap_or_default());
        left.dropped += telemetry.worker.wound_up.get() - before;
    }
    for former in formers {
        let mut reading = former.reading(now());
        census.add(&reading.census());
        former.retire(&mut reading);
        gone.merge(&reading);
    }
    left.missing = (census.missing() - i128::from(exchange.moved())) as i64;
    state.past.merge(&gone);
    // Of what is gone only the packets are told.
    let mut present = Reading::nothing(frequency, began);
    state.telemetries.iter().for_each(|told| present.merge(&Reading::of(told, now())));
    state.past.keep(&present, began);
    left
}
