//! Commands that talk to a running pipeline: `top`, `show`, `reload`, `move`, `table`, `stop`, `drops`, `list running`.

mod config;
mod control;
mod drops;
mod instances;
mod moves;
mod reload;
mod stop;
mod table;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use forebay_functions::tables::acl::rule_file::numbered_classbench;
use forebay_observe::filter::Filter;
use forebay_pipeline::{known_names, listed, nearest};
use forebay_protocol::{
    Census, Client, ClientError, Request, Response,
    event::Event,
    locate::{LocateError, find},
    report::Report,
};

use crate::args::{self, Running, Shown};
use crate::events::LogFormat;
use crate::format::Align::{Left, Right};
use crate::format::{table, whole};
use crate::live::{EVENTS, Live, Quit};
use crate::{plain, printed, refused, summary};

pub(crate) use drops::drops;
pub(crate) use instances::{list, uptime};
pub(crate) use moves::{Leave, Notice, PATIENT, apply, move_modules};
pub(crate) use reload::reload;
pub(crate) use stop::stop;
pub(crate) use table::change;

/// Number of table entries per request.
const PAGE: usize = 10_000;
/// Time limit for a response for which the pipeline may have to build large tables.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// Interval at which the keyboard is read.
const LOOK: Duration = Duration::from_millis(20);

/// Returns the result of a command. With JSON output, first prints an error as JSON.
pub(crate) fn or_json_error<T>(json: bool, done: anyhow::Result<T>) -> anyhow::Result<T> {
    if let (true, Err(error)) = (json, &done) {
        // If standard output has gone away, the exit code still reports the error.
        let _ = writeln!(printed::out(), "{}", serde_json::json!({ "error": refused::message(error) }));
    }
    done
}

/// Connects to the running pipeline that the arguments name. The error for an unknown name has a suggestion.
pub(crate) fn connect(running: &Running) -> anyhow::Result<Client> {
    let path = find(running.socket.as_deref(), running.instance.as_deref()).map_err(|mut error| {
        if let LocateError::Unknown { name, running, hint } = &mut error {
            *hint = nearest(name, running.iter().map(String::as_str));
        }
        error
    })?;
    Ok(Client::connect(&path)?)
}

/// Returns the error for a response of a type that does not belong to the request.
pub(crate) fn strange() -> anyhow::Error {
    anyhow!(
        "unexpected response: the running pipeline may have another version of Forebay; use the `forebay` that it was \
         started with"
    )
}

/// Requests the report of the whole run, and the exact numbers of packets ([`Census`]; `None` if a worker did not
/// respond). `rules` names the modules whose counters per rule are needed; `*` stands for all modules.
fn report(client: &mut Client, rules: &[&str]) -> anyhow::Result<(Report, Option<Census>)> {
    let rules = rules.iter().map(|name| (*name).to_owned()).collect();
    match client.request(&Request::Report { recent: false, rules, histograms: false })? {
        Response::Report { whole, census, .. } => Ok((*whole, census)),
        _ => Err(strange()),
    }
}

/// Requests the report of the time since the last request of this kind, and the report of the whole run.
fn reports(client: &mut Client) -> anyhow::Result<(Report, Report)> {
    match client.request(&Request::Report { recent: true, rules: Vec::new(), histograms: false })? {
        Response::Report { recent: Some(recent), whole, .. } => Ok((*recent, *whole)),
        _ => Err(strange()),
    }
}

