//! The demand of flows for workers' time according to a snapshot, and the available time.
//!
//! Modules share time, flows do not. So a flow gets its rate at its *gate*: the module on its path that the fewest
//! flows pass, and of those the first. Packets without time are turned away there, or at the start of the chain that
//! leads there, so later modules do no work for them. Modules before gates must process all arriving packets.

use std::collections::BTreeMap;

use forebay_models::{batching::Line, max_min::Demand};
use forebay_protocol::{Layout, Snapshot};

/// Length of the shortest frame in bytes, without its check sequence.
const SHORTEST: f64 = 60.0;
/// The weight of the last period in a rate.
const RECENT: f64 = 0.5;
/// Packets per second below which a rate counts as 0. The rate of a flow that has stopped is halved every period and
/// would never reach 0.
const SOME: f64 = 1.0;
/// The part of the largest batch: if this many packets always arrive at once at a port's module, more packets wait at
/// the port.
const FULL: f64 = 0.9;
/// The share of its time from which on a worker has none to spare.
const BUSY: f64 = 0.95;
/// Packets per second that stand for an unknown number of packets waiting at a port.
const UNKNOWN_RATE: f64 = 1e12;
/// The largest multiple of a flow's promise that passes its gate with it: packets of other flows, which are processed
/// in the order of arrival.
const ALONG: f64 = 10.0;
/// The least part of a worker's time that counts as available for modules.
const LEAST: f64 = 0.05;

/// Packets per second, and packets that arrive at once, over the last periods.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// By module: packets that arrived.
    came: Vec<f64>,
    /// By flow: packets that departed.
    departed: Vec<f64>,
    /// By module: packets that arrive at once. Not every period shows this.
    together: Vec<f64>,
    /// By flow: bytes per departed packet; 0 before the first one.
    bytes: Vec<f64>,
}

/// The flows that one module separates from all others, or the packets of no flow with a path.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) module: usize,
    /// Its flows, each with its part of the packets.
    pub(super) flows: Vec<(usize, f64)>,
    /// Packets per second that arrive at it.
    pub(super) offered: f64,
    /// The rate at which each of its flows gets its promise or its offered rate; at most `offered`.
    pub(super) promised: f64,
}

/// The demands of a period.
#[derive(Clone, Debug)]
pub(super) struct Demands {
    pub(super) gates: Vec<Gate>,
    /// By module: packets per second that arrive whatever the gates let through.
    pub(super) before: Vec<f64>,
    /// By worker: the share of its time that remains for modules after gates, and the share for all modules.
    pub(super) remaining: Vec<f64>,
    pub(super) whole: Vec<f64>,
    /// By module: seconds per packet.
    packet: Vec<f64>,
}

/// Returns the cost of a module's calls.
pub(super) fn cost(snapshot: &Snapshot, at: usize) -> Line {
    let (fixed, each) = snapshot.modules[at].cost_s;
    Line { fixed, each }
}

