//! The arguments of `forebay simulate`.

use std::path::PathBuf;

use forebay_units::Nanos;

use super::Settings;
use super::values::cost;

/// `simulate`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay profile                                          what calls cost on this machine, once
  forebay simulate usecase:gw --set n=16 --set fold=off --set rate=1Mpps --set slo=300us --controller optimal --duration 1h
  forebay simulate usecase:gw --workers 16 --cost '*=60+20'
  forebay simulate gateway.yaml --json | jq '.flows[] | {name, rate_pps, kept}'

The pipeline is run for some thousand packets first, to learn which ways they take; from there on queues, batches, schedulers and \
controllers are simulated, and packets are not. What cannot be simulated is refused by name: modules that hold packets back, rate limits, \
sources that end. `forebay run --virtual` runs every packet, and is as exact as can be. Exit codes: 0 done; \
1 lines of a log or of alerts, or copies of tap, are not in their file, or, with --strict, a flow missed an objective; \
2 bad usage or input.")]
pub(crate) struct Simulate {
    /// A configuration file, `usecase:NAME`, or `-` for standard input
    pub(crate) pipeline: String,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// How much time passes, such as 20s or 1h
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) duration: Nanos,
    /// What a call of a module, of a function's modules, or of all (`*`) takes, in nanoseconds a call and a packet; without it,
    /// what `forebay profile` has measured on this machine
    #[arg(long, value_name = "NAME=CALL+PACKET", value_parser = cost)]
    pub(crate) cost: Vec<(String, forebay_graph::Cost)>,
    /// Write what the controller sees and decides each period, for `forebay replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    /// Print one JSON object, that of `run --json`, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Print all rows of all tables, and the modules' own counters
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
    /// Exit with 1 where a flow missed an objective
    #[arg(long)]
    pub(crate) strict: bool,
}
