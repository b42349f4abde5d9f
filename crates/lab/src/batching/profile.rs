//! What calls cost by the size of batches, and how many packets a second that is (Batchy, Fig. 1 and 3).
//!
//! Measured of functions by themselves, as `forebay profile` does; in simulated time what calls take there.

use std::time::Duration;

use forebay_lean::profile::{Effort, Key, Profile, Store, batchiness};
use serde::Serialize;

use super::costs::BATCH;
use super::place::Place;
use super::{Extents, Origin};
use crate::{LabError, Progress};

/// The functions: those of the paper's figures, and those that its use cases consist of besides.
const FUNCTIONS: &[&str] = &["exact_match", "ip_lookup", "acl", "static_nat", "ttl", "mac_rewrite", "ip_checksum"];
const FEW: &[&str] = &["ip_lookup", "acl"];

/// A function's calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calls {
    /// The function.
    pub function: String,
    /// Where that is from.
    pub origin: Origin,
    /// Nanoseconds a call: T0, and T1 for each packet.
    pub t0_ns: f64,
    /// See above.
    pub t1_ns: f64,
    /// What packets cost in full batches, in parts of what they cost one by one.
    pub batchiness: f64,
    /// The share of what varies that the line explains; `None` where nothing was measured, or nothing varies.
    pub r2: Option<f64>,
    /// By size.
    pub sizes: Vec<Size>,
}

/// Calls on so many packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Size {
    /// Packets a call.
    pub packets: f64,
    /// Nanoseconds a call.
    pub call_ns: f64,
    /// Million packets a second.
    pub rate_mpps: f64,
}

impl Size {
    fn new(packets: f64, call_ns: f64) -> Self {
        Self { packets, call_ns, rate_mpps: packets / call_ns * 1e3 }
    }
}

/// Measures them, or tells what they take in simulated time.
pub(super) fn measure(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Calls>, LabError> {
    let functions = if extents.short { FEW } else { FUNCTIONS };
    if place.simulated {
        let known = place.costs().with(&functions.iter().copied().collect());
        let told = functions.iter().filter_map(|name| {
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
        return Ok(told.collect());
    }
    let effort = Effort { time: Duration::from_millis(600), ..Effort::new(BATCH) };
    let names: Vec<String> = functions.iter().map(|name| (*name).to_owned()).collect();
    let mut profile = Profile::empty(Key::this(BATCH)?);
    progress.begin(names.len() * effort.passes);
    profile.measure(&names, &effort, &mut |told| progress.step(told.function))?;
    // The profile is for later runs as well. Where it cannot be kept, this report still has the figures.
    if let Ok(store) = Store::of_user() {
        drop(profile.keep(&store));
    }
    let told = profile.functions.into_iter().map(|(function, costed)| {
        let sizes = costed.sizes.iter().map(|size| Size::new(size.packets, size.call_s * 1e9)).collect();
        let (t0_ns, t1_ns) = (costed.t0_s * 1e9, costed.t1_s * 1e9);
        let (batchiness, r2) = (costed.batchiness, costed.r2);
        Calls { function, origin: Origin::Profile, t0_ns, t1_ns, batchiness, r2, sizes }
    });
    Ok(told.collect())
}
