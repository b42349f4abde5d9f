//! Flows that cannot be together on a worker.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table, engineering};

use crate::batching::watch::Moment;
use crate::batching::{Decomposed, Side};
use crate::blocks::{columns, figure, known, text};

const WHAT: &str = "A mobile gateway of eight users with two bearers, whose branches run as they are written: the \
    bearers that are to part differ, and would not fold with each other. Two users have the first bearer, with an objective of 1 ms \
    for 99 % of their packets; the others have the second one, without an objective, and there each direction takes \
    250 000 cycles a call and 50 000 a packet. All sources give as many packets as are taken, as in the paper (Fig. \
    10). With one worker nothing can be done about it. With two, the slow modules go to the second worker as soon as \
    three periods in a row have shown that they must. The second worker cannot do all packets that the first one \
    hands it: those for which the ring between them has no room are dropped, and the first users' packets do not \
    wait for them.";

/// The section's text.
pub(super) fn section(all: &[Decomposed]) -> Result<Section, PlotError> {
    let mut blocks = vec![
        text(WHAT),
        figure(&delays(all), "The first user's 99th percentile, told up to 1/16 too high.")?,
        figure(&rates(all), "")?,
        Block::Table(table(all)),
    ];
    if let Some((before, after)) = all.iter().find_map(|run| run.before.as_ref().zip(run.after.as_ref())) {
        blocks.push(text(&format!(
            "Once flows have parted {:.1} times the packets of before leave: {:.1} times those of flows with an \
             objective, and {:.1} times those of the others.",
            after.rate_pps / before.rate_pps,
            (after.rate_pps - after.bulk_pps) / (before.rate_pps - before.bulk_pps),
            after.bulk_pps / before.bulk_pps
        )));
    }
    Ok(Section { title: "Flows that cannot be together".to_owned(), blocks })
}

fn workers(run: &Decomposed) -> String {
    if run.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", run.workers) }
}

fn delays(all: &[Decomposed]) -> Figure {
    let empty = Figure::new("Delay, parted and not", Axis::new("time, s").from_zero(), Axis::new("delay, µs").log());
    let objective = all.iter().flat_map(|run| run.moments.iter());
    let objective = objective.filter_map(|moment| Some((moment.at_s, moment.slo_us?))).collect();
    let line = |run: &Decomposed| Layer::Line {
        name: workers(run),
        points: run.moments.iter().filter_map(|moment| Some((moment.at_s, moment.delay_us?))).collect(),
    };
    let empty = empty.with(Layer::Steps { name: "objective".to_owned(), points: objective });
    let drawn = all.iter().map(line).fold(empty, Figure::with);
    let missed = all.iter().flat_map(|run| &run.moments).filter(|moment| moment.missed());
    let missed: Vec<_> = missed.filter_map(|moment| Some((moment.at_s, moment.delay_us?))).collect();
    if missed.is_empty() {
        return drawn;
    }
    drawn.with(Layer::Points { name: "a period in which some flow missed its objective".to_owned(), points: missed })
}

fn rates(all: &[Decomposed]) -> Figure {
    let y = Axis::new("million packets a second").log();
    let seen = |moment: &Moment| (moment.rate_pps > 0.0).then_some(moment.rate_pps / 1e6);
    let line = |run: &Decomposed| Layer::Steps {
        name: workers(run),
        points: run.moments.iter().filter_map(|moment| Some((moment.at_s, seen(moment)?))).collect(),
    };
    let empty = Figure::new("Packets a second, parted and not", Axis::new("time, s").from_zero(), y);
    all.iter().map(line).fold(empty, Figure::with)
}

fn table(all: &[Decomposed]) -> Table {
    let count = |count: Option<usize>| known(count.map(|count| count as f64), 0);
    let row = |run: &Decomposed, what: &str, side: &Side, parts: bool| {
        let void = if run.soundness.is_void() { ", void" } else { "" };
        let part = |known: String| if parts { known } else { "-".to_owned() };
        vec![
            format!("{}{what}{void}", workers(run)),
            format!("{} of {}", side.violated, side.periods),
            known(side.delay_us, 0),
            engineering(side.rate_pps - side.bulk_pps),
            engineering(side.bulk_pps),
            engineering(side.rate_pps),
            part(count(run.until_parted)),
            part(count(run.until_kept)),
            part(known(run.moves.first().map(|moved| moved.pause_us), 0)),
            part(engineering(run.dropped as f64)),
        ]
    };
    let rows = all.iter().flat_map(|run| {
        let what = if run.after.is_some() { ", before" } else { "" };
        let before = run.before.as_ref().map(|side| row(run, what, side, false));
        before.into_iter().chain(run.after.as_ref().map(|side| row(run, ", parted", side, true)))
    });
    // What the paper's figure shows, and its text says of the whole rate and of the move.
    let papers = [
        ["paper, before", "all", "4 000", "-", "-", "-", "-", "-", "-", "-"],
        ["paper, parted", "none", "under 1 000", "-", "-", "over 10 times that", "20", "-", "-", "-"],
    ];
    let papers = papers.map(|cells| cells.map(str::to_owned).to_vec());
    let heads = [
        "",
        "periods violated",
        "99 %, median, µs",
        "packets a second with an objective",
        "without one",
        "all",
        "periods until flows parted",
        "from then until the last violated",
        "pause, µs",
        "dropped in all",
    ];
    Table { caption: String::new(), columns: columns(&heads), rows: rows.chain(papers).collect() }
}
