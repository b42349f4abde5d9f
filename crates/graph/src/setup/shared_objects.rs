//! The objects that modules share, and how long each of them lives.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An object that modules share, for example the NAT table of both directions.
pub type SharedState = Arc<dyn Any + Send + Sync>;

/// The key of a shared object: who shares it, and how long it lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKey {
    /// All modules of a configuration share it ([`Setup::once`](super::Setup::once)).
    Configuration(String),
    /// The replicas of a module share it ([`Setup::once_per_module`](super::Setup::once_per_module)).
    Module {
        /// The module's name.
        module: String,
        /// The object's name within the module.
        key: String,
    },
    /// It lasts as long as the pipeline runs ([`Setup::lasting`](super::Setup::lasting)).
    Run(String),
    /// Consecutive configurations hand it over ([`Setup::handed_over`](super::Setup::handed_over),
    /// [`Setup::once_per_worker`](super::Setup::once_per_worker)).
    HandedOver {
        /// The identity of the object, which is the same for all its shares.
        object: HandedOver,
        /// The worker's share of the sessions. 0 for an object that all workers share.
        share: usize,
    },
}

/// Identifies an object that consecutive configurations hand over. This identity is the same for all shares of a table,
/// because a check of a configuration requests only the first share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandedOver {
    /// Describes the content of the object.
    pub key: String,
    /// The number of shares if each worker has its own object. `None` if all workers share one.
    pub shares: Option<usize>,
}

impl ObjectKey {
    /// Returns the identity of an object that configurations hand over. `None` for other objects.
    #[must_use]
    pub fn handed_over(&self) -> Option<&HandedOver> {
        match self {
            Self::HandedOver { object, .. } => Some(object),
            _ => None,
        }
    }
}

/// The states and other objects that the modules of a pipeline share.
#[derive(Default)]
pub struct SharedObjects {
    /// Shared states, by name.
    pub states: BTreeMap<String, SharedState>,
    /// The names of shared states that are defined but could not be created. The fault is reported at the definition.
    pub broken_states: BTreeSet<String>,
    /// The names of shared states that some module has requested.
    pub requested_states: RefCell<BTreeSet<String>>,
    /// The number of requests for states that do not exist.
    pub unknown_states: Cell<u32>,
    /// The objects that modules create once and then share.
    pub shared: BTreeMap<ObjectKey, SharedState>,
    /// The objects that were requested and that configurations hand over. The value is the name of the state or module
    /// that owns the object.
    pub handed_over: BTreeMap<HandedOver, String>,
}
