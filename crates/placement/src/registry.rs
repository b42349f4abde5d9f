//! Models of functions: the solo rate of each function, and its drop under competition.
//!
//! A registry is one JSON file for one CPU model and one build. Profilers and simulators write it; `forebay place`
//! reads it. All figures are checked when it is read, because the bounds of the search hold only for valid figures.

mod check;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_graph::files::{check_object, read_text, replace_private};
use forebay_models::placement::{Sensitivity, Shape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the file format.
pub const SCHEMA: u32 = 1;
/// The maximum length of a file, in bytes. Such a file holds tens of thousands of functions.
const MOST: u64 = 16 << 20;

/// The models of functions for one CPU model and one build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// The version of the format: [`SCHEMA`].
    pub schema: u32,
    /// The CPU model.
    pub cpu: String,
    /// The build of Forebay.
    pub build: String,
    /// The origin of all figures that have no origin of their own.
    pub origin: ModelOrigin,
    /// The name of the metric x for the demands of functions. A demand is `1/x` (Octans eq. 7).
    pub metric: String,
    /// The loads at which a competing level is 1.
    pub limits: LoadLimits,
    /// The models by function. The key is the function's name, or the name with the parameters in the form of profile
    /// keys (`acl@0123456789abcdef`).
    pub functions: BTreeMap<String, FunctionModel>,
}

/// The origin of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ModelOrigin {
    /// Co-runs on the machine.
    Measured,
    /// Co-runs in the contention simulator.
    Simulated,
    /// Figures of another source.
    Imported,
}

/// The load `Σ 1/x` of the strongest synthetic competitor on all cores that may share a place of contention: a cache, a
/// memory controller or a link. A function's competing level at this place is the load of its competitors as a fraction
/// of this limit. Each limit is above 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadLimits {
    /// The limit of a last-level cache.
    pub cache: f64,
    /// The limit of a memory controller.
    pub memory: f64,
    /// The limit of the link between domains. `None` if the machine has one domain.
    pub link: Option<f64>,
    /// The numbers of cores on which the competitor ran. A server with other numbers of cores has proportional limits.
    /// If it is `None`, the limits are the same for any server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<SharingCores>,
}

/// The numbers of cores that share a place of contention. Each is 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharingCores {
    /// The cores that share a last-level cache: the cores of a domain.
    pub cache: usize,
    /// The cores that share a memory controller: all cores, because packets are in the memory of the network
    /// interface's domain.
    pub memory: usize,
    /// The cores that share a link: the cores of a domain. If it is `None`, `cache` is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<usize>,
}

/// The model of a function: its solo rates, and its drop under competition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionModel {
    /// The packets per second without competitors.
    pub rates: SoloRates,
    /// The metric x. A function with a lower metric has a higher demand. Above 0.
    pub metric: f64,
    /// The drop on the home domain of its chain.
    pub local: DropModel,
    /// The drop on other domains. `None` if it is unknown. It must have the shape of `local`, because the search uses
    /// one shape for a function.
    pub remote: Option<DropModel>,
    /// The length of the packets of the co-runs, in bytes.
    pub packets_bytes: u32,
    /// The number of co-runs to which the model was fitted.
    pub runs: usize,
}

/// The packets per second without competitors. Each rate is above 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoloRates {
    /// The rate with packets in the memory of the function's domain.
    pub local: f64,
    /// The rate with packets in the memory of another domain. `None` if it is unknown.
    pub remote: Option<f64>,
}

/// The drop of a function: `λ = α·f(cache) + β·f(memory or link) + C` (Octans eq. 8). λ is the part of the solo rate
/// that is lost, 0 to 1, and f the competing level ([`LoadLimits`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropModel {
    /// The growth of λ with the competing level.
    pub shape: DropShape,
    /// α. If `fit` is not [`FitMethod::Lms`], the three parameters are 0 or more, and their sum is at most 1.
    pub cache: f64,
    /// β.
    pub memory: f64,
    /// C.
    pub constant: f64,
    /// The root of the mean squared error of λ, over the co-runs to which the model was fitted.
    pub error: f64,
    /// The mean absolute error of λ over co-runs to which the model was not fitted. `None` if there were none.
    #[serde(default)]
    pub held_out: Option<f64>,
    /// Half the width of the 95 % interval of a predicted λ. `None` if it is unknown.
    #[serde(default)]
    pub interval_95: Option<f64>,
    /// The method by which the parameters were found.
    #[serde(default, skip_serializing_if = "FitMethod::is_default")]
    pub fit: FitMethod,
    /// The origin of the figures, if it differs from the [origin of the registry](Registry::origin).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<ModelOrigin>,
}

