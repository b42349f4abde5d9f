//! The records of co-runs: every run that counts, in one file for each CPU model, build and largest batch.
//!
//! The file is rewritten as a whole after each run, so that an interrupted measurement can continue.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use forebay_bench::profile::{Build, Key};
use forebay_graph::files::{read_text, replace_private};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::synthetic::Demand;

/// The version of the file format.
pub const SCHEMA: u32 = 1;
/// The maximum length of a file, in bytes: enough for a hundred thousand runs.
const MOST: u64 = 64 << 20;

/// The co-runs on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// The version of the format: [`SCHEMA`].
    pub schema: u32,
    /// The CPU model.
    pub cpu: String,
    /// The build.
    pub build: Build,
    /// The largest batch.
    pub batch: usize,
    /// The cores that were used.
    pub seats: Seats,
    /// The ticks of the time-stamp counter per second.
    pub hertz: f64,
    /// The figures that this machine does not provide, each with the reason.
    pub unavailable: BTreeMap<String, String>,
    /// The records by function. The key is the name of the function, or its profile key if it has the parameters of a
    /// pipeline.
    pub functions: BTreeMap<String, FunctionRecord>,
}

/// The cores of co-runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Seats {
    /// The core of the function.
    pub subject: usize,
    /// The cores of the competitors. They share the function's last-level cache.
    pub competitors: Vec<usize>,
    /// Whether some of these cores are threads of one physical core, which share all its caches and units.
    pub siblings: bool,
}

/// The records of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionRecord {
    /// The length of the packets, in bytes.
    pub packets_bytes: u32,
    /// The counts of a simulation of caches. `None` if there was no simulation.
    pub simulated: Option<Simulated>,
    /// The runs that count.
    pub samples: Vec<Sample>,
    /// The runs that do not count.
    pub void: Void,
}

/// Runs that do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Void {
    /// The number of runs.
    pub runs: usize,
    /// The reason of the last one.
    pub why: Option<String>,
}

/// The memory accesses of a packet in simulated caches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    /// The instructions per packet, including those of the engine and the ports.
    pub instructions: f64,
    /// The lines per packet that missed the core's own cache.
    pub shared_lines: f64,
    /// The lines per packet that also missed the last-level cache.
    pub memory_lines: f64,
    /// The size of the cache that misses almost no lines, in bytes.
    pub footprint_bytes: f64,
}

/// A run beside competitors, between two spans without them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The competitors, one on each core.
    pub competitors: Vec<Competitor>,
    /// The pass of the run, from 0.
    pub pass: usize,
    /// The solo span before.
    pub before: Span,
    /// The span beside the competitors.
    pub beside: Span,
    /// The solo span after.
    pub after: Span,
    /// The load of each competitor, in the order of `competitors`.
    pub loads: Vec<Load>,
}

/// A competitor of a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Competitor {
    /// Another function, by its key.
    Function(String),
    /// A synthetic competitor.
    Synthetic(Demand),
}

/// A span of time in which a function was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// The length in seconds.
    pub seconds: f64,
    /// The packets that entered.
    pub packets: u64,
    /// The share of the time in which other programs or the host had the core.
    pub away: f64,
    /// The instructions, if they were counted.
    pub instructions: Option<f64>,
    /// The core cycles in which nothing was issued or retired.
    pub stalls: Option<f64>,
    /// The misses of the last-level cache.
    pub llc_misses: Option<f64>,
    /// The bytes to and from memory, of all last-level caches of the machine together.
    pub memory_bytes: Option<f64>,
}

impl Span {
    /// Returns the packets per second of the time in which the function had its core.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.packets as f64 / (self.seconds * (1.0 - self.away))
    }
}

/// The work of a competitor while it ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The packets per second of a function.
    pub packets: f64,
    /// The lines per second that a synthetic competitor read in random order.
    pub walked: f64,
    /// The lines per second that a synthetic competitor read and wrote in order.
    pub streamed: f64,
}

impl Sample {
    /// Returns λ: the decrease of the rate as a share of the solo rate.
    #[must_use]
    pub fn drop(&self) -> f64 {
        let alone = f64::midpoint(self.before.rate(), self.after.rate());
        1.0 - self.beside.rate() / alone
    }
}

/// An error when records are read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file cannot be read or written.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file does not contain records of co-runs.
    #[error("{}: not a record of co-runs: {error}", file.display())]
    Form {
        /// The file.
        file: PathBuf,
        /// The error of the parser.
        error: serde_json::Error,
    },
    /// The file belongs to another machine or build, or a value is out of range.
    #[error("{}: {what} is {value}: allowed is {allowed}", file.display())]
    Value {
        /// The file.
        file: PathBuf,
        /// The name of the value.
        what: String,
        /// The value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
}

impl Records {
    /// Returns records without any run.
    #[must_use]
    pub fn empty(key: Key, seats: Seats, hertz: f64) -> Self {
        let Key { cpu, build, batch } = key;
        let (unavailable, functions) = (BTreeMap::new(), BTreeMap::new());
        Self { schema: SCHEMA, cpu, build, batch, seats, hertz, unavailable, functions }
    }

    /// Returns the path of the records' file in `folder`.
    #[must_use]
    pub fn file(folder: &Path, key: &Key) -> PathBuf {
        folder.join(key.file_name())
    }

    /// Reads a file. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// Returns [`RecordError`] if the file cannot be read, if its content is invalid, or if the records belong to
    /// another CPU model, build or largest batch than `key`.
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

    /// Parses the content of a file, and checks all values.
    ///
    /// # Errors
    /// Returns [`RecordError`] if the content is not valid.
    pub fn parse(bytes: &[u8], file: &Path) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u64,
        }
        let form = |error| RecordError::Form { file: file.to_owned(), error };
        let wrong = |what: String, value: String, allowed: &str| {
            Err(RecordError::Value { file: file.to_owned(), what, value, allowed: allowed.to_owned() })
        };
        // The version is checked first, because a later format may have other keys.
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
                    return wrong(what(), value, "one or more competitors, each with a load");
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

    /// Writes the records to a file that only its owner may read. The file is replaced atomically.
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

    /// Returns whether the records contain the run of a function beside these competitors in this pass.
    #[must_use]
    pub fn has(&self, function: &str, competitors: &[Competitor], pass: usize) -> bool {
        let is_it = |sample: &Sample| sample.pass == pass && sample.competitors == competitors;
        self.functions.get(function).is_some_and(|record| record.samples.iter().any(is_it))
    }
}

impl Span {
    /// Returns true if all values are in range, so that a rate can be computed.
    fn is_sound(&self) -> bool {
        let counts = [self.instructions, self.stalls, self.llc_misses, self.memory_bytes];
        let counts_are = counts.into_iter().flatten().all(|count| (0.0..f64::INFINITY).contains(&count));
        let has_time = self.seconds > 0.0 && self.seconds.is_finite() && (0.0..1.0).contains(&self.away);
        counts_are && has_time && self.packets > 0
    }
}

/// Fuzzing: records that were parsed from any bytes can be written and parsed again with the same functions.
pub fn fuzz_records(bytes: &[u8]) {
    let file = Path::new("co-runs.json");
    if let Ok(records) = Records::parse(bytes, file) {
        let text = serde_json::to_vec(&records).expect("plain values can be written");
        // Decimal fractions may change in the last bit when they are parsed again. Then a share may become 1, and the
        // text is refused.
        if let Ok(again) = Records::parse(&text, file) {
            assert!(again.functions.keys().eq(records.functions.keys()));
        }
    }
}
