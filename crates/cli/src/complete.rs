//! Completions for shells: flags, what Forebay has, and the modules, tables, flows and ports of the running pipeline.
//!
//! The script that `forebay completions` prints asks the program itself for candidates. A pipeline that does not answer
//! at once gives none: nobody waits for a key.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use clap::{Arg, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};
use forebay_protocol::{
    Client, Request, Response,
    graph::GraphReport,
    locate::{find, running},
};

use crate::args::Args;

/// The variable by which a shell asks for candidates.
const VARIABLE: &str = "FOREBAY_COMPLETE";
/// How long a running pipeline may take to answer.
const PATIENCE: Duration = Duration::from_millis(300);

/// Answers a shell that asks for candidates, and ends the process then.
pub(crate) fn answer() {
    CompleteEnv::with_factory(|| completed(Args::command())).var(VARIABLE).complete();
}

/// Bash takes colons as ends of words, so that `usecase:gw` comes in three: they are joined again, and what stands
/// before the last colon is not repeated in candidates.
const BASH: &str = r#"_forebay() {
    local IFS=$'\013' words=() i word prefix=
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((${#words[@]})) && [[ $word == :* || ${words[-1]} == *: ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
    [[ ${words[-1]} == *:* ]] && prefix=${words[-1]%:*}:
    COMPREPLY=($(
        _CLAP_IFS=$IFS _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1)) VARIABLE=bash forebay -- "${words[@]}" 2>/dev/null
    )) || COMPREPLY=()
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[/:=] ]]; then
        compopt -o nospace
    fi
}
complete -o bashdefault -F _forebay forebay
"#;

/// Prints the script that has a shell ask.
pub(crate) fn print(shell: Shell, out: &mut impl Write) -> io::Result<()> {
    if shell == Shell::Bash {
        return out.write_all(BASH.replace("VARIABLE", VARIABLE).as_bytes());
    }
    // Into memory first: it is written whole or not at all.
    let mut script = Vec::new();
    match Shells::builtins().completer(&shell.to_string()) {
        Some(completer) => completer.write_registration(VARIABLE, "forebay", "forebay", "forebay", &mut script)?,
        None => return Err(io::Error::other(format!("there are no completions for {shell}"))),
    }
    out.write_all(&script)
}

/// The command with candidates for the values of its arguments.
fn completed(command: clap::Command) -> clap::Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| with_candidates(&name, arg));
    command.mut_subcommands(completed)
}

fn with_candidates(command: &str, arg: Arg) -> Arg {
    let named = |find: fn() -> Vec<String>| {
        ArgValueCandidates::new(move || find().into_iter().map(CompletionCandidate::new).collect::<Vec<_>>())
    };
    match (command, arg.get_id().as_str()) {
        ("history" | "top" | "replay", "pipeline") => arg,
        (_, "pipeline" | "pipelines") | ("place", "chains") => arg.add(ArgValueCompleter::new(pipelines)),
        ("topology", "source") | ("place", "topology") => arg.add(ArgValueCompleter::new(machines)),
        ("describe", "name") => arg.add(named(|| [functions(), ports(), usecases(), controllers(), states()].concat())),
        ("usecase", "name") => arg.add(named(usecases)),
        ("profile", "functions") => arg.add(named(functions)),
        (_, "controller") => arg.add(named(controllers)),
        ("run", "instance") => arg,
        (_, "instance") => arg.add(named(|| running().handles())),
        ("table", "name") => arg.add(named(|| tables(&line()))),
        ("show", "name") => arg.add(named(|| shown(&line()))),
        _ => arg,
    }
}

fn functions() -> Vec<String> {
    forebay_graph::functions().into_iter().map(|it| it.name.to_owned()).collect()
}

fn ports() -> Vec<String> {
    forebay_graph::ports().into_iter().map(|it| it.name.to_owned()).collect()
}

fn states() -> Vec<String> {
    forebay_graph::states().into_iter().map(|it| it.name.to_owned()).collect()
}

fn usecases() -> Vec<String> {
    forebay_pipeline::usecases().iter().map(|it| it.name.to_owned()).collect()
}

fn controllers() -> Vec<String> {
    forebay_graph::controllers().into_iter().map(|it| it.name.to_owned()).collect()
}

/// Built-in pipelines, and files.
fn pipelines(current: &OsStr) -> Vec<CompletionCandidate> {
    let text = current.to_string_lossy();
    let mut all: Vec<_> = usecases()
        .into_iter()
        .map(|name| format!("usecase:{name}"))
        .filter(|name| name.starts_with(&*text))
        .map(CompletionCandidate::new)
        .collect();
    let is_configuration = |path: &Path| {
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("yaml") || extension == "yml")
    };
    all.extend(PathCompleter::any().filter(move |path| path.is_dir() || is_configuration(path)).complete(current));
    all
}

/// This machine, and files of hwloc.
fn machines(current: &OsStr) -> Vec<CompletionCandidate> {
    let host = "host".starts_with(&*current.to_string_lossy()).then(|| CompletionCandidate::new("host"));
    let is_xml = |path: &Path| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml"));
    let files = PathCompleter::any().filter(move |path| path.is_dir() || is_xml(path)).complete(current);
    host.into_iter().chain(files).collect()
}

/// The words of the line that is completed.
fn line() -> Vec<String> {
    std::env::args().collect()
}

/// A connection to the running pipeline that a line means.
fn connect(line: &[String]) -> Option<Client> {
    let option = |name: &str| {
        let value = |at: usize| match line[at].split_once('=') {
            Some((flag, value)) if flag == name => Some(value.to_owned()),
            None if line[at] == name => line.get(at + 1).cloned(),
            _ => None,
        };
        (0..line.len()).find_map(value)
    };
    let (path, instance) = (option("--socket"), option("--instance"));
    let path = find(path.as_deref().map(Path::new), instance.as_deref()).ok()?;
    Client::connect(&path).ok()?.with_patience(PATIENCE).ok()
}

fn graph(line: &[String]) -> Option<GraphReport> {
    match connect(line)?.request(&Request::Graph {}) {
        Ok(Response::Graph(graph)) => Some(*graph),
        _ => None,
    }
}

/// Tables that can be changed: the module's name alone where it has one.
fn tables(line: &[String]) -> Vec<String> {
    let Some(Ok(Response::Tables(tables))) = connect(line).map(|mut client| client.request(&Request::Tables {})) else {
        return Vec::new();
    };
    let is_alone = |module: &str| tables.iter().filter(|table| table.module == module).count() == 1;
    let name = |table: &forebay_protocol::response::TableSummary| match is_alone(&table.module) {
        true => table.module.clone(),
        false => format!("{}.{}", table.module, table.table),
    };
    tables.iter().map(name).collect()
}

/// Names of the kind that the line shows.
fn shown(line: &[String]) -> Vec<String> {
    let has = |word: &str| line.iter().any(|it| it == word);
    if has("table") {
        return tables(line);
    }
    let Some(graph) = graph(line) else { return Vec::new() };
    if has("modules") {
        graph.modules.into_iter().map(|module| module.name).collect()
    } else if has("flows") {
        graph.flows.into_iter().map(|flow| flow.name).collect()
    } else if has("ports") {
        graph.ports.into_iter().map(|port| port.name).collect()
    } else {
        Vec::new()
    }
}
