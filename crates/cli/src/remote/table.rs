//! `forebay table`: changes to a table of the running pipeline.

use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;

use anyhow::bail;
use forebay_graph::NO_CHANGE;
use forebay_protocol::{Client, Request, Response, response::TableSummary};

use super::{LONG, connect, parts, strange};
use crate::changes::Changes;
use crate::format::{counted, whole};
use crate::{Answer, args, printed};

/// Runs `forebay table`. Returns `No` if a change was refused.
pub(crate) fn change(arguments: &args::Table) -> anyhow::Result<Answer> {
    let mut client = connect(&arguments.running)?.with_patience(LONG)?;
    let (module, table) = parts(&arguments.name);
    let request = Request::Change { module: module.clone(), table: table.clone() };
    let changes = one_by_one(&arguments.changes);
    if changes.iter().any(|change| change.contains('\n')) {
        bail!("a change (not shown) has more than one line: write each change as a separate argument");
    }
    let (response, unit) = if changes.is_empty() {
        // Reading a folder would fail with an error that names the connection.
        if File::from(io::stdin().as_fd().try_clone_to_owned()?).metadata().is_ok_and(|metadata| metadata.is_dir()) {
            bail!(
                "standard input is a folder: write changes as arguments, or redirect a file with one change per line"
            );
        }
        if io::stdin().is_terminal() {
            let end = "Ctrl-D ends the input, Ctrl-C cancels";
            writeln!(printed::err(), "reading changes of {} from the terminal, one per line: {end}", arguments.name)?;
            print_syntax(&mut client, &module, table.as_deref())?;
        }
        (send_changes(&mut client, &request, io::stdin().lock())?, "line")
    } else {
        (send_changes(&mut client, &request, changes.join("\n").as_bytes())?, "change")
    };
    let Response::Changed { made, entries, refused, refusals, warnings } = &response else { return Err(strange()) };
    if arguments.json {
        writeln!(printed::out(), "{}", serde_json::to_string(&response)?)?;
    } else {
        // One change can end many sessions, so the number of entries is printed too.
        let of = if entries == made { String::new() } else { format!(" of {} entries", whole(*entries)) };
        writeln!(printed::out(), "{}{of} made, {} refused", counted(*made, "change"), whole(*refusals))?;
        for (number, message) in refused {
            writeln!(printed::err(), "{unit} {number}: {message}")?;
        }
        for warning in warnings {
            writeln!(printed::err(), "warning: {warning}")?;
        }
        let more = refusals - refused.len() as u64;
        if more > 0 {
            writeln!(printed::err(), "and {} more", whole(more))?;
        }
        if refused.iter().any(|(_, message)| message.contains(NO_CHANGE)) {
            print_syntax(&mut client, &module, table.as_deref())?;
        }
    }
    Ok(if *refusals == 0 { Answer::Yes } else { Answer::No })
}

/// Splits the arguments into changes. Each argument is a change. But if the first argument is only a verb, all
/// arguments together are one change.
fn one_by_one(arguments: &[String]) -> Vec<String> {
    match arguments.first().map(|first| first.trim()) {
        Some("add" | "remove" | "replace") if arguments.len() > 1 => vec![arguments.join(" ")],
        _ => arguments.to_vec(),
    }
}

/// Sends the changes. In the response, the numbers of refused changes are replaced by line numbers of the input.
fn send_changes(client: &mut Client, request: &Request, input: impl BufRead) -> anyhow::Result<Response> {
    let mut changes = Changes::new(input);
    let mut response = client.change(request, &mut changes)?;
    if let Response::Changed { refused, .. } = &mut response {
        refused.iter_mut().for_each(|(number, _)| *number = changes.line_of(*number));
    }
    Ok(response)
}

/// Prints the syntax of a table's changes.
fn print_syntax(client: &mut Client, module: &str, table: Option<&str>) -> anyhow::Result<()> {
    let Response::Tables(tables) = client.request(&Request::Tables {})? else { return Err(strange()) };
    let meant = |it: &&TableSummary| it.module == module && table.is_none_or(|name| name == it.table);
    if let Some(it) = tables.iter().find(meant) {
        let mut err = printed::err();
        writeln!(err, "syntax of changes of {}:", it.table)?;
        it.syntax.lines().try_for_each(|line| writeln!(err, "  {line}"))?;
    }
    Ok(())
}
