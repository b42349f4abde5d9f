//! Carries out the requests of the socket that list and change tables.

use std::io;
use std::ptr;
use std::sync::{Arc, PoisonError};

use forebay_graph::NamedTable;
use forebay_pipeline::{listed, nearest};
use forebay_protocol::event::EventName;
use forebay_protocol::response::TableSummary;
use forebay_protocol::{MAX_REQUEST, Response};

use super::lines::Lines;
use super::service::Service;
use crate::events::{EventLog, NewEvent};

/// The largest number of changes that are made together. The changed table takes effect once for all of them.
const CHANGES: usize = 4_096;
/// The largest number of table entries in a response.
const MOST_ENTRIES: usize = 100_000;
/// The largest number of refused changes, and of warnings, in a response.
const REFUSALS: usize = 100;

/// Returns the response to `tables`: the tables that can be changed.
pub(super) fn tables(service: &Service) -> Response {
    Response::Tables(service.instance.tables().iter().map(summary).collect())
}

/// Carries out the request `entries`.
pub(super) fn entries(
    service: &Service,
    module: &str,
    table: Option<&str>,
    (filter, after): (Option<&str>, Option<&str>),
    most: usize,
) -> Response {
    let most = most.min(MOST_ENTRIES);
    find(service, module, table)
        .and_then(|found| match filter {
            Some(filter) => found.table.chosen(filter, after, most),
            None => found.table.entries(after, most),
        })
        .map_or_else(Response::Error, Response::Entries)
}

fn summary(table: &NamedTable) -> TableSummary {
    TableSummary {
        module: table.module.clone(),
        table: table.name.clone(),
        entries: table.table.len(),
        syntax: table.table.syntax().to_owned(),
    }
}

/// Returns the table with these names. Without a table's name, returns the only table of the module. The error lists
/// the tables that exist.
pub(super) fn find(service: &Service, module: &str, table: Option<&str>) -> Result<NamedTable, String> {
    let all = service.instance.tables();
    let of_module: Vec<_> = all.iter().filter(|known| known.module == module).collect();
    let meant = of_module.iter().find(|known| table.is_none_or(|name| known.name == name));
    if let (Some(meant), true) = (meant, table.is_some() || of_module.len() == 1) {
        return Ok((*meant).clone());
    }
    // The error lists the names of module and table, as a user types them, even if the module alone would be enough.
    let names = |known: &[&NamedTable]| -> Vec<String> {
        known.iter().map(|known| format!("{}.{}", known.module, known.name)).collect()
    };
    let there_are = |names: &[String]| match names {
        [] => "there are no tables".to_owned(),
        names => format!("there are the tables {}", listed(names.iter().map(String::as_str))),
    };
    let (all, of_module) = (names(&all.iter().collect::<Vec<_>>()), names(&of_module));
    if let (false, None) = (of_module.is_empty(), table) {
        return Err(format!("module '{module}' has several tables: name one of {}", of_module.join(", ")));
    }
    let telemetries = service.instance.board().telemetries();
    let modules =
        telemetries.first().into_iter().flat_map(|telemetry| &telemetry.modules).map(|module| module.name.as_str());
    let modules: Vec<_> = modules.collect();
    Err(match table {
        Some(name) if !of_module.is_empty() => {
            let typed = format!("{module}.{name}");
            let near = nearest(&typed, of_module.iter().map(String::as_str));
            format!("module '{module}' has no table '{name}'{near}: {}", there_are(&of_module))
        }
        _ if modules.contains(&module) => {
            format!("module '{module}' has no table that can be changed: {}", there_are(&all))
        }
        _ => {
            let near = match table {
                Some(name) => nearest(&format!("{module}.{name}"), all.iter().map(String::as_str)),
                None => nearest(module, modules),
            };
            format!("no module is called '{module}'{near}: {}", there_are(&all))
        }
    })
}

