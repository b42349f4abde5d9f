//! Models of functions: how fast each is alone, and how much competitors take of that.
//!
//! A registry is one JSON file for one CPU model and one build. Profilers and simulators write it; `forebay place`
//! reads it. Every figure is checked when it is read, because the search's bounds hold only for such figures.

mod check;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_graph::files::{read_text, replace_private};
use forebay_models::placement::{Sensitivity, Shape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The form of the file.
pub const SCHEMA: u32 = 1;
/// The longest file, in bytes: tens of thousands of functions.
const MOST: u64 = 16 << 20;

/// Models of functions on one CPU model, of one build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// The form: [`SCHEMA`].
    pub schema: u32,
    /// The CPU's model.
    pub cpu: String,
    /// The build of Forebay.
    pub build: String,
    /// Where the figures come from, except for those that name another origin themselves.
    pub origin: ModelOrigin,
    /// The name of the metric x, by which functions' demands are stated: a demand is `1/x` (Octans eq. 7).
    pub metric: String,
    /// The loads at which a competing level is 1.
    pub limits: LoadLimits,
    /// By function: its name, or its name with its parameters, as the profile's keys have it (`acl@0123456789abcdef`).
    pub functions: BTreeMap<String, FunctionModel>,
}

/// Where figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ModelOrigin {
    /// Co-runs on the machine.
    Measured,
    /// Co-runs in the contention simulator.
    Simulated,
    /// Another source's figures.
    Imported,
}

/// The load, `Σ 1/x`, of the strongest synthetic competitor on all cores that may share a place of contention. At this
/// load the competing level is 1. Each is above 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadLimits {
    /// Of a last-level cache.
    pub cache: f64,
    /// Of a memory controller.
    pub memory: f64,
    /// Of the link between domains; `None` where the machine has one domain.
    pub link: Option<f64>,
    /// On how many cores that competitor ran; a server with more or fewer cores gets limits in proportion. `None`: the
    /// limits are those of any server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<SharingCores>,
}

/// The cores that share a place of contention. Each is 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharingCores {
    /// A last-level cache: the cores of a domain.
    pub cache: usize,
    /// A memory controller: all cores, since packets are in the memory of the network interface's domain.
    pub memory: usize,
    /// A link: the cores of a domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<usize>,
}

/// How fast a function is alone, and how much competitors take of that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionModel {
    /// Packets a second without competitors.
    pub rates: SoloRates,
    /// Its metric x: the lower, the more it takes of shared places. Above 0.
    pub metric: f64,
    /// Its drop on its chain's home domain.
    pub local: DropModel,
    /// Its drop elsewhere; `None` where it is unknown. Its shape is that of `local`: the search has one for a function.
    pub remote: Option<DropModel>,
    /// The length of the packets of the co-runs.
    pub packets_bytes: u32,
    /// How many co-runs the model was fitted to.
    pub runs: usize,
}

/// Packets a second without competitors. Each is above 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoloRates {
    /// Packets are in the memory of the function's domain.
    pub local: f64,
    /// Packets are in the memory of another domain; `None` where that is unknown.
    pub remote: Option<f64>,
}

/// The drop of a function: `λ = α·f(cache) + β·f(memory or link) + C` (Octans eq. 8).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropModel {
    /// How λ grows with the competing level.
    pub shape: DropShape,
    /// α. 0 or more, and `α + β + C ≤ 1`, except where `fit` is [`FitMethod::Lms`].
    pub cache: f64,
    /// β.
    pub memory: f64,
    /// C.
    pub constant: f64,
    /// The root of the mean squared error of λ, over the co-runs that the model was fitted to.
    pub error: f64,
    /// The mean absolute error of λ over co-runs that the model was not fitted to; `None` where there were none.
    #[serde(default)]
    pub held_out: Option<f64>,
    /// Half the width of the 95 % interval of a predicted λ; `None` where it is unknown.
    #[serde(default)]
    pub interval_95: Option<f64>,
    /// How the parameters were found.
    #[serde(default, skip_serializing_if = "FitMethod::is_default")]
    pub fit: FitMethod,
    /// Where the figures come from, if not from where the [registry](Registry::origin) says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<ModelOrigin>,
}

/// How a drop grows with the competing level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropShape {
    /// In proportion.
    Linear,
    /// `f·(1 + h) / (f + h)`, h above 0.
    Saturating(f64),
}

/// How parameters were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FitMethod {
    /// Least squares under `α, β, C ≥ 0` and `α + β + C ≤ 1`.
    #[default]
    NonNegative,
    /// The paper's least mean squares, without constraints.
    Lms,
}

