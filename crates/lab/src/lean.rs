//! The experiment `lean`: NALM's figures (ToN 2022), made on this machine.
//!
//! - Two service function chains, run to completion on one core and pipelined over two, in ticks and instructions per packet
//!   (its Table IV).
//! - What the memory hierarchy makes of handing a packet over (its Table VI).
//! - How busy workers are by the rate, from idle to saturation (its observation on equation 6).
//! - What a packet costs in each use case, module by module.

mod chains;
mod counted;
mod load;
mod memory;
mod page;
mod tables;
mod usecases;

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_lean::counting::Extent;
use forebay_lean::handover::Handover;
use serde::Serialize;

use crate::{Header, LabError, Machine, Progress};

pub use chains::{Chain, Model, Paper, Stages};
pub use load::{Load, Point};
pub use usecases::UseCase;

/// About how long it takes to count the instructions of a case.
const COUNTING_SECONDS: f64 = 4.0;

/// How much is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Fewer and shorter runs.
    pub short: bool,
    /// The program that counts instructions, this very command; `None`: they are not counted.
    pub counter: Option<PathBuf>,
}

/// How long and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extents {
    /// Of a run of a chain or a use case.
    span: Duration,
    /// Of a run at one rate.
    step: Duration,
    /// Runs of each chain.
    runs: usize,
    /// Runs of hand-over.
    repeats: usize,
    counting: Extent,
}

impl Settings {
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

/// All that the experiment has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// Which experiment, and when.
    #[serde(flatten)]
    pub header: Header,
    /// Where.
    pub machine: Machine,
    /// Whether the user interrupted it: there are fewer runs, rates and use cases.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Why instructions are not there, where they are not.
    pub not_counted: Option<String>,
    /// The two chains.
    pub chains: Vec<Chain>,
    /// What handing over takes, and reading memory; `None` where this process may use no core that it could be measured on.
    pub handover: Option<Handover>,
    /// Busy time by rate.
    pub load: Load,
    /// Every use case.
    pub usecases: Vec<UseCase>,
}

/// Runs the experiment.
///
/// # Errors
/// [`LabError`].
pub fn run(settings: &Settings, progress: &mut dyn Progress) -> Result<Results, LabError> {
    let header = Header::now("lean", settings.short);
    let extents = settings.extents();
    let (chains, usecases) = (chains::cases(), usecases::cases());
    // Counting a use case takes seconds by itself: a short run leaves them out.
    let of_usecases = if settings.short { &[][..] } else { &usecases[..] };
    let counted = if settings.counter.is_some() { chains.len() + of_usecases.len() } else { 0 };
    let steps = counted + chains.len() * extents.runs + 1 + 2 + load::shares(settings.short).len() + usecases.len();
    progress.begin(steps);
    let runs = (chains.len() * extents.runs + usecases.len()) as f64 * extents.span.as_secs_f64();
    let rates = (load::shares(settings.short).len() + 2) as f64 * extents.step.as_secs_f64();
    // Runs that are void are made again; counting is about as slow everywhere.
    progress.expect(runs + rates + counted as f64 * COUNTING_SECONDS);
    // First, because it loads all cores: nothing is measured meanwhile.
    let cases: Vec<_> = chains.iter().map(|(_, _, case)| case.clone()).chain(of_usecases.iter().cloned()).collect();
    let (counts, not_counted) = counted::all(&cases, settings.counter.as_deref(), extents.counting, progress)?;
    let (of_chains, of_usecases) = counts.split_at(chains.len());
    let chains = chains::measure(&chains, of_chains, extents.span, extents.runs, progress)?;
    let handover = memory::measure(extents.repeats, progress)?;
    let load = load::measure(settings.short, extents.step, progress)?;
    let usecases = usecases::measure(&usecases, of_usecases, extents.span, progress)?;
    let interrupted = progress.is_stopped();
    Ok(Results { header, machine: Machine::this(), interrupted, not_counted, chains, handover, load, usecases })
}

impl Results {
    /// Names of the runs that are void: they were measured while the machine was disturbed, and say nothing.
    #[must_use]
    pub fn void(&self) -> Vec<String> {
        page::void(self)
    }
}

/// Writes results to a folder, which is made where it is not there: `results.json`, a CSV file for each table, `index.html`.
/// Each is written whole or not at all. The files that were written.
///
/// # Errors
/// [`LabError`].
pub fn write(results: &Results, folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut files = vec![("index.html", Some(page::page(results)?))];
    files.extend(tables::all(results).into_iter().map(|(name, text)| (name, Some(text))));
    crate::folder::write(folder, results, files)
}
