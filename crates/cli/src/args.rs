//! The command line: every command with its options, help texts and examples.

mod compare;
mod doctor;
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
mod run;
mod running;
mod serve;
mod settings;
mod simulate;
mod stop;
mod topology;
mod values;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use values::setting;

pub(crate) use compare::Compare;
pub(crate) use doctor::Doctor;
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
pub(crate) use run::Run;
pub(crate) use running::{Reload, Running, Show, Shown, Table, Top};
pub(crate) use serve::{NewToken, Serve};
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

Exit codes: 0 success; 1 the command worked, but with a negative result; 2 bad usage or input, or a port failed. \
Negative results are: with --strict, a flow missed an objective; lines or packets are missing from an output file; \
`drops` lacks packets, or the pipeline did not respond to it; a table change was refused; `move --moves` left a module \
where it was; `stop` timed out; `gate` or `compare` found a higher cost; `profile` lacks a result; a run of `measure` \
or `lab` is void, or `lab` was interrupted; `doctor` found a performance problem; `place` could not place all chains, \
or a chain misses its delay objective."
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
    /// Serve an HTTP API, metrics, alarms and the history of this host's pipelines
    Serve(Serve),
    /// Make a token for a client of `serve`
    Token(NewToken),
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
        /// Set an interface or an address of the template. Only office-gateway has settings, and `forebay new` lists
        /// them. Edit the output of the other templates
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
    /// Write the manual pages of all commands to a folder
    #[command(after_help = "\
Examples:
  forebay man ~/.local/share/man/man1
  man forebay-run")]
    Man {
        /// The folder for the pages. It is created if it is missing
        folder: PathBuf,
    },
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
    /// Settings of `serve`
    Serve,
    /// Tokens of clients of `serve`
    Tokens,
    /// The HTTP API of `serve` (OpenAPI 3.1)
    Openapi,
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
