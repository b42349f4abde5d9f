//! The arguments of `forebay drops`.

use std::path::PathBuf;

use forebay_units::Nanos;

use super::Running;
use super::values::{watched, whole_within};

/// Arguments of `drops`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay drops                                   one line per packet, until Ctrl-C
  forebay drops --count 10 --filter 'tcp and dst port 443'
  forebay drops --write dropped.pcapng --duration 10s
  forebay drops --json --count 3 | jq -r .reason
  forebay show drops                              number of drops, by reason

The file is written by this command, not by the pipeline. While the command watches, the pipeline observes every call, \
and is therefore slower. If the pipeline drops packets faster than it can send them to this command, some packets are \
missing; their number is counted. Exit codes: 0 all packets were shown or written; 1 some packets are missing, or \
their number is unknown, because the pipeline was killed or does not respond; 2 bad usage, or the file cannot be \
written.")]
pub(crate) struct Drops {
    /// Write the packets to this pcapng file, with the drop reason as each packet's comment
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Stop after N packets
    #[arg(long, value_name = "N", value_parser = packets)]
    pub(crate) count: Option<u64>,
    /// Stop after this time, 1ms to 86400s
    #[arg(long, value_name = "TIME", value_parser = watched)]
    pub(crate) duration: Option<Nanos>,
    /// Only packets that match: `tcp and dst port 443`
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Option<String>,
    /// Print JSON: one line per packet, and a last line with the totals
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// Parses a number of packets.
fn packets(text: &str) -> Result<u64, String> {
    whole_within(text, 1..=u64::MAX)
}
