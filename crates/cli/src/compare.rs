//! `forebay compare`: compares the cost of a packet in two builds or configurations.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use forebay_bench::compare::{self, Comparison, ComparisonProgress, Part, Verdict};
use forebay_bench::measurement::Measurement;
use forebay_bench::process::MeasuredBuild;
use forebay_bench::saved::MeasurementStore;
use serde_json::json;

use crate::format::{Align, known, table};
use crate::lost_lines::report_lost_lines;
use crate::{Answer, args, printed};

/// The measuring time of a run. Figures differ more between processes than within one process. Therefore many short
/// runs give a better result than a few long ones.
const SPAN: Duration = Duration::from_millis(150);

/// Compares a saved measurement with another one or with this program. Returns `No` if a module costs more.
pub(crate) fn compare(arguments: &args::Compare) -> anyhow::Result<Answer> {
    let _temporary = crate::temporary::folder()?;
    let store = MeasurementStore::new(&arguments.store);
    let (first, program) = store.find(&arguments.name)?;
    let of = |program: PathBuf, arguments: Vec<String>| MeasuredBuild::new(program, arguments, SPAN);
    let before = of(program, first.subject.arguments());
    let (name, now) = match &arguments.other {
        Some(other) => {
            let (second, program) = store.find(other)?;
            (other.as_str(), of(program, second.subject.arguments()))
        }
        None => {
            let program = std::env::current_exe().context("this program's own file")?;
            ("this program", of(program, first.subject.arguments()))
        }
    };
    let mut sides = [before, now];
    let shown = io::stderr().is_terminal();
    let say = |line: &str| {
        if shown {
            // The next line overwrites this one. A closed terminal is ignored.
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
        }
    };
    say("counting instructions of both");
    let [a, b] = &mut sides;
    let counted = [a.count()?, b.count()?];
    let time = Duration::from_nanos(arguments.time.0);
    let compared = compare::compare(&mut sides, &counted, time, &mut |progress: ComparisonProgress| {
        let widest =
            progress.widest.map_or_else(String::new, |widest| format!(", known within {:.1} %", widest * 100.0));
        say(&format!("{} pairs of runs{widest}", progress.pairs));
    });
    say("");
    let names = [arguments.name.as_str(), name];
    // Modules may have failed to write lines of their logs in the runs that gave the figures below. Report this before
    // the figures.
    let lost = sides.map(|side| side.lost_lines);
    names.iter().zip(&lost).for_each(|(name, lost)| report_lost_lines(name, lost));
    let comparison = compared?;
    let answer = comparison.is_no_worse();
    if arguments.json {
        let mut all = json!({ "names": names, "cpu": counted[1].cpu, "comparison": comparison, "answer": answer });
        if lost.iter().any(|lost| !lost.is_empty()) {
            all["lost_lines"] = json!(lost);
        }
        writeln!(printed::out(), "{all}")?;
    } else {
        print(&comparison, names, &counted)?;
    }
    Ok(if answer { Answer::Yes } else { Answer::No })
}

fn print(comparison: &Comparison, names: [&str; 2], counted: &[Measurement; 2]) -> io::Result<()> {
    let mut out = printed::out();
    let pair = |[a, b]: [Option<f64>; 2]| [known(a, 1), known(b, 1)];
    let rows = comparison.parts.iter().map(|part| {
        let change = part.change.map_or_else(
            || "n/a".to_owned(),
            |change| format!("{:+.1} % ± {:.1}", change.middle * 100.0, change.reach() * 100.0),
        );
        let mut row = vec![part.name.clone()];
        row.extend(pair(part.cpp_ticks));
        row.push(change);
        row.extend(pair(part.ipp));
        row.extend(pair(part.packets_per_call));
        row.push(word(part).to_owned());
        row
    });
    let rows: Vec<_> = rows.collect();
    let right = Align::Right;
    let columns = [
        ("part", Align::Left),
        ("ticks", right),
        ("now", right),
        ("change", right),
        ("instructions", right),
        ("now", right),
        ("packets/call", right),
        ("now", right),
        ("", Align::Left),
    ];
    writeln!(out, "{} against {}, per packet on {}", names[1], names[0], counted[1].cpu.model)?;
    write!(out, "{}", table(&columns, &rows))?;
    for part in &comparison.parts {
        if let Some(why) = &part.why {
            writeln!(out, "{} is {}: {} ({})", part.name, word(part), cause(part, why), why.evidence)?;
        }
    }
    if let Some(why) = &comparison.less_busy {
        writeln!(out, "less busy: {}", why.evidence)?;
    }
    if comparison.parts.iter().all(|part| part.verdict == Verdict::Same) && comparison.less_busy.is_none() {
        writeln!(out, "{} pairs of runs show no change.", comparison.pairs)?;
    }
    writeln!(
        out,
        "{} pairs of runs in {:.0} s; {} void runs were repeated",
        comparison.pairs, comparison.seconds, comparison.voids
    )
}

/// Returns the verdict on a part's cost in words. The text is empty if the cost is the same. `docs/regressions.md`
/// quotes these texts.
fn word(part: &Part) -> &'static str {
    match part.verdict {
        Verdict::Increased => "slower",
        Verdict::Decreased => "faster",
        Verdict::MoreInstructions => "more instructions",
        Verdict::FewerInstructions => "fewer instructions",
        Verdict::Same => "",
        Verdict::Gone => "removed",
        Verdict::Appeared => "new",
    }
}

fn cause(part: &Part, why: &compare::Why) -> &'static str {
    let less = part.verdict == Verdict::Decreased;
    match (why.cause, less) {
        (compare::Cause::Code, false) => "more instructions",
        (compare::Cause::Code, true) => "fewer instructions",
        (compare::Cause::Memory, false) => "more ticks per instruction: memory or branches",
        (compare::Cause::Memory, true) => "fewer ticks per instruction: memory or branches",
        (compare::Cause::Batches, false) => "smaller batches",
        (compare::Cause::Batches, true) => "larger batches",
        (compare::Cause::LessBusy, _) => "less busy",
        (compare::Cause::Unknown, _) => "unknown",
    }
}
