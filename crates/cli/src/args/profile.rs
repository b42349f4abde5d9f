//! The arguments of `forebay profile`.

use std::path::PathBuf;

use forebay_lean::profile::Effort;
use forebay_units::Nanos;

use super::values::time_within;

/// `profile`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay profile                          every function; half a minute, the first time
  forebay profile acl ip_lookup            some
  forebay profile --again acl              once more, though it is known
  forebay profile --batch 256              for larger batches
  forebay profile usecase:gw --set n=4     the modules of a pipeline, with their parameters, where they stand
  forebay profile edge.yaml                the same of a file: generated packets come instead of those of interfaces
  forebay profile --json | jq '.functions | map_values(.batchiness)'
  forebay profile --co-runs acl ip_lookup  how much slower they run beside competitors, and models of that
  forebay profile --co-runs                the same of every function: some minutes; a signal ends it, and it goes on
                                           from there the next time
  forebay profile --co-runs tables.yaml    of the modules of a pipeline, each by itself with its parameters

A call on b packets costs T0 + T1 b. The smaller the batchiness, the more is saved by full batches. What was measured \
is kept in $XDG_CACHE_HOME/forebay/profile (else ~/.cache/forebay/profile), for this CPU model and this build. Runs \
and simulations of a pipeline take what was measured of its modules, else what was measured of their functions' \
examples; controllers of a run learn on from there.

With --co-runs each function runs on a core of its own, alone and beside competitors on the others: other functions, \
and synthetic ones that take parts of the shared cache and of the memory's bandwidth. The models of that are what \
`forebay place` predicts rates with. They are kept in forebay/placement beside profiles, and the runs in \
forebay/co-runs.")]
pub(crate) struct Profile {
    /// Functions, as `forebay list functions` has them, or a pipeline (`usecase:NAME` or a file); all functions without
    /// any
    #[arg(value_name = "FUNCTION|PIPELINE")]
    pub(crate) functions: Vec<String>,
    /// Of a pipeline: its settings
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Measure also what is known
    #[arg(long)]
    pub(crate) again: bool,
    /// The largest batch (32; of a pipeline its own)
    #[arg(long, value_name = "N", value_parser = batch)]
    pub(crate) batch: Option<usize>,
    /// How long each function is measured (600ms; with --co-runs 6s)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Nanos>,
    /// Measure how much slower functions run beside competitors on other cores
    #[arg(long)]
    pub(crate) co_runs: bool,
    /// With --co-runs: how often all functions take their turn
    #[arg(long, value_name = "N", default_value_t = 3, requires = "co_runs",
        value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) passes: u8,
    /// With --co-runs: fit by least mean squares, as the paper does, instead of non-negative least squares
    #[arg(long, requires = "co_runs")]
    pub(crate) lms: bool,
    /// With --co-runs: do not simulate caches
    #[arg(long, requires = "co_runs")]
    pub(crate) no_count: bool,
    /// With --co-runs: write the models to this file
    #[arg(long, value_name = "FILE", requires = "co_runs")]
    pub(crate) models: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn batch(text: &str) -> Result<usize, String> {
    let told = || format!("allowed are {} to {}", Effort::BATCHES.start(), Effort::BATCHES.end());
    text.parse().ok().filter(|batch| Effort::BATCHES.contains(batch)).ok_or_else(told)
}

fn time(text: &str) -> Result<Nanos, String> {
    time_within(text, Nanos(10_000_000)..=Nanos(60_000_000_000), "10ms to 60s")
}
