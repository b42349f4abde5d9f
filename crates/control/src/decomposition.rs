//! Splits flows to several workers and merges them again (Batchy section 4.4). Modules that make a flow's objective
//! impossible move to a worker of their own, and move back when there is time for them.
//!
//! A packet that arrives just after its port was read waits for the end of the current turn, and departs at the end of
//! the next turn. So a turn with full batches may take at most half of an objective. (The paper allows the whole
//! objective.) Such a wait is the worst case and rarely happens, so modules move only if packets are also late.

use forebay_models::batching::{Flow, Line, Model, Module};
use forebay_protocol::{Layout, Snapshot, report::MoveReason};

use crate::arrangement::{Arrangement, Assignment, movable};
use crate::controller_runner::Settings;

/// The number of turns that a packet may take.
const TURNS: f64 = 2.0;
/// The number of successive periods in which flows must be unable to share a worker before they are split.
const SEEN: u32 = 3;
/// The number of periods without decisions after a move, because the controller starts again. After failed moves, the
/// number doubles with each further failure in succession, because each attempt prepares the whole configuration again.
const PAUSE: u32 = 5;
/// The largest number of doublings of `PAUSE`.
const DOUBLINGS: u32 = 7;
/// The number of successive periods in which flows must fit one worker before they are merged for the first time.
const FIRST: u32 = 10;
/// The largest number to which `FIRST` is doubled for modules that had to move away again.
const LONGEST: u32 = 1 << 12;
/// The fraction of the allowed time that a turn may take when flows are merged. With a longer turn, the flows would
/// soon be split again.
const FITS: f64 = 0.8;
/// The largest share of its time for which a worker may be busy after a merge.
const BUSY: f64 = 0.8;
/// The least fraction of a turn that a move must save to be worth a worker.
const WORTH: f64 = 0.1;
/// A period is used if it has at least this fraction of the configured length. The first periods are shorter and are
/// ignored.
const WHOLE: f64 = 0.9;

/// A move of modules to another worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// Time of the decision, in seconds since the start of the run.
    pub at_s: f64,
    /// The modules, by number.
    pub modules: Vec<usize>,
    /// The worker on which the modules are before the move.
    pub from: usize,
    /// The worker to which the modules move.
    pub to: usize,
    /// The reason.
    pub why: MoveReason,
    /// The flow whose objective leaves the least time for a turn, if any flow has an objective.
    pub flow: Option<usize>,
    /// The time of a turn with the largest batches, in seconds, on a single worker that runs these modules and the
    /// modules that they leave (a split) or join (a merge).
    pub turn_s: f64,
    /// The pipeline after the move.
    pub layout: Layout,
    /// The assignment after the move.
    next: Assignment,
}

impl Move {
    /// Returns the workers of each module after the move.
    #[must_use]
    pub fn arrangement(&self) -> Arrangement {
        Arrangement::of(&self.layout)
    }
}

/// Decides which modules move to a worker of their own, and which modules move back. The caller carries out each move
/// that [`decide`](Self::decide) returns, and reports the result by [`moved`](Self::moved) or [`stayed`](Self::stayed).
pub struct Decomposer {
    /// The largest number of workers.
    most: usize,
    /// The fraction of each delay objective that is kept in reserve.
    guard: f64,
    /// The configured period, in seconds.
    period_s: f64,
    /// By flow: the modules on its path, in ascending order. The layout omits the paths of some flows; this list has
    /// all.
    ways: Vec<Vec<usize>>,
    /// The assignment of modules to workers in force, according to the successful moves.
    assignment: Assignment,
    /// By worker: the number of successive periods in which its flows could not share the worker.
    seen: Vec<u32>,
    /// By worker: the number of successive periods in which its modules could have moved back.
    fits: Vec<u32>,
    /// The number of further periods without decisions.
    pause_periods: u32,
    /// By module: the number of successive periods in which the module must fit its former worker before it moves back.
    /// The number doubles each time the module has to move away again.
    patience: Vec<u32>,
    /// By module: true if its last move was back.
    came_back: Vec<bool>,
    /// The move that was wanted in the last period but not possible.
    unmoved: Option<Unmoved>,
    /// The number of successive moves that failed.
    failures: u32,
    /// The reason and the worker of the last failed move, as long as the move is still wanted.
    failed: Option<(MoveReason, usize)>,
}

