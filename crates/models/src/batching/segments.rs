//! The modules of a model as segments: chains of modules that are called with the same batches.
//!
//! If a module receives all its packets from a module that gathers, and the packets stay together, the module gets the
//! same batches and needs no trigger. So a chain of five modules is one unknown with the costs of all five. Segments
//! are sorted in the order in which packets pass them, not in the order of the configuration.

use super::Model;
use super::waiting::Arrivals;

/// Modules that share the trigger of the first one.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// The module with the trigger.
    pub(super) first: usize,
    /// The segment from which all its packets come, if there is one.
    pub(super) before: Option<usize>,
    /// The size of arriving batches, as a fraction of the batches that leave the segment before.
    pub(super) kept: f64,
    /// Packets per batch on arrival, if there is no segment before.
    pub(super) ingress: f64,
    /// The configured trigger, or 0 if the trigger is free.
    pub(super) stated: f64,
    /// The wait for each packet that is missing in the batch, in seconds.
    pub(super) wait: f64,
    /// The load of the calls if each packet had its own call, `R·T0`. Divided by the batch, it is the part of the load
    /// that depends on the batch.
    pub(super) gain: f64,
    /// The delay per packet, in seconds.
    pub(super) each: f64,
    /// The number of segments before it on the longest path to it.
    level: usize,
}

impl Segment {
    /// Returns the batch on arrival, if packets leave the segment before in batches of `leaving`.
    pub(super) fn arrives(&self, leaving: f64) -> f64 {
        if self.before.is_some() { (self.kept * leaving).max(1.0) } else { self.ingress }
    }

    /// Returns the delay of packets that arrive in batches of `arrived` and are called in batches of `batch`, in
    /// seconds.
    pub(super) fn delay(&self, arrived: f64, batch: f64) -> f64 {
        (batch - arrived) * self.wait + batch * self.each
    }
}

/// The visit of a flow with an objective to a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    /// The index in [`Segments::all`].
    pub(super) segment: usize,
    /// The index in [`Segments::flows`], which differs from the index in the model.
    pub(super) flow: usize,
    /// True if the flow leaves after this segment.
    pub(super) last: bool,
}

/// A flow with an objective.
#[derive(Clone, Debug)]
pub(super) struct BoundedFlow {
    /// The indices of its stops in [`Segments::stops`], in the packets' order.
    pub(super) stops: std::ops::Range<usize>,
    /// The time for waits and for the costs per packet, in seconds: the objective without the turn and without the
    /// costs per call.
    pub(super) room: f64,
}

/// The segments of a model.
#[derive(Debug)]
pub(super) struct Segments {
    /// The segments with packets.
    pub(super) all: Vec<Segment>,
    /// The stops of all flows, flow by flow, in the packets' order.
    pub(super) stops: Vec<Stop>,
    /// The flows with packets and objectives.
    pub(super) flows: Vec<BoundedFlow>,
    /// Segments in the packets' order.
    pub(super) order: Vec<usize>,
    /// By module: the next module in the same segment.
    pub(super) next: Vec<Option<usize>>,
    /// By segment: the index of its first stop in `at`. An additional last entry has the length of `at`.
    begin: Vec<usize>,
    /// The indices of all stops, sorted by segment.
    at: Vec<usize>,
}

/// The part of an objective that is kept in reserve for rounding errors of sums in another order.
const ROUNDING: f64 = 1e-12;

