//! The arguments of `forebay stop`.

use forebay_units::Nanos;

use super::Running;
use super::values::timeout;

/// Arguments of `stop`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay stop                            the only running pipeline
  forebay stop --instance edge
  forebay stop --timeout 2min --json

The pipeline stops as on SIGTERM: it processes its queues, closes its ports and prints its summary. Exit codes: 0 the \
pipeline has ended, with any result; 1 the pipeline has not ended in time; 2 no such pipeline runs, or bad usage.")]
pub(crate) struct Stop {
    /// Maximum time to wait, 1ms to 3600s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout)]
    pub(crate) timeout: Nanos,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}
