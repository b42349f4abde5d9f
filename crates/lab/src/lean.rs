//! The experiment `lean`: reproduces the figures of NALM (ToN 2022) on this machine.
//!
//! - Two service function chains, run to completion on one core and pipelined over two cores, in ticks and instructions
//!   per packet (the paper's Table IV).
//! - The cost of handing a packet over, by the level of the memory hierarchy (the paper's Table VI).
//! - The utilisation of workers by the rate, from idle to saturation (the paper's observation on equation 6).
//! - The cost of a packet in each use case, by module.

mod chains;
mod counted;
mod load;
mod memory;
mod page;
mod tables;
mod usecases;

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_bench::counting::Extent;
use forebay_bench::handover::Handover;
use serde::Serialize;

use crate::{Header, LabError, Machine, Progress};

pub use chains::{Chain, Model, Paper, Stages};
pub use load::{Load, Point};
pub use usecases::UseCase;

/// The approximate time to count the instructions of a case, in seconds.
const COUNTING_SECONDS: f64 = 4.0;

/// The extent of the experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeanSettings {
    /// Whether runs are fewer and shorter.
    pub short: bool,
    /// The program that counts instructions, which is this command itself. `None`: instructions are not counted.
    pub counter: Option<PathBuf>,
}

/// The duration and number of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extents {
    /// The duration of a run of a chain or a use case.
    span: Duration,
    /// The duration of a run at one rate.
    step: Duration,
    /// The number of runs of each chain.
    runs: usize,
    /// The number of repetitions of the hand-over measurement.
    repeats: usize,
    /// The numbers of packets before the counting of instructions begins, and during it.
    counting: Extent,
}

impl LeanSettings {
    /// Returns the duration and number of runs.
    fn extents(&self) -> Extents {
        if self.short {
            let counting = Extent { before: 2_048, packets: 8_192 };
            Extents {
                span: Duration::from_millis(100),
                step: Duration::from_millis(100),
                runs: 1,
                repeats: 1,
                counting,
            }
        } else {
            let counting = Extent::default();
            Extents { span: Duration::from_secs(1), step: Duration::from_millis(300), runs: 5, repeats: 9, counting }
        }
    }
}

/// The results of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeanResults {
    /// The experiment and its time.
    #[serde(flatten)]
    pub header: Header,
    /// The machine on which the experiment ran.
    pub machine: Machine,
    /// Whether the user interrupted the experiment. Then there are fewer runs, rates and use cases.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// The reason why instructions were not counted, if they were not.
    pub not_counted: Option<String>,
    /// The two chains.
    pub chains: Vec<Chain>,
    /// The cost of hand-over and of reading memory. `None` if this process may use no core to measure it on.
    pub handover: Option<Handover>,
    /// The busy share by rate.
    pub load: Load,
    /// The results of every use case.
    pub usecases: Vec<UseCase>,
}

/// Runs the experiment.
///
/// # Errors
/// Returns [`LabError`] if a run fails, a file cannot be read, or the user interrupts it.
pub fn run(settings: &LeanSettings, progress: &mut dyn Progress) -> Result<LeanResults, LabError> {
    let header = Header::now("lean", settings.short);
    let extents = settings.extents();
    let (chains, usecases) = (chains::cases(), usecases::cases());
    // Counting takes seconds for each use case, so a short run omits it.
    let of_usecases = if settings.short { &[][..] } else { &usecases[..] };
    let counted = if settings.counter.is_some() { chains.len() + of_usecases.len() } else { 0 };
    let steps = counted + chains.len() * extents.runs + 1 + 2 + load::shares(settings.short).len() + usecases.len();
    progress.begin(steps);
    let runs = (chains.len() * extents.runs + usecases.len()) as f64 * extents.span.as_secs_f64();
    let rates = (load::shares(settings.short).len() + 2) as f64 * extents.step.as_secs_f64();
    // Repetitions of void runs are not included. Counting takes about the same time on every machine.
    progress.expect(runs + rates + counted as f64 * COUNTING_SECONDS);
    // Counting comes first: it loads all cores, so no time can be measured meanwhile.
    let cases: Vec<_> = chains.iter().map(|(_, _, case)| case.clone()).chain(of_usecases.iter().cloned()).collect();
    let (counts, not_counted) = counted::all(&cases, settings.counter.as_deref(), extents.counting, progress)?;
    let (of_chains, of_usecases) = counts.split_at(chains.len());
    let chains = chains::measure(&chains, of_chains, extents.span, extents.runs, progress)?;
    let handover = memory::measure(extents.repeats, progress)?;
    let load = load::measure(settings.short, extents.step, progress)?;
    let usecases = usecases::measure(&usecases, of_usecases, extents.span, progress)?;
    let interrupted = progress.is_stopped();
    Ok(LeanResults { header, machine: Machine::this(), interrupted, not_counted, chains, handover, load, usecases })
}

impl LeanResults {
    /// Returns the names of the void runs. The machine was disturbed during them, so their figures carry no meaning.
    #[must_use]
    pub fn void(&self) -> Vec<String> {
        page::void(self)
    }
}

/// Writes results to a folder, which is created if it is missing: `results.json`, a CSV file for each table, and
/// `index.html`. Each file is written as a whole or not at all. Returns the files that were written.
///
/// # Errors
/// Returns [`LabError`] if a figure cannot be drawn or a file cannot be written.
pub fn write(results: &LeanResults, folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut files = vec![("index.html", Some(page::page(results)?))];
    files.extend(tables::all(results).into_iter().map(|(name, text)| (name, Some(text))));
    crate::folder::write(folder, results, files)
}
