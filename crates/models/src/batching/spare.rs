//! Uses the remaining time of flows if it is too short for one more packet in each batch of a whole chain. Then the
//! chain gets a step: larger batches from one of its modules on.
//!
//! Triggers are whole numbers, so the tightest flow usually has some time left. A larger batch from the middle of a
//! chain on adds less delay than a larger batch for the whole chain. If the time is still too short, a smaller batch
//! before the middle may leave enough time. Modules behind the chain keep their triggers and wait less.

use super::Model;
use super::search::Search;

/// A chain that is called with larger batches from one of its modules on.
#[derive(Clone, Copy)]
struct BatchStep {
    /// The module that gathers packets.
    module: usize,
    /// The batch before this module, and the larger batch from this module on.
    batches: (f64, f64),
    /// The additional delay from this module on for one more packet, in seconds.
    each: f64,
    /// The part of the load that depends on the two batches.
    load: f64,
}

impl Search<'_> {
    /// Adds a step to each chain where this reduces the load and all flows stay within their objectives. `triggers` are
    /// by module; the triggers that the search has found are replaced.
    pub(super) fn spend(&mut self, model: &Model, triggers: &mut [usize]) {
        let segments = self.segments;
        for &at in &segments.order {
            let first = segments.all[at].first;
            let packets = |batch: f64, arrived: f64| if batch > arrived { batch as usize } else { 0 };
            if segments.stops_at(at).iter().all(|&stop| segments.stops[stop].last) {
                // Earlier steps have changed the time that remains for this segment.
                self.fill(&[at]);
                triggers[first] = packets(self.batches[at], self.arrived[at]);
            } else {
                self.arrived[at] = self.arrives(at);
                self.batches[at] = self.arrived[at].max(triggers[first] as f64).max(segments.all[at].stated);
                self.leaving[at] = self.batches[at];
                self.pass(at);
            }
            if self.caps[at] > 0.0
                && let Some(step) = self.step(model, at, triggers)
            {
                let (before, from) = step.batches;
                triggers[first] = packets(before, self.arrived[at]);
                triggers[step.module] = from as usize;
                (self.batches[at], self.leaving[at]) = step.batches;
                self.inside[at] = (from - before) * (segments.all[at].wait + step.each);
                self.pass(at);
            }
        }
    }

    /// Returns the best step in a segment. `None` if no step reduces the load.
    fn step(&self, model: &Model, at: usize, triggers: &[usize]) -> Option<BatchStep> {
        let (segment, batch) = (&self.segments.all[at], self.batches[at]);
        let mut best: Option<BatchStep> = None;
        let mut more = batch.floor() + 1.0;
        while more <= self.largest {
            let mut fits = false;
            let (mut inside, mut each, mut gain) = (segment.first, segment.each, segment.gain);
            while let Some(module) = self.segments.next[inside] {
                each -= model.modules()[inside].delay.each;
                gain -= model.rates()[inside] * model.modules()[inside].cpu.fixed;
                inside = module;
                let mut before = batch;
                while before >= self.arrived[at] {
                    let load = (segment.gain - gain) / before + gain / more;
                    let step = BatchStep { module, batches: (before, more), each, load };
                    if load >= best.map_or(segment.gain / batch, |best| best.load) {
                        break;
                    }
                    if self.allows(at, &step, triggers) {
                        (best, fits) = (Some(step), true);
                        break;
                    }
                    let less = (before.ceil() - 1.0).max(self.arrived[at]);
                    if less >= before {
                        break;
                    }
                    before = less;
                }
            }
            if !fits {
                break;
            }
            more += 1.0;
        }
        best
    }

    /// True if all flows through a segment are within their objectives with this step.
    fn allows(&self, at: usize, step: &BatchStep, triggers: &[usize]) -> bool {
        let (segments, (before, from)) = (self.segments, step.batches);
        let segment = &segments.all[at];
        let own_delay = segment.delay(self.arrived[at], before) + (from - before) * (segment.wait + step.each);
        segments.stops_at(at).iter().all(|&stop| {
            let (mut delay, mut batch) = (self.spent[stop] + own_delay, from);
            for stop in segments.rest(stop) {
                let segment = &segments.all[stop.segment];
                let arrived = segment.arrives(batch);
                batch = arrived.max(triggers[segment.first] as f64).max(segment.stated);
                delay += segment.delay(arrived, batch);
            }
            delay <= segments.flows[segments.stops[stop].flow].room
        })
    }
}
