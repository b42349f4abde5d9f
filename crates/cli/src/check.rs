//! `forebay check`: checks configurations.

use std::io::Write;

use forebay_pipeline::{Checked, Problems, shown_file};
use forebay_protocol::check::Fault;
use serde_json::json;

use crate::format::counted;
use crate::{args, printed};

/// Checks configurations. The problems of all configurations are the command's error, and with `--json` also part of
/// its output.
pub(crate) fn check(arguments: &args::Check) -> anyhow::Result<()> {
    let mut problems = Problems { faults: Vec::new() };
    for pipeline in &arguments.pipelines {
        if let Err(found) = check_one(pipeline, arguments)? {
            problems.faults.extend(found.faults);
        }
    }
    if problems.faults.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Maximum number of warnings that are printed.
const WARNINGS: usize = 20;

/// Checks one configuration, and prints the result if it has no problems or with `--json`. The outer error is an error
/// of writing to standard output. The inner error lists the problems of the configuration.
fn check_one(pipeline: &str, arguments: &args::Check) -> anyhow::Result<Result<(), Problems>> {
    let source = crate::source::source(pipeline, &arguments.set);
    let checked = source.and_then(|source| forebay_pipeline::check(&source));
    if arguments.json {
        writeln!(printed::out(), "{}", as_json(pipeline, &checked))?;
    }
    let checked = match checked {
        Ok(checked) => checked,
        Err(problems) => return Ok(Err(problems)),
    };
    if !arguments.json {
        let Checked { name, modules, ports, flows, skipped, warnings } = checked;
        let (modules, ports) = (counted(modules.len() as u64, "module"), counted(ports.len() as u64, "port"));
        let flows = if flows.is_empty() { "every path a flow".to_owned() } else { counted(flows.len() as u64, "flow") };
        // Several files may contain pipelines with the same name.
        let name = if arguments.pipelines.len() > 1 { shown_file(pipeline) } else { name };
        writeln!(printed::out(), "{name}: in order ({modules}, {ports}, {flows})")?;
        if !skipped.is_empty() {
            let rules = counted(skipped.len() as u64, "rule");
            writeln!(printed::out(), "{name}: {rules} skipped ('forebay check --json' lists all)")?;
        }
        for (module, warning) in warnings.iter().take(WARNINGS) {
            writeln!(printed::out(), "{name}: warning: {module}: {warning}")?;
        }
        if warnings.len() > WARNINGS {
            let more = counted((warnings.len() - WARNINGS) as u64, "warning");
            writeln!(printed::out(), "{name}: {more} more ('forebay check --json' lists all)")?;
        }
    }
    Ok(Ok(()))
}

/// Returns a skipped rule with its module, as JSON.
fn as_entry((module, line): &(String, String)) -> serde_json::Value {
    let mut entry = serde_json::from_str(line).unwrap_or_else(|_| json!({ "reason": line }));
    entry["module"] = json!(module);
    entry
}

fn problem(fault: &Fault) -> serde_json::Value {
    json!({ "place": fault.place, "message": fault.text() })
}

fn warning((module, message): &(String, String)) -> serde_json::Value {
    json!({ "module": module, "message": message })
}

fn as_json(file: &str, checked: &Result<Checked, Problems>) -> serde_json::Value {
    let named = |things: &[(String, &str)], kind: &str| -> Vec<_> {
        things.iter().map(|(name, of)| json!({ "name": name, kind: of })).collect()
    };
    match checked {
        Ok(Checked { name, modules, ports, flows, skipped, warnings }) => json!({
            "file": shown_file(file),
            "in_order": true,
            "pipeline": name,
            "modules": named(modules, "function"),
            "ports": named(ports, "kind"),
            "flows": flows,
            "problems": [],
            "skipped": skipped.iter().map(as_entry).collect::<Vec<_>>(),
            "warnings": warnings.iter().map(warning).collect::<Vec<_>>(),
        }),
        Err(problems) => json!({
            "file": shown_file(file),
            "in_order": false,
            "problems": problems.faults.iter().map(problem).collect::<Vec<_>>(),
        }),
    }
}
