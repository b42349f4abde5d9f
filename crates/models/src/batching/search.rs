//! Finds the best triggers in the refined model of waiting: one pass in the order of the packets, then a bounded search
//! for segments that should leave more time to later segments.
//!
//! A packet that waits for a batch at a splitter arrives in a larger batch at the next module, and waits less there. So
//! a larger batch at the root costs the later modules nearly nothing. One pass in the packets' order is near the best
//! result: it raises the batch of each segment as far as the tightest flow allows, on the assumption that no later
//! segment holds packets. The pass is wrong for segments that use time which later segments could use better. Each of
//! these segments gets a *cap*, the largest batch to which it is raised. The cap is found by trial, and all later
//! segments are filled again after each trial. With any caps, all objectives are kept, and later segments use the time
//! that a cap leaves.

use super::Model;
use super::segments::Segments;
use super::waiting::Arrivals;

/// The largest number of rounds over all segments with later segments. The search ends earlier if a round changes
/// nothing.
const ROUNDS: usize = 4;
/// If a model has at most this number of modules, a second search treats each module as a separate segment. In a small
/// model, one packet is a large part of a batch's delay.
const FEW: usize = 16;
/// The least relative improvement of the load. It is larger than rounding errors of sums in another order.
const BETTER: f64 = 1e-9;

impl Model {
    /// Returns the triggers with the least load that the search finds within all objectives. Triggers are 0 on the
    /// paths of flows whose objectives cannot be kept. Paths must list modules in the order in which packets pass them.
    ///
    /// The load is not always the least possible one. On small graphs it is at most 1 % higher, and usually equal.
    #[must_use]
    pub fn best_triggers(&self, arrivals: &Arrivals) -> Vec<usize> {
        self.worth_holding(arrivals, self.fullest_triggers(arrivals, &[]))
    }

    /// Returns the best triggers if holding packets costs nothing. The modules in `barred`, which is sorted, hold no
    /// packets.
    pub(super) fn fullest_triggers(&self, arrivals: &Arrivals, barred: &[usize]) -> Vec<usize> {
        let chains = self.search(&Segments::new(self, arrivals, true), barred);
        if self.modules().len() > FEW {
            return chains;
        }
        let single = self.search(&Segments::new(self, arrivals, false), barred);
        let load = |triggers: &[usize]| self.called(arrivals, triggers).load;
        if load(&single) < load(&chains) * (1.0 - BETTER) { single } else { chains }
    }

    /// Returns the triggers that the search finds for these segments. `barred` as in
    /// [`fullest_triggers`](Self::fullest_triggers).
    fn search(&self, segments: &Segments, barred: &[usize]) -> Vec<usize> {
        let mut search = Search::new(segments, self.largest().floor());
        for (segment, cap) in segments.all.iter().zip(&mut search.caps) {
            if barred.binary_search(&segment.first).is_ok() {
                *cap = 0.0;
            }
        }
        search.fill(&segments.order);
        search.improve();
        let mut triggers = vec![0; self.modules().len()];
        for (segment, (batch, arrived)) in segments.all.iter().zip(search.batches.iter().zip(&search.arrived)) {
            if batch > arrived {
                // `batch` is a whole number, because a batch above the arriving size was set by the search.
                triggers[segment.first] = *batch as usize;
            }
        }
        search.spend(self, &mut triggers);
        triggers
    }
}

/// The state of the search. Batches are in packets.
pub(super) struct Search<'s> {
    pub(super) segments: &'s Segments,
    /// The size of the largest batch, a whole number.
    pub(super) largest: f64,
    /// By segment: the value to which its batch may be raised; 0 if the batch must not be raised.
    pub(super) caps: Vec<f64>,
    /// By segment: the batch in which packets arrive.
    pub(super) arrived: Vec<f64>,
    /// By segment: the batch with which its first module is called.
    pub(super) batches: Vec<f64>,
    /// By segment: the batch in which packets leave.
    pub(super) leaving: Vec<f64>,
    /// By segment: the additional delay, in seconds, if a module inside it gathers packets, so that packets leave in
    /// larger batches than `batches`.
    pub(super) inside: Vec<f64>,
    /// By stop: the delay of the flow before this stop, in seconds.
    pub(super) spent: Vec<f64>,
}

