//! What modules' calls cost where time is simulated, or before it is known better: as was given, or as was measured here before.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::anyhow;
use forebay_control::Profiled;
use forebay_graph::{Cost, Plan};
use forebay_instance::ControlInputs;
use forebay_lean::profile::{Costed, Key, Profile, Store, keys};
use forebay_models::batching::Line;
use forebay_pipeline::{Source, nearest};

use crate::printed;

/// What functions' calls cost, as `forebay profile` has measured on this machine; nothing where it has not, and where what it kept
/// cannot be read, which is said.
pub(crate) fn profiled(batch: usize) -> BTreeMap<String, Profiled> {
    // Without a place for profiles there are none.
    let stored = Store::of_user().ok().map(|store| Profile::stored(&store, &Key::this(batch)?)).transpose();
    let stored = stored.unwrap_or_else(|error| {
        let _ =
            writeln!(printed::err(), "{error}: what calls cost is not taken from it (`forebay profile` measures anew)");
        None
    });
    let functions = stored.flatten().map(|profile| profile.functions).unwrap_or_default();
    let profiled =
        |cost: &Costed| Profiled { line: Line { fixed: cost.t0_s, each: cost.t1_s }, dispatch: cost.dispatch_s };
    functions.iter().map(|(name, cost)| (name.clone(), profiled(cost))).collect()
}

/// The same of a pipeline's modules where they were measured [with their parameters](forebay_lean::profile::Pipeline),
/// each under its own [name](ControlInputs::module_key) besides.
pub(crate) fn of_pipeline(plan: &Plan, source: &Source) -> BTreeMap<String, Profiled> {
    let mut known = profiled(plan.batch);
    let of_modules = keys(source)
        .into_iter()
        .filter_map(|(name, _, key)| Some((ControlInputs::module_key(&name), *known.get(&key)?)));
    let of_modules: Vec<_> = of_modules.collect();
    known.extend(of_modules);
    known
}

/// Functions of a pipeline of whose calls nothing is known.
pub(crate) fn unknown(plan: &Plan, known: &BTreeMap<String, Profiled>) -> BTreeSet<&'static str> {
    let is_known =
        |name: &str, kind: &str| known.contains_key(kind) || known.contains_key(&ControlInputs::module_key(name));
    let unknown = plan.modules.iter().filter(|module| !is_known(&module.name, module.kind));
    unknown.map(|module| module.kind).collect()
}

/// Each module's cost: the last that names it, its function or everything.
pub(crate) fn given(plan: &Plan, given: &[(String, Cost)]) -> anyhow::Result<Vec<Option<Cost>>> {
    let mut costs = vec![None; plan.modules.len()];
    for (name, cost) in given {
        let mut named = false;
        for (module, slot) in plan.modules.iter().zip(&mut costs) {
            if name == "*" || *name == module.name || name == module.kind {
                (*slot, named) = (Some(*cost), true);
            }
        }
        if !named {
            let names = plan.modules.iter().flat_map(|module| [module.name.as_str(), module.kind]);
            return Err(anyhow!("--cost {name}: no module or function is called '{name}'{}", nearest(name, names)));
        }
    }
    Ok(costs)
}
