//! Writes the pipeline of a placement as `forebay run` reads it: modules, ports, and a worker for each core.

use std::collections::{BTreeMap, BTreeSet};

use forebay_pipeline::{Document, Rules, Source, is_kind_with_secrets, written};
use forebay_units::{Nanos, PacketRate};
use serde_json::{Map, Value, json};

use crate::answer::{Answer, ChainForm};
use crate::chains::{ChainFunction, Chains, ServiceChain};

/// The maximum number of workers of a pipeline.
const MOST_WORKERS: usize = 256;
/// The highest core of a worker.
const MOST_CORE: usize = 4_095;

/// The comment on generators in the pipeline.
const GENERATOR_COMMENT: &str = "# Each generator makes the example packets of the first function of its chain.\n\
                       # Change the generator if your rules or routes drop these packets.\n";
/// The maximum number of flows of a chain.
const MOST_FLOWS: usize = 16;

/// An error when the pipeline of a placement is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PipelineError {
    /// Two chains would receive from one interface.
    #[error(
        "chains '{first}' and '{second}' both receive from interface '{interface}': allowed is one chain for each \
         interface (VLAN interfaces count as separate interfaces)"
    )]
    Shared {
        /// A chain.
        first: String,
        /// The other chain.
        second: String,
        /// Their interface.
        interface: String,
    },
    /// No chain is placed.
    #[error("no chain is placed: a pipeline needs at least one")]
    Empty,
    /// The placement has too many cores.
    #[error("the placement has {0} cores: a pipeline has up to {MOST_WORKERS} workers")]
    Workers(usize),
    /// No worker can run on the core.
    #[error("core {0}: a pipeline's workers run on cores 0 to {MOST_CORE}")]
    Core(usize),
}

/// The text of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineText {
    /// The text.
    pub text: String,
    /// True if the text may contain a secret, so that only its owner may read the file.
    pub has_secrets: bool,
}

/// Writes the pipeline of a placement. A chain with an interface has a port of the type `af_packet`. A chain without an
/// interface has a generator of packets for its first function, and a sink. If `spare` is set, each core without
/// functions also gets a worker, so that modules can move there later.
///
/// # Errors
/// Returns [`PipelineError`] if no pipeline can have this placement.
pub fn pipeline(chains: &Chains, answer: &Answer, spare: bool) -> Result<PipelineText, PipelineError> {
    let placed: Vec<_> = answer.chains.iter().collect();
    let find = |name: &str| chains.chains.iter().find(|chain| chain.name == name);
    let sections: Vec<&ServiceChain> = placed.iter().filter_map(|chain| find(&chain.chain)).collect();
    if sections.is_empty() {
        return Err(PipelineError::Empty);
    }
    let mut workers = Vec::new();
    for (chain, section) in placed.iter().zip(&sections) {
        for (at, seat) in chain.seats.iter().enumerate() {
            let modules: Vec<_> = match chain.form {
                ChainForm::Pipelined => vec![section.functions[at].module.as_str()],
                ChainForm::Fused => section.functions.iter().map(|function| function.module.as_str()).collect(),
            };
            if seat.core > MOST_CORE {
                return Err(PipelineError::Core(seat.core));
            }
            workers.push(json!({ "core": seat.core, "modules": modules }));
        }
    }
    let cores = answer.domains.iter().flat_map(|domain| &domain.cores);
    let free =
        cores.filter(|core| spare && core.chain.is_none()).map(|core| json!({ "core": core.core, "modules": [] }));
    workers.extend(free);
    if workers.len() > MOST_WORKERS {
        return Err(PipelineError::Workers(workers.len()));
    }
    let head = format!(
        "# The placement of {} on {} by `forebay place`: {} of {} cores.\n{}",
        chains.name,
        answer.topology,
        answer.cores_used,
        answer.cores_usable,
        if sections.iter().any(|chain| chain.interface.is_none()) { GENERATOR_COMMENT } else { "" }
    );
    text(chains, &sections, &head, &workers)
}

/// Returns the pipeline of all chains on one worker, with a separate port for each chain. The caller examines the
/// modules of this pipeline one by one.
///
/// # Errors
/// Chains that [`Chains::read`] has returned cause no error.
pub fn unplaced(chains: &Chains) -> Result<Source, PipelineError> {
    let mut own = chains.chains.clone();
    for (at, chain) in own.iter_mut().enumerate() {
        (chain.interface, chain.to) = (Some(format!("chain{at}")), None);
    }
    let sections: Vec<_> = own.iter().collect();
    let PipelineText { text, .. } = text(chains, &sections, "", &[])?;
    Ok(Source::new(text, chains.source.file(), chains.source.base()))
}

