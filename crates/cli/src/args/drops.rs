//! `drops`' arguments.

use std::path::PathBuf;

use forebay_units::Nanos;

use super::Running;
use super::values::watched;

/// `drops`' arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay drops                                   a line for each, until Ctrl-C
  forebay drops --count 10 --filter 'tcp and dst port 443'
  forebay drops --write dropped.pcapng --duration 10s
  forebay drops --json --count 3 | jq -r .reason
  forebay show drops                              how many there were, by reason

This command writes the file, not the pipeline. While packets are watched every call is, which is slower; packets that come faster \
than they can be sent are counted and missing. Exit codes: 0 all were shown or written; 1 some are missing; 2 bad usage, or the file \
cannot be written.")]
pub(crate) struct Drops {
    /// Write them to this pcapng file, with the reason as each packet's comment
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// End after so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = watched)]
    pub(crate) duration: Option<Nanos>,
    /// Only packets like these: `tcp and dst port 443`
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Option<String>,
    /// Print JSON: a line for each, and a last one with how many there were
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}
