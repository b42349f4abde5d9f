//! Lets time pass: in detail until figures are known, then by what is known; asks the controller once a period.

use std::sync::Arc;

use forebay_control::{Costs, Log, Pilot, Settings};
use forebay_graph::report::LostLines;
use forebay_graph::{Action, FlowLayout, Layout, RunToCompletion, SchedulerKind, SetupError, WeightedFair};
use forebay_measure::Nanos;
use forebay_models::batching::Line;

use crate::report::Report;
use crate::scene::Scene;
use crate::snapshots::Snapshots;
use crate::state::{Key, Known, State};
use crate::stretch::{Stretch, Verdict};
use crate::tally::{Gist, Tally};
use crate::team::{ModuleNow, Play, Team};
use crate::time::Picos;
use crate::worker::Price;

/// How soon a controller decides first; each further time it waits twice as long, until it is a period (as in the engine).
const FIRST: Nanos = Nanos(1_000_000);
/// How often figures are looked at without a controller.
const PERIOD: Nanos = Nanos(100_000_000);
/// About how many packets a piece of a stretch has at first.
const PIECE: f64 = 256.0;
/// How long it is where sources saturate, in seconds.
const SATURATED: f64 = 100e-6;
/// Pieces that pass in a state that nobody knows before it is looked at; and at the most until one is like those of a state that is
/// known.
const WARM: u32 = 4;
const LONGEST: u32 = 64;
/// How many times a flow's packets must have left, and the slowest buffer filled, before anything is known.
const SAMPLES: u64 = 2_000;
const FILLED: f64 = 4.0;
/// Decisions after which a controller that leaves a known state as it is every time is taken to do so for good: none remembers more.
const SETTLED: u32 = 100;
/// How many states are remembered.
const MOST_STATES: usize = 64;

/// How a pipeline is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What everything random derives from.
    pub seed: u64,
    /// How much is simulated in detail.
    pub detail: Detail,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, detail: Detail::Within(0.02) }
    }
}

/// How much is simulated in detail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detail {
    /// Every turn.
    All,
    /// As much as it takes to know rates, batches, load and the mean delay to within this part of themselves, 95 times of
    /// 100, in each state that a controller brings about.
    Within(f64),
}

/// A pipeline in simulated time, batch by batch.
pub struct Simulator {
    scene: Arc<Scene>,
    team: Box<dyn Play>,
    prices: Vec<Price>,
    pilot: Option<(Pilot, Settings)>,
    decided: u32,
    log: Option<Box<dyn Log>>,
    snapshots: Snapshots,
    within: Option<f64>,
    /// The workers' clock, and how much time has passed besides without it.
    clock: Picos,
    skipped: Picos,
    /// When the controller decides next.
    next: Picos,
    /// When the present period began.
    period_began: Picos,
    factor: f64,
    state: State,
    /// Pieces until the state has settled; what passes before is no part of it.
    unsettled: u32,
    others: Vec<State>,
    /// How many decisions in succession have left a known state as it was.
    settled: u32,
    /// What each worker has counted in this period so far.
    counted: Vec<Tally>,
    /// What had been counted at the beginning, when that was, and how much of the time was skipped.
    before: Vec<Tally>,
    began: (Picos, Picos),
    /// What forgotten states have stood in for since.
    forgotten: Vec<Tally>,
}

