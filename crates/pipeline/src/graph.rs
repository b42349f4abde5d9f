//! Returns the graph of a checked configuration, for drawings.

use std::collections::HashMap;

use forebay_graph::Target;
use forebay_protocol::graph::{GraphEdge, GraphFlow, GraphModule, GraphPort, GraphReport, GraphWorker};
use forebay_units::{Frequency, Rate};

use crate::Source;
use crate::compile::{Conditions, compile};
use crate::draft::Draft;
use crate::problems::Problems;

/// Checks a configuration as [`check`](crate::check) does, and returns its graph.
///
/// # Errors
/// Returns all errors of the configuration, with their places.
pub fn graph(source: &Source) -> Result<GraphReport, Problems> {
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let (draft, _) = compile(source, conditions, None, None)?;
    Ok(draft.graph())
}

impl Draft {
    /// Returns the graph.
    pub(crate) fn graph(&self) -> GraphReport {
        let to = |target: Target| match target {
            Target::Module(module) => Some(self.modules[module].name.clone()),
            Target::Port(port) => Some(self.ports[port].name.clone()),
            Target::Drop => None,
        };
        let folded = self.folds.iter().flat_map(|fold| fold.iter().map(|module| (*module, fold[0])));
        let leaders: HashMap<usize, usize> = folded.collect();
        let modules = self.modules.iter().enumerate().map(|(index, module)| GraphModule {
            name: module.name.clone(),
            function: module.kind.name.to_owned(),
            workers: self.placement.modules[index].clone(),
            folded: leaders.get(&index).map(|leader| self.modules[*leader].name.clone()),
            gates: module.gates.iter().map(|(gate, _)| gate.clone()).collect(),
        });
        let ports = self.ports.iter().zip(&self.placement.ports).map(|(port, workers)| GraphPort {
            name: port.name.clone(),
            kind: port.kind.name.to_owned(),
            workers: workers.clone(),
        });
        let entries = self
            .ports
            .iter()
            .zip(&self.entries)
            .filter_map(|(port, entry)| Some(GraphEdge { from: port.name.clone(), gate: None, to: to((*entry)?) }));
        let gates = self.modules.iter().flat_map(|module| {
            let edge = |(gate, target): &(String, Target)| GraphEdge {
                from: module.name.clone(),
                gate: Some(gate.clone()),
                to: to(*target),
            };
            module.gates.iter().map(edge)
        });
        let step = |step: &forebay_graph::Step| {
            let module = &self.modules[step.module];
            match step.gate.and_then(|gate| module.gates.get(gate)) {
                Some((gate, _)) => format!("{}[{gate}]", module.name),
                None => module.name.clone(),
            }
        };
        let flows = self.flows.iter().map(|flow| GraphFlow {
            name: flow.name.clone(),
            path: flow.path.iter().map(step).collect(),
            slo_us: flow.slo.map(|slo| slo.0 as f64 / 1e3),
            percentile: flow.percentile,
            min_rate_pps: flow.min_rate.and_then(Rate::packets),
            min_rate_bps: flow.min_rate.and_then(Rate::bits),
        });
        GraphReport {
            version: GraphReport::VERSION,
            pipeline: self.name.clone(),
            batch: self.batch,
            scheduler: self.scheduler,
            workers: self.cores.iter().enumerate().map(|(id, core)| GraphWorker { id, core: *core }).collect(),
            modules: modules.collect(),
            ports: ports.collect(),
            edges: entries.chain(gates).collect(),
            flows: flows.collect(),
        }
    }
}
