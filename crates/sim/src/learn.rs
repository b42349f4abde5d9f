//! Learns a scene: a short run of the pipeline itself, packet by packet, in which each packet is watched on its way.
//!
//! What functions do with packets is theirs alone to know: which gate a packet takes follows from its bytes, tables and chance.
//! So nothing of it is worked out here; some thousand packets of each source show it. When packets come is what sources say
//! ([`Pace`](forebay_graph::Pace)).

mod watch;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_graph::drive::{Ended, simulate_team, wind_up_team};
use forebay_graph::report::{LostLines, Reading};
use forebay_graph::{
    Cost, FlowError, MakeError, Origin, Plan, PortPlan, RunToCompletion, Target, Team, Topology, WhenFull, Worker,
    links,
};
use forebay_measure::{Frequency, Simulated};
use forebay_packet::{Pool, Ticks};

use crate::pattern::Pattern;
use crate::roads::{Graph, Roads};
use crate::scene::{GONE, NO_FLOW, Scene, Site, SourcePlan};
use watch::{Entry, Seen, Trail, Watcher};

/// How many packets are under way at once at the most: those who watch can tell 255 apart.
const UNDER_WAY: usize = 64;
/// How much simulated time passes between two looks at how many packets have been seen.
const SLICE: u64 = 20_000;
/// How many slices without a packet of a source say that none will come.
const PATIENCE: u32 = 100;

/// Why a pipeline cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// Its flows cannot be told apart.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// It cannot run.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// A port whose packets come nobody knows when, or end.
    #[error(
        "port '{port}': its packets' times are not known beforehand: allowed are generators without `count` and \
         `recorded`"
    )]
    Source {
        /// Its name.
        port: String,
    },
    /// A module that holds packets back, or makes some.
    #[error(
        "module '{module}' holds packets back or makes some: allowed are modules that only pass on, drop and consume"
    )]
    Holds {
        /// Its name.
        module: String,
    },
    /// A rate limit.
    #[error("module '{module}' has a rate limit: allowed are weights and marks")]
    Limit {
        /// Its name.
        module: String,
    },
}

impl Scene {
    /// Learns from the pipeline of these plans, one for each worker, made for simulated time with ticks of a nanosecond. `packets` of each
    /// source are watched: 4 096 are enough where traffic comes round, and tell a way's share of a tenth to 5 % where it is
    /// random.
    ///
    /// # Errors
    /// [`LearnError`].
    pub fn learn(mut plans: Vec<Plan>, packets: usize) -> Result<Self, LearnError> {
        let layout = plans[0].layout()?;
        let leader = |module: usize| layout.modules[module].leader;
        let graph = Graph::of(&plans[0], leader);
        let frequency = Frequency::new(1e12);
        if let Some(limited) = plans[0].modules.iter().find(|module| module.share.limit.is_some()) {
            return Err(LearnError::Limit { module: limited.name.clone() });
        }
        let buffers = plans[0].modules.iter().map(|module| (module.trigger, module.hold)).collect();
        let flows = plans[0].flows()?.len();
        let topologies: Vec<_> = plans.iter().map(|plan| topology(plan, &graph, frequency)).collect();
        let paces: Vec<Vec<_>> = plans
            .iter()
            .map(|plan| {
                let pace = |port: &PortPlan| port.open.as_ref().and_then(|open| open.port.pace());
                plan.ports.iter().map(pace).collect()
            })
            .collect();
        let names: Vec<String> = plans[0].ports.iter().map(|port| port.name.clone()).collect();
        let Watched { trails, lengths, lost_lines } = watch(&mut plans, packets)?;

        let roads: Vec<_> = (0..layout.workers).map(|worker| Roads::of(&graph, worker)).collect();
        let rings = graph.rings();
        let mut ways = Ways { roads: &roads, hops: Vec::new(), known: HashMap::new() };
        let mut sources: Vec<Vec<SourcePlan>> = vec![Vec::new(); layout.workers];
        for ((worker, port), trails) in trails {
            let Some(target) = graph.entries[port] else { continue };
            let Some(pace) = paces[worker][port] else { return Err(LearnError::Source { port: names[port].clone() }) };
            let ways: Vec<u32> = trails.iter().map(|trail| ways.begin((worker, port), trail, leader)).collect();
            if !ways.is_empty() {
                let entry = roads[worker].first(Origin::Port(port), target);
                sources[worker].push(SourcePlan { port, entry, pace, pattern: Pattern::of(&ways) });
            }
        }
        let hops = ways.hops.into();
        let sites = topologies.into_iter().zip(sources).zip(&roads).enumerate();
        let workers = sites.map(|(worker, ((topology, sources), roads))| {
            let ins = (0..rings.len()).filter(|ring| rings[*ring].to == worker).collect();
            let nodes = roads.places(&rings);
            Site { topology: Topology { nodes: nodes.len(), ..topology }, nodes, alone: roads.alone(), sources, ins }
        });
        let workers = workers.collect();
        let entries = graph.entries.iter().map(|entry| entry.as_ref().and_then(module)).collect();
        let length = |flow| lengths.get(&flow).map_or(0.0, |(packets, bytes)| *bytes as f64 / *packets as f64);
        let lengths = (0..flows).map(length).collect();
        Ok(Self { layout, flows, lengths, hops, workers, rings, entries, buffers, lost_lines })
    }
}

