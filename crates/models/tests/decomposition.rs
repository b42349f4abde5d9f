//! Flows that are divided keep their objectives where possible.

use forebay_models::batching::decomposition::Decomposition;
use forebay_models::batching::{Flow, Line, Model, Module};
use proptest::prelude::*;

const BATCH: f64 = 32.0;

fn module(fixed: f64, each: f64) -> Module {
    let cost = Line { fixed, each };
    Module { cpu: cost, delay: cost, ingress: 1.0 }
}

fn flow(path: Vec<usize>, slo: f64) -> Flow {
    Flow { path, rate: 1e5, slo }
}

/// As in the paper: bearers of 250 000 cycles per batch and 50 000 per packet, and two other flows with objectives of 1
/// ms.
#[test]
fn a_heavy_branch_goes_and_the_tight_flows_stay() {
    let light = module(60e-9, 20e-9);
    let heavy = module(104e-6, 21e-6);
    let modules = vec![light, light, light, heavy, heavy];
    let flows = vec![
        flow(vec![0, 1], 1e-3),
        flow(vec![0, 2], 1e-3),
        flow(vec![0, 3], f64::INFINITY),
        flow(vec![0, 4], f64::INFINITY),
    ];
    let model = Model::new(modules, flows, BATCH).expect("a valid model");
    assert_eq!(model.inherent_violations(), [0, 1], "flows without an objective cannot miss it");
    let parted = model.decomposition().expect("they cannot share a worker");
    assert_eq!(
        (parted.stay, parted.go),
        (vec![0, 1, 2], vec![4]),
        "a turn has time for one of the heavy modules; the splitter before all of them stays"
    );
    assert!(!model.fits_together(1.0));
}

#[test]
fn flows_that_suit_each_other_stay_together() {
    let modules = vec![module(60e-9, 20e-9); 3];
    let flows = vec![flow(vec![0, 1], 1e-3), flow(vec![0, 2], f64::INFINITY)];
    let model = Model::new(modules, flows, BATCH).expect("a valid model");
    assert_eq!((model.inherent_violations(), model.decomposition()), (vec![], None));
    assert!(model.fits_together(0.7));
}

#[test]
fn a_module_that_all_flows_pass_cannot_move() {
    let modules = vec![module(1e-3, 0.0), module(1e-9, 0.0)];
    let flows = vec![flow(vec![0], 1e-4), flow(vec![0, 1], 1e-4)];
    let model = Model::new(modules, flows, BATCH).expect("a valid model");
    let parted = model.decomposition();
    // The module that only the second flow passes can move. This does not help, but does no harm.
    assert_eq!(parted.map(|parted| parted.go), Some(vec![1]));
    let alone = Model::new(vec![module(1e-3, 0.0)], vec![flow(vec![0], 1e-4)], BATCH).expect("a valid model");
    assert_eq!(alone.decomposition(), None);
}

/// The costs of modules; the paths and objectives of flows.
type Definition = (Vec<(f64, f64)>, Vec<(Vec<bool>, f64)>);

fn models() -> impl Strategy<Value = Definition> {
    let modules = prop::collection::vec((1e-8..1e-4f64, 1e-9..1e-6f64), 1..8);
    modules.prop_flat_map(|modules| {
        let many = modules.len();
        let slo = prop_oneof![1e-5..1e-2f64, Just(f64::INFINITY)];
        (Just(modules), prop::collection::vec((prop::collection::vec(any::<bool>(), many), slo), 1..8))
    })
}

fn make(modules: &[(f64, f64)], flows: &[(Vec<bool>, f64)]) -> Model {
    let path = |passes: &[bool]| (0..passes.len()).filter(|at| passes[*at]).collect();
    let flows = flows.iter().map(|(passes, slo)| flow(path(passes), *slo)).collect();
    Model::new(modules.iter().map(|(fixed, each)| module(*fixed, *each)).collect(), flows, BATCH)
        .expect("a valid model")
}

proptest! {
    #[test]
    fn those_that_stay_suit_each_other((modules, flows) in models()) {
        let model = make(&modules, &flows);
        let Some(parted) = model.decomposition() else {
            // The flows fit together, or nothing can move.
            return Ok(());
        };
        let stay: Vec<_> = parted.stay.iter().map(|&at| flows[at].clone()).collect();
        let together = make(&modules, &stay);
        // Except the tightest flow, which may miss its objective by itself.
        prop_assert!(stay.len() == 1 || together.inherent_violations().is_empty(), "{parted:?}");
        // Each flow that moves would cause violations if it stayed.
        for at in (0..flows.len()).filter(|at| !parted.stay.contains(at)) {
            let more = make(&modules, &[&stay[..], &[flows[at].clone()]].concat());
            prop_assert!(!more.inherent_violations().is_empty(), "{at} could have stayed");
        }
        // A module that the remaining flows need does not move.
        for &at in &parted.go {
            prop_assert!(parted.stay.iter().all(|&flow| !flows[flow].0[at]));
        }
    }

    #[test]
    fn the_order_of_definition_does_not_matter((modules, flows) in models(), turn in 0..8usize) {
        let mut turned = flows.clone();
        turned.rotate_left(turn % flows.len());
        let paths = |flows: &[(Vec<bool>, f64)], parted: Option<Decomposition>| {
            parted.map(|parted| {
                let mut stay: Vec<_> = parted.stay.iter().map(|&at| format!("{:?}", flows[at])).collect();
                stay.sort();
                (stay, parted.go)
            })
        };
        let (straight, rotated) = (make(&modules, &flows).decomposition(), make(&modules, &turned).decomposition());
        prop_assert_eq!(paths(&flows, straight), paths(&turned, rotated));
    }
}
