//! `forebay show control`: the controller, the flows' objectives, and the triggers with their reasons.

use std::io::Write;
use std::time::Duration;

use forebay_protocol::{
    Client,
    report::{ControlReport, FlowReport, ModuleReport, Report},
};
use serde_json::{Value, json};

use super::reports;
use crate::control::{moves, state, unkept};
use crate::format::Align::{Left, Right};
use crate::format::{short, span, table, wrapped};

/// The time over which the delays and rates of flows are measured.
const WINDOW: Duration = Duration::from_secs(1);
/// Maximum width of a line, in columns.
const WIDTH: usize = 80;

/// Prints the state of the controller. Takes a second, because delays and rates are those of the last second.
pub(super) fn show(client: &mut Client, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    reports(client)?;
    std::thread::sleep(WINDOW);
    let (recent, whole) = reports(client)?;
    if as_json {
        writeln!(out, "{}", to_json(&recent, &whole))?;
    } else {
        print(&recent, &whole, out)?;
    }
    Ok(())
}

/// Returns a flow's objective minus its delay, in microseconds. Negative if the objective was missed; `None` without an
/// objective or without packets.
fn slack_us(flow: &FlowReport) -> Option<f64> {
    Some(flow.slo_us? - flow.at_percentile_us?)
}

/// Returns whether the flow has an objective of delay or rate.
fn has_objective(flow: &&FlowReport) -> bool {
    flow.slo_us.is_some() || flow.min_rate_pps.is_some() || flow.min_rate_bps.is_some()
}

/// Returns the state as JSON. The figures of flows and modules are from `recent`, the report of the last second. The
/// controller and the last changes of triggers are from `whole`, the report of the run. Flows without an objective are
/// left out.
fn to_json(recent: &Report, whole: &Report) -> Value {
    let flows = recent.flows.iter().filter(has_objective).map(|flow| {
        let mut object = json!({
            "name": flow.name,
            "slo_us": flow.slo_us,
            "percentile": flow.percentile,
            "actual_us": flow.at_percentile_us,
            "slack_us": slack_us(flow),
            "kept": flow.kept,
            "min_rate_pps": flow.min_rate_pps,
            "rate_pps": flow.rate_pps,
            "rate_kept": flow.rate_kept,
        });
        if let Some(least) = flow.min_rate_bps {
            (object["min_rate_bps"], object["rate_bps"]) = (json!(least), json!(flow.rate_bps));
        }
        object
    });
    let change = |module: &ModuleReport| {
        whole.control.as_ref().and_then(|control| control.changes.iter().find(|change| change.module == module.name))
    };
    let modules = recent.modules.iter().map(|module| {
        json!({
            "name": module.name,
            "trigger": module.trigger,
            "batch_mean": module.batch_mean,
            "change": change(module),
        })
    });
    json!({
        "control": whole.control,
        "window_s": recent.duration_s,
        "flows": flows.collect::<Vec<_>>(),
        "modules": modules.collect::<Vec<_>>(),
    })
}

fn print(recent: &Report, whole: &Report, out: &mut impl Write) -> anyhow::Result<()> {
    match &whole.control {
        Some(control) => writeln!(out, "{}", wrapped(&state(control, &recent.workers), 2, WIDTH))?,
        None => writeln!(
            out,
            "no controller sets triggers; to add one: `forebay reload --set control.batching=optimal`\n\
             (`forebay list controllers` lists all)"
        )?,
    }
    let flows: Vec<_> = recent.flows.iter().filter(has_objective).collect();
    if flows.is_empty() {
        writeln!(out, "\nno flow has an objective: `flows: [{{ name: …, path: …, slo: 300us }}]`")?;
    } else {
        let columns = [("flow", Left), ("objective", Right), ("last second", Right), ("slack", Right), ("", Left)];
        let rows: Vec<_> = flows.into_iter().flat_map(rows).collect();
        write!(out, "\n{}", table(&columns, &rows))?;
    }
    let none = ControlReport::default();
    let control = whole.control.as_ref().unwrap_or(&none);
    for sentence in unkept(control, &recent.flows).into_iter().chain(moves(control)).chain(control.trouble.clone()) {
        writeln!(out, "{}", wrapped(&sentence, 2, WIDTH))?;
    }
    let columns = [("module", Left), ("trigger", Right), ("batch", Right), ("last change", Left)];
    let rows: Vec<_> = recent.modules.iter().filter_map(|module| module_row(module, control)).collect();
    if !rows.is_empty() {
        write!(out, "\n{}", table(&columns, &rows))?;
    }
    let rest = recent.modules.len() - rows.len();
    if rest > 0 {
        let modules = if rest == 1 { "1 module runs".to_owned() } else { format!("{rest} modules run") };
        writeln!(out, "\n{modules} without a trigger, on the packets that arrive; no controller has changed this")?;
    }
    Ok(())
}

/// Returns one row for each of a flow's objectives.
fn rows(flow: &FlowReport) -> Vec<Vec<String>> {
    let verdict = |kept: Option<bool>| match kept {
        Some(true) => "kept".to_owned(),
        Some(false) => "MISSED".to_owned(),
        None => "no packets".to_owned(),
    };
    let delay = flow.slo_us.map(|slo| {
        let percentile = flow.percentile.map_or_else(String::new, |percentile| format!("{percentile} "));
        let slack = slack_us(flow);
        // `span` formats times without a sign.
        let slack = slack.map_or("n/a".to_owned(), |slack| {
            format!("{}{}", if slack < 0.0 { "-" } else { "" }, span(Some(slack.abs())))
        });
        vec![
            flow.name.clone(),
            format!("{percentile}{}", span(Some(slo))),
            span(flow.at_percentile_us),
            slack,
            verdict(flow.kept),
        ]
    });
    let in_packets = flow.min_rate_pps.map(|least| (least, flow.rate_pps, "pps"));
    let in_bits = || Some((flow.min_rate_bps?, flow.rate_bps?, "bps"));
    let rate = in_packets.or_else(in_bits).map(|(least, has, unit)| {
        vec![
            flow.name.clone(),
            format!("{} {unit}", short(least)),
            format!("{} {unit}", short(has.round())),
            String::new(),
            verdict(flow.rate_kept),
        ]
    });
    delay.into_iter().chain(rate).collect()
}

/// Returns the row of a module; `None` if it has no trigger and its trigger was never changed.
fn module_row(module: &ModuleReport, control: &ControlReport) -> Option<Vec<String>> {
    let change = control.changes.iter().find(|change| change.module == module.name);
    if module.trigger == 0 && change.is_none() {
        return None;
    }
    let why = change.map_or("as stated".to_owned(), |change| {
        let flow = change.flow.as_ref().map_or(String::new(), |flow| format!(", flow {flow}"));
        format!("{} -> {} at {:.1} s: {}{flow}", change.from, change.to, change.at_s, change.why)
    });
    let batch = module.batch_mean.map_or("n/a".to_owned(), |mean| format!("{mean:.1}"));
    Some(vec![module.name.clone(), module.trigger.to_string(), batch, why])
}
