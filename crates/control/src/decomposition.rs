//! When flows part, and when they come together again (Batchy section 4.4): what makes a flow's objective impossible goes to a worker of
//! its own, and comes back when there is time for it.
//!
//! A packet that comes just after its port was read waits for the end of that turn, and leaves at the end of the next. So a turn with
//! full batches may take half of an objective; the paper grants it all. That is the worst that can be, and mostly is not: modules go only
//! where packets are late, too.

use forebay_graph::report::WhyMoved;
use forebay_graph::{Layout, Snapshot};
use forebay_models::batching::{Flow, Line, Model, Module};

use crate::arrangement::{Arrangement, Parted, movable};
use crate::pilot::Settings;

/// Turns that a packet may take.
const TURNS: f64 = 2.0;
/// Periods in a row in which flows cannot be together until they part.
const SEEN: u32 = 3;
/// Periods after a move in which nothing is judged: the controller has begun anew. Twice as many after each further move in a row that
/// could not be made, as often as said: each prepares the whole configuration once more.
const REST: u32 = 5;
const DOUBLINGS: u32 = 7;
/// Periods in a row in which flows would fit together until they do come together, for the first time and at most.
const FIRST: u32 = 10;
const LONGEST: u32 = 1 << 12;
/// The part of what an objective leaves that a turn may take where flows come together: more than that, and they would soon part again.
const FITS: f64 = 0.8;
/// The part of its time that a worker may be busy with what comes together.
const BUSY: f64 = 0.8;
/// The part of a turn that is to be won by a move: below it is not worth a worker.
const WORTH: f64 = 0.1;
/// What is shorter than this part of a period is none: the first decisions come sooner.
const WHOLE: f64 = 0.9;

/// Modules that are to change their worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// When it was decided on, in seconds since the run began.
    pub at_s: f64,
    /// The modules, by number.
    pub modules: Vec<usize>,
    /// The worker that they are on.
    pub from: usize,
    /// The worker that they go to.
    pub to: usize,
    /// Why.
    pub why: WhyMoved,
    /// The flow whose objective leaves the least time for a turn, where one has an objective.
    pub flow: Option<usize>,
    /// What a turn takes at most with all of them on one worker, in seconds.
    pub turn_s: f64,
    /// The pipeline afterwards.
    pub layout: Layout,
    next: Parted,
}

impl Move {
    /// Which workers run what afterwards.
    #[must_use]
    pub fn arrangement(&self) -> Arrangement {
        Arrangement::of(&self.layout)
    }
}

/// Decides on what goes, and what comes back.
pub struct Decomposer {
    /// The most workers.
    most: usize,
    guard: f64,
    period_s: f64,
    /// By flow: the modules on its way.
    ways: Vec<Vec<usize>>,
    parted: Parted,
    /// By worker: for how many periods flows of it could not be together.
    seen: Vec<u32>,
    /// By worker: for how many periods what is on it could have come back.
    fits: Vec<u32>,
    /// For how many periods nothing is judged.
    rest: u32,
    /// By module: for how many periods it must fit until it comes back, longer each time that it came back and had to go again; and
    /// whether it has come back.
    patience: Vec<u32>,
    came_back: Vec<bool>,
    unmoved: Option<Unmoved>,
    /// How many moves in a row could not be made; the last of them, as long as it is wanted: why, and from which worker.
    failures: u32,
    failed: Option<(WhyMoved, usize)>,
}

/// What would go if it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmoved {
    /// The worker.
    pub worker: usize,
    /// The flow that cannot keep its objective there.
    pub flow: usize,
    /// Whether it is for want of a worker; else nothing can go.
    pub workers: bool,
}

/// Flows on a worker or two.
struct Group {
    model: Model,
    /// By module of the model.
    modules: Vec<usize>,
    /// By flow of the model.
    flows: Vec<usize>,
}

impl Decomposer {
    /// For a pipeline of this shape, whose flows pass these modules; `None` where nothing may go.
    #[must_use]
    pub fn new(settings: &Settings, layout: &Layout, ways: Vec<Vec<usize>>) -> Option<Self> {
        (settings.workers > layout.workers).then(|| Self {
            most: settings.workers,
            guard: settings.guard,
            period_s: settings.period.0 as f64 / 1e9,
            ways,
            parted: Parted::new(layout),
            seen: vec![0; settings.workers],
            fits: vec![0; settings.workers],
            rest: 0,
            patience: vec![FIRST; layout.modules.len()],
            came_back: vec![false; layout.modules.len()],
            unmoved: None,
            failures: 0,
            failed: None,
        })
    }

