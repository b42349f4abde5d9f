//! The costs of calls. In simulated time they are the time that modules take; on a real clock they are the initial
//! estimates of controllers.

use std::collections::{BTreeMap, BTreeSet};

use forebay_bench::profile::{Key, Profile, Store};
use forebay_control::Profiled;
use forebay_graph::{Cost, Plan};
use forebay_models::batching::Line;
use serde::Serialize;

/// The largest batch of all runs, as in the paper.
pub(super) const BATCH: usize = 32;
/// The clock of the paper's machine, in hertz. It converts the cycles of `bypass` modules to simulated time.
const PAPER_HERTZ: f64 = 2.4e9;
/// The costs that Batchy measured of its modules (its Fig. 3), in nanoseconds per call and per packet.
const PUBLISHED: &[(&str, Cost)] = &[
    ("ip_lookup", Cost { per_batch: 69, per_packet: 28 }),
    ("acl", Cost { per_batch: 122, per_packet: 30 }),
    ("static_nat", Cost { per_batch: 44, per_packet: 21 }),
    ("exact_match", Cost { per_batch: 118, per_packet: 19 }),
];
/// The cost of any other function. Its batchiness (0.22) is similar to those of the functions above.
const OTHER: Cost = Cost { per_batch: 60, per_packet: 15 };

/// The source of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostOrigin {
    /// Measured on this machine by `forebay profile`.
    Profile,
    /// Taken from the Batchy paper. If [`Costs::origin`] has this value, functions that the paper does not contain have
    /// costs similar to those in the paper.
    Published,
    /// Not measured: an estimate similar to Batchy's costs. Only used in [`Costs::origins`].
    Assumed,
}

/// The costs of the calls of functions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// The source of the costs in `functions`, before costs of other functions were added.
    pub origin: CostOrigin,
    /// The cost of each function, in nanoseconds per call and per packet.
    pub functions: BTreeMap<String, (f64, f64)>,
    /// The source of the cost of each function that was run. Functions whose cost is set by their pipeline are left
    /// out.
    pub origins: BTreeMap<String, CostOrigin>,
    /// The measured costs by function, from which controllers start. Empty if the published costs are used.
    #[serde(skip)]
    profiled: BTreeMap<String, Profiled>,
}

impl Costs {
    /// Returns the costs that were measured on this machine, or the published costs if there are none.
    pub(super) fn stored() -> Self {
        let stored = Store::of_user().and_then(|store| Profile::stored(&store, &Key::this(BATCH)?));
        // An unreadable profile counts as missing. The report states which costs were used.
        let Some(profile) = stored.ok().flatten() else { return Self::published() };
        let profiled = profile.functions.iter().map(|(name, cost)| {
            let line = Line { fixed: cost.t0_s, each: cost.t1_s };
            (name.clone(), Profiled { line, dispatch: cost.dispatch_s })
        });
        let profiled: BTreeMap<_, _> = profiled.collect();
        let nanos =
            |(name, profile): (&String, &Profiled)| (name.clone(), (profile.line.fixed * 1e9, profile.line.each * 1e9));
        let functions = profiled.iter().map(nanos).collect();
        Self { origin: CostOrigin::Profile, functions, origins: BTreeMap::new(), profiled }
    }

    /// Returns the published costs.
    pub(super) fn published() -> Self {
        let functions = PUBLISHED.iter().map(|(name, cost)| ((*name).to_owned(), nanos(*cost))).collect();
        Self { origin: CostOrigin::Published, functions, origins: BTreeMap::new(), profiled: BTreeMap::new() }
    }

    /// Returns the measured costs, from which controllers start. Empty if nothing was measured on this machine.
    pub(super) fn profiled(&self) -> BTreeMap<String, Profiled> {
        self.profiled.clone()
    }

    /// Returns the time of a module's calls in simulated time, to the nanosecond. If the module's name starts with the
    /// prefix of an entry of `special`, the cost of the first such entry counts. Otherwise, the cost of the function
    /// counts.
    fn of(&self, name: &str, function: &str, special: &[(&str, Cost)]) -> Cost {
        if let Some((_, cost)) = special.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            return *cost;
        }
        let (call, packet) = self.known(function).0;
        Cost { per_batch: call.round() as u64, per_packet: packet.round() as u64 }
    }

    /// Returns the cost of a function, in nanoseconds per call and per packet, and its source.
    fn known(&self, function: &str) -> ((f64, f64), CostOrigin) {
        let published = PUBLISHED.iter().find(|(name, _)| *name == function);
        match (self.functions.get(function), published) {
            (Some(cost), _) => (*cost, self.origin),
            (None, Some((_, cost))) => (nanos(*cost), CostOrigin::Published),
            (None, None) => (nanos(OTHER), CostOrigin::Assumed),
        }
    }

    /// Adds the costs of all functions that were run, and their sources.
    pub(super) fn with(mut self, run: &BTreeSet<&str>) -> Self {
        self.origins = run.iter().map(|name| ((*name).to_owned(), self.known(name).1)).collect();
        let known: Vec<_> = run.iter().map(|name| ((*name).to_owned(), self.known(name).0)).collect();
        self.functions.extend(known);
        self
    }

    /// Returns the functions of a pipeline whose cost is not set by the pipeline itself.
    pub(super) fn functions_of(plan: &Plan, special: &[(&str, Cost)]) -> impl Iterator<Item = &'static str> {
        let own = |name: &str| special.iter().any(|(prefix, _)| name.starts_with(prefix));
        plan.modules.iter().filter(move |module| !own(&module.name)).map(|module| module.kind)
    }

    /// Returns the cost of each module of a pipeline, as [`Self::of`] does.
    pub(super) fn of_plan(&self, plan: &Plan, special: &[(&str, Cost)]) -> Vec<Cost> {
        plan.modules.iter().map(|module| self.of(&module.name, module.kind, special)).collect()
    }
}

fn nanos(cost: Cost) -> (f64, f64) {
    (cost.per_batch as f64, cost.per_packet as f64)
}

/// Converts cycles of the paper's machine to nanoseconds.
pub(super) fn cycles(count: u64) -> u64 {
    (count as f64 / PAPER_HERTZ * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_costs_come_first_and_unknown_functions_have_a_cost() {
        let costs = Costs::published();
        let special = [("work", Cost { per_batch: cycles(10_000), per_packet: 0 })];
        let of = |name, function| costs.of(name, function, &special);
        assert_eq!(of("work3", "bypass"), Cost { per_batch: 4_167, per_packet: 0 });
        assert_eq!(of("acl3", "acl"), Cost { per_batch: 122, per_packet: 30 });
        assert_eq!(of("sum3", "ip_checksum"), OTHER);
    }

    /// Regression: functions missing from a stored profile were reported as measured.
    #[test]
    fn a_function_missing_from_the_profile_has_another_source() {
        let mut costs = Costs::published();
        costs.origin = CostOrigin::Profile;
        costs.functions = BTreeMap::from([("ttl".to_owned(), (9.6, 2.0))]);
        let costs = costs.with(&BTreeSet::from(["ttl", "acl", "ip_checksum"]));
        assert_eq!(costs.of("ttl0", "ttl", &[]), Cost { per_batch: 10, per_packet: 2 });
        assert_eq!(costs.functions["acl"], (122.0, 30.0));
        assert_eq!(costs.functions["ip_checksum"], (60.0, 15.0));
        let origins: Vec<_> = costs.origins.values().copied().collect();
        assert_eq!(origins, [CostOrigin::Published, CostOrigin::Assumed, CostOrigin::Profile], "acl, ip_checksum, ttl");
    }
}
