//! The arguments of `forebay lab`.

use std::path::PathBuf;

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use forebay_lab::{
    batching::{self, Part},
    placement,
};
use forebay_units::Nanos;

use super::values::time_within;

/// Experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// What a packet costs: two chains run to completion and pipelined, hand-over, load against rate, every use case (NALM)
    #[command(after_help = "\
Examples:
  forebay lab lean --out lean                 a few minutes; then open lean/index.html
  forebay lab lean --out lean --short         seconds, to see what there is
  forebay lab lean --out lean --json | jq .chains

It writes results.json, a CSV file for each table, and index.html, which needs nothing besides itself. Nothing else should run \
on the machine meanwhile; runs that were disturbed are named in the report.")]
    Lean(LabLean),
    /// What batches save and what they cost in delay, under every controller: the experiments of Batchy
    #[command(after_help = "\
Examples:
  forebay lab batching --out batching --short            seconds, in simulated time, to see what there is
  forebay lab batching --out batching --virtual          in simulated time: nothing that the machine does disturbs it
  forebay lab batching --out batching                    hours, on this machine's cores
  forebay lab batching --out batching --only static,slo-steps --duration 500ms
  forebay lab batching --out batching --only static --usecase 'vrf 16 4'

It writes results.json, a CSV file for each table, and index.html, which needs nothing besides itself. In simulated time calls take \
what `forebay profile` has measured here, or else what Batchy published; the report says which.")]
    Batching(LabBatching),
    /// Which core runs which function: drops beside competitors, predictions, gains of placements (Octans)
    #[command(after_help = "\
Examples:
  forebay lab placement --out placement                  minutes; then open placement/index.html
  forebay lab placement --out placement --short          seconds, to see what there is
  forebay lab placement --out placement --only gain,search

It writes results.json, models.json as `forebay place` reads it, a CSV file for each table, and index.html, which \
needs nothing besides itself. All but the times of searches and the part `validity` is simulated. A run that was \
interrupted is continued where --out, --short and --seed are the same.")]
    Placement(LabPlacement),
}

/// `lab lean`'s arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct LabLean {
    /// The folder that results are written to; it is made where it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Fewer and shorter runs
    #[arg(long)]
    pub(crate) short: bool,
    /// Do not count instructions
    #[arg(long)]
    pub(crate) no_count: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lab batching`'s arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct LabBatching {
    /// The folder that results are written to; it is made where it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// In simulated time
    #[arg(long = "virtual")]
    pub(crate) simulated: bool,
    /// Fewer, smaller and shorter runs, in simulated time
    #[arg(long, visible_alias = "quick")]
    pub(crate) short: bool,
    /// Only these parts
    #[arg(long, value_name = "PART,…", value_delimiter = ',', value_parser = parts())]
    pub(crate) only: Vec<Part>,
    /// How often controllers decide, from 1ms (10ms)
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub(crate) period: Option<Nanos>,
    /// How long a run of the static experiment is, once its controller has settled (1s)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Nanos>,
    /// How often each run of the static experiment is made (20)
    #[arg(long, value_name = "N", value_parser = runs)]
    pub(crate) runs: Option<usize>,
    /// Only these use cases in the parts `static` and `grid`: `vrf`, or with its sizes `vrf 16 4`
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = usecase)]
    pub(crate) usecase: Vec<String>,
    /// A folder with captures, for recorded traffic
    #[arg(long, value_name = "DIR")]
    pub(crate) captures: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lab placement`'s arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct LabPlacement {
    /// The folder that results are written to; it is made where it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Fewer co-runs, smaller instances
    #[arg(long, visible_alias = "quick")]
    pub(crate) short: bool,
    /// Only these parts
    #[arg(long, value_name = "PART,…", value_delimiter = ',', value_parser = placement_parts())]
    pub(crate) only: Vec<placement::Part>,
    /// What random numbers begin with: the same seed gives the same figures
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn placement_parts() -> impl TypedValueParser<Value = placement::Part> {
    let names = || placement::Part::ALL.iter().map(|part| part.name());
    // Only names of parts get here.
    PossibleValuesParser::new(names()).map(|name| {
        placement::Part::ALL.iter().copied().find(|part| part.name() == name).unwrap_or(placement::Part::Order)
    })
}

fn period(text: &str) -> Result<Nanos, String> {
    time_within(text, Nanos(1_000_000)..=Nanos(3_600_000_000_000), "1ms to 1h")
}

fn duration(text: &str) -> Result<Nanos, String> {
    time_within(text, Nanos(1_000_000)..=Nanos(3_600_000_000_000), "1ms to 1h")
}

fn runs(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|runs| (1..=10_000).contains(runs)).ok_or_else(|| "allowed are 1 to 10000".to_owned())
}

/// A use case that the experiment has, and its sizes.
fn usecase(text: &str) -> Result<String, String> {
    let text = text.trim();
    let name = text.split(' ').next().unwrap_or_default();
    match batching::USECASES.contains(&name) {
        true => Ok(text.to_owned()),
        false => Err(format!("allowed are {}, also with sizes as in `vrf 16 4`", batching::USECASES.join(", "))),
    }
}

fn parts() -> impl TypedValueParser<Value = Part> {
    let names = || Part::ALL.iter().map(|part| part.name());
    // Only names of parts get here.
    PossibleValuesParser::new(names())
        .map(|name| Part::ALL.iter().copied().find(|part| part.name() == name).unwrap_or(Part::Static))
}
