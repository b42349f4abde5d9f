//! The parts of the paper's controllers: the gradient step, recovery, and the selection of buffers.

use forebay_models::batching::measured::Measured;
use forebay_models::batching::{Flow, Line, Model, Module};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const COST: Line = Line { fixed: 1e-7, each: 1e-8 };
const MODULE: Module = Module { cpu: COST, delay: COST, ingress: 1.0 };
const GUARD: f64 = 0.05;

fn flow(path: &[usize], rate: f64, slo: f64) -> Flow {
    Flow { path: path.to_vec(), rate, slo }
}

fn measured<'m>(triggers: &'m [usize], delays: &'m [Option<f64>]) -> Measured<'m> {
    Measured { triggers, stays: &[], delays, guard: GUARD }
}

/// A model, triggers, and measured delays that differ from the model's.
#[derive(Clone, Debug)]
struct Case {
    model: Model,
    triggers: Vec<usize>,
    delays: Vec<Option<f64>>,
}

impl Case {
    fn measured(&self) -> Measured<'_> {
        measured(&self.triggers, &self.delays)
    }

    /// Returns a flow's delay after a change: the measured delay plus the change in the model.
    fn after(&self, flow: usize, to: &[usize]) -> f64 {
        let modelled = |triggers: &[usize]| {
            self.model.delays(&triggers.iter().map(|&trigger| trigger as f64).collect::<Vec<_>>())[flow]
        };
        let (now, then) =
            (modelled(&self.triggers).expect("the flow has packets"), modelled(to).expect("the flow has packets"));
        self.delays[flow].unwrap_or(now) + then - now
    }

    fn load(&self, triggers: &[usize]) -> f64 {
        self.model.load(&triggers.iter().map(|&trigger| trigger as f64).collect::<Vec<_>>())
    }
}

/// Flows through some of up to `modules` modules, in order, with objectives from missed to loose.
fn case(modules: usize, flows: usize, largest: f64) -> impl Strategy<Value = Case> {
    let module = (1e-8..1e-6f64, 1e-9..2e-7f64, 1.0..largest, 0..=largest as usize);
    let flow = (prop::collection::vec(any::<bool>(), modules), 1e4..1e6f64, 0.6..3.0f64, 0.8..1.3f64, any::<bool>());
    (prop::collection::vec(module, 1..=modules), prop::collection::vec(flow, 1..=flows)).prop_map(
        move |(modules, flows)| {
            let of = |&(fixed, each, ingress, _): &(f64, f64, f64, usize)| {
                let cost = Line { fixed, each };
                Module { cpu: cost, delay: cost, ingress }
            };
            let triggers: Vec<usize> = modules.iter().map(|module| module.3).collect();
            let modules: Vec<Module> = modules.iter().map(of).collect();
            let free: Vec<Flow> = flows
                .iter()
                .map(|(path, rate, ..)| {
                    let path: Vec<usize> = (0..modules.len()).filter(|at| path[*at]).collect();
                    Flow { path: if path.is_empty() { vec![0] } else { path }, rate: *rate, slo: f64::INFINITY }
                })
                .collect();
            let model = Model::new(modules.clone(), free.clone(), largest).expect("a valid model");
            let modelled = model.delays(&triggers.iter().map(|&trigger| trigger as f64).collect::<Vec<_>>());
            let delays: Vec<Option<f64>> = modelled
                .iter()
                .zip(&flows)
                .map(|(delay, flow)| Some(delay.expect("the flow has packets") * flow.3).filter(|_| flow.4))
                .collect();
            let bounded = free
                .into_iter()
                .zip(&flows)
                .zip(&modelled)
                .map(|((free, flow), delay)| Flow { slo: delay.expect("the flow has packets") * flow.2, ..free });
            let model = Model::new(modules, bounded.collect(), largest).expect("a valid model");
            Case { model, triggers, delays }
        },
    )
}

