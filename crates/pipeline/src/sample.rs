//! Creates a small pipeline around one function, with the function's own example, a generator of suitable packets, and
//! a sink.
//!
//! With such pipelines, the cost of every function can be measured without writing a configuration for it.

use forebay_graph::{Declaration, Setup, SetupEnvironment, StateDeclaration, functions, known_names, states};
use forebay_units::Frequency;
use serde_json::Value;

use crate::faults::FaultCollector;
use crate::located::SourceLocation;
use crate::problems::Problems;
use crate::wording::quote;
use crate::{Source, yaml};

/// The prefix of a function in the name of a pipeline.
pub(crate) const PREFIX: &str = "function:";

/// Returns whether `pipeline` is the name of a built-in pipeline: `usecase:NAME` or `function:NAME`.
#[must_use]
pub fn is_built_in(pipeline: &str) -> bool {
    pipeline.starts_with("usecase:") || pipeline.starts_with(PREFIX)
}

/// Returns a built-in pipeline with settings; `None` if the name is not of a built-in pipeline.
#[must_use]
pub fn built_in(pipeline: &str, sets: &[String]) -> Option<Result<Source, Problems>> {
    let case = pipeline.strip_prefix("usecase:").map(|name| crate::usecase(name, sets));
    case.or_else(|| pipeline.strip_prefix(PREFIX).map(|name| sample(name, sets)))
}

/// Returns the configuration around the function `name`, with settings. The module has the name of the function. The
/// ports are `in` and `out`.
///
/// # Errors
/// Returns an error if there is no function with this name.
pub fn sample(name: &str, sets: &[String]) -> Result<Source, Problems> {
    let file = format!("{PREFIX}{name}");
    let wrong = |message: String| {
        let mut faults = FaultCollector::default();
        faults.add(SourceLocation::START, message);
        faults.finish(&file, "", sets).expect_err("a finding was added").without_text(&file)
    };
    let all = functions();
    let Some(function) = all.iter().find(|function| function.name == name) else {
        let known = known_names(name, all.iter().map(|function| function.name));
        return Err(wrong(format!("there is no function {}{known}", quote(name))));
    };
    let params = params(function.example).map_err(|message| wrong(format!("its example: {message}")))?;
    let gates = gates(function, &params).map_err(|message| wrong(format!("its example: {message}")))?;
    let ways: String = gates.iter().map(|gate| format!("  - {name}[{gate}] -> out\n")).collect();
    let text = format!(
        "name: {name}\nports:\n  in: {{ generator: {} }}\n  out: {{ sink: {{}} }}\n{}modules:\n  {name}: {{ {name}: {} \
         }}\npipeline:\n  - in -> {name}\n{ways}",
        function.traffic,
        section(&params),
        function.example
    );
    Ok(sets.iter().fold(Source::new(text, file, ""), Source::set))
}

/// Returns the parameters of an example.
fn params(example: &str) -> Result<Value, String> {
    Ok(yaml::parse(example, &mut Vec::new()).map_err(|found| found.fault.message)?.to_json())
}

/// Returns the states that an example names. A state has the name of its kind.
fn named(params: &Value) -> Vec<&'static StateDeclaration> {
    states().into_iter().filter(|state| names(params, state.name)).collect()
}

/// Returns whether a text is the value of any parameter, at any depth.
fn names(params: &Value, text: &str) -> bool {
    match params {
        Value::String(other) => other == text,
        Value::Array(list) => list.iter().any(|item| names(item, text)),
        Value::Object(map) => map.values().any(|item| names(item, text)),
        _ => false,
    }
}

/// Returns the section `state`, or an empty text if the example names no state.
fn section(params: &Value) -> String {
    let lines: String =
        named(params).iter().map(|state| format!("  {0}: {{ {0}: {1} }}\n", state.name, state.example)).collect();
    if lines.is_empty() { lines } else { format!("state:\n{lines}") }
}

/// Returns the gates of the function with the parameters `example`.
fn gates(function: &Declaration, example: &Value) -> Result<Vec<String>, String> {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    (environment.simulated, environment.checking) = (true, true);
    for state in named(example) {
        let mut setup = Setup::new(state.name, &mut environment);
        let made = state.build(&params(state.example)?, &mut setup).map_err(|error| error.to_string())?;
        environment.objects.states.insert(state.name.to_owned(), made);
    }
    let mut setup = Setup::new(function.name, &mut environment);
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
    fn settings_change_parameters_and_unknown_names_are_refused() {
        let source = sample("vlan_split", &["modules.vlan_split.vlan_split.ids=[7]".to_owned()]);
        let problems = crate::check(&source.expect("a function")).expect_err("a removed gate");
        assert!(problems.to_string().contains("100"), "{problems}");
        let problems = sample("alc", &[]).expect_err("no function");
        assert!(
            problems.to_string().starts_with("function:alc: there is no function 'alc' (did you mean 'acl'?)"),
            "{problems}"
        );
    }
}
