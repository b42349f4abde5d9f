//! Arguments of the commands that talk to a running pipeline: `reload`, `show`, `table` and `top`.

use std::path::PathBuf;

use clap::ValueEnum;
use forebay_units::Nanos;

use super::values::{count, interval, setting};

/// The running pipeline that the command talks to.
#[derive(Debug, clap::Args)]
pub(crate) struct Running {
    /// The running pipeline's name (`forebay list running`); not needed if only one pipeline runs
    #[arg(long, value_name = "NAME", conflicts_with = "socket")]
    pub(crate) instance: Option<String>,
    /// The socket of the running pipeline, instead of its name
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

impl Running {
    /// Returns true if the command line names a running pipeline.
    pub(crate) fn is_named(&self) -> bool {
        self.socket.is_some() || self.instance.is_some()
    }
}

/// Arguments of `reload`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay reload                            read the file of the pipeline again
  forebay reload new.yaml                   another file
  forebay reload --set workers='[{}, {}]'   one more setting; the other settings stay
  forebay reload --forget                   the file without any setting
  forebay reload --json | jq .reloaded.changed   the modules that were replaced

A configuration with an error is refused completely: the command lists every error and exits with 2, and the old \
configuration keeps running. A reload cannot change `batch`, `pool`, `seed`, `scheduler` and the core of a worker. \
Modules that are equal in both configurations keep their state. Queued packets are processed first. The command \
reports the modules that were kept, changed, added and removed, and how long the ports received no packets.")]
pub(crate) struct Reload {
    /// A configuration file on the machine of the pipeline, or `usecase:NAME` (default: the file or use case with which
    /// the pipeline started)
    pub(crate) pipeline: Option<String>,
    /// Add a setting, or replace the setting with the same key; other earlier settings stay
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<String>,
    /// Discard the settings of the start and of earlier reloads; use only the settings of this command's --set
    #[arg(long)]
    pub(crate) forget: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay show modules
  forebay show flows video                one flow
  forebay show drops --json
  forebay show config > now.yaml
  forebay show control                    objectives, triggers and their reasons
  forebay show trace --count 3 --filter 'tcp and dst port 443'
  forebay show table core                 the entries of module core's table
  forebay show events --follow            recent events, and new ones as they happen
  forebay show table out.sessions --filter '10.0.0.0/24 state=established' --count 20")]
pub(crate) struct Show {
    /// The thing to show
    pub(crate) what: Shown,
    /// With `modules`, `flows` and `ports`: show only this one. With `table`: the module, or `module.table` if it has
    /// several tables
    pub(crate) name: Option<String>,
    /// With `trace`: number of packets (default: 1). With `table`: maximum number of entries (default: all). With
    /// `events`: number of the latest events (default: all that are stored)
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) count: Option<u64>,
    /// With `trace`: only packets that match. With `table` (sessions and similar tables): only entries that match all
    /// conditions: addresses, prefixes, ADDRESS:PORT, or fields such as `protocol=tcp` or `state=established`
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Option<String>,
    /// With `events`: also print new events as they happen
    #[arg(long)]
    pub(crate) follow: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// A view of a running pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shown {
    /// Modules: packets, calls, ticks
    Modules,
    /// Flows: rates, delays, objectives
    Flows,
    /// Ports: packets in, out and lost
    Ports,
    /// Workers: cores, load, packets handed over
    Workers,
    /// Dropped packets by reason
    Drops,
    /// The configuration in force, without secrets
    Config,
    /// The controller, each flow with its objective, and the triggers with the reasons of their last changes
    Control,
    /// The path of the next packets
    Trace,
    /// Tables that can be changed
    Tables,
    /// A table's entries
    Table,
    /// Recent events: links, reloads, objectives, losses
    Events,
}

/// Arguments of `table`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay table core 'add 10.1.0.0/16 3' 'remove 10.2.0.0/16'
  forebay table core < changes.txt        one change per line
  forebay table fw add 'deny tcp from any to any port telnet'
  forebay table fw remove 3               rule number 3 in `forebay show table fw`
  forebay table out.sessions 'remove 10.0.0.7'
  forebay show tables                     the tables, and the syntax of their changes

Changes are made in order while packets flow. Each change is made completely or not at all. Exit codes: 0 all changes \
were made; 1 some changes were refused (the command lists them); 2 bad usage.")]
pub(crate) struct Table {
    /// The module, or `module.table` if it has several tables
    pub(crate) name: String,
    /// Changes: one per argument, or one change split over several arguments. Without any, read one change per line
    /// from standard input
    pub(crate) changes: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay top --interval 500ms")]
pub(crate) struct Top {
    /// Time between updates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Nanos,
    #[command(flatten)]
    pub(crate) running: Running,
}
