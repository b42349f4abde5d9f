//! The command line of `measure handover`, and how it stands beside that of `measure`.

use forebay_measure::machine::allowed_cores;

use super::Measure;

/// `measure`: a pipeline, or something else.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Measured {
    #[command(subcommand)]
    pub(crate) other: Option<Other>,
    #[command(flatten)]
    pub(crate) pipeline: Option<Measure>,
}

/// What can be measured besides pipelines.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Other {
    /// Measure what it takes to hand packets and cache lines from one core to another
    Handover(Handover),
}

/// `measure handover`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay measure handover
  forebay measure handover --cores 0,1 --repeats 21
  forebay measure handover --json | jq '.pairs[] | {cores, dirty: .dirty_line.median}'

A pair of each kind is measured among the cores that this process may use: threads of a core, cores of one NUMA node, of two. \
All figures are ticks of the time-stamp counter. A configuration file of this name is ./handover.")]
pub(crate) struct Handover {
    /// Between these cores, all pairs of them in both directions
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = core)]
    pub(crate) cores: Vec<usize>,
    /// How many times everything is measured
    #[arg(long, value_name = "N", default_value = "9", value_parser = clap::value_parser!(u16).range(1..=999))]
    pub(crate) repeats: u16,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A core that this process may use.
fn core(text: &str) -> Result<usize, String> {
    let allowed = allowed_cores();
    text.trim().parse().ok().filter(|core| allowed.contains(core)).ok_or_else(|| {
        let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        format!("this process may use {}", allowed.join(", "))
    })
}
