//! The plan of a pipeline: a checked configuration, ready to run. The pipeline compiler creates it for the engine.

use std::sync::Arc;

use forebay_packet::PoolOptions;
use forebay_protocol::SchedulerKind;
use forebay_units::{Nanos, Percentile, Rate};

use crate::function::{Function, Reason};
use crate::meter::Meter;
use crate::own_counters::OwnCounters;
use crate::placement::Placement;
use crate::port::{OpenPort, ScheduledSource};
use crate::scheduler::Share;
use crate::table::{NamedTable, Table};

/// The destination of an output gate or of packets that enter by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A module, by its index in [`Plan::modules`].
    Module(usize),
    /// A port, by its index in [`Plan::ports`].
    Port(usize),
    /// The bin: the configuration drops the packets. Counted as `unwanted`.
    Drop,
}

/// A module: a function with its input queue.
pub struct Module {
    /// Its name in the configuration.
    pub name: String,
    /// Its function's name.
    pub kind: &'static str,
    /// Its function. `None` if other workers run it, or if it is taken over from a running worker.
    pub function: Option<Box<dyn Function>>,
    /// The running worker from which the function is taken over. `None` if it is not taken over.
    pub from: Option<usize>,
    /// Output gates in order: name and target.
    pub gates: Vec<(String, Target)>,
    /// The reasons for which its function drops packets, by number.
    pub drops: &'static [Reason],
    /// The reasons for which its function creates packets, by number.
    pub creates: &'static [Reason],
    /// The reasons for which its function consumes packets, by number.
    pub consumes: &'static [Reason],
    /// The function's own counters.
    pub counters: Vec<OwnCounters>,
    /// Tables that may be changed while packets run, by name.
    pub tables: Vec<(String, Arc<dyn Table>)>,
    /// 0: packets pass at once. Otherwise the module runs on exactly this many packets at a time.
    pub trigger: usize,
    /// The longest time that packets wait for the trigger. `None`: derived from the flows' delay objectives.
    pub hold: Option<Nanos>,
    /// The module's share of the worker's time, and the marks of its queue. A scheduler that does not share time uses
    /// only [`when_full`](crate::Marks::when_full).
    pub share: Share,
}

/// A port and the target of its packets.
pub struct PortPlan {
    /// Its name in the configuration.
    pub name: String,
    /// The name of its port type.
    pub kind: &'static str,
    /// The open port. `None` if other workers have it, or if it is taken over from a running worker.
    pub open: Option<OpenPort>,
    /// The running worker from which the open port is taken over. `None` if it is not taken over.
    pub from: Option<usize>,
    /// The target of packets that enter. `None` if none enter.
    pub entry: Option<Target>,
}

/// A step of a flow's path: a module, and the gate by which the flow leaves it, if that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The module, by its index in [`Plan::modules`].
    pub module: usize,
    /// The gate by which the flow leaves it. `None`: any gate.
    pub gate: Option<usize>,
}

/// A flow: the packets that take one path, with their objectives.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// Its name.
    pub name: String,
    /// Modules on its path, in order. Other modules may lie between them.
    pub path: Vec<Step>,
    /// The delay objective.
    pub slo: Option<Nanos>,
    /// The percentile of the delays, or their mean, that must keep the delay objective. The 99th percentile by default.
    pub percentile: Percentile,
    /// The rate objective: the flow gets at least this rate, or all that it offers if that is less.
    pub min_rate: Option<Rate>,
}

/// The plan of one worker of a pipeline. Modules are in topological order: every gate leads to a later module. The
/// plans of several workers are equal, except for the functions and ports of each worker.
pub struct Plan {
    /// The pipeline's name.
    pub name: String,
    /// The largest batch, in packets.
    pub batch: usize,
    /// The scheduler that runs it.
    pub scheduler: SchedulerKind,
    /// The size of the packet pool.
    pub pool: PoolOptions,
    /// The modules, in topological order.
    pub modules: Vec<Module>,
    /// The ports.
    pub ports: Vec<PortPlan>,
    /// The folds ([`Branches`](crate::Branches)). Each has at least two modules, in ascending order, by branch. The
    /// first module has the function for all of them. The others have no function.
    pub folds: Vec<Vec<usize>>,
    /// The declared flows. Empty: every path is a flow of its own.
    pub flows: Vec<FlowPlan>,
    /// The number of the worker that runs this plan.
    pub worker: usize,
    /// The placement of modules and ports on workers.
    pub placement: Arc<Placement>,
    /// The counter of the worker's instructions and core cycles, if requested. The meter is not used with a scheduler
    /// that shares time, because such a scheduler needs the ticks of each timed call.
    pub meter: Option<Box<dyn Meter>>,
}

impl Plan {
    /// Returns the sources among the open ports that have a schedule.
    pub fn scheduled_sources(&mut self) -> impl Iterator<Item = &mut dyn ScheduledSource> {
        self.ports.iter_mut().filter_map(|port| port.open.as_mut()?.port.schedule())
    }

    /// Returns the tables that may be changed while the pipeline runs, in the modules' order. Call it before a worker
    /// takes the plan. Replicas of a module share their tables.
    #[must_use]
    pub fn tables(&self) -> Vec<NamedTable> {
        let tables = self.modules.iter().flat_map(|module| module.tables.iter().map(move |table| (module, table)));
        let named = |(module, (name, table)): (&Module, &(String, Arc<dyn Table>))| NamedTable {
            module: module.name.clone(),
            name: name.clone(),
            table: Arc::clone(table),
        };
        tables.map(named).collect()
    }
}
