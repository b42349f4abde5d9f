//! Shell completion: options, names of functions and other components, and the modules, tables, flows and ports of the
//! running pipeline.
//!
//! The script that `forebay completions` prints calls this program for candidates. A pipeline that does not respond
//! quickly gives no candidates, so that a key press does not wait.

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

/// The environment variable by which a shell requests candidates.
const VARIABLE: &str = "FOREBAY_COMPLETE";
/// Time limit for the response of a running pipeline.
const PATIENCE: Duration = Duration::from_millis(300);

/// If a shell requests candidates, prints them and ends the process.
pub(crate) fn answer() {
    CompleteEnv::with_factory(|| completed(Args::command())).var(VARIABLE).complete();
}

/// The script for bash. Bash splits words at colons, so that `usecase:gw` becomes three words. The script joins these
/// words again, and removes the text up to the last colon from the candidates.
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

/// Prints the completion script of a shell.
pub(crate) fn print(shell: Shell, out: &mut impl Write) -> io::Result<()> {
    if shell == Shell::Bash {
        return out.write_all(BASH.replace("VARIABLE", VARIABLE).as_bytes());
    }
    // Write to memory first, so that the script is printed completely or not at all.
    let mut script = Vec::new();
    match Shells::builtins().completer(&shell.to_string()) {
        Some(completer) => completer.write_registration(VARIABLE, "forebay", "forebay", "forebay", &mut script)?,
        None => return Err(io::Error::other(format!("completions for {shell} are not available"))),
    }
    out.write_all(&script)
}

/// Adds candidates for the values of arguments to the command.
fn completed(command: clap::Command) -> clap::Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| with_candidates(&name, arg));
    command.mut_subcommands(completed)
}

/// The values that are offered for an argument.
#[derive(Clone, Copy)]
enum Values {
    /// Use cases and files of configurations.
    Pipelines,
    /// `host` and files of hwloc.
    Machines,
    /// All components that `describe` explains.
    Components,
    UseCases,
    Functions,
    Controllers,
    /// The running pipelines.
    Instances,
    /// The tables of the running pipeline.
    Tables,
    /// Modules, flows, ports or tables of the running pipeline.
    Shown,
    /// No candidates. This is for an argument that must not get the candidates of an argument with the same name in
    /// another command.
    None,
}

/// The name that stands for every command in [`CANDIDATES`].
const ANY: &str = "*";

/// The values of arguments: the command, the field of the argument in `args`, the values. The first line that matches
/// counts. A test checks that all commands and arguments exist. A new argument that names a component needs a line.
const CANDIDATES: &[(&str, &str, Values)] = &[
    ("history", "pipeline", Values::None),
    (ANY, "pipeline", Values::Pipelines),
    (ANY, "pipelines", Values::Pipelines),
    ("place", "chains", Values::Pipelines),
    ("topology", "source", Values::Machines),
    ("place", "topology", Values::Machines),
    ("describe", "name", Values::Components),
    ("usecase", "name", Values::UseCases),
    ("profile", "functions", Values::Functions),
    (ANY, "controller", Values::Controllers),
    ("run", "instance", Values::None),
    (ANY, "instance", Values::Instances),
    ("table", "name", Values::Tables),
    ("show", "name", Values::Shown),
];

/// Adds the candidates for the values of one argument of a command.
fn with_candidates(command: &str, arg: Arg) -> Arg {
    let named = |find: fn() -> Vec<String>| {
        ArgValueCandidates::new(move || find().into_iter().map(CompletionCandidate::new).collect::<Vec<_>>())
    };
    let matches = |of: &str, name: &str| (of == ANY || of == command) && arg.get_id().as_str() == name;
    let values =
        CANDIDATES.iter().find(|(of, name, _)| matches(of, name)).map_or(Values::None, |(_, _, values)| *values);
    match values {
        Values::Pipelines => arg.add(ArgValueCompleter::new(pipelines)),
        Values::Machines => arg.add(ArgValueCompleter::new(machines)),
        Values::Components => arg.add(named(|| [functions(), ports(), usecases(), controllers(), states()].concat())),
        Values::UseCases => arg.add(named(usecases)),
        Values::Functions => arg.add(named(functions)),
        Values::Controllers => arg.add(named(controllers)),
        Values::Instances => arg.add(named(|| running().handles())),
        Values::Tables => arg.add(named(|| tables(&line()))),
        Values::Shown => arg.add(named(|| shown(&line()))),
        Values::None => arg,
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

/// Returns built-in pipelines and files.
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

/// Returns `host` and files of hwloc.
fn machines(current: &OsStr) -> Vec<CompletionCandidate> {
    let host = "host".starts_with(&*current.to_string_lossy()).then(|| CompletionCandidate::new("host"));
    let is_xml = |path: &Path| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml"));
    let files = PathCompleter::any().filter(move |path| path.is_dir() || is_xml(path)).complete(current);
    host.into_iter().chain(files).collect()
}

/// Returns the words of the line that is completed.
fn line() -> Vec<String> {
    std::env::args().collect()
}

/// Connects to the running pipeline that the line names, or to the only one. Returns `None` if this fails.
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

/// Returns the graph of the running pipeline that the line names. Returns `None` if the pipeline does not respond in
/// time.
fn graph(line: &[String]) -> Option<GraphReport> {
    match connect(line)?.request(&Request::Graph {}) {
        Ok(Response::Graph(graph)) => Some(*graph),
        _ => None,
    }
}

/// Returns the names of the tables that can be changed: `MODULE.TABLE`, or only the module's name if the module has one
/// table.
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

/// Returns the names that can follow on the line of a `show` command: of the running pipeline's modules after `show
/// modules`, of its flows after `show flows`, and likewise of ports and tables.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds the arguments of a command and of the commands below it.
    fn collect(command: &clap::Command, found: &mut Vec<(String, String)>) {
        let name = command.get_name();
        found.extend(command.get_arguments().map(|arg| (name.to_owned(), arg.get_id().to_string())));
        command.get_subcommands().for_each(|command| collect(command, found));
    }

    #[test]
    fn every_line_of_candidates_is_used_by_an_argument() {
        let mut arguments = Vec::new();
        collect(&Args::command(), &mut arguments);
        let matches = |(of, name, _): &(&str, &str, Values), (command, arg): &(String, String)| {
            (*of == ANY || of == command) && name == arg
        };
        for line in CANDIDATES {
            let mut of_line = arguments.iter().filter(|argument| matches(line, argument));
            let is_first = |argument: &&(String, String)| {
                CANDIDATES.iter().find(|other| matches(other, argument)).is_some_and(|first| std::ptr::eq(first, line))
            };
            assert!(of_line.any(|argument| is_first(&argument)), "{} {}", line.0, line.1);
        }
    }
}
