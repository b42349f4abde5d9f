//! Replaces the workers of one graph by the workers of another. Running and simulated pipelines share this code.

use std::sync::Arc;

use forebay_graph::{
    Cost, Exchange, Former, MakeError, Plan, Scheduler, Team, Telemetry, Worker, links, report::Reading,
};
use forebay_measure::Clock;
use forebay_packet::Pool;
use forebay_units::Ticks;

use crate::pipeline_counters::State;
use crate::worker_thread::Watch;

/// The workers of a new graph, before they run, and their exchange with the workers that they replace.
pub(crate) struct Successors<C: Clock, S: Scheduler> {
    pub(crate) workers: Vec<Worker<C, S>>,
    pub(crate) exchange: Exchange,
}

impl<C: Clock, S: Scheduler> Successors<C, S> {
    /// Creates the workers of `plans`. They are the members of `team`, and replace the workers that count in `running`.
    /// `costs` are the costs of calls in simulated time, by module; empty in real time. `pool` returns the packet pool
    /// of a running worker; a worker without one gets a new pool.
    pub(crate) fn make(
        plans: Vec<Plan>,
        team: &Arc<Team>,
        running: &[Arc<Telemetry>],
        costs: &[Cost],
        clock: impl Fn() -> C,
        pool: impl Fn(usize) -> Option<Pool>,
    ) -> Result<Self, MakeError> {
        let mut workers = members(plans, team, costs, clock, pool)?;
        let exchange = Exchange::between(running, &mut workers);
        Ok(Self { workers, exchange })
    }
}

/// Creates a worker of `team` for each of `plans`. `pool` returns the packet pool of a running worker; a worker without
/// one gets a new pool.
pub(crate) fn members<C: Clock, S: Scheduler>(
    plans: Vec<Plan>,
    team: &Arc<Team>,
    costs: &[Cost],
    clock: impl Fn() -> C,
    pool: impl Fn(usize) -> Option<Pool>,
) -> Result<Vec<Worker<C, S>>, MakeError> {
    let rings = links(&plans[0], &plans[0].placement);
    let workers = plans.into_iter().zip(rings).map(|(plan, ring)| {
        let pool = pool(plan.worker).map_or_else(|| Pool::new(plan.pool), Ok)?;
        Worker::member(plan, clock(), costs.to_vec(), pool, ring, Arc::clone(team))
    });
    workers.collect()
}

/// The result of a switch between graphs.
pub(crate) struct SwitchResult {
    /// The number of packets dropped because the function that held them was removed.
    pub(crate) dropped: u64,
    /// The longest time in which a worker took no packets from ports.
    pub(crate) pause: Ticks,
    /// The number of packets that are unaccounted for.
    pub(crate) missing: i64,
    /// The functions and ports that failed when they were closed, and why.
    pub(crate) troubles: Vec<(String, String)>,
}

/// Closes ports and functions that were not taken over, and adds the counts of the old graph to the past. Must be
/// called once after a switch, with all old workers in `formers`. `now` returns the present instant of the workers'
/// clock. The run began at `began`. `watch` creates the observers of the packets that are dropped here.
pub(crate) fn settle<C: Clock, S: Scheduler>(
    state: &mut State,
    mut formers: Vec<Former<C, S>>,
    exchange: &Exchange,
    began: Ticks,
    now: impl Fn() -> Ticks,
    watch: &mut Watch,
) -> SwitchResult {
    let frequency = state.telemetries[0].frequency;
    let pause = formers.iter().map(|former| former.pause).max().unwrap_or_default();
    let mut result = SwitchResult { dropped: 0, pause, missing: 0, troubles: Vec::new() };
    let mut gone = Reading::nothing(frequency, began);
    // Ports and held packets pass from graph to graph. Only the sum over all graphs must be zero.
    let mut census = state.past.census();
    for former in &mut formers {
        let telemetry = former.telemetry();
        // Drops during the switch are reported under the old graph's counters.
        former.observe(watch(telemetry.id));
        let before = telemetry.worker.held_at_close.get();
        result.troubles.extend(former.close().err().unwrap_or_default());
        result.dropped += telemetry.worker.held_at_close.get() - before;
    }
    for former in formers {
        let mut reading = former.reading(now());
        census.add(&reading.census());
        former.retire(&mut reading);
        gone.merge(&reading);
    }
    result.missing = (census.missing() - i128::from(exchange.moved())) as i64;
    state.past.merge(&gone);
    // For modules that have been removed, the past keeps only the fates of their packets.
    let mut present = Reading::nothing(frequency, began);
    state.telemetries.iter().for_each(|telemetry| present.merge(&Reading::of(telemetry, now())));
    state.past.keep(&present, began);
    result
}
