//! The subject of a co-run: a function with its parameters, between a generator and a sink on one core.

use std::path::Path;

use forebay_bench::profile::{self, keys};
use forebay_pipeline::{Problems, Source, is_built_in, parameters};
use schemars::Schema;
use serde_json::Value;

/// The default length of generated packets, in bytes.
const SHORTEST: u32 = 60;

/// A function that is measured.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The key: the name of the function, or its profile key if it has the parameters of a pipeline.
    pub key: String,
    /// The name for display: that of the function, or that of the module in the pipeline.
    pub name: String,
    /// The pipeline in which it runs.
    pub source: Source,
    /// The name of a pipeline and the settings with which another process can create the same function. `None` if
    /// another process cannot create it.
    pub counted: Option<(String, Vec<String>)>,
    /// The length of the packets, in bytes.
    pub packets_bytes: u32,
}

impl Subject {
    /// Returns a function with the parameters and the packets of its example. `batch` is the largest batch.
    ///
    /// # Errors
    /// Returns [`Problems`] if no function has this name.
    pub fn function(name: &str, batch: usize) -> Result<Self, Problems> {
        let sets = profile::settings(name, batch);
        let source = forebay_pipeline::sample(name, &sets)?;
        let packets_bytes = length(&parameters(&source, |_| Schema::default())?);
        let counted = Some((format!("function:{name}"), sets));
        Ok(Self { key: name.to_owned(), name: name.to_owned(), source, counted, packets_bytes })
    }

    /// Returns the modules of a pipeline, each as a separate subject with its parameters. Of several modules with the
    /// same profile key, only the first is returned. The packets are those of the pipeline's first generator, or those
    /// of the function's example if there is no generator. `origin` is the name by which another process finds the
    /// pipeline, if there is one.
    ///
    /// # Errors
    /// Returns [`Problems`] if the pipeline cannot be read.
    pub fn modules(source: &Source, origin: Option<&str>, batch: usize) -> Result<Vec<Self>, Problems> {
        let written = parameters(source, |_| Schema::default())?;
        let mut modules = keys(source);
        // The modules are sorted by their order in the pipeline.
        let checked = forebay_pipeline::check(source)?;
        modules.sort_by_key(|(name, ..)| checked.modules.iter().position(|(written, _)| written == name));
        let mut found: Vec<Self> = Vec::new();
        for (module, function, key) in modules {
            if found.iter().any(|other| other.key == key) {
                continue;
            }
            let packets = match generator(&written) {
                Some(packets) => packets,
                None => traffic(&function)?,
            };
            let sets = alone(&written, &module, &packets, batch);
            // Another process resolves file names relative to the folder of the pipeline.
            let given = source.sets().iter().cloned();
            let counted = origin.map(|origin| (origin.to_owned(), given.chain(sets.iter().cloned()).collect()));
            let source = sets.into_iter().fold(source.clone(), Source::set);
            let packets_bytes = length(&parameters(&source, |_| Schema::default())?);
            found.push(Self { key, name: module, source, counted, packets_bytes });
        }
        Ok(found)
    }
}

/// Returns whether a name means a pipeline: the name of a built-in pipeline, or a name that is not a function and looks
/// like a file name.
#[must_use]
pub fn is_pipeline(name: &str) -> bool {
    let is_like_a_file = || name == "-" || name.contains('/') || name.contains('.') || Path::new(name).is_file();
    is_built_in(name) || !profile::all().iter().any(|function| function == name) && is_like_a_file()
}

/// Returns the parameters of the first generator of a pipeline; `None` if it has no generator.
fn generator(written: &Value) -> Option<Value> {
    let ports = written["ports"].as_object()?;
    let generator = ports.values().find_map(|port| port.get("generator"))?;
    Some(if generator.is_null() { Value::Object(serde_json::Map::new()) } else { generator.clone() })
}

/// Returns the parameters of the generator in a function's example.
fn traffic(function: &str) -> Result<Value, Problems> {
    let sample = parameters(&forebay_pipeline::sample(function, &[])?, |_| Schema::default())?;
    Ok(generator(&sample).unwrap_or_default())
}

