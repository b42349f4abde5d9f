//! The command line: each command with its flags, their help and examples.

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
use forebay_units::Nanos;

use crate::events::LogFormat;
use crate::filter::Filter;
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
pub(crate) use place::Place;
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
  forebay describe ip_lookup                 one of them: parameters, gates, reasons for drops, an example

Exit codes: 0 done; 1 the answer is no (with --strict, a flow missed an objective; lines or packets are not in \
their file; a change of a table was refused; `move --moves` left a module where it was; `stop` \
ended nothing in time; a module costs more than its baseline; `doctor` found something that costs performance; \
`place` could not place all chains); 2 bad usage or input, or a port failed."
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
    /// Measure what a packet costs, module by module, in ticks and instructions
    Measure(Measured),
    /// Measure what calls of functions cost on this machine: a part for the call, and one for each packet of it
    Profile(Profile),
    /// Compare what a packet costs in two builds, or by two configurations, side by side
    Compare(Compare),
    /// Compare what packets cost with a baseline, in instructions: the answer is no where a module has become dearer
    Gate(Gate),
    /// Run what `measure` counts, under valgrind
    #[command(hide = true)]
    Count(Count),
    /// Tell saved measurements over time, module by module, and where they took a step
    History(History),
    /// Run an experiment of the papers here: figures as JSON and CSV, and a report with plots
    #[command(subcommand, after_help = "Example:\n  forebay lab lean --out lean")]
    Lab(Lab),
    /// Decide anew on what `run --decisions` has recorded, by the same controller or another
    Replay(Replay),
    /// Look at this machine: what in it will cost performance, and how to mend that
    Doctor(Doctor),
    /// Show which memory nodes, caches, cores and network interfaces of a machine are near each other
    Topology(Topology),
    /// Place functions of chains on cores, with a proof: which core runs what, and how fast each chain is then
    Place(Place),
    /// Watch a running pipeline: the live table
    Top(Top),
    /// Show something of a running pipeline
    Show(Show),
    /// Change a running pipeline's configuration, whole or not at all, while packets run
    Reload(Reload),
    /// Move modules of a running pipeline to other workers, while packets run
    Move(Move),
    /// Change a table of a running pipeline, entry by entry, while packets run
    Table(Table),
    /// Show packets as a running pipeline drops them, or write them to a file
    Drops(Drops),
    /// End a running pipeline, and wait until it has ended
    Stop(Stop),
    /// Check a configuration: everything that is wrong, with the line and what is allowed
    Check(Check),
    /// Draw a pipeline: where packets go, module by module
    Graph(Graph),
    /// List what there is
    #[command(after_help = "\
Examples:
  forebay list functions
  forebay list usecases --json
  forebay list running                       pipelines that run on this machine")]
    List {
        /// Of what kind
        what: What,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Explain a function, port, use case, controller or kind of state
    #[command(after_help = "Examples:\n  forebay describe generator\n  forebay describe mac_rewrite --json")]
    Describe {
        /// Its name, as `forebay list` shows it
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a configuration to start from; without a name, list them
    #[command(
        after_help = "Examples:\n  forebay new\n  forebay new office-gateway --set lan=eth1 --set wan=eth0 > edge.yaml"
    )]
    New {
        /// Its name, as `forebay new` lists it
        template: Option<String>,
        /// Set an interface or an address of it
        #[arg(long, value_name = "KEY=VALUE", value_parser = setting, requires = "template")]
        set: Vec<String>,
    },
    /// Print the configuration of a use case, to start from
    #[command(
        after_help = "Examples:\n  forebay usecase gw > gateway.yaml\n  forebay usecase vrf --set m=16 --set n=4"
    )]
    Usecase {
        /// Its name, as `forebay list usecases` shows it
        name: String,
        /// Set one of its parameters
        #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
        set: Vec<String>,
    },
    /// Print the JSON Schema of configurations, for editors, or of an output
    #[command(after_help = "Examples:\n  forebay schema > forebay.schema.json\n  forebay schema topology")]
    Schema {
        /// Of what
        #[arg(default_value = "configuration")]
        of: SchemaName,
    },
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  forebay completions bash > ~/.local/share/bash-completion/completions/forebay
  source <(forebay completions zsh)               in ~/.zshrc
  forebay completions fish > ~/.config/fish/completions/forebay.fish

They know functions, use cases and controllers, and the runs, modules, tables, flows and ports of this machine.")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// `doctor`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay doctor                                   this machine, for any pipeline of one worker
  forebay doctor gateway.yaml                      its workers, their pools and its ports
  forebay doctor --core 2-3 --interface eth1       two workers, packets of that card
  forebay doctor --json | jq '.checks[] | select(.state == \"costs\") | .remedy'
  forebay doctor --root /mnt/report                files of another machine, laid out as there

