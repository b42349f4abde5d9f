//! Measures the cost of calls of network functions on this machine: `T(b) = T0 + T1·b` for a batch of b packets
//! (Batchy, section 2).
//!
//! A controller that chooses batch sizes needs both terms: larger batches save the fixed term. Both are measured in the
//! running engine ([`bench`]), so that the engine's own cost of a call is included, and fitted ([`fit`]). The results
//! are stored by CPU model and build ([`store`]). `forebay_models::online` corrects them from a running pipeline.

mod bench;
mod fit;
mod pipeline;
mod store;

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_instance::{CoreError, StartError};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Problems, Source, nearest, parameters};
use jiff::Timestamp;
use schemars::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use pipeline::{Found, Pipeline, keys};
pub use store::{Build, Key, Store, StoreError, Unusable, fuzz_profile};

/// The version of the file format.
pub(crate) const SCHEMA: u32 = 1;

/// The name of the module behind the measured function.
const AFTER: &str = "after";

/// Functions whose example needs other settings to do the work of a busy worker, each with these settings. These
/// settings come after the settings of the gate (`FUNCTIONS` in `cases`), and override them.
const FUNCTIONS: &[(&str, &[&str])] = &[
    // The tap would stop copying at its limit. No disk keeps up with a copy of every packet, so it writes to
    // `/dev/null`.
    ("tap", &["modules.tap.tap.file=/dev/null", "modules.tap.tap.most=1000000000000"]),
];

/// The costs of functions on one machine with one build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The version of the file format: 1.
    pub schema: u32,
    /// The machine, the build and the largest batch.
    #[serde(flatten)]
    pub key: Key,
    /// Costs by function. For a function with the parameters of a pipeline's module, the name is its [key](keys):
    /// `acl@0123456789abcdef`.
    pub functions: BTreeMap<String, Costed>,
}

/// The cost of a function's calls: `t0_s + t1_s · packets`, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costed {
    /// The fixed cost of a call, including the engine's. Never negative.
    pub t0_s: f64,
    /// The cost of each packet in the call. Never negative.
    pub t1_s: f64,
    /// The 95 % confidence interval of `t0_s`, cut off at 0.
    pub t0_95_s: [f64; 2],
    /// The 95 % confidence interval of `t1_s`, cut off at 0.
    pub t1_95_s: [f64; 2],
    /// The part of `t0_s` that the engine's stopwatch assigns to no module: choosing the module and taking its packets
    /// from the queue.
    pub dispatch_s: f64,
    /// How well the line fits the time per packet of all batch sizes: the share of its variance that the line explains.
    /// 1 is a perfect fit. `None` if there is no variance.
    pub r2: Option<f64>,
    /// `(T0 + B·T1) / (B·(T0 + T1))` for the largest batch B: the cost of a packet in full batches, relative to its
    /// cost in batches of one. At 1, batches save nothing.
    pub batchiness: f64,
    /// The number of rounds in which each size was measured.
    pub samples: usize,
    /// The measured batch sizes with the time of a call. The time is the lower quartile of all rounds, because
    /// disturbances only add time.
    pub sizes: Vec<Size>,
    /// The share of the measured time that was lost to machine stalls. The costs do not include this time.
    pub stalled: f64,
    /// The time of the measurement.
    pub at: Timestamp,
}

/// The time of calls with one batch size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Packets per call.
    pub packets: f64,
    /// Seconds per call.
    pub call_s: f64,
}

/// The amount of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The largest batch.
    pub batch: usize,
    /// The number of passes over all functions. With several passes, a disturbance of some seconds affects only one of
    /// them.
    pub passes: usize,
    /// The number of times that each size is measured in a pass.
    pub rounds: usize,
    /// The measured time for each function, over all sizes, passes and rounds.
    pub time: Duration,
}

impl Effort {
    /// The allowed values of the largest batch ([`batch`](Self::batch)). The minimum is 4, because fitting a line needs
    /// three sizes.
    pub const BATCHES: std::ops::RangeInclusive<usize> = 4..=forebay_packet::MAX_BATCH;

    /// The default effort for this largest batch.
    #[must_use]
    pub fn new(batch: usize) -> Self {
        Self { batch, passes: 3, rounds: 5, time: Duration::from_millis(600) }
    }

    /// Returns the expected time for `measured` functions or modules, on a machine without stalls.
    #[must_use]
    pub fn expected(&self, measured: usize) -> Duration {
        let sizes = bench::sizes(self.batch).len();
        let spans = u32::try_from(sizes * self.passes * self.rounds * measured).unwrap_or(u32::MAX);
        (self.span(sizes) + bench::SETTLE) * spans
    }

