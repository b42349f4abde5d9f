//! The report: what was found, where figures come from, and where Forebay falls short of the paper.

mod control;
mod decomposition;
mod profile;
mod settled;
mod shortfall;
mod steps;
mod summary;
mod traffic;

use forebay_plot::{Block, Page, PlotError, Section};

use super::{Costs, Origin, Results, VOID};
use crate::blocks::text;

const SLO_STEPS: &str = "Virtual routers whose flows all have the same objective, which changes while as many packets come as are taken (the \
    paper's Fig. 9a). The paper's controller cuts triggers at once where an objective falls, and raises them in steps where it rises.";
const LOAD_STEPS: &str =
    "Virtual routers whose flows all have an objective of 1 ms, under a load that changes (the paper's Fig. 9b).";
const BEARER: &str = "A mobile gateway of two bearers: the first one's flows have an objective of 1 ms and a load that changes, the second one's \
    sources give all that is taken (the paper's Fig. 9c).";

/// The page's text.
pub(super) fn page(results: &Results) -> Result<String, PlotError> {
    let mut sections = vec![summary::section(results)?];
    if !results.rows.is_empty() {
        sections.push(shortfall::section(results));
        sections.extend(settled::sections(results)?);
    }
    if !results.grid.is_empty() {
        sections.push(settled::grid(&results.grid));
    }
    for (title, what, series) in [
        ("Objectives that change", SLO_STEPS, &results.slo_steps),
        ("Loads that change", LOAD_STEPS, &results.load_steps),
        ("A bearer whose load changes", BEARER, &results.bearer),
    ] {
        if !series.is_empty() {
            sections.push(steps::section(title, what, series)?);
        }
    }
    if !results.contour.is_empty() {
        sections.push(traffic::contour(&results.contour)?);
    }
    if !results.open.is_empty() {
        sections.push(traffic::open(&results.open));
    }
    // Where only some parts were asked for, others need no word.
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

fn head(results: &Results) -> Vec<Block> {
    let mut head = vec![text(
        "What batches save and what they cost in delay, under controllers that hold packets back as long as every flow keeps its \
         objective: the experiments of “Batchy: Batch-scheduling Data Flow Graphs with Service-level Objectives” (NSDI 2020), made \
         here. Where equal branches can run as one (folded), that is shown beside branches as they are written; where that would say \
         nothing, the section says why.",
    )];
    if results.header.short {
        let note = "This is a short run: few, small and short runs, to see what there is. Do not rely on its figures.";
        head.push(Block::Note(note.to_owned()));
    }
    if let Some(complete) = &results.interrupted {
        head.push(Block::Note(format!(
            "The experiment was interrupted. Complete are: {complete}. The rest is missing."
        )));
    }
    let void = void(results);
    if !void.is_empty() {
        head.push(Block::Note(format!(
            "The machine was elsewhere in more than {:.0} % of the periods of these runs, or of most runs where there are several: they are \
             void, and say nothing. {}.",
            VOID * 100.0,
            void.join("; ")
        )));
    }
    head
}

/// All that is void, of whatever part.
pub(super) fn void(results: &Results) -> Vec<String> {
    let mut void = Vec::new();
    let rows = results.rows.iter().chain(&results.grid).filter(|row| row.told.void);
    void.extend(rows.map(|row| format!("{} {}{}", row.usecase, row.controller, folded(row.fold))));
    for (what, all) in [
        ("objectives that change", &results.slo_steps),
        ("loads that change", &results.load_steps),
        ("a bearer whose load changes", &results.bearer),
    ] {
        let series = all.iter().filter(|series| series.soundness.is_void());
        void.extend(series.map(|series| format!("{what}, {}{}", series.controller, folded(series.fold))));
    }
    let open = results.open.iter().chain(results.captures.iter().flatten()).filter(|open| open.told.void);
    void.extend(open.map(traffic::of_run));
    let light = results.light.iter().filter(|light| light.told.void);
    void.extend(light.map(|light| format!("light load, {} pps, {}", light.offered_pps, light.controller)));
    let routers = results.router.iter().filter(|router| router.told.void);
    void.extend(routers.map(|router| format!("{}{}, next hops", router.usecase, folded(router.fold))));
    let fairness = results.fairness.iter().filter(|told| told.soundness.is_void());
    void.extend(fairness.map(|told| format!("fairness, {}, {}", told.case, told.scheduler)));
    let parted = results.decomposition.iter().filter(|told| told.soundness.is_void());
    void.extend(parted.map(|told| format!("decomposition, at most {} worker(s)", told.workers)));
    void
}

fn folded(fold: bool) -> &'static str {
    if fold { ", folded" } else { "" }
}

fn machine(results: &Results) -> Section {
    let time = if results.simulated {
        "simulated: calls take what is stated below, to the nanosecond, and nothing else but 64 ns a turn takes any \
         time. Every packet is made, passes its modules and is accounted for. Runs of one seed are the same on every \
         machine; the runs of a row have seeds 1, 2, …, and differ where anything is drawn at random: in robot \
         control. Elsewhere they are copies, and their ratios have no interval"
    } else {
        "this machine's: pipelines run on cores of their own, and figures are measured"
    };
    let mut facts = results.machine.facts();
    facts.extend([
        ("Time".to_owned(), time.to_owned()),
        ("Costs of calls".to_owned(), costs(&results.costs)),
        ("Control period".to_owned(), format!("{} ms", results.period_ms)),
    ]);
    facts.extend(results.header.facts());
    let rule = format!(
        "The largest batch is 32; 95 % of a flow's packets must keep its objective, where traffic keeps to a schedule or is recorded and in the decomposition 99 %. A period is violated \
         when more of any flow's packets that left in it were above the objective: they are counted one by one. A turn that takes \
         twice as long as all modules with full batches would, and 100 µs at least, is a stall of the machine; a period with one does not \
         count, and more than {:.0} % of such make a run void. Of several runs void ones are left out, unless all are. Rates, batches, \
         ticks and delays are of whole runs: stalled periods of a run that is not void are in them. \
         Simulated time has no stalls.",
        VOID * 100.0
    );
    let cycles = "Where a function is asked for in cycles (robot control), a cycle is one of the paper's machine, 1/2.4 ns, in simulated \
                  time, and a tick of the time-stamp counter in real time.";
    Section {
        title: "The machine, and where figures come from".to_owned(),
        blocks: vec![Block::Facts(facts), text(&rule), text(cycles)],
    }
}

/// What calls cost, and where that is from, function by function.
fn costs(costs: &Costs) -> String {
    let of = |origin: Origin| {
        let names = costs.origins.iter().filter(|(_, from)| **from == origin).map(|(name, _)| name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let told = [
        ("measured on this machine (forebay profile)", of(Origin::Profile)),
        ("published by Batchy", of(Origin::Published)),
        ("60 ns a call and 15 ns a packet, as nobody has measured them", of(Origin::Assumed)),
    ];
    let told: Vec<_> =
        told.iter().filter(|(_, names)| !names.is_empty()).map(|(how, n)| format!("{how}: {n}")).collect();
    if told.is_empty() { "those that each section tells".to_owned() } else { told.join("; ") }
}

fn again(results: &Results) -> Section {
    let blocks = vec![
        Block::Code(results.command.clone()),
        text("results.json, beside this page, has everything that is shown here; the CSV files have its tables."),
    ];
    Section { title: "How to run it again".to_owned(), blocks }
}
