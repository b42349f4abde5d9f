//! The arguments of `forebay profile`.

use std::path::PathBuf;

use forebay_bench::profile::Effort;
use forebay_units::Nanos;

use super::values::{time_within, whole_within};

/// Arguments of `profile`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay profile                          every function; takes half a minute the first time
  forebay profile acl ip_lookup            two functions
  forebay profile --again acl              measure again, although a result is stored
  forebay profile --batch 256              for larger batches
  forebay profile usecase:gw --set n=4     the modules of a pipeline, with their parameters
  forebay profile edge.yaml                a file; its interfaces are replaced by generated packets
  forebay profile --json | jq '.functions | map_values(.batchiness)'
  forebay profile --co-runs acl ip_lookup  their slowdown beside competitors, and models of it
  forebay profile --co-runs                every function; takes minutes; after a signal, repeat it to continue
  forebay profile --co-runs tables.yaml    each module of a pipeline, with its parameters

A call on b packets costs T0 + T1 b. The batchiness is the cost of a packet in a full batch, divided by the cost of a \
packet alone: the smaller it is, the more time full batches save. The command stores its results in \
$XDG_CACHE_HOME/forebay/profile (without this variable: ~/.cache/forebay/profile), for this CPU model and this build. \
Runs and simulations use the stored costs of the pipeline's modules. For a module without stored costs, they use the \
costs of its function's example. The controller of a run starts from these costs and keeps learning.

With --co-runs, each function runs on a core of its own, first alone and then beside competitors on other cores. The \
competitors are other functions, and synthetic functions that use parts of the shared cache and of the memory \
bandwidth. `forebay place` predicts rates with the resulting models. The models are stored in forebay/placement, \
beside the profiles. The runs are stored in forebay/co-runs.")]
pub(crate) struct Profile {
    /// Functions, as `forebay list functions` shows them, or a pipeline (`usecase:NAME` or a file); default: all
    /// functions
    #[arg(value_name = "FUNCTION|PIPELINE")]
    pub(crate) functions: Vec<String>,
    /// Settings of the pipeline
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Also measure functions whose results are stored
    #[arg(long)]
    pub(crate) again: bool,
    /// The largest batch, in packets (default: 32; for a pipeline, its own)
    #[arg(long, value_name = "N", value_parser = batch)]
    pub(crate) batch: Option<usize>,
    /// Measuring time per function (default: 600ms; with --co-runs 6s)
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Nanos>,
    /// Measure the slowdown of functions beside competitors on other cores
    #[arg(long)]
    pub(crate) co_runs: bool,
    /// With --co-runs: number of passes over all functions
    #[arg(long, value_name = "N", default_value_t = 3, requires = "co_runs", value_parser = passes)]
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
    whole_within(text, *Effort::BATCHES.start() as u64..=*Effort::BATCHES.end() as u64)
}

/// Parses a number of passes.
fn passes(text: &str) -> Result<u8, String> {
    whole_within(text, 1..=100)
}

fn time(text: &str) -> Result<Nanos, String> {
    time_within(text, Nanos(10_000_000)..=Nanos(60_000_000_000), "10ms to 60s")
}
