//! Advances simulated time: in detail until the figures of a state are known, then by extrapolation. Calls the
//! controller once a period.

use std::sync::Arc;

use forebay_control::{ControllerRunner, Costs, Log, Settings};
use forebay_graph::{RunToCompletion, SetupError, WeightedFair};
use forebay_models::batching::Line;
use forebay_protocol::{Action, FlowLayout, Layout, SchedulerKind, report::LostLines};
use forebay_units::Nanos;

use crate::report::Report;
use crate::scene::Scene;
use crate::snapshots::Snapshots;
use crate::state::{State, StateFigures, StateKey};
use crate::stretch::{Stretch, Verdict};
use crate::tally::{Summary, Tally};
use crate::team::{ModuleNow, Team, Workers};
use crate::time::Picos;
use crate::worker::CallCost;

/// The time until the controller's first decision. Each further interval is twice as long as the one before, up to the
/// controller's period (as in the engine).
const FIRST_DECISION: Nanos = Nanos(1_000_000);
/// The interval between two snapshots without a controller.
const PERIOD: Nanos = Nanos(100_000_000);
/// The approximate number of packets in a piece at the start of a stretch. Pieces become longer later.
const PIECE_PACKETS: f64 = 256.0;
/// The length of a piece when sources saturate, in seconds.
const SATURATED_PIECE: f64 = 100e-6;
/// The number of pieces that pass in a new state before the measurement of the state begins.
const WARM_PIECES: u32 = 4;
/// The largest number of pieces that a known state may need to return to its figures. After this number of pieces, the
/// state is measured again as a new state.
const MAX_SETTLING_PIECES: u32 = 64;
/// A state is known only if each flow with more than a quarter of an even share of the packets (all packets divided by
/// the number of flows) has sent this number of packets.
const MIN_FLOW_PACKETS: u64 = 2_000;
/// A state is known only if the slowest buffer has been filled this number of times.
const MIN_BUFFER_FILLS: f64 = 4.0;
/// After this number of successive decisions that leave a known state unchanged, the simulator assumes that the
/// controller never changes the state. A controller that counts more decisions, such as `optimal` before it tries
/// triggers again, then changes the state too late or not at all.
const SETTLED_DECISIONS: u32 = 100;
/// The largest number of states that are remembered.
const MAX_STATES: usize = 64;

/// Options of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The seed of all random numbers.
    pub seed: u64,
    /// The share of the time that is simulated in detail.
    pub detail: Detail,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, detail: Detail::Within(0.02) }
    }
}

/// The share of the time that is simulated in detail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detail {
    /// Every turn is simulated.
    All,
    /// Each state that a controller brings about is simulated until its rate, batch size, load and mean delay are known
    /// to within this fraction, with 95 % confidence.
    Within(f64),
}

/// A pipeline in simulated time, batch by batch.
pub struct Simulator {
    scene: Arc<Scene>,
    team: Box<dyn Workers>,
    /// By module: the cost of a call.
    prices: Vec<CallCost>,
    /// The controller, if there is one.
    runner: Option<(ControllerRunner, Settings)>,
    /// The number of periods that have ended. It determines the length of the next period.
    decided: u32,
    /// Receives each period and the decision after it; `None` without a log.
    log: Option<Box<dyn Log>>,
    snapshots: Snapshots,
    /// The fraction of [`Detail::Within`]. `None` if every turn is simulated.
    within: Option<f64>,
    /// The workers' clock, which does not include extrapolated time.
    clock: Picos,
    /// The sum of the extrapolated time.
    extrapolated: Picos,
    /// The time of the controller's next decision.
    next: Picos,
    /// The time at which the present period began.
    period_began: Picos,
    /// The offered rate of the sources, as a multiple of their configured rate.
    factor: f64,
    /// The present state.
    state: State,
    /// The number of pieces that may still pass before the present state has settled. These pieces are not measured. 0
    /// if the state has settled.
    unsettled: u32,
    /// Earlier states with known figures, at most `MAX_STATES`.
    others: Vec<State>,
    /// The number of decisions in succession that have left a known state unchanged.
    settled: u32,
    /// By worker: the counts of this period so far.
    counted: Vec<Tally>,
    /// By worker: the counts at the beginning of the report.
    before: Vec<Tally>,
    /// The time at the beginning of the report, and the part of this time that was extrapolated.
    began: (Picos, Picos),
    /// By worker: the extrapolated counts of states that were removed from `others`, since the beginning of the report.
    forgotten: Vec<Tally>,
}

