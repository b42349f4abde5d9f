//! What flows ask of workers' time, as a snapshot tells it, and what there is of it.
//!
//! Modules share time, flows do not. So a flow is given its rate at its *gate*: the module on its way that the fewest flows pass, the
//! first of those. What it has no time for is turned away there, or where the chain begins that leads to it, and nothing
//! has been done for it behind. Modules before gates have to take all that comes.

use std::collections::BTreeMap;

use forebay_graph::{Layout, Snapshot};
use forebay_models::batching::Line;
use forebay_models::max_min::Demand;

/// Bytes of the shortest frame, without its check sequence.
const SHORTEST: f64 = 60.0;
/// How much of a rate is the last period's.
const RECENT: f64 = 0.5;
/// Fewer packets a second than this are none: what has stopped is halved from period to period without end.
const SOME: f64 = 1.0;
/// Of the largest batch: where so much comes together at a port's module all the time, more waits at the port.
const FULL: f64 = 0.9;
/// The share of its time from which on a worker has none left.
const BUSY: f64 = 0.95;
/// What waits at a port cannot be counted: more packets a second than there are.
const UNTOLD: f64 = 1e12;
/// So many times what a flow was promised comes with it at the most: others' packets at the same gate, which are run as they come.
const ALONG: f64 = 10.0;
/// The least part of a worker's time that is taken to be left to modules.
const LEAST: f64 = 0.05;

/// Packets a second, and together, over the last periods.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// By module: what came.
    came: Vec<f64>,
    /// By flow: what left.
    left: Vec<f64>,
    /// By module: packets that come together, which not every period tells.
    together: Vec<f64>,
    /// By flow: bytes a packet, of those that left; 0 before any has.
    bytes: Vec<f64>,
}

/// Flows that one module tells from all others, or packets of no flow that has a path.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) module: usize,
    /// Its flows, each with its part of the packets.
    pub(super) flows: Vec<(usize, f64)>,
    /// Packets a second that come to it.
    pub(super) offered: f64,
    /// The rate at which each of its flows has what it was promised, or what it offers; not above `offered`.
    pub(super) promised: f64,
}

/// What a period says.
#[derive(Clone, Debug)]
pub(super) struct Demands {
    pub(super) gates: Vec<Gate>,
    /// By module: packets a second that come whatever gates let through.
    pub(super) before: Vec<f64>,
    /// By worker: the share of its time that is left to what is behind gates, and all that modules have.
    pub(super) left: Vec<f64>,
    pub(super) whole: Vec<f64>,
    /// By module: seconds a packet.
    packet: Vec<f64>,
}

/// By module, what a call costs.
pub(super) fn cost(snapshot: &Snapshot, at: usize) -> Line {
    let (fixed, each) = snapshot.modules[at].cost_s;
    Line { fixed, each }
}

impl Rates {
    /// Learns from a period.
    pub(super) fn pass(&mut self, snapshot: &Snapshot) {
        let news = |packets: u64| packets as f64 / snapshot.period_s;
        let came = snapshot.modules.iter().map(|module| news(module.came));
        let left = snapshot.flows.iter().map(|flow| news(flow.packets));
        for (rates, news) in [(&mut self.came, came.collect::<Vec<_>>()), (&mut self.left, left.collect())] {
            if rates.len() == news.len() {
                for (rate, news) in rates.iter_mut().zip(news) {
                    let next = *rate + RECENT * (news - *rate);
                    *rate = if next < SOME { 0.0 } else { next };
                }
            } else {
                *rates = news;
            }
        }
        self.bytes.resize(snapshot.flows.len(), 0.0);
        for (bytes, flow) in self.bytes.iter_mut().zip(&snapshot.flows).filter(|(_, flow)| flow.packets > 0) {
            let news = flow.bytes as f64 / flow.packets as f64;
            *bytes = if *bytes > 0.0 { *bytes + RECENT * (news - *bytes) } else { news };
        }
        self.together.resize(snapshot.modules.len(), 1.0);
        for (together, module) in self.together.iter_mut().zip(&snapshot.modules) {
            let news = module.ingress().unwrap_or(*together);
            *together += RECENT * (news - *together);
        }
    }

    /// Returns the pipeline with all rate objectives in packets a second, by the mean length of each flow's packets;
    /// `None` where all are stated so. Before a flow's first packet has left, its packets count as the shortest.
    pub(super) fn in_packets(&self, layout: &Layout) -> Option<Layout> {
        if layout.flows.iter().all(|flow| flow.min_rate_bits.is_none()) {
            return None;
        }
        let mut layout = layout.clone();
        for (flow, bytes) in layout.flows.iter_mut().zip(&self.bytes) {
            let bytes = if *bytes > 0.0 { *bytes } else { SHORTEST };
            flow.min_rate = flow.min_rate.or(flow.min_rate_bits.map(|bits| bits / 8.0 / bytes));
        }
        Some(layout)
    }

