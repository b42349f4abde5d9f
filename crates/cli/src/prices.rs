//! The costs of modules' calls in a simulation. A cost is given by the user, stated in a module's parameters, measured
//! with the module's parameters, or measured with the example of the module's function.
//!
//! A profile measures the example of each function. A module with other parameters, such as ten thousand rules instead
//! of two, may cost more. The output names the functions of such modules.

use std::collections::BTreeSet;

use anyhow::bail;
use forebay_graph::{Cost, Module, Plan, functions};
use forebay_instance::ControlInputs;
use forebay_measure::{Clock, Tsc};
use forebay_models::batching::Line;
use forebay_pipeline::{Source, parameters, shown_settings};
use schemars::Schema;
use serde_json::{Map, Value};

use crate::costs;

/// The function whose parameters state its cost, in ticks.
const STATED: &str = "bypass";

/// The functions whose work for a packet does not depend on their parameters.
const ALIKE: &[&str] = &[
    "ether_split",
    "hash_split",
    "mac_rewrite",
    "random_split",
    "vlan_pop",
    "vlan_push",
    "vlan_split",
    "weighted_split",
];

/// The costs that are known before the simulation.
#[derive(Debug)]
pub(crate) struct Prices {
    /// For each module, the cost of its calls, in seconds.
    pub(crate) lines: Vec<Line>,
    /// The functions for which the cost of the example is used although modules have other parameters.
    pub(crate) of_example: BTreeSet<&'static str>,
    /// The pipeline's name and settings, for a command line in a message.
    pipeline: String,
}

impl Prices {
    /// Returns the costs of the modules of `plan`, which was loaded from `source`. `given` are the costs of the command
    /// line, which take precedence.
    ///
    /// # Errors
    /// Returns an error that names the functions without a known cost.
    pub(crate) fn of(plan: &Plan, source: &Source, given: &[(String, Cost)]) -> anyhow::Result<Self> {
        let (given, profiled) = (costs::given(plan, given)?, costs::of_pipeline(plan, source));
        let written = written(source);
        let mut unknown = BTreeSet::new();
        let mut of_example = BTreeSet::new();
        let mut price = |(module, given): (&Module, &Option<Cost>)| {
            if let Some(cost) = given {
                return Line { fixed: cost.per_batch as f64 / 1e9, each: cost.per_packet as f64 / 1e9 };
            }
            if let Some(own) = profiled.get(&ControlInputs::module_key(&module.name)) {
                return own.line;
            }
            let known = profiled.get(module.kind).map(|profiled| profiled.line);
            let params = plain(written["modules"][&module.name][module.kind].clone());
            if module.kind == STATED {
                return stated(&params, known, Tsc.frequency().hertz());
            }
            if known.is_none() {
                unknown.insert(module.kind);
            } else if !ALIKE.contains(&module.kind) && params != example(module.kind) {
                of_example.insert(module.kind);
            }
            known.unwrap_or_default()
        };
        let lines = plan.modules.iter().zip(&given).map(&mut price).collect();
        if unknown.is_empty() {
            return Ok(Self { lines, of_example, pipeline: pipeline(source) });
        }
        let names = unknown.into_iter().collect::<Vec<_>>();
        bail!(
            "the cost of calls of {} is unknown: `forebay profile {}` measures it, in about a second per module; or \
             set `--cost {}=CALL+PACKET` for one function, `--cost '*=100+20'` for all",
            names.join(", "),
            pipeline(source),
            names[0]
        )
    }

    /// Returns a sentence about functions whose costs may be wrong, if there are any.
    pub(crate) fn doubt(&self) -> Option<String> {
        let first = self.of_example.first()?;
        let names = self.of_example.iter().copied().collect::<Vec<_>>().join(", ");
        Some(format!(
            "{names}: costs are those of the function's example (`forebay describe {first}`), but the parameters \
             differ here: `forebay profile {}` measures the modules, or `--cost {first}=CALL+PACKET` sets the cost",
            self.pipeline
        ))
    }
}

/// Returns the pipeline's name and settings, for a command line in a message.
fn pipeline(source: &Source) -> String {
    let sets = shown_settings(source.given()).into_iter().map(|set| format!(" --set {}", in_shell(&set)));
    let name = if source.file() == "stdin" { "-".to_owned() } else { in_shell(source.file()) };
    std::iter::once(name).chain(sets).collect()
}

/// Quotes a word for a shell.
fn in_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Returns the configuration with settings applied.
fn written(source: &Source) -> Value {
    // Loading has already reported errors.
    parameters(source, |_| Schema::default()).unwrap_or_default()
}

/// Returns the parameters of a function's example.
fn example(kind: &str) -> Value {
    let text = functions().into_iter().find(|function| function.name == kind).map_or("", |function| function.example);
    plain(written(&Source::new(text, kind, "")))
}

/// Replaces missing parameters (null) with an empty mapping. Then they are equal to the parameters of an empty example.
fn plain(params: Value) -> Value {
    if params.is_null() { Value::Object(Map::new()) } else { params }
}

/// Returns the cost of a module whose parameters state the cost of its calls, plus the cost of the engine itself. The
/// cost of the engine is the measured cost `known` of the function's example minus the cost that the example states; 0
/// if `known` is `None`. `hertz` converts ticks to seconds.
fn stated(params: &Value, known: Option<Line>, hertz: f64) -> Line {
    let seconds = |params: &Value, key: &str| params[key].as_f64().unwrap_or_default() / hertz;
    let line = |params: &Value| Line {
        fixed: seconds(params, "cycles_per_batch"),
        each: seconds(params, "cycles_per_packet"),
    };
    let (own, of_example) = (line(params), line(&example(STATED)));
    let engine = known.map_or(Line::default(), |known| Line {
        fixed: (known.fixed - of_example.fixed).max(0.0),
        each: (known.each - of_example.each).max(0.0),
    });
    Line { fixed: own.fixed + engine.fixed, each: own.each + engine.each }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stated_costs_include_the_cost_of_the_engine() {
        let params = json!({ "cycles_per_batch": 20_000, "cycles_per_packet": 500 });
        let near = |line: Line, fixed: f64, each: f64| {
            assert!((line.fixed * 1e9 - fixed).abs() < 1e-6 && (line.each * 1e9 - each).abs() < 1e-6, "{line:?}");
        };
        near(stated(&params, None, 2e9), 10_000.0, 250.0);
        // The example's own cost is 900 and 25 ticks of these.
        let known = |fixed, each| Some(Line { fixed, each });
        near(stated(&params, known(480e-9, 12e-9), 2e9), 10_030.0, 250.0);
        near(stated(&json!({}), known(480e-9, 13e-9), 2e9), 30.0, 0.5);
    }

    #[test]
    fn named_functions_exist_and_examples_are_read() {
        let all: Vec<_> = functions().into_iter().map(|function| function.name).collect();
        assert!(ALIKE.iter().chain([&STATED]).all(|name| all.contains(name)));
        assert_eq!(example(STATED), json!({ "cycles_per_batch": 900, "cycles_per_packet": 25 }));
        assert!(functions().iter().all(|function| example(function.name).is_object()));
        assert_eq!(plain(Value::Null), example("ttl"));
    }
}
