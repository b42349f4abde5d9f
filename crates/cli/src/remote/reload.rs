//! `forebay reload`: changes the configuration of the running pipeline.

use std::io::{self, Write};

use anyhow::{anyhow, bail};
use forebay_protocol::{Reloaded, Request, Response};
use forebay_units::wording;

use super::{LONG, connect, strange};
use crate::format::{counted, whole};
use crate::{args, printed};

/// Runs `forebay reload`.
pub(crate) fn reload(arguments: &args::Reload) -> anyhow::Result<()> {
    let mut client = connect(&arguments.running)?.with_patience(LONG)?;
    let named = |name: &String| {
        let why = "the running pipeline reads the file itself and cannot read an open pipe: name a file";
        crate::source::origin(name).ok_or_else(|| anyhow!("{name}: {why}"))
    };
    let file = arguments.pipeline.as_ref().map(named).transpose()?;
    let set = (!arguments.set.is_empty()).then(|| arguments.set.clone());
    let request =
        Request::Reload { file, set, forget: arguments.forget, text: None, config_paths: None, if_version: None };
    let response = client.request(&request)?;
    let Response::Reloaded(reloaded) = &response else { return Err(strange()) };
    if arguments.json {
        writeln!(printed::out(), "{}", serde_json::to_string(&response)?)?;
    } else {
        print_reload(reloaded, &mut printed::out())?;
    }
    if reloaded.missing != 0 {
        bail!("{} unaccounted for: this is a defect of Forebay", wording::counted(reloaded.missing, "packet"));
    }
    Ok(())
}

/// Prints the result of a reload: its duration, the differences, the cores, and the settings in force.
pub(super) fn print_reload(reloaded: &Reloaded, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "changed in {:.1} ms; packets waited for {:.0} us; {} kept {} state",
        reloaded.took_ms,
        reloaded.pause_us,
        counted(reloaded.change.kept as u64, "module"),
        if reloaded.change.kept == 1 { "its" } else { "their" }
    )?;
    let lists = [
        ("replaced", &reloaded.change.changed),
        ("added", &reloaded.change.added),
        ("removed", &reloaded.change.removed),
        ("moved to other workers", &reloaded.change.moved),
        ("ports opened", &reloaded.change.ports_opened),
        ("ports closed", &reloaded.change.ports_closed),
        ("sessions lost", &reloaded.change.forgotten),
    ];
    for (what, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        let more = if names.len() > 20 { format!(" and {} more", names.len() - 20) } else { String::new() };
        writeln!(out, "{what}: {}{more}", names.iter().take(20).cloned().collect::<Vec<_>>().join(", "))?;
    }
    let cores: Vec<_> =
        reloaded.cores.iter().enumerate().map(|(worker, core)| format!("{worker} on core {core}")).collect();
    writeln!(out, "workers: {}", cores.join(", "))?;
    if !reloaded.sets.is_empty() {
        let sets: Vec<_> = reloaded.sets.iter().map(|set| format!("--set {set}")).collect();
        writeln!(out, "settings in force: {}", sets.join(" "))?;
    }
    if reloaded.dropped > 0 {
        writeln!(
            out,
            "removed modules still held {} packets, which were dropped (held_at_close)",
            whole(reloaded.dropped)
        )?;
    }
    Ok(())
}
