//! The report: the results, the origin of the figures, and the points at which Forebay falls short of the paper.

mod control;
mod decomposition;
mod profile;
mod settled;
mod shortfall;
mod steps;
mod summary;
mod traffic;

use forebay_plot::{Block, Page, PlotError, Section};

use super::{BatchingResults, CostOrigin, Costs, VOID};
use crate::blocks::text;

const SLO_STEPS: &str = "Virtual routers with as many packets as they accept. All flows have the same objective, which \
                         changes (the paper's Fig. 9a). The paper's controller reduces triggers at once when an \
                         objective falls, and raises them in steps when it rises.";
const LOAD_STEPS: &str =
    "Virtual routers whose flows all have an objective of 1 ms, under a load that changes (the paper's Fig. 9b).";
const BEARER: &str = "A mobile gateway of two bearers. The flows of the first bearer have an objective of 1 ms and a \
                      load that changes. The sources of the second bearer send as many packets as the pipeline accepts \
                      (the paper's Fig. 9c).";

/// Returns the HTML text of the page.
pub(super) fn page(results: &BatchingResults) -> Result<String, PlotError> {
    let mut sections = vec![summary::section(results)?];
    if !results.rows.is_empty() {
        sections.push(shortfall::section(results));
        sections.extend(settled::sections(results)?);
    }
    if !results.grid.is_empty() {
        sections.push(settled::grid(&results.grid));
    }
    for (title, description, series) in [
        ("Changing objectives", SLO_STEPS, &results.slo_steps),
        ("Changing loads", LOAD_STEPS, &results.load_steps),
        ("A bearer whose load changes", BEARER, &results.bearer),
    ] {
        if !series.is_empty() {
            sections.push(steps::section(title, description, series)?);
        }
    }
    if !results.contour.is_empty() {
        sections.push(traffic::contour(&results.contour)?);
    }
    if !results.open.is_empty() {
        sections.push(traffic::open(&results.open));
    }
    // If only some parts were selected, the page does not mention the others.
    if results.captures.is_some() || !results.command.contains(" --only ") {
        sections.push(traffic::captures(results.captures.as_deref()));
    }
    if !results.light.is_empty() {
        sections.push(traffic::light(&results.light));
    }
    if !results.router.is_empty() {
        sections.push(traffic::router(&results.router));
    }
    if !results.controller_us.is_empty() {
        sections.push(control::overhead(&results.controller_us));
    }
    if !results.data_path.is_empty() {
        sections.push(control::data_path(&results.data_path));
    }
    if !results.profile.is_empty() {
        sections.push(profile::section(&results.profile)?);
    }
    if !results.fairness.is_empty() {
        sections.push(control::fairness(&results.fairness));
    }
    if !results.decomposition.is_empty() {
        sections.push(decomposition::section(&results.decomposition)?);
    }
    sections.extend([machine(results), again(results)]);
    Ok(Page { title: "Batching under delay objectives".to_owned(), head: head(results), sections }.html())
}

fn head(results: &BatchingResults) -> Vec<Block> {
    let mut head = vec![text(
        "The savings of batches and their cost in delay. Controllers hold packets back as long as every flow keeps its \
         objective. The experiments are those of “Batchy: Batch-scheduling Data Flow Graphs with Service-level \
         Objectives” (NSDI 2020). If equal branches can run as one (folded), the page shows them beside unfolded \
         branches. If folded runs would add nothing, the section explains why.",
    )];
    if results.header.short {
        let note = "This is a short run: its runs are few, small and short. Do not rely on its figures.";
        head.push(Block::Note(note.to_owned()));
    }
    if let Some(complete) = &results.interrupted {
        head.push(Block::Note(format!(
            "The experiment was interrupted. Complete parts: {complete}. The other parts are missing."
        )));
    }
    let void = void(results);
    if !void.is_empty() {
        head.push(Block::Note(format!(
            "In more than {:.0} % of the periods of these runs, the machine was busy elsewhere. If a row has several \
             runs, this is true of most of them. These runs are void: their figures carry no meaning. {}.",
            VOID * 100.0,
            void.join("; ")
        )));
    }
    head
}

