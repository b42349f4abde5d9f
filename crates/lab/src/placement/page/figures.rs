//! The sections on Fig. 4, 5 and 7: metrics, drops and errors.

use forebay_plot::{Axis, Bars, Block, Figure, Group, Layer, PlotError, Reference, Section};

use super::FUNCTIONS;
use crate::blocks::{bars, figure, text};
use crate::placement::{Drops, PlacementResults, Predicted};

/// The paper's metric.
const STALL: &str = "stall_ticks_per_packet";

/// Returns the section on Fig. 4: the chosen metric and the paper's metric.
pub(super) fn metric(results: &PlacementResults) -> Result<Section, PlotError> {
    let chosen = results.models.as_ref().map_or(STALL, |models| models.metric);
    let mut blocks = vec![text(
        "The paper's Fig. 4 shows stall cycles per packet. They are nearly constant under competition, and nearly \
         linear in the solo rate. In the simulator they are not constant: a function that loses its share of the cache \
         waits longer for each packet. The table above shows the same for all candidates.",
    )];
    let mut shown = vec![STALL, "seconds_per_gigabyte"];
    if !shown.contains(&chosen) {
        shown.push(chosen);
    }
    for name in shown {
        let rows: Vec<_> = results.metric.iter().filter(|row| row.metric == name).collect();
        if rows.iter().any(|row| !row.by_competitors.is_empty()) {
            let mut by_count = Figure::new(
                &format!("{name} under competition"),
                Axis::new("copies of the synthetic function beside it").from_zero(),
                Axis::new("relative to the largest value").from_zero(),
            );
            for row in rows.iter().filter(|row| FUNCTIONS.contains(&row.function.as_str())) {
                let points = row.by_competitors.iter().enumerate().map(|(count, value)| (count as f64, *value));
                by_count = by_count.with(Layer::Line { name: row.function.clone(), points: points.collect() });
            }
            blocks.push(figure(
                &by_count,
                "Simulated. A horizontal line is a metric that characterises a function regardless of its competitors.",
            )?);
        }
        let points = rows.iter().map(|row| (row.alone, row.alone_pps / 1e6)).collect();
        let by_rate = Figure::new(
            &format!("{name} and the solo rate"),
            Axis::new(name).from_zero(),
            Axis::new("million packets per second alone").from_zero(),
        )
        .with(Layer::Points { name: "functions".to_owned(), points });
        blocks.push(figure(&by_rate, "Simulated; all eight functions.")?);
    }
    Ok(Section { title: "Metrics under competition and beside the rate (Fig. 4)".to_owned(), blocks })
}

/// Returns the section on Fig. 5.
pub(super) fn drops(drops: &[Drops]) -> Result<Section, PlotError> {
    let concave = |row: &&Drops| {
        let steps: Vec<_> = row.simulated.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let half = steps.len() / 2;
        let sum = |steps: &[f64]| steps.iter().sum::<f64>() / steps.len().max(1) as f64;
        sum(&steps[..half]) >= sum(&steps[half..])
    };
    let count = drops.iter().filter(concave).count();
    let mut blocks = vec![text(&format!(
        "The paper's property 1: a competitor with a lower metric causes a larger drop. Its property 2: each further \
         competitor adds less than the previous one. In {count} of {} rows of the simulator the first half of the \
         competitors adds more on average than the second half. In the other rows the cache has room for the first \
         ones.",
        drops.len()
    ))];
    for local in [true, false] {
        let side = if local { "local" } else { "remote" };
        let rows: Vec<_> = drops.iter().filter(|row| row.local == local).collect();
        let mut by_number = Figure::new(
            &format!("Drop by number of competitors, {side}"),
            Axis::new("copies of the synthetic function beside it").from_zero(),
            Axis::new("λ").from_zero(),
        );
        for row in rows.iter().filter(|row| row.competitor == "synthetic") {
            let points = |values: &[f64]| {
                values.iter().enumerate().map(|(count, value)| (count as f64, value.max(0.0))).collect()
            };
            by_number = by_number
                .with(Layer::Line { name: row.function.clone(), points: points(&row.simulated) })
                .with(Layer::Points { name: format!("{}, predicted", row.function), points: points(&row.predicted) });
        }
        let caption = if local {
            "Lines are simulated, points are predicted. The paper's Fig. 5b rises steeply at first and then less."
        } else {
            "The same on the remote domain, as the first function of a chain. λ without competitors is the cost of \
             moving its packets over the link."
        };
        blocks.push(figure(&by_number, caption)?);
        let five = |row: &&&Drops| row.simulated.last().copied().unwrap_or_default().max(0.0);
        let mut by_type = Bars {
            title: format!("Drop beside five competitors by their type, {side}"),
            label: "λ".to_owned(),
            places: FUNCTIONS.map(str::to_owned).to_vec(),
            ..Bars::default()
        };
        let mut competitors: Vec<(&str, f64)> = Vec::new();
        for row in &rows {
            if !competitors.iter().any(|(name, _)| *name == row.competitor) {
                competitors.push((&row.competitor, row.metric));
            }
        }
        competitors.sort_by(|a, b| a.1.total_cmp(&b.1));
        for (competitor, metric) in competitors {
            let of = |function: &&str| {
                let row = rows.iter().find(|row| row.function == **function && row.competitor == competitor);
                row.as_ref().map(five)
            };
            let values = FUNCTIONS.iter().map(of).collect();
            let name = format!("beside {competitor} (x = {metric:.1})");
            by_type.groups.push(Group { name, values, ..Group::default() });
        }
        blocks.push(bars(&by_type, "Simulated. Competitors are sorted by their metric, the lowest first.")?);
    }
    Ok(Section { title: "Drops by type and number of competitors (Fig. 5)".to_owned(), blocks })
}