impl Rates {
    /// Learns from a period.
    pub(super) fn pass(&mut self, snapshot: &Snapshot) {
        let news = |packets: u64| packets as f64 / snapshot.period_s;
        let came = snapshot.modules.iter().map(|module| news(module.came));
        let departed = snapshot.flows.iter().map(|flow| news(flow.packets));
        for (rates, news) in [(&mut self.came, came.collect::<Vec<_>>()), (&mut self.departed, departed.collect())] {
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

    /// Returns the pipeline with all rate objectives in packets per second, by the mean length of each flow's packets.
    /// Returns `None` if all are in packets already. Before a flow's first packet has departed, its packets count as
    /// the shortest.
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

    /// Returns whether packets wait at the ports before a module because their worker has no time for it.
    pub(super) fn is_full(&self, layout: &Layout, snapshot: &Snapshot, at: usize) -> bool {
        let module = &layout.modules[at];
        let busy = |worker: &usize| {
            snapshot.workers.get(*worker).is_some_and(|it| it.busy_s >= BUSY * it.there_s(snapshot.period_s))
        };
        module.entry && module.workers.iter().any(busy) && self.together[at] >= FULL * layout.batch as f64
    }

    /// Returns the packets per second of a flow that departed.
    pub(super) fn departed(&self, flow: usize) -> f64 {
        self.departed[flow]
    }
}

/// Returns the gate of each flow that has a path.
fn gates(layout: &Layout) -> Vec<Option<usize>> {
    let mut passing = vec![0usize; layout.modules.len()];
    layout.flows.iter().flat_map(|flow| &flow.path).for_each(|at| passing[*at] += 1);
    layout.flows.iter().map(|flow| flow.path.iter().copied().min_by_key(|at| passing[*at])).collect()
}

impl Demands {
    /// Computes the demands of the last periods. `guard` is the part of each objective that is kept in reserve.
    pub(super) fn new(layout: &Layout, snapshot: &Snapshot, rates: &Rates, guard: f64) -> Self {
        let packet = |at: usize| cost(snapshot, at).at(snapshot.modules[at].batch().unwrap_or(1.0).max(1.0));
        let per_call = |at: usize| packet(at) / snapshot.modules[at].batch().unwrap_or(1.0).max(1.0);
        let packet: Vec<f64> = (0..layout.modules.len()).map(per_call).collect();
        let gate_of = gates(layout);
        // A module behind its flow's gate only receives the packets that the gate let through.
        let mut before = vec![None; layout.modules.len()];
        let mut behind = vec![0.0; layout.modules.len()];
        for ((flow, of), gate) in layout.flows.iter().enumerate().zip(&gate_of) {
            for &at in &of.path {
                let first = gate.is_some_and(|gate| at < gate);
                let known = before[at].unwrap_or(false);
                before[at] = Some(known || first);
                behind[at] += if first { 0.0 } else { rates.departed[flow] };
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
            let own: f64 = flows.iter().map(|flow| rates.departed[*flow]).sum();
            let others = behind[module] - own;
            let full = rates.is_full(layout, snapshot, module);
            let offered = if full { UNKNOWN_RATE } else { (rates.came[module] - others).max(own) };
            Gate::new(layout, module, (&flows, &rates.departed), offered, guard)
        });
        let before: Vec<f64> = (0..layout.modules.len())
            .map(|at| if before[at] == Some(true) { (rates.came[at] - behind[at]).max(0.0) } else { 0.0 })
            .collect();
        let gates = gates.collect();
        let whole: Vec<f64> = (0..snapshot.workers.len()).map(|worker| capacity(layout, snapshot, worker)).collect();
        Self { gates, before, remaining: Vec::new(), whole, packet }.with_remaining_time(layout)
    }

    /// Returns the demands if modules before gates only receive this part of the arriving packets. The others stay
    /// outside.
    pub(super) fn admitting(&self, layout: &Layout, part: f64) -> Self {
        let gate = |gate: &Gate| {
            let offered = if self.is_behind(layout, gate) { part * gate.offered } else { gate.offered };
            Gate { offered, promised: gate.promised.min(offered), ..gate.clone() }
        };
        let gates = self.gates.iter().map(gate).collect();
        let before = self.before.iter().map(|rate| part * rate).collect();
        Self { gates, before, ..self.clone() }.with_remaining_time(layout)
    }

    /// Returns whether packets pass other modules before they reach a gate.
    fn is_behind(&self, layout: &Layout, gate: &Gate) -> bool {
        let passes = |&(flow, _): &(usize, f64)| {
            layout.flows[flow].path.iter().any(|&at| at < gate.module && self.before[at] > 0.0)
        };
        gate.flows.iter().any(passes)
    }

    fn with_remaining_time(mut self, layout: &Layout) -> Self {
        self.remaining.clone_from(&self.whole);
        for (at, rate) in self.before.iter().enumerate() {
            for (worker, part) in parts(layout, at) {
                let takes = rate * self.packet[at] * part;
                self.remaining
                    .get_mut(worker)
                    .into_iter()
                    .for_each(|remaining| *remaining = (*remaining - takes).max(0.0));
            }
        }
        self
    }

    /// Returns the demands of the gates.
    pub(super) fn requested(&self, layout: &Layout) -> Vec<Demand> {
        let request = |gate: &Gate| Demand {
            weight: gate.flows.len().max(1) as f64,
            promised: gate.promised,
            offered: gate.offered,
            uses: self.uses(layout, gate),
        };
        self.gates.iter().map(request).collect()
    }

    /// Returns the seconds of each worker that a packet through a gate takes.
    fn uses(&self, layout: &Layout, gate: &Gate) -> Vec<(usize, f64)> {
        let mut uses: BTreeMap<usize, f64> = BTreeMap::new();
        for (at, part) in gate.behind(layout) {
            self.takes(layout, at, part).for_each(|(worker, seconds)| *uses.entry(worker).or_default() += seconds);
        }
        uses.into_iter().collect()
    }

    /// Returns the seconds of each worker that `packets` packets take at a module.
    fn takes<'l>(&'l self, layout: &'l Layout, at: usize, packets: f64) -> impl Iterator<Item = (usize, f64)> + 'l {
        let known = parts(layout, at).filter(|(worker, _)| *worker < self.remaining.len());
        known.map(move |(worker, part)| (worker, packets * self.packet[at] * part))
    }

    /// Returns the busiest worker at these rates, counting the packets that gates let through, and its load relative to
    /// the available time. `rate` returns the rate of a gate's flow with this part.
    pub(super) fn busiest(&self, layout: &Layout, rate: impl Fn(&Gate, usize, f64) -> f64) -> (usize, f64) {
        let mut needed: Vec<f64> =
            self.whole.iter().zip(&self.remaining).map(|(whole, remaining)| whole - remaining).collect();
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
    fn new(layout: &Layout, module: usize, (flows, departed): (&[usize], &[f64]), offered: f64, guard: f64) -> Self {
        let all: f64 = flows.iter().map(|flow| departed[*flow]).sum();
        let part = |flow: usize| if all > 0.0 { departed[flow] / all } else { 1.0 / flows.len() as f64 };
        let flows: Vec<_> = flows.iter().map(|&flow| (flow, part(flow))).collect();
        // Packets are processed in the order of arrival. So the gate must let through enough that each flow's part is
        // its promise. A flow with very few packets would promise all packets of the others. Therefore, the packets
        // that pass with its own are limited.
        let promised = |&(flow, part): &(usize, f64)| {
            let claim = (layout.flows[flow].min_rate.unwrap_or(0.0) / (1.0 - guard)).min(offered * part);
            claim * part.recip().min(ALONG)
        };
        let promised = flows.iter().filter(|(_, part)| *part > 0.0).map(promised).fold(0.0, f64::max);
        Self { module, flows, offered, promised }
    }

    /// Returns the modules from the gate on, each with its part of the packets that the gate lets through.
    pub(super) fn behind<'l>(&'l self, layout: &'l Layout) -> impl Iterator<Item = (usize, f64)> + 'l {
        let of_flow = |&(flow, part): &'l (usize, f64)| self.way(layout, flow).map(move |at| (at, part));
        let alone = self.flows.is_empty().then_some((self.module, 1.0));
        self.flows.iter().flat_map(of_flow).chain(alone)
    }

    /// Returns a flow's modules from the gate on.
    fn way<'l>(&self, layout: &'l Layout, flow: usize) -> impl Iterator<Item = usize> + 'l {
        let gate = self.module;
        layout.flows[flow].path.iter().copied().filter(move |at| *at >= gate)
    }
}

/// Returns the workers that run a module, each with its part of the module's packets.
pub(super) fn parts(layout: &Layout, at: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
    let workers = &layout.modules[at].workers;
    workers.iter().map(|worker| (*worker, 1.0 / workers.len() as f64))
}

/// Returns the share of a worker's time that modules have when it is busy. Its ports and its own work take the rest.
fn capacity(layout: &Layout, snapshot: &Snapshot, worker: usize) -> f64 {
    let spent = |(at, _): (usize, &forebay_protocol::ModuleLayout)| {
        let part: f64 = parts(layout, at).filter(|(of, _)| *of == worker).map(|(_, part)| part).sum();
        let (module, cost) = (&snapshot.modules[at], cost(snapshot, at));
        part * (module.calls as f64 * cost.fixed + module.packets as f64 * cost.each)
    };
    let spent: f64 = layout.running().map(spent).sum();
    let busy = snapshot.workers[worker].busy_s;
    if busy > 0.0 { (spent / busy).clamp(LEAST, 1.0) } else { 1.0 }
}
