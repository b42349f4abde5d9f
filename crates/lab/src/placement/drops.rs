//! Fig. 5: the drop of a function by the type and the number of its competitors.

use forebay_contention::Pace;
use forebay_contention::mix::Mix;
use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::{PlacementSettings, step};
use crate::{LabError, Progress};

/// A function beside copies of a competitor on the same domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drops {
    /// The function.
    pub function: String,
    /// Whether it runs on the home domain. If not, it is the first function of its chain, and its packets come over the
    /// link.
    pub local: bool,
    /// The competitor.
    pub competitor: String,
    /// The competitor's metric x.
    pub metric: f64,
    /// The simulated drops λ (the fraction of its rate that the function loses) beside 0, 1, 2 … competitors.
    pub simulated: Vec<f64>,
    /// The predicted λ beside 0, 1, 2 … competitors.
    pub predicted: Vec<f64>,
}

/// Runs each of the paper's four functions beside copies of each of the four, and beside copies of the paper's
/// synthetic function.
pub(super) fn measure(
    basis: &Basis,
    _: &PlacementSettings,
    progress: &mut dyn Progress,
) -> Result<Vec<Drops>, LabError> {
    let profile = &basis.profile;
    let functions = PAPERS.map(|name| basis.number(name));
    let mut competitors: Vec<_> = functions.to_vec();
    competitors.push(profile.synthetic());
    progress.begin(functions.len() * 2);
    progress.expect(0.5);
    let mut rows = Vec::new();
    for number in functions {
        for domain in 0..2 {
            let function = &profile.bench.functions[number].name;
            step(progress, function)?;
            for &competitor in &competitors {
                let most = profile.bench.server.domains[domain].cores.min(6);
                let (mut simulated, mut predicted) = (Vec::new(), Vec::new());
                for count in 0..most {
                    let mut mix: Mix = vec![vec![(number, domain)]];
                    mix.extend(vec![vec![(competitor, domain)]; count]);
                    let alone = profile.rates[number][domain];
                    let rate = profile.bench.run(&mix, Pace::Own)?.solution.seats[0][0].rate;
                    simulated.push(1.0 - rate / alone);
                    predicted.push(1.0 - basis.fitted.predict(&profile.bench, &mix)?[0][0] / alone);
                }
                rows.push(Drops {
                    function: function.clone(),
                    local: domain == profile.bench.home,
                    competitor: profile.bench.functions[competitor].name.clone(),
                    metric: basis.fitted.metrics[competitor],
                    simulated,
                    predicted,
                });
            }
        }
    }
    Ok(rows)
}

/// The paper's functions.
pub(super) const PAPERS: [&str; 4] = ["router", "firewall", "nids", "vpn"];