proptest! {
    #[test]
    fn a_step_breaks_no_objective_and_no_bound(case in case(10, 8, 32.0)) {
        let to = case.model.gradient_step(&case.measured());
        let mut kept = true;
        for (at, flow) in case.model.flows().iter().enumerate() {
            let (now, then, limit) = (case.after(at, &case.triggers), case.after(at, &to), (1.0 - GUARD) * flow.slo);
            prop_assert!(then <= limit.max(now) * (1.0 + 1e-12), "{} {} {}", now, then, limit);
            kept &= now < limit;
        }
        for (at, (to, now)) in to.iter().zip(&case.triggers).enumerate() {
            prop_assert_eq!(*to == 0, *now == 0);
            prop_assert!(*to <= 32);
            // Without violations, no trigger decreases.
            prop_assert!(!kept || to >= now, "{}: {} {}", at, now, to);
        }
        if kept {
            let can_rise = |(trigger, rate): &(&usize, &f64)| (1..32).contains(*trigger) && **rate > 0.0;
            let wanted = case.triggers.iter().zip(case.model.rates()).filter(can_rise).count();
            // Some flow is so close to its limit that one packet more everywhere is too much, or some trigger has
            // increased.
            let more: Vec<usize> = to.iter().map(|&to| if to > 0 { (to + 1).min(32) } else { 0 }).collect();
            let limit = |at: usize| (1.0 - GUARD) * case.model.flows()[at].slo;
            let full = (0..case.model.flows().len()).any(|at| case.after(at, &more) > limit(at));
            prop_assert!(wanted == 0 || full || to.iter().zip(&case.triggers).any(|(to, now)| to > now), "{:?}", to);
        }
    }

    #[test]
    fn recovery_brings_flows_back_or_removes_their_triggers(case in case(10, 8, 32.0)) {
        let to = case.model.recovery(&case.measured());
        let mut bypassed = vec![false; to.len()];
        let mut helped = vec![false; to.len()];
        for (at, flow) in case.model.flows().iter().enumerate() {
            let limit = (1.0 - GUARD) * flow.slo;
            let has_no_triggers = flow.path.iter().all(|at| to[*at] == 0);
            prop_assert!(case.after(at, &to) < limit || has_no_triggers, "{} {} {:?}", case.after(at, &to), limit, to);
            flow.path.iter().for_each(|module| bypassed[*module] |= has_no_triggers);
            flow.path.iter().for_each(|module| helped[*module] |= case.after(at, &case.triggers) >= limit);
        }
        // A trigger below the arriving batch does not change batches in the model; without it, other delays may
        // increase.
        for flow in case.model.flows().iter().filter(|flow| flow.path.iter().any(|at| bypassed[*at])) {
            flow.path.iter().for_each(|module| helped[*module] = true);
        }
        for (at, (to, now)) in to.iter().zip(&case.triggers).enumerate() {
            let least = (case.model.modules()[at].ingress.ceil() as usize).min(*now);
            prop_assert!(to <= now && (*to >= least || bypassed[at]), "{}: {} {}", at, now, to);
            prop_assert!(helped[at] || to == now, "{}: {} {}", at, now, to);
        }
    }

    #[test]
    fn new_buffers_fit_all_together_and_are_not_needless(case in case(10, 8, 32.0)) {
        let mut to = case.triggers.clone();
        for (at, trigger) in case.model.new_buffers(&case.measured()) {
            prop_assert!(case.triggers[at] == 0 && trigger as f64 > case.model.modules()[at].ingress);
            to[at] = trigger;
        }
        let needless = case.model.needless_buffers(&measured(&to, &case.delays));
        for (at, flow) in case.model.flows().iter().enumerate() {
            let changed = flow.path.iter().any(|at| to[*at] != case.triggers[*at]);
            prop_assert!(!changed || case.after(at, &to) < (1.0 - GUARD) * flow.slo * (1.0 + 1e-12));
        }
        prop_assert!(needless.iter().all(|at| to[*at] == case.triggers[*at]));
        prop_assert!(case.load(&to) <= case.load(&case.triggers) * (1.0 + 1e-12));
    }

    #[test]
    fn stated_triggers_stay_and_the_others_keep_objectives(
        case in case(10, 8, 32.0),
        stays in prop::collection::vec(any::<bool>(), 10),
    ) {
        let measured = Measured { stays: &stays, ..case.measured() };
        let stay = |to: &[usize]| (0..to.len()).all(|at| !stays[at] || to[at] == case.triggers[at]);
        prop_assert!(stay(&case.model.recovery(&measured)) && stay(&case.model.gradient_step(&measured)));
        prop_assert!(case.model.new_buffers(&measured).iter().all(|(at, _)| !stays[*at]));
        prop_assert!(case.model.needless_buffers(&measured).iter().all(|at| !stays[*at]));
        for (at, flow) in case.model.flows().iter().enumerate() {
            let (limit, now) = ((1.0 - GUARD) * flow.slo, case.after(at, &case.triggers));
            prop_assert!(case.after(at, &case.model.gradient_step(&measured)) <= limit.max(now) * (1.0 + 1e-12));
        }
    }

    #[test]
    fn attribution_keeps_the_load_where_batches_stay_together(
        rates in prop::collection::vec(1e4..1e6f64, 4),
        trigger in 1..=32usize,
    ) {
        // One buffer before a splitter: the modules behind it are called as often as the buffer's module.
        let flows: Vec<Flow> = rates.iter().enumerate().map(|(at, rate)| flow(&[0, 1, 2 + at], *rate, 1.0)).collect();
        let model = Model::new(vec![MODULE; 6], flows, 32.0).expect("a valid model");
        let attributed = model.attributed(&[trigger, 0, 0, 0, 0, 0]);
        let rate = model.rates()[0];
        let batch = trigger as f64;
        let each: f64 = (0..4).map(|at| rate / batch * COST.at(batch * rates[at] / rate)).sum();
        let load = rate / batch * attributed[0].cpu.at(batch);
        let wanted = 2.0 * rate / batch * COST.at(batch) + each;
        prop_assert!((load - wanted).abs() <= 1e-12 * wanted, "{} {}", load, wanted);
        let is_free = |module: &Module| module.cpu.fixed.abs() < 1e-20 && module.cpu.each.abs() < 1e-20;
        prop_assert!(attributed[1..].iter().all(is_free));
    }
}

