//! Measures the cost of calls by the size of batches, and the resulting rate (Batchy, Fig. 1 and 3).
//!
//! Functions are measured separately, as `forebay profile` does. In simulated time the results are the simulated costs.

use std::time::Duration;

use forebay_bench::profile::{Effort, Key, Profile, Store, batchiness};
use serde::Serialize;

use super::costs::BATCH;
use super::testbed::Testbed;
use super::{CostOrigin, Extents};
use crate::{LabError, Progress};

/// The functions of the paper's figures, and the other functions of its use cases.
const FUNCTIONS: &[&str] = &["exact_match", "ip_lookup", "acl", "static_nat", "ttl", "mac_rewrite", "ip_checksum"];
/// The functions of a short run.
const FEW: &[&str] = &["ip_lookup", "acl"];

/// The calls of a function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calls {
    /// The function.
    pub function: String,
    /// The source of the costs.
    pub origin: CostOrigin,
    /// The fixed cost of a call, in nanoseconds.
    pub t0_ns: f64,
    /// The additional cost for each packet of a call, in nanoseconds.
    pub t1_ns: f64,
    /// The cost of a packet in a full batch, as a share of its cost alone.
    pub batchiness: f64,
    /// The share of the variance of the times that the line `t0 + t1 · packets` explains. `None` if the costs were not
    /// measured, or if the times do not vary.
    pub r2: Option<f64>,
    /// The cost by batch size.
    pub sizes: Vec<Size>,
}

/// Calls with batches of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Size {
    /// The packets per call.
    pub packets: f64,
    /// The nanoseconds per call.
    pub call_ns: f64,
    /// The rate, in million packets per second.
    pub rate_mpps: f64,
}

impl Size {
    fn new(packets: f64, call_ns: f64) -> Self {
        Self { packets, call_ns, rate_mpps: packets / call_ns * 1e3 }
    }
}

/// Measures the functions, or returns their costs in simulated time.
pub(super) fn measure(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Calls>, LabError> {
    let functions = if extents.short { FEW } else { FUNCTIONS };
    if testbed.simulated {
        let known = testbed.costs().with(&functions.iter().copied().collect());
        let calls = functions.iter().filter_map(|name| {
            let (t0_ns, t1_ns) = *known.functions.get(*name)?;
            let sizes = std::iter::successors(Some(1), |size| Some(size * 2)).take_while(|size| *size <= BATCH);
            let sizes = sizes.map(|size| Size::new(size as f64, t0_ns + t1_ns * size as f64)).collect();
            let batchiness = batchiness(t0_ns, t1_ns, BATCH);
            Some(Calls {
                function: (*name).to_owned(),
                origin: known.origins[*name],
                t0_ns,
                t1_ns,
                batchiness,
                r2: None,
                sizes,
            })
        });
        return Ok(calls.collect());
    }
    let effort = Effort { time: Duration::from_millis(600), ..Effort::new(BATCH) };
    let names: Vec<String> = functions.iter().map(|name| (*name).to_owned()).collect();
    let mut profile = Profile::empty(Key::this(BATCH)?);
    progress.begin(names.len() * effort.passes);
    profile.measure(&names, &effort, &mut |pass| progress.step(pass.function))?;
    // The profile also serves later runs. If it cannot be stored, this report still contains the figures.
    if let Ok(store) = Store::of_user() {
        drop(profile.keep(&store));
    }
    let calls = profile.functions.into_iter().map(|(function, costed)| {
        let sizes = costed.sizes.iter().map(|size| Size::new(size.packets, size.call_s * 1e9)).collect();
        let (t0_ns, t1_ns) = (costed.t0_s * 1e9, costed.t1_s * 1e9);
        let (batchiness, r2) = (costed.batchiness, costed.r2);
        Calls { function, origin: CostOrigin::Profile, t0_ns, t1_ns, batchiness, r2, sizes }
    });
    Ok(calls.collect())
}
