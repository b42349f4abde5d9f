//! The `forebay` command: parses arguments and prints results. Other crates do the work.

#![forbid(unsafe_code)]

mod args;
mod changes;
mod check;
mod compare;
mod complete;
mod control;
mod corun;
mod costs;
mod decisions;
mod describe;
mod doctor;
mod engine;
mod events;
mod format;
mod gate;
mod graph;
mod handover;
mod hangup;
mod hardware;
mod history;
mod lab;
mod list;
mod live;
mod lost_lines;
mod machine;
mod man;
mod measure;
mod new;
mod place;
mod plain;
mod prices;
mod printed;
mod profile;
mod progress;
mod rates;
mod refused;
mod remote;
mod replay;
mod run;
mod serve;
mod simulate;
mod source;
mod start;
mod strain;
mod summary;
mod temporary;
mod token;
mod topology;
mod usecase;

use std::any::TypeId;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches};
use forebay_units::Nanos;
use signal_hook::consts::SIGXFSZ;

use args::{Args, Command};

/// The result of a command, in the order of exit codes: 0, 1, 2. A command that returns an error also ends with 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Success.
    Yes,
    /// A negative result, for example that a flow missed an objective, or that lines are missing from a file.
    No,
    /// An error that has already been reported.
    Failed,
}

/// Runs the command line of this process, and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    complete::answer();
    // With this handler, a write beyond the file size limit (RLIMIT_FSIZE) returns an error, like a full disk, and does
    // not end the process. If the handler cannot be installed, the default stays.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    let arguments = match signed(Args::command()).try_get_matches().and_then(|matches| Args::from_arg_matches(&matches))
    {
        Ok(arguments) => arguments,
        Err(error) => return refused::refuse(error),
    };
    match answer(arguments.command) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Failed) => ExitCode::from(2),
        // The reader of a pipe may close it (`| head`): that is no error. Only output that may have no end returns this
        // error: all other output is discarded, and the command returns its result.
        Err(error) if run::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            printed::last_err(&refused::lines(&refused::message(&error)));
            ExitCode::from(2)
        }
    }
}

/// Lets options with numbers and times accept values that begin with a minus. Then the parsers of these options report
/// the allowed range. Otherwise clap would report an unknown option `-1`.
fn signed(command: clap::Command) -> clap::Command {
    let numbers = [TypeId::of::<Nanos>(), TypeId::of::<usize>(), TypeId::of::<u64>(), TypeId::of::<f64>()];
    let command = command.mut_args(|arg| {
        let number = arg.get_long().is_some() && numbers.iter().any(|of| arg.get_value_parser().type_id() == *of);
        if number { arg.allow_hyphen_values(true) } else { arg }
    });
    command.mut_subcommands(signed)
}

/// Runs a command.
fn answer(command: Command) -> anyhow::Result<Answer> {
    match command {
        Command::Run(run) => return run::run(&run),
        Command::Simulate(arguments) => return simulate::simulate(&arguments),
        Command::Measure(args::Measured { other: Some(args::Other::Handover(arguments)), .. }) => {
            handover::handover(&arguments)?
        }
        Command::Measure(args::Measured { pipeline: Some(arguments), .. }) => return measure::measure(&arguments),
        Command::Measure(args::Measured { pipeline: None, .. }) => {
            anyhow::bail!("measure: name a pipeline, or `handover`; see `forebay measure --help`")
        }
        Command::Profile(arguments) => return profile::profile(&arguments),
        Command::Gate(arguments) => return gate::gate(&arguments),
        Command::History(arguments) => history::history(&arguments)?,
        Command::Lab(args::Lab::Lean(arguments)) => return lab::lean(&arguments),
        Command::Lab(args::Lab::Batching(arguments)) => return lab::batching(&arguments),
        Command::Lab(args::Lab::Placement(arguments)) => return lab::placement(&arguments),
        Command::Compare(arguments) => return compare::compare(&arguments),
        Command::Count(arguments) => measure::serve(&arguments)?,
        Command::Replay(arguments) => replay::replay(&arguments)?,
        Command::Doctor(arguments) => return doctor::doctor(&arguments),
        Command::Topology(topology) => topology::topology(&topology)?,
        Command::Place(arguments) => return place::place(&arguments),
        Command::Top(top) => remote::top(&top)?,
        Command::Stop(arguments) => return remote::or_json_error(arguments.json, remote::stop(&arguments)),
        Command::Drops(arguments) => return remote::or_json_error(arguments.json, remote::drops(&arguments)),
        Command::Show(show) => remote::or_json_error(show.json, remote::show(&show))?,
        Command::Reload(reload) => remote::or_json_error(reload.json, remote::reload(&reload))?,
        Command::Move(arguments) => return remote::or_json_error(arguments.json, remote::move_modules(&arguments)),
        Command::Table(table) => return remote::or_json_error(table.json, remote::change(&table)),
        Command::Serve(arguments) => return serve::serve(&arguments),
        Command::Token(arguments) => token::token(&arguments)?,
        Command::Check(check) => check::check(&check)?,
        Command::Graph(arguments) => remote::or_json_error(arguments.json, graph::graph(&arguments))?,
        Command::List { what, json } => list::list(what, json)?,
        Command::Describe { name, json } => describe::describe(&name, json)?,
        Command::New { template, set } => new::new(template.as_deref(), &set)?,
        Command::Usecase { name, set } => usecase::print(&name, &set)?,
        Command::Schema { of } => {
            let schema = match of {
                args::SchemaName::Configuration => forebay_pipeline::schema(),
                args::SchemaName::Topology => forebay_host::topology::schema(),
                args::SchemaName::Chains => forebay_placement::chains::schema(),
                args::SchemaName::Place => forebay_placement::answer::schema(),
                args::SchemaName::CoRuns => corun::schema(),
                args::SchemaName::Serve => forebay_server::settings::schema(),
                args::SchemaName::Tokens => forebay_server::access::schema(),
                args::SchemaName::Openapi => forebay_server::openapi(),
                args::SchemaName::Request => forebay_protocol::schema::request().to_value(),
                args::SchemaName::Response => forebay_protocol::schema::response().to_value(),
            };
            writeln!(printed::out(), "{schema:#}")?;
        }
        Command::Completions { shell } => complete::print(shell, &mut io::stdout())?,
        Command::Man { folder } => {
            man::write_pages(Args::command(), &folder).with_context(|| format!("man: {}", folder.display()))?;
        }
    }
    Ok(Answer::Yes)
}
