//! What it costs to hold packets: what workers take for a packet, with packets held and without, less what fewer calls save.
//!
//! A packet that waits for a batch goes out of the caches, and the next one to arrive gets a buffer that is not in them either. It shows
//! where packets enter and leave as much as in calls, and is of this machine, pipeline and traffic, so that it is learnt as they run: from
//! periods in which nobody waits, as at the beginning, and others.

use forebay_graph::{Layout, Snapshot};

use crate::period::{full, queues};

/// How much of what a period says is believed, and of what a change of triggers says, which is once.
const LEARN: f64 = 0.25;
const LEARN_CHANGE: f64 = 0.5;
/// How much of a price is forgotten in a period that does not show it, so that it is seen again now and then.
const FORGET: f64 = 1.0 / 256.0;
/// The share of packets that may be held where nobody waits, and that must be where it is seen what that costs.
const NOBODY: f64 = 0.01;
const MANY: f64 = 0.25;
/// Turns of a period, at least, for a change of triggers to say something: what calls are under way when it ends is too much of it else.
const TURNS: u64 = 100;
/// Where packets that nobody holds cost less by this part than in the period before, caches become warm; where that is waited for, it is
/// before so many periods are over. (Of pipelines of 16 to 600 modules the second period, of 2 ms, told from 0.5 to 12 percent more than
/// the fifth.)
const WARMER: f64 = 0.02;
const WARM: u32 = 8;
/// By what part packets a call may differ where they enter, as what a turn costs is shared by as many; and the modules that they pass.
const ALIKE: f64 = 0.25;

/// What has been learnt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holding {
    /// Periods with packets that have been seen: in the first one nothing is in the caches yet.
    periods: u32,
    /// Where nobody waited.
    free: Option<Seen>,
    /// Whether that may cost less in the next period, as caches are still cold.
    warms: bool,
    /// The last period that said anything.
    last: Option<Seen>,
    /// Seconds for each batch that a packet waits for, against those that wait for none; and as far as they wait for more than they
    /// did in the last period, or for fewer: to be held again may cost more than what is held once saves beyond what calls say.
    each: f64,
    again: f64,
}

/// What was in a period.
#[derive(Clone, Debug)]
struct Seen {
    /// Workers' seconds a packet.
    took: f64,
    /// Turns of the worker with the fewest.
    turns: u64,
    /// Batches that a packet waited for.
    held: f64,
    /// Packets a call where they enter.
    together: f64,
    /// By module: packets, for each that entered.
    ways: Vec<f64>,
    /// By module: packets a call; 0 without any.
    batches: Vec<f64>,
}

impl Seen {
    /// Whether packets came together as much as they do now.
    fn comes(&self, together: f64) -> bool {
        (together - self.together).abs() <= ALIKE * self.together
    }

    /// Seconds for each batch that packets wait for more than they did then. What is saved in calls is what costs say, right or wrong: so
    /// the sum of both is what is seen.
    fn price(&self, now: &Self, snapshot: &Snapshot, packets: f64) -> f64 {
        let saved = snapshot
            .modules
            .iter()
            .zip(&self.batches)
            .filter(|(_, batch)| **batch > 0.0)
            .map(|(module, batch)| module.cost_s.0 * (module.packets as f64 / batch - module.calls as f64));
        (now.took - self.took + saved.sum::<f64>() / packets) / (now.held - self.held)
    }

    /// Whether packets went these ways.
    fn goes(&self, ways: &[f64]) -> bool {
        let other: f64 = self.ways.iter().zip(ways).map(|(was, is)| (was - is).abs()).sum();
        other <= ALIKE * self.ways.iter().sum::<f64>()
    }
}

