//! Reads `flows:`, and checks that packets can take the path of each flow.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use forebay_graph::{FlowPlan, Step, Target};
use forebay_protocol::check::Fault;
use forebay_units::{BitRate, Nanos, PacketRate, Rate};

use crate::faults::FaultCollector;
use crate::language::{Flow, Path};
use crate::line::{self, Stop};
use crate::located::SourceLocation;
use crate::section;
use crate::wiring::{Ends, Wiring};
use crate::wording::quote;
use crate::yaml::Node;

/// The name of the flow of all packets that are on no declared path.
const OTHER: &str = "other";
/// The allowed range of rate objectives, in packets or bits per second.
const RATES: RangeInclusive<f64> = 1.0..=1e12;

/// Reads the section. Modules are numbered as in the configuration, not in topological order.
pub(crate) fn read_flows(root: &Node, ends: &Ends, wiring: &Wiring, faults: &mut FaultCollector) -> Vec<FlowPlan> {
    let nodes = root.get("flows").and_then(Node::as_list).unwrap_or_default();
    let mut declared = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        if let Some(flow) = section::read::<Flow>(faults, root, &["flows", &number.to_string()], node) {
            declared.push(DeclaredFlow { number, flow, node });
        }
    }
    plans(ends, wiring, &declared, root.get("control").is_some(), faults)
}

/// A flow of the section.
struct DeclaredFlow<'n> {
    /// The number of the flow in the section, from 0.
    number: usize,
    flow: Flow,
    node: &'n Node,
}

impl DeclaredFlow<'_> {
    /// Returns the place of a key, or the flow's own place if the key is missing.
    fn place(&self, key: &str) -> SourceLocation {
        self.node.get(key).map_or(self.node.place, |value| value.place)
    }

    /// Returns the text of a key; empty if its value is not text.
    fn written(&self, key: &str) -> &str {
        self.node.get(key).and_then(Node::as_text).unwrap_or_default()
    }

    /// Adds a fault of the value of a key.
    fn add(&self, key: &str, fault: Fault, faults: &mut FaultCollector) {
        let path = format!("flows[{}].{key}", self.number);
        faults.add_fault(self.place(key), Fault { path, ..fault });
    }
}

