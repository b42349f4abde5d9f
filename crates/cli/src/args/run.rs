//! Arguments of `run`.

use std::path::PathBuf;

use forebay_observe::filter::Filter;
use forebay_server::Listen;
use forebay_units::Nanos;

use super::Settings;
use super::values::{cost, count, duration, interval, trigger, whole};
use crate::events::LogFormat;
use crate::start::Prefer;

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay run usecase:gw --set n=16 --duration 20s
  forebay run gateway.yaml --set ports.red.generator.rate=2Mpps --trigger route=16
  forebay run gateway.yaml --duration 5s --json | tail -n 1 | jq .packets
  forebay run gateway.yaml --trace 3 --filter 'udp and vlan 200'
  forebay run inspection.yaml --drops dropped.pcapng --duration 2s
  forebay run usecase:gw --virtual --cost 'acl=500+20' --duration 100ms

The run ends when every source is exhausted, after --duration, or on Ctrl-C (in the live table also on q, twice). It \
always prints the summary. Exit codes: 0 success; 1 an output file is incomplete (a log, alerts, the copies of `tap` \
or the packets of --drops), or, with --strict, a flow missed an objective; 2 bad usage or input, or a port failed (for \
example because its disk is full).")]
pub(crate) struct Run {
    /// A configuration file, `usecase:NAME`, or `-` for standard input
    pub(crate) pipeline: String,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Set a module's trigger: the module runs on exactly N packets at a time (0: on the packets that are queued)
    #[arg(long, value_name = "MODULE=N", value_parser = trigger)]
    pub(crate) trigger: Vec<(String, usize)>,
    /// Write the inputs and decisions of the controller in each period to this file, for `forebay replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    /// Stop after this time, such as 20s or 500ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Nanos>,
    /// Bind the only worker to this core (default: the core in the configuration; without one, a core is chosen
    /// automatically)
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub(crate) core: Option<usize>,
    /// Save each accepted configuration in this file. The next run starts from it, unless the pipeline's file has
    /// changed since
    #[arg(long, value_name = "FILE", conflicts_with = "simulated")]
    pub(crate) state: Option<PathBuf>,
    /// Start from the pipeline's file or from the --state file, even if both have changed
    #[arg(long, value_name = "WHICH", requires = "state")]
    pub(crate) prefer: Option<Prefer>,
    /// The run's name for `--instance` of `top`, `show`, `stop` and others (default: the pipeline's name). Two runs
    /// cannot have the same name at the same time
    #[arg(long, value_name = "NAME", conflicts_with_all = ["simulated", "no_socket", "socket"])]
    pub(crate) instance: Option<String>,
    /// Listen for `top`, `show`, `reload` and `table` at this path (default: a socket in the user's own folder)
    #[arg(long, value_name = "PATH", conflicts_with_all = ["simulated", "no_socket"])]
    pub(crate) socket: Option<PathBuf>,
    /// Do not listen for other commands
    #[arg(long)]
    pub(crate) no_socket: bool,
    /// Serve an HTTP API and metrics of this run at this address, ADDRESS:PORT or unix:PATH, such as 127.0.0.1:9640
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["simulated", "no_socket"])]
    pub(crate) http: Option<Listen>,
    /// Print one JSON object at the end, and nothing else on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Print all rows of all tables at the end, and the modules' own counters
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
    /// Exit with 1 if a flow missed a delay or rate objective
    #[arg(long)]
    pub(crate) strict: bool,
    /// Show the path of the next N packets through the modules, and the action of each module
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) trace: Option<u64>,
    /// Trace only packets that match: `tcp and dst port 443`, `host 192.0.2.1 or arp`, `vlan 100 and not ip6`
    #[arg(long, value_name = "EXPR", requires = "trace")]
    pub(crate) filter: Option<Filter>,
    /// Write every dropped packet to this pcapng file, with the drop reason as the packet's comment
    #[arg(long, value_name = "FILE")]
    pub(crate) drops: Option<PathBuf>,
    /// Time between updates of the live table (default: 1s); without a live table, print a line at this interval
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) interval: Option<Nanos>,
    /// Print neither the live table nor lines of rates during the run
    #[arg(long)]
    pub(crate) no_live: bool,
    /// Format of events on standard error
    #[arg(long, value_name = "FORMAT", default_value = "logfmt")]
    pub(crate) log_format: LogFormat,
    /// Run in simulated time: runs with the same seed are identical, and calls take the time given by --cost. Without
    /// --duration, a pipeline whose source never ends runs for 100 ms
    #[arg(long = "virtual", conflicts_with = "core")]
    pub(crate) simulated: bool,
    /// In simulated time: nanoseconds per call and per packet of a module, of all modules of a function, or of all
    /// modules (`*`)
    #[arg(long, value_name = "NAME=CALL+PACKET", requires = "simulated", value_parser = cost)]
    pub(crate) cost: Vec<(String, forebay_graph::Cost)>,
}