    /// Whether packets wait at the ports before a module because their worker has no time for it.
    pub(super) fn is_full(&self, layout: &Layout, snapshot: &Snapshot, at: usize) -> bool {
        let module = &layout.modules[at];
        let busy = |worker: &usize| {
            snapshot.workers.get(*worker).is_some_and(|it| it.busy_s >= BUSY * it.there_s(snapshot.period_s))
        };
        module.entry && module.workers.iter().any(busy) && self.together[at] >= FULL * layout.batch as f64
    }

    /// Packets a second of a flow that left.
    pub(super) fn left(&self, flow: usize) -> f64 {
        self.left[flow]
    }
}

/// By flow with a path: the module that tells it from others.
fn gates(layout: &Layout) -> Vec<Option<usize>> {
    let mut passing = vec![0usize; layout.modules.len()];
    layout.flows.iter().flat_map(|flow| &flow.path).for_each(|at| passing[*at] += 1);
    layout.flows.iter().map(|flow| flow.path.iter().copied().min_by_key(|at| passing[*at])).collect()
}

impl Demands {
    /// Of what the last periods said; `guard`: the part of each objective that is kept in reserve.
    pub(super) fn new(layout: &Layout, snapshot: &Snapshot, rates: &Rates, guard: f64) -> Self {
        let packet = |at: usize| cost(snapshot, at).at(snapshot.modules[at].batch().unwrap_or(1.0).max(1.0));
        let per_call = |at: usize| packet(at) / snapshot.modules[at].batch().unwrap_or(1.0).max(1.0);
        let packet: Vec<f64> = (0..layout.modules.len()).map(per_call).collect();
        let gate_of = gates(layout);
        // Behind its gate a module has only as much of a flow as that let through.
        let mut before = vec![None; layout.modules.len()];
        let mut behind = vec![0.0; layout.modules.len()];
        for ((flow, told), gate) in layout.flows.iter().enumerate().zip(&gate_of) {
            for &at in &told.path {
                let first = gate.is_some_and(|gate| at < gate);
                let known = before[at].unwrap_or(false);
                before[at] = Some(known || first);
                behind[at] += if first { 0.0 } else { rates.left[flow] };
            }
        }
        let mut of_gate: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (flow, gate) in gate_of.iter().enumerate() {
            gate.iter().for_each(|gate| of_gate.entry(*gate).or_default().push(flow));
        }
        for (at, _) in layout.running().filter(|(at, _)| before[*at].is_none()) {
            of_gate.entry(at).or_default();
        }
        let gates = of_gate.into_iter().map(|(module, flows)| {
            let own: f64 = flows.iter().map(|flow| rates.left[*flow]).sum();
            let others = behind[module] - own;
            let full = rates.is_full(layout, snapshot, module);
            let offered = if full { UNTOLD } else { (rates.came[module] - others).max(own) };
            Gate::new(layout, module, (&flows, &rates.left), offered, guard)
        });
        let before: Vec<f64> = (0..layout.modules.len())
            .map(|at| if before[at] == Some(true) { (rates.came[at] - behind[at]).max(0.0) } else { 0.0 })
            .collect();
        let gates = gates.collect();
        let whole: Vec<f64> = (0..snapshot.workers.len()).map(|worker| capacity(layout, snapshot, worker)).collect();
        Self { gates, before, left: Vec::new(), whole, packet }.with_time_left(layout)
    }

    /// The same where modules before gates take only this part of what comes: the rest stays outside.
    pub(super) fn admitting(&self, layout: &Layout, part: f64) -> Self {
        let gate = |gate: &Gate| {
            let offered = if self.is_behind(layout, gate) { part * gate.offered } else { gate.offered };
            Gate { offered, promised: gate.promised.min(offered), ..gate.clone() }
        };
        let gates = self.gates.iter().map(gate).collect();
        let before = self.before.iter().map(|rate| part * rate).collect();
        Self { gates, before, ..self.clone() }.with_time_left(layout)
    }

    /// Whether packets pass other modules before they come to a gate.
    fn is_behind(&self, layout: &Layout, gate: &Gate) -> bool {
        let passes = |&(flow, _): &(usize, f64)| {
            layout.flows[flow].path.iter().any(|&at| at < gate.module && self.before[at] > 0.0)
        };
        gate.flows.iter().any(passes)
    }

    fn with_time_left(mut self, layout: &Layout) -> Self {
        self.left.clone_from(&self.whole);
        for (at, rate) in self.before.iter().enumerate() {
            for (worker, part) in parts(layout, at) {
                let takes = rate * self.packet[at] * part;
                self.left.get_mut(worker).into_iter().for_each(|left| *left = (*left - takes).max(0.0));
            }
        }
        self
    }