/// Returns the plans of the declared flows, and checks them. `controlled` is true if the configuration names a
/// controller: without one, a rate objective is an error. A controller that ignores rate objectives is allowed, so that
/// controllers can be compared with one file.
fn plans(
    ends: &Ends,
    wiring: &Wiring,
    declared: &[DeclaredFlow<'_>],
    controlled: bool,
    faults: &mut FaultCollector,
) -> Vec<FlowPlan> {
    let mut reach = Reach::new(ends, wiring);
    let (mut flows, mut rates_fit) = (Vec::new(), true);
    let (mut names, mut paths) = (HashMap::new(), HashMap::new());
    for it in declared {
        let DeclaredFlow { flow, .. } = it;
        if let Some(line) = names.insert(flow.name.clone(), line_of(it.place("name"))) {
            let wrong = format!("two flows are called {}{line}", quote(&flow.name));
            it.add("name", Fault::with_hint(wrong, "give each flow its own name"), faults);
        }
        if flow.name == OTHER {
            let wrong = format!("the name '{OTHER}' is reserved for the flow of all other packets");
            it.add("name", Fault::with_hint(wrong, "choose another name"), faults);
        }
        if flow.slo == Some(Nanos(0)) {
            let slo = it.written("slo");
            let wrong = format!("a delay objective of {slo} cannot be met");
            it.add("slo", Fault::wrong_single(slo, wrong, "more than 0"), faults);
        }
        let (least, most) = (*RATES.start(), *RATES.end());
        let wrong = match flow.min_rate {
            Some(Rate::Packets(rate)) if !RATES.contains(&rate.0) => {
                Some((rate.to_string(), format!("{} to {}", PacketRate(least), PacketRate(most))))
            }
            Some(Rate::Bits(rate)) if !RATES.contains(&rate.0) => {
                Some((rate.to_string(), format!("{} to {}", BitRate(least), BitRate(most))))
            }
            _ => None,
        };
        if let Some((rate, allowed)) = wrong {
            let wrong = format!("a rate objective of {rate}");
            it.add("min_rate", Fault::wrong(rate, wrong, allowed), faults);
            rates_fit = false;
        }
        let Some(path) = steps(ends, it, faults) else { continue };
        let own = (flow.name.as_str(), line_of(it.place("path")));
        if let Some((other, line)) = paths.insert(path.clone(), own) {
            let wrong = format!("the flows {} and {} have the same path{line}", quote(other), quote(&flow.name));
            it.add("path", Fault::with_hint(wrong, "remove one, because a packet belongs to one flow"), faults);
            continue;
        }
        let broken = path.windows(2).find(|pair| !reach.leads(pair[0], pair[1].module));
        if let Some([from, to]) = broken {
            let (from, to) = (shown(ends, *from), &ends.modules[to.module].name);
            let name = quote(&flow.name);
            let message = format!("no packet can take the path of flow {name}: nothing leads from '{from}' to '{to}'");
            it.add("path", Fault::new(message), faults);
        }
        flows.push(FlowPlan {
            name: flow.name.clone(),
            path,
            slo: flow.slo,
            percentile: flow.percentile.unwrap_or_default(),
            min_rate: flow.min_rate,
        });
    }
    if let Some(it) = declared.iter().find(|it| it.flow.min_rate.is_some()).filter(|_| !controlled && rates_fit) {
        let hint = "write `scheduler: weighted-fair` and `control: { batching: fair }` too";
        it.add("min_rate", Fault::with_hint("a rate objective needs a controller that keeps it", hint), faults);
    }
    flows
}

/// Returns a reference to the line of the first of two equal things, for a message. Empty for a setting.
fn line_of(place: SourceLocation) -> String {
    if let SourceLocation::Line(line, _) = place { format!(", the first in line {line}") } else { String::new() }
}

/// Returns a step for a message: `module` or `module[gate]`.
fn shown(ends: &Ends, step: Step) -> String {
    let end = &ends.modules[step.module];
    match (step.gate, &end.gates) {
        (Some(gate), Some(gates)) => format!("{}[{}]", end.name, gates[gate]),
        _ => end.name.clone(),
    }
}

/// Returns a flow's path. Returns `None` if a part of the path has an error, which is then in `faults`, or if the path
/// names a module that could not be created.
fn steps(ends: &Ends, of: &DeclaredFlow<'_>, faults: &mut FaultCollector) -> Option<Vec<Step>> {
    let path = of.node.get("path")?;
    let texts: Vec<(&str, SourceLocation)> = match &of.flow.path {
        Path::Text(text) => vec![(text, path.place)],
        Path::List(list) => {
            list.iter().map(String::as_str).zip(path.as_list()?.iter().map(|item| item.place)).collect()
        }
    };
    if texts.is_empty() {
        of.add("path", Fault::with_hint("the path is empty", "name at least one module"), faults);
        return None;
    }
    let mut whole = true;
    let mut steps = Vec::new();
    for (text, place) in texts {
        let read = line::read(text)
            .and_then(|stops| stops.into_iter().map(|stop| step(ends, stop)).collect::<Result<Vec<_>, _>>());
        match read {
            Ok(some) => {
                whole &= some.iter().all(Option::is_some);
                steps.extend(some.into_iter().flatten());
            }
            Err(wrong) => {
                let path = format!("flows[{}].path", of.number);
                faults.add_fault(place, Fault { path, ..Fault::new(wrong) });
                whole = false;
            }
        }
    }
    whole.then_some(steps)
}

/// Returns a step of a flow's path. `Ok(None)` if its module could not be created.
fn step(ends: &Ends, stop: Stop<'_>) -> Result<Option<Step>, String> {
    let Stop { name, gate } = stop;
    if name == line::DROP {
        return Err("a flow's path names modules, not 'drop'".to_owned());
    }
    let module = ends.module(name, "a flow's path names only modules")?;
    match gate {
        None => Ok(Some(Step { module, gate: None })),
        Some(gate) => Ok(ends.gate(module, gate)?.map(|gate| Step { module, gate: Some(gate) })),
    }
}

/// Finds the modules that packets from a given module can reach. Keeps the result of the last search, because
/// consecutive flows often begin with the same step.
struct Reach {
    /// The edges of each module: the gate and the next module. The gate is `None` if the module could not be created.
    edges: Vec<Vec<(Option<usize>, usize)>>,
    /// The first step of the last search.
    searched: Option<Step>,
    /// By module, the number of the last search that reached it.
    rounds: Vec<u32>,
    /// The number of the last search.
    round: u32,
}

impl Reach {
    fn new(ends: &Ends, wiring: &Wiring) -> Self {
        let mut edges = vec![Vec::new(); ends.modules.len()];
        for edge in &wiring.edges {
            if let Target::Module(to) = edge.to {
                edges[edge.from].push((edge.gate, to));
            }
        }
        Self { rounds: vec![0; edges.len()], edges, searched: None, round: 0 }
    }

    /// Returns whether packets that leave `from` can reach the module `to`. If `from` has no gate, packets may leave by
    /// any gate.
    fn leads(&mut self, from: Step, to: usize) -> bool {
        // Most paths name adjacent modules, for which no search is needed.
        let by_gate = |gate: Option<usize>| from.gate.is_none() || gate.is_none() || gate == from.gate;
        if self.edges[from.module].iter().any(|(gate, next)| by_gate(*gate) && *next == to) {
            return true;
        }
        if self.searched != Some(from) {
            self.searched = Some(from);
            self.round += 1;
            let first = self.edges[from.module].iter().filter(|(gate, _)| by_gate(*gate));
            let mut open: Vec<usize> = first.map(|(_, next)| *next).collect();
            while let Some(node) = open.pop() {
                if self.rounds[node] != self.round {
                    self.rounds[node] = self.round;
                    open.extend(self.edges[node].iter().map(|(_, next)| *next));
                }
            }
        }
        self.rounds[to] == self.round
    }
}
