//! Fig. 2: the placement of the two functions of a chain.

use forebay_contention::Pace;
use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::{PlacementSettings, step};
use crate::{LabError, Progress};

/// The chain router → NIDS alone on the server, in one of four placements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The name of the placement.
    pub name: String,
    /// Whether each function is on the home domain.
    pub local: [bool; 2],
    /// The packets per second, simulated.
    pub simulated_pps: f64,
    /// The packets per second, predicted.
    pub predicted_pps: f64,
    /// `1 − rate / rate of the best placement`, simulated.
    pub below_best: f64,
    /// The packets per second of each function if it always had packets, simulated.
    pub functions_pps: [f64; 2],
}

/// The share by which the paper's worst placement carries less than its best placement.
pub(super) const PAPER: f64 = 0.392;

/// Runs all four placements.
pub(super) fn measure(
    basis: &Basis,
    _: &PlacementSettings,
    progress: &mut dyn Progress,
) -> Result<Vec<Order>, LabError> {
    let ways = [("both local", [0, 0]), ("router local", [0, 1]), ("NIDS local", [1, 0]), ("both remote", [1, 1])];
    progress.begin(ways.len());
    progress.expect(0.1);
    let chain = [basis.number("router"), basis.number("nids")];
    let mut rows = Vec::new();
    for (name, domains) in ways {
        step(progress, name)?;
        let mix = vec![vec![(chain[0], domains[0]), (chain[1], domains[1])]];
        let seats = &basis.profile.bench.run(&mix, Pace::Dropping)?.solution.seats[0];
        rows.push(Order {
            name: name.to_owned(),
            local: domains.map(|domain| domain == basis.profile.bench.home),
            simulated_pps: basis.simulated(&mix, Pace::Dropping)?[0],
            predicted_pps: basis.predicted(&mix)?[0],
            below_best: 0.0,
            functions_pps: [seats[0].capacity, seats[1].capacity],
        });
    }
    let best = rows.iter().map(|row| row.simulated_pps).fold(0.0, f64::max);
    rows.iter_mut().for_each(|row| row.below_best = 1.0 - row.simulated_pps / best);
    Ok(rows)
}