It only reads, for half a second. What this host cannot tell is n/a: neither in order nor a fault. Exit codes: 0 nothing costs \
performance for certain; 1 something does, or keeps the pipeline from running; 2 bad usage or input.")]
pub(crate) struct Doctor {
    /// A configuration file, `usecase:NAME`, or `-` for standard input; without it, one worker is meant
    pub(crate) pipeline: Option<String>,
    /// Set a use case's parameter or override a part of the configuration
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting, requires = "pipeline")]
    pub(crate) set: Vec<String>,
    /// The workers' cores, in their order, in place of those that would be chosen: 2, or 2-3,8
    #[arg(long, value_name = "LIST")]
    pub(crate) core: Vec<forebay_host::KernelList>,
    /// A network card whose packets the workers get, besides those of the pipeline's ports
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Vec<String>,
    /// Where the kernel's files are: DIR/proc, DIR/sys
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `run`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay run usecase:gw --set n=16 --duration 20s
  forebay run gateway.yaml --set ports.red.generator.rate=2Mpps --trigger route=16
  forebay run gateway.yaml --duration 5s --json | tail -n 1 | jq .packets
  forebay run gateway.yaml --trace 3 --filter 'tcp and dst port 443'
  forebay run capture.yaml --drops dropped.pcapng
  forebay run usecase:gw --virtual --cost 'acl=500+20' --duration 100ms

The run ends when every source is used up, after --duration, or by Ctrl-C (on the live table also q, twice); the \
summary follows in every case. Exit codes: 0 done; 1 lines of a log or of alerts, copies of tap or packets of \
--drops are not in their file, or, with --strict, a flow missed an objective; 2 bad usage or input, or a port failed \
(its disk full, say).")]
pub(crate) struct Run {
    /// A configuration file, `usecase:NAME`, or `-` for standard input
    pub(crate) pipeline: String,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Set a module's trigger: it runs on exactly N packets at a time (0: on what comes)
    #[arg(long, value_name = "MODULE=N", value_parser = trigger)]
    pub(crate) trigger: Vec<(String, usize)>,
    /// Write what the controller sees and decides each period, for `forebay replay`
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    /// End after this time, such as 20s or 500ms
    #[arg(long, value_name = "TIME")]
    pub(crate) duration: Option<Nanos>,
    /// Bind the one worker to this core; without it, to the configuration's, else to one that is chosen
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub(crate) core: Option<usize>,
    /// Keep the configuration that is accepted last in this file, and start from it when it is there, unless the
    /// pipeline's file has changed since
    #[arg(long, value_name = "FILE", conflicts_with = "simulated")]
    pub(crate) state: Option<PathBuf>,
    /// Start from the pipeline's file, or from that of --state, whichever has changed
    #[arg(long, value_name = "WHICH", requires = "state")]
    pub(crate) prefer: Option<Prefer>,
    /// The run's name for `--instance` of `top`, `show`, `stop` and others; by default the pipeline's name
    /// No other run can have the same name at the same time
    #[arg(long, value_name = "NAME", conflicts_with_all = ["simulated", "no_socket", "socket"])]
    pub(crate) instance: Option<String>,
    /// Listen for `top`, `show`, `reload` and `table` at this path; without it, in the user's own folder
    #[arg(long, value_name = "PATH", conflicts_with_all = ["simulated", "no_socket"])]
    pub(crate) socket: Option<PathBuf>,
    /// Do not listen
    #[arg(long)]
    pub(crate) no_socket: bool,
    /// End with one JSON object on standard output, and print nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    /// Print all rows of all tables at the end, and the modules' own counters
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
    /// Exit with 1 where a flow missed an objective, of delay or of rate
    #[arg(long)]
    pub(crate) strict: bool,
    /// Show the way of the next N packets through the modules, and what each did
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) trace: Option<u64>,
    /// Trace only packets like these: `tcp and dst port 443`, `host 192.0.2.1 or arp`, `vlan 100 and not ip6`
    #[arg(long, value_name = "EXPR", requires = "trace")]
    pub(crate) filter: Option<Filter>,
    /// Write every dropped packet to this pcapng file, with the reason as its comment
    #[arg(long, value_name = "FILE")]
    pub(crate) drops: Option<PathBuf>,
    /// How often the live table is renewed (without it every second); where there is none, print a line so often
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) interval: Option<Nanos>,
    /// Show neither table nor lines of rates while it runs
    #[arg(long)]
    pub(crate) no_live: bool,
    /// How events are written on standard error
    #[arg(long, value_name = "FORMAT", default_value = "logfmt")]
    pub(crate) log_format: LogFormat,
    /// Run in simulated time: every run of one seed is the same, and calls take what --cost says. Without --duration it
    /// takes 100 ms where a source never runs out
    #[arg(long = "virtual", conflicts_with = "core")]
    pub(crate) simulated: bool,
    /// In simulated time: what a call of a module, of a function's modules, or of all (`*`) takes, in nanoseconds a call
    /// and a packet
    #[arg(long, value_name = "NAME=CALL+PACKET", requires = "simulated", value_parser = cost)]
    pub(crate) cost: Vec<(String, forebay_graph::Cost)>,
}

/// Which running pipeline is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct Running {
    /// The running pipeline's name (`forebay list running`); without it, the only one that runs
    #[arg(long, value_name = "NAME", conflicts_with = "socket")]
    pub(crate) instance: Option<String>,
    /// The socket of the running pipeline, in place of its name
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

