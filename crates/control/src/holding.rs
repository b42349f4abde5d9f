//! The cost of holding packets (letting them wait for batches): the workers' time per packet with holding, minus the
//! time per packet without holding, plus the time that fewer calls save.
//!
//! A packet that waits for a batch leaves the processor's caches, and the next packet gets a buffer that is not cached
//! either. Both effects cost time: in calls, and where packets enter and leave. The cost depends on machine, pipeline
//! and traffic, so it is learnt at run time from periods with and without holding.

use forebay_protocol::{Layout, Snapshot};

use crate::period::{full, queues};

/// The weight of the last period in a learnt cost.
const LEARN: f64 = 0.25;
/// The weight of a change of triggers. It is larger than `LEARN`, because a change is seen in one period only.
const LEARN_CHANGE: f64 = 0.5;
/// The fraction by which a learnt cost is reduced in a period that does not show this cost. Holding is thus tried again
/// later.
const FORGET: f64 = 1.0 / 256.0;
/// A period counts as a period without holding if a packet waits, on average, for fewer batches than this.
const NONE_HELD: f64 = 0.01;
/// A period shows the cost of holding if a packet waits, on average, for more batches than this. Two periods with
/// holding are compared if their averages differ by more than this.
const MANY_HELD: f64 = 0.25;
/// A change of triggers is used for learning only if the periods before and after it have at least this number of
/// turns. With fewer turns, calls in progress at the end of the period distort the result.
const TURNS: u64 = 100;
/// Caches are still warming up if the cost without holding falls by more than this fraction from one period to the
/// next. (For pipelines of 16 to 600 modules, the second period, of 2 ms, showed a cost that was 0.5 to 12 percent
/// higher than in the fifth.)
const WARMER: f64 = 0.02;
/// The number of periods after which learning no longer waits for warm caches.
const WARM: u32 = 8;
/// Two periods are comparable if the packets per call at the entry, and the modules that packets pass, differ by at
/// most this fraction.
const ALIKE: f64 = 0.25;

/// The learnt cost of holding.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holding {
    /// The number of periods with packets so far. In the first period, the caches are still cold.
    periods: u32,
    /// The last period without holding, to which other periods are compared. Its `took` is smoothed over several such
    /// periods. `None` before the first such period, and after packets have taken other paths.
    free: Option<Observation>,
    /// True if the cost may fall in the next period, because caches are still warming up.
    warms: bool,
    /// The previous period. `None` if it was the first period with packets, or if `learn` ignored it.
    last: Option<Observation>,
    /// The extra seconds per packet for each batch that it waits for, compared with packets that do not wait.
    each: f64,
    /// The extra seconds per packet for each further batch, compared with packets that already wait for a batch. The
    /// first wait of a packet may save more time than fewer calls explain, and a second wait may still cost time. Can
    /// be negative.
    again: f64,
}

/// The figures of a period.
#[derive(Clone, Debug)]
struct Observation {
    /// The time of all workers per packet, in seconds.
    took: f64,
    /// The number of turns of the worker with the fewest turns.
    turns: u64,
    /// The number of batches that a packet waited for on average.
    held: f64,
    /// The packets per call of the modules behind ports.
    together: f64,
    /// By module: the packets per entered packet.
    ways: Vec<f64>,
    /// By module: the packets per call; 0 without calls.
    batches: Vec<f64>,
}

impl Observation {
    /// Returns whether the number of packets per call behind ports is close enough to `together` to compare the
    /// periods.
    fn comes(&self, together: f64) -> bool {
        (together - self.together).abs() <= ALIKE * self.together
    }

    /// Returns the extra seconds per packet for each additional batch that packets wait for in the period `now`,
    /// compared with this period. `snapshot` and `packets` are the snapshot and the entered packets of `now`. The time
    /// saved by fewer calls is calculated from the costs of modules, and added to the measured difference. If these
    /// costs are wrong, the result contains the opposite error. So the result minus the calculated saving is still the
    /// measured difference.
    fn price(&self, now: &Self, snapshot: &Snapshot, packets: f64) -> f64 {
        let saved = snapshot
            .modules
            .iter()
            .zip(&self.batches)
            .filter(|(_, batch)| **batch > 0.0)
            .map(|(module, batch)| module.cost_s.0 * (module.packets as f64 / batch - module.calls as f64));
        (now.took - self.took + saved.sum::<f64>() / packets) / (now.held - self.held)
    }

    /// Returns whether packets took comparable paths. `ways` has the form of the field `ways`.
    fn goes(&self, ways: &[f64]) -> bool {
        let other: f64 = self.ways.iter().zip(ways).map(|(was, is)| (was - is).abs()).sum();
        other <= ALIKE * self.ways.iter().sum::<f64>()
    }
}