    /// What gates ask for.
    pub(super) fn asked(&self, layout: &Layout) -> Vec<Demand> {
        let ask = |gate: &Gate| Demand {
            weight: gate.flows.len().max(1) as f64,
            promised: gate.promised,
            offered: gate.offered,
            uses: self.uses(layout, gate),
        };
        self.gates.iter().map(ask).collect()
    }

    /// Seconds of each worker that a packet through a gate takes.
    fn uses(&self, layout: &Layout, gate: &Gate) -> Vec<(usize, f64)> {
        let mut uses: BTreeMap<usize, f64> = BTreeMap::new();
        for (at, part) in gate.behind(layout) {
            self.takes(layout, at, part).for_each(|(worker, seconds)| *uses.entry(worker).or_default() += seconds);
        }
        uses.into_iter().collect()
    }

    /// Seconds of each worker that so many packets take at a module.
    fn takes<'l>(&'l self, layout: &'l Layout, at: usize, packets: f64) -> impl Iterator<Item = (usize, f64)> + 'l {
        let there = parts(layout, at).filter(|(worker, _)| *worker < self.left.len());
        there.map(move |(worker, part)| (worker, packets * self.packet[at] * part))
    }

    /// The worker of whose time flows take most at these rates, of those that gates let through, and how much that is of what there
    /// is. `rate`: of a gate, its flow and the flow's part.
    pub(super) fn busiest(&self, layout: &Layout, rate: impl Fn(&Gate, usize, f64) -> f64) -> (usize, f64) {
        let mut needed: Vec<f64> = self.whole.iter().zip(&self.left).map(|(whole, left)| whole - left).collect();
        for gate in &self.gates {
            for &(flow, part) in &gate.flows {
                let rate = rate(gate, flow, part);
                let takes = gate.way(layout, flow).flat_map(|at| self.takes(layout, at, rate));
                takes.for_each(|(worker, seconds)| needed[worker] += seconds);
            }
        }
        let loads = needed.iter().zip(&self.whole).map(|(needed, whole)| needed / whole).enumerate();
        loads.max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap_or((0, 0.0))
    }
}

impl Gate {
    fn new(layout: &Layout, module: usize, (flows, left): (&[usize], &[f64]), offered: f64, guard: f64) -> Self {
        let all: f64 = flows.iter().map(|flow| left[*flow]).sum();
        let part = |flow: usize| if all > 0.0 { left[flow] / all } else { 1.0 / flows.len() as f64 };
        let flows: Vec<_> = flows.iter().map(|&flow| (flow, part(flow))).collect();
        // Who comes first is run first: so much has to be let through that the part of each is what it was promised. A flow that
        // hardly sends anything would promise all of the others' packets: they come along with what it has a claim to, and there
        // is an end to it.
        let promised = |&(flow, part): &(usize, f64)| {
            let claim = (layout.flows[flow].min_rate.unwrap_or(0.0) / (1.0 - guard)).min(offered * part);
            claim * part.recip().min(ALONG)
        };
        let promised = flows.iter().filter(|(_, part)| *part > 0.0).map(promised).fold(0.0, f64::max);
        Self { module, flows, offered, promised }
    }

    /// The modules from the gate on, each with its part of what the gate lets through.
    pub(super) fn behind<'l>(&'l self, layout: &'l Layout) -> impl Iterator<Item = (usize, f64)> + 'l {
        let of_flow = |&(flow, part): &'l (usize, f64)| self.way(layout, flow).map(move |at| (at, part));
        let alone = self.flows.is_empty().then_some((self.module, 1.0));
        self.flows.iter().flat_map(of_flow).chain(alone)
    }

    /// A flow's modules from the gate on.
    fn way<'l>(&self, layout: &'l Layout, flow: usize) -> impl Iterator<Item = usize> + 'l {
        let gate = self.module;
        layout.flows[flow].path.iter().copied().filter(move |at| *at >= gate)
    }
}

/// The workers that run a module, with the part of its packets that each has.
pub(super) fn parts(layout: &Layout, at: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
    let workers = &layout.modules[at].workers;
    workers.iter().map(|worker| (*worker, 1.0 / workers.len() as f64))
}

/// The share of a worker's time that modules have when it is busy: the rest are its ports and its own doings.
fn capacity(layout: &Layout, snapshot: &Snapshot, worker: usize) -> f64 {
    let spent = |(at, _): (usize, &forebay_graph::ModuleLayout)| {
        let part: f64 = parts(layout, at).filter(|(of, _)| *of == worker).map(|(_, part)| part).sum();
        let (told, cost) = (&snapshot.modules[at], cost(snapshot, at));
        part * (told.calls as f64 * cost.fixed + told.packets as f64 * cost.each)
    };
    let spent: f64 = layout.running().map(spent).sum();
    let busy = snapshot.workers[worker].busy_s;
    if busy > 0.0 { (spent / busy).clamp(LEAST, 1.0) } else { 1.0 }
}
