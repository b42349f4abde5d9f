//! Fig. 4: metrics under competition, and their relation to the solo rate.

use forebay_contention::Pace;
use forebay_contention::mix::Mix;
use forebay_contention::profile::Candidate;
use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::{PlacementSettings, step};
use crate::{LabError, Progress};

/// A metric of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The metric.
    pub metric: String,
    /// The function.
    pub function: String,
    /// The packets per second of the function alone on the home domain.
    pub alone_pps: f64,
    /// The metric of the function alone.
    pub alone: f64,
    /// The metric beside 0, 1, 2 … copies of the paper's synthetic function, relative to the largest value over all
    /// functions. Empty if the metric does not exist in a co-run.
    pub by_competitors: Vec<f64>,
}

/// Computes every candidate for every function.
pub(super) fn measure(
    basis: &Basis,
    _: &PlacementSettings,
    progress: &mut dyn Progress,
) -> Result<Vec<Metric>, LabError> {
    progress.begin(Candidate::ALL.len());
    progress.expect(0.5);
    let profile = &basis.profile;
    let (home, bench) = (profile.bench.home, &profile.bench);
    let most = bench.server.domains[home].cores;
    // All candidates use the same runs.
    let mut seats = Vec::new();
    for number in 0..profile.network {
        let mut of_number = Vec::new();
        for count in 0..most {
            let mut mix: Mix = vec![vec![(number, home)]];
            mix.extend(vec![vec![(profile.synthetic(), home)]; count]);
            of_number.push(bench.run(&mix, Pace::Own)?.solution.seats[0][0]);
        }
        seats.push(of_number);
    }
    let mut rows = Vec::new();
    for candidate in Candidate::ALL {
        step(progress, candidate.name())?;
        let alone = profile.values(candidate);
        let values = seats.iter().enumerate().map(|(number, seats)| {
            let of = |seat| candidate.of(bench, &bench.functions[number], seat);
            seats.iter().filter_map(of).collect::<Vec<f64>>()
        });
        let mut values: Vec<_> = values.collect();
        let largest = values.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
        values.iter_mut().flatten().for_each(|value| *value /= largest);
        for (number, by_competitors) in values.into_iter().enumerate() {
            rows.push(Metric {
                metric: candidate.name().to_owned(),
                function: bench.functions[number].name.clone(),
                alone_pps: profile.rates[number][0],
                alone: alone[number],
                by_competitors,
            });
        }
    }
    Ok(rows)
}
