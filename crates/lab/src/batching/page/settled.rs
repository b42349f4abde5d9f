//! The sections on the static experiment: a table and a figure for each use case.

use forebay_plot::{Axis, Bars, Block, Figure, Group, Layer, PlotError, Section, Table, engineering};

use crate::batching::BatchingResults;
use crate::batching::interval::Ratio;
use crate::batching::settled::Row;
use crate::blocks::{bars, columns, figure, known, text};

/// Returns a section on the procedure, then a section for each use case.
pub(super) fn sections(results: &BatchingResults) -> Result<Vec<Section>, PlotError> {
    let rows = &results.rows;
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.usecase.as_str()) {
            names.push(&row.usecase);
        }
    }
    let own = |name: &&str| section(name, &rows.iter().filter(|row| row.usecase == *name).collect::<Vec<_>>());
    std::iter::once(Ok(rule(results))).chain(names.iter().map(own)).collect()
}

/// Returns the section on the procedure.
fn rule(results: &BatchingResults) -> Section {
    let clock = if results.simulated {
        "from one run, which is enough in simulated time"
    } else {
        "the median of three runs that are not void"
    };
    let how = format!(
        "Sources send as many packets as the pipeline accepts, and sessions use the branches in turn, packet by \
         packet. The objective of each pipeline, folded or not, is 80 % of the mean delay of the controller max here \
         with unfolded branches, {clock}. The first ten decisions of a run do not count; then {} periods count, in \
         each of {} runs. The controller static uses the constant that carries the most packets while it misses \
         objectives in at most 5 % of the periods of a run. This constant is found by trying some constants, and then \
         others around the best one. The controller oracle has the best known triggers and does not have to learn \
         them. These triggers do not change. They are found in the same way, among all constants and, for unfolded \
         branches, multiples of the triggers to which optimal converges. If no triggers keep the objective, there is \
         no row for oracle. Controllers run in turn, and the rate of each run is divided by that of its partner under \
         null, optimal and on-off. Pairs with a void run are left out.",
        results.periods, results.runs
    );
    Section { title: "Steady traffic: how runs are made".to_owned(), blocks: vec![text(&how)] }
}

/// Returns the section on the grid: a table with a row for each use case and a column for each controller.
pub(super) fn grid(rows: &[Row]) -> Section {
    let mut names: Vec<&str> = rows.iter().map(|row| row.usecase.as_str()).collect();
    names.dedup();
    let found =
        |name: &str, controller: &str| rows.iter().find(|row| row.usecase == name && row.controller == controller);
    let cell = |row: Option<&Row>| {
        row.map_or("n/a".to_owned(), |row| {
            let marks = [(row.summary.violations_pct > KEPT, " *"), (row.summary.void, " void")];
            let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
            format!("{} / {:.1}{marks}", engineering(row.summary.rate_pps), row.summary.batch_mean)
        })
    };
    let line = |name: &&str| {
        let mut cells = vec![(*name).to_owned()];
        cells.extend(GRID.iter().map(|controller| cell(found(name, controller))));
        cells.push(ratio_text(found(name, "optimal").and_then(|row| row.to_null.as_ref())));
        cells.push(ratio_text(found(name, "gradient").and_then(|row| row.to_null.as_ref())));
        cells
    };
    let heads: Vec<_> =
        ["use case"].iter().chain(GRID).chain(&["optimal of null", "gradient of null"]).copied().collect();
    let table = Table {
        caption: "Packets per second / packets per call".to_owned(),
        columns: columns(&heads),
        rows: names.iter().map(line).collect(),
    };
    let how = "Every size of the paper's Table 2, with unfolded branches. The procedure is that of the runs above, \
               with fewer runs each. If a name begins with *, packets have the order of sessions and the lengths of a \
               capture (the paper's *L2L3), and come as fast as the pipeline accepts them. *: objectives were missed \
               in more than 5 % of the periods. grid.csv contains all figures.";
    Section { title: "Steady traffic: every size".to_owned(), blocks: vec![text(how), Block::Table(table)] }
}

/// The controllers that have a column in the grid.
const GRID: &[&str] = &["null", "max", "on-off", "gradient", "optimal", "nfvnice"];

/// Returns the section of a use case.
fn section(name: &str, rows: &[&Row]) -> Result<Section, PlotError> {
    let of = |fold: bool| rows.iter().copied().filter(|row| row.fold == fold).collect::<Vec<_>>();
    let (unfolded, folded) = (of(false), of(true));
    let mut blocks = vec![bars(&drawn(name, &unfolded, &folded), MISSED)?];
    blocks.push(Block::Table(table("Unfolded branches", &unfolded)));
    if folded.is_empty() {
        blocks.push(text("There are no folded runs, because the function of its branches cannot be folded."));
    } else {
        blocks.push(Block::Table(table("Folded branches (equal branches run as one)", &folded)));
        blocks.push(text(
            "Under wfq and nfvnice nothing is folded: weighted-fair gives each module its own share of time.",
        ));
    }
    let controlled =
        |row: &&&Row| matches!(row.controller.as_str(), "on-off" | "gradient" | "optimal") && !row.worst.is_empty();
    let layers: Vec<_> = of(false).iter().filter(controlled).map(|row| distribution(row)).collect();
    if !layers.is_empty() {
        let (x, y) =
            (Axis::new("percentile of the worst flow, as a multiple of its objective"), Axis::new("share of periods"));
        let title = format!("Distance from objectives: {name}");
        let empty = Figure::new(&title, x, y.between(0.0, 1.0));
        let all =
            layers.into_iter().fold(empty, Figure::with).with(Layer::Event { name: "objective".to_owned(), x: 1.0 });
        blocks.push(figure(
            &all,
            "Objectives were missed at the right of the line. Percentiles are reported up to 1/16 too high.",
        )?);
    }
    Ok(Section { title: format!("Steady traffic: {name}"), blocks })
}