#[test]
fn recovery_cuts_where_it_costs_least() {
    let mut runner = TestRunner::deterministic();
    let cases = case(3, 2, 8.0);
    let mut over = Vec::new();
    for _ in 0..50_000 {
        let case = cases.new_tree(&mut runner).expect("a strategy always has a value").current();
        let flows = case.model.flows();
        let kept = |to: &[usize]| (0..flows.len()).all(|at| case.after(at, to) < (1.0 - GUARD) * flows[at].slo);
        let to = case.model.recovery(&case.measured());
        let lost = to.iter().zip(&case.triggers).any(|(to, now)| *to == 0 && *now > 0);
        if !kept(&to) || lost || to == case.triggers {
            continue;
        }
        let mut least = f64::INFINITY;
        for number in 0..9usize.pow(u32::try_from(to.len()).expect("few")) {
            let of = |at: usize| number / 9usize.pow(u32::try_from(at).expect("few")) % 9;
            let triggers: Vec<usize> = (0..to.len()).map(of).collect();
            let allowed = triggers.iter().zip(&case.triggers).enumerate().all(|(at, (triggers, now))| {
                let least = (case.model.modules()[at].ingress.ceil() as usize).min(*now);
                (least..=*now).contains(triggers)
            });
            if allowed && kept(&triggers) {
                least = least.min(case.load(&triggers));
            }
        }
        over.push(case.load(&to) / least);
    }
    over.sort_by(f64::total_cmp);
    let (many, found) = (over.len(), over.iter().filter(|ratio| **ratio <= 1.0 + 1e-9).count());
    println!("{found} of {many} exactly; 99 of 100 within {}; worst {}", over[many * 99 / 100], over[many - 1]);
    // The triggers are rounded down from the optimum and raised again by the remaining time.
    assert!(many > 1_000 && over[many * 99 / 100] <= 1.0 + 1e-9 && over[many - 1] <= 1.05, "{many}");
}

#[test]
fn steps_lead_to_the_optimum() {
    // Two chains of two modules behind a root, one of them with four times the rate.
    let flows = vec![flow(&[0, 1, 2], 1e6, 120e-6), flow(&[0, 3, 4], 2.5e5, 200e-6)];
    let model = Model::new(vec![MODULE; 5], flows, 32.0).expect("a valid model").with_turn(5e-6);
    let mut triggers = vec![1; 5];
    for _ in 0..20 {
        triggers = model.gradient_step(&measured(&triggers, &[None, None]));
    }
    let guarded: Vec<Flow> =
        model.flows().iter().map(|flow| Flow { slo: flow.slo * (1.0 - GUARD), ..flow.clone() }).collect();
    let guarded = Model::new(model.modules().to_vec(), guarded, 32.0).expect("a valid model").with_turn(5e-6);
    let best = guarded.optimum().expect("possible").batches;
    let found: Vec<f64> = triggers.iter().map(|&trigger| trigger as f64).collect();
    assert!(model.load(&found) <= model.load(&best) * 1.05, "{found:?} {best:?}");
}

#[test]
fn a_buffer_is_needless_for_each_of_three_reasons() {
    let module = |ingress: f64| Module { ingress, ..MODULE };
    let modules = vec![module(22.4), module(8.0), module(1.0), module(1.0)];
    let flows = vec![flow(&[0, 1, 3], 1e6, 1.0), flow(&[2], 1e3, 7.5e-3)];
    let model = Model::new(modules, flows, 32.0).expect("a valid model");
    // Module 0 gets large batches, the trigger of module 1 is not above the arriving batch, and module 2 waits 8 ms for
    // 8 packets. Only the buffer of module 3 is needed.
    assert_eq!(model.needless_buffers(&measured(&[32, 8, 8, 2], &[])), [0, 1, 2]);
    assert_eq!(model.needless_buffers(&measured(&[0, 9, 7, 2], &[])), [0usize; 0]);
}
