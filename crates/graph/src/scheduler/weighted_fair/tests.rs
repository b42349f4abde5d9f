//! Tests the scheduler alone: compares it with a simple model, and bounds the deviation from the ideal.

use proptest::prelude::*;

use super::*;
use crate::scheduler::Share;

/// Creates a scheduler for modules of these weights. Each is fed by a port of its own. The node after them is the one
/// by which packets leave.
fn of(weights: &[u32]) -> WeightedFair {
    WeightedFair::new(&Topology {
        nodes: weights.len() + 1,
        shares: weights.iter().map(|weight| Share { weight: *weight, ..Share::default() }).collect(),
        gates: vec![vec![None]; weights.len()],
        entries: (0..weights.len()).map(Some).collect(),
        ..Topology::default()
    })
}

/// Returns the node that runs next. Begins turns as needed.
fn run(scheduler: &mut WeightedFair) -> usize {
    scheduler.next().unwrap_or_else(|| {
        scheduler.begin(Ticks::ZERO);
        scheduler.next().expect("a node is ready")
    })
}

#[test]
fn without_a_backlog_it_runs_in_topological_order_and_packets_leave_at_the_end() {
    let mut scheduler = of(&[1; 70]);
    for turn in 0..3 {
        for node in [70, 65, 3, 9, 3] {
            scheduler.ready(node);
        }
        scheduler.begin(Ticks::ZERO);
        let mut order = Vec::new();
        while let Some(node) = scheduler.next() {
            order.push(node);
            scheduler.charge(node, 32, Took::Exactly(Ticks(node as u64 * 1_000)));
        }
        assert_eq!(order, [3, 9, 65, 70], "in turn {turn}");
        assert!(scheduler.is_idle());
    }
}

#[test]
fn a_turn_ends_after_as_many_calls_as_there_are_modules() {
    let mut scheduler = of(&[1, 1, 100]);
    (0..4).for_each(|node| scheduler.ready(node));
    for _ in 0..10 {
        scheduler.begin(Ticks::ZERO);
        let mut calls = 0;
        while let Some(node) = scheduler.next() {
            if node < 3 {
                calls += 1;
                scheduler.charge(node, 1, Took::Exactly(Ticks(10)));
                scheduler.ran(node, true);
            }
        }
        assert_eq!(calls, 3);
        scheduler.ready(3);
    }
}

/// If no module waits, all start again at the same pass, including one whose weight has decreased since its last call.
#[test]
fn a_module_with_a_decreased_weight_starts_at_the_same_pass() {
    let mut scheduler = of(&[1_000, 1_000]);
    scheduler.ready(0);
    let node = run(&mut scheduler);
    scheduler.charge(node, 1, Took::Exactly(Ticks(1_000)));
    scheduler.set_weight(0, 1);
    assert_eq!(scheduler.next(), None);
    scheduler.begin(Ticks::ZERO);
    (0..2).for_each(|node| scheduler.ready(node));
    assert_eq!((run(&mut scheduler), scheduler.accounts[0].pass), (0, scheduler.accounts[1].pass));
}

#[test]
fn a_module_that_becomes_ready_again_has_no_saved_time_and_no_debt() {
    let mut scheduler = of(&[1, 1]);
    let mut counts = [0u64; 2];
    let step = |scheduler: &mut WeightedFair, counts: &mut [u64; 2]| {
        let node = run(scheduler);
        counts[node] += 1;
        scheduler.charge(node, 1, Took::Exactly(Ticks(100)));
        scheduler.ran(node, true);
    };
    scheduler.ready(0);
    (0..1_000).for_each(|_| step(&mut scheduler, &mut counts));
    assert_eq!(counts, [1_000, 0]);
    scheduler.ready(1);
    (0..1_000).for_each(|_| step(&mut scheduler, &mut counts));
    assert!(counts[1].abs_diff(500) <= 1, "{counts:?}");
}

#[test]
fn straight_on_only_if_no_other_module_would_have_been_chosen() {
    let mut scheduler = of(&[1, 1, 1, 1]);
    scheduler.begin(Ticks::ZERO);
    scheduler.ready(0);
    assert_eq!(scheduler.next(), Some(0));
    assert!(scheduler.straight_on(1) && scheduler.straight_on(4), "no other module is ready");
    scheduler.charge(0, 1, Took::Exactly(Ticks(10)));
    scheduler.charge(1, 1, Took::Exactly(Ticks(10)));
    scheduler.ran(0, true);
    scheduler.ready(2);
    assert_eq!(scheduler.next(), Some(2), "2 has the same pass, and 0 has run");
    assert!(!scheduler.straight_on(1), "1 has also run, and comes after those that have not");
    assert!(scheduler.straight_on(3));
}

