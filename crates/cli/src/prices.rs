//! What modules' calls take in a simulation: as was given, as their parameters say, or as was measured of their functions' examples.
//!
//! A profile is of the example of each function. What a module with other parameters takes may be another thing, ten thousand rules instead of
//! two: whoever reads the result is told of whom that holds.

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

/// The function whose cost is what its parameters say, in ticks.
const STATED: &str = "bypass";

/// Functions that do the same to each packet whatever their parameters are.
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

/// What is known before anything is simulated.
#[derive(Debug)]
pub(crate) struct Prices {
    /// By module: what its calls take.
    pub(crate) lines: Vec<Line>,
    /// Functions whose cost is that of their example although modules have other parameters.
    pub(crate) of_example: BTreeSet<&'static str>,
    /// The words by which another command finds the pipeline.
    pipeline: String,
}

impl Prices {
    /// Of the modules of `plan`, which `source` is of.
    ///
    /// # Errors
    /// Functions of which nothing is known.
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
            "what calls of {} take is not known: `forebay profile {}` measures it, about a second for each module; or \
             say `--cost {}=CALL+PACKET` for one function, `--cost '*=100+20'` for all",
            names.join(", "),
            pipeline(source),
            names[0]
        )
    }

    /// Which functions' costs may be others, in a sentence; nothing where there are none.
    pub(crate) fn doubt(&self) -> Option<String> {
        let first = self.of_example.first()?;
        let names = self.of_example.iter().copied().collect::<Vec<_>>().join(", ");
        Some(format!(
            "{names}: calls are taken to cost what they do with the parameters of the function's example (`forebay describe {first}`), which \
             are others here: `forebay profile {}` measures them, or `--cost {first}=CALL+PACKET` states it",
            self.pipeline
        ))
    }
}

/// The words by which another command finds the pipeline.
fn pipeline(source: &Source) -> String {
    let sets = shown_settings(source.given()).into_iter().map(|set| format!(" --set {}", in_shell(&set)));
    let name = if source.file() == "stdin" { "-".to_owned() } else { in_shell(source.file()) };
    std::iter::once(name).chain(sets).collect()
}

/// A word as a shell takes it.
fn in_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The configuration as it is written, settings applied.
fn written(source: &Source) -> Value {
    // What is wrong with it was said when it was loaded.
    parameters(source, |_| Schema::default()).unwrap_or_default()
}

/// The parameters of a function's example.
fn example(kind: &str) -> Value {
    let text = functions().into_iter().find(|function| function.name == kind).map_or("", |function| function.example);
    plain(written(&Source::new(text, kind, "")))
}

/// Parameters, those that are not written like an empty mapping.
fn plain(params: Value) -> Value {
    if params.is_null() { Value::Object(Map::new()) } else { params }
}

/// What a call takes whose parameters say so, at so many ticks a second, and what the engine takes of it besides: what was measured of
/// the example beyond its own parameters.
fn stated(params: &Value, known: Option<Line>, hertz: f64) -> Line {
    let seconds = |params: &Value, key: &str| params[key].as_f64().unwrap_or_default() / hertz;
    let line = |params: &Value| Line {
        fixed: seconds(params, "cycles_per_batch"),
        each: seconds(params, "cycles_per_packet"),
    };
    let (own, of_example) = (line(params), line(&example(STATED)));
    let besides = known.map_or(Line::default(), |known| Line {
        fixed: (known.fixed - of_example.fixed).max(0.0),
        each: (known.each - of_example.each).max(0.0),
    });
    Line { fixed: own.fixed + besides.fixed, each: own.each + besides.each }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_parameters_say_a_call_takes_it_takes_with_what_the_engine_needs_besides() {
        let params = json!({ "cycles_per_batch": 20_000, "cycles_per_packet": 500 });
        let near = |line: Line, fixed: f64, each: f64| {
            assert!((line.fixed * 1e9 - fixed).abs() < 1e-6 && (line.each * 1e9 - each).abs() < 1e-6, "{line:?}");
        };
        near(stated(&params, None, 2e9), 10_000.0, 250.0);
        // 900 and 25 ticks of it are the example's own.
        let known = |fixed, each| Some(Line { fixed, each });
        near(stated(&params, known(480e-9, 12e-9), 2e9), 10_030.0, 250.0);
        near(stated(&json!({}), known(480e-9, 13e-9), 2e9), 30.0, 0.5);
    }

    #[test]
    fn functions_that_are_named_here_are_there_and_examples_are_read() {
        let all: Vec<_> = functions().into_iter().map(|function| function.name).collect();
        assert!(ALIKE.iter().chain([&STATED]).all(|name| all.contains(name)));
        assert_eq!(example(STATED), json!({ "cycles_per_batch": 900, "cycles_per_packet": 25 }));
        assert!(functions().iter().all(|function| example(function.name).is_object()));
        assert_eq!(plain(Value::Null), example("ttl"));
    }
}
