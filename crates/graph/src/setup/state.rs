//! Kinds of state that modules share, and how they are made.

use std::any::Any;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Setup, SetupError, SharedState};
use crate::function::read_params;

/// A type of shared state that configurations can define under `state:`.
pub trait DeclareState: Any + Send + Sync + Sized {
    /// The parameters as they stand in the configuration.
    type Params: DeserializeOwned + JsonSchema;
    /// The kind's name.
    const NAME: &'static str;
    /// One line on what it is.
    const SUMMARY: &'static str;
    /// Its parameters in an example, in YAML.
    const EXAMPLE: &'static str;

    /// Makes the state.
    ///
    /// # Errors
    /// A parameter that makes no sense, named.
    fn new(params: Self::Params, setup: &mut Setup<'_>) -> Result<Self, SetupError>;
}

/// A registered kind of shared state.
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
    /// Whether a state is of this kind.
    pub(super) is: fn(&SharedState) -> bool,
}

impl StateDeclaration {
    /// The declaration of a kind of state.
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

    /// Makes the state from its parameters as they stand in a configuration.
    ///
    /// # Errors
    /// A parameter that is not there, not known or makes no sense, by its path within the parameters.
    pub fn build(&self, params: &Value, setup: &mut Setup<'_>) -> Result<SharedState, SetupError> {
        (self.build)(params, setup)
    }
}

inventory::collect!(StateDeclaration);

/// All registered kinds of state, by name.
#[must_use]
pub fn states() -> Vec<&'static StateDeclaration> {
    let mut all: Vec<_> = inventory::iter::<StateDeclaration>.into_iter().collect();
    all.sort_by_key(|declaration| declaration.name);
    all
}