/// Once, if all weights became n times larger, a module with one call more than the others waited n times as long.
#[test]
fn a_lead_in_time_does_not_change_when_weights_are_scaled() {
    let mut scheduler = of(&[1, 1]);
    let mut counts = [0u64; 2];
    let mut step = |scheduler: &mut WeightedFair| {
        let node = run(scheduler);
        counts[node] += 1;
        scheduler.charge(node, 1, Took::Exactly(Ticks(50_000)));
        scheduler.ran(node, true);
        counts
    };
    (0..2).for_each(|node| scheduler.ready(node));
    (0..7).for_each(|_| assert!(step(&mut scheduler)[0] > 0));
    (0..2).for_each(|node| scheduler.set_weight(node, 10_000));
    let counts = (0..92).fold([0; 2], |_, _| step(&mut scheduler));
    assert!(counts[0].abs_diff(counts[1]) <= 2, "{counts:?}");
}

/// A model that looks at all modules each time.
#[derive(Default)]
struct Model {
    /// By module: pass, weight, whether it is ready, whether it is not abreast.
    modules: Vec<(u64, u32, bool, bool)>,
    time: u64,
    furthest: u64,
}

impl Model {
    fn ready(&mut self, node: usize, again: bool) {
        let time = self.time;
        let (pass, _, ready, ahead) = &mut self.modules[node];
        if !std::mem::replace(ready, true) {
            *pass = if again { *pass } else { (*pass).max(time) };
            *ahead = again || *pass != time;
        }
    }

    fn next(&mut self) -> Option<usize> {
        let ready = self.modules.iter().enumerate().filter(|(_, module)| module.2);
        let Some((node, _)) = ready.min_by_key(|(node, (pass, _, _, ahead))| (*pass, *ahead, *node)) else {
            self.time = self.time.max(self.furthest);
            return None;
        };
        self.modules[node].2 = false;
        self.time = self.time.max(self.modules[node].0);
        Some(node)
    }

    fn set_weight(&mut self, node: usize, weight: u32) {
        let (pass, now, ..) = &mut self.modules[node];
        let before = std::mem::replace(now, weight);
        let ahead = pass.saturating_sub(self.time) as f64;
        let scale = (TICK / f64::from(weight)) / (TICK / f64::from(before));
        *pass = (*pass).min(self.time) + (ahead * scale) as u64;
        self.furthest = self.furthest.max(*pass);
    }

    fn charge(&mut self, node: usize, ticks: u64) {
        let (pass, weight, ..) = &mut self.modules[node];
        *pass += (TICK / f64::from(*weight) * ticks as f64) as u64;
        self.furthest = self.furthest.max(*pass);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ready(usize),
    Weight(usize, u32),
    /// The next module runs for this many ticks, and may have more packets.
    Run(u64, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..20usize).prop_map(Step::Ready),
        1 => (0..20usize, 1..100u32).prop_map(|(node, weight)| Step::Weight(node, weight)),
        6 => (1..10_000u64, any::<bool>()).prop_map(|(ticks, more)| Step::Run(ticks, more)),
    ];
    proptest::collection::vec(step, 1..600)
}

