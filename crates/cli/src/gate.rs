//! `forebay gate`: compares instructions per packet with a baseline, and shows which modules cost more and why.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use forebay_bench::baseline::Baseline;
use forebay_bench::cases::relative;
use forebay_bench::counting::Extent;
use forebay_bench::gate::{self, Finding, Gate, GateReport, GateVerdict};

use crate::format::{Align, counted, known};
use crate::source::origin;
use crate::{Answer, args, format, printed};

/// Figures that changed by at most the limit are named if there are at most this many. Otherwise only their number is
/// printed.
const NAMED: usize = 4;

/// Compares with the baseline or another build, or updates the baseline. Returns `No` if a module costs more than the
/// limit.
pub(crate) fn gate(arguments: &args::Gate) -> anyhow::Result<Answer> {
    let _temporary = crate::temporary::folder()?;
    let program = std::env::current_exe().context("this program's own file")?;
    let here = std::env::current_dir().context("the current folder")?;
    let folder = match arguments.baseline.as_deref().and_then(Path::parent) {
        Some(folder) => here.join(folder).canonicalize().with_context(|| folder.display().to_string())?,
        None => here,
    };
    let progress = progress();
    let gate = Gate { program: &program, folder: &folder, max_ipp: arguments.max_ipp, progress: &progress };
    let pipelines = pipelines(&arguments.pipelines, &folder)?;
    if let Some(other) = &arguments.against {
        let other = other.canonicalize().with_context(|| other.display().to_string())?;
        let report = gate.against(&other, &pipelines, &arguments.set).with_context(|| other.display().to_string())?;
        return print_report(arguments, &report);
    }
    let Some(path) = &arguments.baseline else { bail!("gate: --baseline FILE or --against PROGRAM is required") };
    let wrong = || path.display().to_string();
    let before = Baseline::read(path).with_context(wrong)?;
    if arguments.update {
        return update(arguments, &gate, path, before, &gate::requests_for(&pipelines, &arguments.set));
    }
    let before = before.ok_or_else(|| anyhow!("{}: the file does not exist: create it with --update", wrong()))?;
    let cases = gate::select(&before, &pipelines, &arguments.set).with_context(wrong)?;
    let (report, _) = gate.compare(&before, &cases).with_context(wrong)?;
    print_report(arguments, &report)
}

/// Writes the new counts into the baseline, and prints the changes. `more` are pipelines that are added.
fn update(
    arguments: &args::Gate,
    gate: &Gate<'_>,
    path: &Path,
    before: Option<Baseline>,
    more: &[forebay_bench::cases::CountRequest],
) -> anyhow::Result<Answer> {
    let requested = gate::updated(before.as_ref(), more);
    let extent = before.as_ref().map_or_else(Extent::default, |before| before.extent);
    let wrong = || path.display().to_string();
    let now = gate.baseline(gate.program, &requested, extent).with_context(wrong)?;
    now.write(path).with_context(wrong)?;
    let changed = gate::changes(before.as_ref(), &now, gate.max_ipp);
    let mut out = printed::out();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&changed)?)?;
        return Ok(Answer::Yes);
    }
    write!(out, "{}", table(changed.findings()))?;
    let modules: usize = changed.cases.iter().map(|case| case.parts).sum();
    let cases = counted(now.cases.len() as u64, "pipeline");
    let added = counted(changed.added.len() as u64, "pipeline");
    let gone = if changed.gone.is_empty() { String::new() } else { format!(", removed: {}", changed.gone.join(", ")) };
    writeln!(
        out,
        "{} has {cases}: {added} added{gone}; {} of {modules} figures changed",
        path.display(),
        changed.findings().count(),
    )?;
    Ok(Answer::Yes)
}

/// Returns the names of the pipelines, with files relative to the baseline's folder.
fn pipelines(named: &[String], folder: &Path) -> anyhow::Result<Vec<String>> {
    let one = |name: &String| {
        let built_in = forebay_pipeline::is_built_in(name) || gate::GROUPS.contains(&name.as_str());
        if built_in {
            return Ok(name.clone());
        }
        let Some(path) = origin(name) else { bail!("{name}: the pipeline is read several times: name a file") };
        let path = PathBuf::from(path);
        let whole = path.canonicalize().with_context(|| {
            format!("{name}: neither a file nor built in (`forebay list usecases`, `forebay list functions`)")
        })?;
        Ok(relative(&whole, folder).display().to_string())
    };
    named.iter().map(one).collect()
}

