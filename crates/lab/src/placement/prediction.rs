//! Fig. 7: the errors of predictions.

use forebay_contention::Pace;
use forebay_contention::mix::{Mix, Random, place_at_random};
use forebay_contention::models::SMALLEST_DROP;
use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::drops::PAPERS;
use super::{PlacementSettings, step};
use crate::{LabError, Progress};

/// The errors of one type of predictions. λ, the drop, is `1 − rate / alone`; `alone` is the rate without
/// competitors and with packets in the cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// The part of the figure: `function`, `chain`, `length` or `chains`.
    pub figure: String,
    /// The name of the function or chain.
    pub name: String,
    /// The number of competitors, of functions in the chain, or of chains.
    pub count: usize,
    /// The mean of `|predicted λ − λ| / λ` over runs whose λ is 0.05 or more. `None` if there are no such runs.
    pub error: Option<f64>,
    /// The mean of `|predicted λ − λ|` over all runs.
    pub absolute: f64,
    /// The mean of `|predicted rate − rate| / rate` over all runs.
    pub rate_error: f64,
    /// Like `error`, but for runs in which functions do not drop packets: they are held back to the rate of the slowest
    /// function of their chain. `None` for single functions, and if no such run has a λ of 0.05 or more.
    pub held_error: Option<f64>,
    /// The mean λ.
    pub mean_drop: f64,
    /// The number of runs, and the number of runs whose λ is 0.05 or more.
    pub runs: [usize; 2],
}

/// A prediction and its run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// The packets per second without competitors and with packets in the cache.
    pub alone: f64,
    /// The packets per second, simulated.
    pub rate: f64,
    /// The packets per second, simulated with functions that are held back to the rate of the slowest function of their
    /// chain. `None` for a single function.
    pub held: Option<f64>,
    /// The packets per second, predicted.
    pub predicted: f64,
}

/// The paper's chains.
pub(super) const CHAINS: [(&str, [&str; 4]); 4] = [
    ("SFC-1", ["router", "firewall", "nids", "vpn"]),
    ("SFC-2", ["firewall", "router", "nids", "firewall"]),
    ("SFC-3", ["nids", "router", "firewall", "nids"]),
    ("SFC-4", ["router", "nids", "router", "firewall"]),
];

/// The number of random placements of each type.
const PLACEMENTS: usize = 20;
/// The maximum length of a chain that repeats one function.
const LONGEST: usize = 6;

/// Computes all parts of the figure.
pub(super) fn measure(
    basis: &Basis,
    settings: &PlacementSettings,
    progress: &mut dyn Progress,
) -> Result<Vec<Predicted>, LabError> {
    progress.begin(PAPERS.len() + CHAINS.len() + PAPERS.len() * (LONGEST - 1) + 4);
    progress.expect(if settings.short { 1.0 } else { 2.0 });
    let mut rows = Vec::new();
    let profile = &basis.profile;
    for name in PAPERS {
        step(progress, name)?;
        for count in 1..profile.bench.server.domains[profile.bench.home].cores {
            let number = basis.number(name);
            let mut mix: Mix = vec![vec![(number, profile.bench.home)]];
            mix.extend(vec![vec![(profile.synthetic(), profile.bench.home)]; count]);
            let one = Prediction {
                alone: profile.rates[number][0],
                rate: profile.bench.run(&mix, Pace::Own)?.solution.seats[0][0].rate,
                held: None,
                predicted: basis.fitted.predict(&profile.bench, &mix)?[0][0],
            };
            rows.push(Predicted::of("function", name, count, &[one]));
        }
    }
    let mut random = Random::new(settings.seed.wrapping_add(7));
    for (name, chain) in CHAINS {
        step(progress, name)?;
        let chains = basis.chains(&[&chain]);
        rows.push(Predicted::of("chain", name, chain.len(), &placed(basis, &chains, &mut random)?));
    }
    for name in PAPERS {
        for length in 2..=LONGEST {
            step(progress, &format!("{length} times {name}"))?;
            let chains = basis.chains(&[&vec![name; length]]);
            rows.push(Predicted::of("length", name, length, &placed(basis, &chains, &mut random)?));
        }
    }
    for count in 1..=4 {
        step(progress, &format!("{count} chains"))?;
        let chains = basis.chains(&vec![&["router", "firewall", "nids"][..]; count]);
        let name = "router, firewall, nids";
        rows.push(Predicted::of("chains", name, count, &placed(basis, &chains, &mut random)?));
    }
    Ok(rows)
}

/// Simulates random placements of chains, and predicts their rates. Returns one prediction for each chain of each
/// placement.
fn placed(basis: &Basis, chains: &[Vec<usize>], random: &mut Random) -> Result<Vec<Prediction>, LabError> {
    let mut all = Vec::new();
    for _ in 0..PLACEMENTS {
        let Some(mix) = place_at_random(chains, &basis.cores(), random) else { continue };
        let [dropping, held] = [Pace::Dropping, Pace::Held].map(|pace| basis.simulated(&mix, pace));
        let (dropping, held, predicted) = (dropping?, held?, basis.predicted(&mix)?);
        for (at, chain) in mix.iter().enumerate() {
            // The rate of the chain if each of its functions were alone on the home domain.
            let alone = chain.iter().map(|(number, _)| basis.profile.rates[*number][0]);
            all.push(Prediction {
                alone: alone.fold(f64::INFINITY, f64::min),
                rate: dropping[at],
                held: Some(held[at]),
                predicted: predicted[at],
            });
        }
    }
    Ok(all)
}

impl Predicted {
    /// Computes the errors of these predictions.
    fn of(figure: &str, name: &str, count: usize, all: &[Prediction]) -> Self {
        let drop = |rate: f64, one: &Prediction| 1.0 - rate / one.alone;
        let error = |one: &Prediction| (drop(one.predicted, one) - drop(one.rate, one)).abs();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let relative = |rate: &dyn Fn(&Prediction) -> Option<f64>| -> Vec<f64> {
            let drops = all.iter().filter_map(|one| Some((drop(one.predicted, one), drop(rate(one)?, one))));
            let counted = drops.filter(|(_, drop)| *drop >= SMALLEST_DROP);
            counted.map(|(predicted, drop)| (predicted - drop).abs() / drop).collect()
        };
        let (errors, held) = (relative(&|one| Some(one.rate)), relative(&|one| one.held));
        let some = |errors: &[f64]| (!errors.is_empty()).then(|| mean(errors));
        let each = |value: &dyn Fn(&Prediction) -> f64| mean(&all.iter().map(value).collect::<Vec<_>>());
        Self {
            figure: figure.to_owned(),
            name: name.to_owned(),
            count,
            error: some(&errors),
            absolute: each(&error),
            rate_error: each(&|one| (one.predicted - one.rate).abs() / one.rate),
            held_error: some(&held),
            mean_drop: each(&|one| drop(one.rate, one)),
            runs: [all.len(), errors.len()],
        }
    }
}