/// Returns the settings that reduce a pipeline to one module between a generator and a sink, on one worker.
fn alone(written: &Value, module: &str, packets: &Value, batch: usize) -> Vec<String> {
    let lines = written["pipeline"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut ways = vec![format!("in -> {module}")];
    for (stop, next) in lines.flat_map(|line| line.split("->").zip(line.split("->").skip(1))) {
        let (stop, next) = (stop.trim(), next.trim());
        let is_own = stop == module || stop.strip_prefix(module).is_some_and(|gate| gate.starts_with('['));
        let way = format!("{stop} -> {}", if next == "drop" { next } else { "out" });
        if is_own && !ways.contains(&way) {
            ways.push(way);
        }
    }
    let pipeline = Value::from(ways);
    let without = ["control", "buffers", "workers", "scheduler", "shares", "flows"].map(|key| format!("{key}=null"));
    let named = |section: &str| written[section].as_object().into_iter().flatten().map(|(name, _)| name.clone());
    let others = named("modules").filter(|other| other != module).map(|other| format!("modules.{other}=null"));
    let states = named("state").filter(|state| !has_text(&written["modules"][module], state));
    let states = states.map(|state| format!("state.{state}=null"));
    let ports = named("ports").filter(|port| port != "in" && port != "out").map(|port| format!("ports.{port}=null"));
    let set = [
        "fold=off".to_owned(),
        format!("batch={batch}"),
        format!("ports.in={{ generator: {packets} }}"),
        "ports.out={ sink: {} }".to_owned(),
        format!("pipeline={pipeline}"),
    ];
    without.into_iter().chain(others).chain(states).chain(ports).chain(set).collect()
}

/// Returns whether a text occurs anywhere in these values.
fn has_text(values: &Value, text: &str) -> bool {
    match values {
        Value::String(other) => other == text,
        Value::Array(list) => list.iter().any(|item| has_text(item, text)),
        Value::Object(map) => map.values().any(|item| has_text(item, text)),
        _ => false,
    }
}

/// Returns the length of the generated packets, in bytes.
fn length(written: &Value) -> u32 {
    let size = written["ports"]["in"]["generator"]["size"].as_u64();
    size.and_then(|size| u32::try_from(size).ok()).unwrap_or(SHORTEST)
}

#[cfg(test)]
mod tests {
    use forebay_functions as _;
    use forebay_ports as _;

    use super::*;

    #[test]
    fn every_function_runs_with_its_example() {
        for name in profile::all() {
            let subject = Subject::function(&name, 32).unwrap_or_else(|wrong| panic!("{wrong}"));
            assert!(subject.packets_bytes >= SHORTEST, "{name}");
            forebay_pipeline::check(&subject.source).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
        assert!(Subject::function("alc", 32).is_err());
    }

    #[test]
    fn each_module_of_a_pipeline_runs_by_itself() {
        let text = "ports: { lan: { generator: { size: 100, destination: 10.0.0.0/16 } }, out: { sink: } }\n\
                    state: { table: { routes: { routes: [10.0.0.0/8 0] } } }\n\
                    modules:\n  route: { ip_lookup: { state: table, next_hops: 2 } }\n  \
                    few: { acl: { rules: { synthetic: 4 } } }\n  also: { acl: { rules: { synthetic: 4 } } }\n\
                    pipeline: ['lan -> route', 'route[0] -> few -> also -> out', 'route[1] -> drop']\n\
                    flows: [{ name: all, path: ['route[0]', few, also], slo: 1ms }]\n\
                    control: { batching: }\nworkers: [{}, {}]\n";
        let source = Source::new(text, "test.yaml", "");
        let subjects = Subject::modules(&source, Some("test.yaml"), 16).expect("it is valid");
        assert_eq!(subjects.iter().map(|subject| &subject.name[..]).collect::<Vec<_>>(), ["route", "few"]);
        for subject in subjects {
            let checked = forebay_pipeline::check(&subject.source).unwrap_or_else(|wrong| panic!("{wrong}"));
            assert_eq!((checked.modules.len(), subject.packets_bytes), (1, 100));
            assert_eq!(checked.modules[0].0, subject.name);
            assert_eq!(subject.counted.map(|(origin, _)| origin).as_deref(), Some("test.yaml"));
        }
        // Without a generator, the packets are those of the function's example.
        let text = text.replace("generator: { size: 100, destination: 10.0.0.0/16 }", "tap: { interface: t0 }");
        let subjects = Subject::modules(&Source::new(text, "test.yaml", ""), None, 16).expect("it is valid");
        for subject in subjects {
            forebay_pipeline::check(&subject.source).unwrap_or_else(|wrong| panic!("{wrong}"));
            assert!(subject.counted.is_none());
        }
        // Regression: a module was refused by itself if a parameter named a metadata word.
        let text = "ports: { in: { generator: }, out: { sink: } }\nmodules:\n  \
                    route: { ip_lookup: { routes: [0.0.0.0/0 0], to: word } }\n  \
                    slow: { shaper: { rate: 10Mbps, burst: 16KiB, key: { word: next_hop }, held: 64 } }\n\
                    pipeline: [in -> route -> slow -> out]\n";
        let subjects = Subject::modules(&Source::new(text, "test.yaml", ""), None, 16).expect("it is valid");
        assert_eq!(subjects.len(), 2);
        for subject in subjects {
            forebay_pipeline::check(&subject.source).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    }

    #[test]
    fn pipeline_names_are_not_function_names() {
        assert!(["usecase:gw", "edge.yaml", "-", "a/b"].into_iter().all(is_pipeline));
        assert!(!["acl", "alc"].into_iter().any(is_pipeline));
    }
}
