//! Fig. 9: how long the search takes, and how good its answers are, by the number of chains and of domains.

use std::time::Instant;

use forebay_contention::mix::Random;
use forebay_models::placement::{self, Effort, Problem, baselines, exact};
use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::{Settings, step};
use crate::{LabError, Progress};

/// Instances of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    /// Domains of ten cores each.
    pub domains: usize,
    /// Chains of three functions each.
    pub chains: usize,
    /// Instances.
    pub instances: usize,
    /// Milliseconds of `exact`: median and most.
    pub exact_ms: [f64; 2],
    /// Nodes of `exact`: median and most.
    pub nodes: [f64; 2],
    /// The largest certified gap of `exact`; 0: all are proved to be optimal.
    pub gap: f64,
    /// Milliseconds of `octans`: median and most.
    pub octans_ms: [f64; 2],
    /// Instances in which `octans` was run: fewer where it takes seconds for each.
    pub octans_instances: usize,
    /// The part of instances in which `octans` finds a best placement.
    pub octans_optimal: f64,
    /// The mean of `1 − value / best` of `octans` where it finds none.
    pub octans_gap: Option<f64>,
    /// Milliseconds of enumeration: median and most; `None` where it would take too long.
    pub brute_force_ms: Option<[f64; 2]>,
    /// Instances that were enumerated, and those in which `exact` has the same value.
    pub enumerated: [usize; 2],
}

/// The paper's times in milliseconds, of the largest size, by domains: its heuristic and its enumeration.
pub(super) const PAPER_MS: [(usize, f64, f64); 2] = [(2, 17.0, 31_500.0), (4, 5_300.0, 1_858_000.0)];

/// A time is the least of so many, in which nothing else ran.
const REPEATS: usize = 3;
/// Placements that are enumerated for one size, about.
const BUDGET: f64 = 3e6;
const SHORT_BUDGET: f64 = 2e4;
/// Placements that `exact` may look at, about, before it stops with a gap.
const NODES: u64 = 5_000_000;
/// Placements of whole chains that `octans` begins with, of all instances of one size together, about.
const BEGINNINGS: f64 = 60_000.0;
/// Values of the same placement differ by rounding.
const SAME: f64 = 1e-9;

/// All sizes.
pub(super) fn measure(
    basis: &Basis,
    settings: &Settings,
    progress: &mut dyn Progress,
) -> Result<Vec<Searched>, LabError> {
    let most = if settings.short { 4 } else { 6 };
    progress.begin(2 * most);
    progress.expect(if settings.short { 5.0 } else { 240.0 });
    let mut rows = Vec::new();
    for domains in [2, 4] {
        for chains in 1..=most {
            step(progress, &format!("{domains} domains, {chains} chains"))?;
            rows.push(of_size(basis, settings, domains, chains, progress)?);
        }
    }
    Ok(rows)
}

fn of_size(
    basis: &Basis,
    settings: &Settings,
    domains: usize,
    chains: usize,
    progress: &mut dyn Progress,
) -> Result<Searched, LabError> {
    let instances = if settings.short { 10 } else { 100 };
    let mut random = Random::new(settings.seed.wrapping_add((domains * 10 + chains) as u64));
    let ways = (domains as f64).powi(3 * chains as i32);
    let budget = if settings.short { SHORT_BUDGET } else { BUDGET };
    let enumerated = ((budget / ways) as usize).min(instances);
    let by_octans = ((BEGINNINGS / (domains as f64).powi(chains as i32)) as usize).min(instances);
    let (mut exact_ms, mut octans_ms, mut brute_ms, mut nodes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut gap, mut same) = (0.0_f64, 0);
    let mut octans_gaps = Vec::new();
    for instance in 0..instances {
        if progress.is_stopped() {
            return Err(LabError::Interrupted);
        }
        let problem = instance_of(basis, domains, chains, &mut random);
        let effort = Effort { nodes: NODES, is_over: &|| false };
        let (best, ms) = timed(REPEATS, || exact(&problem, &effort))?;
        let Some(best) = best else { continue };
        exact_ms.push(ms);
        nodes.push(best.nodes as f64);
        gap = gap.max(best.gap());
        if instance < by_octans {
            let (octans, ms) = timed(1, || baselines::octans(&problem, &|| false))?;
            octans_ms.push(ms);
            octans_gaps.push(1.0 - octans.map_or(0.0, |found| found.value) / best.value);
        }
        if instance < enumerated {
            let ((all, _), ms) = timed(1, || baselines::brute_force(&problem, &|| false))?;
            brute_ms.push(ms);
            let value = all.map_or(0.0, |found| found.value);
            same += usize::from((value / best.value - 1.0).abs() <= SAME);
        }
    }
    let worse: Vec<_> = octans_gaps.iter().copied().filter(|gap| *gap > SAME).collect();
    Ok(Searched {
        domains,
        chains,
        instances: exact_ms.len(),
        exact_ms: median_and_most(&mut exact_ms),
        nodes: median_and_most(&mut nodes),
        gap,
        octans_ms: median_and_most(&mut octans_ms),
        octans_instances: octans_gaps.len(),
        octans_optimal: 1.0 - worse.len() as f64 / octans_gaps.len().max(1) as f64,
        octans_gap: (!worse.is_empty()).then(|| worse.iter().sum::<f64>() / worse.len() as f64),
        enumerated: [brute_ms.len(), same],
        brute_force_ms: (!brute_ms.is_empty()).then(|| median_and_most(&mut brute_ms)),
    })
}

/// Chains of random functions on a server of domains of ten cores. All but the home domain are alike.
fn instance_of(basis: &Basis, domains: usize, chains: usize, random: &mut Random) -> Problem {
    let home = basis.profile.bench.home;
    let limits = basis.fitted.limits[home];
    let function = |number: usize| {
        let mut function = basis.fitted.function(&basis.profile.bench, number);
        let [local, remote] = basis.profile.rates[number];
        function.rates = (0..domains).map(|domain| if domain == home { local } else { remote }).collect();
        function
    };
    let chain = |random: &mut Random| placement::Chain {
        functions: (0..3).map(|_| function(random.below(basis.profile.network))).collect(),
        home,
        rate: f64::INFINITY,
        weight: 1.0,
        least: 0.0,
        copies: 0,
    };
    let domain = |at| placement::Domain { cores: 10, class: usize::from(at != home), limits };
    Problem { domains: (0..domains).map(domain).collect(), chains: (0..chains).map(|_| chain(random)).collect() }
}

/// A result and the milliseconds that it took: the least of some runs.
fn timed<T, E>(repeats: usize, mut run: impl FnMut() -> Result<T, E>) -> Result<(T, f64), E> {
    let mut once = || {
        let start = Instant::now();
        run().map(|found| (found, start.elapsed().as_secs_f64() * 1e3))
    };
    let (found, mut least) = once()?;
    for _ in 1..repeats {
        least = least.min(once()?.1);
    }
    Ok((found, least))
}

fn median_and_most(values: &mut [f64]) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let at = |at: usize| values.get(at).copied().unwrap_or_default();
    [at(values.len() / 2), at(values.len().saturating_sub(1))]
}
