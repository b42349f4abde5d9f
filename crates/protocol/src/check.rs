//! The result of checking a configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// The place as messages show it: `gateway.yaml:12`, or `--set batch=0`.
    pub place: String,
    /// The line in the text, from 1; `None` if the fault is in a setting.
    pub line: Option<u32>,
    /// The column in the line, from 1; `None` if the fault is in a setting.
    pub column: Option<u32>,
    /// The value, what is wrong with it, and what is allowed.
    pub message: String,
}

/// A configuration that was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// All faults, in the order of lines. Without any, the configuration can be loaded.
    pub faults: Vec<Fault>,
    /// The pipeline's name; empty if there are faults, as the following lists are.
    pub pipeline: String,
    /// The modules: name and function.
    pub modules: Vec<(String, String)>,
    /// The ports: name and type.
    pub ports: Vec<(String, String)>,
    /// The declared flows.
    pub flows: Vec<String>,
    /// Warnings about tables: the module and a sentence.
    pub warnings: Vec<(String, String)>,
}