    /// What is to move after this period, whose snapshot says what modules cost.
    pub fn decide(&mut self, layout: &Layout, snapshot: &Snapshot) -> Option<Move> {
        if snapshot.period_s < WHOLE * self.period_s {
            return None;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        self.unmoved = None;
        let next = self.apart(layout, snapshot).or_else(|| self.together(layout, snapshot));
        // What is being counted again is still wanted.
        self.failed = self.failed.filter(|(why, worker)| match why {
            WhyMoved::Apart => self.seen[*worker] > 0,
            WhyMoved::Together => self.fits[*worker] > 0,
        });
        next
    }

    /// What would have gone in the last period if it could.
    #[must_use]
    pub fn unmoved(&self) -> Option<Unmoved> {
        self.unmoved
    }

    /// Whether a move that [could not be made](Self::stayed) is still wanted, as far as is known.
    #[must_use]
    pub fn is_thwarted(&self) -> bool {
        self.failed.is_some()
    }

    /// It has been moved.
    pub fn moved(&mut self, done: &Move) {
        for &module in &done.modules {
            let came_back = std::mem::replace(&mut self.came_back[module], done.why == WhyMoved::Together);
            // What came back for nothing does so less soon.
            if came_back && done.why == WhyMoved::Apart {
                self.patience[module] = (2 * self.patience[module]).min(LONGEST);
            }
        }
        self.parted = done.next.clone();
        (self.failures, self.failed) = (0, None);
        self.pause(REST);
    }

    /// It could not be moved: it is tried again after a while.
    pub fn stayed(&mut self, wanted: &Move) {
        self.pause(REST << self.failures.min(DOUBLINGS));
        self.failures = self.failures.saturating_add(1);
        (self.failed, self.unmoved) = (Some((wanted.why, wanted.from)), None);
    }

    fn pause(&mut self, periods: u32) {
        self.seen.fill(0);
        self.fits.fill(0);
        self.rest = periods;
    }

    fn apart(&mut self, layout: &Layout, snapshot: &Snapshot) -> Option<Move> {
        for worker in 0..layout.workers {
            let group = self.group(layout, snapshot, &[worker]);
            let violated = group.model.inherent_violations();
            let flows = violated.iter().map(|flow| group.flows[*flow]);
            let late = flows.filter(|flow| snapshot.flows[*flow].missed(&layout.flows[*flow]));
            let Some(flow) = tightest(layout, late) else {
                self.seen[worker] = 0;
                continue;
            };
            self.seen[worker] = self.seen[worker].saturating_add(1);
            if self.seen[worker] < SEEN {
                continue;
            }
            let go = group.model.decomposition().map(|parted| parted.go).unwrap_or_default();
            let cost = |at: &usize| group.model.modules()[*at].delay.at(group.model.largest());
            let go: Vec<usize> = go.iter().map(|at| group.modules[*at]).collect();
            let go = movable(layout, &go);
            let won: f64 =
                (0..group.modules.len()).filter(|at| go.contains(&group.modules[*at])).map(|at| cost(&at)).sum();
            let turn_s = group.model.turn();
            let (nothing, none_left) = (won < WORTH * turn_s, self.parted.workers() >= self.most);
            if nothing || none_left {
                self.unmoved.get_or_insert(Unmoved { worker, flow, workers: !nothing });
                continue;
            }
            let next = self.parted.apart(worker, go.clone());
            let (to, why) = (self.parted.workers(), WhyMoved::Apart);
            let layout = next.layout(layout);
            let at_s = snapshot.at_s;
            return Some(Move { at_s, modules: go, from: worker, to, why, flow: Some(flow), turn_s, layout, next });
        }
        None
    }

    fn together(&mut self, layout: &Layout, snapshot: &Snapshot) -> Option<Move> {
        let busy = |worker: usize| {
            snapshot.workers.get(worker).map_or(0.0, |told| told.busy_s / told.there_s(snapshot.period_s))
        };
        let gone: Vec<_> = self.parted.gone().map(|(on, gone)| (on, gone.clone())).collect();
        // What went last comes back first.
        for (on, gone) in gone.into_iter().rev() {
            let Some(next) = self.parted.together(on) else { continue };
            let group = self.group(layout, snapshot, &[gone.from, on]);
            if !group.model.fits_together(FITS) || busy(gone.from) + busy(on) > BUSY {
                self.fits[on] = 0;
                continue;
            }
            self.fits[on] = self.fits[on].saturating_add(1);
            let patience = gone.modules.iter().map(|module| self.patience[*module]).max();
            if self.fits[on] < patience.unwrap_or(FIRST) {
                continue;
            }
            return Some(Move {
                at_s: snapshot.at_s,
                modules: gone.modules,
                from: on,
                to: gone.from,
                why: WhyMoved::Together,
                flow: tightest(layout, group.flows.iter().copied()),
                turn_s: group.model.turn(),
                layout: next.layout(layout),
                next,
            });
        }
        None
    }

    /// The model of what is on these workers, of flows that have packets and modules that are called: what nobody sends takes no time.
    fn group(&self, layout: &Layout, snapshot: &Snapshot, workers: &[usize]) -> Group {
        let here = |at: &usize| layout.modules[*at].workers.iter().any(|worker| workers.contains(worker));
        let called = |at: &usize| snapshot.modules[*at].packets > 0 || snapshot.modules[*at].queued > 0;
        let modules: Vec<usize> = layout.running().map(|(at, _)| at).filter(|at| here(at) && called(at)).collect();
        let costs = modules.iter().map(|&at| {
            let (fixed, each) = snapshot.modules[at].cost_s;
            let cost = Line { fixed, each };
            Module { cpu: cost, delay: cost, ingress: 1.0 }
        });
        let costs = costs.collect();
        let (mut flows, mut told) = (Vec::new(), Vec::new());
        for (flow, way) in self.ways.iter().enumerate().filter(|(flow, _)| snapshot.flows[*flow].packets > 0) {
            let path: Vec<usize> = way.iter().filter_map(|at| modules.binary_search(at).ok()).collect();
            if path.is_empty() {
                continue;
            }
            let slo = layout.flows[flow].slo_s.map_or(f64::INFINITY, |slo| (1.0 - self.guard) * slo / TURNS);
            let rate = snapshot.flows[flow].packets as f64 / snapshot.period_s;
            flows.push(flow);
            told.push(Flow { path, rate, slo });
        }
        let model = Model::new(costs, told, layout.batch as f64).expect("a snapshot's figures are in order");
        Group { model, modules, flows }
    }
}

/// That of these flows with the shortest objective; of those without one, none.
fn tightest(layout: &Layout, flows: impl Iterator<Item = usize>) -> Option<usize> {
    let with_slo = flows.filter_map(|flow| Some((flow, layout.flows[flow].slo_s?)));
    with_slo.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(flow, _)| flow)
}

#[cfg(test)]
mod tests;
