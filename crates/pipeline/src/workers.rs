//! Reads the section `workers:`: the threads, their cores, and the modules that they run.

use std::collections::HashSet;

use forebay_control::Arrangement;
use forebay_graph::{Placement, StateKind, Target, existing_names, nearest};
use forebay_protocol::check::Fault;

use crate::faults::FaultCollector;
use crate::language::{MOST_WORKERS, Worker};
use crate::located::SourceLocation;
use crate::parts::PipelineParts;
use crate::section::{entries, kind_of, read};
use crate::wiring::{Ends, Wiring};
use crate::wording::quote;
use crate::yaml::Node;

/// The workers, and the workers of each module.
pub(crate) struct Workers {
    /// The requested core of each worker.
    pub(crate) cores: Vec<Option<usize>>,
    /// The workers of each module, lowest first. Modules are in order of definition.
    pub(crate) modules: Vec<Vec<usize>>,
    /// By worker: its place in the text, or `None` for a worker with an empty list of modules, which may have nothing
    /// to run. The list is empty if the section is missing.
    places: Vec<Option<SourceLocation>>,
}

impl Workers {
    /// Reads the section. Without this section, there is one worker that runs all modules.
    pub(crate) fn read(root: &Node, faults: &mut FaultCollector) -> Self {
        let nodes = root.get("workers").and_then(Node::as_list).unwrap_or_default();
        let names: Vec<&str> = entries(root, "modules").map(|entry| entry.key.as_str()).collect();
        if let Some(beyond) = nodes.get(MOST_WORKERS) {
            let fault = Fault::not_allowed(format!("{} workers", nodes.len()), format!("1 to {MOST_WORKERS}"));
            faults.add_fault(beyond.place, fault);
        }
        let mut all: Vec<Worker> = Vec::new();
        for (number, node) in nodes.iter().enumerate().take(MOST_WORKERS) {
            all.push(read(faults, root, &["workers", &number.to_string()], node).unwrap_or_default());
        }
        let places: Vec<SourceLocation> = nodes.iter().take(MOST_WORKERS).map(|node| node.place).collect();
        if all.is_empty() {
            all.push(Worker::default());
        }
        for (number, worker) in all.iter().enumerate() {
            if let Some(first) = worker.core.and_then(|core| all[..number].iter().position(|w| w.core == Some(core))) {
                let core = worker.core.unwrap_or_default();
                faults.add(
                    places[number],
                    format!(
                        "worker {number} is bound to the same core {core} as worker {first}: each worker needs its own \
                         core"
                    ),
                );
            }
            let mut seen = HashSet::new();
            if let Some(twice) = worker.modules.iter().flatten().find(|name| !seen.insert(name.as_str())) {
                let fault = Fault::with_hint(format!("{} is listed twice", quote(twice)), "list it once");
                faults.add_fault(places[number], Fault { path: format!("workers[{number}].modules"), ..fault });
            }
            for name in worker.modules.iter().flatten().filter(|name| !names.contains(&name.as_str())) {
                let near = nearest(name, names.iter().copied());
                let known = if near.is_empty() { format!(": {}", existing_names(names.iter().copied())) } else { near };
                faults.add(
                    places[number],
                    format!("workers[{number}].modules: no module is called {}{known}", quote(name)),
                );
            }
        }
        let workers_of = |name: &str| {
            let of = |worker: &Worker| worker.modules.iter().flatten().any(|module| module == name);
            (0..all.len()).filter(|worker| of(&all[*worker])).collect::<Vec<_>>()
        };
        let others: Vec<usize> = (0..all.len()).filter(|worker| all[*worker].modules.is_none()).collect();
        let mut modules = Vec::new();
        for entry in entries(root, "modules") {
            let mut on = workers_of(&entry.key);
            if on.is_empty() {
                on.clone_from(&others);
            }
            if on.is_empty() {
                faults.add(
                    entry.place,
                    format!(
                        "module '{}' runs on no worker: name it in a worker's `modules`, or add a worker without \
                         `modules`",
                        entry.key
                    ),
                );
                on.push(0);
            }
            modules.push(on);
        }
        // A worker with an empty list waits for modules that move to it.
        let waits = |worker: &Worker| worker.modules.as_ref().is_some_and(Vec::is_empty);
        let places = places.iter().zip(&all).map(|(place, worker)| (!waits(worker)).then_some(*place));
        let places = places.collect();
        Self { cores: all.iter().map(|worker| worker.core).collect(), modules, places }
    }

