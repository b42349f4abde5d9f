//! `forebay show config`: the configuration in force.

use std::io::Write;

use forebay_protocol::{Client, Request, Response, response::Configuration};

use super::strange;
use crate::format::counted;

/// Prints the configuration as YAML, with notes as comments.
pub(super) fn show(client: &mut Client, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let Response::Config(config) = client.request(&Request::Config {})? else { return Err(strange()) };
    if json {
        writeln!(out, "{}", serde_json::to_string(&config)?)?;
        return Ok(());
    }
    let Configuration { text, settings, version, changes, file, tables } = *config;
    let changes = match changes {
        0 => "as started".to_owned(),
        changes => format!("after {}", counted(changes, "accepted change")),
    };
    // A line break in a name would end the comment.
    let comment = |text: &str| text.replace(['\n', '\r'], " ");
    writeln!(out, "# {}, version {version}, {changes}", comment(&file))?;
    for setting in &settings {
        writeln!(out, "# with --set {}", comment(setting))?;
    }
    for (table, made) in &tables {
        let module = table.rsplit_once('.').map_or(table.as_str(), |(module, _)| module);
        let made = counted(*made, "change");
        writeln!(
            out,
            "# {}: {made} of entries, which this text does not contain: see `forebay show table {}`",
            comment(table),
            comment(module)
        )?;
    }
    if text.contains("***") {
        writeln!(out, "# secrets are shown as ***")?;
    }
    write!(out, "{text}")?;
    Ok(())
}
