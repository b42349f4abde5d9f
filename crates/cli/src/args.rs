//! The command line: every command with its options, help texts and examples.

mod compare;
mod drops;
mod gate;
mod graph;
mod handover;
mod history;
mod lab;
mod measure;
mod moves;
mod place;
mod profile;
mod replay;
mod settings;
mod simulate;
mod stop;
mod topology;
mod values;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use forebay_observe::filter::Filter;
use forebay_units::Nanos;

use crate::events::LogFormat;
use crate::start::Prefer;
use values::{cost, interval, setting, trigger, whole};

pub(crate) use compare::Compare;
pub(crate) use drops::Drops;
pub(crate) use gate::Gate;
pub(crate) use graph::Graph;
pub(crate) use handover::{Handover, Measured, Other};
pub(crate) use history::{Figure, History};
pub(crate) use lab::{Lab, LabBatching, LabLean, LabPlacement};
pub(crate) use measure::{Count, Measure};
pub(crate) use moves::Move;
pub(crate) use place::PlaceOptions;
pub(crate) use profile::Profile;
pub(crate) use replay::Replay;
pub(crate) use settings::Settings;
pub(crate) use simulate::Simulate;
pub(crate) use stop::Stop;
pub(crate) use topology::Topology;

/// Runs network functions on packets in batches, keeps every flow's delay objective, and accounts for every packet.
#[derive(Debug, Parser)]
#[command(
    name = "forebay",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  forebay run usecase:gw                     a gateway on generated traffic
  forebay run gateway.yaml --duration 20s    a pipeline of your own
  forebay list functions                     what pipelines are made of
  forebay describe ip_lookup                 one function: parameters, gates, drop reasons, an example

Exit codes: 0 success; 1 the command worked, but the result is negative (with --strict, a flow missed an objective; \
lines or packets are missing from an output file; a table change was refused; `move --moves` left a module where it \
was; `stop` timed out; a module costs more than its baseline; `doctor` found a performance problem; `place` could not \
place all chains); 2 bad usage or input, or a port failed."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pipeline
    Run(Box<Run>),
    /// Simulate a pipeline batch by batch: hours of traffic on any number of cores in seconds
    Simulate(Simulate),
    /// Measure the cost of a packet, module by module, in ticks and instructions
    Measure(Measured),
    /// Measure the cost of function calls on this machine: a fixed part per call and a part per packet
    Profile(Profile),
    /// Compare the cost of a packet in two builds or configurations
    Compare(Compare),
    /// Compare the instructions per packet with a baseline; exit code 1 if a module costs more than the limit
    Gate(Gate),
    /// Run the workload that `measure` counts, under valgrind
    #[command(hide = true)]
    Count(Count),
    /// Show saved measurements over time, module by module, and mark the steps in them
    History(History),
    /// Run an experiment from the papers on this machine: results as JSON and CSV, and a report with plots
    #[command(subcommand, after_help = "Example:\n  forebay lab lean --out lean")]
    Lab(Lab),
    /// Repeat the decisions that `run --decisions` recorded, with the same controller or another one
    Replay(Replay),
    /// Check this machine for settings that cost performance, and show how to fix them
    Doctor(Doctor),
    /// Show which memory nodes, caches, cores and network interfaces of a machine are close to each other
    Topology(Topology),
    /// Place the functions of chains on cores, with a proof; shows the cores and the predicted rate of each chain
    Place(PlaceOptions),
    /// Watch a running pipeline in a live table
    Top(Top),
    /// Show modules, flows, drops, tables, events and more of a running pipeline
    Show(Show),
    /// Change the configuration of a running pipeline, completely or not at all; packets keep flowing
    Reload(Reload),
    /// Move modules of a running pipeline to other workers; packets keep flowing
    Move(Move),
    /// Change the entries of a table of a running pipeline; packets keep flowing
    Table(Table),
    /// Show packets as a running pipeline drops them, or write them to a file
    Drops(Drops),
    /// Stop a running pipeline, and wait until it has ended
    Stop(Stop),
    /// Check a configuration and list all errors, each with its line and the allowed values
    Check(Check),
    /// Draw a pipeline: the path of packets from module to module
    Graph(Graph),
    /// List functions, ports, use cases, controllers, state or running pipelines
    #[command(after_help = "\
