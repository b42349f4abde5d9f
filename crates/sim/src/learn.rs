//! Learns a scene from a short run of the pipeline itself, in which each packet is observed on its route.
//!
//! The gate that a packet takes depends on its bytes, on tables and on chance, and only the functions know it. So this
//! module does not compute routes: it observes some thousand packets of each source. The sources determine when packets
//! arrive ([`Pace`](forebay_graph::Pace)).

mod watch;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_graph::{
    Cost, FlowError, MakeError, Origin, Plan, PortPlan, RunToCompletion, Target, Team, Topology, WhenFull, Worker,
    drive::{Ended, shut_down_team, simulate_team},
    links,
    report::Reading,
};
use forebay_measure::Simulated;
use forebay_packet::Pool;
use forebay_protocol::report::LostLines;
use forebay_units::{Frequency, Ticks};

use crate::nodes::{Graph, WorkerNodes};
use crate::pattern::Pattern;
use crate::scene::{GONE, NO_FLOW, Scene, SourcePlan, WorkerPlan};
use watch::{Entry, Observations, Trail, Watcher};

/// The largest number of packets in flight at once. It must be at most 255, because the observers distinguish packets
/// by a mark of one byte that is not 0.
const MAX_IN_FLIGHT: usize = 64;
/// The simulated time between two checks of how many packets have been observed, in nanoseconds.
const SLICE: u64 = 20_000;
/// After this many slices without a new packet, no more packets are expected.
const MAX_IDLE_SLICES: u32 = 100;

/// The reason why a pipeline cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// The flows of the pipeline cannot be distinguished.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// The pipeline cannot run.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The arrival times of a port's packets are unknown in advance, or the packets of the port end.
    #[error(
        "port '{port}': the arrival times of its packets are not known in advance: use a generator without `count` and \
         without `recorded`"
    )]
    Source {
        /// The name of the port.
        port: String,
    },
    /// A module holds packets or creates packets.
    #[error("module '{module}' holds or creates packets: use only modules that forward, drop and consume packets")]
    Holds {
        /// The name of the module.
        module: String,
    },
    /// A module has a rate limit.
    #[error("module '{module}' has a rate limit: use only weights and marks")]
    Limit {
        /// The name of the module.
        module: String,
    },
}

impl Scene {
    /// Learns the scene of the pipeline with these plans, one for each worker. The plans must be made for simulated
    /// time with ticks of a nanosecond.
    ///
    /// `packets` packets of each source are observed. 4 096 are enough for periodic traffic. If traffic is random and a
    /// tenth of the packets takes a route, 4 096 packets determine this fraction to within 5 % of its value.
    ///
    /// # Errors
    /// [`LearnError`].
    pub fn learn(mut plans: Vec<Plan>, packets: usize) -> Result<Self, LearnError> {
        let layout = plans[0].layout()?;
        let leader = |module: usize| layout.modules[module].leader;
        let graph = Graph::of(&plans[0], leader);
        // The schedulers of the simulator count time in picoseconds.
        let frequency = Frequency::new(1e12);
        if let Some(limited) = plans[0].modules.iter().find(|module| module.share.limit.is_some()) {
            return Err(LearnError::Limit { module: limited.name.clone() });
        }
        let buffers = plans[0].modules.iter().map(|module| (module.trigger, module.hold)).collect();
        let flows = plans[0].flows()?.len();
        let topologies: Vec<_> = plans.iter().map(|plan| topology(plan, &graph, frequency)).collect();
        let paces: Vec<Vec<_>> = plans
            .iter_mut()
            .map(|plan| {
                let pace = |port: &mut PortPlan| port.open.as_mut()?.port.schedule()?.pace();
                plan.ports.iter_mut().map(pace).collect()
            })
            .collect();
        let names: Vec<String> = plans[0].ports.iter().map(|port| port.name.clone()).collect();
        let Observed { trails, lengths, lost_lines } = watch(&mut plans, packets)?;

        let worker_nodes: Vec<_> = (0..layout.workers).map(|worker| WorkerNodes::of(&graph, worker)).collect();
        let rings = graph.rings();
        let mut routes = Routes { worker_nodes: &worker_nodes, hops: Vec::new(), known: HashMap::new() };
        let mut sources: Vec<Vec<SourcePlan>> = vec![Vec::new(); layout.workers];
        for ((worker, port), trails) in trails {
            let Some(target) = graph.entries[port] else { continue };
            let Some(pace) = paces[worker][port] else { return Err(LearnError::Source { port: names[port].clone() }) };
            let routes: Vec<u32> = trails.iter().map(|trail| routes.begin((worker, port), trail, leader)).collect();
            if !routes.is_empty() {
                let entry = worker_nodes[worker].first(Origin::Port(port), target);
                sources[worker].push(SourcePlan { port, entry, pace, pattern: Pattern::of(&routes) });
            }
        }
        let hops = routes.hops.into();
        let sites = topologies.into_iter().zip(sources).zip(&worker_nodes).enumerate();
        let workers = sites.map(|(worker, ((topology, sources), worker_nodes))| {
            let ins = (0..rings.len()).filter(|ring| rings[*ring].to == worker).collect();
            let nodes = worker_nodes.types(&rings);
            WorkerPlan {
                topology: Topology { nodes: nodes.len(), ..topology },
                nodes,
                single_feed: worker_nodes.single_feed(),
                sources,
                ins,
            }
        });
        let workers = workers.collect();
        let entries = graph.entries.iter().map(|entry| entry.as_ref().and_then(module)).collect();
        let length = |flow| lengths.get(&flow).map_or(0.0, |(packets, bytes)| *bytes as f64 / *packets as f64);
        let lengths = (0..flows).map(length).collect();
        Ok(Self { layout, flows, lengths, hops, workers, rings, entries, buffers, lost_lines })
    }
}