/// Returns the text of a pipeline of the chains `sections`. `head` is the comment at its start. Without `workers`, the
/// section `workers` is left out.
fn text(
    chains: &Chains,
    sections: &[&ServiceChain],
    head: &str,
    workers: &[Value],
) -> Result<PipelineText, PipelineError> {
    let mut ports = Ports::of(sections);
    let mut lines = Vec::new();
    let mut flows = Vec::new();
    let mut names: BTreeSet<_> = sections.iter().map(|chain| chain.name.clone()).collect();
    for chain in sections {
        let (from, to) = ports.of_chain(chain)?;
        lines.extend(wires(chain, &from, &to));
        flows.extend(self::flows(chain, &mut names));
    }
    let functions = || sections.iter().flat_map(|chain| &chain.functions);
    let parameters: Vec<_> = functions().map(|function| &function.params).collect();
    let state = used(&chains.state, &parameters);
    let mut all = Map::new();
    all.insert("name".to_owned(), json!(chains.name));
    if chains.batch != 32 {
        all.insert("batch".to_owned(), json!(chains.batch));
    }
    all.insert("ports".to_owned(), Value::Object(ports.sections));
    if !state.is_empty() {
        all.insert("state".to_owned(), Value::Object(state));
    }
    all.insert("pipeline".to_owned(), json!(lines));
    all.insert("flows".to_owned(), json!(flows));
    if !workers.is_empty() {
        all.insert("workers".to_owned(), json!(workers));
    }
    let mut text = head.to_owned();
    // Sections and modules are written one by one, because the keys of a map would be sorted by name.
    for name in ["name", "batch", "ports", "state", "modules", "pipeline", "flows", "workers"] {
        if name == "modules" {
            text.push_str("modules:\n");
            functions().for_each(|function| text.push_str(&module(function)));
        } else if let Some(value) = all.get(name) {
            text.push_str(&written(&json!({ name: value })));
        }
    }
    let has_secrets = functions().any(|function| is_kind_with_secrets(function.function));
    Ok(PipelineText { text, has_secrets })
}

/// Returns the lines of a module in the section `modules`.
fn module(function: &ChainFunction) -> String {
    let params = if function.params.is_null() { json!({}) } else { function.params.clone() };
    let section = written(&json!({ "modules": { &*function.module: { function.function: params } } }));
    section.split_once('\n').map(|(_, entry)| entry.to_owned()).unwrap_or_default()
}

/// Returns the states that the modules' parameters name. Other states may belong to chains that are not placed.
fn used(state: &Value, parameters: &[&Value]) -> Map<String, Value> {
    fn names(value: &Value, text: &str) -> bool {
        match value {
            Value::String(other) => other == text,
            Value::Array(list) => list.iter().any(|item| names(item, text)),
            Value::Object(map) => map.values().any(|item| names(item, text)),
            _ => false,
        }
    }
    let Value::Object(mut all) = state.clone() else { return Map::new() };
    all.retain(|name, _| parameters.iter().any(|parameters| names(parameters, name)));
    all
}

/// The ports of a pipeline.
struct Ports {
    /// By port: its section.
    sections: Map<String, Value>,
    /// The names that are in use.
    taken: BTreeSet<String>,
    /// By interface: its port, and the chain that receives from it, if there is one.
    interfaces: BTreeMap<String, (String, Option<String>)>,
}

impl Ports {
    /// Creates an empty list. The names of the chains' modules are in use already.
    fn of(chains: &[&ServiceChain]) -> Self {
        let taken = chains.iter().flat_map(|chain| &chain.functions).map(|function| function.module.clone()).collect();
        Self { sections: Map::new(), taken, interfaces: BTreeMap::new() }
    }

    /// Adds a port. Returns the port's name: `name` with `_` for characters that are not allowed, and with a number if
    /// the name is in use.
    fn add(&mut self, name: &str, port: Value) -> String {
        // Characters that the name of a port must not contain are replaced.
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || "_-".contains(letter) { letter } else { '_' };
        let name: String = name.chars().map(plain).collect();
        let name = name.trim_matches('-').to_owned();
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let name = std::iter::once(name.clone()).chain(numbered).find(|name| !self.taken.contains(name));
        let name = name.unwrap_or_default();
        self.taken.insert(name.clone());
        self.sections.insert(name.clone(), port);
        name
    }