impl Holding {
    /// Learns from a period whose modules' costs are known.
    pub(crate) fn learn(&mut self, layout: &Layout, snapshot: &Snapshot) {
        let last = self.last.take();
        let (mut entered, mut entries, mut held) = (0, 0, 0);
        for (of, module) in layout.modules.iter().zip(&snapshot.modules) {
            held += if module.trigger > 0 { module.packets } else { 0 };
            if of.entry {
                (entered, entries) = (entered + module.packets, entries + module.calls);
            }
        }
        if entered == 0 || entries == 0 {
            return;
        }
        self.periods = self.periods.saturating_add(1);
        if !Self::shows(snapshot) {
            return;
        }
        let packets = entered as f64;
        let busy: f64 = snapshot.workers.iter().map(|worker| worker.busy_s).sum();
        let (took, held, together) = (busy / packets, held as f64 / packets, packets / entries as f64);
        let ways: Vec<f64> = snapshot.modules.iter().map(|module| module.packets as f64 / packets).collect();
        if self.periods == 1 {
            return;
        }
        let batches = snapshot.modules.iter().map(|module| module.batch().unwrap_or(0.0)).collect();
        let turns = snapshot.workers.iter().map(|worker| worker.busy_turns).min().unwrap_or(0);
        let mut now = Seen { took, turns, held, together, ways, batches };
        if self.free.as_ref().is_some_and(|free| !free.goes(&now.ways)) {
            // Packets that go other ways cost something else, and to hold them as much more: what that is cannot be seen until none is.
            (self.free, self.warms) = (None, false);
        } else if let Some(last) = last.filter(|last| {
            last.goes(&now.ways)
                && turns.min(last.turns) >= TURNS
                && held.min(last.held) > NOBODY
                && (held - last.held).abs() > MANY
                && last.comes(together)
        }) {
            let again = last.price(&now, snapshot, packets);
            self.again += LEARN_CHANGE * (again - self.again);
        } else {
            self.again *= 1.0 - FORGET;
        }
        self.last = Some(now.clone());
        if held < NOBODY {
            let before = self.free.take().filter(|free| free.comes(together));
            let warmer = |free: &Seen| self.warms && took < free.took * (1.0 - WARMER);
            self.warms = !snapshot.exact && self.periods < WARM && before.as_ref().is_none_or(warmer);
            now.took = match before {
                Some(free) if !self.warms => free.took + LEARN * (took - free.took),
                _ => took,
            };
            self.free = Some(now);
        } else if let Some(free) = &self.free
            && held > MANY
            && free.comes(together)
        {
            self.each = (self.each + LEARN * (free.price(&now, snapshot, packets) - self.each)).max(0.0);
        }
        // Too few are held to show the price: it fades, so that holding is tried again.
        if held <= MANY {
            self.each *= 1.0 - FORGET;
        }
    }

    /// Whether a period says anything: who has time to spare spends it on looking for packets, which costs nobody anything.
    fn shows(snapshot: &Snapshot) -> bool {
        snapshot.workers.iter().all(|worker| full(worker, snapshot))
    }

    /// Whether it is to be seen first what packets cost that nobody holds. In the first period packets may not have come from its beginning
    /// on: whether a worker will have time to spare is not known then, unless packets wait for it.
    pub(crate) fn asks(&self, snapshot: &Snapshot) -> bool {
        let may_show = Self::shows(snapshot) || self.periods == 1 && !queues(snapshot);
        // What piles up meanwhile would be late.
        let warms = self.warms && !queues(snapshot);
        (self.free.is_none() || warms) && may_show && snapshot.modules.iter().all(|module| module.trigger == 0)
    }

    /// Seconds that a packet costs more for each batch that it waits for.
    pub(crate) fn each(&self) -> f64 {
        self.each
    }