impl Graph {
    /// Returns the graph of a plan. `leader` returns the first module of a module's fold, which runs for all modules of
    /// the fold. For a module that is not folded, it returns the module itself.
    fn of(plan: &Plan, leader: impl Fn(usize) -> usize) -> Self {
        let to_leader =
            |target: Target| if let Target::Module(module) = target { Target::Module(leader(module)) } else { target };
        let gates = plan.modules.iter().enumerate().map(|(at, module)| {
            let gates = module.gates.iter().filter(|_| leader(at) == at);
            gates.map(|(_, target)| to_leader(*target)).collect()
        });
        Self {
            gates: gates.collect(),
            entries: plan.ports.iter().map(|port| port.entry.map(to_leader)).collect(),
            placement: Arc::clone(&plan.placement),
            drops: plan.modules.iter().map(|module| module.share.marks.when_full == WhenFull::Drop).collect(),
        }
    }
}

/// Returns the module that a gate or a port leads to.
fn module(target: &Target) -> Option<usize> {
    if let Target::Module(module) = *target { Some(module) } else { None }
}

/// Returns the topology that a worker's scheduler needs. The caller sets `nodes`, which is 0 here. `fed_otherwise` is
/// true for modules that get packets from modules, or from a port that another worker reads.
fn topology(plan: &Plan, graph: &Graph, frequency: Frequency) -> Topology {
    let mut fed_otherwise = vec![false; graph.gates.len()];
    graph.gates.iter().flatten().filter_map(module).for_each(|to| fed_otherwise[to] = true);
    for (port, entry) in graph.entries.iter().enumerate() {
        let Some(target) = entry else { continue };
        let hands_here = |from: &usize| {
            let to = graph.placement.leads(*from, Origin::Port(port), *target);
            *from != plan.worker && to.is_some_and(|to| to.contains(&plan.worker))
        };
        if let Some(to) = module(target).filter(|_| graph.placement.ports[port].iter().any(hands_here)) {
            fed_otherwise[to] = true;
        }
    }
    Topology {
        nodes: 0,
        shares: plan.modules.iter().map(|module| module.share).collect(),
        gates: graph.gates.iter().map(|gates| gates.iter().map(module).collect()).collect(),
        entries: graph.entries.iter().map(|entry| entry.as_ref().and_then(module)).collect(),
        fed_otherwise,
        batch: plan.batch,
        frequency,
    }
}

/// The trails of packets, by source.
type Trails = BTreeMap<Entry, Vec<Trail>>;

/// The result of observing packets.
struct Observed {
    /// The trails of at most the wanted number of packets of each source. A source without packets is missing.
    trails: Trails,
    /// By flow: the number of packets that were sent, and their bytes.
    lengths: BTreeMap<usize, (u64, u64)>,
    /// By module: the lines that are missing in the module's file.
    lost_lines: Vec<LostLines>,
}