/// Returns the section on Fig. 7.
pub(super) fn prediction(all: &[Predicted]) -> Result<Section, PlotError> {
    let of = |figure: &str| all.iter().filter(|row| row.figure == figure).collect::<Vec<_>>();
    let mut blocks = vec![text(
        "An error is |predicted λ − λ| / λ. Its mean is over runs whose λ is 0.05 or more; the ratio of smaller ones \
         is mostly noise. Functions drop packets that they have no time for, as on the paper's platform. The table \
         also shows the error for functions that are held back to the rate of the slowest function of their chain. \
         Such functions use less of the caches, but the models are fitted to functions at their own pace.",
    )];
    let mut by_count = Figure::new(
        "Error by function and number of competitors (Fig. 7a)",
        Axis::new("copies of the synthetic function beside it").from_zero(),
        Axis::new("error of λ, %").from_zero(),
    );
    for name in FUNCTIONS {
        let rows = of("function").into_iter().filter(|row| row.name == name);
        let points: Vec<_> = rows.filter_map(|row| Some((row.count as f64, row.error? * 100.0))).collect();
        if !points.is_empty() {
            by_count = by_count.with(Layer::Line { name: name.to_owned(), points });
        }
    }
    let caption = "In the paper, the mean errors are 2.9 % (router), 3.3 % (firewall), 2.0 % (NIDS) and 1.0 % (VPN). \
                   They fall as the number of competitors rises. Runs whose λ is below 0.05 are not shown. The models \
                   were not fitted to runs with the synthetic function.";
    blocks.push(figure(&by_count, caption)?);
    for (part, title, label, paper, range) in [
        ("chain", "Error by chain (Fig. 7b)", "20 random placements each", "The paper: at most 5.1 %.", (0.0, 5.1)),
        (
            "length",
            "Error by length (Fig. 7c)",
            "chains of one function, 20 random placements each",
            "The paper: 2.2 % to 6.3 %, 3.3 % to 7.1 %, 2.9 % to 3.7 % and 2.9 % to 4.2 % for its four functions.",
            (2.2, 7.1),
        ),
        (
            "chains",
            "Error by number of chains (Fig. 7d)",
            "20 random placements each",
            "The paper: 2.4 % to 3.6 %.",
            (2.4, 3.6),
        ),
    ] {
        let rows = of(part);
        let places = rows.iter().map(|row| match part {
            "length" => format!("{} × {}", row.count, row.name),
            "chains" => format!("{} × ({})", row.count, row.name),
            _ => row.name.clone(),
        });
        let drawn = Bars {
            title: title.to_owned(),
            label: "error of λ, %".to_owned(),
            places: places.collect(),
            groups: vec![Group {
                name: "here".to_owned(),
                values: rows.iter().map(|row| row.error.map(|error| error * 100.0)).collect(),
                ..Group::default()
            }],
            reference: Some(Reference {
                name: "the paper's range".to_owned(),
                ranges: rows.iter().map(|_| Some(range)).collect(),
            }),
            ..Bars::default()
        };
        if !rows.is_empty() {
            blocks.push(bars(&drawn, &format!("Simulated, {label}. {paper}"))?);
        }
    }
    blocks.push(Block::Table(table(all)));
    Ok(Section { title: "Errors of predictions (Fig. 7)".to_owned(), blocks })
}

fn table(all: &[Predicted]) -> forebay_plot::Table {
    use super::percent;
    let row = |row: &Predicted| {
        vec![
            format!("{}: {}", row.figure, row.name),
            row.count.to_string(),
            row.error.map_or_else(|| "n/a".to_owned(), percent),
            format!("{:.4}", row.absolute),
            format!("{:.3}", row.mean_drop),
            percent(row.rate_error),
            row.held_error.map_or_else(|| "n/a".to_owned(), percent),
            format!("{} of {}", row.runs[1], row.runs[0]),
        ]
    };
    forebay_plot::Table {
        caption: "All predictions".to_owned(),
        columns: crate::blocks::columns(&[
            "prediction",
            "count",
            "error of λ",
            "absolute",
            "mean λ",
            "error of rates",
            "error of λ, held back",
            "λ ≥ 0.05",
        ]),
        rows: all.iter().map(row).collect(),
    }
}