impl Segments {
    /// Creates the segments of a model. If `chained` is false, each module is a separate segment.
    pub(super) fn new(model: &Model, arrivals: &Arrivals, chained: bool) -> Self {
        let (mut all, of, next) = chains(model, arrivals, chained);
        let (stops, flows) = ways(model, &of);
        // In a tree, the first pass finds all levels. Where paths join, each pass finds the levels of at least one more
        // segment on each path.
        for _ in 0..all.len() {
            let mut deeper = false;
            for pair in stops.windows(2).filter(|pair| pair[0].flow == pair[1].flow) {
                let level = all[pair[0].segment].level + 1;
                if all[pair[1].segment].level < level {
                    all[pair[1].segment].level = level;
                    deeper = true;
                }
            }
            if !deeper {
                break;
            }
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        // Segments on one level share no flow. If their flows meet later, the segment that saves more comes first.
        order.sort_by(|&a, &b| {
            let (a, b) = (&all[a], &all[b]);
            a.level.cmp(&b.level).then(b.gain.total_cmp(&a.gain)).then(a.wait.total_cmp(&b.wait))
        });
        let mut begin = vec![0; all.len() + 1];
        stops.iter().for_each(|stop| begin[stop.segment + 1] += 1);
        for segment in 0..all.len() {
            begin[segment + 1] += begin[segment];
        }
        let (mut free, mut at) = (begin.clone(), vec![0; stops.len()]);
        for (number, stop) in stops.iter().enumerate() {
            at[free[stop.segment]] = number;
            free[stop.segment] += 1;
        }
        Self { all, stops, flows, order, next, begin, at }
    }

    /// Returns the indices of the stops at a segment.
    pub(super) fn stops_at(&self, segment: usize) -> &[usize] {
        &self.at[self.begin[segment]..self.begin[segment + 1]]
    }

    /// Returns the later stops of the flow of `stop`.
    pub(super) fn rest(&self, stop: usize) -> &[Stop] {
        &self.stops[stop + 1..self.flows[self.stops[stop].flow].stops.end]
    }
}

/// Returns three lists: the segments, the segment of each module (`None` without packets), and the next module in the
/// segment of each module.
fn chains(model: &Model, arrivals: &Arrivals, chained: bool) -> (Vec<Segment>, Vec<Option<usize>>, Vec<Option<usize>>) {
    let modules = model.modules();
    let mut passing = vec![0usize; modules.len()];
    for flow in model.flows().iter().filter(|flow| flow.rate > 0.0) {
        flow.path.iter().for_each(|&at| passing[at] += 1);
    }
    let mut all: Vec<Segment> = Vec::with_capacity(modules.len());
    let (mut of, mut next) = (vec![None; modules.len()], vec![None; modules.len()]);
    for (at, module) in modules.iter().enumerate().filter(|(at, _)| model.rates()[*at] > 0.0) {
        let rate = model.rates()[at];
        let wait = model.wait(arrivals, at);
        let gain = rate * module.cpu.fixed;
        let before = arrivals.before[at];
        if let Some(before) = before
            && chained
            && arrivals.kept[at] >= 1.0
            && passing[before] == passing[at]
            && arrivals.buffers[before] == arrivals.buffers[at]
            && (arrivals.stated[before], arrivals.stated[at]) == (0, 0)
            && let Some(segment) = of[before]
        {
            let chain: &mut Segment = &mut all[segment];
            // The module joins the chain, except if a larger batch from this module on saves more per delay than a
            // larger batch for the whole chain.
            if chain.gain * (wait + module.delay.each) >= gain * chain.each {
                chain.gain += gain;
                chain.each += module.delay.each;
                (of[at], next[before]) = (Some(segment), Some(at));
                continue;
            }
        }
        of[at] = Some(all.len());
        all.push(Segment {
            first: at,
            before: before.and_then(|before| of[before]),
            kept: arrivals.kept[at],
            ingress: module.ingress,
            stated: arrivals.stated[at] as f64,
            wait,
            gain,
            each: module.delay.each,
            level: 0,
        });
    }
    (all, of, next)
}

/// Returns the stops, and the flows with packets and objectives. `of` is the segment of each module.
fn ways(model: &Model, of: &[Option<usize>]) -> (Vec<Stop>, Vec<BoundedFlow>) {
    let (mut stops, mut flows): (Vec<Stop>, Vec<BoundedFlow>) = (Vec::new(), Vec::with_capacity(model.flows().len()));
    for flow in model.flows().iter().filter(|flow| flow.rate > 0.0 && flow.slo.is_finite()) {
        let (begin, mut last, mut calls) = (stops.len(), None, 0.0);
        for &at in &flow.path {
            calls += model.modules()[at].delay.fixed;
            if let Some(segment) = of[at]
                && last != Some(segment)
            {
                stops.push(Stop { segment, flow: flows.len(), last: false });
                last = Some(segment);
            }
        }
        if let Some(stop) = stops[begin..].last_mut() {
            stop.last = true;
        }
        let room = flow.slo * (1.0 - ROUNDING) - model.turn() - calls;
        flows.push(BoundedFlow { stops: begin..stops.len(), room });
    }
    (stops, flows)
}
