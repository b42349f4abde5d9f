//! Baselines: the instruction counts of some pipelines, kept in a file and compared with later builds.
//!
//! The file is meant to be checked in with the code and read in reviews. Each module is one line, with instructions per
//! packet first. Reading a file checks that the figures of a line agree, so that a figure changed by hand is detected.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::counting::{CountedBuild, Counts, Extent};
use crate::ticks::PartType;

/// The version of the file format that is read and written.
pub const SCHEMA: u32 = 2;
/// The largest file that is read, in bytes.
const MOST: u64 = 64 << 20;

/// The instruction counts of some pipelines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program that was counted.
    pub build: CountedBuild,
    /// The measured extent: packets before counting begins, and packets counted.
    pub extent: Extent,
    /// The counts, one case per pipeline and settings.
    pub cases: Vec<Case>,
}

/// The instruction counts of one pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// `usecase:NAME`, `function:NAME`, or a file's name relative to the baseline's own folder.
    pub pipeline: String,
    /// Its settings (`--set`).
    #[serde(default)]
    pub set: Vec<String>,
    /// Counts by module in topological order, then by port and direction (`in.receive`, `out.send`). Modules that run
    /// as part of another module (folded) are left out, and so are directions of ports without instructions.
    pub modules: Vec<PartCounts>,
    /// The residue: the instructions that belong to no module and no port. Its packets are the packets that entered the
    /// pipeline, and its calls are the calls of all modules and ports.
    pub residue: PartCounts,
    /// All instructions. The packets and calls are those of the residue.
    pub whole: PartCounts,
}

/// The counts of a part of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartCounts {
    /// The module's name, or the port's name with the direction; `(residue)` or `(all)` for the sums.
    pub name: String,
    /// The module's function or the port's type; empty for the sums.
    #[serde(default)]
    pub function: String,
    /// Instructions per packet, rounded to three decimal places; missing if there were no packets.
    pub ipp: Option<f64>,
    /// Packets per call, rounded to three decimal places; missing if there were no calls.
    pub packets_per_call: Option<f64>,
    /// Instructions.
    pub instructions: u64,
    /// Packets.
    pub packets: u64,
    /// Calls.
    pub calls: u64,
}

impl PartCounts {
    /// Creates a part from its counts and calculates the ratios.
    #[must_use]
    pub fn new(name: &str, function: &str, instructions: u64, packets: u64, calls: u64) -> Self {
        let (ipp, packets_per_call) = (ratio(instructions, packets), ratio(packets, calls));
        let (name, function) = (name.to_owned(), function.to_owned());
        Self { name, function, ipp, packets_per_call, instructions, packets, calls }
    }

    /// Returns the instructions per packet, not rounded. `None` without packets.
    #[must_use]
    pub fn per_packet(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.instructions as f64 / self.packets as f64)
    }

    /// Returns the calls per packet, not rounded. `None` without packets.
    #[must_use]
    pub fn calls_per_packet(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.calls as f64 / self.packets as f64)
    }

    /// True if the written ratios agree with the counts.
    fn agrees(&self) -> bool {
        let near = |written: Option<f64>, exact: Option<f64>| match (written, exact) {
            // Allows for the error of writing and reading a decimal fraction.
            (Some(written), Some(exact)) => (written - exact).abs() <= 1e-9 * exact.abs().max(1.0),
            (written, exact) => written.is_none() && exact.is_none(),
        };
        near(self.ipp, ratio(self.instructions, self.packets))
            && near(self.packets_per_call, ratio(self.packets, self.calls))
    }
}

/// Returns `of / by`, rounded to three decimal places, or `None` if `by` is 0.
fn ratio(of: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| (of as f64 / by as f64 * 1e3).round() / 1e3)
}

