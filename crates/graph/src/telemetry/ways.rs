//! Where packets of flows with a rate objective may be turned away: a flow that is below its rate has only missed it where some
//! were.

use super::Telemetry;
use crate::flow::Passages;
use crate::layout;
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
    pub(crate) fn all(passages: &mut Passages<'_>, flows: &[FlowPlan], leaders: &[usize]) -> Vec<Self> {
        let stated = flows.iter().enumerate().filter(|(_, plan)| plan.min_rate.is_some());
        let way = |(flow, plan): (usize, &FlowPlan)| {
            let modules = layout::way(passages, plan, leaders);
            let enters =
                |entry: Option<Target>| matches!(entry, Some(Target::Module(at)) if modules.contains(&leaders[at]));
            let ports = passages.shape().ports.iter().enumerate().filter(|(_, (_, entry))| enters(*entry));
            let ports = ports.map(|(port, _)| port).collect();
            Self { flow, modules, ports }
        };
        stated.map(way).collect()
    }

    /// Packets that its modules turned away; other flows' that share it included.
    pub(crate) fn turned_away(&self, telemetry: &Telemetry) -> u64 {
        self.modules.iter().map(|at| telemetry.modules[*at].turned_away.get()).sum()
    }

    /// By port: its name, and packets that it lost before they entered, of whatever flow.
    pub(crate) fn lost<'t>(&'t self, telemetry: &'t Telemetry) -> impl Iterator<Item = (String, u64)> + 't {
        let ports = self.ports.iter().map(|at| &telemetry.ports[*at]);
        ports.map(|port| (port.name.clone(), port.counters.dropped.get()))
    }
}
