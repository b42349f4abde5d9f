//! A small pipeline around one function: its own example, between generated packets that it is meant for and a sink.
//!
//! What a function costs by itself can be asked with it, of every function that there is, without a configuration for each.

use forebay_graph::{Declaration, Setup, StateDeclaration, Surroundings, functions, states};
use forebay_units::Frequency;
use serde_json::Value;

use crate::Source;
use crate::problem::{Findings, Place, Problems, listed, nearest, quote};
use crate::yaml;

/// What goes before a function's name where a pipeline is named.
pub(crate) const PREFIX: &str = "function:";

/// Whether `pipeline` names one that is built in: `usecase:NAME` or `function:NAME`.
#[must_use]
pub fn is_built_in(pipeline: &str) -> bool {
    pipeline.starts_with("usecase:") || pipeline.starts_with(PREFIX)
}

/// A pipeline that is built in, with settings; `None` where the name is a file's.
#[must_use]
pub fn built_in(pipeline: &str, sets: &[String]) -> Option<Result<Source, Problems>> {
    let case = pipeline.strip_prefix("usecase:").map(|name| crate::usecase(name, sets));
    case.or_else(|| pipeline.strip_prefix(PREFIX).map(|name| sample(name, sets)))
}

/// The configuration of function `name` alone, with settings. The module is called like the function, the ports are `in` and
/// `out`.
///
/// # Errors
/// No function of that name.
pub fn sample(name: &str, sets: &[String]) -> Result<Source, Problems> {
    let file = format!("{PREFIX}{name}");
    let wrong = |message: String| {
        let mut findings = Findings::default();
        findings.add(Place::START, message);
        findings.finish(&file, "", sets).expect_err("a finding was added")
    };
    let all = functions();
    let Some(function) = all.iter().find(|function| function.name == name) else {
        let names = || all.iter().map(|function| function.name);
        return Err(wrong(format!(
            "there is no function {}{}: there are {}",
            quote(name),
            nearest(name, names()),
            listed(names())
        )));
    };
    let params = params(function.example).map_err(|message| wrong(format!("its example: {message}")))?;
    let gates = gates(function, &params).map_err(|message| wrong(format!("its example: {message}")))?;
    let ways: String = gates.iter().map(|gate| format!("  - {name}[{gate}] -> out\n")).collect();
    let text = format!(
        "name: {name}\nports:\n  in: {{ generator: {} }}\n  out: {{ sink: {{}} }}\n{}modules:\n  {name}: {{ {name}: {} }}\npipeline:\n  - in -> {name}\n{ways}",
        function.traffic,
        section(&params),
        function.example
    );
    Ok(sets.iter().fold(Source::new(text, file, ""), Source::set))
}

/// An example's parameters.
fn params(example: &str) -> Result<Value, String> {
    Ok(yaml::parse(example, &mut Findings::default()).map_err(|(_, message)| message)?.to_json())
}

/// The states that an example names: by their kinds' own names.
fn named(params: &Value) -> Vec<&'static StateDeclaration> {
    states().into_iter().filter(|state| names(params, state.name)).collect()
}

/// Whether a text is among the parameters, wherever it stands.
fn names(params: &Value, text: &str) -> bool {
    match params {
        Value::String(other) => other == text,
        Value::Array(list) => list.iter().any(|item| names(item, text)),
        Value::Object(map) => map.values().any(|item| names(item, text)),
        _ => false,
    }
}

/// The configuration's section of states, where the example names any.
fn section(params: &Value) -> String {
    let lines: String =
        named(params).iter().map(|state| format!("  {0}: {{ {0}: {1} }}\n", state.name, state.example)).collect();
    if lines.is_empty() { lines } else { format!("state:\n{lines}") }
}

/// The gates that the example has.
fn gates(function: &Declaration, example: &Value) -> Result<Vec<String>, String> {
    let mut surroundings = Surroundings::new(Frequency::new(1e9));
    (surroundings.simulated, surroundings.checking) = (true, true);
    for state in named(example) {
        let mut setup = Setup::new(state.name, &mut surroundings);
        let made = state.build(&params(state.example)?, &mut setup).map_err(|error| error.to_string())?;
        surroundings.state.insert(state.name.to_owned(), made);
    }
    let mut setup = Setup::new(function.name, &mut surroundings);
    function.build(example, &mut setup).map_err(|error| error.to_string())?;
    Ok(setup.finish().gates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_a_pipeline_by_itself() {
        for function in functions() {
            let source = sample(function.name, &[]).unwrap_or_else(|problems| panic!("{problems}"));
            let checked = crate::check(&source).unwrap_or_else(|problems| panic!("{problems}\n{}", source.text()));
            assert_eq!(checked.modules, [(function.name.to_owned(), function.name)]);
        }
    }

    #[test]
    fn settings_are_of_its_parameters_and_other_names_are_refused() {
        let source = sample("vlan_split", &["modules.vlan_split.vlan_split.ids=[7]".to_owned()]);
        let told = crate::check(&source.expect("a function")).expect_err("a gate that is no more");
        assert!(told.to_string().contains("100"), "{told}");
        let told = sample("alc", &[]).expect_err("no function");
        assert!(
            told.to_string().starts_with("function:alc:1: there is no function 'alc' (did you mean 'acl'?)"),
            "{told}"
        );
    }
}
