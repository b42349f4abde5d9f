//! The section on models: the metric, the parameters, and the errors on runs to which they were not fitted.

use forebay_plot::{Block, Section, Table};

use super::percent;
use crate::blocks::{columns, known, text};
use crate::placement::basis::{Errors, Models, Variant};

/// Returns the section.
pub(super) fn section(models: &Models) -> Section {
    let blocks = vec![
        text(&format!(
            "Models were fitted to {} co-runs of random chains on random cores and are judged with {} others. The \
             metric x of the models is {}: of all candidates, its models are nearest to co-runs that were left out of \
             their fits. The paper requires a variance of at most 0.01 under competition (5) and a correlation of at \
             least 0.9 with the solo rate (6). ticks per packet is the rate itself. per_drop_of_others is not a \
             counter, so (5) does not apply to it.",
            models.runs[0], models.runs[1], models.metric
        )),
        Block::Table(candidates(models)),
        Block::Table(functions(models)),
        text(&format!(
            "A competing level is 1 where Σ 1/x is {} in a cache, {} at a memory controller and {} on a link. This is \
             the level that the strongest of all profiled functions and synthetic competitors causes on all cores that \
             may share the resource.",
            known(Some(models.limits[0]), 3),
            known(Some(models.limits[1]), 3),
            known(Some(models.limits[2]), 3)
        )),
        Block::Table(variants("Errors by the domain of a function", "function", &models.cases)),
        text(
            "With few chains drops are small and caches are not full. The model adds up demands and does not represent \
             a cache that has room for all of them. Its relative error is largest there; its absolute error is not.",
        ),
        Block::Table(variants("Errors by the number of chains", "chains", &models.loads)),
        Block::Table(variants("Other forms, normalisers and servers", "models", &models.variants)),
    ];
    Section { title: "Models and the metric".to_owned(), blocks }
}

/// Returns the table of the candidates for the metric, with the figures by which they are judged.
fn candidates(models: &Models) -> Table {
    let rows = models.candidates.iter().map(|of| {
        let verdict = match (of.circular, of.qualifies) {
            (true, _) => "circular",
            (_, true) => "yes",
            _ => "no",
        };
        let chosen = if of.name == models.metric { "chosen" } else { "" };
        vec![
            of.name.to_owned(),
            known(of.variance, 4),
            of.varies_most.clone().unwrap_or_default(),
            known(Some(of.correlation), 3),
            verdict.to_owned(),
            known(of.left_out, 4),
            of.errors.map_or_else(|| "n/a".to_owned(), |errors| percent(errors.relative)),
            chosen.to_owned(),
        ]
    });
    Table {
        caption: "Candidates for the metric".to_owned(),
        columns: columns(&[
            "metric",
            "variance (5)",
            "varies most",
            "correlation (6)",
            "qualifies",
            "error of λ, left out",
            "error, other mixes",
            "",
        ]),
        rows: rows.collect(),
    }
}

/// Returns the table of the fitted models: for each function a row for packets in the memory of its own domain (local),
/// and a row for packets in the memory of another domain (remote) if that model exists. β is for the memory controller
/// in local rows, and for the link in remote rows. A row has one cell for each column.
fn functions(models: &Models) -> Table {
    let mut rows = Vec::new();
    for of in &models.functions {
        let model = &of.model;
        for (side, rate, drop) in [
            ("local", Some(model.rates.local), Some(&model.local)),
            ("remote", model.rates.remote, model.remote.as_ref()),
        ] {
            let Some(drop) = drop else { continue };
            let shape = match drop.shape.shape() {
                forebay_models::placement::Shape::Linear => "linear".to_owned(),
                forebay_models::placement::Shape::Saturating(half) => format!("h = {half:.3}"),
            };
            rows.push(vec![
                format!("{}, {side}", of.name),
                known(rate.map(|rate| rate / 1e6), 2),
                // The value of the metric `models.metric` for this function.
                known(Some(model.metric), 3),
                known(Some(drop.cache), 3),
                known(Some(drop.memory), 3),
                known(Some(drop.constant), 3),
                shape,
                known(drop.held_out, 4),
                known(drop.interval_95, 4),
            ]);
        }
    }
    Table {
        caption: "Models: λ = α·f(cache) + β·f(memory or link) + C".to_owned(),
        columns: columns(&["function", "Mpps alone", "x", "α", "β", "C", "shape", "error of λ, left out", "± 95 %"]),
        rows,
    }
}

/// Returns a table of errors. `first` is the head of the column with the names of `all`.
fn variants(caption: &str, first: &str, all: &[Variant]) -> Table {
    let row = |of: &Variant| {
        let Errors { relative, of_constant, absolute, rate, inside_interval, mean_drop, samples } = of.errors;
        let mut row = vec![of.name.clone()];
        row.extend([relative, of_constant].map(percent));
        row.extend([known(Some(absolute), 4), known(Some(mean_drop), 3)]);
        row.extend([rate, inside_interval].map(percent));
        row.push(format!("{} of {}", samples[1], samples[0]));
        row
    };
    Table {
        caption: caption.to_owned(),
        columns: columns(&[
            first,
            "error of λ",
            "of the best constant",
            "absolute",
            "mean λ",
            "error of rates",
            "in the interval",
            "λ ≥ 0.05",
        ]),
        rows: all.iter().map(row).collect(),
    }
}