impl Simulator {
    /// Simulates a scene whose modules' calls take `costs`, and whose triggers are set as `control` says.
    ///
    /// # Errors
    /// Parameters that the controller does not take.
    pub fn new(scene: Scene, costs: &[Line], control: Option<&Settings>, options: Options) -> Result<Self, SetupError> {
        let price = |line: &Line| Price { fixed: Picos::of_seconds(line.fixed), each: Picos::of_seconds(line.each) };
        let mut prices: Vec<Price> = costs.iter().map(price).collect();
        prices.resize(scene.layout.modules.len(), Price::default());
        let known = prices.iter().map(|price| Line { fixed: price.fixed.seconds(), each: price.each.seconds() });
        let known = Costs::Known(known.collect());
        let pilot = control.map(|settings| Ok((Pilot::new(settings, scene.layout.clone(), known)?, settings.clone())));
        let scene = Arc::new(scene);
        let team: Box<dyn Play> = match scene.layout.scheduler {
            SchedulerKind::RunToCompletion => Box::new(Team::<RunToCompletion>::new(&scene, &prices, options.seed)),
            SchedulerKind::WeightedFair => Box::new(Team::<WeightedFair>::new(&scene, &prices, options.seed)),
        };
        let nothing = nothing(&scene);
        let state = State { key: Key::default(), stretch: Stretch::new(1.0), began: nothing.clone(), known: None };
        let mut simulator = Self {
            snapshots: Snapshots::new(&scene),
            pilot: pilot.transpose()?,
            decided: 0,
            log: None,
            within: if let Detail::Within(within) = options.detail { Some(within) } else { None },
            clock: Picos::ZERO,
            skipped: Picos::ZERO,
            next: Picos::ZERO,
            period_began: Picos::ZERO,
            factor: 1.0,
            state,
            unsettled: WARM,
            others: Vec::new(),
            settled: 0,
            counted: nothing.clone(),
            before: nothing.clone(),
            began: (Picos::ZERO, Picos::ZERO),
            forgotten: nothing,
            scene,
            team,
            prices,
        };
        simulator.next = simulator.patience();
        simulator.state = simulator.unknown(simulator.key());
        Ok(simulator)
    }

    /// Has every period, and what was decided after it, told to `log` from now on.
    pub fn tell(&mut self, mut log: Box<dyn Log>) {
        if let Some((_, settings)) = &self.pilot {
            log.begin(settings, &self.scene.layout);
        }
        self.log = Some(log);
    }

