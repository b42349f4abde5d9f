//! A changed configuration takes the place of the running one, whole or not at all, while packets run.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};

use forebay_graph::drive::Order;
use forebay_graph::report::Reading;
use forebay_graph::{Exchange, MakeError, NamedTable, Scheduler, Team, Worker, links};
use forebay_measure::{Clock, Tsc};
use forebay_packet::Pool;
use forebay_pipeline::{Change, Conditions, Loaded, Problems, Source};
use rtrb::PushError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cores::{CoreError, choose};
use crate::running::{Over, Running, StartError, join, origin, tables};

/// Why a configuration was refused: the old one runs on.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// What is wrong with it.
    #[error(transparent)]
    Problems(#[from] Problems),
    /// Its workers cannot be given cores.
    #[error(transparent)]
    Cores(#[from] CoreError),
    /// It cannot be run.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// A worker cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A worker that runs cannot change its core.
    #[error("worker {worker} runs on core {core} and would run on {asked}: it cannot change while packets run")]
    Bound {
        /// The worker.
        worker: usize,
        /// The core it is bound to.
        core: usize,
        /// The core asked for.
        asked: usize,
    },
    /// It could not be kept for the next start.
    #[error("the configuration cannot be kept for the next start: {0}")]
    Keep(std::io::Error),
    /// The run is ending.
    #[error("the run is ending")]
    Ending,
}

/// What a change came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reloaded {
    /// What is different.
    #[serde(flatten)]
    pub change: Change,
    /// Packets that functions held which are gone: they were dropped.
    pub dropped: u64,
    /// By worker: its core.
    pub cores: Vec<usize>,
    /// From reading the configuration to the last worker's change, in milliseconds.
    pub took_ms: f64,
    /// The longest that a worker took no packets from ports, in microseconds.
    pub pause_us: f64,
    /// Packets that were unaccounted for in the graph that was replaced: 0, or there is a defect.
    pub missing: i64,
}

