//! Baselines: the instructions of some pipelines, counted once and kept in a file, to be compared with later builds.
//!
//! The file is meant to be checked in beside the code and looked at in reviews: a module a line, instructions per packet
//! first. What follows from other figures of the line must agree with them, so that nobody lowers a bar by half.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::counting::{Build, Counts, Extent};
use crate::ticks::Kind;

/// The files that are read and written here.
pub const SCHEMA: u32 = 2;
/// How long a file may be.
const MOST: u64 = 64 << 20;

/// What some pipelines have cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program that was counted.
    pub build: Build,
    /// How much was counted.
    pub extent: Extent,
    /// By pipeline.
    pub cases: Vec<Case>,
}

/// What one pipeline has cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// `usecase:NAME`, `function:NAME`, or a file's name relative to the baseline's own folder.
    pub pipeline: String,
    /// Its settings.
    #[serde(default)]
    pub set: Vec<String>,
    /// By module, in topological order; then what ports did, each way by itself (`in.receive`, `out.send`).
    pub modules: Vec<Part>,
    /// What none of them has cost, by packets that entered and calls of all modules and ports.
    pub residue: Part,
    /// All of it, likewise.
    pub whole: Part,
}

/// What a part of a pipeline has cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The module's name, the port's with what it did; `(residue)`, `(all)`.
    pub name: String,
    /// The module's function, the port's kind; empty for the other parts.
    #[serde(default)]
    pub function: String,
    /// Instructions per packet, to three places; nothing where no packet came.
    pub ipp: Option<f64>,
    /// Packets per call, to three places.
    pub packets_per_call: Option<f64>,
    /// Instructions.
    pub instructions: u64,
    /// Packets.
    pub packets: u64,
    /// Calls.
    pub calls: u64,
}

impl Part {
    /// A part with figures that follow from these.
    #[must_use]
    pub fn new(name: &str, function: &str, instructions: u64, packets: u64, calls: u64) -> Self {
        let (ipp, packets_per_call) = (ratio(instructions, packets), ratio(packets, calls));
        let (name, function) = (name.to_owned(), function.to_owned());
        Self { name, function, ipp, packets_per_call, instructions, packets, calls }
    }

    /// Instructions per packet, in full.
    #[must_use]
    pub fn per_packet(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.instructions as f64 / self.packets as f64)
    }

    /// Calls per packet.
    #[must_use]
    pub fn calls_per_packet(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.calls as f64 / self.packets as f64)
    }

    fn agrees(&self) -> bool {
        let near = |told: Option<f64>, is: Option<f64>| match (told, is) {
            // Half of the last place, and what writing and reading a decimal fraction does to it.
            (Some(told), Some(is)) => (told - is).abs() <= 1e-9 * is.abs().max(1.0),
            (told, is) => told.is_none() && is.is_none(),
        };
        near(self.ipp, ratio(self.instructions, self.packets))
            && near(self.packets_per_call, ratio(self.packets, self.calls))
    }
}

/// To three places.
fn ratio(of: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| (of as f64 / by as f64 * 1e3).round() / 1e3)
}

impl Case {
    /// What was counted of a pipeline.
    #[must_use]
    pub fn of(pipeline: &str, set: &[String], counts: &Counts) -> Self {
        let served = &counts.served;
        let kind = |kinds: &[String], at: usize| kinds.get(at).cloned().unwrap_or_default();
        let modules = served.modules.iter().zip(&counts.modules).enumerate();
        let modules = modules.filter(|(at, _)| !served.is_run_by_another(*at));
        let modules = modules.map(|(at, ((name, packets, calls), instructions))| {
            Part::new(name, &kind(&served.functions, at), *instructions, *packets, *calls)
        });
        let ports =
            served.ports.iter().zip(&counts.ports).enumerate().flat_map(|(at, ((name, given, taken), counts))| {
                let calls = served.port_calls.get(at).copied().unwrap_or_default();
                let ways = [(Kind::Receive, *given), (Kind::Send, *taken)].into_iter().zip(*counts).zip(calls);
                ways.map(|(((way, packets), instructions), calls)| {
                    Part::new(&way.of(name), &kind(&served.port_kinds, at), instructions, packets, calls)
                })
                .collect::<Vec<_>>()
            });
        let modules: Vec<_> = modules.chain(ports.filter(|port| port.instructions > 0)).collect();
        let calls = modules.iter().map(|module| module.calls).sum();
        let rest = counts.residue();
        Self {
            pipeline: pipeline.to_owned(),
            set: set.to_vec(),
            modules,
            residue: Part::new("(residue)", "", rest, served.packets, calls),
            whole: Part::new("(all)", "", counts.all, served.packets, calls),
        }
    }

    /// The pipeline with its settings, as messages name it.
    #[must_use]
    pub fn name(&self) -> String {
        crate::cases::named(&self.pipeline, &self.set)
    }

    /// All parts: modules, ports, the residue, the whole.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.modules.iter().chain([&self.residue, &self.whole])
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        self.modules.iter_mut().chain([&mut self.residue, &mut self.whole])
    }
}

