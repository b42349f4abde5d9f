//! Creates a worker from a plan.

use std::sync::Arc;

use forebay_measure::{Clock, Counter};
use forebay_packet::{Batch, MAX_BATCH, Pool, pool::PoolError};
use forebay_units::{Rate, Ticks};
use thiserror::Error;

use super::crossing::Stuck;
use super::roads::CrossingNodes;
use super::rota::Rota;
use super::stopwatch::Stopwatch;
use super::succession::Inherited;
use super::{Cost, Edge, Gateway, Node, Timer, Worker};
use crate::context::Desk;
use crate::flow::{self, FlowError, Passages, Shape};
use crate::fold;
use crate::input::{Input, Spares};
use crate::links::Links;
use crate::placement::Origin;
use crate::plan::{Plan, Target};
use crate::port::Ready;
use crate::scheduler::{Scheduler, ShareError, Topology};
use crate::team::Team;
use crate::telemetry::{
    Account, FlowTelemetry, FoldTelemetry, Metered, ModuleCounters, ModuleTelemetry, PortTelemetry, ReasonCounters,
    Telemetry, Way, WorkerCounters,
};

/// The hold limit of a module that no flow with a delay objective passes, in seconds.
const DEFAULT_HOLD_SECONDS: f64 = 1e-3;

/// Why a worker cannot be created.
#[derive(Debug, Error)]
pub enum MakeError {
    /// There is no memory for packets.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The flows cannot be distinguished.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// The placement does not belong to the plan.
    #[error("the placement and the plan have different modules, ports or workers")]
    Placement,
    /// The batch size is out of range.
    #[error("a largest batch of {0} packets is out of range: allowed are 1 to {MAX_BATCH}")]
    Batch(usize),
    /// The module's share (weight, rate limit and queue marks) is invalid.
    #[error("module '{module}': {}: {error}", error.part)]
    Share {
        /// The module.
        module: String,
        /// The fault in the module's share.
        error: ShareError,
    },
    /// The modules cannot be folded.
    #[error(
        "fold {fold}: a fold needs two or more modules in ascending order, with equal numbers of gates and in no other \
         fold"
    )]
    Fold {
        /// The index of the fold in the plan.
        fold: usize,
    },
    /// The gate leads nowhere or backwards.
    #[error("gate '{gate}' of module '{module}' leads {where_to}: allowed are later modules, ports and `drop`")]
    Gate {
        /// The module.
        module: String,
        /// The gate.
        gate: String,
        /// The target of the gate, as a phrase for the message.
        where_to: String,
    },
    /// Packets that enter by the port lead to a module or port that does not exist.
    #[error("packets of port '{port}' lead {where_to}: allowed are the plan's modules, ports and `drop`")]
    Entry {
        /// The port.
        port: String,
        /// The target of the packets, as a phrase for the message.
        where_to: String,
    },
}

impl Plan {
    /// Returns the flows of this plan that a worker distinguishes. Used to check a configuration before it runs.
    ///
    /// # Errors
    /// A declared flow that matches no path; more paths than can be distinguished.
    pub fn flows(&self) -> Result<Vec<crate::FlowPlan>, FlowError> {
        flow::build(&Shape::of(self), &self.flows).map(|(_, flows)| flows)
    }

    /// Checks the batch size, the shares, the gates, the ports' entries and the folds. The engine relies on this: all
    /// indexes are in range, gates lead to later modules only, and the modules of a fold have the same number of gates.
    fn check(&self) -> Result<(), MakeError> {
        if !(1..=MAX_BATCH).contains(&self.batch) {
            return Err(MakeError::Batch(self.batch));
        }
        for (number, module) in self.modules.iter().enumerate() {
            if let Err(error) = module.share.check() {
                return Err(MakeError::Share { module: module.name.clone(), error });
            }
            for (gate, target) in &module.gates {
                let where_to = match *target {
                    Target::Module(next) if next <= number => Some("backwards or to itself".to_owned()),
                    target => self.missing_target(target),
                };
                if let Some(where_to) = where_to {
                    return Err(MakeError::Gate { module: module.name.clone(), gate: gate.clone(), where_to });
                }
            }
        }
        for port in &self.ports {
            if let Some(where_to) = port.entry.and_then(|target| self.missing_target(target)) {
                return Err(MakeError::Entry { port: port.name.clone(), where_to });
            }
        }
        let mut seen = vec![false; self.modules.len()];
        let gates = |member: &usize| self.modules.get(*member).map(|module| module.gates.len());
        for (fold, members) in self.folds.iter().enumerate() {
            let first = members.first().and_then(gates);
            let alike = |member: &usize| {
                first.is_some() && gates(member) == first && !std::mem::replace(&mut seen[*member], true)
            };
            if members.len() < 2 || !members.is_sorted() || !members.iter().all(alike) {
                return Err(MakeError::Fold { fold });
            }
        }
        Ok(())
    }