impl Running {
    /// Whether one is named.
    pub(crate) fn is_named(&self) -> bool {
        self.socket.is_some() || self.instance.is_some()
    }
}

/// `reload`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay reload                            the file that it was started from has been edited
  forebay reload new.yaml                   another file
  forebay reload --set workers='[{}, {}]'   a further setting: the others stay
  forebay reload --forget                   what stands in the file, without any setting
  forebay reload --json | jq .reloaded.changed   what was made anew

A configuration with anything wrong in it is refused whole, with exit code 2 and everything that is wrong, and the old one \
runs on as if nothing had been asked. It cannot change `batch`, `pool`, `seed`, `scheduler` and the core of a worker. What is \
the same in both keeps its state; packets that wait are let through first; the answer says what was kept, changed, added and removed, \
and for how long no packets were taken from ports.")]
pub(crate) struct Reload {
    /// A configuration file of the machine that it runs on, or `usecase:NAME`; without it, what it was started from
    pub(crate) pipeline: Option<String>,
    /// A further setting, in place of the one that it has for this key; all others that it was given stay
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<String>,
    /// Leave out the settings of the start and of earlier reloads: those of --set are all
    #[arg(long)]
    pub(crate) forget: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// `show`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay show modules
  forebay show flows video                one of them
  forebay show drops --json
  forebay show config > now.yaml
  forebay show control                    objectives, triggers and why
  forebay show trace --count 3 --filter 'tcp and dst port 443'
  forebay show table core                 the entries of module core's table
  forebay show events --follow            what happened to it, and what happens from now on
  forebay show table out.sessions --filter '10.0.0.0/24 state=established' --count 20")]
pub(crate) struct Show {
    /// Of what
    pub(crate) what: Shown,
    /// With `modules`, `flows` and `ports`: the only one that is shown; with `table`: the module whose table it is, or
    /// `module.table` where it has several
    pub(crate) name: Option<String>,
    /// With `trace`: how many packets; without it one. With `table`: how many entries at most; without it all. With
    /// `events`: how many of the last; without it all that are kept
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) count: Option<u64>,
    /// With `trace`: only packets like these. With `table`, of sessions and the like: only those of an address, prefix, ADDRESS:PORT,
    /// `protocol=`, `state=` and what else their lines have
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Option<String>,
    /// With `events`: print also those that come from now on
    #[arg(long)]
    pub(crate) follow: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// What can be shown of a running pipeline.
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
    /// Why packets were dropped
    Drops,
    /// The configuration in force, without secrets
    Config,
    /// The controller, each flow beside its objective, and the triggers with the reasons of their last changes
    Control,
    /// The way of the next packets
    Trace,
    /// Tables that can be changed
    Tables,
    /// A table's entries
    Table,
    /// Recent events: links, reloads, objectives, losses
    Events,
}

/// `table`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay table core 'add 10.1.0.0/16 3' 'remove 10.2.0.0/16'
  forebay table core < changes.txt        a change a line
  forebay table fw add 'deny tcp from any to any port telnet'
  forebay table fw remove 3               the rule that `forebay show table fw` numbers 3
  forebay table out.sessions 'remove 10.0.0.7'
  forebay show tables                     which tables there are, and how changes are written

Changes are made in order, each wholly or not at all, while packets run. Exit codes: 0 all were made; 1 some were refused, \
which are told; 2 bad usage.")]
pub(crate) struct Table {
    /// The module, or `module.table` where it has several
    pub(crate) name: String,
    /// Changes, each an argument, or one change in several; without any, they are read from standard input, one a line
    pub(crate) changes: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// `top`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay top --interval 500ms")]
pub(crate) struct Top {
    /// How often it is renewed
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Nanos,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// `check`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay check gateway.yaml
  forebay check /etc/forebay/*.yaml
  forebay check usecase:gw --set n=16 --json

With --json each configuration is a line.")]
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

/// What has a JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaName {
    /// Configurations
    Configuration,
    /// The output of `topology --json`
    Topology,
    /// Files of chains, which `place` reads
    Chains,
    /// The output of `place --json`
    Place,
    /// The output of `profile --co-runs --json`
    CoRuns,
}

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Network functions
    Functions,
    /// Kinds of ports
    Ports,
    /// Ready-made pipelines
    Usecases,
    /// What sets triggers while a pipeline runs
    Controllers,
    /// Kinds of state that modules can share
    State,
    /// Pipelines that run on this machine
    Running,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;

    /// The words of a line of a shell, of which some stand between single quotes.
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

    /// The examples in the help of a command, and of those below it, without what stands behind them.
    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with("forebay "));
        let cut = |line: &str| ["  ", " | ", " > ", " < "].iter().filter_map(|end| line.find(end)).min();
        let own = lines.map(|line| line[..cut(line).unwrap_or(line.len())].to_owned());
        own.chain(command.get_subcommands().flat_map(examples)).collect()
    }

    /// `forebay stop --timeout 2m` stood in the help, and was refused.
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
