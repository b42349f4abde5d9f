//! Controllers: what decides on triggers, hold limits and weights while a pipeline runs. Snapshot in, actions out.
//!
//! A controller is a pure function of the snapshots that it has been given, so that it decides alike on a running pipeline, in
//! simulated time, and on what was recorded.

use std::fmt;

use forebay_protocol::{Decision, Layout, SchedulerKind, Snapshot};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::function::read_params;
use crate::setup::SetupError;

/// Decides, once a period.
pub trait Controller: Send {
    /// Decides on what is to change. `guard`: the part of each delay objective that is kept in reserve, 0 to 1.
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, guard: f64, actions: &mut Decision);
}

/// What a controller says of itself.
pub trait DeclareController: Controller + Sized + 'static {
    /// The parameters as they stand in the configuration; their documentation comments are the help text.
    type Params: DeserializeOwned + JsonSchema;
    /// Its one name.
    const NAME: &'static str;
    /// One line on what it does.
    const SUMMARY: &'static str;
    /// What more a user needs to know.
    const HELP: &'static str;
    /// The parameters of a working example, in YAML.
    const EXAMPLE: &'static str;
    /// The scheduler without which it can do nothing, where there is one.
    const SCHEDULER: Option<SchedulerKind> = None;
    /// Whether it keeps flows' rate objectives.
    const RATES: bool = false;

    /// Makes the controller.
    ///
    /// # Errors
    /// A parameter that makes no sense, named.
    fn new(params: Self::Params) -> Result<Self, SetupError>;
}

/// A registered controller.
pub struct ControllerDeclaration {
    /// [`DeclareController::NAME`].
    pub name: &'static str,
    /// [`DeclareController::SUMMARY`].
    pub summary: &'static str,
    /// [`DeclareController::HELP`].
    pub help: &'static str,
    /// [`DeclareController::EXAMPLE`].
    pub example: &'static str,
    /// [`DeclareController::SCHEDULER`].
    pub scheduler: Option<SchedulerKind>,
    /// [`DeclareController::RATES`].
    pub rates: bool,
    /// The parameters' JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    build: fn(&Value) -> Result<Box<dyn Controller>, SetupError>,
}

impl ControllerDeclaration {
    /// The declaration of a controller.
    #[must_use]
    pub const fn of<C: DeclareController>() -> Self {
        Self {
            name: C::NAME,
            summary: C::SUMMARY,
            help: C::HELP,
            example: C::EXAMPLE,
            scheduler: C::SCHEDULER,
            rates: C::RATES,
            schema: |generator| generator.subschema_for::<C::Params>(),
            build: |params| Ok(Box::new(C::new(read_params(params)?)?)),
        }
    }

    /// Makes the controller from its parameters as they stand in a configuration.
    ///
    /// # Errors
    /// A parameter that is not there, not known or makes no sense, by its path within the parameters.
    pub fn build(&self, params: &Value) -> Result<Box<dyn Controller>, SetupError> {
        (self.build)(params)
    }
}

impl fmt::Debug for ControllerDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControllerDeclaration({})", self.name)
    }
}

inventory::collect!(ControllerDeclaration);

/// All registered controllers, by name.
#[must_use]
pub fn controllers() -> Vec<&'static ControllerDeclaration> {
    let mut all: Vec<_> = inventory::iter::<ControllerDeclaration>.into_iter().collect();
    all.sort_by_key(|declaration| declaration.name);
    all
}