Examples:
  forebay list functions
  forebay list usecases --json
  forebay list running                       pipelines that run on this machine")]
    List {
        /// The things to list
        what: ListSubject,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Explain a function, port, use case, controller or state type
    #[command(after_help = "Examples:\n  forebay describe generator\n  forebay describe mac_rewrite --json")]
    Describe {
        /// The name, as `forebay list` shows it
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a configuration template to start from; without a name, list the templates
    #[command(
        after_help = "Examples:\n  forebay new\n  forebay new office-gateway --set lan=eth1 --set wan=eth0 > edge.yaml"
    )]
    New {
        /// The template's name, as `forebay new` lists it
        template: Option<String>,
        /// Set an interface or an address of the template
        #[arg(long, value_name = "KEY=VALUE", value_parser = setting, requires = "template")]
        set: Vec<String>,
    },
    /// Print the configuration of a use case, to start from
    #[command(
        after_help = "Examples:\n  forebay usecase gw > gateway.yaml\n  forebay usecase vrf --set m=16 --set n=4"
    )]
    Usecase {
        /// The name, as `forebay list usecases` shows it
        name: String,
        /// Set a parameter of the use case
        #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
        set: Vec<String>,
    },
    /// Print the JSON Schema of configurations (for editors) or of an output
    #[command(after_help = "Examples:\n  forebay schema > forebay.schema.json\n  forebay schema topology")]
    Schema {
        /// The format to print
        #[arg(default_value = "configuration")]
        of: SchemaName,
    },
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  forebay completions bash > ~/.local/share/bash-completion/completions/forebay
  source <(forebay completions zsh)               in ~/.zshrc
  forebay completions fish > ~/.config/fish/completions/forebay.fish

The script completes functions, use cases and controllers, and this machine's running pipelines with their modules, \
tables, flows and ports.")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay doctor                                   this machine, for any pipeline of one worker
  forebay doctor gateway.yaml                      its workers, their pools and its ports
  forebay doctor --core 2-3 --interface eth1       two workers, packets of that card
  forebay doctor --json | jq '.checks[] | select(.state == \"costs\") | .remedy'
  forebay doctor --root /mnt/report                the files of another machine

The command only reads, and takes half a second. A check that cannot be made on this host shows n/a. Exit codes: 0 no \
check found a certain loss of performance; 1 a check found one, or something that keeps the pipeline from running; \
2 bad usage or input.")]
pub(crate) struct Doctor {
    /// A configuration file, `usecase:NAME`, or `-` for standard input (default: any pipeline with one worker)
    pub(crate) pipeline: Option<String>,
    /// Set a use case's parameter or override a part of the configuration
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting, requires = "pipeline")]
    pub(crate) set: Vec<String>,
    /// The workers' cores, in the order of the workers: 2, or 2-3,8 (default: cores that are chosen automatically)
    #[arg(long, value_name = "LIST")]
    pub(crate) core: Vec<forebay_host::KernelList>,
    /// A network interface whose packets the workers receive, in addition to the pipeline's ports
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Vec<String>,
    /// The root of the kernel's files: DIR/proc, DIR/sys
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay run usecase:gw --set n=16 --duration 20s
  forebay run gateway.yaml --set ports.red.generator.rate=2Mpps --trigger route=16
  forebay run gateway.yaml --duration 5s --json | tail -n 1 | jq .packets
  forebay run gateway.yaml --trace 3 --filter 'tcp and dst port 443'
  forebay run capture.yaml --drops dropped.pcapng
  forebay run usecase:gw --virtual --cost 'acl=500+20' --duration 100ms