    /// Returns the time for which one size is measured in one round. `sizes` is the number of sizes.
    fn span(&self, sizes: usize) -> Duration {
        let parts = u32::try_from(sizes * self.passes * self.rounds).unwrap_or(u32::MAX).max(1);
        (self.time / parts).max(bench::SHORTEST)
    }
}

/// A profile cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The function does not exist.
    #[error("there is no function '{name}'{near}: `forebay list functions` lists all functions")]
    Unknown {
        /// The requested name.
        name: String,
        /// A suggestion with a similar name, or empty.
        near: String,
    },
    /// The function's pipeline cannot be created.
    #[error(transparent)]
    Pipeline(#[from] Problems),
    /// No core is available.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// The pipeline cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The pipeline failed while it ran.
    #[error("{function}: {reason}")]
    Trouble {
        /// The function.
        function: String,
        /// The cause.
        reason: String,
    },
    /// A module or a state would write one of the user's files.
    #[error(
        "{who} writes {file}: measuring would fill the file with generated packets: replace it by /dev/null with \
         `--set`"
    )]
    Writes {
        /// The module, as `'NAME'`, or the state, as `state 'NAME'`.
        who: String,
        /// The file's name.
        file: String,
    },
    /// The measurements do not give a line.
    #[error("{function}: other programs used the core too much to find the cost of its calls: measure again")]
    Nothing {
        /// The function.
        function: String,
    },
}

/// The progress of measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The function or module that is measured now.
    pub function: &'a str,
    /// The number of completed steps. A step is one pass of one function.
    pub done: usize,
    /// The number of all steps.
    pub all: usize,
}

impl Profile {
    /// Returns a profile without functions.
    #[must_use]
    pub fn empty(key: Key) -> Self {
        Self { schema: SCHEMA, key, functions: BTreeMap::new() }
    }