/// A move that the decomposer wants but that is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmoved {
    /// The worker.
    pub worker: usize,
    /// The flow that cannot keep its objective on this worker.
    pub flow: usize,
    /// True if all allowed workers are in use; false if the modules that can move would save too little of a turn.
    pub workers: bool,
}

/// The model of the flows on one or two workers.
struct Group {
    model: Model,
    /// The modules of the model, as numbers in the layout, in ascending order. A module's index in this list is its
    /// number in the model.
    modules: Vec<usize>,
    /// The flows of the model, as numbers in the layout. A flow's index in this list is its number in the model.
    flows: Vec<usize>,
}

impl Decomposer {
    /// Creates a decomposer for a pipeline. `ways` are the modules on the path of each flow, in ascending order.
    /// Returns `None` if the settings allow no further worker.
    #[must_use]
    pub fn new(settings: &Settings, layout: &Layout, ways: Vec<Vec<usize>>) -> Option<Self> {
        (settings.workers > layout.workers).then(|| Self {
            most: settings.workers,
            guard: settings.guard,
            period_s: settings.period.0 as f64 / 1e9,
            ways,
            assignment: Assignment::new(layout),
            seen: vec![0; settings.workers],
            fits: vec![0; settings.workers],
            pause_periods: 0,
            patience: vec![FIRST; layout.modules.len()],
            came_back: vec![false; layout.modules.len()],
            unmoved: None,
            failures: 0,
            failed: None,
        })
    }

    /// Returns the move to make after this period. The snapshot must contain the costs of modules. Returns `None` in
    /// short periods and in the pause after a move.
    pub fn decide(&mut self, layout: &Layout, snapshot: &Snapshot) -> Option<Move> {
        if snapshot.period_s < WHOLE * self.period_s {
            return None;
        }
        if self.pause_periods > 0 {
            self.pause_periods -= 1;
            return None;
        }
        self.unmoved = None;
        let next = self.split(layout, snapshot).or_else(|| self.merge(layout, snapshot));
        // A failed move is still wanted as long as its condition is true in every period.
        self.failed = self.failed.filter(|(why, worker)| match why {
            MoveReason::Apart => self.seen[*worker] > 0,
            MoveReason::Together => self.fits[*worker] > 0,
        });
        next
    }

    /// Returns the move that was wanted in the last period but not possible.
    #[must_use]
    pub fn unmoved(&self) -> Option<Unmoved> {
        self.unmoved
    }

    /// Returns whether a [failed](Self::stayed) move is still wanted according to the last period with a decision.
    #[must_use]
    pub fn is_thwarted(&self) -> bool {
        self.failed.is_some()
    }

    /// Records that the move has been made.
    pub fn moved(&mut self, done: &Move) {
        for &module in &done.modules {
            let came_back = std::mem::replace(&mut self.came_back[module], done.why == MoveReason::Together);
            // Modules that had to move away again after they had moved back wait longer the next time.
            if came_back && done.why == MoveReason::Apart {
                self.patience[module] = (2 * self.patience[module]).min(LONGEST);
            }
        }
        self.assignment = done.next.clone();
        (self.failures, self.failed) = (0, None);
        self.pause(PAUSE);
    }

    /// Records that the move failed. It is tried again later.
    pub fn stayed(&mut self, wanted: &Move) {
        self.pause(PAUSE << self.failures.min(DOUBLINGS));
        self.failures = self.failures.saturating_add(1);
        (self.failed, self.unmoved) = (Some((wanted.why, wanted.from)), None);
    }

    /// Starts a pause of `periods` periods. All conditions are counted from 0 after it.
    fn pause(&mut self, periods: u32) {
        self.seen.fill(0);
        self.fits.fill(0);
        self.pause_periods = periods;
    }

