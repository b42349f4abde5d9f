//! `forebay measure handover`: the cost of handing packets and cache lines from one core to another.

use std::io::{self, IsTerminal, Write};

use anyhow::bail;
use forebay_bench::handover::{self, Spread};
use forebay_measure::machine::allowed_cores;

use crate::format::{Align, known};
use crate::{args, format, printed};

/// Measures, and prints the results.
pub(crate) fn handover(arguments: &args::Handover) -> anyhow::Result<()> {
    let mut cores = arguments.cores.clone();
    cores.sort_unstable();
    cores.dedup();
    if !arguments.cores.is_empty() && cores.len() < 2 {
        bail!("--cores: a hand-over needs two cores; name two or more, such as 0,1");
    }
    let pairs = match cores.is_empty() {
        true => handover::pairs(&allowed_cores(), false),
        false => handover::pairs(&cores, true),
    };
    let shown = io::stderr().is_terminal();
    let mut progress = |done: usize, all: usize| {
        if shown {
            let end = if done == all { "\r\x1b[K" } else { "" };
            let _ = io::stderr().write_all(format!("\r{done} of {all} measured{end}").as_bytes());
        }
    };
    let measured = handover::measure(&pairs, arguments.repeats.into(), &mut progress)?;
    let mut out = printed::out();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&measured)?)?;
        return Ok(());
    }
    let measured_rows = measured.rows();
    let na = || "n/a".to_owned();
    let rows = measured_rows.iter().map(|row| {
        let ticks = row.ticks.as_ref();
        vec![
            row.cores.clone(),
            row.relation.to_owned(),
            row.what.clone(),
            ticks.map_or_else(na, |spread| format!("{:.1}", spread.median)),
            ticks.map_or_else(na, |spread| format!("{:.1} to {:.1}", spread.quartiles[0], spread.quartiles[1])),
            known(row.paper, 0),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let columns = [
        ("cores", Align::Left),
        ("relation", Align::Left),
        ("what", Align::Left),
        ("ticks", Align::Right),
        ("quartiles", Align::Right),
        ("NALM, cycles", Align::Right),
    ];
    write!(out, "{}", format::table(&columns, &rows))?;
    if measured.pairs.is_empty() {
        writeln!(out, "This process may use only one core, so hand-over between cores is n/a.")?;
    }
    if measured_rows.iter().filter_map(|row| row.ticks.as_ref()).any(Spread::is_unsteady) {
        writeln!(
            out,
            "The runs of a row differ too much: its third quartile is more than 1.5 times its first. Another program \
             used the cores, or the host of a virtual machine moved its virtual cores to other physical cores. Repeat \
             the measurement on a quiet machine (`forebay doctor` finds disturbances)."
        )?;
    }
    writeln!(
        out,
        "Measured on {}, {} ticks per nanosecond, {} runs.",
        measured.cpu.model, measured.cpu.tsc_ghz, arguments.repeats
    )?;
    Ok(())
}