The run ends when every source is exhausted, after --duration, or on Ctrl-C (in the live table also on q, twice). It \
always prints the summary. Exit codes: 0 success; 1 lines of a log or of alerts, copies of tap or packets of --drops \
are missing from their file, or, with --strict, a flow missed an objective; 2 bad usage or input, or a port failed \
(for example because its disk is full).")]
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
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Nanos>,
    /// Bind the only worker to this core (default: the core in the configuration, else one that is chosen)
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) trace: Option<u64>,
    /// Trace only packets that match: `tcp and dst port 443`, `host 192.0.2.1 or arp`, `vlan 100 and not ip6`
    #[arg(long, value_name = "EXPR", requires = "trace")]
    pub(crate) filter: Option<Filter>,
    /// Write every dropped packet to this pcapng file, with the drop reason as its comment
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
    /// True if the command line names a pipeline.
    pub(crate) fn is_named(&self) -> bool {
        self.socket.is_some() || self.instance.is_some()
    }
}

/// Arguments of `reload`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay reload                            read the file that it was started from again
  forebay reload new.yaml                   another file
  forebay reload --set workers='[{}, {}]'   one more setting; the other settings stay
  forebay reload --forget                   the file without any setting
  forebay reload --json | jq .reloaded.changed   the modules that were replaced

A configuration with an error is refused completely: the command lists every error and exits with 2, and the old \
configuration keeps running. A reload cannot change `batch`, `pool`, `seed`, `scheduler` and the core of a worker. \
Modules that are equal in both configurations keep their state. Queued packets are processed first. The command \
reports the modules that were kept, changed, added and removed, and how long the ports received no packets.")]
pub(crate) struct Reload {
    /// A configuration file on the machine of the pipeline, or `usecase:NAME` (default: the source that it was started
    /// from)
    pub(crate) pipeline: Option<String>,
    /// Add a setting, or replace the setting with the same key; other earlier settings stay
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<String>,
    /// Discard the settings of the start and of earlier reloads; use only those of --set
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) count: Option<u64>,
    /// With `trace`: only packets that match. With `table` (sessions and similar tables): only entries with this
    /// address, prefix, ADDRESS:PORT, `protocol=`, `state=` or other field of their lines
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
were made; 1 some were refused, and the command lists them; 2 bad usage.")]
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

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay check gateway.yaml
  forebay check /etc/forebay/*.yaml
  forebay check usecase:gw --set n=16 --json

With --json the command prints one line per configuration.")]
pub(crate) struct Check {
    /// Configuration files, `usecase:NAME`, or `-` for standard input
    #[arg(required = true, value_name = "PIPELINE")]
    pub(crate) pipelines: Vec<String>,
    /// Set a use case's parameter or override a part of the configuration
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A format that has a JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaName {
    /// Configurations
    Configuration,
    /// The output of `topology --json`
    Topology,
    /// Files of chains, the input of `place`
    Chains,
    /// The output of `place --json`
    Place,
    /// The output of `profile --co-runs --json`
    CoRuns,
    /// Requests on the socket of a running pipeline
    Request,
    /// Responses on the socket of a running pipeline
    Response,
}

/// The things that `list` can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListSubject {
    /// Network functions
    Functions,
    /// Port types
    Ports,
    /// Ready-made pipelines
    Usecases,
    /// Controllers, which set triggers while a pipeline runs
    Controllers,
    /// State that modules can share
    State,
    /// Pipelines that run on this machine
    Running,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;

    /// Splits a shell command line into words; single quotes are honoured.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut is_quoted) = (vec![String::new()], false);
        for letter in line.chars() {
            match letter {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                _ => words.last_mut().expect("one").push(letter),
            }
        }
        words
    }

    /// Returns the example commands in the help of a command and of its subcommands, without their explanations.
    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with("forebay "));
        let cut = |line: &str| ["  ", " | ", " > ", " < "].iter().filter_map(|end| line.find(end)).min();
        let own = lines.map(|line| line[..cut(line).unwrap_or(line.len())].to_owned());
        own.chain(command.get_subcommands().flat_map(examples)).collect()
    }

    /// Regression: the help had the example `forebay stop --timeout 2m`, which was refused.
    #[test]
    fn every_example_in_the_help_is_accepted() {
        let examples = examples(&Args::command());
        assert!(examples.len() > 80, "{examples:?}");
        for example in examples {
            let matches = crate::signed(Args::command()).try_get_matches_from(words(&example));
            let arguments = matches.and_then(|matches| Args::from_arg_matches(&matches));
            assert!(arguments.is_ok(), "{example}: {}", arguments.expect_err("refused"));
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
