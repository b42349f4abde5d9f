//! The section on flows that cannot share a worker.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table, engineering};

use crate::batching::watch::Moment;
use crate::batching::{Decomposed, Side};
use crate::blocks::{columns, figure, known, text};

const WHAT: &str = "A mobile gateway of eight users with two bearers, whose branches are not folded: the bearers that \
                    are to be separated differ and would not fold with each other. Two users have the first bearer, \
                    with an objective of 1 ms for 99 % of their packets. The other users have the second bearer, \
                    without an objective. On the second bearer each direction takes 250 000 cycles per call and \
                    50 000 per packet. All sources send as many packets as the pipeline accepts, as in the paper (Fig. \
                    10). With one worker the objective cannot be kept. With two workers, the controller moves the slow \
                    modules to the second worker as soon as three successive periods have shown that this is \
                    necessary. The second worker cannot process all packets that the first worker hands over. Packets \
                    for which the ring between the workers has no room are dropped, and the packets of the first users \
                    do not wait for them.";

/// Returns the section.
pub(super) fn section(all: &[Decomposed]) -> Result<Section, PlotError> {
    let mut blocks = vec![
        text(WHAT),
        figure(&delays(all), "The first user's 99th percentile, reported up to 1/16 too high.")?,
        figure(&rates(all), "")?,
        Block::Table(table(all)),
    ];
    if let Some((before, after)) = all.iter().find_map(|run| run.before.as_ref().zip(run.after.as_ref())) {
        blocks.push(text(&format!(
            "After flows have been moved apart, {:.1} times as many packets leave as before: {:.1} times as many of \
             flows with an objective, and {:.1} times as many of the other flows.",
            after.rate_pps / before.rate_pps,
            (after.rate_pps - after.bulk_pps) / (before.rate_pps - before.bulk_pps),
            after.bulk_pps / before.bulk_pps
        )));
    }
    Ok(Section { title: "Flows that cannot share a worker".to_owned(), blocks })
}

fn workers(run: &Decomposed) -> String {
    if run.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", run.workers) }
}

fn delays(all: &[Decomposed]) -> Figure {
    let empty = Figure::new(
        "Delay, with one worker and with two",
        Axis::new("time, s").from_zero(),
        Axis::new("delay, µs").log(),
    );
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
    let y = Axis::new("million packets per second").log();
    let rate = |moment: &Moment| (moment.rate_pps > 0.0).then_some(moment.rate_pps / 1e6);
    let line = |run: &Decomposed| Layer::Steps {
        name: workers(run),
        points: run.moments.iter().filter_map(|moment| Some((moment.at_s, rate(moment)?))).collect(),
    };
    let empty = Figure::new("Packets per second, with one worker and with two", Axis::new("time, s").from_zero(), y);
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
        before.into_iter().chain(run.after.as_ref().map(|side| row(run, ", after", side, true)))
    });
    // The values of the paper's figure. The rate of all packets and the periods until the move are from the paper's
    // text.
    let papers = [
        ["paper, before", "all", "4 000", "-", "-", "-", "-", "-", "-", "-"],
        ["paper, after", "none", "under 1 000", "-", "-", "over 10 times that", "20", "-", "-", "-"],
    ];
    let papers = papers.map(|cells| cells.map(str::to_owned).to_vec());
    let heads = [
        "",
        "periods violated",
        "99 %, median, µs",
        "packets per second with an objective",
        "without one",
        "all",
        "periods until flows were moved apart",
        "from then until the last violated",
        "pause, µs",
        "dropped in total",
    ];
    Table { caption: String::new(), columns: columns(&heads), rows: rows.chain(papers).collect() }
}