    /// Returns a phrase that names the target if the plan does not have it.
    fn missing_target(&self, target: Target) -> Option<String> {
        match target {
            Target::Module(module) if module >= self.modules.len() => {
                Some(format!("to module {module}, which does not exist"))
            }
            Target::Port(port) if port >= self.ports.len() => Some(format!("to port {port}, which does not exist")),
            _ => None,
        }
    }

    /// Returns, by module, the module that runs for it: the first module of its fold, or itself.
    pub(crate) fn leaders(&self) -> Box<[usize]> {
        let mut leaders: Box<[usize]> = (0..self.modules.len()).collect();
        for members in &self.folds {
            members.iter().for_each(|member| leaders[*member] = members[0]);
        }
        leaders
    }

    /// Returns, by fold, the fold from which all its packets come. `None` if they do not all come from one fold.
    fn folds_before(&self) -> Vec<Option<usize>> {
        let positions = fold::positions(&self.folds, self.modules.len());
        let mut before = vec![None; self.folds.len()];
        for (number, members) in self.folds.iter().enumerate() {
            if let [(_, Target::Module(next))] = self.modules[members[0]].gates[..]
                && let Some(next) = positions[next]
            {
                before[next.fold] = Some(number);
            }
        }
        before
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Creates a worker that runs `plan` alone, with the time of `clock`. `costs` are the costs of the modules' calls
    /// in simulated time; a missing entry means 0.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn new(plan: Plan, clock: C, costs: Vec<Cost>) -> Result<Self, MakeError> {
        plan.check()?;
        let pool = Pool::new(plan.pool)?;
        Self::member(plan, clock, costs, pool, Links::default(), Arc::new(Team::new(1)))
    }

