//! The results of co-runs as tables of 80 columns.

use std::io::Write;

use forebay_corun::metric::{CORRELATION, Choice, FUNCTIONS, VARIANCE, Verdict};

use super::report::CoRunsReport;
use crate::format::{self, Align, counted, known, short, wrapped};

/// Maximum width of the output, in columns.
const WIDTH: usize = 80;
/// Maximum width of a function's name, in columns.
const NAME: usize = 20;

pub(super) fn print(report: &CoRunsReport, out: &mut impl Write) -> std::io::Result<()> {
    let CoRunsReport { cpu, forebay, program, batch, cores, caches, .. } = report;
    let others: Vec<_> = cores.competitors.iter().map(ToString::to_string).collect();
    let conditions = format!(
        "Functions on core {} beside competitors on {} {}: {cpu}, Forebay {forebay} ({program}), batches of up to \
         {batch}, a last-level cache of {}.",
        cores.subject,
        if others.len() == 1 { "core" } else { "cores" },
        others.join(", "),
        bytes(caches.shared),
    );
    paragraph(&conditions, out)?;
    if caches.are_assumed {
        paragraph("The system does not report cache sizes: these sizes are assumed.", out)?;
    }
    if cores.siblings {
        paragraph("The cores are threads of one physical core: they also share its private caches and units.", out)?;
    }
    metrics(report, out)?;
    functions(report, out)?;
    // Functions without a model are grouped by reason.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (function, why) in &report.missing {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(function),
            None => reasons.push((why, vec![function])),
        }
    }
    for (why, names) in reasons {
        paragraph(&format!("No model ({why}): {}.", names.join(", ")), out)?;
    }
    let void: usize = report.functions.values().map(|it| it.void.runs).sum();
    if void > 0 {
        let why = report.functions.values().find_map(|it| it.void.why.clone()).unwrap_or_default();
        let runs = if void == 1 { "run is" } else { "runs are" };
        paragraph(&format!("{void} {runs} void, one of them because {why}. The same command repeats them."), out)?;
    }
    let held_out = &report.held_out;
    let tried = match held_out.share {
        Some(share) => format!(
            "Of {} that were not used to fit models, {} ({:.0} %) had a rate in the predicted 95 % interval.",
            counted(held_out.runs as u64, "run"),
            held_out.inside,
            share * 100.0
        ),
        None => {
            "Held-out runs: n/a: for every function, the spread of its drops is at most twice the noise.".to_owned()
        }
    };
    paragraph(&tried, out)?;
    paragraph(&format!("Remote parameters: n/a: {}.", report.remote), out)?;
    match &report.models {
        Some(file) => writeln!(out, "Models are in {file}."),
        None if report.functions.is_empty() => writeln!(out, "There are no models yet."),
        None => paragraph("Models by least mean squares are stored only with `--models FILE`.", out),
    }
}

fn metrics(report: &CoRunsReport, out: &mut impl Write) -> std::io::Result<()> {
    let verdict = |it: &Verdict| match (it.qualifies, it.is_circular, it.correlation) {
        (true, true, _) => "qualifies, circular",
        (true, false, _) => "qualifies",
        (false, _, None) => "n/a",
        (false, true, _) => "no, circular",
        (false, false, _) => "no",
    };
    let row = |it: &Verdict| {
        let mark = if it.name == report.metric.name { "*" } else { "" };
        let variance = it.variance.map_or_else(|| "n/a".to_owned(), |variance| format!("{variance:.5}"));
        vec![format!("{}{mark}", it.name), variance, known(it.correlation, 3), verdict(it).to_owned()]
    };
    let columns = [("metric", Align::Left), ("variance", Align::Right), ("r", Align::Right), ("result", Align::Left)];
    writeln!(out)?;
    write!(out, "{}", format::table(&columns, &report.metrics.iter().map(row).collect::<Vec<_>>()))?;
    let rule = format!(
        "A metric qualifies if its variance beside competitors is at most {VARIANCE} and its |r| with the rate alone \
         is at least {CORRELATION}, over at least {FUNCTIONS} functions."
    );
    let chosen = match report.metric.choice {
        Choice::Qualifies => "* is the strongest one that qualifies.",
        Choice::Circular => "* contains the rate, like all metrics that qualify.",
        Choice::None => "No metric qualifies: * marks a metric that is known for all functions.",
    };
    paragraph(&format!("{rule} {chosen}"), out)?;
    // Missing metrics are grouped by reason.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for verdict in &report.metrics {
        let Some(why) = verdict.why.as_deref() else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(verdict.name),
            None => reasons.push((why, vec![verdict.name])),
        }
    }
    for (why, names) in reasons {
        paragraph(&format!("n/a: {}: {why}.", names.join(", ")), out)?;
    }
    writeln!(out)
}

fn functions(report: &CoRunsReport, out: &mut impl Write) -> std::io::Result<()> {
    if report.functions.is_empty() {
        return Ok(());
    }
    let rows = report.functions.values().map(|it| {
        let name = &it.name;
        let is_short = name.chars().count() <= NAME;
        vec![
            if is_short { name.clone() } else { name.chars().take(NAME - 1).chain(['…']).collect() },
            short(it.rate_pps),
            format!("{}{}", known(it.trial.strongest, 3), if it.trial.is_above_noise { "" } else { "?" }),
            format!("{:.3}", it.trial.noise),
            format!("{:.3}", it.cache),
            format!("{:.3}", it.memory),
            format!("{:.3}", it.constant),
            it.half.map_or_else(|| "-".to_owned(), |half| format!("{half:.2}")),
            known(it.interval_95, 3),
        ]
    });
    let columns = [
        ("function", Align::Left),
        ("alone/s", Align::Right),
        ("drop", Align::Right),
        ("noise", Align::Right),
        ("α", Align::Right),
        ("β", Align::Right),
        ("C", Align::Right),
        ("h", Align::Right),
        ("±95 %", Align::Right),
    ];
    write!(out, "{}", format::table(&columns, &rows.collect::<Vec<_>>()))?;
    let is_lost = report.functions.values().any(|it| !it.trial.is_above_noise);
    let lost = if is_lost { " ?: not above twice the noise." } else { "" };
    let legend = "drop: the share of the rate alone that the strongest synthetic competitor takes; noise: one standard \
                deviation of such a share. The model is α f(cache) + β f(memory) + C; with h each f is f (1 + h) / (f \
                + h).";
    paragraph(&format!("{legend}{lost}"), out)
}

fn paragraph(text: &str, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "{}", wrapped(text, 0, WIDTH))
}

/// Formats the size of a cache.
fn bytes(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}
