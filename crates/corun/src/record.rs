//! What co-runs have shown: every run that counts, in one file for each CPU model, build and largest batch.
//!
//! The file is written as measuring goes on, whole each time, so that an interrupted measurement goes on from there.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use forebay_graph::files::{read_text, replace_private};
use forebay_lean::profile::{Build, Key};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::synthetic::Demand;

/// The form of the file.
pub const SCHEMA: u32 = 1;
/// The longest file: a hundred thousand runs.
const MOST: u64 = 64 << 20;

/// Co-runs on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// The form: [`SCHEMA`].
    pub schema: u32,
    /// The CPU's model.
    pub cpu: String,
    /// The build.
    pub build: Build,
    /// The largest batch.
    pub batch: usize,
    /// Which cores were used.
    pub seats: Seats,
    /// Ticks of the time-stamp counter a second.
    pub hertz: f64,
    /// By figure that this machine does not have: why.
    pub unavailable: BTreeMap<String, String>,
    /// By function: its name, or with a pipeline's parameters its profile key.
    pub functions: BTreeMap<String, FunctionRecord>,
}

/// The cores of co-runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Seats {
    /// The function's.
    pub subject: usize,
    /// The competitors', one each. They share the function's last-level cache.
    pub competitors: Vec<usize>,
    /// Whether some of these are threads of one physical core, which share all its caches and units.
    pub siblings: bool,
}

/// What is known of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionRecord {
    /// The length of the packets, in bytes.
    pub packets_bytes: u32,
    /// What a simulation of caches counted; `None` where there was none.
    pub simulated: Option<Simulated>,
    /// Runs that count.
    pub samples: Vec<Sample>,
    /// Runs that do not: how many, and why the last one did not.
    pub void: Void,
}

/// Runs that do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Void {
    /// How many.
    pub runs: usize,
    /// Why the last one does not.
    pub why: Option<String>,
}

/// A packet's memory accesses in simulated caches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    /// Instructions a packet, the engine's and the ports' included.
    pub instructions: f64,
    /// Lines a packet that were not in the core's own cache.
    pub shared_lines: f64,
    /// Lines a packet that were not in the last-level cache either.
    pub memory_lines: f64,
    /// The size of the cache in which nearly all lines are found again, in bytes.
    pub footprint_bytes: f64,
}

/// A run beside competitors, between two spans without them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Those that ran beside it, one on each core.
    pub competitors: Vec<Competitor>,
    /// The pass in which it was made, from 0.
    pub pass: usize,
    /// Alone before.
    pub before: Span,
    /// Beside them.
    pub beside: Span,
    /// Alone after.
    pub after: Span,
    /// By competitor: how much it did.
    pub loads: Vec<Load>,
}

/// What runs beside a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Competitor {
    /// Another function, by its key.
    Function(String),
    /// A synthetic competitor.
    Synthetic(Demand),
}

/// A span of time of a function.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Its length in seconds.
    pub seconds: f64,
    /// Packets that entered.
    pub packets: u64,
    /// The share of the time in which other programs or the host had the core.
    pub away: f64,
    /// Instructions that were counted.
    pub instructions: Option<f64>,
    /// Core cycles in which nothing was issued or retired.
    pub stalls: Option<f64>,
    /// Misses of the last-level cache.
    pub llc_misses: Option<f64>,
    /// Bytes that went to or from memory, of all cores that share the cache.
    pub memory_bytes: Option<f64>,
}

impl Span {
    /// Packets a second of the time in which the function had its core.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.packets as f64 / (self.seconds * (1.0 - self.away))
    }
}

/// What a competitor did while it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Packets a second of a function.
    pub packets: f64,
    /// Lines a second that a synthetic competitor read in random order.
    pub walked: f64,
    /// Lines a second that it read and wrote in order.
    pub streamed: f64,
}

impl Sample {
    /// λ: how much slower than alone, as a share of the rate alone.
    #[must_use]
    pub fn drop(&self) -> f64 {
        let alone = f64::midpoint(self.before.rate(), self.after.rate());
        1.0 - self.beside.rate() / alone
    }
}

