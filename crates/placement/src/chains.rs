//! CHAINS.yaml: the chains to place, with their functions, rates and objectives.
//!
//! The sections `state` and `modules` have the same form as in a pipeline, so a pipeline's modules can be copied. A
//! chain lists modules, or functions that need no parameters, in the order in which its packets pass them. Each use of
//! a module in a chain becomes a separate module.

mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

use forebay_graph::SetupError;
use forebay_pipeline::{Document, Fault, Problems, Rules, Source, listed, nearest, on_one_line};
use forebay_units::{Nanos, PacketRate, Percentile};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::Value;

pub use schema::schema;

/// The maximum number of chains in a file.
pub const MOST_CHAINS: usize = 256;
/// The maximum number of functions of a chain.
pub const MOST_FUNCTIONS: usize = 64;
/// The maximum number of copies of a chain.
pub const MOST_COPIES: usize = 64;

/// A checked file of chains.
#[derive(Clone, Debug)]
pub struct Chains {
    /// The name of the pipeline. The default is the name of the file.
    pub name: String,
    /// The largest batch, in packets.
    pub batch: usize,
    /// The chains, in the order of the file.
    pub chains: Vec<ServiceChain>,
    /// The models that the file states, by the name of the module or function in chains.
    pub models: BTreeMap<String, String>,
    /// The section `state`.
    pub(crate) state: Value,
    /// The text of the file, with its name and its folder.
    pub(crate) source: Source,
}

/// A chain of functions for a class of traffic.
#[derive(Clone, Debug)]
pub struct ServiceChain {
    /// The chain's name.
    pub name: String,
    /// The functions, in the order in which packets pass them. Not empty.
    pub functions: Vec<ChainFunction>,
    /// The packets per second that arrive. `None` if no rate is stated.
    pub rate: Option<f64>,
    /// The value of a packet. Above 0.
    pub weight: f64,
    /// The delay objective, in seconds.
    pub slo: Option<f64>,
    /// The percentile of the packets' delays that must keep the objective. `None` if it is not stated.
    pub percentile: Option<Percentile>,
    /// The network interface where packets enter. Packets also leave there if `to` is `None`.
    pub interface: Option<String>,
    /// The network interface where packets leave.
    pub to: Option<String>,
    /// The memory domain of the chain's packets. If it is `None`, the interface determines the domain.
    pub home: Option<usize>,
    /// The maximum number of copies of the whole chain. Each copy runs on one core, instead of a core for each
    /// function. 0 if copies are not allowed.
    pub copies: usize,
}

/// A function of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainFunction {
    /// The name in the chain.
    pub name: String,
    /// The unique name of the function's module in the pipeline.
    pub module: String,
    /// The function.
    pub function: &'static str,
    /// The parameters. Null if the function needs none.
    pub(crate) params: Value,
    /// The names of the module's gates.
    pub(crate) gates: Vec<String>,
}

/// A chain in the form of the file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChainSection {
    /// The chain's name: letters, digits, `_`, and `-` between them.
    #[schemars(regex(pattern = "^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?$"))]
    name: String,
    /// The functions in the order in which packets pass them: names under `modules`, or functions that need no
    /// parameters.
    #[schemars(length(min = 1))]
    functions: Vec<String>,
    /// The packets per second that arrive, 1pps to 1000Gpps. Without it, the chain has no stated rate.
    rate: Option<PacketRate>,
    /// The value of a packet, relative to those of other chains. The default is 1.
    #[schemars(extend("minimum" = 1e-6, "maximum" = 1e6))]
    weight: Option<f64>,
    /// The delay objective, 1us to 10s. The chain is placed only if its predicted rate keeps the objective.
    slo: Option<Nanos>,
    /// The part of the packets' delays that must keep the objective, as a percentile (99 by default), or `mean`.
    percentile: Option<Percentile>,
    /// The network interface where packets enter. The domain of its node is the chain's home: its memory contains the
    /// packets.
    #[schemars(length(min = 1))]
    interface: Option<String>,
    /// The network interface where packets leave. The default is `interface`.
    #[schemars(length(min = 1))]
    to: Option<String>,
    /// The home domain, from 0, as `forebay place` numbers them. It takes precedence over the domain of `interface`.
    home: Option<usize>,
    /// The maximum number of copies of the whole chain. Each copy runs on one core, instead of a core for each
    /// function, and the copies share the sessions. At most 64; the default is 0: no copies.
    #[schemars(range(max = MOST_COPIES))]
    copies: Option<usize>,
}

