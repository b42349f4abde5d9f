//! The demand of flows for workers' time according to a snapshot, and the available time.
//!
//! Weights give time to modules, not to flows. A flow therefore gets its rate at one module, its *gate*: the module on
//! its path that the fewest flows pass, or the first of several such modules. The gate, or the start of the chain that
//! leads to the gate, turns away the packets for which there is no time. Later modules do no work for these packets.
//! Modules before gates must process all arriving packets.

use std::collections::BTreeMap;

use forebay_models::{batching::Line, max_min::Demand};
use forebay_protocol::{Layout, Snapshot};

/// Length of the shortest frame in bytes, without its check sequence.
const SHORTEST: f64 = 60.0;
/// The weight of the last period in the moving average of a rate.
const RECENT: f64 = 0.5;
/// The packets per second below which a rate counts as 0. Without this limit, the rate of a flow that has stopped would
/// never reach 0, because it is halved every period.
const SOME: f64 = 1.0;
/// A port counts as full if the module behind it gets at least this fraction of the largest batch at once, on average.
/// Further packets then wait at the port.
const FULL: f64 = 0.9;
/// A worker counts as having no spare time if it is busy for at least this fraction of the time in which it has its
/// core.
const BUSY: f64 = 0.95;
/// The packets per second that are assumed to arrive at a gate if its port is full. The number of waiting packets is
/// then unknown.
const UNKNOWN_RATE: f64 = 1e12;
/// At most this multiple of a flow's promised rate is reserved at its gate. The promised rate itself is not enough:
/// packets are processed in the order of arrival, so the packets of other flows that arrive between the flow's packets
/// need time, too.
const ALONG: f64 = 10.0;
/// At least this fraction of a worker's time counts as available for modules, whatever the measured times are.
const LEAST: f64 = 0.05;

/// The rates of modules and flows, smoothed over the last periods.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// By module: the packets per second that arrived.
    came: Vec<f64>,
    /// By flow: the packets per second that departed.
    departed: Vec<f64>,
    /// By module: the packets that arrive at once. The number does not change in a period without packets at the
    /// module.
    together: Vec<f64>,
    /// By flow: the bytes per departed packet; 0 before the first packet has departed.
    bytes: Vec<f64>,
}

/// A module at which flows get their rates. A running module that is on no flow's path is a gate without flows.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    /// The module's number.
    pub(super) module: usize,
    /// The flows whose gate this is, each with its fraction of the packets of all these flows. The fractions add up to
    /// 1.
    pub(super) flows: Vec<(usize, f64)>,
    /// The packets per second that arrive here; [`UNKNOWN_RATE`] if the port before the gate is full.
    pub(super) offered: f64,
    /// The packets per second that must pass the gate for its flows. Each flow then gets its promised rate, or the rate
    /// that it offers if this rate is lower. At most `offered`.
    pub(super) promised: f64,
}

/// The demands of a period.
#[derive(Clone, Debug)]
pub(super) struct Demands {
    pub(super) gates: Vec<Gate>,
    /// By module: the packets per second that arrive without having passed their flow's gate.
    pub(super) before: Vec<f64>,
    /// By worker: the share of its time that remains for gates and the modules after them.
    pub(super) remaining: Vec<f64>,
    /// By worker: the share of its time that is available for all modules.
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
    /// Learns from a period. Must be called once per period, before the rates are used.
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

    /// Returns the pipeline with all rate objectives converted to packets per second, by the mean length of each flow's
    /// packets. Returns `None` if all are in packets already. Before a flow's first packet has departed, its packets
    /// are assumed to have the shortest length.
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

    /// Returns whether packets wait at the ports before a module because one of its workers has no spare time.
    pub(super) fn is_full(&self, layout: &Layout, snapshot: &Snapshot, at: usize) -> bool {
        let module = &layout.modules[at];
        let busy = |worker: &usize| {
            snapshot.workers.get(*worker).is_some_and(|it| it.busy_s >= BUSY * it.there_s(snapshot.period_s))
        };
        module.entry && module.workers.iter().any(busy) && self.together[at] >= FULL * layout.batch as f64
    }

    /// Returns the rate at which packets of a flow departed, in packets per second.
    pub(super) fn departed(&self, flow: usize) -> f64 {
        self.departed[flow]
    }
}