    /// Creates a worker of a team, which has all workers of the plan's placement. `links` are the new worker's ends of
    /// the rings to the other workers ([`links`](crate::links)), made for the same placement. `pool` is the worker's
    /// pool: a new one, or the pool of the running worker that it succeeds.
    ///
    /// # Errors
    /// [`MakeError`].
    pub fn member(
        mut plan: Plan,
        clock: C,
        costs: Vec<Cost>,
        pool: Pool,
        links: Links,
        team: Arc<Team>,
    ) -> Result<Self, MakeError> {
        plan.check()?;
        let layout = pool.layout();
        let shape = Shape::of(&plan);
        let (flows, found) = flow::build(&shape, &plan.flows)?;
        let modules = plan.modules.len();
        let (mut flows_of, mut passages) = (vec![Vec::new(); modules], Passages::new(&shape));
        for (flow, declared) in found.iter().enumerate().filter(|(_, flow)| flow.slo.is_some()) {
            passages.of(declared).into_iter().for_each(|module| flows_of[module].push(flow));
        }
        let ways = Way::all(&mut passages, &found, &plan.leaders());
        let weighs = found.iter().any(|flow| flow.min_rate.and_then(Rate::bits).is_some());
        drop(shape);
        let frequency = clock.frequency();

        // From here on a fold is one module: all gates and ports that lead to any of its modules lead to the first one.
        let (leaders, before) = (plan.leaders(), plan.folds_before());
        let targets = plan.modules.iter_mut().flat_map(|module| &mut module.gates).map(|(_, target)| target);
        for target in targets.chain(plan.ports.iter_mut().filter_map(|port| port.entry.as_mut())) {
            if let Target::Module(module) = target {
                *module = leaders[*module];
            }
        }
        for members in &plan.folds {
            let mut flows: Vec<_> = members.iter().flat_map(|member| std::mem::take(&mut flows_of[*member])).collect();
            flows.sort_unstable();
            flows.dedup();
            flows_of[members[0]] = flows;
        }
        let mut topology = Topology::of(&plan, frequency);

        // After the modules come nodes for the ports, then the bin.
        let bin = modules + plan.ports.len();
        let node_of = |target: Target| match target {
            Target::Module(module) => module,
            Target::Port(port) => modules + port,
            Target::Drop => bin,
        };
        let crossing_nodes = CrossingNodes::find(&plan);
        let leads_to = |origin: Origin, target: Target| match crossing_nodes.index(origin, target) {
            Some(index) => bin + 1 + index,
            None => node_of(target),
        };
        let nodes = bin + 1 + crossing_nodes.len();
        topology.nodes = nodes;
        let mut feeders = vec![0usize; nodes];
        let entries = plan.ports.iter().enumerate();
        let entries = entries.filter_map(|(port, plan)| Some((Origin::Port(port), plan.entry?)));
        entries.for_each(|(origin, target)| feeders[leads_to(origin, target)] += 1);
        for (module, planned) in plan.modules.iter().enumerate().filter(|(module, _)| leaders[*module] == *module) {
            let mut fed: Vec<_> = planned.gates.iter().map(|(_, to)| leads_to(Origin::Gate(module), *to)).collect();
            fed.sort_unstable();
            fed.dedup();
            fed.into_iter().for_each(|node| feeders[node] += 1);
        }
        let edge = |origin: Origin, target: Target| {
            let node = leads_to(origin, target);
            Edge { node: node as u32, alone: feeders[node] == 1 }
        };

        let counts = |module: usize| {
            let arrives = |fold: usize| plan.folds[fold][0] == module;
            flows.arrival.iter().flatten().any(|arrival| arrives(arrival.fold))
        };
        let counts: Vec<bool> = (0..modules).map(counts).collect();
        let words = if plan.folds.is_empty() { 0 } else { flows.arrival.len() };
        let arrived: Arc<[Counter]> = (0..words).map(|_| Counter::new()).collect();
        let mut members = vec![Box::default(); modules];
        plan.folds.iter().for_each(|fold| members[fold[0]] = fold.iter().map(|member| *member as u32).collect());
        let counters: Arc<[ModuleCounters]> = (0..modules).map(|_| ModuleCounters::default()).collect();
        let mut worker = Self {
            scheduler: S::new(&topology),
            nodes: Vec::with_capacity(nodes),
            modules,
            edges: Vec::new(),
            gateways: Vec::new(),
            rota: if S::SHARES { Rota::new(plan.ports.len()) } else { Rota::default() },
            sources: vec![Vec::new(); modules].into(),
            crossings: crossing_nodes.build(bin + 1, &links, node_of),
            links,
            stuck: Stuck::NOTHING,
            waiting: Vec::new(),
            id: plan.worker,
            team,
            draining: false,
            paused: Ticks::ZERO,
            handed_ports: Vec::new(),
            inherited: Inherited::default(),
            arrived: Arc::clone(&arrived),
            members,
            leaders,
            buffered: Vec::new(),
            sweep_at: Ticks::NEVER,
            least_hold: Ticks::NEVER,
            publish_at: Ticks::ZERO,
            hold_stated: Vec::new(),
            flows_of,
            timers: Vec::new(),
            costs,
            desk: Desk::new(pool, clock.now()),
            spares: Spares::new(plan.batch, 16),
            intake: Batch::with_capacity(plan.batch),
            bin: Batch::with_capacity(MAX_BATCH),
            telemetry: Arc::new(Telemetry {
                id: plan.worker,
                pipeline: plan.name,
                frequency,
                counters: Arc::clone(&counters),
                modules: Vec::new(),
                ports: Vec::new(),
                flows: found.into_iter().map(|plan| FlowTelemetry::new(plan, frequency)).collect(),
                ways,
                folds: FoldTelemetry { members: plan.folds, before, arrival: flows.arrival.clone(), arrived },
                worker: WorkerCounters::default(),
                metered: None,
            }),
            flows,
            counters,
            observer: None,
            batch: plan.batch,
            exhausted_before: 0,
            exhausted_after: None,
            first_byte: layout.data + layout.headroom,
            budget: plan.batch * (plan.ports.len() + 1),
            began: clock.now(),
            departed: false,
            turn: 0,
            stopwatch: Stopwatch::new(&clock),
            was_busy: false,
            accounting: true,
            weighs,
            timing: true,
            clock,
        };
        worker.costs.resize(modules, Cost::default());
        let (mut module_telemetry, mut port_telemetry) = (Vec::with_capacity(modules), Vec::new());
        let mut triggers = Vec::new();
        for (number, module) in plan.modules.into_iter().enumerate() {
            let (edges, gates) = (worker.edges.len() as u32, module.gates.len() as u16);
            worker.edges.extend(module.gates.iter().map(|(_, target)| edge(Origin::Gate(number), *target)));
            let only = if gates == 1 { worker.edges.last().copied() } else { None };
            let input = Input::new(plan.batch);
            let own = &worker.edges[edges as usize..];
            let joins = gates > 1 && own.iter().all(|edge| *edge == own[0]);
            let counts = counts[number];
            if module.function.as_ref().is_some_and(|function| function.begins()) {
                worker.timers.push(Timer { at: worker.desk.now, module: worker.nodes.len(), keeps: true });
            }
            worker.nodes.push(Node { function: module.function, only, input, edges, gates, joins, counts });
            if let Some(from) = module.from {
                worker.inherited.modules.push((number, module.name.clone(), from));
            }
            worker.hold_stated.push(module.hold.map(|hold| frequency.ticks(hold)));
            triggers.push(module.trigger.min(plan.batch));
            let creates = ReasonCounters::new(module.creates.iter().map(|reason| reason.name));
            worker.desk.add_module(Arc::clone(&creates.counts));
            module_telemetry.push(ModuleTelemetry {
                name: module.name,
                kind: module.kind,
                gates: module.gates.into_iter().map(|(gate, _)| gate).collect(),
                here: plan.placement.modules[module_telemetry.len()].contains(&plan.worker),
                drops: ReasonCounters::new(module.drops.iter().map(|reason| reason.name)),
                creates,
                consumes: ReasonCounters::new(module.consumes.iter().map(|reason| reason.name)),
                turned_away: Counter::new(),
                own: module.counters,
            });
        }
        worker.nodes.resize_with(nodes, || Node {
            function: None,
            only: None,
            input: Input::new(plan.batch),
            edges: 0,
            gates: 0,
            joins: false,
            counts: false,
        });
        for (number, port) in plan.ports.into_iter().enumerate() {
            if let Some(from) = port.from {
                worker.inherited.ports.push((number, port.name.clone(), from));
            }
            let receives = port.open.as_ref().map_or(port.from.is_some(), |open| open.receives);
            let entry = port.entry.filter(|_| receives).map(|target| edge(Origin::Port(number), target));
            if let Some(sources) = entry.and_then(|entry| worker.sources.get_mut(entry.node as usize)) {
                sources.push(number as u32);
            }
            let (port_of, counters) = port.open.map(|open| (open.port, open.counters)).unzip();
            worker.gateways.push(Gateway { port: port_of, entry, ready: Ready::Now });
            port_telemetry.push(PortTelemetry {
                name: port.name,
                kind: port.kind,
                counters: counters.unwrap_or_default(),
                refused: Counter::new(),
                unread: Counter::new(),
                receiving: Account::default(),
                sending: Account::default(),
            });
        }
        let telemetry = Arc::get_mut(&mut worker.telemetry).expect("no other owner yet");
        (telemetry.modules, telemetry.ports) = (module_telemetry, port_telemetry);
        let meter = plan.meter.filter(|_| !S::SHARES);
        telemetry.metered = meter.as_ref().map(|_| Metered::new(modules, telemetry.ports.len()));
        for (module, trigger) in triggers.into_iter().enumerate().filter(|(_, trigger)| *trigger > 0) {
            worker.nodes[module].input.set_trigger(trigger, worker.batch, worker.desk.now, &mut worker.spares);
        }
        worker.derive_holds();
        if S::SHARES {
            worker
                .counters
                .iter()
                .zip(&topology.shares)
                .for_each(|(counters, share)| counters.weight.set(share.weight.into()));
        }
        if let Some(meter) = meter {
            worker.take_meter(meter);
        }
        Ok(worker)
    }