impl Simulator {
    /// Creates the simulator of a scene. `costs` are the costs of a call by module, in seconds. Missing costs are 0.
    /// The controller `control` sets triggers, hold limits and weights. Without a controller, these keep their
    /// configured values.
    ///
    /// # Errors
    /// Returns an error if the controller rejects its parameters.
    pub fn new(scene: Scene, costs: &[Line], control: Option<&Settings>, options: Options) -> Result<Self, SetupError> {
        let price = |line: &Line| CallCost { fixed: Picos::of_seconds(line.fixed), each: Picos::of_seconds(line.each) };
        let mut prices: Vec<CallCost> = costs.iter().map(price).collect();
        prices.resize(scene.layout.modules.len(), CallCost::default());
        let known = prices.iter().map(|price| Line { fixed: price.fixed.seconds(), each: price.each.seconds() });
        let known = Costs::Known(known.collect());
        let runner = control
            .map(|settings| Ok((ControllerRunner::new(settings, scene.layout.clone(), known)?, settings.clone())));
        let scene = Arc::new(scene);
        let team: Box<dyn Workers> = match scene.layout.scheduler {
            SchedulerKind::RunToCompletion => Box::new(Team::<RunToCompletion>::new(&scene, &prices, options.seed)),
            SchedulerKind::WeightedFair => Box::new(Team::<WeightedFair>::new(&scene, &prices, options.seed)),
        };
        let empty_tallies = empty_tallies(&scene);
        let state =
            State { key: StateKey::default(), stretch: Stretch::new(1.0), began: empty_tallies.clone(), known: None };
        let mut simulator = Self {
            snapshots: Snapshots::new(&scene),
            runner: runner.transpose()?,
            decided: 0,
            log: None,
            within: if let Detail::Within(within) = options.detail { Some(within) } else { None },
            clock: Picos::ZERO,
            extrapolated: Picos::ZERO,
            next: Picos::ZERO,
            period_began: Picos::ZERO,
            factor: 1.0,
            state,
            unsettled: WARM_PIECES,
            others: Vec::new(),
            settled: 0,
            counted: empty_tallies.clone(),
            before: empty_tallies.clone(),
            began: (Picos::ZERO, Picos::ZERO),
            forgotten: empty_tallies,
            scene,
            team,
            prices,
        };
        simulator.next = simulator.next_interval();
        simulator.state = simulator.new_state(simulator.key());
        Ok(simulator)
    }

    /// Passes every further period, and the decision after it, to `log`. Without a controller, `log` receives nothing.
    pub fn set_log(&mut self, mut log: Box<dyn Log>) {
        if let Some((_, settings)) = &self.runner {
            log.begin(settings, &self.scene.layout);
        }
        self.log = Some(log);
    }