/// Runs `forebay top`.
pub(crate) fn top(arguments: &args::Top) -> anyhow::Result<()> {
    let mut client = connect(&arguments.running)?;
    let interval = Duration::from_nanos(arguments.interval.0);
    let mut live = if io::stdout().is_terminal() { Live::start(Quit::Leave).ok() } else { None };
    // Discard the first report, which covers the whole run. Later reports cover one interval.
    reports(&mut client)?;
    let (mut next, mut events) = (Instant::now() + interval, Vec::new());
    loop {
        match &mut live {
            Some(watching) => match watching.handle_keys(LOOK) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(_) => {
                    live.take().into_iter().for_each(Live::abandon);
                    return Ok(());
                }
            },
            None => std::thread::sleep(next.saturating_duration_since(Instant::now())),
        }
        if Instant::now() < next {
            continue;
        }
        next += interval;
        let seen = reports(&mut client).and_then(|(recent, so_far)| {
            if live.is_some() {
                collect(&mut client, &mut events)?;
            }
            Ok((recent, so_far))
        });
        let (recent, so_far) = match seen {
            Ok(reports) => reports,
            Err(error) if matches!(error.downcast_ref(), Some(ClientError::Ended { .. })) => {
                drop(live);
                writeln!(printed::out(), "the pipeline has ended")?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match &mut live {
            Some(watching) => watching.show(recent, so_far, events.clone())?,
            None => plain::line(&recent, &so_far, &mut printed::stream())?,
        }
    }
}

/// Adds the events that the run has recorded after the last of `events`. Keeps only the latest [`EVENTS`].
fn collect(client: &mut Client, events: &mut Vec<Event>) -> anyhow::Result<()> {
    let after = events.last().map_or(0, |last| last.id);
    let Response::Events(more) = client.request(&Request::Events { after, follow: false })? else {
        return Err(strange());
    };
    events.extend(more);
    events.drain(..events.len().saturating_sub(EVENTS));
    Ok(())
}

/// Runs `forebay show`.
pub(crate) fn show(arguments: &args::Show) -> anyhow::Result<()> {
    surplus(arguments)?;
    let mut client = connect(&arguments.running)?;
    let mut out = printed::stream();
    match arguments.what {
        Shown::Trace => return trace(&mut client, arguments, &mut out),
        Shown::Tables => return tables(&mut client, arguments.json, &mut out),
        Shown::Table => return entries(&mut client, arguments, &mut out),
        Shown::Events => return events(&mut client, arguments, &mut out),
        Shown::Config => return config::show(&mut client, arguments.json, &mut out),
        Shown::Control => return control::show(&mut client, arguments.json, &mut out),
        _ => {}
    }
    let modules = matches!(arguments.what, Shown::Modules).then(|| arguments.name.as_deref().unwrap_or("*"));
    let (mut report, census) = report(&mut client, modules.as_slice())?;
    if let Some(name) = &arguments.name {
        match arguments.what {
            Shown::Modules => only(&mut report.modules, "module", name, |module| &module.name)?,
            Shown::Flows => only(&mut report.flows, "flow", name, |flow| &flow.name)?,
            _ => only(&mut report.ports, "port", name, |port| &port.name)?,
        }
    }
    if arguments.json {
        let text = match arguments.what {
            Shown::Modules => serde_json::to_string(&report.modules),
            Shown::Flows => serde_json::to_string(&report.flows),
            Shown::Ports => serde_json::to_string(&report.ports),
            Shown::Workers => serde_json::to_string(&report.workers),
            _ => serde_json::to_string(&report.packets),
        };
        writeln!(out, "{}", text?)?;
        return Ok(());
    }
    match arguments.what {
        Shown::Modules => summary::modules(&report, &mut out)?,
        Shown::Flows => summary::flows(&report, &mut out)?,
        Shown::Ports => summary::ports(&report, &mut out)?,
        Shown::Workers => summary::workers(&report, &mut out)?,
        _ => {
            summary::reasons("dropped", &report.packets.dropped, &mut out)?;
            match census {
                Some(census) => writeln!(out, "{}", summary::whereabouts(&census, report.packets.lost))?,
                None => writeln!(out, "a worker does not respond")?,
            }
        }
    }
    Ok(())
}

/// Returns an error for an argument that does not apply to the view.
fn surplus(arguments: &args::Show) -> anyhow::Result<()> {
    let what = arguments.what.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    if let (Shown::Trace, Some(filter)) = (arguments.what, &arguments.filter) {
        filter.parse::<Filter>().map_err(|error| anyhow!("--filter '{filter}': {error}"))?;
    }
    let (counts, filters, follows) = match arguments.what {
        Shown::Trace | Shown::Table => (true, true, false),
        Shown::Events => (true, false, true),
        _ => (false, false, false),
    };
    for (flag, given, is_allowed, with) in [
        ("--count", arguments.count.is_some(), counts, "`show trace`, `show table` and `show events`"),
        ("--filter", arguments.filter.is_some(), filters, "`show trace` and `show table`"),
        ("--follow", arguments.follow, follows, "`show events`"),
    ] {
        if given && !is_allowed {
            bail!("{flag} does not apply to `show {what}`; it is allowed with {with}");
        }
    }
    let named = matches!(arguments.what, Shown::Modules | Shown::Flows | Shown::Ports | Shown::Table);
    match &arguments.name {
        Some(name) if !named => {
            let suggestion = if matches!(arguments.what, Shown::Tables) {
                format!(" (did you mean `show table {name}`?)")
            } else {
                String::new()
            };
            bail!(
                "`show {what}` takes no name ('{name}'){suggestion}; names are allowed with modules, flows, ports and \
                 table"
            )
        }
        _ => Ok(()),
    }
}

/// Keeps only the element called `name`. Returns an error if there is none; `kind` (module, flow or port) is the word
/// for an element in the error.
fn only<T>(all: &mut Vec<T>, kind: &str, name: &str, name_of: impl Fn(&T) -> &String) -> anyhow::Result<()> {
    if !all.iter().any(|one| name_of(one) == name) {
        let known = known_names(name, all.iter().map(|one| name_of(one).as_str()));
        bail!("no {kind} is called '{name}'{known}");
    }
    all.retain(|one| name_of(one) == name);
    Ok(())
}

/// Prints the paths of the next packets as they pass the pipeline: at most `--count` packets, 1 by default.
fn trace(client: &mut Client, arguments: &args::Show, out: &mut impl Write) -> anyhow::Result<()> {
    let request = Request::Trace { count: arguments.count.unwrap_or(1), filter: arguments.filter.clone() };
    let mut response = client.stream(&request)?;
    while let Response::Story(story) = response {
        if arguments.json {
            writeln!(out, "{}", serde_json::to_string(&story)?)?;
        } else {
            writeln!(out, "{story}")?;
        }
        out.flush()?;
        response = client.response()?;
    }
    Ok(())
}

/// Prints the stored events, or the latest of them. With `--follow`, also prints later events.
fn events(client: &mut Client, arguments: &args::Show, out: &mut impl Write) -> anyhow::Result<()> {
    let format = if arguments.json { LogFormat::Json } else { LogFormat::Logfmt };
    let Response::Events(mut events) = client.request(&Request::Events { after: 0, follow: false })? else {
        return Err(strange());
    };
    let after = events.last().map_or(0, |last| last.id);
    let most = arguments.count.map_or(usize::MAX, |count| count as usize);
    events.drain(..events.len().saturating_sub(most));
    events.iter().try_for_each(|event| writeln!(out, "{}", format.line(event)))?;
    out.flush()?;
    if !arguments.follow {
        return Ok(());
    }
    let mut response = client.stream(&Request::Events { after, follow: true });
    loop {
        match response {
            Ok(Response::Events(events)) => {
                events.iter().try_for_each(|event| writeln!(out, "{}", format.line(event)))?;
                out.flush()?;
            }
            // The end of the run is no error, as in `top`.
            Err(ClientError::Ended { .. }) => return Ok(()),
            Ok(_) => return Err(strange()),
            Err(error) => return Err(error.into()),
        }
        response = client.response();
    }
}

/// Prints the tables that can be changed, and the syntax of their changes.
fn tables(client: &mut Client, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let Response::Tables(tables) = client.request(&Request::Tables {})? else { return Err(strange()) };
    if json {
        writeln!(out, "{}", serde_json::to_string(&tables)?)?;
        return Ok(());
    }
    let columns = [("module", Left), ("table", Left), ("entries", Right)];
    let rows: Vec<_> =
        tables.iter().map(|it| vec![it.module.clone(), it.table.clone(), whole(it.entries as u64)]).collect();
    writeln!(out, "{}", table(&columns, &rows))?;
    let mut kinds: Vec<_> = tables.iter().map(|it| (&it.table, &it.syntax)).collect();
    kinds.sort();
    kinds.dedup();
    for (name, syntax) in kinds {
        writeln!(out, "changes of {name}:")?;
        syntax.lines().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    Ok(())
}

/// Splits the name of a table into its module and, if given, its table.
fn parts(name: &str) -> (String, Option<String>) {
    match name.split_once('.') {
        Some((module, table)) => (module.to_owned(), Some(table.to_owned())),
        None => (name.to_owned(), None),
    }
}

/// Lists the names of all tables, for an error message.
fn known(client: &mut Client) -> anyhow::Result<String> {
    let Response::Tables(tables) = client.request(&Request::Tables {})? else { return Err(strange()) };
    let names: Vec<_> = tables.iter().map(|it| format!("{}.{}", it.module, it.table)).collect();
    Ok(match &names[..] {
        [] => "this pipeline has no tables".to_owned(),
        names => format!("name one of {}", listed(names.iter().map(String::as_str))),
    })
}

/// Prints the entries of a table. Requests them in pages of [`PAGE`] entries; a page begins after the last entry of the
/// page before.
fn entries(client: &mut Client, arguments: &args::Show, out: &mut impl Write) -> anyhow::Result<()> {
    let Some(name) = &arguments.name else { bail!("show table: {}", known(client)?) };
    let (module, table) = parts(name);
    let (mut after, mut remaining) = (None, arguments.count.map_or(usize::MAX, |count| count as usize));
    loop {
        let most = remaining.min(PAGE);
        let filter = arguments.filter.clone();
        let request =
            Request::Entries { module: module.clone(), table: table.clone(), after: after.clone(), filter, most };
        let Response::Entries(entries) = client.request(&request)? else { return Err(strange()) };
        for entry in &entries {
            if arguments.json {
                writeln!(out, "{}", object(entry))?;
            } else {
                writeln!(out, "{entry}")?;
            }
        }
        remaining -= entries.len().min(remaining);
        match entries.last() {
            Some(last) if entries.len() == PAGE && remaining > 0 => after = Some(last.clone()),
            _ => return Ok(()),
        }
    }
}

/// Converts a table entry to JSON. If all of its words are NAME=VALUE, as for sessions, the result is an object.
/// Otherwise it is a string. A rule becomes a string in ClassBench's format, because programs can read this format.
fn object(entry: &str) -> serde_json::Value {
    if let Some(rule) = numbered_classbench(entry) {
        return rule.into();
    }
    let words = entry.split(' ').map(|word| word.split_once('=').filter(|(name, _)| !name.is_empty()));
    let value = |value: &str| match value.parse::<u64>() {
        Ok(number) if !value.starts_with('+') => number.into(),
        _ => value.into(),
    };
    let object: Option<serde_json::Map<_, _>> =
        words.map(|word| word.map(|(name, text)| (name.to_owned(), value(text)))).collect();
    object.map_or_else(|| entry.into(), serde_json::Value::Object)
}