    /// Applies an arrangement, which the controller has made while packets run. The arrangement has precedence over the
    /// text.
    pub(crate) fn arranged(mut self, root: &Node, arrangement: &Arrangement) -> Self {
        self.cores.resize(arrangement.workers, None);
        for (entry, on) in entries(root, "modules").zip(&mut self.modules) {
            if let Some(arranged) = arrangement.modules.get(&entry.key) {
                on.clone_from(arranged);
            }
        }
        self
    }

    /// Adds an error for each module on several workers whose state every packet may change.
    pub(crate) fn check_state(&self, root: &Node, faults: &mut FaultCollector) {
        let known = forebay_graph::functions();
        for (entry, on) in entries(root, "modules").zip(&self.modules).filter(|(_, on)| on.len() > 1) {
            let kind = kind_of(entry).and_then(|kind| known.iter().find(|declaration| declaration.name == kind.key));
            if let Some(kind) = kind.filter(|kind| kind.state == StateKind::Global) {
                faults.add(
                    entry.place,
                    format!(
                        "module '{}' is on {} workers, but {} has state that every packet may change: name the module \
                         in one worker's `modules`",
                        entry.key,
                        on.len(),
                        kind.name
                    ),
                );
            }
        }
    }

    /// Assigns ports to workers. Adds an error for each worker that has nothing to do, and for workers that could wait
    /// for each other.
    ///
    /// `keyed` is true for each module that must run on the worker with a packet's session. `queues` is true for each
    /// port that can be open on several workers. For an arrangement that is made while packets run, `running` has the
    /// present workers of ports. An output port then stays on its workers, because it would be closed otherwise.
    pub(crate) fn place(
        &self,
        ends: &Ends,
        wiring: &Wiring,
        keyed: Vec<bool>,
        queues: &[bool],
        running: Option<&PipelineParts>,
        faults: &mut FaultCollector,
    ) -> Placement {
        let workers = self.cores.len();
        let leads_to = |port: usize| {
            let feeding = wiring.edges.iter().filter(|edge| edge.to == Target::Port(port));
            let mut on: Vec<usize> = feeding.flat_map(|edge| self.modules[edge.from].iter().copied()).collect();
            on.sort_unstable();
            on.dedup();
            on
        };
        let ports = (0..ends.ports.len()).map(|port| {
            let mut on = match (wiring.entries[port], running) {
                (Some((Target::Module(module), _)), _) => self.modules[module].clone(),
                (Some(_), _) => vec![0],
                (None, Some(running)) => running.ports[&ends.ports[port].name].1.clone(),
                (None, None) => leads_to(port),
            };
            if !queues[port] {
                on.truncate(1);
            }
            if on.is_empty() { vec![0] } else { on }
        });
        let ports: Vec<Vec<usize>> = ports.collect();
        let placement = Placement { workers, modules: self.modules.clone(), ports, keyed };
        for (worker, place) in self.places.iter().enumerate().filter_map(|(worker, place)| Some((worker, (*place)?))) {
            let idle = |places: &[Vec<usize>]| !places.iter().any(|on| on.contains(&worker));
            if !placement.modules.is_empty() && idle(&placement.modules) && idle(&placement.ports) {
                faults.add(
                    place,
                    format!(
                        "worker {worker} has nothing to run, because other workers run all modules: remove it, or \
                         write `modules: []` to let it wait for modules"
                    ),
                );
            }
        }
        let edge = |edge: &crate::wiring::Edge| match edge.to {
            Target::Module(to) => Some((edge.from, to)),
            _ => None,
        };
        let edges: Vec<_> = wiring.edges.iter().filter_map(edge).collect();
        if let Some((from, to)) = placement.circle(&edges) {
            let (from, to) = (&ends.modules[from].name, &ends.modules[to].name);
            let place = self.places.iter().flatten().next().copied().unwrap_or(SourceLocation::START);
            faults.add(
                place,
                format!(
                    "packets would go in a circle over workers, by way of '{from}' -> '{to}', and workers could wait \
                     for each other for ever: let packets go from earlier workers to later ones only"
                ),
            );
        }
        placement
    }
}
