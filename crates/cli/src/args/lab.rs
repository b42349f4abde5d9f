//! The arguments of `forebay lab`.

use std::path::PathBuf;

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use forebay_lab::{
    batching::{self, BatchingPart},
    placement,
};
use forebay_units::Nanos;

use super::values::{time_within, whole};

/// Experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Measure the cost of a packet (NALM): in two chains, on one core and on several, in hand-over between cores, at
    /// several rates, and in every use case
    #[command(after_help = "\
Examples:
  forebay lab lean --out lean                 takes a few minutes; then open lean/index.html
  forebay lab lean --out lean --short         takes seconds, for a first look
  forebay lab lean --out lean --json | jq .chains

The command writes results.json, a CSV file for each table, and index.html, which needs no other file. Run no other \
programs on the machine meanwhile. The report names runs that were disturbed.")]
    Lean(LabLean),
    /// Measure the savings and the delay of batches under every controller: the experiments of Batchy
    #[command(after_help = "\
Examples:
  forebay lab batching --out batching --short            takes seconds, in simulated time
  forebay lab batching --out batching --virtual          simulated time: other programs cannot disturb it
  forebay lab batching --out batching                    takes hours, on this machine's cores
  forebay lab batching --out batching --only static,slo-steps --duration 500ms
  forebay lab batching --out batching --only static --usecase 'vrf 16 4'

The command writes results.json, a CSV file for each table, and index.html, which needs no other file. In simulated \
time, a function has the call cost that `forebay profile` has measured on this machine. If there is no measurement, it \
has the cost from the Batchy paper. If the paper does not have the function, its cost is assumed. The report names the \
source of each cost.")]
    Batching(LabBatching),
    #[command(after_help = "\
Examples:
  forebay lab placement --out placement                  takes minutes; then open placement/index.html
  forebay lab placement --out placement --short          takes seconds, for a first look
  forebay lab placement --out placement --only gain,search

The command writes results.json, models.json for `forebay place`, a CSV file for each table, and index.html, which \
needs no other file. Everything is simulated except the times of searches and the part `validity`. An interrupted run \
is continued if --out, --short and --seed are the same.")]
    /// Repeat the placement experiments of Octans: the slowdown of functions on shared caches, its prediction, and the
    /// gain of placements
    Placement(LabPlacement),
}

/// Arguments of `lab lean`.
#[derive(Debug, clap::Args)]
pub(crate) struct LabLean {
    /// The folder for the results; it is created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Make fewer and shorter runs
    #[arg(long)]
    pub(crate) short: bool,
    /// Do not count instructions
    #[arg(long)]
    pub(crate) no_count: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `lab batching`.
#[derive(Debug, clap::Args)]
pub(crate) struct LabBatching {
    /// The folder for the results; it is created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Run in simulated time
    #[arg(long = "virtual")]
    pub(crate) simulated: bool,
    /// Make fewer, smaller and shorter runs, in simulated time
    #[arg(long, visible_alias = "quick")]
    pub(crate) short: bool,
    /// Only these parts
    #[arg(long, value_name = "PART,…", value_delimiter = ',', value_parser = parts())]
    pub(crate) only: Vec<BatchingPart>,
    /// Decision period of the controllers, at least 1ms (default: 10ms)
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub(crate) period: Option<Nanos>,
    /// Duration of each run of the static experiment after its controller has settled (default: 1s)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Nanos>,
    /// Repetitions of each run of the static experiment (default: 20)
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

/// Arguments of `lab placement`.
#[derive(Debug, clap::Args)]
pub(crate) struct LabPlacement {
    /// The folder for the results; it is created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Make fewer co-runs and use smaller instances
    #[arg(long, visible_alias = "quick")]
    pub(crate) short: bool,
    /// Only these parts
    #[arg(long, value_name = "PART,…", value_delimiter = ',', value_parser = placement_parts())]
    pub(crate) only: Vec<placement::PlacementPart>,
    /// The seed of random numbers; runs with the same seed give the same figures
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub(crate) seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Returns a parser for the names of the parts of `lab placement`.
fn placement_parts() -> impl TypedValueParser<Value = placement::PlacementPart> {
    let names = || placement::PlacementPart::ALL.iter().map(|part| part.name());
    // clap has already refused all other names.
    PossibleValuesParser::new(names()).map(|name| {
        placement::PlacementPart::ALL
            .iter()
            .copied()
            .find(|part| part.name() == name)
            .unwrap_or(placement::PlacementPart::Order)
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

/// Parses the name of a use case that the experiment has, with optional sizes.
fn usecase(text: &str) -> Result<String, String> {
    let text = text.trim();
    let name = text.split(' ').next().unwrap_or_default();
    match batching::USECASES.contains(&name) {
        true => Ok(text.to_owned()),
        false => Err(format!("allowed are {}, optionally with sizes as in `vrf 16 4`", batching::USECASES.join(", "))),
    }
}

/// Returns a parser for the names of the parts of `lab batching`.
fn parts() -> impl TypedValueParser<Value = BatchingPart> {
    let names = || BatchingPart::ALL.iter().map(|part| part.name());
    // clap has already refused all other names.
    PossibleValuesParser::new(names())
        .map(|name| BatchingPart::ALL.iter().copied().find(|part| part.name() == name).unwrap_or(BatchingPart::Static))
}