/// The largest share of periods, in percent, in which the best constant may miss objectives.
const KEPT: f64 = 5.0;
/// The caption of the figure of rates.
const MISSED: &str =
    "*: objectives were missed in more than 5 % of the periods, with unfolded branches; (*): with folded branches.";

/// Draws the rates of all controllers, unfolded and folded.
fn drawn(name: &str, unfolded: &[&Row], folded: &[&Row]) -> Bars {
    // A controller under which no branches are folded has no folded bar.
    let of = |rows: &[&Row], name: &str| {
        rows.iter().find(|row| row.controller == name).map(|row| row.summary.rate_pps / 1e6)
    };
    let mut places: Vec<String> = unfolded.iter().map(|row| row.controller.clone()).collect();
    let more = folded.iter().map(|row| &row.controller).filter(|controller| !places.contains(controller));
    places.extend(more.cloned().collect::<Vec<_>>());
    let is_void = |rows: &[&Row], name: &str| rows.iter().any(|row| row.controller == name && row.summary.void);
    let group = |name: &str, rows: &[&Row]| Group {
        name: name.to_owned(),
        values: places.iter().map(|controller| of(rows, controller)).collect(),
        void: places.iter().map(|controller| is_void(rows, controller)).collect(),
    };
    let mut groups = vec![group("unfolded", unfolded)];
    groups.extend((!folded.is_empty()).then(|| group("folded", folded)));
    let missed =
        |rows: &[&Row], name: &str| rows.iter().any(|row| row.controller == name && row.summary.violations_pct > KEPT);
    let marked = |name: &String| {
        let marks = [(missed(unfolded, name), " *"), (missed(folded, name), " (*)")];
        let marks: String = marks.iter().filter(|(missed, _)| *missed).map(|(_, mark)| *mark).collect();
        format!("{name}{marks}")
    };
    let places = places.iter().map(marked).collect();
    Bars {
        title: format!("Packets per second: {name}"),
        label: "million packets per second".to_owned(),
        places,
        groups,
        stacked: false,
        reference: None,
    }
}

/// Draws the distribution of the worst flow over periods. [`Row::worst`] has evenly spaced quantiles.
fn distribution(row: &Row) -> Layer {
    let last = row.worst.len().saturating_sub(1).max(1) as f64;
    let points = row.worst.iter().enumerate().map(|(index, worst)| (*worst, index as f64 / last)).collect();
    Layer::Steps { name: row.controller.clone(), points }
}

/// Formats a ratio with its interval, if it has one.
pub(super) fn ratio_text(ratio: Option<&Ratio>) -> String {
    let Some(ratio) = ratio else { return "n/a".to_owned() };
    let ends = ratio.interval.map(|(low, high)| format!(" ({low:.2}–{high:.2})"));
    format!("{:.2}{}", ratio.median, ends.unwrap_or_default())
}

fn table(caption: &str, rows: &[&Row]) -> Table {
    let cells = |row: &&Row| {
        let name = match (row.trigger, row.nearest) {
            (Some(trigger), _) => format!("{} {trigger}", row.controller),
            (None, Some(nearest)) => {
                format!("{}: no constant keeps the objective; {nearest} misses it least", row.controller)
            }
            (None, None) if row.controller == "static" => "static: all tried runs are void".to_owned(),
            (None, None) => match row.multiple {
                Some(multiple) => format!("{}: {multiple} × optimal's", row.controller),
                None => row.controller.clone(),
            },
        };
        vec![
            if row.summary.void { format!("{name}, void") } else { name },
            format!("{:.1}\u{a0}%", row.summary.violations_pct),
            known(row.summary.slo_us, 1),
            known(row.summary.delay_us.p95, 1),
            known(row.summary.delay_us.p99, 1),
            known(row.summary.delay_us.mean, 1),
            engineering(row.summary.rate_pps),
            ratio_text(row.to_null.as_ref()),
            ratio_text(row.to_optimal.as_ref()),
            ratio_text(row.to_on_off.as_ref()),
            format!("{:.1}", row.summary.batch_mean),
            known(row.batch_of_max.map(|part| part * 100.0), 0),
            format!("{:.1}", row.summary.ticks_per_packet),
            row.summary.periods.to_string(),
            format!("{:.1}\u{a0}%", row.summary.void_pct),
            format!("{} of {}", row.summary.void_runs, row.runs),
        ]
    };
    Table {
        caption: caption.to_owned(),
        columns: columns(&[
            "controller",
            "violated",
            "objective, µs",
            "95 %, µs",
            "99 %, µs",
            "mean, µs",
            "packets per second",
            "of null",
            "of optimal",
            "of on-off",
            "packets per call",
            "% of max",
            "ticks per packet",
            "periods",
            "stalled",
            "void runs",
        ]),
        rows: rows.iter().map(cells).collect(),
    }
}
