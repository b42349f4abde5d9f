//! What calls of network functions cost on this machine: `T(b) = T0 + T1·b` for a batch of b packets (Batchy, section 2).
//!
//! Whoever chooses batches needs both parts: the fixed one is what larger batches save. They are measured in the engine as it
//! runs ([`bench`]), so that its own cost of a call is in them, and fitted ([`fit`]). What was found is kept by CPU model and
//! build ([`store`]) and corrected by what a running pipeline shows (`forebay_models::online`).

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

/// The form of the file.
pub(crate) const SCHEMA: u32 = 1;

/// The module behind a function that is measured.
const AFTER: &str = "after";

/// Functions whose example does something else than a busy worker's, and what is asked instead, besides what a gate asks.
const FUNCTIONS: &[(&str, &[&str])] = &[
    // It would end copying; where all is copied, no disk keeps up for long.
    ("tap", &["modules.tap.tap.file=/dev/null", "modules.tap.tap.most=1000000000000"]),
];

/// What functions cost on a machine, by a build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The form: 1.
    pub schema: u32,
    /// Of which machine and build, and for which largest batch.
    #[serde(flatten)]
    pub key: Key,
    /// By function: what its calls cost. Of one with the parameters of a pipeline's module: by [key](keys),
    /// `acl@0123456789abcdef`.
    pub functions: BTreeMap<String, Costed>,
}

/// What a function's calls cost: `t0_s + t1_s · packets`, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costed {
    /// The cost of a call, the engine's included. Never negative.
    pub t0_s: f64,
    /// The cost of each packet of it. Never negative.
    pub t1_s: f64,
    /// The 95 % interval of `t0_s`, as far as it is not below 0.
    pub t0_95_s: [f64; 2],
    /// The same of `t1_s`.
    pub t1_95_s: [f64; 2],
    /// The part of `t0_s` that the engine's stopwatch counts as nobody's: choosing the module, taking its packets from the queue.
    pub dispatch_s: f64,
    /// The share of the variance of what a packet takes, among sizes of batches, that the line explains; `None` where
    /// it does not vary.
    pub r2: Option<f64>,
    /// `(T0 + B·T1) / (B·(T0 + T1))` with the largest batch B: what packets cost in full batches, in parts of what they cost one
    /// by one. 1: batches save nothing.
    pub batchiness: f64,
    /// Rounds in which each size was measured.
    pub samples: usize,
    /// The sizes that were measured, and what calls took: the lower quartile of all rounds, since whatever disturbs makes them dearer.
    pub sizes: Vec<Size>,
    /// The share of the time for which the machine was elsewhere; it is left out.
    pub stalled: f64,
    /// When it was measured.
    pub at: Timestamp,
}

/// What calls on batches of one size took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// Packets a call.
    pub packets: f64,
    /// Seconds a call.
    pub call_s: f64,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The largest batch.
    pub batch: usize,
    /// How often all functions take their turn: what disturbs the machine for some seconds does so in one of them.
    pub passes: usize,
    /// How often each size is measured in a pass.
    pub rounds: usize,
    /// How long each function is measured, all together.
    pub time: Duration,
}

impl Effort {
    /// The largest batches that can be asked for: a line needs three sizes.
    pub const BATCHES: std::ops::RangeInclusive<usize> = 4..=forebay_packet::MAX_BATCH;

    /// As much as it takes, for this largest batch.
    #[must_use]
    pub fn new(batch: usize) -> Self {
        Self { batch, passes: 3, rounds: 5, time: Duration::from_millis(600) }
    }

    /// How long so many functions or modules take, where the machine is not elsewhere.
    #[must_use]
    pub fn expected(&self, measured: usize) -> Duration {
        let sizes = bench::sizes(self.batch).len();
        let looks = u32::try_from(sizes * self.passes * self.rounds * measured).unwrap_or(u32::MAX);
        (self.span(sizes) + bench::SETTLE) * looks
    }

    /// How long a size is measured in a round.
    fn span(&self, sizes: usize) -> Duration {
        let parts = u32::try_from(sizes * self.passes * self.rounds).unwrap_or(u32::MAX).max(1);
        (self.time / parts).max(bench::SHORTEST)
    }
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A function that is not there.
    #[error("there is no function '{name}'{near}: `forebay list functions` has all")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        near: String,
    },
    /// Its pipeline cannot be made.
    #[error(transparent)]
    Pipeline(#[from] Problems),
    /// No core for it.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// It cannot be run.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It went wrong as it ran.
    #[error("{function}: {reason}")]
    Trouble {
        /// The function.
        function: String,
        /// What happened.
        reason: String,
    },
    /// A module or state that would write a file of the user's.
    #[error(
        "{who} writes {file}: measuring would fill it with made-up packets: put /dev/null in its place with `--set`"
    )]
    Writes {
        /// The module, as `'NAME'`, or the state, as `state 'NAME'`.
        who: String,
        /// The file's name.
        file: String,
    },
    /// No line goes through what was measured.
    #[error("{function}: other programs took so much that the cost of its calls is unknown: measure again")]
    Nothing {
        /// The function.
        function: String,
    },
}

