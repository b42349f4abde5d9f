//! `forebay measure handover`: what packets and cache lines take from one core to another.

use std::io::{self, IsTerminal, Write};

use anyhow::bail;
use forebay_lean::handover::{self, Level, Pair, Spread};
use forebay_measure::machine::allowed_cores;

use crate::format::{Align, short};
use crate::{args, format, printed};

/// Measures, and prints.
pub(crate) fn handover(arguments: &args::Handover) -> anyhow::Result<()> {
    let mut cores = arguments.cores.clone();
    cores.sort_unstable();
    cores.dedup();
    if !arguments.cores.is_empty() && cores.len() < 2 {
        bail!("--cores: packets are handed from one core to another: name two or more, such as 0,1");
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
    let mut rows: Vec<_> = measured.pairs.iter().flat_map(of_pair).collect();
    for step in &measured.local {
        let name = if step.level == Level::Dram { "main memory".to_owned() } else { format!("{:?}", step.level) };
        let set = step.bytes.map_or_else(String::new, |bytes| format!(", {}B read in turn", short(bytes as f64)));
        let paper = if step.level == Level::Dram { "155" } else { "n/a" };
        rows.push(row(&step.core.to_string(), "own", &format!("line of {name}{set}"), step.ticks.as_ref(), paper));
    }
    let columns = [
        ("cores", Align::Left),
        ("nodes", Align::Left),
        ("what", Align::Left),
        ("ticks", Align::Right),
        ("quartiles", Align::Right),
        ("paper, cycles", Align::Right),
    ];
    write!(out, "{}", format::table(&columns, &rows))?;
    if measured.pairs.is_empty() {
        writeln!(out, "This process may use one core: what goes from core to core is n/a.")?;
    }
    writeln!(
        out,
        "Measured on {}, {} ticks a nanosecond, {} runs.",
        measured.cpu.model, measured.cpu.tsc_ghz, arguments.repeats
    )?;
    Ok(())
}

fn of_pair(pair: &Pair) -> Vec<Vec<String>> {
    let cores = format!("{} to {}", pair.cores[0], pair.cores[1]);
    let node = |node: Option<usize>| node.map_or_else(|| "n/a".to_owned(), |node| node.to_string());
    let nodes = format!("{}, {}", node(pair.nodes[0]), node(pair.nodes[1]));
    let remote = pair.relation == handover::Relation::OtherNode;
    let (clean, dirty) = if remote { ("98", "98") } else { ("50", "76") };
    let lines = [
        ("packet, of batches of 32 through a ring", &pair.packet, "n/a"),
        ("clean line: read here, then there", &pair.clean_line, clean),
        ("dirty line: written here, read and written there", &pair.dirty_line, dirty),
        ("one line there and back", &pair.round_trip, "n/a"),
        ("line of the first one's main memory", &pair.remote_memory, "280"),
    ];
    let told = lines.iter().filter(|(_, spread, _)| spread.is_some() || !remote);
    let told = told.filter(|(_, spread, paper)| spread.is_some() || *paper != "280");
    told.map(|(what, spread, paper)| row(&cores, &nodes, what, spread.as_ref(), paper)).collect()
}

fn row(cores: &str, nodes: &str, what: &str, spread: Option<&Spread>, paper: &str) -> Vec<String> {
    let na = || "n/a".to_owned();
    let ticks = spread.map_or_else(na, |spread| format!("{:.1}", spread.median));
    let quartiles =
        spread.map_or_else(na, |spread| format!("{:.1} to {:.1}", spread.quartiles[0], spread.quartiles[1]));
    vec![cores.to_owned(), nodes.to_owned(), what.to_owned(), ticks, quartiles, paper.to_owned()]
}
