//! A checked pipeline, in which each function has been created once and no port is open.

use std::collections::BTreeMap;
use std::path::PathBuf;

use forebay_control::Settings;
use forebay_graph::{
    Declaration, Declared, FlowPlan, Function, HandedOver, Placement, PortDeclaration, Share, SharedState, Target,
};
use forebay_protocol::SchedulerKind;

use crate::identity::{Identity, Stamps};
use crate::language::{Buffer, PoolSection};
use crate::yaml::Node;

/// A checked pipeline. Each function has been created once, and the ports are not open. Modules are in topological
/// order, and all indices of modules refer to this order.
pub(crate) struct Draft {
    /// The text as a tree, for the places of later faults.
    pub(crate) root: Node,
    pub(crate) name: String,
    /// The largest batch, in packets.
    pub(crate) batch: usize,
    /// The seed of all random numbers.
    pub(crate) seed: u64,
    /// The requested core of each worker.
    pub(crate) cores: Vec<Option<usize>>,
    pub(crate) scheduler: SchedulerKind,
    pub(crate) pool: PoolSection,
    pub(crate) modules: Vec<ModuleDraft>,
    pub(crate) ports: Vec<PortDraft>,
    /// The target of each port's packets; `None` if no packets enter by the port.
    pub(crate) entries: Vec<Option<Target>>,
    pub(crate) flows: Vec<FlowPlan>,
    /// The workers of each module and port.
    pub(crate) placement: Placement,
    /// The groups of modules that run as one.
    pub(crate) folds: Vec<Vec<usize>>,
    /// The states that modules share, by name.
    pub(crate) state: BTreeMap<String, CreatedState>,
    /// The files that were read during the check.
    pub(crate) reads: Vec<Read>,
    /// The stamps of the files that the text names.
    pub(crate) stamps: Stamps,
    /// The controller and its settings, if there is one.
    pub(crate) control: Option<Settings>,
}

/// A file that was read during the check.
pub(crate) struct Read {
    /// The section that defines its reader.
    pub(crate) section: &'static str,
    /// The reader: a module, port or state.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// A port that is not open.
pub(crate) struct PortDraft {
    pub(crate) name: String,
    pub(crate) kind: &'static PortDeclaration,
    pub(crate) params: serde_json::Value,
}

/// A checked module. The functions of its workers are created later.
pub(crate) struct ModuleDraft {
    pub(crate) name: String,
    pub(crate) kind: &'static Declaration,
    pub(crate) params: serde_json::Value,
    /// The gates with their targets.
    pub(crate) gates: Vec<(String, Target)>,
    pub(crate) buffer: Buffer,
    pub(crate) share: Share,
    /// The function that was created to check the parameters, and its declarations. The first worker uses it later.
    pub(crate) declared: Option<(Box<dyn Function>, Declared)>,
}

impl ModuleDraft {
    /// Returns the module's name and a JSON object for each line that it skipped in the files that it read.
    pub(crate) fn skipped(&self) -> Vec<(String, String)> {
        let tables = self.declared.iter().flat_map(|(_, declared)| &declared.tables);
        let lines = tables.filter(|(name, _)| name == "skipped").map(|(_, table)| table.entries(None, usize::MAX));
        lines.flat_map(Result::unwrap_or_default).map(|line| (self.name.clone(), line)).collect()
    }

    /// Returns the module's name and a sentence for each warning about its tables.
    pub(crate) fn warnings(&self) -> Vec<(String, String)> {
        let tables = self.declared.iter().flat_map(|(_, declared)| &declared.tables);
        let warnings = tables.flat_map(|(_, table)| table.warnings());
        warnings.map(|warning| (self.name.clone(), warning)).collect()
    }
}

/// A shared state.
#[derive(Clone)]
pub(crate) struct CreatedState {
    /// The parameters and files that it was created from.
    pub(crate) identity: Identity,
    pub(crate) object: SharedState,
    /// The objects that the state [hands over](forebay_graph::Setup::handed_over). They are kept here because a state
    /// that is taken over is not created again, and so does not request them again.
    pub(crate) handed_over: Vec<HandedOver>,
}