impl<S: Scheduler + 'static> Running<S> {
    pub(crate) fn change_to(
        &self,
        source: &Source,
        accept: &mut dyn FnMut() -> std::io::Result<()>,
    ) -> Result<Reloaded, ReloadError> {
        let began = Tsc.now();
        let frequency = Tsc.frequency();
        // One change after the other; whoever asks for something else waits for the switch alone.
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let conditions = Conditions { frequency, simulated: false };
        let running = self.crew().made.clone();
        let Loaded { plans, cores, made, .. } = forebay_pipeline::reload(source, conditions, &running)?;
        let mut crew = self.crew();
        if self.stop.load(Ordering::Relaxed) || crew.threads.iter().any(|thread| thread.handle.is_finished()) {
            return Err(ReloadError::Ending);
        }
        // Whoever runs on keeps its core.
        let bound: Vec<_> = crew.threads.iter().map(|thread| thread.core).take(cores.len()).collect();
        let asked: Vec<_> = bound.iter().map(|core| Some(*core)).chain(cores[bound.len()..].iter().copied()).collect();
        if let Some(worker) = (0..bound.len()).find(|at| cores[*at].is_some_and(|core| core != bound[*at])) {
            return Err(ReloadError::Bound { worker, core: bound[worker], asked: cores[worker].unwrap_or_default() });
        }
        let cores = choose(&asked)?;
        let mut told = Reloaded { change: crew.made.change_to(&made), ..Reloaded::default() };

        let team = Arc::new(Team::new(plans.len()));
        let rings = links(&plans[0], &plans[0].placement);
        // Modules that are taken over keep their tables.
        let kept: HashSet<_> = plans
            .iter()
            .flat_map(|plan| plan.modules.iter().filter(|module| module.from.is_some()))
            .map(|module| module.name.clone())
            .collect();
        let mut tables = tables(&plans);
        // Those of a module that has come to further workers are told already.
        let told_already = |table: &NamedTable| {
            tables.iter().any(|new: &NamedTable| (&new.module, &new.name) == (&table.module, &table.name))
        };
        let others = crew.tables.iter().filter(|table| kept.contains(&table.module) && !told_already(table));
        let others: Vec<_> = others.cloned().collect();
        tables.extend(others);
        let running = self.board.telemetries();
        let mut next: Vec<Worker<Tsc, S>> = Vec::new();
        for (plan, ring) in plans.into_iter().zip(rings) {
            let pool = match crew.threads.get(plan.worker) {
                Some(thread) => thread.pool.clone(),
                None => Pool::new(plan.pool).map_err(MakeError::from)?,
            };
            next.push(Worker::member(plan, Tsc, Vec::new(), pool, ring, Arc::clone(&team))?);
        }
        let exchange = Arc::new(Exchange::between(&running, &mut next));
        drop(running);
        let telemetries: Vec<_> = next.iter().map(Worker::telemetry).collect();
        // Workers that join are made to wait first: everything that can fail has been done before anything changes.
        let mut joining = Vec::new();
        let joiners = next.split_off(bound.len().min(next.len()));
        for (worker, core) in joiners.into_iter().zip(&cores[bound.len()..]) {
            let mut worker = worker;
            worker.observe((crew.watch)(bound.len() + joining.len()));
            let (pool, number) = (worker.pool(), crew.started);
            crew.started += 1;
            joining.push(join(Box::new(worker), pool, *core, number, Arc::clone(&exchange), Arc::clone(&self.stop))?);
        }
        accept().map_err(ReloadError::Keep)?;

        // From here on nothing can fail but the machine itself. Whoever reads counters waits.
        let mut state = self.board.state();
        let (former, formers) = channel();
        let mut threads = std::mem::take(&mut crew.threads);
        let mut heirs = next.into_iter();
        for thread in &mut threads {
            let next = heirs.next().map(Box::new);
            let mut order = Order::Change { next, exchange: Arc::clone(&exchange), former: former.clone() };
            // Only the crew gives orders: there will be room.
            while let Err(PushError::Full(back)) = thread.orders.push(order) {
                order = back;
                std::thread::yield_now();
            }
        }
        drop(former);
        let leaving = threads.split_off(bound.len());
        threads.extend(joining.into_iter().map(|joiner| joiner.go(true)));
        let mut formers: Vec<_> = formers.iter().collect();
        for thread in leaving {
            if let Ok(Over::Succeeded(former)) = thread.handle.join() {
                formers.push(*former);
            }
        }
        told.took_ms = frequency.seconds(Tsc.now().since(began)) * 1e3;
        let longest = formers.iter().map(|former| former.pause).max().unwrap_or_default();
        told.pause_us = frequency.micros(longest.0 as f64);
        let mut gone = Reading::nothing(frequency, self.board.began());
        // Ports and held packets go on from graph to graph: only all of them together must come to nothing.
        let mut census = state.past.census();
        for former in &mut formers {
            let telemetry = former.telemetry();
            let before = telemetry.worker.wound_up.get();
            crew.troubles.extend(former.close().err().unwrap_or_default());
            told.dropped += telemetry.worker.wound_up.get() - before;
        }
        for former in formers {
            let mut reading = former.reading(Tsc.now());
            census.add(&reading.census());
            former.retire(&mut reading);
            gone.merge(&reading);
        }
        told.missing = (census.missing() - i128::from(exchange.moved())) as i64;
        state.past.merge(&gone);
        // Of what is gone only the packets are told.
        let present = telemetries.iter().fold(Reading::nothing(frequency, self.board.began()), |mut all, told| {
            all.merge(&Reading::of(told, Tsc.now()));
            all
        });
        state.past.keep(&present.names());
        told.cores.clone_from(&cores);
        (state.telemetries, state.team, state.origin) = (telemetries, team, origin(&cores));
        (crew.threads, crew.made, crew.tables) = (threads, made, tables);
        Ok(told)
    }
}