    /// Measures these functions on this machine and replaces their earlier costs. Calls `begins` at the beginning of
    /// each step. `effort.batch` must be the largest batch of the profile's key. Examples may write files to the
    /// current folder: this is not checked.
    ///
    /// # Errors
    /// [`ProfileError`]. After [`Nothing`](ProfileError::Nothing), the costs of all other functions are replaced. After
    /// any other error, no cost is replaced.
    pub fn measure(
        &mut self,
        names: &[String],
        effort: &Effort,
        begins: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), ProfileError> {
        known(names)?;
        let (mut cores, mut done) = (None, 0);
        let mut measured: BTreeMap<_, bench::Measured> = BTreeMap::new();
        let hertz = Tsc.frequency().hertz();
        for _ in 0..effort.passes {
            for function in names {
                begins(Progress { function, done, all: effort.passes * names.len() });
                let source = source(function, effort.batch)?;
                let more = bench::measure(function, &source, effort, &mut cores)?;
                measured.entry(function).or_default().add(more);
                done += 1;
            }
        }
        let mut failure = None;
        for (name, measured) in measured {
            match Costed::of(&measured, effort, hertz) {
                Some(costed) => drop(self.functions.insert(name.clone(), costed)),
                None => failure = failure.or(Some(ProfileError::Nothing { function: name.clone() })),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Returns the names of all functions.
#[must_use]
pub fn all() -> Vec<String> {
    forebay_graph::functions().iter().map(|function| function.name.to_owned()).collect()
}

/// Checks that these functions exist.
///
/// # Errors
/// [`ProfileError::Unknown`], with a suggestion.
pub fn known(names: &[String]) -> Result<(), ProfileError> {
    let all = all();
    match names.iter().find(|name| !all.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let near = nearest(name, all.iter().map(String::as_str));
            Err(ProfileError::Unknown { name: name.clone(), near })
        }
    }
}

/// Returns the settings that make a function's example do the work of a busy worker, with batches of up to `batch`
/// packets.
#[must_use]
pub fn settings(name: &str, batch: usize) -> Vec<String> {
    let case = crate::cases::built_in(&format!("function:{name}"));
    let own = FUNCTIONS.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, set)| set);
    let sets = case.into_iter().flat_map(|case| case.set).chain(own.iter().map(|set| (*set).to_owned()));
    sets.chain([format!("batch={batch}")]).collect()
}

/// Returns the pipeline around a function, as the gate counts it, with batches of up to `batch` packets. A
/// [counter](AFTER) behind the function waits for full batches, so that the cost of the output port does not depend on
/// the function's batch size.
fn source(name: &str, batch: usize) -> Result<Source, Problems> {
    let sample = forebay_pipeline::sample(name, &settings(name, batch))?;
    let written = parameters(&sample, |_| Schema::default())?;
    let ways = written["pipeline"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let ways = ways.map(|way| way.replace("-> out", &format!("-> {AFTER}"))).chain([format!("{AFTER} -> out")]);
    let pipeline = Value::from(ways.collect::<Vec<_>>());
    Ok(sample.set(format!("modules.{AFTER}={{ counter: {{}} }}")).set(format!("pipeline={pipeline}")))
}

impl Costed {
    /// Fits a line to the measurements. Returns `None` if a size was never measured, or if the measurements give no
    /// positive cost of a call. `hertz` is the number of ticks per second.
    ///
    /// The timed length of a single call does not include the time to choose the module, and timing itself makes the
    /// call longer. So T0 is the additional time of the whole pipeline when the same packets come in more calls. The
    /// cost per packet is taken from timed calls with full batches, in which both errors are small. If the noise of
    /// other modules hides T0, both terms are taken from timed calls of all sizes instead.
    fn of(measured: &bench::Measured, effort: &Effort, hertz: f64) -> Option<Self> {
        let sizes = measured.sizes()?;
        let (one, full) = (sizes.first()?, sizes.last()?);
        let each = |size: &bench::Sample| size.call / size.packets;
        let timed = (each(one) - each(full)) / (1.0 / one.packets - 1.0 / full.packets);
        // By size: calls per packet that comes to the module, and ticks of the whole pipeline per packet.
        let whole: Vec<_> = sizes.iter().map(|it| (1.0 / it.packets, it.whole / (it.calls * it.packets))).collect();
        // As x is the number of calls per packet, `each` of the line is T0, and `fixed` is the cost per packet.
        let line = fit::line(&whole)?;
        // `dispatch` is the part of T0 that timed calls do not include. `besides` is the time of all other modules and
        // the engine per packet, with full batches: the whole time without the timed calls of this module and their
        // dispatch.
        let mut dispatch = line.each - timed.clamp(0.0, line.each);
        let besides = line.fixed + line.each / full.packets - each(full) - dispatch / full.packets;
        let mut costs: Vec<_> = whole.iter().map(|(calls, whole)| (*calls, whole - besides)).collect();
        let mut line = fit::line(&costs)?;
        if line.each <= 0.0 || costs.iter().any(|(_, each)| *each <= 0.0) {
            // The engine takes some time for each call, so a cost of 0 or less means that the noise of other modules
            // hides it.
            costs = sizes.iter().map(|size| (1.0 / size.packets, each(size))).collect();
            (line, dispatch) = (fit::line(&costs)?, 0.0);
        }
        let seconds = |ticks: f64| ticks / hertz;
        let size = |(calls, each): &(f64, f64)| Size { packets: 1.0 / calls, call_s: seconds(each / calls).max(0.0) };
        (line.each > 0.0).then(|| Self {
            t0_s: seconds(line.each),
            t1_s: seconds(line.fixed),
            t0_95_s: line.each_95.map(seconds),
            t1_95_s: line.fixed_95.map(seconds),
            dispatch_s: seconds(dispatch.min(line.each)),
            r2: line.r2,
            batchiness: batchiness(line.each, line.fixed, effort.batch),
            samples: effort.passes * effort.rounds,
            sizes: costs.iter().map(size).collect(),
            stalled: measured.stalled(),
            at: Timestamp::now(),
        })
    }

    /// Returns the cost of a call with this many packets, in seconds.
    #[must_use]
    pub fn call_s(&self, packets: f64) -> f64 {
        self.t0_s + self.t1_s * packets
    }

    /// True if all figures are possible: none is negative or above one hour, and the ends of intervals are in order.
    fn is_sound(&self) -> bool {
        const MOST_S: f64 = 3_600.0;
        let figures = [self.t0_s, self.t1_s, self.dispatch_s, self.batchiness, self.stalled];
        let all = figures.into_iter().chain(self.t0_95_s).chain(self.t1_95_s).chain(self.r2);
        let mut all = all.chain(self.sizes.iter().flat_map(|size| [size.packets, size.call_s]));
        let ordered = [self.t0_95_s, self.t1_95_s].iter().all(|[low, high]| low <= high);
        let part = self.r2.is_none_or(|part| part <= 1.0);
        ordered && part && self.t0_s + self.t1_s > 0.0 && all.all(|figure| (0.0..=MOST_S).contains(&figure))
    }
}

/// Returns `(T0 + B·T1) / (B·(T0 + T1))`, from 1/B to 1: the cost of a packet in batches of `batch`, relative to its
/// cost in batches of one.
#[must_use]
pub fn batchiness(t0: f64, t1: f64, batch: usize) -> f64 {
    let batch = batch as f64;
    (t0 + batch * t1) / (batch * (t0 + t1))
}

#[cfg(test)]
pub(crate) mod tests;
