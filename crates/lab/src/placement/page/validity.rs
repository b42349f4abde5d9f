//! The section on the simulator beside co-runs on this machine.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table};

use crate::blocks::{columns, figure, known, text};
use crate::placement::{Pair, Validity};

/// Returns the section.
pub(super) fn section(of: &Validity) -> Result<Section, PlotError> {
    let title = "The simulator beside this machine".to_owned();
    if let Some(why) = &of.not_run {
        let blocks = vec![Block::Note(format!("No co-runs were made on this machine: {why}."))];
        return Ok(Section { title, blocks });
    }
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let significant: Vec<&Pair> = of.rows.iter().filter(|pair| pair.is_significant()).collect();
    let agree = significant.iter().filter(|pair| pair.agrees()).count();
    let verdict = if of.rows.iter().all(|pair| pair.rounds[0] == 0) {
        "All rounds are void: n/a.".to_owned()
    } else if significant.is_empty() {
        "No effect is above twice the noise: n/a.".to_owned()
    } else {
        format!(
            "In {agree} of {} pairs whose effect is above twice the noise, the simulator is within the interval or \
             within a fifth of the measured λ.",
            significant.len()
        )
    };
    let mut blocks = vec![text(&format!(
        "Two threads on cores {} read memory at random, four reads at a time. The simulator has this machine's cache \
         sizes ({} and {}, of which {} were measured to be usable by the first thread alone) and three latencies of \
         that thread alone: {:.2} ns per read in its own cache, {:.2} ns more in the shared cache, and {:.2} ns more \
         beyond it. It has no data of the co-runs. A round is a span alone, a span beside the other thread, and a span \
         alone. It is void if another program had a core for more than 1 % of a span. {verdict}",
        of.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(" and "),
        megabytes(of.caches[0]),
        megabytes(of.caches[1]),
        megabytes(of.usable),
        of.ns[0],
        of.ns[1],
        of.ns[2],
    ))];
    let points = |pairs: &[&Pair]| -> Vec<(f64, f64)> {
        pairs.iter().filter_map(|pair| Some((pair.simulated.max(0.0), pair.measured?.max(0.0)))).collect()
    };
    let others: Vec<_> = of.rows.iter().filter(|pair| !pair.is_significant()).collect();
    let (significant, others) = (points(&significant), points(&others));
    if !significant.is_empty() || !others.is_empty() {
        let most = significant.iter().chain(&others).flat_map(|point| [point.0, point.1]).fold(0.1, f64::max);
        let mut drawn = Figure::new(
            "λ, simulated and measured",
            Axis::new("simulated").from_zero(),
            Axis::new("measured").from_zero(),
        );
        for (name, points) in [("above twice the noise", significant), ("within the noise", others)] {
            if !points.is_empty() {
                drawn = drawn.with(Layer::Points { name: name.to_owned(), points });
            }
        }
        let to = (most, most);
        drawn = drawn.with(Layer::Reference { name: "equal".to_owned(), from: (0.0, 0.0), to });
        blocks.push(figure(&drawn, "Each point is a pair of footprints.")?);
    }
    let row = |pair: &Pair| {
        let interval = pair.interval.map_or_else(|| "n/a".to_owned(), |[low, high]| format!("{low:.3} to {high:.3}"));
        vec![
            format!("{} beside {}", megabytes(pair.bytes), megabytes(pair.competitor_bytes)),
            known(pair.measured, 3),
            interval,
            known(pair.noise, 3),
            known(Some(pair.simulated), 3),
            format!("{} ({} void)", pair.rounds[0], pair.rounds[1]),
            if pair.is_significant() { "yes" } else { "n/a" }.to_owned(),
        ]
    };
    blocks.push(Block::Table(Table {
        caption: "λ of the first thread; above noise: above twice the noise".to_owned(),
        columns: columns(&["pair", "measured", "95 % interval", "noise", "simulated", "rounds", "above noise"]),
        rows: of.rows.iter().map(row).collect(),
    }));
    Ok(Section { title, blocks })
}