impl Case {
    /// Converts the counts of a pipeline into a case.
    #[must_use]
    pub fn of(pipeline: &str, set: &[String], counts: &Counts) -> Self {
        let served = &counts.served;
        let kind = |kinds: &[String], at: usize| kinds.get(at).cloned().unwrap_or_default();
        let modules = served.modules.iter().zip(&counts.modules).enumerate();
        let modules = modules.filter(|(at, _)| !served.is_run_by_another(*at));
        let modules = modules.map(|(at, ((name, packets, calls), instructions))| {
            PartCounts::new(name, &kind(&served.functions, at), *instructions, *packets, *calls)
        });
        let ports =
            served.ports.iter().zip(&counts.ports).enumerate().flat_map(|(at, ((name, given, taken), counts))| {
                let calls = served.port_calls.get(at).copied().unwrap_or_default();
                let ways = [(PartType::Receive, *given), (PartType::Send, *taken)].into_iter().zip(*counts).zip(calls);
                ways.map(|(((way, packets), instructions), calls)| {
                    PartCounts::new(&way.part_name(name), &kind(&served.port_kinds, at), instructions, packets, calls)
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
            residue: PartCounts::new("(residue)", "", rest, served.packets, calls),
            whole: PartCounts::new("(all)", "", counts.all, served.packets, calls),
        }
    }

    /// Returns the pipeline with its settings, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        crate::cases::named(&self.pipeline, &self.set)
    }

    /// Returns all parts: modules, ports, the residue, the whole.
    pub fn parts(&self) -> impl Iterator<Item = &PartCounts> {
        self.modules.iter().chain([&self.residue, &self.whole])
    }

    /// Like [`parts`](Self::parts), for changes.
    fn parts_mut(&mut self) -> impl Iterator<Item = &mut PartCounts> {
        self.modules.iter_mut().chain([&mut self.residue, &mut self.whole])
    }
}

/// A baseline that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file has another version.
    #[error("schema {0} is not supported, allowed is {SCHEMA}: remove the file and count again (--update)")]
    Schema(u64),
    /// The file is not a baseline.
    #[error("not a baseline: {0}: use a file that `forebay gate --update` wrote")]
    Form(#[from] serde_json::Error),
    /// The extent is out of range.
    #[error(
        "extent: before {}, packets {}: allowed are up to {most} each, and `packets` must be at least 1",
        .0.before,
        .0.packets,
        most = Extent::MOST
    )]
    Extent(Extent),
    /// A pipeline or a part is listed twice.
    #[error("'{0}' is listed twice: list it once")]
    Twice(String),
    /// Figures contradict each other.
    #[error(
        "'{case}', {part}: ipp, packets_per_call, instructions, packets and calls contradict each other: \
         do not edit the file, but count '{case}' again (--update)"
    )]
    Contradiction {
        /// The pipeline.
        case: String,
        /// The part.
        part: String,
    },
}

impl Baseline {
    /// Reads a file. Returns `None` if the file does not exist.
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
        forebay_graph::files::check_object(bytes)?;
        // The schema is read first, so that the error for a later format names its number.
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
                |part: &PartCounts| BaselineError::Contradiction { case: case.name(), part: part.name.clone() };
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
        // Decimal fractions may differ in the last bit after reading, so the ratios are calculated again.
        for part in baseline.cases.iter_mut().flat_map(Case::parts_mut) {
            *part = PartCounts::new(&part.name, &part.function, part.instructions, part.packets, part.calls);
        }
        Ok(baseline)
    }

    /// Returns the file's text, with one part per line.
    ///
    /// # Errors
    /// JSON errors; none are expected, because the values are plain numbers and strings.
    pub fn text(&self) -> Result<String, BaselineError> {
        let json = |part: &PartCounts| serde_json::to_string(part);
        let mut cases = Vec::new();
        for case in &self.cases {
            let modules = case.modules.iter().map(json).collect::<Result<Vec<_>, _>>()?;
            let (pipeline, set) = (serde_json::to_string(&case.pipeline)?, serde_json::to_string(&case.set)?);
            let lines = modules.join(",\n        ");
            let gap = if lines.is_empty() { "" } else { "\n        " };
            cases.push(format!(
                "    {{\n      \"pipeline\": {pipeline},\n      \"set\": {set},\n      \"modules\": [{gap}{lines}],\n\
                 \x20     \"residue\": {},\n      \"whole\": {}\n    }}",
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

    /// Replaces the file atomically.
    ///
    /// # Errors
    /// [`BaselineError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), BaselineError> {
        Ok(forebay_graph::files::replace(path, self.text()?.as_bytes())?)
    }
}

/// Parses any bytes, for fuzzing. A baseline that is accepted must be the same after it is written and read again.
pub fn fuzz_baseline(bytes: &[u8]) {
    if let Ok(baseline) = Baseline::parse(bytes) {
        let text = baseline.text().expect("plain values can be written");
        let again = Baseline::parse(text.as_bytes()).expect("a written baseline can be read");
        assert_eq!(again, baseline);
    }
}

#[cfg(test)]
pub(crate) mod tests;