/// The growth of a drop with the competing level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropShape {
    /// Proportional to the competing level.
    Linear,
    /// `f·(1 + h) / (f + h)` with h above 0.
    Saturating(f64),
}

/// The method by which parameters were found.
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
    /// Returns the parameters in the form of the search.
    #[must_use]
    pub fn sensitivity(&self) -> Sensitivity {
        Sensitivity { cache: self.cache, memory: self.memory, constant: self.constant }
    }
}

impl DropShape {
    /// Returns the shape in the form of the search.
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

/// An error when a registry is read or written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The file cannot be read or written.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The text is not a registry.
    #[error("{file}: not a registry of models: {error}")]
    Form {
        /// The file.
        file: String,
        /// The error of the parser, with line and column.
        error: serde_json::Error,
    },
    /// The file has another version of the format.
    #[error("{file}: schema {found}: allowed is {SCHEMA}")]
    Schema {
        /// The file.
        file: String,
        /// The version of the file.
        found: u64,
    },
    /// A figure is out of range.
    #[error("{file}: {place}{what} is {value}: allowed is {allowed}")]
    Value {
        /// The file.
        file: String,
        /// The function, for example `function 'nat_out': local.`. Empty for figures outside functions.
        place: String,
        /// The name of the figure.
        what: &'static str,
        /// The value.
        value: String,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// The figures of two registries are not compatible.
    #[error("{file}: {what} is {value}: allowed is {allowed}, as in the registry that it is added to")]
    Foreign {
        /// The file that is added.
        file: String,
        /// The name of the figure.
        what: &'static str,
        /// The value.
        value: String,
        /// The value in the registry to which it is added.
        allowed: String,
    },
}

impl Registry {
    /// Creates a registry without functions.
    #[must_use]
    pub fn new(cpu: &str, build: &str, origin: ModelOrigin, metric: &str, limits: LoadLimits) -> Self {
        let [cpu, build, metric] = [cpu, build, metric].map(str::to_owned);
        Self { schema: SCHEMA, cpu, build, origin, metric, limits, functions: BTreeMap::new() }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Returns [`RegistryError`] if the file cannot be read, or if its content is not valid.
    pub fn read(file: &Path) -> Result<Self, RegistryError> {
        let bytes = read_text(file, MOST).map_err(|error| RegistryError::Io { file: file.to_owned(), error })?;
        Self::parse(&bytes, &file.display().to_string())
    }

    /// Parses the content of a file, and checks all figures. `file` is the name of the file for errors.
    ///
    /// # Errors
    /// Returns [`RegistryError`] if the content is not valid.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, RegistryError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u64,
        }
        let form = |error| RegistryError::Form { file: file.to_owned(), error };
        check_object(bytes).map_err(form)?;
        // The version is checked first, because a later format may have other keys.
        let Version { schema } = serde_json::from_slice(bytes).map_err(form)?;
        if schema != u64::from(SCHEMA) {
            return Err(RegistryError::Schema { file: file.to_owned(), found: schema });
        }
        let registry: Self = serde_json::from_slice(bytes).map_err(form)?;
        registry.check(file)?;
        Ok(registry)
    }

    /// Writes the registry to a file that only its owner may read. The file is replaced atomically.
    ///
    /// # Errors
    /// Returns [`RegistryError`] if a figure is out of range, or if the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), RegistryError> {
        self.check(&file.display().to_string())?;
        let io = |error| RegistryError::Io { file: file.to_owned(), error };
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(io)?;
        }
        replace_private(file, self.text().as_bytes()).map_err(io)
    }

    /// Returns the text of the file.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("names and finite numbers can be written") + "\n"
    }

    /// Returns the path in `folder` for the registry of a CPU model, a build and a largest batch.
    #[must_use]
    pub fn file(folder: &Path, cpu: &str, build: &str, batch: usize) -> PathBuf {
        let plain = |text: &str| -> String {
            let letter = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
            text.chars().map(letter).collect()
        };
        folder.join(format!("{}_{}_{batch}.json", plain(cpu), plain(build)))
    }

    /// Adds the functions of another registry. These functions replace functions of the same names. `file` is the name
    /// of the other registry for errors.
    ///
    /// # Errors
    /// Returns [`RegistryError::Foreign`] if the other registry has another metric or other limits, because the demands
    /// of the two registries are then not comparable. After an error, this registry is unchanged.
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

/// Fuzzing: a registry that was parsed from any bytes can be written and parsed again with the same functions.
pub fn fuzz_registry(bytes: &[u8]) {
    if let Ok(registry) = Registry::parse(bytes, "registry.json") {
        let again = Registry::parse(registry.text().as_bytes(), "registry.json").expect("a registry that was written");
        assert!(again.functions.keys().eq(registry.functions.keys()));
    }
}

#[cfg(test)]
mod tests;
