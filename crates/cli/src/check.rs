//! `forebay check`: whether a configuration is in order.

use std::io::Write;

use forebay_pipeline::{Checked, Problems};
use serde_json::json;

use crate::format::counted;
use crate::{args, printed};

/// Checks a configuration. Problems are the command's error, and with `--json` also its output.
pub(crate) fn check(arguments: &args::Check) -> anyhow::Result<()> {
    let checked =
        crate::source::source(&arguments.pipeline, &arguments.set).and_then(|source| forebay_pipeline::check(&source));
    if arguments.json {
        writeln!(printed::out(), "{}", as_json(&checked))?;
    }
    let checked = checked?;
    if !arguments.json {
        let Checked { name, modules, ports, flows } = checked;
        let (modules, ports) = (counted(modules.len() as u64, "module"), counted(ports.len() as u64, "port"));
        let flows = if flows.is_empty() { "every path a flow".to_owned() } else { counted(flows.len() as u64, "flow") };
        writeln!(printed::out(), "{name}: in order ({modules}, {ports}, {flows})")?;
    }
    Ok(())
}

fn as_json(checked: &Result<Checked, Problems>) -> serde_json::Value {
    let named = |things: &[(String, &str)], kind: &str| -> Vec<_> {
        things.iter().map(|(name, of)| json!({ "name": name, kind: of })).collect()
    };
    match checked {
        Ok(Checked { name, modules, ports, flows }) => json!({
            "in_order": true,
            "pipeline": name,
            "modules": named(modules, "function"),
            "ports": named(ports, "kind"),
            "flows": flows,
            "problems": [],
        }),
        Err(problems) => json!({
            "in_order": false,
            "problems": problems.all.iter().map(|it| json!({ "place": it.shown, "message": it.message })).collect::<Vec<_>>(),
        }),
    }
}