    /// The same where packets have waited for one before: what changes of triggers said, if anything.
    pub(crate) fn again(&self) -> f64 {
        self.again.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use forebay_graph::snapshot::{DelaySnapshot, ModuleSnapshot, WorkerSnapshot};

    use super::*;
    use crate::testing;

    /// A module that packets enter, on a worker that is busy for this share of a period of 10 ms.
    fn period(layout: &Layout, busy: f64, trigger: usize, beside_s: f64) -> Snapshot {
        let (packets, calls, cost_s) = (100_000, 3_125, (100e-9, 20e-9));
        let took = packets as f64 * (cost_s.1 + beside_s) + calls as f64 * cost_s.0;
        let module = ModuleSnapshot { packets, calls, trigger, cost_s, ..ModuleSnapshot::default() };
        let worker = WorkerSnapshot { busy_s: took, busy_turns: calls, ..WorkerSnapshot::default() };
        let modules = vec![module; layout.modules.len()];
        Snapshot { period_s: took / busy, modules, workers: vec![worker], ..Snapshot::default() }
    }

    fn layout() -> Layout {
        testing::layout(vec![testing::module("entry", &[])], Vec::new())
    }

    fn learnt(periods: &[(f64, usize, f64)]) -> Holding {
        let (layout, mut holding) = (layout(), Holding::default());
        periods
            .iter()
            .for_each(|&(busy, trigger, beside_s)| holding.learn(&layout, &period(&layout, busy, trigger, beside_s)));
        holding
    }

    #[test]
    fn what_packets_cost_more_that_are_held_is_learnt() {
        let mut periods = vec![(1.0, 0, 50e-9), (1.0, 0, 10e-9)];
        assert_eq!(learnt(&periods).each(), 0.0);
        periods.extend([(1.0, 32, 18e-9); 30]);
        // The first period does not count: nothing was in the caches yet.
        assert!((learnt(&periods).each() - 8e-9).abs() < 1e-10, "{:?}", learnt(&periods));
        periods.extend([(1.0, 32, 9e-9); 30]);
        assert_eq!(learnt(&periods).each(), 0.0);
    }

    /// Traffic that took other ways had the price forgotten, and as nothing was free of being held, it was never learnt again.
    #[test]
    fn what_holding_costs_is_kept_in_mind_where_packets_go_other_ways() {
        let mut layout = layout();
        layout.modules.push(testing::module("other", &[0]));
        let mut holding = Holding::default();
        let mut learn = |periods: &[(usize, f64)], here: bool| {
            for (trigger, beside_s) in periods {
                let mut snapshot = period(&layout, 1.0, *trigger, *beside_s);
                if !here {
                    (snapshot.modules[1].packets, snapshot.modules[1].calls) = (0, 0);
                }
                holding.learn(&layout, &snapshot);
            }
            holding.each()
        };
        let price = learn(&[&[(0, 50e-9), (0, 10e-9)][..], &[(32, 18e-9); 30]].concat(), true);
        assert!(price > 1e-9, "{price}");
        assert_eq!(learn(&[(32, 18e-9); 30], false), price);
    }

    /// A price that was too high once had packets never held again, of which it would have been seen.
    #[test]
    fn what_nobody_is_seen_to_pay_is_forgotten() {
        let held = [&[(1.0, 0, 50e-9), (1.0, 0, 10e-9)][..], &[(1.0, 32, 18e-9); 30]].concat();
        let price = learnt(&held).each();
        let quiet = learnt(&[&held[..], &[(1.0, 0, 10e-9); 200]].concat()).each();
        assert!(quiet > 0.0 && quiet < price / 2.0, "{quiet} of {price}");
        // One of ten modules holds.
        let ten = Layout { modules: vec![layout().modules.remove(0); 10], ..layout() };
        let mut few = Holding::default();
        let told = |held: usize| {
            let mut snapshot = period(&ten, 1.0, 0, 10e-9);
            snapshot.modules[..held].iter_mut().for_each(|module| module.trigger = 32);
            snapshot
        };
        (0..3).for_each(|_| few.learn(&ten, &told(0)));
        few.each = price;
        (0..200).for_each(|_| few.learn(&ten, &told(1)));
        assert!(few.each() > 0.0 && few.each() < price / 2.0, "{few:?}");
        let (layout, mut holding) =
            (Layout { modules: vec![layout().modules.remove(0); 2], ..layout() }, Holding::default());
        let told = |other: u64| {
            let mut snapshot = period(&layout, 1.0, 0, 10e-9);
            snapshot.modules[1].packets = other;
            snapshot
        };
        (0..3).for_each(|_| holding.learn(&layout, &told(90_000)));
        holding.each = price;
        holding.learn(&layout, &told(80_000));
        assert!(holding.each() > 0.9 * price, "about as many go there: {holding:?}");
        holding.learn(&layout, &told(9_000));
        assert!(holding.free.as_ref().is_some_and(|free| free.ways[1] < 0.1), "other packets: {holding:?}");
    }

    /// What holding saved beyond what calls say was once taken for a price of nothing, at which packets were held again for less than that
    /// cost.
    #[test]
    fn what_packets_cost_more_that_are_held_again_is_seen_when_triggers_change() {
        let mut layout = Layout { modules: vec![layout().modules.remove(0); 2], ..layout() };
        layout.modules[1].entry = false;
        let told = |triggers: [usize; 2], beside_s: f64| {
            let mut snapshot = period(&layout, 1.0, triggers[0], beside_s);
            snapshot.modules[1].trigger = triggers[1];
            snapshot
        };
        let (free, once, again) = (told([0, 0], 80e-9), told([32, 0], 20e-9), told([32, 32], 30e-9));
        let mut holding = Holding::default();
        [&free, &free, &once, &once].into_iter().for_each(|period| holding.learn(&layout, period));
        assert_eq!((holding.each(), holding.again()), (0.0, 0.0), "it saves more than calls say");
        holding.learn(&layout, &again);
        assert!(holding.again() > 3e-9, "{holding:?}");
        [&once, &again, &once].into_iter().for_each(|period| holding.learn(&layout, period));
        assert!((7e-9..=10.1e-9).contains(&holding.again()) && holding.each() == 0.0, "{holding:?}");
        // What came to be other by chance says as often that it costs less.
        let twice = told([32, 32], 20e-9);
        for _ in 0..20 {
            [&twice, &once].into_iter().for_each(|period| holding.learn(&layout, period));
        }
        assert!(holding.again() < 1e-10, "{holding:?}");
        holding.learn(&layout, &again);
        (0..100).for_each(|_| holding.learn(&layout, &again));
        let price = holding.again();
        assert!(price > 0.0 && price < 5e-9, "it is forgotten: {holding:?}");
        let mut few = once.clone();
        few.workers[0].busy_turns = TURNS - 1;
        holding.learn(&layout, &few);
        assert!(holding.again() <= price, "few turns say nothing: {holding:?}");
    }

    /// The second period was taken for what packets cost that nobody holds, where caches were not warm yet: holding seemed to cost nothing.
    #[test]
    fn what_packets_cost_is_seen_when_caches_are_warm() {
        let mut periods = vec![(1.0, 0, 50e-9)];
        for beside_s in [20e-9, 14e-9, 11e-9, 10e-9] {
            periods.push((1.0, 0, beside_s));
            assert!(learnt(&periods).asks(&period(&layout(), 1.0, 0, beside_s)), "{periods:?}");
        }
        // Hardly less says nothing of caches.
        periods.push((1.0, 0, 9.9e-9));
        assert!(!learnt(&periods).asks(&period(&layout(), 1.0, 0, 9.9e-9)));
        periods.extend([(1.0, 32, 18e-9); 30]);
        assert!((learnt(&periods).each() - 8e-9).abs() < 1e-10, "{:?}", learnt(&periods));
        let mut warming: Vec<_> = (1..WARM).map(|at| (1.0, 0, 1e-6 * 0.5_f64.powi(at as i32))).collect();
        assert!(learnt(&warming).asks(&period(&layout(), 1.0, 0, 0.0)));
        let mut queued = period(&layout(), 1.0, 0, 0.0);
        queued.workers[0].port_wait_s = Some(DelaySnapshot { mean: 1e-6, ..DelaySnapshot::default() });
        assert!(!learnt(&warming).asks(&queued), "what piles up meanwhile would be late");
        warming.push((1.0, 0, 1e-6 * 0.5_f64.powi(WARM as i32)));
        assert!(!learnt(&warming).asks(&period(&layout(), 1.0, 0, 0.0)), "nobody waits for ever");
    }

    #[test]
    fn workers_with_time_to_spare_say_nothing() {
        assert_eq!(learnt(&[(0.5, 0, 10e-9), (0.5, 0, 10e-9), (0.5, 32, 90e-9)]).each(), 0.0);
        let (layout, holding) = (layout(), Holding::default());
        assert!(holding.asks(&period(&layout, 1.0, 0, 10e-9)));
        assert!(!holding.asks(&period(&layout, 0.5, 0, 10e-9)) && !holding.asks(&period(&layout, 1.0, 8, 10e-9)));
        // At a start packets may come late in the first period: the second one says what they cost.
        let started = learnt(&[(0.5, 0, 50e-9)]);
        assert!(started.asks(&period(&layout, 0.5, 0, 50e-9)));
        assert!(!learnt(&[(0.5, 0, 50e-9), (0.5, 0, 50e-9)]).asks(&period(&layout, 0.5, 0, 50e-9)));
        let full = learnt(&[(0.5, 0, 50e-9), (1.0, 0, 10e-9), (1.0, 0, 10e-9)]);
        assert!(!full.asks(&period(&layout, 1.0, 0, 10e-9)), "{full:?}");
        let mut simulated = Holding::default();
        let exact = Snapshot { exact: true, ..period(&layout, 1.0, 0, 0.0) };
        (0..2).for_each(|_| simulated.learn(&layout, &exact));
        assert!(!simulated.asks(&exact), "no caches become warm in simulated time");
    }
}