impl Graph {
    /// A plan's, where `leader` runs for a module.
    fn of(plan: &Plan, leader: impl Fn(usize) -> usize) -> Self {
        let led =
            |target: Target| if let Target::Module(module) = target { Target::Module(leader(module)) } else { target };
        let gates = plan.modules.iter().enumerate().map(|(at, module)| {
            let gates = module.gates.iter().filter(|_| leader(at) == at);
            gates.map(|(_, target)| led(*target)).collect()
        });
        Self {
            gates: gates.collect(),
            entries: plan.ports.iter().map(|port| port.entry.map(led)).collect(),
            placement: Arc::clone(&plan.placement),
            drops: plan.modules.iter().map(|module| module.share.marks.when_full == WhenFull::Drop).collect(),
        }
    }
}

/// The module that a gate or a port leads to.
fn module(target: &Target) -> Option<usize> {
    if let Target::Module(module) = *target { Some(module) } else { None }
}

/// What a worker's scheduler is told of the graph.
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

/// By source: the trails of its packets.
type Trails = BTreeMap<Entry, Vec<Trail>>;

/// Packets that were watched.
struct Watched {
    trails: Trails,
    /// By flow: packets that left, and their bytes.
    lengths: BTreeMap<usize, (u64, u64)>,
    /// Lines that are not in modules' files.
    lost_lines: Vec<LostLines>,
}

/// Runs the pipeline until so many packets of each source have been seen.
fn watch(plans: &mut Vec<Plan>, packets: usize) -> Result<Watched, LearnError> {
    let names: Vec<String> = plans[0].modules.iter().map(|module| module.name.clone()).collect();
    let gives = |port: &&PortPlan| port.entry.is_some() && port.open.as_ref().is_some_and(|open| open.receives);
    let sources = plans.iter().flat_map(|plan| &plan.ports).filter(gives).count();
    let rings = links(&plans[0], &plans[0].placement);
    let (team, seen) = (Arc::new(Team::new(plans.len())), Arc::new(Mutex::new(Seen::default())));
    let mut workers: Vec<Worker<Simulated, RunToCompletion>> = Vec::new();
    for (mut plan, ring) in plans.drain(..).zip(rings) {
        plan.batch = plan.batch.min((UNDER_WAY / sources.max(1)).max(1));
        plan.modules.iter_mut().for_each(|module| module.trigger = 0);
        plan.ports.iter_mut().filter_map(|port| port.open.as_mut()).for_each(|open| open.port.saturate());
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
        let counts = |seen: &Seen| seen.trails.values().map(|trails| trails.len().min(packets)).sum::<usize>();
        let now = counts(&seen.lock().unwrap_or_else(PoisonError::into_inner));
        idle = if now > count { 0 } else { idle + 1 };
        count = now;
        if ended == Ended::Finished || count == sources * packets || idle > PATIENCE {
            break;
        }
    }
    // What goes wrong at ports when they are closed is nothing to whom their packets are indifferent.
    drop(wind_up_team(&mut workers));
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
    Ok(Watched { trails: trails.collect(), lengths, lost_lines })
}

/// The ways that have been seen, each once.
struct Ways<'g> {
    roads: &'g [Roads<'g>],
    hops: Vec<u32>,
    known: HashMap<Vec<u32>, u32>,
}

impl Ways<'_> {
    /// Where among the hops the way of a packet begins that entered by this worker's port.
    fn begin(&mut self, entry: Entry, trail: &Trail, leader: impl Fn(usize) -> usize) -> u32 {
        let (mut worker, mut origin) = (entry.0, Origin::Port(entry.1));
        let mut way: Vec<u32> = Vec::new();
        let modules = trail.visits.iter().map(|(on, module)| (*on, Target::Module(leader(*module))));
        let out = trail.left.map(|(on, port, _)| (on, Target::Port(port)));
        for (on, target) in modules.chain(out) {
            way.extend(self.roads[worker].way(origin, target, on).into_iter().map(|node| node as u32));
            if on != worker {
                way.push(self.roads[on].node(target) as u32);
            }
            worker = on;
            if let Target::Module(module) = target {
                origin = Origin::Gate(module);
            }
        }
        way.push(trail.left.map_or(GONE, |(_, _, flow)| flow.map_or(NO_FLOW, |flow| flow as u32)));
        if let Some(begins) = self.known.get(&way) {
            return *begins;
        }
        let begins = self.hops.len() as u32;
        self.hops.extend(&way);
        self.known.insert(way, begins);
        begins
    }
}
