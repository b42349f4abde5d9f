//! The arguments of `forebay profile`.

use forebay_lean::profile::Effort;
use forebay_measure::Nanos;

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

A call on b packets costs T0 + T1 b. The smaller the batchiness, the more is saved by full batches. What was measured \
is kept in $XDG_CACHE_HOME/forebay/profile (else ~/.cache/forebay/profile), for this CPU model and this build. Runs \
and simulations of a pipeline take what was measured of its modules, else what was measured of their functions' \
examples; controllers of a run learn on from there.")]
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
    /// How long each function is measured
    #[arg(long, value_name = "TIME", default_value = "600ms", value_parser = time)]
    pub(crate) time: Nanos,
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