impl Chains {
    /// Reads and checks a file of chains. Creates the functions, and reads the files that the functions name.
    ///
    /// # Errors
    /// Returns all faults, each with its location in the file.
    pub fn read(source: &Source) -> Result<Self, Problems> {
        let document = Document::read(source, rules())?;
        let value = document.value();
        let sections = &value["chains"];
        let count = sections.as_array().map_or(0, Vec::len);
        if count > MOST_CHAINS {
            let fault = Fault::not_allowed(format!("{count} chains"), format!("1 to {MOST_CHAINS}"));
            return Err(document.problems([Fault { path: "chains".to_owned(), ..fault }]));
        }
        let mut faults = Vec::new();
        let sections: Vec<ChainSection> = (0..count).filter_map(|at| section(&sections[at], at, &mut faults)).collect();
        if !faults.is_empty() {
            return Err(document.problems(faults));
        }
        check(&sections, &mut faults);
        let mut names = Names { modules: value["modules"].as_object(), taken: BTreeSet::new(), used: BTreeSet::new() };
        let chains = sections.into_iter().enumerate();
        let chains: Vec<_> = chains.map(|(at, section)| names.chain(section, at, &mut faults)).collect();
        names.check_used(&mut faults);
        let models: BTreeMap<String, String> = serde_json::from_value(value["models"].clone()).unwrap_or_default();
        if faults.is_empty() {
            check_models(&models, &chains, &mut faults);
        }
        if !faults.is_empty() {
            return Err(document.problems(faults));
        }
        // The modules are checked here, where faults have a location in the file. The copies that chains make of
        // modules have no location.
        document.modules()?;
        let stem = std::path::Path::new(source.file()).file_stem().map(|stem| on_one_line(&stem.to_string_lossy()));
        let name = value["name"].as_str().map(str::to_owned).or(stem).unwrap_or_default();
        let batch = value["batch"].as_u64().and_then(|batch| usize::try_from(batch).ok()).unwrap_or(32);
        let mut all = Self { name, batch, chains, models, state: value["state"].clone(), source: source.clone() };
        all.find_gates()?;
        Ok(all)
    }

    /// Returns all functions, chain by chain.
    pub fn functions(&self) -> impl Iterator<Item = &ChainFunction> {
        self.chains.iter().flat_map(|chain| &chain.functions)
    }

    /// Returns whether parameters of modules or of state name this file, for example as a table or as rules.
    #[must_use]
    pub fn reads_file(&self, file: &Path) -> bool {
        fn is_named(value: &Value, is_it: &dyn Fn(&str) -> bool) -> bool {
            match value {
                Value::String(text) => is_it(text),
                Value::Array(list) => list.iter().any(|item| is_named(item, is_it)),
                Value::Object(map) => map.values().any(|item| is_named(item, is_it)),
                _ => false,
            }
        }
        let base = Path::new(self.source.base());
        let is_it = |text: &str| is_same_file(&base.join(text), file);
        is_named(&self.state, &is_it) || self.functions().any(|function| is_named(&function.params, &is_it))
    }

    /// Returns the modules of all chains and their state as sections of a pipeline.
    #[must_use]
    pub fn modules(&self) -> Source {
        let text = forebay_pipeline::written(&Value::Object(self.sections()));
        Source::new(text, self.source.file(), self.source.base())
    }

    /// Returns the sections `state` and `modules` of a pipeline with the modules of all chains.
    pub(crate) fn sections(&self) -> serde_json::Map<String, Value> {
        let module = |function: &ChainFunction| {
            let kind = serde_json::Map::from_iter([(function.function.to_owned(), function.params.clone())]);
            (function.module.clone(), Value::Object(kind))
        };
        let mut sections = serde_json::Map::new();
        if self.state.as_object().is_some_and(|state| !state.is_empty()) {
            sections.insert("state".to_owned(), self.state.clone());
        }
        sections.insert("modules".to_owned(), Value::Object(self.functions().map(module).collect()));
        sections
    }

