//! Types of state that modules share, and their creation.

use std::any::Any;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::shared_objects::SharedState;
use super::{Setup, SetupError};
use crate::parameters::read_params;

/// A type of shared state that configurations can define under `state:`.
pub trait DeclareState: Any + Send + Sync + Sized {
    /// The parameters in the form of the configuration.
    type Params: DeserializeOwned + JsonSchema;
    /// The name of the state type.
    const NAME: &'static str;
    /// One line that says what the state is.
    const SUMMARY: &'static str;
    /// The parameters of an example, in YAML.
    const EXAMPLE: &'static str;

    /// Creates the state.
    ///
    /// # Errors
    /// An invalid parameter, with its name.
    fn new(params: Self::Params, setup: &mut Setup<'_>) -> Result<Self, SetupError>;
}

/// A registered type of shared state.
pub struct StateDeclaration {
    /// [`DeclareState::NAME`].
    pub name: &'static str,
    /// [`DeclareState::SUMMARY`].
    pub summary: &'static str,
    /// [`DeclareState::EXAMPLE`].
    pub example: &'static str,
    /// The parameters' JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    build: fn(&Value, &mut Setup<'_>) -> Result<SharedState, SetupError>,
    /// Returns whether a state has this type.
    pub(super) is: fn(&SharedState) -> bool,
}

impl StateDeclaration {
    /// Returns the declaration of a state type.
    #[must_use]
    pub const fn of<S: DeclareState>() -> Self {
        Self {
            name: S::NAME,
            summary: S::SUMMARY,
            example: S::EXAMPLE,
            schema: |generator| generator.subschema_for::<S::Params>(),
            build: |params, setup| Ok(Arc::new(S::new(read_params(params)?, setup)?)),
            is: |state| state.is::<S>(),
        }
    }

    /// Creates the state from its parameters in the form of the configuration.
    ///
    /// # Errors
    /// A missing, unknown or invalid parameter, with its path within the parameters.
    pub fn build(&self, params: &Value, setup: &mut Setup<'_>) -> Result<SharedState, SetupError> {
        (self.build)(params, setup)
    }
}

inventory::collect!(StateDeclaration);

/// Returns all registered types of shared state, sorted by name.
#[must_use]
pub fn states() -> Vec<&'static StateDeclaration> {
    let mut all: Vec<_> = inventory::iter::<StateDeclaration>.into_iter().collect();
    all.sort_by_key(|declaration| declaration.name);
    all
}
