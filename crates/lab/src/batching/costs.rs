//! What calls cost: in simulated time all that modules take, on a real clock what controllers begin with.

use std::collections::{BTreeMap, BTreeSet};

use forebay_control::Profiled;
use forebay_graph::{Cost, Plan};
use forebay_lean::profile::{Key, Profile, Store};
use forebay_models::batching::Line;
use serde::Serialize;

/// The largest batch of all runs: that of the paper.
pub(super) const BATCH: usize = 32;
/// Cycles a second of the paper's machine: what `bypass` is asked for in cycles takes as long in simulated time.
const PAPER_HERTZ: f64 = 2.4e9;
/// What Batchy measured of its modules (its Fig. 3), in nanoseconds a call and a packet.
const PUBLISHED: &[(&str, Cost)] = &[
    ("ip_lookup", Cost { per_batch: 69, per_packet: 28 }),
    ("acl", Cost { per_batch: 122, per_packet: 30 }),
    ("static_nat", Cost { per_batch: 44, per_packet: 21 }),
    ("exact_match", Cost { per_batch: 118, per_packet: 19 }),
];
/// Any other: about as much of it goes to the call (batchiness 0.22) as with those.
const OTHER: Cost = Cost { per_batch: 60, per_packet: 15 };

/// Where costs are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured on this machine by `forebay profile`.
    Profile,
    /// Batchy's figures, where it has any, and figures like them.
    Published,
    /// Measured by nobody: figures like Batchy's. Of single functions only.
    Assumed,
}

/// What calls of functions cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Where from, as far as there are any of a function.
    pub origin: Origin,
    /// By function: nanoseconds a call and a packet.
    pub functions: BTreeMap<String, (f64, f64)>,
    /// By function that was run and whose cost is not its pipeline's own: where that is from.
    pub origins: BTreeMap<String, Origin>,
    #[serde(skip)]
    profiled: BTreeMap<String, Profiled>,
}

impl Costs {
    /// What was measured on this machine, or else what was published.
    pub(super) fn stored() -> Self {
        let stored = Store::of_user().and_then(|store| Profile::stored(&store, &Key::this(BATCH)?));
        // Whatever is wrong with the file: it is as good as none, and the report says which costs there are.
        let Some(profile) = stored.ok().flatten() else { return Self::published() };
        let profiled = profile.functions.iter().map(|(name, cost)| {
            let line = Line { fixed: cost.t0_s, each: cost.t1_s };
            (name.clone(), Profiled { line, dispatch: cost.dispatch_s })
        });
        let profiled: BTreeMap<_, _> = profiled.collect();
        let nanos = |(name, told): (&String, &Profiled)| (name.clone(), (told.line.fixed * 1e9, told.line.each * 1e9));
        let functions = profiled.iter().map(nanos).collect();
        Self { origin: Origin::Profile, functions, origins: BTreeMap::new(), profiled }
    }

    /// What was published.
    pub(super) fn published() -> Self {
        let functions = PUBLISHED.iter().map(|(name, cost)| ((*name).to_owned(), nanos(*cost))).collect();
        Self { origin: Origin::Published, functions, origins: BTreeMap::new(), profiled: BTreeMap::new() }
    }

    /// What was measured, for controllers to begin with.
    pub(super) fn profiled(&self) -> BTreeMap<String, Profiled> {
        self.profiled.clone()
    }

    /// What a module's calls take in simulated time, to the nanosecond: as `special` says of names that begin so, else by its
    /// function.
    fn of(&self, name: &str, function: &str, special: &[(&str, Cost)]) -> Cost {
        if let Some((_, cost)) = special.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            return *cost;
        }
        let (call, packet) = self.known(function).0;
        Cost { per_batch: call.round() as u64, per_packet: packet.round() as u64 }
    }

    /// What a function costs, in nanoseconds a call and a packet, and where that is from.
    fn known(&self, function: &str) -> ((f64, f64), Origin) {
        let published = PUBLISHED.iter().find(|(name, _)| *name == function);
        match (self.functions.get(function), published) {
            (Some(cost), _) => (*cost, self.origin),
            (None, Some((_, cost))) => (nanos(*cost), Origin::Published),
            (None, None) => (nanos(OTHER), Origin::Assumed),
        }
    }

    /// With all functions that were run: what they cost, and where that is from.
    pub(super) fn with(mut self, run: &BTreeSet<&str>) -> Self {
        self.origins = run.iter().map(|name| ((*name).to_owned(), self.known(name).1)).collect();
        let known: Vec<_> = run.iter().map(|name| ((*name).to_owned(), self.known(name).0)).collect();
        self.functions.extend(known);
        self
    }

    /// Functions of a pipeline whose cost is not the pipeline's own.
    pub(super) fn asked(plan: &Plan, special: &[(&str, Cost)]) -> impl Iterator<Item = &'static str> {
        let own = |name: &str| special.iter().any(|(prefix, _)| name.starts_with(prefix));
        plan.modules.iter().filter(move |module| !own(&module.name)).map(|module| module.kind)
    }

    /// The same of all modules of a pipeline.
    pub(super) fn of_plan(&self, plan: &Plan, special: &[(&str, Cost)]) -> Vec<Cost> {
        plan.modules.iter().map(|module| self.of(&module.name, module.kind, special)).collect()
    }
}

fn nanos(cost: Cost) -> (f64, f64) {
    (cost.per_batch as f64, cost.per_packet as f64)
}

/// So many of the paper's cycles, in nanoseconds.
pub(super) fn cycles(count: u64) -> u64 {
    (count as f64 / PAPER_HERTZ * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_special_comes_first_and_what_is_not_known_has_a_cost() {
        let costs = Costs::published();
        let special = [("work", Cost { per_batch: cycles(10_000), per_packet: 0 })];
        let of = |name, function| costs.of(name, function, &special);
        assert_eq!(of("work3", "bypass"), Cost { per_batch: 4_167, per_packet: 0 });
        assert_eq!(of("acl3", "acl"), Cost { per_batch: 122, per_packet: 30 });
        assert_eq!(of("sum3", "ip_checksum"), OTHER);
    }

    /// What a stored profile does not have was once told as measured.
    #[test]
    fn what_is_not_in_a_profile_says_where_it_is_from() {
        let mut costs = Costs::published();
        costs.origin = Origin::Profile;
        costs.functions = BTreeMap::from([("ttl".to_owned(), (9.6, 2.0))]);
        let told = costs.with(&BTreeSet::from(["ttl", "acl", "ip_checksum"]));
        assert_eq!(told.of("ttl0", "ttl", &[]), Cost { per_batch: 10, per_packet: 2 });
        assert_eq!(told.functions["acl"], (122.0, 30.0));
        assert_eq!(told.functions["ip_checksum"], (60.0, 15.0));
        let origins: Vec<_> = told.origins.values().copied().collect();
        assert_eq!(origins, [Origin::Published, Origin::Assumed, Origin::Profile], "acl, ip_checksum, ttl");
    }
}