    /// How much time has passed, in seconds.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.time().seconds()
    }

    fn time(&self) -> Picos {
        self.clock + self.skipped
    }

    /// Every source with a rate offers so many times its configured one from now on.
    pub fn set_offer(&mut self, factor: f64) {
        self.factor = factor;
        self.apply(&[Action::SetOffer { factor }]);
    }

    /// Forgets what has been counted until now: the report begins here.
    pub fn begin(&mut self) {
        self.before = self.team.tallies();
        self.began = (self.time(), self.skipped);
        let states = self.others.iter_mut().chain([&mut self.state]);
        states.filter_map(|state| state.known.as_mut()).for_each(|known| known.stood_in = 0.0);
        self.forgotten = nothing(&self.scene);
    }

    /// Lets so many seconds pass.
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

    /// Lets all whole periods until then pass at once, where every one is like the last.
    fn leap(&mut self, until: Picos) {
        let Some(known) = self.state.known.as_mut().filter(|_| self.settled >= SETTLED) else { return };
        let period = self.next - self.period_began;
        let periods = (until - self.next).0 / period.0;
        let span = Picos(period.0 * periods);
        if let (Some(log), Some((pilot, _))) = (&mut self.log, &self.pilot) {
            for _ in 0..periods {
                log.period(self.snapshots.again(), pilot.last());
            }
        }
        known.stood_in += span.seconds();
        for instant in [&mut self.skipped, &mut self.next, &mut self.period_began] {
            *instant += span;
        }
    }

    /// What has happened since the beginning.
    pub fn report(&mut self) -> Report {
        let mut counted: Vec<_> =
            self.team.tallies().iter().zip(&self.before).map(|(now, was)| now.since(was)).collect();
        add_times(&mut counted, &self.forgotten, 1.0);
        for known in self.others.iter().chain([&self.state]).filter_map(|state| state.known.as_ref()) {
            known.add_to(&mut counted, known.stood_in);
        }
        let (passed, skipped) = (self.time() - self.began.0, self.skipped - self.began.1);
        let [queued, _, on_rings] = self.team.waiting();
        Report::of(&counted, passed.seconds(), (passed - skipped).seconds(), queued + on_rings)
    }

    /// The pipeline's shape.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.scene.layout
    }

    /// By flow: the mean length of its packets as they leave, in bytes.
    pub(crate) fn lengths(&self) -> &[f64] {
        &self.scene.lengths
    }

    /// Lines that modules' files lack, of the packets that were watched.
    pub(crate) fn lost_lines(&self) -> &[LostLines] {
        &self.scene.lost_lines
    }

    /// Packets of a flow that were turned away on its way, or lost at ports whose packets enter on it; other flows' that share it
    /// included, as in the engine.
    pub(crate) fn turned_away(&self, flow: &FlowLayout, report: &Report) -> u64 {
        let enters = |entry: &Option<usize>| entry.is_some_and(|module| flow.path.contains(&module));
        let lost = self.scene.entries.iter().zip(&report.lost).filter(|(entry, _)| enters(entry));
        let turned_away = flow.path.iter().map(|at| report.modules[*at].turned_away);
        turned_away.chain(lost.map(|(_, lost)| *lost)).sum()
    }

    /// A module as it is now.
    pub(crate) fn present(&self, module: usize) -> ModuleNow {
        self.team.module(module)
    }

    /// Seconds that so many calls with so many packets of a module take.
    pub(crate) fn spent(&self, module: usize, calls: u64, packets: u64) -> f64 {
        let Price { fixed, each } = self.prices[module];
        fixed.seconds() * calls as f64 + each.seconds() * packets as f64
    }

    fn patience(&self) -> Picos {
        let period = self.pilot.as_ref().map_or(PERIOD, |(_, settings)| settings.period);
        Picos((FIRST.0 << self.decided.min(32)).min(period.0) * 1_000)
    }

    /// What the present state is told by.
    fn key(&self) -> Key {
        let modules = (0..self.scene.layout.modules.len()).map(|at| self.team.module(at));
        let (modules, holds) = modules.map(|now| ((now.trigger, now.weight), now.hold.seconds())).unzip();
        let objectives = self.scene.layout.flows.iter().filter_map(|flow| flow.slo_s);
        let objective = objectives.reduce(f64::min).unwrap_or(0.0);
        Key { modules, holds, offer: self.factor, objective }
    }

    /// A state of which nothing is known.
    fn unknown(&mut self, key: Key) -> State {
        let rate = self.team.offered().filter(|rate| *rate > 0.0);
        let (piece, cycle) = (rate.map_or(SATURATED, |rate| PIECE / rate), self.team.cycle());
        // Bursts are not cut through.
        let piece = if cycle > 0.0 { (piece / cycle).ceil() * cycle } else { piece };
        State { key, stretch: Stretch::new(piece), began: self.team.tallies(), known: None }
    }

    /// Lets time pass in which nobody decides.
    fn pass(&mut self, span: Picos) {
        let mut left = span;
        if self.state.known.is_none() || self.unsettled > 0 {
            let before = self.team.tallies();
            while left > Picos::ZERO && (self.state.known.is_none() || self.unsettled > 0) {
                left = left - self.detail(left);
            }
            let now = self.team.tallies();
            add_times(&mut self.counted, &since(&now, &before), 1.0);
        }
        if let Some(known) = self.state.known.as_mut().filter(|_| left > Picos::ZERO) {
            // In this state nothing happens that is not known.
            self.skipped += left;
            known.stood_in += left.seconds();
            known.add_to(&mut self.counted, left.seconds());
        }
    }

    /// Simulates a piece, or what is left; how long that is.
    fn detail(&mut self, left: Picos) -> Picos {
        let Some(within) = self.within else {
            self.play(left);
            return left;
        };
        let span = Picos::of_seconds(self.state.stretch.wants()).max(Picos(1)).min(left);
        let what = self.play(span);
        if self.unsettled > 0 {
            self.settle(what, within);
            return span;
        }
        self.state.stretch.add(what);
        match self.state.stretch.verdict(within) {
            Verdict::More => {}
            Verdict::Moving => {
                let piece = self.state.stretch.piece;
                self.state = State { stretch: Stretch::new(piece), ..self.unknown(self.state.key.clone()) };
            }
            Verdict::Known => {
                let counted = since(&self.team.tallies(), &self.state.began);
                if self.is_enough(&counted) {
                    self.state.known = Some(Known::new(counted, self.state.stretch.length(), self.team.offered()));
                }
            }
        }
        span
    }

    /// Whether a piece after a change says that the new state has been reached.
    fn settle(&mut self, what: Gist, within: f64) {
        self.unsettled -= 1;
        if self.state.known.is_some() && self.state.stretch.fits(what, within) {
            self.unsettled = 0;
        } else if self.unsettled == 0 {
            // One that does not come back to what it was is another.
            self.state = self.unknown(self.state.key.clone());
        }
    }

    fn play(&mut self, span: Picos) -> Gist {
        let before = self.team.gist();
        self.clock += span;
        self.team.run(self.clock);
        self.team.gist().minus(before)
    }

    /// Whether flows that have a part in the traffic have been seen often enough for a percentile, and every buffer has been
    /// filled several times.
    fn is_enough(&self, counted: &[Tally]) -> bool {
        let flow = |at: usize| counted.iter().map(|tally| tally.flows[at].packets).sum::<u64>();
        let flows: Vec<u64> = (0..self.scene.flows).map(flow).filter(|packets| *packets > 0).collect();
        let even = flows.iter().sum::<u64>() / (flows.len() as u64).max(1);
        if flows.iter().any(|packets| *packets < SAMPLES && *packets > even / 4) {
            return false;
        }
        let length = self.state.stretch.length();
        let slowest = self.scene.layout.running().filter_map(|(at, _)| {
            let (now, came) = (self.team.module(at), counted.iter().map(|tally| tally.modules[at].came).sum::<u64>());
            (now.trigger > 0 && came > 0).then(|| (now.trigger as f64 * length / came as f64).min(now.hold.seconds()))
        });
        length >= FILLED * slowest.fold(0.0, f64::max)
    }

    /// Asks the controller, and does what it says.
    fn decide(&mut self) {
        let now = self.time();
        let span = (now - self.period_began).seconds();
        self.decided = self.decided.saturating_add(1);
        self.period_began = now;
        self.next = now + self.patience();
        let snapshot = self.snapshots.take((now.seconds(), span), &self.counted, &*self.team, &self.prices);
        self.counted = nothing(&self.scene);
        let is_known = self.state.known.is_some() && self.unsettled == 0;
        self.settled = if is_known { self.settled.saturating_add(1) } else { 0 };
        let Some((pilot, _)) = &mut self.pilot else {
            // Nobody can change anything.
            self.settled = self.settled.saturating_mul(SETTLED);
            return;
        };
        let actions = pilot.decide(snapshot);
        if let Some(log) = &mut self.log {
            log.period(snapshot, actions);
        }
        let all = actions.all.clone();
        self.apply(&all);
    }

    /// Changes triggers, and with them the state.
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
                self.unsettled = LONGEST;
                self.others.swap_remove(at)
            }
            None => {
                self.unsettled = WARM;
                self.unknown(key)
            }
        };
        let was = std::mem::replace(&mut self.state, next);
        if was.known.is_some() {
            self.others.push(was);
        }
        if self.others.len() > MOST_STATES {
            // The one that was left longest ago, or nearly.
            let forgotten = self.others.remove(0).known;
            forgotten.iter().for_each(|known| known.add_to(&mut self.forgotten, known.stood_in));
        }
    }
}

/// Nothing counted yet, by worker.
fn nothing(scene: &Scene) -> Vec<Tally> {
    vec![Tally::new(scene); scene.workers.len()]
}

/// What was counted between two times.
fn since(now: &[Tally], before: &[Tally]) -> Vec<Tally> {
    now.iter().zip(before).map(|(now, before)| now.since(before)).collect()
}

fn add_times(counted: &mut [Tally], more: &[Tally], times: f64) {
    counted.iter_mut().zip(more).for_each(|(counted, more)| counted.add_times(more, times));
}