/// A baseline that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is of another time.
    #[error("it is of schema {0}, allowed is {SCHEMA}: remove it and count anew (--update)")]
    Schema(u64),
    /// It is no baseline.
    #[error("it is no baseline: {0}")]
    Form(#[from] serde_json::Error),
    /// So much cannot be counted.
    #[error("extent: before {}, packets {}: allowed are up to {most} each, and 1 packet at least", .0.before, .0.packets, most = Extent::MOST)]
    Extent(Extent),
    /// A pipeline is there twice.
    #[error("'{0}' is there twice")]
    Twice(String),
    /// Figures contradict each other.
    #[error(
        "'{case}', {part}: ipp, packets_per_call, instructions, packets and calls contradict each other: count it anew (--update) instead of writing by hand"
    )]
    Contradiction {
        /// Of which pipeline.
        case: String,
        /// Which part.
        part: String,
    },
}

impl Baseline {
    /// Reads a file; `None` where there is none.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub fn read(path: &Path) -> Result<Option<Self>, BaselineError> {
        match forebay_graph::files::read_text(path, MOST) {
            Ok(bytes) => Self::parse(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, BaselineError> {
        #[derive(Deserialize)]
        struct Any {
            schema: u64,
        }
        // First, so that a later form is told by its number.
        let Any { schema } = serde_json::from_slice(bytes)?;
        if schema != u64::from(SCHEMA) {
            return Err(BaselineError::Schema(schema));
        }
        let mut baseline: Self = serde_json::from_slice(bytes)?;
        if !baseline.extent.is_allowed() {
            return Err(BaselineError::Extent(baseline.extent));
        }
        let mut names = BTreeSet::new();
        for case in &baseline.cases {
            if !names.insert((&case.pipeline, &case.set)) {
                return Err(BaselineError::Twice(case.name()));
            }
            let contradiction =
                |part: &Part| BaselineError::Contradiction { case: case.name(), part: part.name.clone() };
            if let Some(part) = case.parts().find(|part| !part.agrees()) {
                return Err(contradiction(part));
            }
            let sum = case
                .modules
                .iter()
                .try_fold(case.residue.instructions, |sum, module| sum.checked_add(module.instructions));
            let calls = case.modules.iter().try_fold(0u64, |calls, module| calls.checked_add(module.calls));
            let whole = &case.whole;
            if sum != Some(whole.instructions) || calls != Some(whole.calls) || whole.packets != case.residue.packets {
                return Err(contradiction(whole));
            }
            let mut modules = BTreeSet::new();
            if let Some(part) = case.modules.iter().find(|part| !modules.insert(&part.name)) {
                return Err(BaselineError::Twice(format!("{}, {}", case.name(), part.name)));
            }
        }
        // A decimal fraction need not be read back to the last bit.
        for part in baseline.cases.iter_mut().flat_map(Case::parts_mut) {
            *part = Part::new(&part.name, &part.function, part.instructions, part.packets, part.calls);
        }
        Ok(baseline)
    }

    /// The file's text: a part a line.
    ///
    /// # Errors
    /// None that could be thought of: these are plain values.
    pub fn text(&self) -> Result<String, BaselineError> {
        let json = |part: &Part| serde_json::to_string(part);
        let mut cases = Vec::new();
        for case in &self.cases {
            let modules = case.modules.iter().map(json).collect::<Result<Vec<_>, _>>()?;
            let (pipeline, set) = (serde_json::to_string(&case.pipeline)?, serde_json::to_string(&case.set)?);
            let lines = modules.join(",\n        ");
            let gap = if lines.is_empty() { "" } else { "\n        " };
            cases.push(format!(
                "    {{\n      \"pipeline\": {pipeline},\n      \"set\": {set},\n      \"modules\": [{gap}{lines}],\n      \"residue\": {},\n      \"whole\": {}\n    }}",
                json(&case.residue)?,
                json(&case.whole)?
            ));
        }
        let (build, extent) = (serde_json::to_string(&self.build)?, serde_json::to_string(&self.extent)?);
        Ok(format!(
            "{{\n  \"schema\": {},\n  \"build\": {build},\n  \"extent\": {extent},\n  \"cases\": [\n{}\n  ]\n}}\n",
            self.schema,
            cases.join(",\n")
        ))
    }

    /// Writes the file whole or not at all.
    ///
    /// # Errors
    /// [`BaselineError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), BaselineError> {
        Ok(forebay_graph::files::replace(path, self.text()?.as_bytes())?)
    }
}

/// Any bytes, for fuzzing: a baseline that is read is the same when it has been written and read again.
pub fn fuzz_baseline(bytes: &[u8]) {
    if let Ok(baseline) = Baseline::parse(bytes) {
        let text = baseline.text().expect("plain values can be written");
        let again = Baseline::parse(text.as_bytes()).expect("what was written can be read");
        assert_eq!(again, baseline);
    }
}

#[cfg(test)]
pub(crate) mod tests;
