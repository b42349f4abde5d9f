//! The report: the results, the paper's results, and the assumptions.

mod figures;
mod models;
mod placements;
mod validity;

use forebay_plot::{Align, Block, Page, PlotError, Section, Table};

use super::{PlacementResults, drops, gain, order, search};
use crate::blocks::text;

/// Returns the HTML text of the page.
pub(super) fn page(results: &PlacementResults) -> Result<String, PlotError> {
    let mut sections = vec![summary(results)];
    sections.extend(results.models.iter().map(models::section));
    if !results.order.is_empty() {
        sections.push(placements::order(&results.order)?);
    }
    if !results.metric.is_empty() {
        sections.push(figures::metric(results)?);
    }
    if !results.drops.is_empty() {
        sections.push(figures::drops(&results.drops)?);
    }
    if !results.prediction.is_empty() {
        sections.push(figures::prediction(&results.prediction)?);
    }
    if !results.gain.is_empty() {
        sections.push(placements::gain(&results.gain)?);
    }
    if !results.search.is_empty() {
        sections.push(placements::search(&results.search)?);
    }
    for of in &results.validity {
        sections.push(validity::section(of)?);
    }
    sections.extend([assumptions(), machine(results), again(results)]);
    Ok(Page { title: "Placement of chains on cores".to_owned(), head: head(results), sections }.html())
}

fn head(results: &PlacementResults) -> Vec<Block> {
    let mut head = vec![text(
        "The evaluation of “Octans: Optimal Placement of Service Function Chains in Many-Core Systems” (INFOCOM 2019), \
         reproduced in Forebay's contention simulator. Rates, drops and metrics are simulated. Models are fitted to \
         simulated co-runs. The times of searches, and `validity`, are measured on this machine.",
    )];
    if results.header.short {
        let note = "This is a short run: it has few co-runs and small instances. Do not rely on its figures.";
        head.push(Block::Note(note.to_owned()));
    }
    if let Some(complete) = &results.interrupted {
        head.push(Block::Note(format!(
            "The experiment was interrupted. Complete parts: {complete}. The other parts are missing."
        )));
    }
    head
}

/// Formats a share in percent.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats packets per second in millions.
fn millions(pps: f64) -> String {
    format!("{:.2}", pps / 1e6)
}

/// Returns the mean, the minimum and the maximum, or `None` without values.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64, f64)> {
    let values: Vec<_> = values.collect();
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    (!values.is_empty()).then_some((mean, low, high))
}

/// Formats the mean, the minimum and the maximum of shares, in percent.
fn spread(values: impl Iterator<Item = f64>) -> String {
    range(values).map_or_else(
        || "n/a".to_owned(),
        |(mean, low, high)| format!("{}, from {} to {}", percent(mean), percent(low), percent(high)),
    )
}

/// Returns the section that lists each of the paper's findings beside the results here.
fn summary(results: &PlacementResults) -> Section {
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut row = |what: &str, paper: &str, ours: String, origin: &str| {
        rows.push([what.to_owned(), paper.to_owned(), ours, origin.to_owned()]);
    };
    if let Some(worst) = results.order.iter().map(|row| row.below_best).reduce(f64::max) {
        let what = "Fig. 2: the worst placement of router → NIDS carries less than the best by";
        row(what, &percent(order::PAPER), percent(worst), "calibrated to it");
    }
    if let Some(models) = &results.models {
        let qualify: Vec<_> = models.candidates.iter().filter(|of| of.qualifies).map(|of| of.name).collect();
        let qualify = if qualify.is_empty() { "none".to_owned() } else { qualify.join(", ") };
        let what = "Fig. 4: metrics that qualify by (5) and (6)";
        row(what, "stall cycles per packet", format!("{qualify}; the models use {}", models.metric), "simulated");
        row("Mean error of λ, other mixes (λ ≥ 0.05)", "2.6 %", percent(models.errors.relative), "simulated");
        row("The same of the best constant", "n/a", percent(models.errors.of_constant), "simulated");
        row("Mean error of rates, other mixes", "n/a", percent(models.errors.rate), "simulated");
    }
    let simulated = results.drops.iter().filter(|row| row.local).map(|row| &row.simulated);
    if let Some(most) = simulated.flatten().copied().reduce(f64::max) {
        let what = "Fig. 5: the largest drop of a local function beside five others";
        row(what, "12.4 % to 50.3 % (cited)", percent(most), "simulated");
    }
    let errors = |figure: &'static str| {
        results.prediction.iter().filter(move |row| row.figure == figure).filter_map(|row| row.error)
    };
    if !results.prediction.is_empty() {
        row("Fig. 7a: error by function", "2.3 % on average", spread(errors("function")), "simulated");
        row("Fig. 7b: error by chain", "at most 5.1 %", spread(errors("chain")), "simulated");
        row("Fig. 7c: error by length", "2.2 % to 7.1 %", spread(errors("length")), "simulated");
        row("Fig. 7d: error by number of chains", "2.4 % to 3.6 %", spread(errors("chains")), "simulated");
    }
    if !results.gain.is_empty() {
        for (method, paper) in
            [("node-balancing", "51.8 %, from 37.4 % to 66.3 %"), ("node-first", "26.7 %, from 6.2 % to 45.1 %")]
        {
            for (ours, origin) in [("octans", "simulated"), ("exact", "simulated")] {
                let gains = results
                    .gain
                    .iter()
                    .filter_map(|set| Some(set.of(ours)?.simulated_pps / set.of(method)?.simulated_pps - 1.0));
                let paper = if ours == "octans" { paper } else { "n/a" };
                row(&format!("Fig. 8: gain of {ours} over {method}"), paper, spread(gains), origin);
            }
        }
    }
    for (domains, heuristic, enumeration) in search::PAPER_MS {
        let Some(largest) = results.search.iter().rfind(|row| row.domains == domains) else { continue };
        let what = format!("Fig. 9: {domains} domains × 10 cores, {} chains × 3", largest.chains);
        let paper = format!("{heuristic} ms (enumeration {:.0} s)", enumeration / 1e3);
        let paper = if largest.chains == 6 { paper } else { "n/a".to_owned() };
        let ours = format!("exact {:.2} ms, maximum {:.2} ms", largest.exact_ms[0], largest.exact_ms[1]);
        row(&what, &paper, ours, "measured");
    }
    if let Some((_, low, high)) = range(results.search.iter().map(|row| row.octans_optimal)) {
        let what = "Fig. 9c: octans finds a best placement in";
        row(what, "58 % to 70 %", format!("{:.0} % to {:.0} %", low * 100.0, high * 100.0), "computed");
        let what = "Fig. 9c: otherwise octans is below the best by";
        row(what, "1.2 % to 3.5 %", spread(results.search.iter().filter_map(|row| row.octans_gap)), "computed");
    }
    let heads = ["", "the paper", "here", "origin"];
    let table = Table {
        caption: "The paper's findings and the results here".to_owned(),
        columns: heads.map(|head| (head.to_owned(), Align::Left)).to_vec(),
        rows: rows.into_iter().map(|row| row.to_vec()).collect(),
    };
    Section { title: "Summary".to_owned(), blocks: vec![Block::Table(table)] }
}