/// Runs the pipeline until `packets` packets of each source have been observed, or until no more packets come. Consumes
/// the plans. Sources saturate and modules have no triggers here: only the routes matter, and the caller takes the
/// arrival times from the schedules.
fn watch(plans: &mut Vec<Plan>, packets: usize) -> Result<Observed, LearnError> {
    let names: Vec<String> = plans[0].modules.iter().map(|module| module.name.clone()).collect();
    let is_source = |port: &&PortPlan| port.entry.is_some() && port.open.as_ref().is_some_and(|open| open.receives);
    let sources = plans.iter().flat_map(|plan| &plan.ports).filter(is_source).count();
    let rings = links(&plans[0], &plans[0].placement);
    let (team, seen) = (Arc::new(Team::new(plans.len())), Arc::new(Mutex::new(Observations::default())));
    let mut workers: Vec<Worker<Simulated, RunToCompletion>> = Vec::new();
    for (mut plan, ring) in plans.drain(..).zip(rings) {
        plan.batch = plan.batch.min((MAX_IN_FLIGHT / sources.max(1)).max(1));
        plan.modules.iter_mut().for_each(|module| module.trigger = 0);
        plan.scheduled_sources().for_each(|source| source.saturate());
        let pool = Pool::new(plan.pool).map_err(MakeError::from)?;
        let clock = Simulated::new(Frequency::new(1e9));
        let costs = vec![Cost::default(); plan.modules.len()];
        let mut worker = Worker::member(plan, clock, costs, pool, ring, Arc::clone(&team))?;
        worker.observe(Some(Box::new(Watcher { worker: workers.len(), seen: Arc::clone(&seen) })));
        workers.push(worker);
    }
    let (mut until, mut count, mut idle) = (0, 0, 0);
    loop {
        until += SLICE;
        let ended = simulate_team(&mut workers, Ticks(until));
        let counts = |seen: &Observations| seen.trails.values().map(|trails| trails.len().min(packets)).sum::<usize>();
        let now = counts(&seen.lock().unwrap_or_else(PoisonError::into_inner));
        idle = if now > count { 0 } else { idle + 1 };
        count = now;
        if ended == Ended::Finished || count == sources * packets || idle > MAX_IDLE_SLICES {
            break;
        }
    }
    // Errors at closing ports do not matter here: the packets have been observed already.
    drop(shut_down_team(&mut workers));
    let created = workers.iter().flat_map(|worker| {
        worker.telemetry().modules.iter().map(|it| it.creates.total()).enumerate().collect::<Vec<_>>()
    });
    let maker = created.filter(|(_, created)| *created > 0).map(|(module, _)| module).next();
    let readings = workers.iter().map(|worker| Reading::of(&worker.telemetry(), Ticks(until)));
    let lost_lines = readings.reduce(|mut all, reading| {
        all.merge(&reading);
        all
    });
    let lost_lines = lost_lines.map_or_else(Vec::new, |reading| reading.lost_lines());
    workers.iter_mut().for_each(|worker| worker.observe(None));
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = seen.holds.or(maker) {
        return Err(LearnError::Holds { module: names[module].clone() });
    }
    let whole = |trails: Vec<Option<Trail>>| trails.into_iter().flatten().take(packets).collect();
    let trails = std::mem::take(&mut seen.trails).into_iter().map(|(entry, trails)| (entry, whole(trails)));
    let lengths = std::mem::take(&mut seen.lengths);
    Ok(Observed { trails: trails.collect(), lengths, lost_lines })
}

/// The distinct routes that have been observed.
struct Routes<'g> {
    /// By worker.
    worker_nodes: &'g [WorkerNodes<'g>],
    /// The routes, one after the other, as in [`Scene::hops`].
    hops: Vec<u32>,
    /// By route: the index of its first hop in `hops`.
    known: HashMap<Vec<u32>, u32>,
}

impl Routes<'_> {
    /// Returns the index in `hops` of the first hop of a packet's route. Adds the route if it is new. `entry` is the
    /// worker and the port by which the packet entered.
    fn begin(&mut self, entry: Entry, trail: &Trail, leader: impl Fn(usize) -> usize) -> u32 {
        let (mut worker, mut origin) = (entry.0, Origin::Port(entry.1));
        let mut route: Vec<u32> = Vec::new();
        let modules = trail.visits.iter().map(|(on, module)| (*on, Target::Module(leader(*module))));
        let out = trail.left.map(|(on, port, _)| (on, Target::Port(port)));
        for (on, target) in modules.chain(out) {
            route.extend(self.worker_nodes[worker].route(origin, target, on).into_iter().map(|node| node as u32));
            if on != worker {
                route.push(self.worker_nodes[on].node(target) as u32);
            }
            worker = on;
            if let Target::Module(module) = target {
                origin = Origin::Gate(module);
            }
        }
        route.push(trail.left.map_or(GONE, |(_, _, flow)| flow.map_or(NO_FLOW, |flow| flow as u32)));
        if let Some(first_hop) = self.known.get(&route) {
            return *first_hop;
        }
        let first_hop = self.hops.len() as u32;
        self.hops.extend(&route);
        self.known.insert(route, first_hop);
        first_hop
    }
}