impl<'s> Search<'s> {
    /// Creates a search whose caps are the largest batch. The cap is 0 for segments with a stated trigger, for last
    /// segments without a gain, and on the paths of flows whose objectives cannot be kept.
    fn new(segments: &'s Segments, largest: f64) -> Self {
        let many = segments.all.len();
        let mut search = Self {
            segments,
            largest,
            caps: vec![0.0; many],
            arrived: vec![0.0; many],
            batches: vec![0.0; many],
            leaving: vec![0.0; many],
            inside: vec![0.0; many],
            spent: vec![0.0; segments.stops.len()],
        };
        search.fill(&segments.order);
        for (segment, cap) in search.caps.iter_mut().enumerate() {
            let stops = segments.stops_at(segment);
            let ends = stops.iter().all(|&stop| segments.stops[stop].last);
            let stays = segments.all[segment].stated > 0.0 || ends && segments.all[segment].gain == 0.0;
            *cap = if stays { 0.0 } else { largest };
        }
        for flow in &segments.flows {
            let through = |last: usize| search.spent[last] + search.delay_of(segments.stops[last].segment);
            if flow.stops.clone().next_back().map_or(0.0, through) > flow.room {
                segments.stops[flow.stops.clone()].iter().for_each(|stop| search.caps[stop.segment] = 0.0);
            }
        }
        search
    }

    /// Returns the delay of packets in a filled segment, in seconds.
    fn delay_of(&self, at: usize) -> f64 {
        self.segments.all[at].delay(self.arrived[at], self.batches[at]) + self.inside[at]
    }

    /// Returns the batch in which packets arrive at a segment, after the segment before it is filled.
    pub(super) fn arrives(&self, at: usize) -> f64 {
        let segment = &self.segments.all[at];
        segment.arrives(segment.before.map_or(0.0, |before| self.leaving[before]))
    }

    /// Updates the delay before the next stop of each flow through a segment. Must be called after each change of the
    /// segment's batches.
    pub(super) fn pass(&mut self, at: usize) {
        let by = self.delay_of(at);
        for &stop in self.segments.stops_at(at) {
            if !self.segments.stops[stop].last {
                self.spent[stop + 1] = self.spent[stop] + by;
            }
        }
    }

    /// Fills the segments `order`, which must be in the packets' order: sets each batch as high as the cap and the
    /// tightest flow allow, on the assumption that no later segment holds packets.
    pub(super) fn fill(&mut self, order: &[usize]) {
        for &at in order {
            let arrived = self.arrives(at);
            let (mut batch, least) = (self.caps[at], arrived.max(self.segments.all[at].stated));
            for &stop in self.segments.stops_at(at) {
                if batch <= least {
                    break;
                }
                batch = self.highest(stop, arrived, batch);
            }
            self.arrived[at] = arrived;
            self.batches[at] = batch.max(least);
            self.leaving[at] = self.batches[at];
            self.pass(at);
        }
    }

    /// Returns the whole delay of a flow, in seconds, if its packets arrive at `stop` in batches of `arrived`, wait
    /// there for `batch` packets, and do not wait at later stops.
    fn delay(&self, stop: usize, arrived: f64, batch: f64) -> f64 {
        let up_to_here = self.spent[stop] + self.segments.all[self.segments.stops[stop].segment].delay(arrived, batch);
        let (delay, _) = self.segments.rest(stop).iter().fold((up_to_here, batch), |(sum, batch), stop| {
            let segment = &self.segments.all[stop.segment];
            let arrives = segment.arrives(batch);
            let batch = arrives.max(segment.stated);
            (sum + segment.delay(arrives, batch), batch)
        });
        delay
    }

    /// Returns the largest whole batch up to `most` at a stop with which the flow keeps its objective. Returns
    /// `arrived` if no larger batch keeps it.
    fn highest(&self, stop: usize, arrived: f64, most: f64) -> f64 {
        let room = self.segments.flows[self.segments.stops[stop].flow].room;
        let mut slow = self.delay(stop, arrived, most);
        if slow <= room {
            return most;
        }
        if self.segments.stops[stop].last {
            let segment = &self.segments.all[self.segments.stops[stop].segment];
            let line = ((room - self.spent[stop] + arrived * segment.wait) / (segment.wait + segment.each)).floor();
            // Corrects a rounding error of the division.
            let more = if self.delay(stop, arrived, line + 1.0) <= room { line + 1.0 } else { line };
            return more.clamp(arrived, most);
        }
        let (mut fits, mut fast) = (arrived, self.delay(stop, arrived, arrived));
        let mut too_much = most;
        // The delay is nearly linear in the batch, and convex. The batch that the secant gives is therefore feasible,
        // and one packet more usually is not.
        while too_much - fits > 1.0 {
            let line = fits + (too_much - fits) * ((room - fast) / (slow - fast)).clamp(0.0, 1.0);
            let trial = line.floor().clamp(fits.floor() + 1.0, too_much - 1.0);
            let delay = self.delay(stop, arrived, trial);
            if delay <= room {
                (fits, fast) = (trial, delay);
            } else {
                (too_much, slow) = (trial, delay);
            }
        }
        fits
    }