fn assumptions() -> Section {
    let facts = [
        (
            "Functions",
            "The paper names its functions, but not their parameters. The parameters here are assumed \
             (docs/contention.md): footprints, accesses, ticks. All figures above depend on them.",
        ),
        (
            "Server",
            "Two Intel Xeon E5-2650 v4, 6 usable cores on the domain of the network interfaces and 12 on the other, as \
             in the paper. Cores, clock, cache and bandwidths are the manufacturer's; latencies, bursts, buffers and \
             queues are assumed. The latency of the link, the lines of a descriptor and some parameters of NIDS, \
             firewall and VPN were chosen to reproduce the 39.2 % of Fig. 2. The gains of Fig. 8 were known at that \
             time.",
        ),
        ("Memory", "Tables and packets are in the memory of the interfaces' domain, as in the paper's (9)."),
        (
            "Solo rates",
            "The solo rate of a function on another domain is measured with its packets in the cache of that domain. \
             Otherwise λ without competitors would be 0 in (9) and below 0 in (11).",
        ),
        (
            "Co-runs",
            "Models are fitted to random placements of random chains, in which each function works as fast as it can. \
             In the chains of Fig. 2, 7b to 7d and 8 a function works at the rate at which the previous function \
             sends, and drops packets that it has no time for, as on the paper's platform. The report states where \
             functions before the slowest one are held back instead.",
        ),
        (
            "λ of a chain",
            "1 − rate / the smallest solo rate of its functions on the interfaces' domain. The paper does not state \
             its reference.",
        ),
        (
            "Octans",
            "The paper does not state whether the bottleneck function moves with the part of the chain before it: here \
             it does. The paper's binary search is interpreted as all placements of whole chains.",
        ),
        (
            "Search",
            "The chains of Fig. 9 have three functions, drawn from all eight. A time is the minimum of three runs of \
             one thread by the wall clock (enumeration and octans: one run).",
        ),
    ];
    let facts = facts.map(|(name, fact)| (name.to_owned(), fact.to_owned())).to_vec();
    Section { title: "Assumptions".to_owned(), blocks: vec![Block::Facts(facts)] }
}

fn machine(results: &PlacementResults) -> Section {
    let mut facts = results.machine.facts();
    facts.extend(results.header.facts());
    let origin = "The times of searches, and the co-runs with which the simulator is compared, are measured on this \
                  machine. Everything else is simulated and computed: with the same seed it is the same on every \
                  machine.";
    Section {
        title: "The machine, and where figures come from".to_owned(),
        blocks: vec![Block::Facts(facts), text(origin)],
    }
}

fn again(results: &PlacementResults) -> Section {
    let word = "DIR is any folder. The CSV files in the same folder contain the tables, results.json contains all \
                data, and models.json contains the models in the format that `forebay place` reads.";
    let blocks = vec![Block::Code(results.command.clone()), text(word)];
    Section { title: "How to run it again".to_owned(), blocks }
}

/// The paper's functions, in the order of its figures.
const FUNCTIONS: [&str; 4] = drops::PAPERS;
/// The methods of Fig. 8.
const METHODS: [&str; 5] = gain::METHODS;