/// Returns the names of the void runs of all parts.
pub(super) fn void(results: &BatchingResults) -> Vec<String> {
    let mut void = Vec::new();
    let rows = results.rows.iter().chain(&results.grid).filter(|row| row.summary.void);
    void.extend(rows.map(|row| format!("{} {}{}", row.usecase, row.controller, folded(row.fold))));
    for (part, all) in [
        ("changing objectives", &results.slo_steps),
        ("changing loads", &results.load_steps),
        ("a bearer whose load changes", &results.bearer),
    ] {
        let series = all.iter().filter(|series| series.soundness.is_void());
        void.extend(series.map(|series| format!("{part}, {}{}", series.controller, folded(series.fold))));
    }
    let open = results.open.iter().chain(results.captures.iter().flatten()).filter(|open| open.summary.void);
    void.extend(open.map(traffic::of_run));
    let light = results.light.iter().filter(|light| light.summary.void);
    void.extend(light.map(|light| format!("light load, {} pps, {}", light.offered_pps, light.controller)));
    let routers = results.router.iter().filter(|router| router.summary.void);
    void.extend(routers.map(|router| format!("{}{}, next hops", router.usecase, folded(router.fold))));
    let fairness = results.fairness.iter().filter(|row| row.soundness.is_void());
    void.extend(fairness.map(|row| format!("fairness, {}, {}", row.case, row.scheduler)));
    let parted = results.decomposition.iter().filter(|run| run.soundness.is_void());
    void.extend(parted.map(|run| format!("decomposition, at most {} worker(s)", run.workers)));
    void
}

fn folded(fold: bool) -> &'static str {
    if fold { ", folded" } else { "" }
}

fn machine(results: &BatchingResults) -> Section {
    let time = if results.simulated {
        "simulated: calls take the times stated below, to the nanosecond. Besides them, only 64 ns per turn take any \
         time. Every packet is generated, passes its modules and is accounted for. Runs with the same seed are equal \
         on every machine. The runs of a row have the seeds 1, 2, …, and differ only if the pipeline uses random \
         numbers, as robot control does. Otherwise they are copies, and their ratios have no interval"
    } else {
        "this machine's clock: pipelines run on cores of their own, and figures are measured"
    };
    let mut facts = results.machine.facts();
    facts.extend([
        ("Time".to_owned(), time.to_owned()),
        ("Costs of calls".to_owned(), costs(&results.costs)),
        ("Control period".to_owned(), format!("{} ms", results.period_ms)),
    ]);
    facts.extend(results.header.facts());
    let rule = format!(
        "The largest batch is 32. 95 % of a flow's packets must keep its objective. For open-loop and recorded \
         traffic, light load and many next hops, and in the decomposition, this share is 99 %. A period is violated if \
         at least one flow misses its objective in the period. Every packet is counted. A turn counts as a stall of \
         the machine if it takes at least 100 µs, and at least twice the time that all modules take for full batches. \
         Turns are counted by classes of length, so a stall of less than twice this time may not be found. A period \
         with a stall does not count. A run is void if more than {:.0} % of its periods have a stall, or if none of \
         its periods counts. If some, but not all, of several runs are void, the void runs are left out. Rates, \
         batches, ticks and delays are those of whole runs, including the stalled periods of a run that is not void. \
         Simulated time has no stalls.",
        VOID * 100.0
    );
    let cycles = "Some functions have a cost in cycles (robot control). In simulated time a cycle takes 1/2.4 ns, as \
                  on the paper's machine. In real time a cycle is a tick of the time-stamp counter.";
    Section {
        title: "The machine, and where figures come from".to_owned(),
        blocks: vec![Block::Facts(facts), text(&rule), text(cycles)],
    }
}

/// Returns the sources of the costs of calls, with the functions of each.
fn costs(costs: &Costs) -> String {
    let of = |origin: CostOrigin| {
        let names = costs.origins.iter().filter(|(_, from)| **from == origin).map(|(name, _)| name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let sources = [
        ("measured on this machine (forebay profile)", of(CostOrigin::Profile)),
        ("published by Batchy", of(CostOrigin::Published)),
        ("assumed to be 60 ns per call and 15 ns per packet, without a measurement", of(CostOrigin::Assumed)),
    ];
    let sources: Vec<_> =
        sources.iter().filter(|(_, names)| !names.is_empty()).map(|(how, n)| format!("{how}: {n}")).collect();
    if sources.is_empty() { "stated in each section".to_owned() } else { sources.join("; ") }
}

fn again(results: &BatchingResults) -> Section {
    let blocks = vec![
        Block::Code(results.command.clone()),
        text("results.json, in the same folder, contains all data of this page. The CSV files contain its tables."),
    ];
    Section { title: "How to run it again".to_owned(), blocks }
}