    /// Creates the modules of all chains, and stores the names of their gates. Fails if a module cannot be created.
    fn find_gates(&mut self) -> Result<(), Problems> {
        let made = Document::read(&self.modules(), &Rules::new(Value::Bool(true)))?.modules()?;
        let mut gates: BTreeMap<_, _> = made.into_iter().map(|module| (module.name, module.gates)).collect();
        for function in self.chains.iter_mut().flat_map(|chain| &mut chain.functions) {
            function.gates = gates.remove(&function.module).unwrap_or_default();
        }
        Ok(())
    }
}

/// Returns the schema with which files are checked. It is built once.
fn rules() -> &'static Rules {
    static RULES: OnceLock<Rules> = OnceLock::new();
    RULES.get_or_init(|| Rules::new(schema()))
}

/// Returns `fault` as a fault of the chain `at`, or of the value at `keys` in its section if there are keys.
fn fault_of(at: usize, keys: &[&str], fault: Fault) -> Fault {
    let keys: String = keys.iter().map(|key| format!(".{key}")).collect();
    Fault { path: format!("chains[{at}]{keys}"), ..fault }
}

/// Parses the chain `at`, whose form the schema allows. If it is invalid, adds a fault and returns `None`.
fn section(value: &Value, at: usize, faults: &mut Vec<Fault>) -> Option<ChainSection> {
    let name = value["name"].as_str().unwrap_or_default();
    let count = value["functions"].as_array().map_or(0, Vec::len);
    if count > MOST_FUNCTIONS {
        let value = format!("{count} functions");
        let wrong = format!("chain '{name}': {value}");
        let fault = Fault::wrong(value, wrong, format!("1 to {MOST_FUNCTIONS}"));
        faults.push(fault_of(at, &["functions"], fault));
        return None;
    }
    serde_json::from_value(value.clone())
        .map_err(|error| faults.push(fault_of(at, &[], Fault::new(format!("chain '{name}': {error}")))))
        .ok()
}

/// Checks values that the schema does not bound.
fn check(sections: &[ChainSection], faults: &mut Vec<Fault>) {
    let mut seen = BTreeMap::new();
    for (at, chain) in sections.iter().enumerate() {
        let name = &chain.name;
        let mut fault = |keys: &[&str], fault: Fault| {
            let message = format!("chain '{name}': {}", fault.message);
            faults.push(fault_of(at, keys, Fault { message, ..fault }));
        };
        if let Some(first) = seen.insert(name.as_str(), at) {
            let wrong = format!("chain {first} has this name already");
            fault(&["name"], Fault::with_hint(wrong, "give each chain its own name"));
        }
        if let Some(PacketRate(rate)) = chain.rate.filter(|rate| !(1.0..=1e12).contains(&rate.0)) {
            let wrong = format!("rate {rate} pps");
            fault(&["rate"], Fault::wrong(PacketRate(rate), wrong, "1pps to 1000Gpps"));
        }
        if let Some(slo) = chain.slo.filter(|slo| !(1_000..=10_000_000_000).contains(&slo.0)) {
            fault(&["slo"], Fault::wrong(slo, format!("slo {slo}"), "1us to 10s"));
        }
        if chain.percentile.is_some() && chain.slo.is_none() {
            let wrong = "a percentile needs a delay objective";
            fault(&["percentile"], Fault::with_hint(wrong, "state `slo`, too"));
        }
        if chain.to.is_some() && chain.interface.is_none() {
            let wrong = "`to` needs `interface`, the interface where packets enter";
            fault(&["to"], Fault::with_hint(wrong, "add `interface`, or remove `to`"));
        }
    }
}

/// Reports models for names that occur in no chain.
fn check_models(models: &BTreeMap<String, String>, chains: &[ServiceChain], faults: &mut Vec<Fault>) {
    let all = chains.iter().flat_map(|chain| &chain.functions).map(|function| function.name.as_str());
    let all: BTreeSet<_> = all.collect();
    for name in models.keys().filter(|name| !all.contains(name.as_str())) {
        let names = || all.iter().copied();
        let path = format!("models.{name}");
        let wrong = format!("{path}: no chain uses '{name}'{}", nearest(name, names()));
        faults.extend(SetupError::wrong_name(path, name, wrong, names()).faults);
    }
}

