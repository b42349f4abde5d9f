//! For each flow with a rate objective, the modules and ports that may drop its packets because of overload. A flow
//! below its rate has missed its objective only if such packets were dropped: otherwise its sources offered less.

use super::Telemetry;
use crate::flow::Passages;
use crate::layout;
use crate::plan::{FlowPlan, Target};

/// A flow's path, from its ports on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The index of the flow.
    pub flow: usize,
    /// The modules that run on its path.
    pub modules: Vec<usize>,
    /// The ports whose packets enter at one of these modules.
    pub ports: Vec<usize>,
}

impl Way {
    /// Returns the paths of flows with a rate objective. `leaders`: by module, the module that runs for it.
    pub(crate) fn all(passages: &mut Passages<'_>, flows: &[FlowPlan], leaders: &[usize]) -> Vec<Self> {
        let limited = flows.iter().enumerate().filter(|(_, plan)| plan.min_rate.is_some());
        let way = |(flow, plan): (usize, &FlowPlan)| {
            let modules = layout::way(passages, plan, leaders);
            let enters =
                |entry: Option<Target>| matches!(entry, Some(Target::Module(at)) if modules.contains(&leaders[at]));
            let ports = passages.shape().ports.iter().enumerate().filter(|(_, (_, entry))| enters(*entry));
            let ports = ports.map(|(port, _)| port).collect();
            Self { flow, modules, ports }
        };
        limited.map(way).collect()
    }

    /// Returns the number of packets that the modules on this path turned away, including packets of other flows.
    pub(crate) fn turned_away(&self, telemetry: &Telemetry) -> u64 {
        self.modules.iter().map(|at| telemetry.modules[*at].turned_away.get()).sum()
    }

    /// Returns, for each port, the port's name, and the number of packets of any flow that the port lost before the
    /// packets entered.
    pub(crate) fn lost<'t>(&'t self, telemetry: &'t Telemetry) -> impl Iterator<Item = (String, u64)> + 't {
        let ports = self.ports.iter().map(|at| &telemetry.ports[*at]);
        ports.map(|port| (port.name.clone(), port.counters.dropped.get()))
    }
}