    /// Returns the port of an interface, and adds it if it is new.
    fn of_interface(&mut self, interface: &str) -> String {
        if let Some((port, _)) = self.interfaces.get(interface) {
            return port.clone();
        }
        let port = self.add(interface, json!({ "af_packet": { "interface": interface } }));
        self.interfaces.insert(interface.to_owned(), (port.clone(), None));
        port
    }

    /// Returns the ports where the chain's packets enter and leave, and adds them if they are new. Fails if another
    /// chain already receives from the interface.
    fn of_chain(&mut self, chain: &ServiceChain) -> Result<(String, String), PipelineError> {
        let Some(interface) = &chain.interface else {
            let source = self.add(&format!("{}-in", chain.name), json!({ "generator": traffic(chain) }));
            let sink = self.add(&format!("{}-out", chain.name), json!({ "sink": {} }));
            return Ok((source, sink));
        };
        let from = self.of_interface(interface);
        if let Some((_, receives)) = self.interfaces.get_mut(interface)
            && let Some(first) = receives.replace(chain.name.clone())
        {
            let second = chain.name.clone();
            return Err(PipelineError::Shared { first, second, interface: interface.clone() });
        }
        let to = chain.to.as_ref().map_or_else(|| from.clone(), |to| self.of_interface(to));
        Ok((from, to))
    }
}

/// Returns the parameters of a generator with packets for the chain's first function, at the chain's rate.
fn traffic(chain: &ServiceChain) -> Value {
    let known = forebay_graph::functions();
    let first = chain.functions.first().and_then(|first| known.iter().find(|known| known.name == first.function));
    let text = first.map_or("", |function| function.traffic);
    let read = Document::read(&Source::new(text, "traffic", ""), &Rules::new(Value::Bool(true)));
    let mut traffic = read.map(|document| document.value()).ok().filter(Value::is_object).unwrap_or_else(|| json!({}));
    if let Some(rate) = chain.rate {
        traffic["rate"] = json!(PacketRate(rate).to_string());
    }
    traffic
}

/// Returns the lines of a chain in the section `pipeline`. Packets of all gates of a module go to the next module.
/// `from` and `to` are the chain's ports.
fn wires(chain: &ServiceChain, from: &str, to: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = from.to_owned();
    for (at, function) in chain.functions.iter().enumerate() {
        line.push_str(&format!(" -> {}", function.module));
        let next = chain.functions.get(at + 1).map_or(to, |next| &next.module);
        if function.gates.len() > 1 {
            lines.push(std::mem::take(&mut line));
            let (last, others) = function.gates.split_last().expect("there are several");
            lines.extend(others.iter().map(|gate| format!("{}[{gate}] -> {next}", function.module)));
            line = format!("{}[{last}]", function.module);
        }
    }
    line.push_str(&format!(" -> {to}"));
    lines.push(line);
    lines
}

/// Returns the flows of a chain: one flow with the chain's objective for each path through its gates, because the
/// packets of all gates must keep the objective. If there are more paths than [`MOST_FLOWS`], only the first gates of
/// later functions are used. `taken` has the names of flows that are in use.
fn flows(chain: &ServiceChain, taken: &mut BTreeSet<String>) -> Vec<Value> {
    let mut paths: Vec<Vec<String>> = vec![Vec::new()];
    for (at, function) in chain.functions.iter().enumerate() {
        let gates = &function.gates;
        let is_split = gates.len() > 1 && at + 1 < chain.functions.len();
        let kept = (MOST_FLOWS / paths.len()).clamp(1, gates.len().max(1));
        let steps: Vec<_> = if is_split {
            gates[..kept].iter().map(|gate| format!("{}[{gate}]", function.module)).collect()
        } else {
            vec![function.module.clone()]
        };
        let longer = |path: &Vec<String>| {
            let with = |step: &String| path.iter().chain([step]).cloned().collect();
            steps.iter().map(with).collect::<Vec<Vec<String>>>()
        };
        paths = paths.iter().flat_map(longer).collect();
    }
    let mut names = std::iter::once(chain.name.clone()).chain((2..).map(|number| format!("{}-{number}", chain.name)));
    let mut of_path = |(at, path): (usize, Vec<String>)| {
        // The first flow has the name of the chain.
        let name = names.find(|name| at == 0 || taken.insert(name.clone())).expect("numbers do not end");
        let mut flow = json!({ "name": name, "path": path });
        if let Some(slo) = chain.slo {
            flow["slo"] = json!(Nanos((slo * 1e9).round() as u64).to_string());
        }
        if let Some(percentile) = chain.percentile {
            flow["percentile"] = percentile.into();
        }
        flow
    };
    paths.into_iter().enumerate().map(&mut of_path).collect()
}
