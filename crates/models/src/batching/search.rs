//! The best triggers of the truer model of waiting: one pass from where packets come in to where they leave, and then a bounded
//! search for segments that leave more to those behind them.
//!
//! A packet that waits for a batch at a splitter arrives in a larger one behind it, and waits that much less there: raising the
//! batch at the root costs those behind nearly nothing. So one pass in the packets' order, each segment as high as the tightest
//! flow allows with nothing behind it held, is near the best. What it gets wrong are segments that take time which those behind
//! could use better. Each of them is given a *cap*, found by trying, with all behind it filled again. Whatever caps are, all
//! objectives are kept, and nothing behind a cap is left unused.

use super::Model;
use super::segments::Segments;
use super::waiting::Arrivals;

/// Rounds over all segments with others behind them; a round that changes nothing is the last.
const ROUNDS: usize = 4;
/// Up to so many modules, where one packet is much of a batch's delay, chains are searched module by module, too.
const FEW: usize = 16;
/// What a load must be better by, relative to it: less than rounding makes depend on the order of sums.
const BETTER: f64 = 1e-9;

impl Model {
    /// Triggers with the least load that is found within all objectives; all 0 on the paths of flows whose objectives cannot be
    /// kept. Paths are to name modules in the order in which packets come to them.
    ///
    /// Not always the best that there is: within 1 % of it on small graphs, and mostly the same.
    #[must_use]
    pub fn best_triggers(&self, arrivals: &Arrivals) -> Vec<usize> {
        self.worth_holding(arrivals, self.fullest_triggers(arrivals, &[]))
    }

    /// The same where holding packets costs nothing; some modules hold none.
    pub(super) fn fullest_triggers(&self, arrivals: &Arrivals, barred: &[usize]) -> Vec<usize> {
        let chains = self.search(&Segments::new(self, arrivals, true), barred);
        if self.modules().len() > FEW {
            return chains;
        }
        let single = self.search(&Segments::new(self, arrivals, false), barred);
        let load = |triggers: &[usize]| self.called(arrivals, triggers).load;
        if load(&single) < load(&chains) * (1.0 - BETTER) { single } else { chains }
    }

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
                // A whole number: what is above what arrives was set.
                triggers[segment.first] = *batch as usize;
            }
        }
        search.spend(self, &mut triggers);
        triggers
    }
}

pub(super) struct Search<'s> {
    pub(super) segments: &'s Segments,
    pub(super) largest: f64,
    /// By segment: the most that its batch is raised to.
    pub(super) caps: Vec<f64>,
    /// By segment: packets in a batch as it arrives, as it is called with, and as it leaves.
    pub(super) arrived: Vec<f64>,
    pub(super) batches: Vec<f64>,
    pub(super) left: Vec<f64>,
    /// By segment: seconds of delay for what leaves it in larger batches than it is called with.
    pub(super) inside: Vec<f64>,
    /// By stop: what the flow has been delayed by before it.
    pub(super) spent: Vec<f64>,
}

impl<'s> Search<'s> {
    /// With caps that hold nobody but those whose triggers are stated, those that gain nothing, and flows whose objectives cannot be
    /// kept.
    fn new(segments: &'s Segments, largest: f64) -> Self {
        let many = segments.all.len();
        let mut search = Self {
            segments,
            largest,
            caps: vec![0.0; many],
            arrived: vec![0.0; many],
            batches: vec![0.0; many],
            left: vec![0.0; many],
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

    /// What packets are delayed by in a segment that is filled.
    fn delay_of(&self, at: usize) -> f64 {
        self.segments.all[at].delay(self.arrived[at], self.batches[at]) + self.inside[at]
    }

    /// Packets that arrive together at a segment, the one before it being filled.
    pub(super) fn arrives(&self, at: usize) -> f64 {
        let segment = &self.segments.all[at];
        segment.arrives(segment.before.map_or(0.0, |before| self.left[before]))
    }

    /// Tells the next stops of all flows through a segment what they have been delayed by.
    pub(super) fn pass(&mut self, at: usize) {
        let by = self.delay_of(at);
        for &stop in self.segments.stops_at(at) {
            if !self.segments.stops[stop].last {
                self.spent[stop + 1] = self.spent[stop] + by;
            }
        }
    }

    /// Fills some segments, and all behind them, in the packets' order: each as high as its cap and the tightest flow allow.
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
            self.left[at] = self.batches[at];
            self.pass(at);
        }
    }

