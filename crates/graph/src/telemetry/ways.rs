//! Where packets of flows with a rate objective may be turned away: a flow that is below its rate has only missed it where some
//! were.

use super::Telemetry;
use crate::flow::{self, Shape};
use crate::plan::{FlowPlan, Target};

/// A flow's way, from ports on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The flow.
    pub flow: usize,
    /// Its modules, those that run for others.
    pub modules: Vec<usize>,
    /// The ports whose packets enter in one of them.
    pub ports: Vec<usize>,
}

impl Way {
    /// The ways of flows with a rate objective. `leaders`: by module, the one that runs for it.
    pub(crate) fn all(shape: &Shape<'_>, flows: &[FlowPlan], leaders: &[usize]) -> Vec<Self> {
        let stated = flows.iter().enumerate().filter(|(_, plan)| plan.min_rate.is_some());
        let way = |(flow, plan): (usize, &FlowPlan)| {
            let mut modules: Vec<usize> = flow::modules_of(shape, plan).into_iter().map(|at| leaders[at]).collect();
            modules.sort_unstable();
            modules.dedup();
            let enters = |entry: Option<Target>| matches!(entry, Some(Target::Module(at)) if modules.binary_search(&leaders[at]).is_ok());
            let ports = shape.ports.iter().enumerate().filter(|(_, (_, entry))| enters(*entry));
            let ports = ports.map(|(port, _)| port).collect();
            Self { flow, modules, ports }
        };
        stated.map(way).collect()
    }

    /// Packets that were turned away on it, or lost before they entered; other flows' that share it included.
    pub(crate) fn turned_away(&self, telemetry: &Telemetry) -> u64 {
        let modules = self.modules.iter().map(|at| telemetry.modules[*at].turned_away.get());
        let ports = self.ports.iter().map(|at| telemetry.ports[*at].counters.dropped.get());
        modules.chain(ports).sum()
    }
}
