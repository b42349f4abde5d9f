//! `stop`'s arguments.

use forebay_units::Nanos;

use super::Running;
use super::values::timeout;

/// `stop`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay stop                            the only pipeline that runs
  forebay stop --instance edge
  forebay stop --timeout 2min --json

The pipeline ends as it does by SIGTERM: queues are emptied, ports closed, its summary printed. Exit codes: 0 it has ended, however; \
1 it has not ended in time; 2 there is none, or bad usage.")]
pub(crate) struct Stop {
    /// How long to wait for its end, up to an hour
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout)]
    pub(crate) timeout: Nanos,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}