    /// What a flow is delayed by in all with this batch at a stop, and nothing held behind it.
    fn delay(&self, stop: usize, arrived: f64, batch: f64) -> f64 {
        let here = self.spent[stop] + self.segments.all[self.segments.stops[stop].segment].delay(arrived, batch);
        let (delay, _) = self.segments.rest(stop).iter().fold((here, batch), |(sum, batch), stop| {
            let segment = &self.segments.all[stop.segment];
            let arrives = segment.arrives(batch);
            let batch = arrives.max(segment.stated);
            (sum + segment.delay(arrives, batch), batch)
        });
        delay
    }

    /// The largest whole batch up to `most` at a stop that keeps the flow's objective; what arrives where none above it does.
    fn highest(&self, stop: usize, arrived: f64, most: f64) -> f64 {
        let room = self.segments.flows[self.segments.stops[stop].flow].room;
        let mut slow = self.delay(stop, arrived, most);
        if slow <= room {
            return most;
        }
        if self.segments.stops[stop].last {
            let segment = &self.segments.all[self.segments.stops[stop].segment];
            let line = ((room - self.spent[stop] + arrived * segment.wait) / (segment.wait + segment.each)).floor();
            // What rounding takes away.
            let more = if self.delay(stop, arrived, line + 1.0) <= room { line + 1.0 } else { line };
            return more.clamp(arrived, most);
        }
        let (mut fits, mut fast) = (arrived, self.delay(stop, arrived, arrived));
        let mut too_much = most;
        // Delay is nearly a straight line of the batch, bent upwards: what is cut off it fits, and the next does mostly not.
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

    /// Lowers caps of segments that have others behind them, and raises them again, where that makes the load less.
    fn improve(&mut self) {
        let mut seen = Seen::new(self.segments);
        let leads = |at: &&usize| self.segments.stops_at(**at).iter().any(|&stop| !self.segments.stops[stop].last);
        let groups: Vec<Vec<usize>> = self.segments.order.iter().filter(leads).map(|&at| seen.behind(at)).collect();
        // By group: how many changes there had been when it was last at its best.
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

    /// Finds the best cap of the first of a group, all others being behind it; whether it changed anything.
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
        // A cap of less is none: batches are what arrives.
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
            // Those behind go up by whole packets: what one gives up may be too little for that, and three enough.
            step = if step > 4.0 { (step / 2.0).ceil() } else { step - 1.0 };
        }
        self.caps[at] = cap;
        if last != cap {
            self.fill(group);
        }
        load < begin.0
    }

    /// The load that depends on the batches of some segments.
    fn load(&self, segments: &[usize]) -> f64 {
        segments.iter().map(|&at| self.segments.all[at].gain / self.batches[at]).sum()
    }
}

/// Which segments are behind others.
struct Seen<'s> {
    segments: &'s Segments,
    /// By segment: the last one that it was found to be behind.
    of: Vec<usize>,
    /// By segment: its place in the packets' order.
    place: Vec<usize>,
}

impl<'s> Seen<'s> {
    fn new(segments: &'s Segments) -> Self {
        let mut place = vec![0; segments.all.len()];
        segments.order.iter().enumerate().for_each(|(number, &at)| place[at] = number);
        Self { segments, of: vec![usize::MAX; segments.all.len()], place }
    }

    /// A segment and those behind it that flows with objectives come to, in the packets' order.
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
        found.sort_unstable_by_key(|&segment| self.place[segment]);
        found
    }
}
