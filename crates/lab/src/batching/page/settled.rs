//! The static experiment: a table and a figure for each use case.

use forebay_plot::{Axis, Bars, Block, Figure, Group, Layer, PlotError, Section, Table, engineering};

use crate::batching::Results;
use crate::batching::interval::Ratio;
use crate::batching::settled::Row;
use crate::blocks::{bars, columns, figure, known, text};

/// How all of them are made, and a section for each use case.
pub(super) fn sections(results: &Results) -> Result<Vec<Section>, PlotError> {
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

/// How they are made.
fn rule(results: &Results) -> Section {
    let clock = if results.simulated {
        "of one run, as one says it all in simulated time"
    } else {
        "the median of three runs that are not void"
    };
    let how = format!(
        "Sources give as many packets as are taken, and sessions take branches in turn, packet by packet. The objective of each \
         pipeline, folded or not, is 80 % of the mean delay that the controller max has here with branches as they are written, {clock}. \
         The first ten decisions of a run do not count; then {} periods do, in each of {} runs. The constant of static is the one that \
         carries most of those that miss objectives in at most 5 % of the periods of a run, found by trying some, and then others around the \
         best. oracle is the best that is known, and nothing has to be learnt for it: triggers that stay, found in the same way among multiples of those at \
         which optimal comes to rest, where branches are as they are written, and all constants; where none keeps the objective \
         there is no such row. Controllers run in turn, and each run's rate is divided by that of its partner under null, optimal and on-off; pairs of \
         which either run is void are left out.",
        results.periods, results.runs
    );
    Section { title: "Steady traffic: how runs are made".to_owned(), blocks: vec![text(&how)] }
}

/// The grid: a table with a row for each use case, and a column for each controller.
pub(super) fn grid(rows: &[Row]) -> Section {
    let mut names: Vec<&str> = rows.iter().map(|row| row.usecase.as_str()).collect();
    names.dedup();
    let found =
        |name: &str, controller: &str| rows.iter().find(|row| row.usecase == name && row.controller == controller);
    let cell = |row: Option<&Row>| {
        row.map_or("n/a".to_owned(), |row| {
            let marks = [(row.told.violations_pct > KEPT, " *"), (row.told.void, " void")];
            let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
            format!("{} / {:.1}{marks}", engineering(row.told.rate_pps), row.told.batch_mean)
        })
    };
    let line = |name: &&str| {
        let mut cells = vec![(*name).to_owned()];
        cells.extend(GRID.iter().map(|controller| cell(found(name, controller))));
        cells.push(told(found(name, "optimal").and_then(|row| row.to_null.as_ref())));
        cells.push(told(found(name, "gradient").and_then(|row| row.to_null.as_ref())));
        cells
    };
    let heads: Vec<_> =
        ["use case"].iter().chain(GRID).chain(&["optimal of null", "gradient of null"]).copied().collect();
    let table = Table {
        caption: "Packets a second / packets a call".to_owned(),
        columns: columns(&heads),
        rows: names.iter().map(line).collect(),
    };
    let how = "Every size of the paper's Table 2, with branches as they are written; made as the runs above, from fewer runs each. Where a \
               name begins with *, packets come in the order of sessions and with the lengths of a capture (the paper's *L2L3), as many as are \
               taken. *: objectives were missed in more than 5 % of the periods. grid.csv has all figures.";
    Section { title: "Steady traffic: every size".to_owned(), blocks: vec![text(how), Block::Table(table)] }
}

/// Controllers that have a column in the grid.
const GRID: &[&str] = &["null", "max", "on-off", "gradient", "optimal", "nfvnice"];

fn section(name: &str, rows: &[&Row]) -> Result<Section, PlotError> {
    let of = |fold: bool| rows.iter().copied().filter(|row| row.fold == fold).collect::<Vec<_>>();
    let (apart, folded) = (of(false), of(true));
    let mut blocks = vec![bars(&drawn(name, &apart, &folded), MISSED)?];
    blocks.push(Block::Table(table("Branches as they are written", &apart)));
    if folded.is_empty() {
        blocks.push(text(
            "Nothing of it folds: its branches are of a function that cannot, and there are no folded runs.",
        ));
    } else {
        blocks.push(Block::Table(table("Equal branches run as one", &folded)));
        blocks
            .push(text("Under wfq and nfvnice nothing folds: weighted-fair gives each module its own share of time."));
    }
    let controlled =
        |row: &&&Row| matches!(row.controller.as_str(), "on-off" | "gradient" | "optimal") && !row.worst.is_empty();
    let layers: Vec<_> = of(false).iter().filter(controlled).map(|row| distribution(row)).collect();
    if !layers.is_empty() {
        let (x, y) = (Axis::new("the worst flow's percentile, parts of its objective"), Axis::new("share of periods"));
        let title = format!("How near objectives are: {name}");
        let empty = Figure::new(&title, x, y.between(0.0, 1.0));
        let all =
            layers.into_iter().fold(empty, Figure::with).with(Layer::Event { name: "objective".to_owned(), x: 1.0 });
        blocks
            .push(figure(&all, "Right of the line objectives were missed. Percentiles are told up to 1/16 too high.")?);
    }
    Ok(Section { title: format!("Steady traffic: {name}"), blocks })
}

/// The share of periods, in percent, in which the best constant may miss objectives.
const KEPT: f64 = 5.0;
const MISSED: &str =
    "*: objectives were missed in more than 5 % of the periods, with branches as they are written; (*): folded.";

fn drawn(name: &str, apart: &[&Row], folded: &[&Row]) -> Bars {
    // Controllers that fold nothing have no folded bar.
    let of =
        |rows: &[&Row], name: &str| rows.iter().find(|row| row.controller == name).map(|row| row.told.rate_pps / 1e6);
    let mut places: Vec<String> = apart.iter().map(|row| row.controller.clone()).collect();
    let more = folded.iter().map(|row| &row.controller).filter(|controller| !places.contains(controller));
    places.extend(more.cloned().collect::<Vec<_>>());
    let is_void = |rows: &[&Row], name: &str| rows.iter().any(|row| row.controller == name && row.told.void);
    let group = |name: &str, rows: &[&Row]| Group {
        name: name.to_owned(),
        values: places.iter().map(|controller| of(rows, controller)).collect(),
        void: places.iter().map(|controller| is_void(rows, controller)).collect(),
    };
    let mut groups = vec![group("as written", apart)];
    groups.extend((!folded.is_empty()).then(|| group("folded", folded)));
    let missed =
        |rows: &[&Row], name: &str| rows.iter().any(|row| row.controller == name && row.told.violations_pct > KEPT);
    let marked = |name: &String| {
        let marks = [(missed(apart, name), " *"), (missed(folded, name), " (*)")];
        let marks: String = marks.iter().filter(|(missed, _)| *missed).map(|(_, mark)| *mark).collect();
        format!("{name}{marks}")
    };
    let places = places.iter().map(marked).collect();
    Bars {
        title: format!("Packets a second: {name}"),
        label: "million packets a second".to_owned(),
        places,
        groups,
        stacked: false,
        reference: None,
    }
}

fn distribution(row: &Row) -> Layer {
    let last = row.worst.len().saturating_sub(1).max(1) as f64;
    let points = row.worst.iter().enumerate().map(|(place, worst)| (*worst, place as f64 / last)).collect();
    Layer::Steps { name: row.controller.clone(), points }
}

/// A ratio with its interval, where there is one.
pub(super) fn told(ratio: Option<&Ratio>) -> String {
    let Some(ratio) = ratio else { return "n/a".to_owned() };
    let ends = ratio.interval.map(|(low, high)| format!(" ({low:.2}–{high:.2})"));
    format!("{:.2}{}", ratio.median, ends.unwrap_or_default())
}

fn table(caption: &str, rows: &[&Row]) -> Table {
    let cells = |row: &&Row| {
        let name = match (row.trigger, row.nearest) {
            (Some(trigger), _) => format!("{} {trigger}", row.controller),
            (None, Some(nearest)) => format!("{}: none keeps it, {nearest} misses it least", row.controller),
            (None, None) if row.controller == "static" => "static: all that were tried are void".to_owned(),
            (None, None) => match row.multiple {
                Some(multiple) => format!("{}: {multiple} × optimal's", row.controller),
                None => row.controller.clone(),
            },
        };
        vec![
            if row.told.void { format!("{name}, void") } else { name },
            format!("{:.1}\u{a0}%", row.told.violations_pct),
            known(row.told.slo_us, 1),
            known(row.told.delay_us.p95, 1),
            known(row.told.delay_us.p99, 1),
            known(row.told.delay_us.mean, 1),
            engineering(row.told.rate_pps),
            told(row.to_null.as_ref()),
            told(row.to_optimal.as_ref()),
            told(row.to_on_off.as_ref()),
            format!("{:.1}", row.told.batch_mean),
            known(row.batch_of_max.map(|part| part * 100.0), 0),
            format!("{:.1}", row.told.ticks_per_packet),
            row.told.periods.to_string(),
            format!("{:.1}\u{a0}%", row.told.void_pct),
            format!("{} of {}", row.told.void_runs, row.runs),
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
            "packets a second",
            "of null",
            "of optimal",
            "of on-off",
            "packets a call",
            "% of max",
            "ticks a packet",
            "periods",
            "stalled",
            "void runs",
        ]),
        rows: rows.iter().map(cells).collect(),
    }
}
