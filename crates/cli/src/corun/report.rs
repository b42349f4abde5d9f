//! The results of co-runs as JSON, with their schema.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_corun::machine::{ALLOWED, Caches};
use forebay_corun::metric::{Choice, Verdict};
use forebay_corun::model::{Models, Trial};
use forebay_corun::record::{Seats, Void};
use forebay_corun::{FitMethod, Records};
use forebay_placement::registry::DropShape;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;

/// Co-runs of functions on this machine.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Forebay co-runs")]
pub(super) struct CoRunsReport {
    /// Format version. It changes when a field is removed or changes its meaning. Fields may be added without a new
    /// version.
    pub(super) version: u32,
    /// CPU model.
    pub(super) cpu: String,
    /// Version of Forebay.
    pub(super) forebay: String,
    /// Hash of the program file, 16 digits.
    pub(super) program: String,
    /// Largest batch, in packets.
    pub(super) batch: usize,
    /// The cores that were used.
    pub(super) cores: Seats,
    /// The caches of the function's core.
    pub(super) caches: CachesReport,
    /// The share of a span for which other programs or the host may have had a core. Spans with a larger share are
    /// void.
    pub(super) allowed_away: f64,
    /// True if the measurement was interrupted, so that runs are missing.
    pub(super) interrupted: bool,
    /// The two tests of each metric.
    pub(super) metrics: Vec<Verdict>,
    /// The chosen metric.
    pub(super) metric: ChosenMetric,
    /// The loads at which a competing level is 1; null if there is no run beside a synthetic competitor.
    pub(super) limits: Option<LimitsReport>,
    /// The model of each function, or of each key of a pipeline's module.
    pub(super) functions: BTreeMap<String, FunctionReport>,
    /// The reason for each function without a model.
    pub(super) missing: BTreeMap<String, String>,
    /// The runs that were not used to fit models.
    pub(super) held_out: HeldOutReport,
    /// The reason why there are no parameters for packets in another domain's memory.
    pub(super) remote: &'static str,
    /// The file of models; null without models.
    pub(super) models: Option<String>,
    /// The file of runs.
    pub(super) runs: String,
}

/// The sizes of caches, in bytes.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct CachesReport {
    /// The core's largest private cache.
    pub(super) own: u64,
    /// The last-level cache.
    pub(super) shared: u64,
    /// True if the system does not report the sizes and they are assumed.
    pub(super) are_assumed: bool,
}

/// A metric and the way it was chosen.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct ChosenMetric {
    /// The metric's name.
    pub(super) name: &'static str,
    /// `qualifies`: the metric passes both tests. `circular`: only metrics that contain the rate pass. `none`: no
    /// metric passes.
    pub(super) choice: Choice,
}

/// The loads, `Σ 1/x`, of the strongest synthetic competitors.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct LimitsReport {
    /// Load of the last-level cache.
    pub(super) cache: f64,
    /// Load of the memory.
    pub(super) memory: f64,
}

/// The model of a function.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct FunctionReport {
    /// The function, or the pipeline's module.
    pub(super) name: String,
    /// The rate of the function alone, in packets per second.
    pub(super) rate_pps: f64,
    /// The value of the metric x.
    pub(super) metric: f64,
    /// The parameter α of its drop (cache).
    pub(super) cache: f64,
    /// The parameter β of its drop (memory).
    pub(super) memory: f64,
    /// The parameter C of its drop (constant).
    pub(super) constant: f64,
    /// The parameter h of the saturating form; null if the linear form predicts better.
    pub(super) half: Option<f64>,
    /// `non_negative` or `lms`.
    pub(super) fit: &'static str,
    /// The root of the mean squared error of λ.
    pub(super) error: f64,
    /// The mean absolute error of λ in held-out runs; null with too few runs.
    pub(super) held_out_error: Option<f64>,
    /// Half the width of the 95 % interval of a predicted λ; null with too few runs.
    pub(super) interval_95: Option<f64>,
    /// The trial of the model on held-out runs.
    pub(super) trial: Trial,
    /// Number of valid runs.
    pub(super) runs: usize,
    /// Void runs.
    pub(super) void: Void,
}

/// The runs that were not used to fit models, of all functions whose λ spreads over more than twice the noise.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct HeldOutReport {
    /// Number of runs with a rate in the predicted 95 % interval.
    pub(super) inside: usize,
    /// Number of all held-out runs.
    pub(super) runs: usize,
    /// The share of runs in the interval; null without held-out runs.
    pub(super) share: Option<f64>,
}

impl CoRunsReport {
    /// Reports the requested functions, each given as a key and a name.
    pub(super) fn new(
        records: &Records,
        models: &Models,
        requested: &[(String, String)],
        caches: Caches,
        domains: usize,
        failed: &[(String, String)],
        file: Option<&Path>,
    ) -> Self {
        let mut missing: BTreeMap<String, String> = failed.iter().cloned().collect();
        let mut functions = BTreeMap::new();
        let (mut inside, mut runs) = (0, 0);
        for (key, name) in requested {
            let record = records.functions.get(key);
            let Some((fit, record)) = models.functions.get(key).zip(record) else {
                let why = record.and_then(|record| record.void.why.clone());
                let why = why.unwrap_or_else(|| "too few runs so far".to_owned());
                let why = if name == key { why } else { format!("module '{name}': {why}") };
                missing.entry(key.clone()).or_insert(why);
                continue;
            };
            (inside, runs) = (inside + fit.trial.inside, runs + fit.trial.held_out);
            let (model, local) = (&fit.model, &fit.model.local);
            let report = FunctionReport {
                name: name.clone(),
                rate_pps: model.rates.local,
                metric: model.metric,
                cache: local.cache,
                memory: local.memory,
                constant: local.constant,
                half: if let DropShape::Saturating(half) = local.shape { Some(half) } else { None },
                fit: if local.fit == FitMethod::Lms { "lms" } else { "non_negative" },
                error: local.error,
                held_out_error: local.held_out,
                interval_95: local.interval_95,
                trial: fit.trial,
                runs: model.runs,
                void: record.void.clone(),
            };
            functions.insert(key.clone(), report);
        }
        let Caches { own, shared, are_assumed } = caches;
        let remote = if domains > 1 {
            "packets in another domain's memory are not measured"
        } else {
            "this machine has one memory domain"
        };
        Self {
            version: 1,
            cpu: records.cpu.clone(),
            forebay: records.build.forebay.clone(),
            program: records.build.program.clone(),
            batch: records.batch,
            cores: records.seats.clone(),
            caches: CachesReport { own, shared, are_assumed },
            allowed_away: ALLOWED,
            interrupted: false,
            metrics: models.verdicts.clone(),
            metric: ChosenMetric { name: models.metric.name(), choice: models.choice },
            limits: models.limits.map(|limits| LimitsReport { cache: limits.cache, memory: limits.memory }),
            functions,
            missing,
            held_out: HeldOutReport { inside, runs, share: (runs > 0).then(|| inside as f64 / runs as f64) },
            remote,
            models: file.map(|file| file.display().to_string()),
            runs: String::new(),
        }
    }

    /// Adds whether the measurement was interrupted, and the file of runs.
    pub(super) fn ended(self, interrupted: bool, runs: &Path) -> Self {
        Self { interrupted, runs: runs.display().to_string(), ..self }
    }
}

/// Returns the JSON Schema of `forebay profile --co-runs --json`.
pub(crate) fn schema() -> serde_json::Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    generator.into_root_schema_for::<CoRunsReport>().to_value()
}