    /// Derives the hold limits of modules without a set limit (`hold_stated`). For each flow through the module, half
    /// of the flow's objective is divided by the number of buffers on the flow's path. The module's limit is the
    /// smallest of these values. If no flow through the module has an objective, the limit is 1 ms. Call this after
    /// each change of a trigger or of `hold_stated`.
    pub(super) fn derive_holds(&mut self) {
        self.buffered = (0..self.modules).filter(|&module| self.nodes[module].input.trigger() > 0).collect();
        let mut buffers_on = vec![0u64; self.telemetry.flows.len()];
        for &module in &self.buffered {
            self.flows_of[module].iter().for_each(|&flow| buffers_on[flow] += 1);
        }
        let default = (self.clock.frequency().hertz() * DEFAULT_HOLD_SECONDS) as u64;
        for &module in &self.buffered {
            let shares = self.flows_of[module]
                .iter()
                .map(|&flow| self.telemetry.flows[flow].objective().0 / (2 * buffers_on[flow]));
            let hold = self.hold_stated[module].unwrap_or_else(|| Ticks(shares.min().unwrap_or(default)));
            self.nodes[module].input.set_hold(hold);
        }
        let holds = self.buffered.iter().map(|&module| self.nodes[module].input.hold());
        self.least_hold = holds.min().unwrap_or(Ticks::NEVER);
        // A buffer may exceed its new limit already, so the buffers are checked at once.
        self.sweep_at = if self.buffered.is_empty() { Ticks::NEVER } else { Ticks::ZERO };
        for (module, leader) in self.leaders.iter().enumerate() {
            let input = &self.nodes[*leader].input;
            self.telemetry.counters[module].trigger.set(input.trigger() as u64);
            let hold = if input.trigger() > 0 { input.hold().0 } else { 0 };
            self.telemetry.counters[module].hold.set(hold);
        }
    }
}
