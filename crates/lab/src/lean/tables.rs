//! The results as CSV files, one for each table.

use forebay_bench::handover::Handover;

use super::LeanResults;
use crate::csv::{figure, text};

/// Returns the name and text of each file.
pub(super) fn all(results: &LeanResults) -> Vec<(&'static str, String)> {
    vec![
        ("chains.csv", chains(results)),
        ("handover.csv", handover(results)),
        ("load.csv", load(results)),
        ("usecases.csv", usecases(results)),
    ]
}

/// Returns, for each chain, a row for each function, a row for the residue, and a row for the whole chain.
fn chains(results: &LeanResults) -> String {
    let heads =
        ["chain", "model", "function", "ticks_per_packet", "instructions_per_packet", "paper_cycles_per_packet"];
    let rows = results.chains.iter().flat_map(|chain| {
        let row = |name: &str, ticks, instructions, paper: Option<f64>| {
            let model = chain.model.name().to_owned();
            vec![chain.chain.to_string(), model, name.to_owned(), figure(ticks), figure(instructions), figure(paper)]
        };
        let parts = chain.figures.iter().flat_map(|figures| &figures.parts).map(|part| {
            let paper = chain.paper.functions.iter().find(|(name, _)| *name == part.name).map(|(_, cycles)| *cycles);
            row(&part.name, part.ticks, part.instructions, paper)
        });
        let residue = chain.figures.as_ref().and_then(|figures| figures.residue_ticks);
        let all = chain.figures.as_ref().map(|figures| figures.cpp_ticks);
        let mut rows: Vec<_> = parts.collect();
        rows.push(row("(residue)", residue, chain.residue_ipp(), None));
        rows.push(row("(all)", all, chain.ipp, Some(chain.paper.chain)));
        rows
    });
    text(&heads, rows)
}

/// Returns a row for each type of memory access.
fn handover(results: &LeanResults) -> String {
    let heads = ["cores", "relation", "what", "ticks", "lower_quartile", "upper_quartile", "paper_cycles"];
    let rows = results.handover.iter().flat_map(Handover::rows).map(|row| {
        let (ticks, lower, upper) = row.ticks.map_or((None, None, None), |spread| {
            (Some(spread.median), Some(spread.quartiles[0]), Some(spread.quartiles[1]))
        });
        vec![
            row.cores,
            row.relation.to_owned(),
            row.what,
            figure(ticks),
            figure(lower),
            figure(upper),
            figure(row.paper),
        ]
    });
    text(&heads, rows)
}

/// Returns a row for each rate.
fn load(results: &LeanResults) -> String {
    let heads = ["share", "offered_pps", "entered_pps", "lost", "cur", "ticks_per_packet", "packets_per_call", "void"];
    let rows = results.load.points.iter().map(|point| {
        let mut row: Vec<_> = [point.share, point.offered_pps, point.entered_pps, point.lost, point.cur]
            .map(|value| figure(Some(value)))
            .to_vec();
        row.extend([figure(point.cpp_ticks), figure(point.batch_mean), point.void.to_string()]);
        row
    });
    text(&heads, rows)
}

/// Returns, for each use case, a row for each module, a row for the residue, and a row for the whole use case.
fn usecases(results: &LeanResults) -> String {
    let heads = [
        "usecase",
        "settings",
        "module",
        "ticks_per_packet",
        "instructions_per_packet",
        "instructions_per_tick",
        "packets_per_call",
    ];
    let rows = results.usecases.iter().flat_map(|usecase| {
        let row = |name: &str, figures: [Option<f64>; 4]| {
            let mut row = vec![usecase.case.name.to_owned(), usecase.case.settings.join(" "), name.to_owned()];
            row.extend(figures.map(figure));
            row
        };
        let modules = usecase.measurement.modules.iter().map(|module| {
            row(&module.name, [module.cpp_ticks, module.ipp, module.instructions_per_tick, module.packets_per_call])
        });
        let chain = &usecase.measurement.chain;
        let mut rows: Vec<_> = modules.collect();
        rows.push(row("(residue)", [chain.residue_ticks, chain.residue_ipp, None, None]));
        rows.push(row("(all)", [chain.cpp_ticks, chain.ipp, None, None]));
        rows
    });
    text(&heads, rows)
}