/// Resolves the names in chains, and gives names to their modules in the pipeline.
struct Names<'v> {
    /// The section `modules` of the file.
    modules: Option<&'v serde_json::Map<String, Value>>,
    /// The names of modules in the pipeline so far.
    taken: BTreeSet<String>,
    /// The modules of the file that a chain names.
    used: BTreeSet<String>,
}

impl Names<'_> {
    /// Returns the chain `at`. Adds a fault for each function that does not exist.
    fn chain(&mut self, section: ChainSection, at: usize, faults: &mut Vec<Fault>) -> ServiceChain {
        let mut functions = Vec::new();
        for (index, name) in section.functions.iter().enumerate() {
            match self.function(name) {
                Ok((function, params)) => {
                    let module = self.unique(&format!("{}-{name}", section.name));
                    functions.push(ChainFunction { name: name.clone(), module, function, params, gates: Vec::new() });
                }
                Err(message) => {
                    let message = format!("chain '{}': {message}", section.name);
                    faults.push(fault_of(at, &["functions", &index.to_string()], Fault::new(message)));
                }
            }
        }
        ServiceChain {
            name: section.name,
            functions,
            rate: section.rate.map(|rate| rate.0),
            weight: section.weight.unwrap_or(1.0),
            slo: section.slo.map(|slo| slo.0 as f64 / 1e9),
            percentile: section.percentile,
            interface: section.interface,
            to: section.to,
            home: section.home,
            copies: section.copies.unwrap_or(0),
        }
    }

    /// Returns the function of the module with this name, or otherwise the function with this name, with its
    /// parameters. Returns the fault as a text if there is no such module or function, or if the function needs
    /// parameters.
    fn function(&mut self, name: &str) -> Result<(&'static str, Value), String> {
        let known = forebay_graph::functions();
        let find = |name: &str| known.iter().find(|function| function.name == name);
        if let Some(kinds) = self.modules.and_then(|modules| modules.get(name)) {
            self.used.insert(name.to_owned());
            let kind = kinds.as_object().and_then(|kinds| kinds.iter().next());
            let found = kind.and_then(|(kind, params)| Some((find(kind)?.name, params.clone())));
            return found.ok_or_else(|| format!("module '{name}' has no function"));
        }
        let Some(function) = find(name) else {
            let modules = self.modules.into_iter().flatten().map(|(name, _)| name.as_str());
            let names = || modules.clone().chain(known.iter().map(|function| function.name));
            let near = nearest(name, names());
            let name = name.escape_debug();
            return Err(format!("there is no module and no function '{name}'{near}: allowed are {}", listed(names())));
        };
        let mut settings = SchemaSettings::draft2020_12();
        settings.inline_subschemas = true;
        let schema = (function.schema)(&mut settings.into_generator()).to_value();
        let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if required.is_empty() {
            return Ok((function.name, Value::Null));
        }
        Err(format!(
            "function '{name}' needs parameters ({}): write `modules: {{ NAME: {{ {name}: {} }} }}` and name NAME here",
            required.join(", "),
            function.example
        ))
    }

    /// Returns a name that is not used yet.
    fn unique(&mut self, name: &str) -> String {
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !self.taken.contains(name));
        let name = free.unwrap_or_default();
        self.taken.insert(name.clone());
        name
    }

    /// Reports modules that occur in no chain, because they would not be placed.
    fn check_used(&self, faults: &mut Vec<Fault>) {
        for (name, _) in self.modules.into_iter().flatten().filter(|(name, _)| !self.used.contains(*name)) {
            let wrong = format!("no chain uses the module '{name}'");
            let fault = Fault::with_hint(wrong, "name it in a chain, or remove it");
            faults.push(Fault { path: format!("modules.{name}"), ..fault });
        }
    }
}

/// Returns whether two paths lead to the same existing file.
#[must_use]
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    number(one).is_some_and(|it| number(other) == Some(it))
}

/// Fuzzing: chains that were read from any bytes have functions with unique names.
pub fn fuzz_chains(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(chains) = Chains::read(&Source::new(text, "chains.yaml", "/nonexistent")) {
        assert!(chains.chains.iter().all(|chain| !chain.functions.is_empty()));
        let names: BTreeSet<_> = chains.functions().map(|function| &function.module).collect();
        assert_eq!(names.len(), chains.functions().count());
    }
}

#[cfg(test)]
mod tests;