    /// Lowers and raises caps of segments with later segments, where this reduces the load.
    fn improve(&mut self) {
        let mut successors = Successors::new(self.segments);
        let leads = |at: &&usize| self.segments.stops_at(**at).iter().any(|&stop| !self.segments.stops[stop].last);
        let groups: Vec<Vec<usize>> =
            self.segments.order.iter().filter(leads).map(|&at| successors.behind(at)).collect();
        // By group: the value of `changes` when the group was last optimised.
        let (mut changes, mut best_at) = (0, vec![usize::MAX; groups.len()]);
        for _ in 0..ROUNDS {
            let before = changes;
            for (group, best_at) in groups.iter().zip(&mut best_at) {
                if *best_at != changes {
                    changes += usize::from(self.settle(group));
                    *best_at = changes;
                }
            }
            if changes == before {
                break;
            }
        }
    }

    /// Finds the best cap of the first segment of a group. The rest of the group are the segments behind it, in the
    /// packets' order. Returns true if the load has decreased.
    fn settle(&mut self, group: &[usize]) -> bool {
        let at = group[0];
        let full = |at: &usize| self.batches[*at] >= self.largest;
        if self.caps[at] == 0.0 || group.iter().all(full) {
            return false;
        }
        let begin = (self.load(group), self.caps[at]);
        let (mut load, mut cap) = begin;
        let mut last = cap;
        let mut from = self.batches[at].floor();
        // A cap below the arriving batch or the stated trigger has no effect.
        let least = self.arrived[at].max(self.segments.all[at].stated).floor();
        let mut step = (self.largest / 2.0).ceil();
        loop {
            for trial in [from - step, from + step] {
                if trial < least || trial > self.largest {
                    continue;
                }
                self.caps[at] = trial;
                self.fill(group);
                last = trial;
                let found = self.load(group);
                if found < load * (1.0 - BETTER) {
                    (load, cap, from) = (found, trial, trial);
                    break;
                }
            }
            if step <= 1.0 {
                break;
            }
            // The batches of later segments increase by whole packets. One packet less here may leave too little time
            // for this, while three packets less may leave enough time.
            step = if step > 4.0 { (step / 2.0).ceil() } else { step - 1.0 };
        }
        self.caps[at] = cap;
        if last != cap {
            self.fill(group);
        }
        load < begin.0
    }

    /// Returns the part of the load that depends on the batches of these segments.
    fn load(&self, segments: &[usize]) -> f64 {
        segments.iter().map(|&at| self.segments.all[at].gain / self.batches[at]).sum()
    }
}

/// Finds the segments behind a segment.
struct Successors<'s> {
    segments: &'s Segments,
    /// By segment: the last argument of [`behind`](Self::behind) whose result contains the segment; `usize::MAX`
    /// before.
    of: Vec<usize>,
    /// By segment: its position in the packets' order.
    position: Vec<usize>,
}

impl<'s> Successors<'s> {
    fn new(segments: &'s Segments) -> Self {
        let mut position = vec![0; segments.all.len()];
        segments.order.iter().enumerate().for_each(|(number, &at)| position[at] = number);
        Self { segments, of: vec![usize::MAX; segments.all.len()], position }
    }

    /// Returns a segment and the segments behind it on the paths of flows with objectives, in the packets' order.
    fn behind(&mut self, at: usize) -> Vec<usize> {
        let mut found = vec![at];
        self.of[at] = at;
        let mut next = 0;
        while let Some(&segment) = found.get(next) {
            next += 1;
            for &stop in self.segments.stops_at(segment) {
                for stop in self.segments.rest(stop) {
                    if std::mem::replace(&mut self.of[stop.segment], at) != at {
                        found.push(stop.segment);
                    }
                }
            }
        }
        found.sort_unstable_by_key(|&segment| self.position[segment]);
        found
    }
}
