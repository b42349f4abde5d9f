//! `place`'s arguments.

use std::path::PathBuf;

use clap::ValueEnum;
use forebay_placement::{problem::Objective, search::Algorithm};
use forebay_units::Nanos;

use super::Running;
use super::values::{setting, time_within};

/// `place`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay place chains.yaml                                  on this machine, with its models
  forebay place chains.yaml --topology 2x12 --models models.json
  forebay place chains.yaml --objective cores                the fewest cores that serve all rates
  forebay place chains.yaml --search octans                  the paper's heuristic
  forebay place chains.yaml --explain                        what each move would cost
  forebay place chains.yaml --from now.json --moves 2        at most two functions move
  forebay place chains.yaml --write edge.yaml --spare        a pipeline for `forebay run edge.yaml`
  forebay place chains.yaml --apply --moves 2                move at most two functions of what runs

Exit codes: 0 all chains are placed; 1 chains do not fit (they are named), or a delay objective is missed; 2 bad \
usage or input, or the placement cannot be applied.")]
pub(crate) struct Place {
    /// A file of chains, or `-` for standard input
    #[arg(value_name = "CHAINS")]
    pub(crate) chains: String,
    /// `host`, an XML file that hwloc wrote, or NODESxCORES such as 2x12 (see `forebay topology`)
    #[arg(long, value_name = "TOPOLOGY", default_value = "host")]
    pub(crate) topology: String,
    /// Where the kernel's files are: DIR/proc, DIR/sys; only with `--topology host`
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Place functions on all hardware threads: by default on one of each core
    #[arg(long)]
    pub(crate) smt: bool,
    /// Models of functions; later files add to earlier ones (this machine's by default)
    #[arg(long, value_name = "FILE")]
    pub(crate) models: Vec<PathBuf>,
    /// Refuse functions without a model: by default they are measured on this machine first, unless `--models` or
    /// another topology is given
    #[arg(long)]
    pub(crate) no_profile: bool,
    /// What to look for
    #[arg(long, value_enum, default_value_t = ObjectiveName::Served)]
    pub(crate) objective: ObjectiveName,
    /// How to look for it
    #[arg(long, value_enum, default_value_t = SearchName::Exact)]
    pub(crate) search: SearchName,
    /// How long the search may take, 1ms to 1h; it ends with the best placement found and a bound
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = limit)]
    pub(crate) limit: Nanos,
    /// What `--search random` draws from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// A placement that runs already, as `place --json` printed it: functions that stay keep their cores
    #[arg(long, value_name = "FILE", group = "earlier")]
    pub(crate) from: Option<PathBuf>,
    /// How many functions may run elsewhere than in `--from`, or with `--apply` than now
    #[arg(long, value_name = "M", requires = "earlier")]
    pub(crate) moves: Option<usize>,
    /// Solve rates and contention together: functions that wait for others compete for less
    #[arg(long)]
    pub(crate) rate_coupled: bool,
    /// For each chain, the best other domain and what a move there costs
    #[arg(long)]
    pub(crate) explain: bool,
    /// Override a part of the file of chains
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<String>,
    /// Write the pipeline of the placement, which `forebay run` runs
    #[arg(long, value_name = "PIPELINE")]
    pub(crate) write: Option<PathBuf>,
    /// With `--write`: workers also on cores without functions. They sleep until `--apply` moves functions there
    #[arg(long, requires = "write")]
    pub(crate) spare: bool,
    /// Move the modules of a running pipeline to these cores, on which it has workers
    #[arg(long, group = "earlier")]
    pub(crate) apply: bool,
    /// With `--apply`: also move modules whose sessions are lost by it
    #[arg(long, requires = "apply")]
    pub(crate) lose_sessions: bool,
    #[command(flatten)]
    pub(crate) running: Running,
    /// Write a picture to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectiveName {
    /// The most weighted packets, of each chain up to its rate
    Served,
    /// The most packets, whatever comes
    Sum,
    /// The fewest cores that serve all rates
    Cores,
}

/// How it can be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchName {
    /// Branch and bound, with a proof of how good the placement is
    Exact,
    /// The heuristic of the Octans paper
    Octans,
    /// Functions in turn on the domain with the least share of its cores in use
    NodeBalancing,
    /// Functions in turn on the home domain, then on others
    NodeFirst,
    /// Functions in turn on any free core
    Random,
    /// Every placement, one after the other
    BruteForce,
}

impl From<ObjectiveName> for Objective {
    fn from(name: ObjectiveName) -> Self {
        match name {
            ObjectiveName::Served => Self::Served,
            ObjectiveName::Sum => Self::Sum,
            ObjectiveName::Cores => Self::Cores,
        }
    }
}

impl From<SearchName> for Algorithm {
    fn from(name: SearchName) -> Self {
        match name {
            SearchName::Exact => Self::Exact,
            SearchName::Octans => Self::Octans,
            SearchName::NodeBalancing => Self::NodeBalancing,
            SearchName::NodeFirst => Self::NodeFirst,
            SearchName::Random => Self::Random,
            SearchName::BruteForce => Self::BruteForce,
        }
    }
}

fn limit(text: &str) -> Result<Nanos, String> {
    time_within(text, Nanos(1_000_000)..=Nanos(3_600_000_000_000), "1ms to 1h")
}