impl Holding {
    /// Learns from a period. The snapshot must contain the costs of modules. Periods without packets are ignored, and
    /// so are periods in which a worker had spare time.
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
        let mut now = Observation { took, turns, held, together, ways, batches };
        if self.free.as_ref().is_some_and(|free| !free.goes(&now.ways)) {
            // Packets on other paths cost a different time, but holding them costs the same extra time. Only a period
            // without holding shows the new base cost.
            (self.free, self.warms) = (None, false);
        } else if let Some(last) = last.filter(|last| {
            last.goes(&now.ways)
                && turns.min(last.turns) >= TURNS
                && held.min(last.held) > NONE_HELD
                && (held - last.held).abs() > MANY_HELD
                && last.comes(together)
        }) {
            let again = last.price(&now, snapshot, packets);
            self.again += LEARN_CHANGE * (again - self.again);
        } else {
            self.again *= 1.0 - FORGET;
        }
        self.last = Some(now.clone());
        if held < NONE_HELD {
            let before = self.free.take().filter(|free| free.comes(together));
            let warmer = |free: &Observation| self.warms && took < free.took * (1.0 - WARMER);
            self.warms = !snapshot.exact && self.periods < WARM && before.as_ref().is_none_or(warmer);
            now.took = match before {
                Some(free) if !self.warms => free.took + LEARN * (took - free.took),
                _ => took,
            };
            self.free = Some(now);
        } else if let Some(free) = &self.free
            && held > MANY_HELD
            && free.comes(together)
        {
            self.each = (self.each + LEARN * (free.price(&now, snapshot, packets) - self.each)).max(0.0);
        }
        // Too few packets are held to show the cost. The learnt cost is reduced, so that holding is tried again.
        if held <= MANY_HELD {
            self.each *= 1.0 - FORGET;
        }
    }

    /// Returns whether the workers' times in a period show the cost of packets: no worker may have had spare time. A
    /// worker spends spare time on polling, which costs nothing.
    fn shows(snapshot: &Snapshot) -> bool {
        snapshot.workers.iter().all(|worker| full(worker, snapshot))
    }

    /// Returns whether the cost of packets without holding must be measured before packets are held. In the first
    /// period, the first packets may have arrived only near its end. It is then unknown whether a worker will have
    /// spare time, so the cost is measured to be safe. If packets queue already, no worker will have spare time.
    pub(crate) fn asks(&self, snapshot: &Snapshot) -> bool {
        let may_show = Self::shows(snapshot) || self.periods == 1 && !queues(snapshot);
        // If packets queue, the controller does not wait until caches are warm: the packets would be late.
        let warms = self.warms && !queues(snapshot);
        (self.free.is_none() || warms) && may_show && snapshot.modules.iter().all(|module| module.trigger == 0)
    }

    /// Returns the extra seconds per packet for each batch that it waits for.
    pub(crate) fn each(&self) -> f64 {
        self.each
    }

    /// Returns the extra seconds per packet for each further batch, if the packet already waits for another batch.
    /// Learnt from the changes of triggers so far; 0 if such a batch saves time.
    pub(crate) fn again(&self) -> f64 {
        self.again.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use forebay_protocol::snapshot::{DelaySnapshot, ModuleSnapshot, WorkerSnapshot};

    use super::*;
    use crate::testing;

    /// Returns a period in which every module has the same packets and the same trigger. `busy` is the worker's load,
    /// and `beside_s` the time per packet in addition to the calls, in seconds.
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
    fn the_cost_of_holding_is_learnt() {
        let mut periods = vec![(1.0, 0, 50e-9), (1.0, 0, 10e-9)];
        assert_eq!(learnt(&periods).each(), 0.0);
        periods.extend([(1.0, 32, 18e-9); 30]);
        // The first period does not count: the caches were still cold.
        assert!((learnt(&periods).each() - 8e-9).abs() < 1e-10, "{:?}", learnt(&periods));
        periods.extend([(1.0, 32, 9e-9); 30]);
        assert_eq!(learnt(&periods).each(), 0.0);
    }

    /// Regression test: when traffic took other paths, the price was dropped. Because packets were held in every
    /// period, it was never learnt again.
    #[test]
    fn the_cost_of_holding_is_kept_when_paths_change() {
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

    /// Regression test: after the price was once too high, packets were never held again, so the price was never
    /// corrected.
    #[test]
    fn an_unconfirmed_price_fades() {
        let held = [&[(1.0, 0, 50e-9), (1.0, 0, 10e-9)][..], &[(1.0, 32, 18e-9); 30]].concat();
        let price = learnt(&held).each();
        let quiet = learnt(&[&held[..], &[(1.0, 0, 10e-9); 200]].concat()).each();
        assert!(quiet > 0.0 && quiet < price / 2.0, "{quiet} of {price}");
        // One of ten modules holds.
        let ten = Layout { modules: vec![layout().modules.remove(0); 10], ..layout() };
        let mut few = Holding::default();
        let snapshot_of = |held: usize| {
            let mut snapshot = period(&ten, 1.0, 0, 10e-9);
            snapshot.modules[..held].iter_mut().for_each(|module| module.trigger = 32);
            snapshot
        };
        (0..3).for_each(|_| few.learn(&ten, &snapshot_of(0)));
        few.each = price;
        (0..200).for_each(|_| few.learn(&ten, &snapshot_of(1)));
        assert!(few.each() > 0.0 && few.each() < price / 2.0, "{few:?}");
        let (layout, mut holding) =
            (Layout { modules: vec![layout().modules.remove(0); 2], ..layout() }, Holding::default());
        let snapshot_of = |other: u64| {
            let mut snapshot = period(&layout, 1.0, 0, 10e-9);
            snapshot.modules[1].packets = other;
            snapshot
        };
        (0..3).for_each(|_| holding.learn(&layout, &snapshot_of(90_000)));
        holding.each = price;
        holding.learn(&layout, &snapshot_of(80_000));
        assert!(holding.each() > 0.9 * price, "about as many packets go there: {holding:?}");
        holding.learn(&layout, &snapshot_of(9_000));
        assert!(holding.free.as_ref().is_some_and(|free| free.ways[1] < 0.1), "other packets: {holding:?}");
    }

    /// Regression test: a saving beyond the calls was treated as a price of 0. Packets were then held a second time,
    /// although that cost more.
    #[test]
    fn the_cost_of_holding_again_is_learnt_from_changes() {
        let mut layout = Layout { modules: vec![layout().modules.remove(0); 2], ..layout() };
        layout.modules[1].entry = false;
        let snapshot_of = |triggers: [usize; 2], beside_s: f64| {
            let mut snapshot = period(&layout, 1.0, triggers[0], beside_s);
            snapshot.modules[1].trigger = triggers[1];
            snapshot
        };
        let (free, once, again) =
            (snapshot_of([0, 0], 80e-9), snapshot_of([32, 0], 20e-9), snapshot_of([32, 32], 30e-9));
        let mut holding = Holding::default();
        [&free, &free, &once, &once].into_iter().for_each(|period| holding.learn(&layout, period));
        assert_eq!((holding.each(), holding.again()), (0.0, 0.0), "it saves more than calls say");
        holding.learn(&layout, &again);
        assert!(holding.again() > 3e-9, "{holding:?}");
        [&once, &again, &once].into_iter().for_each(|period| holding.learn(&layout, period));
        assert!((7e-9..=10.1e-9).contains(&holding.again()) && holding.each() == 0.0, "{holding:?}");
        // Random differences cancel out.
        let twice = snapshot_of([32, 32], 20e-9);
        for _ in 0..20 {
            [&twice, &once].into_iter().for_each(|period| holding.learn(&layout, period));
        }
        assert!(holding.again() < 1e-10, "{holding:?}");
        holding.learn(&layout, &again);
        (0..100).for_each(|_| holding.learn(&layout, &again));
        let price = holding.again();
        assert!(price > 0.0 && price < 5e-9, "it fades: {holding:?}");
        let mut few = once.clone();
        few.workers[0].busy_turns = TURNS - 1;
        holding.learn(&layout, &few);
        assert!(holding.again() <= price, "few turns say nothing: {holding:?}");
    }

    /// Regression test: the second period was used as the cost without holding, although the caches were still cold.
    /// Holding then seemed to cost nothing.
    #[test]
    fn the_base_cost_is_measured_with_warm_caches() {
        let mut periods = vec![(1.0, 0, 50e-9)];
        for beside_s in [20e-9, 14e-9, 11e-9, 10e-9] {
            periods.push((1.0, 0, beside_s));
            assert!(learnt(&periods).asks(&period(&layout(), 1.0, 0, beside_s)), "{periods:?}");
        }
        // A slightly lower cost does not indicate cold caches.
        periods.push((1.0, 0, 9.9e-9));
        assert!(!learnt(&periods).asks(&period(&layout(), 1.0, 0, 9.9e-9)));
        periods.extend([(1.0, 32, 18e-9); 30]);
        assert!((learnt(&periods).each() - 8e-9).abs() < 1e-10, "{:?}", learnt(&periods));
        let mut warming: Vec<_> = (1..WARM).map(|at| (1.0, 0, 1e-6 * 0.5_f64.powi(at as i32))).collect();
        assert!(learnt(&warming).asks(&period(&layout(), 1.0, 0, 0.0)));
        let mut queued = period(&layout(), 1.0, 0, 0.0);
        queued.workers[0].port_wait_s = Some(DelaySnapshot { mean: 1e-6, ..DelaySnapshot::default() });
        assert!(!learnt(&warming).asks(&queued), "packets that queue meanwhile would be late");
        warming.push((1.0, 0, 1e-6 * 0.5_f64.powi(WARM as i32)));
        assert!(!learnt(&warming).asks(&period(&layout(), 1.0, 0, 0.0)), "the number of periods is limited");
    }

    #[test]
    fn workers_with_spare_time_show_no_costs() {
        assert_eq!(learnt(&[(0.5, 0, 10e-9), (0.5, 0, 10e-9), (0.5, 32, 90e-9)]).each(), 0.0);
        let (layout, holding) = (layout(), Holding::default());
        assert!(holding.asks(&period(&layout, 1.0, 0, 10e-9)));
        assert!(!holding.asks(&period(&layout, 0.5, 0, 10e-9)) && !holding.asks(&period(&layout, 1.0, 8, 10e-9)));
        // At a start, packets may arrive late in the first period. The second period then shows their cost.
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
