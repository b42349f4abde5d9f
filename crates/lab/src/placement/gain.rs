//! Fig. 8: the gain of good placements over other placements, for six sets of chains.

use forebay_contention::Pace;
use forebay_contention::mix::{Mix, Random};
use forebay_models::placement::{Effort, Placement, Problem, baselines, exact};
use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::{PlacementSettings, step};
use crate::{LabError, Progress};

/// A set of chains under every method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The number of the set in the paper.
    pub set: usize,
    /// The chains.
    pub chains: Vec<String>,
    /// The results of each method.
    pub methods: Vec<Method>,
    /// The certified gap of `exact`, as a share of its value. No placement has a predicted value that exceeds the value
    /// of `exact` by more than this share.
    pub gap: f64,
}

/// The placement by one method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// The method.
    pub method: String,
    /// The domain of each function of each chain. Empty for `random`.
    pub domains: Vec<Vec<usize>>,
    /// The packets per second of all chains, predicted. For `random` it is the mean of many placements.
    pub predicted_pps: f64,
    /// The packets per second of all chains, simulated with functions that drop packets.
    pub simulated_pps: f64,
    /// The packets per second of all chains, simulated with functions that are held back to the rate of the slowest
    /// function of their chain.
    pub held_pps: f64,
}

impl Gain {
    /// Returns the results of a method.
    pub(super) fn of(&self, method: &str) -> Option<&Method> {
        self.methods.iter().find(|of| of.method == method)
    }
}

/// The paper's sets of chains.
pub(super) const SETS: [&[&[&str]]; 6] = [
    &[&["router", "firewall", "nids"], &["router", "nids"], &["vpn", "firewall"]],
    &[&["router", "firewall", "vpn"], &["router", "firewall"], &["firewall", "nids"]],
    &[&["router", "firewall", "nids"], &["router", "firewall", "vpn"], &["nids", "firewall"]],
    &[&["router", "firewall", "nids"], &["firewall", "nids", "vpn"], &["firewall", "router"]],
    &[&["router", "firewall", "nids"], &["router", "firewall", "vpn"], &["firewall", "nids", "vpn"]],
    &[&["router", "firewall", "nids", "vpn"], &["router", "firewall", "nids"], &["nids", "router"]],
];

/// The methods, in the order of the report.
pub(super) const METHODS: [&str; 5] = ["exact", "octans", "node-balancing", "node-first", "random"];

/// The number of nodes after which `exact` stops. These instances need a few hundred.
const NODES: u64 = 10_000_000;

/// Evaluates all sets.
pub(super) fn measure(
    basis: &Basis,
    settings: &PlacementSettings,
    progress: &mut dyn Progress,
) -> Result<Vec<Gain>, LabError> {
    progress.begin(SETS.len());
    progress.expect(if settings.short { 1.0 } else { 3.0 });
    let mut rows = Vec::new();
    for (at, names) in SETS.iter().enumerate() {
        step(progress, &format!("set {}", at + 1))?;
        rows.push(of_set(basis, settings, at + 1, names)?);
    }
    Ok(rows)
}

/// Places one set of chains by every method, and evaluates the placements. `set` is its number, `names` are the
/// functions of its chains.
fn of_set(basis: &Basis, settings: &PlacementSettings, set: usize, names: &[&[&str]]) -> Result<Gain, LabError> {
    let chains = basis.chains(names);
    let bench = &basis.profile.bench;
    // The initial placement does not matter: the problem is the same for all placements.
    let anywhere: Mix = chains.iter().map(|chain| chain.iter().map(|number| (*number, bench.home)).collect()).collect();
    let (problem, _) = bench.problem(&anywhere, &basis.fitted.limits, &|number| basis.fitted.function(bench, number));
    let effort = Effort { nodes: NODES, is_over: &|| false };
    let best = exact(&problem, &effort)?;
    let gap = best.as_ref().map_or(0.0, forebay_models::placement::Certificate::gap);
    let mut methods = Vec::new();
    let found = [
        ("exact", best.map(|best| best.placement)),
        ("octans", baselines::octans(&problem, &|| false)?.map(|found| found.placement)),
        ("node-balancing", baselines::node_balancing(&problem)?.map(|found| found.placement)),
        ("node-first", baselines::node_first(&problem)?.map(|found| found.placement)),
    ];
    for (method, placement) in found {
        let Some(placement) = placement else { continue };
        methods.push(valued(basis, &problem, method, &chains, &placement)?);
    }
    methods.push(at_random(basis, settings, &problem, &chains)?);
    let chains = names.iter().map(|chain| chain.join(", ")).collect();
    Ok(Gain { set, chains, methods, gap })
}

/// Returns the chains with the domains of a placement.
fn mix(chains: &[Vec<usize>], placement: &Placement) -> Mix {
    let placed = chains.iter().zip(placement);
    placed.map(|(chain, way)| chain.iter().copied().zip(way.domains().iter().copied()).collect()).collect()
}

/// Returns the predicted and the simulated rates of a placement.
fn valued(
    basis: &Basis,
    problem: &Problem,
    method: &str,
    chains: &[Vec<usize>],
    placement: &Placement,
) -> Result<Method, LabError> {
    Ok(Method {
        method: method.to_owned(),
        domains: placement.iter().map(|way| way.domains().to_vec()).collect(),
        predicted_pps: problem.rates(placement)?.iter().map(|(rate, _)| rate).sum(),
        simulated_pps: basis.simulated(&mix(chains, placement), Pace::Dropping)?.iter().sum(),
        held_pps: basis.simulated(&mix(chains, placement), Pace::Held)?.iter().sum(),
    })
}

/// Returns the mean rates of many random placements.
fn at_random(
    basis: &Basis,
    settings: &PlacementSettings,
    problem: &Problem,
    chains: &[Vec<usize>],
) -> Result<Method, LabError> {
    let count = if settings.short { 20 } else { 100 };
    let mut random = Random::new(settings.seed.wrapping_add(8));
    let mut sums = [0.0; 3];
    for _ in 0..count {
        let Some(found) = baselines::random(problem, &mut |end| random.index(end))? else { continue };
        let one = valued(basis, problem, "random", chains, &found.placement)?;
        for (sum, rate) in sums.iter_mut().zip([one.predicted_pps, one.simulated_pps, one.held_pps]) {
            *sum += rate / f64::from(count);
        }
    }
    let method = "random".to_owned();
    let [predicted_pps, simulated_pps, held_pps] = sums;
    Ok(Method { method, domains: Vec::new(), predicted_pps, simulated_pps, held_pps })
}