    /// Returns a move of modules to a new worker, if flows have been unable to share their worker for `SEEN` periods.
    /// If no such move is possible, sets `unmoved`.
    fn split(&mut self, layout: &Layout, snapshot: &Snapshot) -> Option<Move> {
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
            let movable_in_model = group.model.decomposition().map(|parts| parts.go).unwrap_or_default();
            let cost = |at: &usize| group.model.modules()[*at].delay.at(group.model.largest());
            let candidates: Vec<usize> = movable_in_model.iter().map(|at| group.modules[*at]).collect();
            let modules = movable(layout, &candidates);
            let saved_s: f64 =
                (0..group.modules.len()).filter(|at| modules.contains(&group.modules[*at])).map(|at| cost(&at)).sum();
            let turn_s = group.model.turn();
            let (saves_too_little, no_worker_left) = (saved_s < WORTH * turn_s, self.assignment.workers() >= self.most);
            if saves_too_little || no_worker_left {
                self.unmoved.get_or_insert(Unmoved { worker, flow, workers: !saves_too_little });
                continue;
            }
            let next = self.assignment.split(worker, modules.clone());
            let (to, why) = (self.assignment.workers(), MoveReason::Apart);
            let layout = next.layout(layout);
            let at_s = snapshot.at_s;
            return Some(Move { at_s, modules, from: worker, to, why, flow: Some(flow), turn_s, layout, next });
        }
        None
    }

    /// Returns the move of an added worker's modules back to their former worker, if they have fitted there for enough
    /// periods.
    fn merge(&mut self, layout: &Layout, snapshot: &Snapshot) -> Option<Move> {
        let busy =
            |worker: usize| snapshot.workers.get(worker).map_or(0.0, |of| of.busy_s / of.there_s(snapshot.period_s));
        let added: Vec<_> = self.assignment.added().map(|(on, added)| (on, added.clone())).collect();
        // The last move is undone first.
        for (on, added) in added.into_iter().rev() {
            let Some(next) = self.assignment.merge(on) else { continue };
            let group = self.group(layout, snapshot, &[added.from, on]);
            if !group.model.fits_together(FITS) || busy(added.from) + busy(on) > BUSY {
                self.fits[on] = 0;
                continue;
            }
            self.fits[on] = self.fits[on].saturating_add(1);
            let patience = added.modules.iter().map(|module| self.patience[*module]).max();
            if self.fits[on] < patience.unwrap_or(FIRST) {
                continue;
            }
            return Some(Move {
                at_s: snapshot.at_s,
                modules: added.modules,
                from: on,
                to: added.from,
                why: MoveReason::Together,
                flow: tightest(layout, group.flows.iter().copied()),
                turn_s: group.model.turn(),
                layout: next.layout(layout),
                next,
            });
        }
        None
    }

    /// Returns the model of these workers as if they were one worker. It contains only flows and modules with packets,
    /// because other flows and modules take no time.
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
        let (mut flows, mut model_flows) = (Vec::new(), Vec::new());
        for (flow, way) in self.ways.iter().enumerate().filter(|(flow, _)| snapshot.flows[*flow].packets > 0) {
            let path: Vec<usize> = way.iter().filter_map(|at| modules.binary_search(at).ok()).collect();
            if path.is_empty() {
                continue;
            }
            let slo = layout.flows[flow].slo_s.map_or(f64::INFINITY, |slo| (1.0 - self.guard) * slo / TURNS);
            let rate = snapshot.flows[flow].packets as f64 / snapshot.period_s;
            flows.push(flow);
            model_flows.push(Flow { path, rate, slo });
        }
        let model = Model::new(costs, model_flows, layout.batch as f64).expect("a snapshot's figures are in order");
        Group { model, modules, flows }
    }
}

/// Returns the flow with the shortest objective; `None` if none of these flows has an objective.
fn tightest(layout: &Layout, flows: impl Iterator<Item = usize>) -> Option<usize> {
    let with_slo = flows.filter_map(|flow| Some((flow, layout.flows[flow].slo_s?)));
    with_slo.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(flow, _)| flow)
}

#[cfg(test)]
mod tests;
