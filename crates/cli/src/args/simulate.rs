//! The arguments of `forebay simulate`.

use std::path::PathBuf;

use forebay_units::Nanos;

use super::Settings;
use super::values::{cost, duration};

/// Arguments of `simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay profile                                          first measure the cost of calls on this machine
  forebay simulate usecase:gw --set n=16 --set fold=off --set rate=1Mpps --set slo=300us --controller optimal \
--duration 1h
  forebay simulate usecase:gw --workers 16 --cost '*=60+20'
  forebay simulate gateway.yaml --json | jq '.flows[] | {name, rate_pps, kept}'

The command first runs the pipeline for some thousand packets to learn their paths. From then on it simulates queues, \
batches, schedulers and controllers, but no packets. It refuses a pipeline with rate limits, with modules that hold \
packets, or with sources that end, and names the cause. `forebay run --virtual` runs every packet, which is slower and \
more exact. Exit codes: 0 success; 1 an output file is incomplete (a log, alerts or the copies of `tap`), or, with \
--strict, a flow missed an objective; 2 bad usage or input.")]
pub(crate) struct Simulate {
    /// A configuration file, `usecase:NAME`, or `-` for standard input
    pub(crate) pipeline: String,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Simulated time, such as 20s or 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) duration: Nanos,
    /// Nanoseconds per call and per packet of a module, of all modules of a function, or of all modules (`*`) (default:
    /// the results of `forebay profile` on this machine)
    #[arg(long, value_name = "NAME=CALL+PACKET", value_parser = cost)]
    pub(crate) cost: Vec<(String, forebay_graph::Cost)>,
    /// Write the inputs and decisions of the controller in each period to this file, for `forebay replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    /// Print one JSON object, with the format of `run --json`, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// Print all rows of all tables, and the modules' own counters
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
    /// Exit with 1 if a flow missed an objective
    #[arg(long)]
    pub(crate) strict: bool,
}