    /// Returns the simulated time that has passed, in seconds.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.time().seconds()
    }

    /// Returns the simulated time: the sum of the time in detail and the extrapolated time.
    fn time(&self) -> Picos {
        self.clock + self.extrapolated
    }

    /// Sets the offered rate of every source with a rate to `factor` times its configured rate.
    pub fn set_offer(&mut self, factor: f64) {
        self.factor = factor;
        self.apply(&[Action::SetOffer { factor }]);
    }

    /// Begins the report. Counts from before this call do not belong to it.
    pub fn begin_report(&mut self) {
        self.before = self.team.tallies();
        self.began = (self.time(), self.extrapolated);
        let states = self.others.iter_mut().chain([&mut self.state]);
        states.filter_map(|state| state.known.as_mut()).for_each(|known| known.extrapolated_s = 0.0);
        self.forgotten = empty_tallies(&self.scene);
    }

    /// Advances the simulated time by `seconds`.
    pub fn run(&mut self, seconds: f64) {
        let until = self.time() + Picos::of_seconds(seconds);
        while self.time() < until {
            self.leap(until);
            let next = self.next;
            self.pass(next.min(until) - self.time());
            if self.time() >= next {
                self.decide();
            }
        }
    }

    /// If the controller is assumed not to change the state (see [`SETTLED_DECISIONS`]), skips the whole periods
    /// between the end of the present period and `until`. The log receives copies of the last period.
    fn leap(&mut self, until: Picos) {
        let Some(known) = self.state.known.as_mut().filter(|_| self.settled >= SETTLED_DECISIONS) else { return };
        let period = self.next - self.period_began;
        let periods = (until - self.next).0 / period.0;
        let span = Picos(period.0 * periods);
        if let (Some(log), Some((runner, _))) = (&mut self.log, &self.runner) {
            for _ in 0..periods {
                log.period(self.snapshots.again(), runner.last());
            }
        }
        known.extrapolated_s += span.seconds();
        for instant in [&mut self.extrapolated, &mut self.next, &mut self.period_began] {
            *instant += span;
        }
    }

    /// Returns the results since the beginning of the report.
    pub fn report(&mut self) -> Report {
        let mut counted: Vec<_> =
            self.team.tallies().iter().zip(&self.before).map(|(now, was)| now.since(was)).collect();
        add_times(&mut counted, &self.forgotten, 1.0);
        for known in self.others.iter().chain([&self.state]).filter_map(|state| state.known.as_ref()) {
            known.add_to(&mut counted, known.extrapolated_s);
        }
        let (passed, extrapolated) = (self.time() - self.began.0, self.extrapolated - self.began.1);
        let [queued, _, on_rings] = self.team.waiting();
        Report::of(&counted, passed.seconds(), (passed - extrapolated).seconds(), queued + on_rings)
    }

    /// Returns the layout of the pipeline.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.scene.layout
    }

    /// Returns, by flow, the mean length of its packets when they are sent, in bytes.
    pub(crate) fn lengths(&self) -> &[f64] {
        &self.scene.lengths
    }

    /// Returns, by module, the lines that are missing in the module's file after the packets were observed.
    pub(crate) fn lost_lines(&self) -> &[LostLines] {
        &self.scene.lost_lines
    }

    /// Returns the number of packets that backpressure dropped on the path of a flow, plus the number of packets that
    /// were lost at ports whose packets enter the path. As in the engine, this includes packets of other flows that
    /// share the path.
    pub(crate) fn turned_away(&self, flow: &FlowLayout, report: &Report) -> u64 {
        let enters = |entry: &Option<usize>| entry.is_some_and(|module| flow.path.contains(&module));
        let lost = self.scene.entries.iter().zip(&report.lost).filter(|(entry, _)| enters(entry));
        let turned_away = flow.path.iter().map(|at| report.modules[*at].turned_away);
        turned_away.chain(lost.map(|(_, lost)| *lost)).sum()
    }

    /// Returns the present state of a module.
    pub(crate) fn present(&self, module: usize) -> ModuleNow {
        self.team.module(module)
    }

    /// Returns the time, in seconds, that `calls` calls of a module with `packets` packets in total take.
    pub(crate) fn spent(&self, module: usize, calls: u64, packets: u64) -> f64 {
        let CallCost { fixed, each } = self.prices[module];
        fixed.seconds() * calls as f64 + each.seconds() * packets as f64
    }

    /// Returns the length of the next period. The first periods are shorter than the configured period.
    fn next_interval(&self) -> Picos {
        let period = self.runner.as_ref().map_or(PERIOD, |(_, settings)| settings.period);
        Picos((FIRST_DECISION.0 << self.decided.min(32)).min(period.0) * 1_000)
    }

    /// Returns the key of the present state.
    fn key(&self) -> StateKey {
        let modules = (0..self.scene.layout.modules.len()).map(|at| self.team.module(at));
        let (modules, holds) = modules.map(|now| ((now.trigger, now.weight), now.hold.seconds())).unzip();
        let objectives = self.scene.layout.flows.iter().filter_map(|flow| flow.slo_s);
        let objective = objectives.reduce(f64::min).unwrap_or(0.0);
        StateKey { modules, holds, offer: self.factor, objective }
    }

    /// Creates a state whose figures are unknown.
    fn new_state(&mut self, key: StateKey) -> State {
        let rate = self.team.offered().filter(|rate| *rate > 0.0);
        let (piece, cycle) = (rate.map_or(SATURATED_PIECE, |rate| PIECE_PACKETS / rate), self.team.cycle());
        // A piece is a multiple of the on-off period, so that it ends at the end of a period and not inside a burst.
        let piece = if cycle > 0.0 { (piece / cycle).ceil() * cycle } else { piece };
        State { key, stretch: Stretch::new(piece), began: self.team.tallies(), known: None }
    }

    /// Advances the time by `span`, which must not go beyond the end of the period. Simulates in detail until the state
    /// is known and settled, and extrapolates the rest.
    fn pass(&mut self, span: Picos) {
        let mut remaining = span;
        if self.state.known.is_none() || self.unsettled > 0 {
            let before = self.team.tallies();
            while remaining > Picos::ZERO && (self.state.known.is_none() || self.unsettled > 0) {
                remaining = remaining - self.detail(remaining);
            }
            let now = self.team.tallies();
            add_times(&mut self.counted, &since(&now, &before), 1.0);
        }
        if let Some(known) = self.state.known.as_mut().filter(|_| remaining > Picos::ZERO) {
            // In a known state, the rest of the span is extrapolated.
            self.extrapolated += remaining;
            known.extrapolated_s += remaining.seconds();
            known.add_to(&mut self.counted, remaining.seconds());
        }
    }

    /// Simulates until the piece is complete, or for `remaining` if that is shorter. Judges the state after each piece.
    /// Returns the simulated span.
    fn detail(&mut self, remaining: Picos) -> Picos {
        let Some(within) = self.within else {
            self.play(remaining);
            return remaining;
        };
        let span = Picos::of_seconds(self.state.stretch.until_complete()).max(Picos(1)).min(remaining);
        let piece = self.play(span);
        if self.unsettled > 0 {
            self.settle(piece, within);
            return span;
        }
        self.state.stretch.add(piece);
        match self.state.stretch.verdict(within) {
            Verdict::More => {}
            Verdict::Moving => {
                let piece = self.state.stretch.piece;
                self.state = State { stretch: Stretch::new(piece), ..self.new_state(self.state.key.clone()) };
            }
            Verdict::Known => {
                let counted = since(&self.team.tallies(), &self.state.began);
                if self.is_enough(&counted) {
                    self.state.known =
                        Some(StateFigures::new(counted, self.state.stretch.length(), self.team.offered()));
                }
            }
        }
        span
    }

    /// Checks whether a piece after a change of state has the figures of the known state. If the figures do not return,
    /// or the state is new, a new measurement begins after the last unsettled piece.
    fn settle(&mut self, piece: Summary, within: f64) {
        self.unsettled -= 1;
        if self.state.known.is_some() && self.state.stretch.fits(piece, within) {
            self.unsettled = 0;
        } else if self.unsettled == 0 {
            // A pipeline that does not return to its previous figures in a known state is measured again as a new
            // state.
            self.state = self.new_state(self.state.key.clone());
        }
    }

    /// Simulates a span in detail. Returns its totals.
    fn play(&mut self, span: Picos) -> Summary {
        let before = self.team.summary();
        self.clock += span;
        self.team.run(self.clock);
        self.team.summary().minus(before)
    }

    /// Returns true if every flow with more than a quarter of an even share of the packets has sent enough packets for
    /// a percentile, and every buffer has been filled several times.
    fn is_enough(&self, counted: &[Tally]) -> bool {
        let flow = |at: usize| counted.iter().map(|tally| tally.flows[at].packets).sum::<u64>();
        let flows: Vec<u64> = (0..self.scene.flows).map(flow).filter(|packets| *packets > 0).collect();
        let even = flows.iter().sum::<u64>() / (flows.len() as u64).max(1);
        if flows.iter().any(|packets| *packets < MIN_FLOW_PACKETS && *packets > even / 4) {
            return false;
        }
        let length = self.state.stretch.length();
        let slowest = self.scene.layout.running().filter_map(|(at, _)| {
            let (now, came) = (self.team.module(at), counted.iter().map(|tally| tally.modules[at].came).sum::<u64>());
            (now.trigger > 0 && came > 0).then(|| (now.trigger as f64 * length / came as f64).min(now.hold.seconds()))
        });
        length >= MIN_BUFFER_FILLS * slowest.fold(0.0, f64::max)
    }

    /// Ends a period: builds its snapshot, calls the controller and applies its actions.
    fn decide(&mut self) {
        let now = self.time();
        let span = (now - self.period_began).seconds();
        self.decided = self.decided.saturating_add(1);
        self.period_began = now;
        self.next = now + self.next_interval();
        let snapshot = self.snapshots.take((now.seconds(), span), &self.counted, &*self.team, &self.prices);
        self.counted = empty_tallies(&self.scene);
        let is_known = self.state.known.is_some() && self.unsettled == 0;
        self.settled = if is_known { self.settled.saturating_add(1) } else { 0 };
        let Some((runner, _)) = &mut self.runner else {
            // Without a controller, no state can change, so one period in a known state is enough.
            self.settled = self.settled.saturating_mul(SETTLED_DECISIONS);
            return;
        };
        let actions = runner.decide(snapshot);
        if let Some(log) = &mut self.log {
            log.period(snapshot, actions);
        }
        let all = actions.actions.clone();
        self.apply(&all);
    }

    /// Applies actions. If they change the state, switches to the remembered state that is like the new one, or to a
    /// new state.
    fn apply(&mut self, actions: &[Action]) {
        if actions.is_empty() {
            return;
        }
        self.team.apply(actions);
        let key = self.key();
        if key.is_like(&self.state.key) {
            return;
        }
        self.settled = 0;
        let next = match self.others.iter().position(|state| key.is_like(&state.key)) {
            Some(at) => {
                self.unsettled = MAX_SETTLING_PIECES;
                self.others.swap_remove(at)
            }
            None => {
                self.unsettled = WARM_PIECES;
                self.new_state(key)
            }
        };
        let was = std::mem::replace(&mut self.state, next);
        if was.known.is_some() {
            self.others.push(was);
        }
        if self.others.len() > MAX_STATES {
            // The first state is the oldest, or almost the oldest because `swap_remove` changes the order.
            let forgotten = self.others.remove(0).known;
            forgotten.iter().for_each(|known| known.add_to(&mut self.forgotten, known.extrapolated_s));
        }
    }
}

/// Returns empty counts, by worker.
fn empty_tallies(scene: &Scene) -> Vec<Tally> {
    vec![Tally::new(scene); scene.workers.len()]
}

/// Returns, by worker, the counts between two times.
fn since(now: &[Tally], before: &[Tally]) -> Vec<Tally> {
    now.iter().zip(before).map(|(now, before)| now.since(before)).collect()
}

/// Adds the counts `more`, multiplied by `times`, to `counted`.
fn add_times(counted: &mut [Tally], more: &[Tally], times: f64) {
    counted.iter_mut().zip(more).for_each(|(counted, more)| counted.add_times(more, times));
}
