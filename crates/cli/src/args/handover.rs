//! The command line of `measure handover`, and how it is combined with the command line of `measure`.

use forebay_measure::machine::allowed_cores;

use super::Measure;
use super::values::whole_within;

/// Arguments of `measure`: a pipeline, or a subcommand.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Measured {
    #[command(subcommand)]
    pub(crate) other: Option<Other>,
    #[command(flatten)]
    pub(crate) pipeline: Option<Measure>,
}

/// Measurements other than those of pipelines.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Other {
    /// Measure the cost of handing packets and cache lines from one core to another
    Handover(Handover),
}

/// Arguments of `measure handover`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay measure handover
  forebay measure handover --cores 0,1 --repeats 21
  forebay measure handover --json | jq '.pairs[] | {cores, dirty: .dirty_line.median}'

Without --cores, the command measures one pair of each type, among the cores that this process may use. The types are: \
two threads of one core, two cores of one NUMA node, and two cores of different nodes. All figures are ticks of the \
time-stamp counter. To measure a configuration file named handover, write ./handover.")]
pub(crate) struct Handover {
    /// Measure all pairs of these cores, in both directions
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = core)]
    pub(crate) cores: Vec<usize>,
    /// Number of repetitions of each measurement
    #[arg(long, value_name = "N", default_value = "9", value_parser = repeats)]
    pub(crate) repeats: u16,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a number of repetitions.
fn repeats(text: &str) -> Result<u16, String> {
    whole_within(text, 1..=999)
}

/// Parses a core that this process may use.
fn core(text: &str) -> Result<usize, String> {
    let allowed = allowed_cores();
    text.trim().parse().ok().filter(|core| allowed.contains(core)).ok_or_else(|| {
        let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        format!("allowed are the cores of this process: {}", allowed.join(", "))
    })
}
