//! The modules of a model as segments: chains whose modules are all called with the same packets.
//!
//! Behind a module that gathers, one that gets all its packets and keeps them together gets what it wants: it needs no trigger of
//! its own. So a chain of five is one unknown instead of five, with the costs of all five. Segments also have the order in which
//! packets come to them, whatever the order in which modules and flows were defined.

use super::Model;
use super::waiting::Arrivals;

/// Modules that share one trigger: that of the first.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// The module that has the trigger.
    pub(super) first: usize,
    /// The segment that all packets come from.
    pub(super) before: Option<usize>,
    /// Packets that arrive together, for each that was together there.
    pub(super) kept: f64,
    /// Packets in a batch as they arrive, where no segment is before.
    pub(super) ingress: f64,
    /// The trigger that it has whatever is decided, where there is one; else 0.
    pub(super) stated: f64,
    /// Seconds that are waited for a packet that is missing.
    pub(super) wait: f64,
    /// What a call more a packet would cost: the load is this by the batch, and what does not depend on it. `R·T0`.
    pub(super) gain: f64,
    /// Seconds of delay a packet.
    pub(super) each: f64,
    /// How many segments are before it on the longest way to it.
    level: usize,
}

impl Segment {
    /// Packets that arrive together, from a segment before that they left in batches of so many.
    pub(super) fn arrives(&self, left: f64) -> f64 {
        if self.before.is_some() { (self.kept * left).max(1.0) } else { self.ingress }
    }

    /// Seconds that packets are delayed that arrive like this, and are called with like this.
    pub(super) fn delay(&self, arrived: f64, batch: f64) -> f64 {
        (batch - arrived) * self.wait + batch * self.each
    }
}

/// A flow with an objective at a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    pub(super) segment: usize,
    pub(super) flow: usize,
    /// Whether the flow leaves behind it.
    pub(super) last: bool,
}

/// A flow with an objective.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Its stops, in the order in which packets come to them.
    pub(super) stops: std::ops::Range<usize>,
    /// Seconds that waiting, and packets in calls, may take.
    pub(super) room: f64,
}

/// The segments of a model.
#[derive(Debug)]
pub(super) struct Segments {
    /// Only those that packets come to.
    pub(super) all: Vec<Segment>,
    pub(super) stops: Vec<Stop>,
    pub(super) flows: Vec<Held>,
    /// Segments in the order in which packets come to them.
    pub(super) order: Vec<usize>,
    /// By module: the one after it in the same segment.
    pub(super) next: Vec<Option<usize>>,
    /// Where the stops of each segment begin in `at`, and where the last end.
    begin: Vec<usize>,
    /// Stops by segment.
    at: Vec<usize>,
}

/// What is kept free of an objective, so that sums in another order keep it too.
const ROUNDING: f64 = 1e-12;

impl Segments {
    /// Of a model; each module by itself unless `chained`.
    pub(super) fn new(model: &Model, arrivals: &Arrivals, chained: bool) -> Self {
        let (mut all, of, next) = chains(model, arrivals, chained);
        let (stops, flows) = ways(model, &of);
        // Each pass leads one module further where paths join; in a tree the first finds all.
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
        // Those on one level have no flow in common; where they meet later, the one that saves more is asked first.
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

    /// The stops of a segment.
    pub(super) fn stops_at(&self, segment: usize) -> &[usize] {
        &self.at[self.begin[segment]..self.begin[segment + 1]]
    }

    /// The stops that are left to the flow after one.
    pub(super) fn rest(&self, stop: usize) -> &[Stop] {
        &self.stops[stop + 1..self.flows[self.stops[stop].flow].stops.end]
    }
}

/// The segments; by module its own, which those without packets have not; and by module the next in it.
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
            // A larger batch only from here on would have to save more than one for all before, too, by what it delays.
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

/// The ways of flows with objectives over segments.
fn ways(model: &Model, of: &[Option<usize>]) -> (Vec<Stop>, Vec<Held>) {
    let (mut stops, mut flows): (Vec<Stop>, Vec<Held>) = (Vec::new(), Vec::with_capacity(model.flows().len()));
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
        flows.push(Held { stops: begin..stops.len(), room });
    }
    (stops, flows)
}