/// How far measuring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// What is measured now.
    pub function: &'a str,
    /// Steps that are done: each function is measured in several passes.
    pub done: usize,
    /// All steps.
    pub all: usize,
}

impl Profile {
    /// A profile that has nothing yet.
    #[must_use]
    pub fn empty(key: Key) -> Self {
        Self { schema: SCHEMA, key, functions: BTreeMap::new() }
    }

    /// Measures these functions on this machine; what was known of them before is replaced. `begins` hears of each that
    /// begins.
    ///
    /// # Errors
    /// [`ProfileError`]: nothing is replaced then, but for [`Nothing`](ProfileError::Nothing), where all others are.
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
        let mut nothing = None;
        for (name, measured) in measured {
            match Costed::of(&measured, effort, hertz) {
                Some(costed) => drop(self.functions.insert(name.clone(), costed)),
                None => nothing = nothing.or(Some(ProfileError::Nothing { function: name.clone() })),
            }
        }
        nothing.map_or(Ok(()), Err)
    }
}

/// The names of all functions that there are.
#[must_use]
pub fn all() -> Vec<String> {
    forebay_graph::functions().iter().map(|function| function.name.to_owned()).collect()
}

/// Whether these are functions.
///
/// # Errors
/// [`ProfileError::Unknown`], with what may have been meant.
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

/// The settings of a function's example that make it do what a busy worker's does, with batches of up to `batch`
/// packets.
#[must_use]
pub fn settings(name: &str, batch: usize) -> Vec<String> {
    let asked = crate::cases::built_in(&format!("function:{name}"));
    let own = FUNCTIONS.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, set)| set);
    let sets = asked.into_iter().flat_map(|asked| asked.set).chain(own.iter().map(|set| (*set).to_owned()));
    sets.chain([format!("batch={batch}")]).collect()
}

/// The pipeline around a function, as a gate counts it, with batches of up to `batch` packets. Behind the function a
/// [counter](AFTER) waits for full batches: what ports take does not depend on the function's.
fn source(name: &str, batch: usize) -> Result<Source, Problems> {
    let sample = forebay_pipeline::sample(name, &settings(name, batch))?;
    let written = parameters(&sample, |_| Schema::default())?;
    let ways = written["pipeline"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let ways = ways.map(|way| way.replace("-> out", &format!("-> {AFTER}"))).chain([format!("{AFTER} -> out")]);
    let pipeline = Value::from(ways.collect::<Vec<_>>());
    Ok(sample.set(format!("modules.{AFTER}={{ counter: {{}} }}")).set(format!("pipeline={pipeline}")))
}

impl Costed {
    /// The line through what was measured.
    ///
    /// A call that is timed shares no time with those around it, and the time to choose the module is in none. So T0 is
    /// what the whole pipeline takes more where the same packets come in more calls. The rest of a packet's cost is
    /// timed in full batches, where there is little of both. Where other modules take so much more that T0 is lost in
    /// their noise, calls of all sizes are timed.
    fn of(measured: &bench::Measured, effort: &Effort, hertz: f64) -> Option<Self> {
        let sizes = measured.sizes()?;
        let (one, full) = (sizes.first()?, sizes.last()?);
        let each = |size: &bench::Sample| size.call / size.packets;
        let timed = (each(one) - each(full)) / (1.0 / one.packets - 1.0 / full.packets);
        // By size: calls for each packet that comes to the module, and the ticks of the whole for it.
        let whole: Vec<_> = sizes.iter().map(|it| (1.0 / it.packets, it.whole / (it.calls * it.packets))).collect();
        let line = fit::line(&whole)?;
        let mut dispatch = line.each - timed.clamp(0.0, line.each);
        let besides = line.fixed + line.each / full.packets - each(full) - dispatch / full.packets;
        let mut costs: Vec<_> = whole.iter().map(|(calls, whole)| (*calls, whole - besides)).collect();
        let mut line = fit::line(&costs)?;
        if line.each <= 0.0 || costs.iter().any(|(_, each)| *each <= 0.0) {
            // The engine takes some time for each call: it is lost in the noise of what other modules take.
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

    /// What a call on so many packets costs, in seconds.
    #[must_use]
    pub fn call_s(&self, packets: f64) -> f64 {
        self.t0_s + self.t1_s * packets
    }

    /// Whether it can be: nothing negative, nothing above an hour, ends of intervals in order.
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

/// `(T0 + B·T1) / (B·(T0 + T1))`, 1/B to 1: what packets cost in batches of `batch`, in parts of what they cost one by one.
#[must_use]
pub fn batchiness(t0: f64, t1: f64, batch: usize) -> f64 {
    let batch = batch as f64;
    (t0 + batch * t1) / (batch * (t0 + t1))
}

#[cfg(test)]
pub(crate) mod tests;
