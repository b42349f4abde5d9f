//! A pipeline that has been checked and is ready to run: what the pipeline compiler hands to the engine.

use std::sync::Arc;

use forebay_packet::PoolOptions;
use forebay_protocol::SchedulerKind;
use forebay_units::{Nanos, Percentile, Rate};

use crate::function::{Function, Reason};
use crate::meter::Meter;
use crate::placement::Placement;
use crate::port::OpenPort;
use crate::scheduler::Share;
use crate::table::{NamedTable, Table};
use crate::telemetry::OwnCounters;

/// Where an output gate or a port's entry leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// To a module, by its place in [`Plan::modules`].
    Module(usize),
    /// Out by a port, by its place in [`Plan::ports`].
    Port(usize),
    /// Dropped, as the configuration says; counted as `unwanted`.
    Drop,
}

/// A module: a function with its input queue.
pub struct Module {
    /// Its name in the configuration.
    pub name: String,
    /// Its function's name.
    pub kind: &'static str,
    /// Its function; `None` where other workers run it, or where a worker that runs already has it.
    pub function: Option<Box<dyn Function>>,
    /// The running worker whose function it takes over.
    pub from: Option<usize>,
    /// Output gates in order: name and target.
    pub gates: Vec<(String, Target)>,
    /// Why its function drops, by number.
    pub drops: &'static [Reason],
    /// Why its function creates packets, by number.
    pub creates: &'static [Reason],
    /// Why packets end in its function, by number.
    pub consumes: &'static [Reason],
    /// The function's own counters.
    pub counters: Vec<OwnCounters>,
    /// Tables that may be changed while packets run, by name.
    pub tables: Vec<(String, Arc<dyn Table>)>,
    /// 0: packets pass at once. Else the module runs on exactly this many packets at a time.
    pub trigger: usize,
    /// The longest that packets wait for the trigger; `None`: derived from the flows' delay objectives.
    pub hold: Option<Nanos>,
    /// What it is given where the scheduler shares time out.
    pub share: Share,
}

/// A port and where its packets go.
pub struct PortPlan {
    /// Its name in the configuration.
    pub name: String,
    /// What kind of port it is.
    pub kind: &'static str,
    /// The open port; `None` where other workers have it, or where a worker that runs already has it.
    pub open: Option<OpenPort>,
    /// The running worker whose open port it takes over.
    pub from: Option<usize>,
    /// Where packets that enter go; `None` where none enter.
    pub entry: Option<Target>,
}

/// A step of a flow's path: a module, and by which gate it is left where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The module, by its place in [`Plan::modules`].
    pub module: usize,
    /// The gate by which the flow leaves it; `None`: any.
    pub gate: Option<usize>,
}

/// A flow: the packets that take one path, with their objectives.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlan {
    /// Its name.
    pub name: String,
    /// Modules on its path, in order; others may lie between.
    pub path: Vec<Step>,
    /// The delay objective.
    pub slo: Option<Nanos>,
    /// Which of its delays must keep it: the 99th percentile by default.
    pub percentile: Percentile,
    /// The rate objective: the flow gets at least that much of what it offers.
    pub min_rate: Option<Rate>,
}

/// A pipeline, ready to run by one worker. Modules are in topological order: every gate leads to a later module. The plans
/// of several workers are alike, but for the functions and ports that each has itself.
pub struct Plan {
    /// The pipeline's name.
    pub name: String,
    /// The largest batch.
    pub batch: usize,
    /// Which scheduler is to run it.
    pub scheduler: SchedulerKind,
    /// The packet pool's size.
    pub pool: PoolOptions,
    /// Modules, in topological order.
    pub modules: Vec<Module>,
    /// Ports.
    pub ports: Vec<PortPlan>,
    /// Modules that run as one ([`fold`](crate::Branches)): by branch, at least two each. The first has the function for all of
    /// them; the others have none.
    pub folds: Vec<Vec<usize>>,
    /// Flows as declared; empty: every path is a flow of its own.
    pub flows: Vec<FlowPlan>,
    /// Which worker's plan this is.
    pub worker: usize,
    /// Which workers run what.
    pub placement: Arc<Placement>,
    /// What counts the worker's instructions and core cycles, where that is wanted. A scheduler that shares time out has no use
    /// for it: it needs the ticks of each call that is timed.
    pub meter: Option<Box<dyn Meter>>,
}

impl Plan {
    /// The tables that may be changed while the pipeline runs, in the modules' order. To be asked before a worker takes
    /// the plan; replicas of a module share theirs.
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
