//! The costs of modules' calls, for simulated time and as start values of controllers. They are given on the command
//! line, or were measured earlier.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::anyhow;
use forebay_bench::profile::{Costed, Key, Profile, Store, keys};
use forebay_control::Profiled;
use forebay_graph::{Cost, Plan};
use forebay_instance::ControlInputs;
use forebay_models::batching::Line;
use forebay_pipeline::{Source, known_names};

use crate::printed;

/// Returns the costs of functions' calls that `forebay profile` measured on this machine. Without a profile, the result
/// is empty. A profile that cannot be read is reported and ignored.
pub(crate) fn profiled(batch: usize) -> BTreeMap<String, Profiled> {
    // Without a folder for profiles, there are no stored profiles.
    let stored = Store::of_user().ok().map(|store| Profile::stored(&store, &Key::this(batch)?)).transpose();
    let stored = stored.unwrap_or_else(|error| {
        let _ = writeln!(
            printed::err(),
            "{error}: the stored costs of calls are ignored (`forebay profile` measures them again)"
        );
        None
    });
    let functions = stored.flatten().map(|profile| profile.functions).unwrap_or_default();
    let profiled =
        |cost: &Costed| Profiled { line: Line { fixed: cost.t0_s, each: cost.t1_s }, dispatch: cost.dispatch_s };
    functions.iter().map(|(name, cost)| (name.clone(), profiled(cost))).collect()
}

/// Returns the measured costs of functions, and the costs of modules that were measured [with their
/// parameters](forebay_bench::profile::Pipeline). The costs of a module are stored under the module's own
/// [key](ControlInputs::module_key).
pub(crate) fn of_pipeline(plan: &Plan, source: &Source) -> BTreeMap<String, Profiled> {
    let mut known = profiled(plan.batch);
    let of_modules = keys(source)
        .into_iter()
        .filter_map(|(name, _, key)| Some((ControlInputs::module_key(&name), *known.get(&key)?)));
    let of_modules: Vec<_> = of_modules.collect();
    known.extend(of_modules);
    known
}

/// Returns the functions of a pipeline without a known cost.
pub(crate) fn unknown(plan: &Plan, known: &BTreeMap<String, Profiled>) -> BTreeSet<&'static str> {
    let is_known =
        |name: &str, kind: &str| known.contains_key(kind) || known.contains_key(&ControlInputs::module_key(name));
    let unknown = plan.modules.iter().filter(|module| !is_known(&module.name, module.kind));
    unknown.map(|module| module.kind).collect()
}

/// Returns for each module the cost that the user has given, or `None`. An entry names a module, a function or `*`. If
/// several entries name the same module, the last one counts. Returns an error if an entry names no module.
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
            let names: BTreeSet<_> =
                plan.modules.iter().flat_map(|module| [module.name.as_str(), module.kind]).collect();
            let known = known_names(name, names);
            return Err(anyhow!("--cost {name}: no module or function is called '{name}'{known}"));
        }
    }
    Ok(costs)
}