/// Returns the gate of each flow; `None` for a flow without a path.
fn gates(layout: &Layout) -> Vec<Option<usize>> {
    let mut passing = vec![0usize; layout.modules.len()];
    layout.flows.iter().flat_map(|flow| &flow.path).for_each(|at| passing[*at] += 1);
    layout.flows.iter().map(|flow| flow.path.iter().copied().min_by_key(|at| passing[*at])).collect()
}

impl Demands {
    /// Computes the demands from the rates of the last periods. `guard` is the fraction of each objective that is kept
    /// in reserve.
    pub(super) fn new(layout: &Layout, snapshot: &Snapshot, rates: &Rates, guard: f64) -> Self {
        let packet = |at: usize| cost(snapshot, at).at(snapshot.modules[at].batch().unwrap_or(1.0).max(1.0));
        let per_call = |at: usize| packet(at) / snapshot.modules[at].batch().unwrap_or(1.0).max(1.0);
        let packet: Vec<f64> = (0..layout.modules.len()).map(per_call).collect();
        let gate_of = gates(layout);
        // A module after the gate of a flow receives only packets that the gate has let through. So packets before and
        // after their gates are counted separately. By module: true if a flow passes the module before the flow's gate;
        // `None` if the module is on no flow's path.
        let mut before = vec![None; layout.modules.len()];
        // By module: the packets per second of flows whose gate is this module or an earlier one.
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

    /// Returns the demands if modules before gates receive only the fraction `part` of the arriving packets.
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

    /// Calculates `remaining` from `whole` and the time of the packets in `before`.
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

    /// Returns the time of each worker, in seconds, that a packet through a gate takes there and in later modules.
    fn uses(&self, layout: &Layout, gate: &Gate) -> Vec<(usize, f64)> {
        let mut uses: BTreeMap<usize, f64> = BTreeMap::new();
        for (at, part) in gate.behind(layout) {
            self.takes(layout, at, part).for_each(|(worker, seconds)| *uses.entry(worker).or_default() += seconds);
        }
        uses.into_iter().collect()
    }

    /// Returns the time of each worker, in seconds, that `packets` packets take at a module.
    fn takes<'l>(&'l self, layout: &'l Layout, at: usize, packets: f64) -> impl Iterator<Item = (usize, f64)> + 'l {
        let known = parts(layout, at).filter(|(worker, _)| *worker < self.remaining.len());
        known.map(move |(worker, part)| (worker, packets * self.packet[at] * part))
    }

    /// Returns the busiest worker and its load relative to the available time, if flows have the rates that `rate`
    /// returns. The arguments of `rate` are a gate, one of its flows, and the flow's fraction of the gate's packets.
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
    /// Creates a gate. `departed` are the rates of all flows, and `offered` is the rate at which packets arrive at the
    /// gate, in packets per second.
    fn new(layout: &Layout, module: usize, (flows, departed): (&[usize], &[f64]), offered: f64, guard: f64) -> Self {
        let all: f64 = flows.iter().map(|flow| departed[*flow]).sum();
        let part = |flow: usize| if all > 0.0 { departed[flow] / all } else { 1.0 / flows.len() as f64 };
        let flows: Vec<_> = flows.iter().map(|&flow| (flow, part(flow))).collect();
        // Packets are processed in the order of arrival. The gate must therefore let through so many packets that each
        // flow's part of them is the promised rate. If the flow has very few of the packets, the gate would have to let
        // through nearly all packets of the other flows. So the number is limited to `ALONG` times the promised rate.
        let promised = |&(flow, part): &(usize, f64)| {
            let claim = (layout.flows[flow].min_rate.unwrap_or(0.0) / (1.0 - guard)).min(offered * part);
            claim * part.recip().min(ALONG)
        };
        let promised = flows.iter().filter(|(_, part)| *part > 0.0).map(promised).fold(0.0, f64::max);
        Self { module, flows, offered, promised }
    }

    /// Returns the modules from the gate on, each with its fraction of the packets that the gate lets through. A module
    /// on the paths of several flows is returned once for each of these flows.
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

/// Returns the workers that run a module, each with its fraction of the module's packets.
pub(super) fn parts(layout: &Layout, at: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
    let workers = &layout.modules[at].workers;
    workers.iter().map(|worker| (*worker, 1.0 / workers.len() as f64))
}

/// Returns the fraction of a worker's busy time that modules take: at least `LEAST`, and 1 if the worker was not busy.
/// The ports and the worker's other work take the rest.
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
