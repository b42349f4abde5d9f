//! The arguments of `forebay place`.

use std::path::PathBuf;

use clap::ValueEnum;
use forebay_placement::{problem::Objective, search::Algorithm};
use forebay_units::Nanos;

use super::Running;
use super::values::{setting, time_within, whole};

/// Arguments of `place`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay place chains.yaml                                  on this machine, with its models
  forebay place chains.yaml --topology 2x12 --models models.json
  forebay place chains.yaml --objective cores                the fewest cores that serve all rates
  forebay place chains.yaml --search octans                  the paper's heuristic
  forebay place chains.yaml --explain                        the cost of each move
  forebay place chains.yaml --from now.json --moves 2        at most two functions move
  forebay place chains.yaml --write edge.yaml --spare        a pipeline for `forebay run edge.yaml`
  forebay place chains.yaml --apply --moves 2                move at most two functions of the running pipeline

Exit codes: 0 all chains are placed; 1 chains do not fit (the command names them), or a delay objective is missed; \
2 bad usage or input, or the placement cannot be applied.")]
pub(crate) struct PlaceOptions {
    /// A file of chains, or `-` for standard input
    #[arg(value_name = "CHAINS")]
    pub(crate) chains: String,
    /// `host`, an XML file that hwloc wrote, or NODESxCORES such as 2x12 (see `forebay topology`)
    #[arg(long, value_name = "TOPOLOGY", default_value = "host")]
    pub(crate) topology: String,
    /// The root of the kernel's files: DIR/proc, DIR/sys; only with `--topology host`
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Place functions on all hardware threads (default: on one thread of each core)
    #[arg(long)]
    pub(crate) smt: bool,
    /// Read models from this file instead of this machine's models. The option can be repeated. If several files have a
    /// model of a function, the model in the last of these files is used
    #[arg(long, value_name = "FILE")]
    pub(crate) models: Vec<PathBuf>,
    /// Refuse functions without a model. By default `place` measures them on this machine first, unless `--models` or
    /// another topology is given
    #[arg(long)]
    pub(crate) no_profile: bool,
    /// The goal of the placement
    #[arg(long, value_enum, default_value_t = ObjectiveName::Served)]
    pub(crate) objective: ObjectiveName,
    /// The search algorithm
    #[arg(long, value_enum, default_value_t = SearchName::Exact)]
    pub(crate) search: SearchName,
    /// Time limit of the search, 1ms to 1h; at the limit, the result is the best placement found so far, with a bound
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = limit)]
    pub(crate) limit: Nanos,
    /// The seed of `--search random`
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>)]
    pub(crate) seed: u64,
    /// The current placement, as `place --json` printed it. Functions that do not move keep their cores
    #[arg(long, value_name = "FILE", group = "earlier")]
    pub(crate) from: Option<PathBuf>,
    /// Maximum number of functions that move, relative to `--from` or, with `--apply`, to the running pipeline
    #[arg(long, value_name = "M", requires = "earlier", value_parser = whole::<usize>)]
    pub(crate) moves: Option<usize>,
    /// Solve rates and contention together, because a function that waits for other functions competes less
    #[arg(long)]
    pub(crate) rate_coupled: bool,
    /// Show for each chain the best other domain and the cost of a move there
    #[arg(long)]
    pub(crate) explain: bool,
    /// Override a part of the file of chains
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<String>,
    /// Write the pipeline of the placement to this file, for `forebay run`
    #[arg(long, value_name = "PIPELINE")]
    pub(crate) write: Option<PathBuf>,
    /// With `--write`: also add workers on cores without functions. They sleep until `--apply` moves functions there
    #[arg(long, requires = "write")]
    pub(crate) spare: bool,
    /// Move the modules of a running pipeline to the chosen cores; the pipeline must have workers on these cores
    #[arg(long, group = "earlier")]
    pub(crate) apply: bool,
    /// With `--apply`: also move modules that lose their sessions
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

/// The goals of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectiveName {
    /// The highest weighted packet rate, up to the stated rate of each chain
    Served,
    /// The highest total packet rate, without stated rates
    Sum,
    /// The fewest cores that serve all rates
    Cores,
}

/// The search algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchName {
    /// Branch and bound, with a proof of how good the placement is
    Exact,
    /// The heuristic of the Octans paper
    Octans,
    /// Each function in turn on the domain with the smallest share of used cores
    NodeBalancing,
    /// Each function in turn on the home domain, then on others
    NodeFirst,
    /// Each function in turn on any free core
    Random,
    /// Try every placement
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