/// Reads changes up to an empty line, and makes up to [`CHANGES`] of them at a time. If the connection breaks or a
/// reload replaces the table, the remaining changes are not made.
///
/// # Errors
/// Returns an error if a line cannot be read, or if the connection ends before the empty line. The error reports the
/// changes that were made.
pub(super) fn change(service: &Service, found: &NamedTable, lines: &mut Lines<'_>) -> io::Result<Response> {
    let (mut made, mut entries, mut refused, mut refusals, mut seen) = (0, 0, Vec::new(), 0, 0);
    let mut warnings = Vec::new();
    let (mut changes, mut line, mut bytes, mut more) = (Vec::new(), Vec::new(), 0, true);
    while more {
        let next = match lines.next(&mut line) {
            Ok(false) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, lines.why_over())),
            line => line,
        };
        next.map_err(|error| {
            let made = match seen {
                0 => "no change was made".to_owned(),
                _ => format!("{made} of the first {seen} changes were made, and none of the later changes"),
            };
            io::Error::new(error.kind(), format!("{error} ({made})"))
        })?;
        more = !line.is_empty();
        if more {
            changes.push(String::from_utf8_lossy(&line).into_owned());
        }
        bytes += line.len();
        if changes.len() == CHANGES || bytes >= MAX_REQUEST || !more {
            bytes = 0;
            let all: Vec<&str> = changes.iter().map(String::as_str).collect();
            let outcome = found.table.apply(&all);
            // Checked after the changes, so that the response is right even if a reload happened meanwhile.
            if !is_in_force(service, found) {
                if more {
                    skip(lines)?;
                }
                let NamedTable { module, name, .. } = found;
                return Ok(Response::Error(format!(
                    "a reload has replaced the table '{name}' of module '{module}' meanwhile: none of these changes is \
                     in force; make them again"
                )));
            }
            made += outcome.made as u64;
            let mut ledger = service.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.note_entries(&found.module, &found.name, outcome.made as u64);
            drop(ledger);
            entries += outcome.entries;
            refusals += outcome.refused.len() as u64;
            warnings.extend(outcome.warnings.into_iter().take(REFUSALS - warnings.len()));
            for no in outcome.refused.into_iter().take(REFUSALS - refused.len()) {
                refused.push((seen + no.change as u64 + 1, no.message));
            }
            seen += changes.len() as u64;
            changes.clear();
        }
    }
    // A client whose changes are all refused must not fill the log.
    if made > 0 {
        let NamedTable { module, name, .. } = found;
        let changes = if made == 1 { "1 change".to_owned() } else { format!("{made} changes") };
        let message = format!("table '{name}' of module '{module}': {changes} made, {refusals} refused");
        let event = NewEvent::new(EventName::TableChanged, message).with("module", module.as_str());
        let event = event.with("table", name.as_str()).with("made", made).with("entries", entries);
        service.events.record(event.with("refused", refusals));
    }
    Ok(Response::Changed { made, entries, refused, refusals, warnings })
}

/// Records an event for each of these tables that has warnings.
pub fn warn_of(tables: &[NamedTable], events: &EventLog) {
    for NamedTable { module, name, table } in tables {
        let warnings = table.warnings();
        let Some(first) = warnings.first() else { continue };
        let more = match warnings.len() - 1 {
            0 => String::new(),
            more => format!("; and {more} more (`forebay check` lists them)"),
        };
        let message = format!("table '{name}' of module '{module}': {first}{more}");
        let event = NewEvent::new(EventName::RulesHidden, message).with("module", module.as_str());
        events.record(event.with("table", name.as_str()).with("count", warnings.len() as u64));
    }
}

/// Returns whether the workers still use the table, and no reload has replaced it.
fn is_in_force(service: &Service, found: &NamedTable) -> bool {
    let same = |known: &NamedTable| ptr::addr_eq(Arc::as_ptr(&known.table), Arc::as_ptr(&found.table));
    service.instance.tables().iter().any(same)
}

/// Reads and ignores the changes that follow, up to the empty line.
pub(super) fn skip(lines: &mut Lines<'_>) -> io::Result<()> {
    let mut line = Vec::new();
    while lines.next(&mut line)? && !line.is_empty() {}
    Ok(())
}
