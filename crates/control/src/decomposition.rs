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
/// Periods after a move in which nothing is judged: the controller has begun anew.
const REST: u32 = 5;
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
    /// For how many periods flows must fit: longer each time that they came together and had to part again.
    patience: u32,
    came_together: bool,
    unmoved: Option<Unmoved>,
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
            patience: FIRST,
            came_together: false,
            unmoved: None,
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
        self.apart(layout, snapshot).or_else(|| self.together(layout, snapshot))
    }

    /// What would have gone in the last period if it could.
    #[must_use]
    pub fn unmoved(&self) -> Option<Unmoved> {
        self.unmoved
    }

    /// It has been moved.
    pub fn moved(&mut self, done: &Move) {
        match done.why {
            // What came together for nothing does so less soon.
            WhyMoved::Apart if self.came_together => self.patience = (2 * self.patience).min(LONGEST),
            WhyMoved::Apart => {}
            WhyMoved::Together => self.came_together = true,
        }
        self.parted = done.next.clone();
        self.pause();
    }

    /// It could not be moved: it is tried again after a while.
    pub fn pause(&mut self) {
        self.seen.fill(0);
        self.fits.fill(0);
        self.rest = REST;
    }

    fn apart(&mut self, layout: &Layout, snapshot: &Snapshot) -> Option<Move> {
        for worker in 0..layout.workers {
            let group = self.group(layout, snapshot, &[worker]);
            let violated = group.model.inherent_violations();
            let late = violated.iter().find(|flow| is_late(layout, snapshot, group.flows[**flow]));
            let Some(&late) = late else {
                self.seen[worker] = 0;
                continue;
            };
            self.seen[worker] += 1;
            if self.seen[worker] < SEEN {
                continue;
            }
            let flow = group.flows[late];
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
        let busy = |worker: usize| snapshot.workers.get(worker).map_or(0.0, |told| told.busy_s / snapshot.period_s);
        let gone: Vec<_> = self.parted.gone().map(|(on, gone)| (on, gone.clone())).collect();
        // What went last comes back first.
        for (on, gone) in gone.into_iter().rev() {
            let Some(next) = self.parted.together(on) else { continue };
            let group = self.group(layout, snapshot, &[gone.from, on]);
            if !group.model.fits_together(FITS) || busy(gone.from) + busy(on) > BUSY {
                self.fits[on] = 0;
                continue;
            }
            self.fits[on] += 1;
            if self.fits[on] < self.patience {
                continue;
            }
            let tightest = group.flows.iter().copied().filter(|flow| layout.flows[*flow].slo_s.is_some());
            let tightest = tightest.min_by(|a, b| {
                let slo = |flow: usize| layout.flows[flow].slo_s.unwrap_or(f64::INFINITY);
                slo(*a).total_cmp(&slo(*b))
            });
            return Some(Move {
                at_s: snapshot.at_s,
                modules: gone.modules,
                from: on,
                to: gone.from,
                why: WhyMoved::Together,
                flow: tightest,
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

/// Whether more packets of a flow are late than may be.
fn is_late(layout: &Layout, snapshot: &Snapshot, flow: usize) -> bool {
    let (of, told) = (&layout.flows[flow], &snapshot.flows[flow]);
    of.slo_s.is_some() && told.violations as f64 > (1.0 - of.percentile / 100.0) * told.packets as f64
}

#[cfg(test)]
mod tests;