impl FitMethod {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl DropModel {
    /// The parameters as the search takes them.
    #[must_use]
    pub fn sensitivity(&self) -> Sensitivity {
        Sensitivity { cache: self.cache, memory: self.memory, constant: self.constant }
    }
}

impl DropShape {
    /// The shape as the search takes it.
    #[must_use]
    pub fn shape(self) -> Shape {
        match self {
            Self::Linear => Shape::Linear,
            Self::Saturating(half) => Shape::Saturating(half),
        }
    }
}

impl From<Shape> for DropShape {
    fn from(shape: Shape) -> Self {
        match shape {
            Shape::Linear => Self::Linear,
            Shape::Saturating(half) => Self::Saturating(half),
        }
    }
}

/// Why a registry cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The file cannot be read or written.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's message.
        error: io::Error,
    },
    /// The text is no registry.
    #[error("{file}: no registry of models: {error}")]
    Form {
        /// The file.
        file: String,
        /// What is wrong, with line and column.
        error: serde_json::Error,
    },
    /// A form of another version.
    #[error("{file}: schema {found}: allowed is {SCHEMA}")]
    Schema {
        /// The file.
        file: String,
        /// Its version.
        found: u64,
    },
    /// A figure that cannot be.
    #[error("{file}: {place}{what} is {value}: allowed is {allowed}")]
    Value {
        /// The file.
        file: String,
        /// The function, such as `function 'nat_out': local.`; empty outside of functions.
        place: String,
        /// The figure's name.
        what: &'static str,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// Figures of two registries do not go together.
    #[error("{file}: {what} is {value}: allowed is {allowed}, as in the registry that it is added to")]
    Foreign {
        /// The file that is added.
        file: String,
        /// The figure's name.
        what: &'static str,
        /// Its value.
        value: String,
        /// That of the registry it is added to.
        allowed: String,
    },
}

impl Registry {
    /// A registry without functions.
    #[must_use]
    pub fn new(cpu: &str, build: &str, origin: ModelOrigin, metric: &str, limits: LoadLimits) -> Self {
        let [cpu, build, metric] = [cpu, build, metric].map(str::to_owned);
        Self { schema: SCHEMA, cpu, build, origin, metric, limits, functions: BTreeMap::new() }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn read(file: &Path) -> Result<Self, RegistryError> {
        let bytes = read_text(file, MOST).map_err(|error| RegistryError::Io { file: file.to_owned(), error })?;
        Self::parse(&bytes, &file.display().to_string())
    }

    /// Reads a file's bytes, and checks all figures. `file` names it in errors.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, RegistryError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u64,
        }
        let form = |error| RegistryError::Form { file: file.to_owned(), error };
        // First: the other keys of a later form are unknown here.
        let Version { schema } = serde_json::from_slice(bytes).map_err(form)?;
        if schema != u64::from(SCHEMA) {
            return Err(RegistryError::Schema { file: file.to_owned(), found: schema });
        }
        let registry: Self = serde_json::from_slice(bytes).map_err(form)?;
        registry.check(file)?;
        Ok(registry)
    }

    /// Writes it to a file that its owner alone may read: at any moment the old one or the new one is there, whole.
    ///
    /// # Errors
    /// [`RegistryError`]: a figure cannot be, or the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), RegistryError> {
        self.check(&file.display().to_string())?;
        let io = |error| RegistryError::Io { file: file.to_owned(), error };
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(io)?;
        }
        replace_private(file, self.text().as_bytes()).map_err(io)
    }

    /// The file's text.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("names and finite numbers can be written") + "\n"
    }

    /// Where the registry of a CPU model, a build and a largest batch is kept in `folder`.
    #[must_use]
    pub fn file(folder: &Path, cpu: &str, build: &str, batch: usize) -> PathBuf {
        let plain = |text: &str| -> String {
            let letter = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
            text.chars().map(letter).collect()
        };
        folder.join(format!("{}_{}_{batch}.json", plain(cpu), plain(build)))
    }

    /// Adds the functions of another registry, which replace those of the same names. `file` names the other one in
    /// errors.
    ///
    /// # Errors
    /// [`RegistryError::Foreign`]: the other one has another metric or other limits, so that its demands mean something
    /// else.
    pub fn add(&mut self, other: Self, file: &str) -> Result<(), RegistryError> {
        let foreign = |what, value: String, allowed: String| {
            let is_same = value == allowed;
            let error = RegistryError::Foreign { file: file.to_owned(), what, value, allowed };
            if is_same { Ok(()) } else { Err(error) }
        };
        foreign("metric", other.metric, self.metric.clone())?;
        let limits = |limits: &LoadLimits| serde_json::to_string(limits).unwrap_or_default();
        foreign("limits", limits(&other.limits), limits(&self.limits))?;
        for (name, mut model) in other.functions {
            if other.origin != self.origin {
                for drop in std::iter::once(&mut model.local).chain(&mut model.remote) {
                    drop.origin.get_or_insert(other.origin);
                }
            }
            self.functions.insert(name, model);
        }
        Ok(())
    }
}

/// Any bytes, for fuzzing: a registry that is read can be written, and is the same when it is read again.
pub fn fuzz_registry(bytes: &[u8]) {
    if let Ok(registry) = Registry::parse(bytes, "registry.json") {
        let again = Registry::parse(registry.text().as_bytes(), "registry.json").expect("a registry that was written");
        assert!(again.functions.keys().eq(registry.functions.keys()));
    }
}

#[cfg(test)]
mod tests;