/// Returns a function that shows the number of counted pipelines on a terminal.
fn progress() -> impl Fn(usize, usize) {
    let shown = io::stderr().is_terminal();
    move |done, all| {
        if shown {
            let end = if done == all { "\r\x1b[K" } else { "" };
            let line = format!("\r{done} of {} counted{end}", counted(all as u64, "pipeline"));
            let _ = io::stderr().lock().write_all(line.as_bytes());
        }
    }
}

fn print_report(arguments: &args::Gate, report: &GateReport) -> anyhow::Result<Answer> {
    let exit = if report.is_yes() { Answer::Yes } else { Answer::No };
    let mut out = printed::out();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
        return Ok(exit);
    }
    write!(out, "{}", table(report.findings().filter(|(_, finding)| finding.verdict != GateVerdict::Within)))?;
    if let Some(note) = &report.note {
        writeln!(out, "note: {note}")?;
    }
    for (side, missing) in [("the other build does not have", &report.new), ("this build does not have", &report.gone)]
    {
        if !missing.is_empty() {
            writeln!(out, "note: {side} {}: not compared", missing.join(", "))?;
        }
    }
    let figures: usize = report.cases.iter().map(|case| case.parts).sum();
    let limit = format!("{} %", trimmed(report.max_ipp * 100.0));
    let of = format!("{} of {}", counted(figures as u64, "figure"), counted(report.cases.len() as u64, "pipeline"));
    let (within, cheaper) = (report.number(GateVerdict::Within), report.number(GateVerdict::Decreased));
    let less = report.findings().filter(|(_, finding)| finding.verdict == GateVerdict::Within);
    let less: Vec<_> = less.map(|(case, finding)| format!("{case} {}", finding.part)).collect();
    let within = match within {
        0 => String::new(),
        few @ ..=NAMED => format!(", {few} changed by less ({})", less.join(", ")),
        many => format!(", {many} changed by less (--json lists them)"),
    };
    if exit == Answer::No {
        let (increased, new) = (report.number(GateVerdict::Increased), report.number(GateVerdict::Appeared));
        let new =
            if new > 0 { format!(", {} not in the baseline", counted(new as u64, "module")) } else { String::new() };
        writeln!(out, "no: of {of}, {increased} grew by more than {limit}{new}{within}")?;
        if let Some(path) = arguments.baseline.as_ref() {
            writeln!(out, "If this is intended: forebay gate --baseline {} --update", path.display())?;
        }
    } else {
        writeln!(out, "yes: of {of}, none grew by more than {limit}{within}")?;
    }
    if cheaper > 0 && arguments.baseline.is_some() {
        writeln!(out, "{cheaper} shrank: --update lowers the baseline")?;
    }
    Ok(exit)
}

/// Formats findings as a table. The result is empty without findings.
fn table<'a>(findings: impl Iterator<Item = (&'a str, &'a Finding)>) -> String {
    let row = |(case, finding): (&str, &Finding)| {
        let change = match (finding.before, finding.now, finding.change) {
            (_, _, Some(change)) => format!("{:+.2} %", change * 100.0),
            (None, _, _) => "new".to_owned(),
            (_, None, _) => "removed".to_owned(),
            _ => "n/a".to_owned(),
        };
        let (before, now) = (known(finding.before, 2), known(finding.now, 2));
        vec![case.to_owned(), finding.part.clone(), before, now, change, why(finding)]
    };
    let rows: Vec<_> = findings.map(row).collect();
    let columns = [
        ("pipeline", Align::Left),
        ("module", Align::Left),
        ("before", Align::Right),
        ("now", Align::Right),
        ("change", Align::Right),
        ("why (instructions per packet)", Align::Left),
    ];
    if rows.is_empty() { String::new() } else { format::table(&columns, &rows) }
}

/// Formats the causes of a change.
fn why(finding: &Finding) -> String {
    let batches = match finding.packets_per_call {
        [Some(was), Some(is)] if (was - is).abs() > 5e-4 => format!(" ({was:.2} -> {is:.2} packets per call)"),
        _ => String::new(),
    };
    let causes = finding.why.iter().map(|why| {
        let batches =
            if matches!(why.cause, gate::GateCause::Batches | gate::GateCause::CodeOrBatches) { &batches } else { "" };
        format!("{} {:+.2}{batches}", why.cause.describe(why.ipp < 0.0), why.ipp)
    });
    let mut causes_text: Vec<_> = causes.collect();
    let mostly: Vec<_> = finding.mostly.iter().map(|(part, ipp)| format!("{part} {ipp:+.2}")).collect();
    if !mostly.is_empty() {
        causes_text.push(format!("mostly {}", mostly.join(" ")));
    }
    causes_text.join(", ")
}

/// Formats a percentage without trailing zeros.
fn trimmed(percent: f64) -> String {
    let text = format!("{percent:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