proptest! {
    #[test]
    fn it_chooses_as_the_model_does(weights in proptest::collection::vec(1..100u32, 20), steps in steps()) {
        let mut scheduler = of(&weights);
        let modules = weights.iter().map(|weight| (0, *weight, false, false)).collect();
        let mut model = Model { modules, ..Model::default() };
        for step in steps {
            match step {
                Step::Ready(node) => {
                    scheduler.ready(node);
                    model.ready(node, false);
                }
                Step::Weight(node, weight) => {
                    scheduler.set_weight(node, weight);
                    model.set_weight(node, weight);
                }
                Step::Run(ticks, more) => {
                    // Every step is a turn. This test is not about the number of calls in a turn.
                    scheduler.begin(Ticks::ZERO);
                    let chosen = scheduler.next();
                    prop_assert_eq!(chosen, model.next());
                    if let Some(node) = chosen {
                        scheduler.charge(node, 1, Took::Exactly(Ticks(ticks)));
                        model.charge(node, ticks);
                        // A module that ports feed keeps its turn if another module is ready.
                        let others = model.modules.iter().any(|module| module.2);
                        scheduler.ran(node, more);
                        if more || others {
                            model.ready(node, true);
                        }
                        // Between turns no module runs.
                        scheduler.running = NONE_RUNS;
                    }
                }
            }
        }
    }

    /// Setting virtual time back makes no difference to any module.
    #[test]
    fn setting_virtual_time_back_changes_no_choice(
        weights in proptest::collection::vec(1..100u32, 20),
        steps in steps(),
    ) {
        let (mut early, mut late) = (of(&weights), of(&weights));
        let before = LATE - TICK as u64 * 1_000;
        (late.virtual_time, late.furthest) = (before, before);
        for step in steps {
            for scheduler in [&mut early, &mut late] {
                match step {
                    Step::Ready(node) => scheduler.ready(node),
                    Step::Weight(node, weight) => scheduler.set_weight(node, weight),
                    Step::Run(..) => scheduler.begin(Ticks::ZERO),
                }
            }
            if let Step::Run(ticks, more) = step {
                prop_assert!(late.virtual_time < LATE, "it is set back when a turn begins");
                let chosen = early.next();
                prop_assert_eq!(chosen, late.next());
                if let Some(node) = chosen {
                    for scheduler in [&mut early, &mut late] {
                        scheduler.charge(node, 1, Took::Exactly(Ticks(ticks)));
                        scheduler.ran(node, more);
                        scheduler.running = NONE_RUNS;
                    }
                }
            }
        }
    }

    /// Two backlogged modules are never further apart than one call of each (Goyal et al., theorem 1), whatever the
    /// cost of calls. This holds at all times, not only in the long run.
    #[test]
    fn backlogged_modules_are_at_most_one_call_each_apart(
        weights in proptest::collection::vec(1..64u32, 2..24),
        ticks in proptest::collection::vec(1..5_000u64, 100..2_000),
    ) {
        let mut scheduler = of(&weights);
        let (mut got, mut longest) = (vec![0u64; weights.len()], vec![0u64; weights.len()]);
        (0..weights.len()).for_each(|node| scheduler.ready(node));
        for ticks in ticks {
            let node = run(&mut scheduler);
            scheduler.charge(node, 1, Took::Exactly(Ticks(ticks)));
            scheduler.ran(node, true);
            got[node] += ticks;
            longest[node] = longest[node].max(ticks);
            let of_weight = |ticks: &[u64], node: usize| ticks[node] as f64 / f64::from(weights[node]);
            for (a, b) in (0..weights.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let apart = (of_weight(&got, a) - of_weight(&got, b)).abs();
                let allowed = of_weight(&longest, a) + of_weight(&longest, b);
                // The advance per tick is rounded down for each weight.
                prop_assert!(apart <= allowed * 1.001 + 1.0, "{a} and {b}: {apart} where {allowed} are allowed");
            }
        }
    }
}

/// Costs are known only for one turn in thirty-two. They are unequal, scattered, and of batches of all sizes. Shares
/// are right all the same, and stay right when costs change.
#[test]
fn no_module_gains_from_estimated_costs() {
    let weights = [1u32, 2, 5, 1, 3];
    let mut scheduler = of(&weights);
    let mut random = 7u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    (0..weights.len()).for_each(|node| scheduler.ready(node));
    for phase in 0..3 {
        let mut got = [0u64; 5];
        let mut timed = 0u32;
        for turn in 0..2_000_000u32 {
            scheduler.begin(Ticks::ZERO);
            let sampled = scheduler.wants_time();
            timed += u32::from(sampled);
            while let Some(node) = scheduler.next() {
                let packets = 1 + draw(32);
                // A module's costs change manyfold from phase to phase. Half of a call's cost is random.
                let scale = [1, 20, 3, 7, 50][(node + phase) % 5];
                let fixed = 100 * scale + 10 * packets * (node as u64 + 1);
                let ticks = fixed / 2 + draw(fixed);
                let took = if sampled { Took::Sampled(Ticks(ticks)) } else { Took::Unknown };
                scheduler.charge(node, packets as usize, took);
                scheduler.ran(node, true);
                // The first turns of each phase, while estimates adapt, are not counted.
                if turn > 2_000 {
                    got[node] += ticks;
                }
            }
        }
        assert!((55_000..72_000).contains(&timed), "about one turn in thirty-two is timed: {timed} of 2000000");
        let all: u64 = got.iter().sum();
        for (node, weight) in weights.iter().enumerate() {
            let due = all as f64 * f64::from(*weight) / 12.0;
            assert!(
                (got[node] as f64 / due - 1.0).abs() < 0.01,
                "phase {phase}, module {node}: {} of {due}",
                got[node]
            );
        }
    }
}
