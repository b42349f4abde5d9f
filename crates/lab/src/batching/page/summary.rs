//! The results, at the top of the page: a figure and a table of the gain of control in each use case, beside the gain
//! that the paper states.

use forebay_plot::{Bars, Block, Group, PlotError, Reference, Section, Table};

use crate::batching::BatchingResults;
use crate::batching::settled::Row;
use crate::batching::steps::Stage;
use crate::blocks::{bars, columns, known, text};

/// The gain of the paper's controller over `null`, as a range.
const GAIN: (f64, f64) = (1.5, 2.5);
/// The gain in robot control.
const ROBOT_GAIN: (f64, f64) = (7.5, 7.5);
/// The controllers that are compared with the paper's.
const CONTROLLERS: [&str; 2] = ["optimal", "gradient"];

/// Returns the section.
pub(super) fn section(results: &BatchingResults) -> Result<Section, PlotError> {
    let mut blocks = vec![Block::Facts(facts(results))];
    let unfolded: Vec<&Row> = results.rows.iter().filter(|row| !row.fold).collect();
    let mut usecases: Vec<&str> = Vec::new();
    for row in &unfolded {
        if !usecases.contains(&row.usecase.as_str()) {
            usecases.push(&row.usecase);
        }
    }
    let gained = unfolded.iter().any(|row| row.to_null.is_some() && CONTROLLERS.contains(&row.controller.as_str()));
    if gained {
        let caption = "Unfolded branches. The paper states a gain of 1.5 to 2.5 times for its use cases, without a \
                       figure for each, and of 7.5 times for robot control.";
        blocks.push(bars(&gains(&usecases, &unfolded), caption)?);
        blocks.push(Block::Table(table(&usecases, &unfolded)));
    } else if results.rows.is_empty() {
        blocks.push(text("The static experiment, which measures gains, was not run."));
    }
    Ok(Section { title: "Summary".to_owned(), blocks })
}

/// Returns the main results, and the number of void runs.
fn facts(results: &BatchingResults) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    if !results.rows.is_empty() {
        let misses = results.rows.iter().filter(|row| row.controller == "optimal" && !row.summary.void);
        let most = misses.map(|row| row.summary.violations_pct).fold(f64::NAN, f64::max);
        let most = if most.is_nan() {
            "n/a".to_owned()
        } else {
            format!("up to {most:.1} % of the periods of a use case; at most 9 % in the paper")
        };
        facts.push(("optimal misses objectives in".to_owned(), most));
    }
    for (what, all) in [
        ("Changing objectives", &results.slo_steps),
        ("Changing loads", &results.load_steps),
        ("A bearer whose load changes", &results.bearer),
    ] {
        let missed = all.iter().filter(|series| !series.fold && !series.soundness.is_void()).map(|series| {
            let count = |of: fn(&Stage) -> usize| series.steps.iter().map(of).sum::<usize>();
            format!("{} {} of {}", series.controller, count(|stage| stage.violated), count(|stage| stage.periods))
        });
        let missed: Vec<_> = missed.collect();
        if !missed.is_empty() {
            facts.push((what.to_owned(), format!("periods that missed an objective: {}", missed.join(", "))));
        }
    }
    let sides = results.decomposition.iter().find_map(|run| run.before.as_ref().zip(run.after.as_ref()));
    facts.extend(sides.map(|(before, after)| {
        let outcome = format!(
            "{} of {} periods missed an objective before flows were moved apart, and {} of {} periods after the move; \
             {:.1} times as many packets leave",
            before.violated,
            before.periods,
            after.violated,
            after.periods,
            after.rate_pps / before.rate_pps
        );
        ("Flows that cannot share a worker".to_owned(), outcome)
    }));
    let void = super::void(results).len();
    let void =
        if void == 0 { "none".to_owned() } else { format!("{void}, listed above; their figures carry no meaning") };
    facts.push(("Void runs".to_owned(), void));
    facts
}

fn of<'a>(rows: &[&'a Row], usecase: &str, controller: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.usecase == usecase && row.controller == controller).copied()
}

/// Returns the range of gains that the paper states for a use case.
fn stated(usecase: &str) -> (f64, f64) {
    if usecase.starts_with("rc") { ROBOT_GAIN } else { GAIN }
}

fn gains(usecases: &[&str], rows: &[&Row]) -> Bars {
    let group = |controller: &&str| Group {
        name: (*controller).to_owned(),
        values: usecases.iter().map(|usecase| Some(of(rows, usecase, controller)?.to_null?.median)).collect(),
        void: usecases
            .iter()
            .map(|usecase| of(rows, usecase, controller).is_some_and(|row| row.summary.void))
            .collect(),
    };
    Bars {
        title: "Gain of control".to_owned(),
        label: "times the packets of null".to_owned(),
        places: usecases.iter().map(|usecase| (*usecase).to_owned()).collect(),
        groups: CONTROLLERS.iter().map(group).collect(),
        stacked: false,
        reference: Some(Reference {
            name: "the paper".to_owned(),
            ranges: usecases.iter().map(|usecase| Some(stated(usecase))).collect(),
        }),
    }
}

fn table(usecases: &[&str], rows: &[&Row]) -> Table {
    let row = |usecase: &&str| {
        let optimal = of(rows, usecase, "optimal");
        let gain = |controller| known(of(rows, usecase, controller).and_then(|row| Some(row.to_null?.median)), 2);
        let (least, most) = stated(usecase);
        let paper = if least == most { format!("{least}") } else { format!("{least}–{most}") };
        vec![
            (*usecase).to_owned(),
            known(optimal.map(|row| row.summary.violations_pct), 1),
            gain("optimal"),
            gain("gradient"),
            paper,
            known(optimal.and_then(|row| row.batch_of_max).map(|part| part * 100.0), 0),
            "70–80".to_owned(),
        ]
    };
    Table {
        caption: "Gains, beside the paper's".to_owned(),
        columns: columns(&[
            "use case",
            "optimal misses, % of periods",
            "optimal, times null",
            "gradient, times null",
            "the paper, times null",
            "optimal's batches, % of max",
            "the paper's, % of max",
        ]),
        rows: usecases.iter().map(row).collect(),
    }
}