/// Why records cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Files.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's message.
        error: io::Error,
    },
    /// It is no record of co-runs.
    #[error("{}: no records of co-runs: {error}", file.display())]
    Form {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// It is of something else, or a figure cannot be.
    #[error("{}: {what} is {value}: allowed is {allowed}", file.display())]
    Value {
        /// The file.
        file: PathBuf,
        /// The figure's name.
        what: String,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
}

impl Records {
    /// Records that have nothing yet.
    #[must_use]
    pub fn empty(key: Key, seats: Seats, hertz: f64) -> Self {
        let Key { cpu, build, batch } = key;
        let (unavailable, functions) = (BTreeMap::new(), BTreeMap::new());
        Self { schema: SCHEMA, cpu, build, batch, seats, hertz, unavailable, functions }
    }

    /// Where records are kept in `folder`.
    #[must_use]
    pub fn file(folder: &Path, key: &Key) -> PathBuf {
        folder.join(key.file_name())
    }

    /// Reads a file; `None` where there is none.
    ///
    /// # Errors
    /// [`RecordError`]: it cannot be used, and why.
    pub fn read(file: &Path, key: &Key) -> Result<Option<Self>, RecordError> {
        let bytes = match read_text(file, MOST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(RecordError::Io { file: file.to_owned(), error }),
        };
        let records = Self::parse(&bytes, file)?;
        let own = Key { cpu: records.cpu.clone(), build: records.build.clone(), batch: records.batch };
        if own == *key {
            return Ok(Some(records));
        }
        let name = |key: &Key| format!("{} {} ({}) {}", key.cpu, key.build.forebay, key.build.program, key.batch);
        let (value, allowed) = (name(&own), name(key));
        Err(RecordError::Value { file: file.to_owned(), what: "its machine and build".to_owned(), value, allowed })
    }

    /// Reads a file's bytes, and checks all figures.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn parse(bytes: &[u8], file: &Path) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u64,
        }
        let form = |error| RecordError::Form { file: file.to_owned(), error };
        let wrong = |what: String, value: String, allowed: &str| {
            Err(RecordError::Value { file: file.to_owned(), what, value, allowed: allowed.to_owned() })
        };
        // First: the other keys of a later form are unknown here.
        let Version { schema } = serde_json::from_slice(bytes).map_err(form)?;
        if schema != u64::from(SCHEMA) {
            return wrong("schema".to_owned(), schema.to_string(), "1");
        }
        let records: Self = serde_json::from_slice(bytes).map_err(form)?;
        if !(records.hertz > 0.0 && records.hertz.is_finite()) {
            return wrong("hertz".to_owned(), records.hertz.to_string(), "a number above 0");
        }
        for (name, function) in &records.functions {
            for (at, sample) in function.samples.iter().enumerate() {
                let what = || format!("function '{}': samples[{at}]", name.escape_debug());
                if sample.competitors.len() != sample.loads.len() || sample.competitors.is_empty() {
                    let value =
                        format!("of {} competitors with {} loads", sample.competitors.len(), sample.loads.len());
                    return wrong(what(), value, "a load for each competitor, and one or more");
                }
                for span in [sample.before, sample.beside, sample.after] {
                    if !span.is_sound() {
                        return wrong(what(), format!("{span:?}"), "a span with time, packets and counts of 0 or more");
                    }
                }
                let loads = sample.loads.iter().flat_map(|load| [load.packets, load.walked, load.streamed]);
                if let Some(load) = loads.into_iter().find(|load| !(0.0..f64::INFINITY).contains(load)) {
                    return wrong(what(), format!("with a load of {load}"), "0 or more");
                }
            }
            if let Some(Simulated { instructions, shared_lines, memory_lines, footprint_bytes }) = function.simulated {
                let figures = [instructions, shared_lines, memory_lines, footprint_bytes];
                if let Some(figure) = figures.iter().find(|figure| !(0.0..f64::INFINITY).contains(*figure)) {
                    let what = format!("function '{}': simulated", name.escape_debug());
                    return wrong(what, figure.to_string(), "0 or more");
                }
            }
        }
        Ok(records)
    }

    /// Writes it to a file that its owner alone may read: at any moment the old one or the new one is there, whole.
    ///
    /// # Errors
    /// [`RecordError::Io`].
    pub fn write(&self, file: &Path) -> Result<(), RecordError> {
        let io = |error| RecordError::Io { file: file.to_owned(), error };
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        let text = serde_json::to_string(self).map_err(|error| io(error.into()))? + "\n";
        replace_private(file, text.as_bytes()).map_err(io)
    }

    /// Whether a function's run beside these in this pass is there.
    #[must_use]
    pub fn has(&self, function: &str, competitors: &[Competitor], pass: usize) -> bool {
        let is_it = |sample: &Sample| sample.pass == pass && sample.competitors == competitors;
        self.functions.get(function).is_some_and(|record| record.samples.iter().any(is_it))
    }
}

impl Span {
    fn is_sound(&self) -> bool {
        let counts = [self.instructions, self.stalls, self.llc_misses, self.memory_bytes];
        let counts_are = counts.into_iter().flatten().all(|count| (0.0..f64::INFINITY).contains(&count));
        let has_time = self.seconds > 0.0 && self.seconds.is_finite() && (0.0..1.0).contains(&self.away);
        counts_are && has_time && self.packets > 0
    }
}

/// Any bytes, for fuzzing: records that are read can be written, and are the same when they are read again.
pub fn fuzz_records(bytes: &[u8]) {
    let file = Path::new("co-runs.json");
    if let Ok(records) = Records::parse(bytes, file) {
        let text = serde_json::to_vec(&records).expect("plain values can be written");
        // Decimal fractions need not be read back to the last bit, by which a share may become a whole.
        if let Ok(again) = Records::parse(&text, file) {
            assert!(again.functions.keys().eq(records.functions.keys()));
        }
    }
}
