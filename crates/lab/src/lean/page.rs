//! The report: the results, the paper's results, and the differences.

mod load;

use forebay_bench::handover::Spread;
use forebay_plot::{Bars, Block, Group, Page, PlotError, Section, Table, engineering};

use super::{Chain, LeanResults, UseCase};
use crate::blocks::{bars, columns, figure, known, text};
use crate::trial::Part;

/// Returns the HTML text of the page.
pub(super) fn page(results: &LeanResults) -> Result<String, PlotError> {
    let mut sections = vec![chains(results)?];
    sections.extend(handover(results)?);
    sections.push(load::section(&results.load)?);
    for usecase in &results.usecases {
        sections.push(of_usecase(usecase)?);
    }
    sections.extend([machine(results), again(results)]);
    Ok(Page { title: "Lean measurement on this machine".to_owned(), head: head(results), sections }.html())
}

fn head(results: &LeanResults) -> Vec<Block> {
    let mut head = vec![text(
        "The cost of a packet on this machine, in ticks of the time-stamp counter and in instructions, beside the \
         figures of “NFV Acceleration via Lean Measurements” (NALM, IEEE/ACM Transactions on Networking, 2023).",
    )];
    if results.header.short {
        let note = "This is a short run: its measurements are few and short. Do not rely on its figures. \
                    The instructions of use cases are not counted.";
        head.push(Block::Note(note.to_owned()));
    }
    if results.interrupted {
        let note =
            "The experiment was interrupted: there are fewer runs of each chain, fewer rates and fewer use cases.";
        head.push(Block::Note(note.to_owned()));
    }
    if let Some(why) = &results.not_counted {
        head.push(Block::Note(format!("Instructions were not counted: {why}. They are n/a below.")));
    }
    let void = void(results);
    if !void.is_empty() {
        head.push(Block::Note(format!(
            "Another program or the host used the cores. These runs are void even after up to two repetitions. Do not \
             rely on their ticks, rates and utilisation. {}.",
            void.join("; ")
        )));
    }
    head
}

/// Returns the names of the void runs.
pub(super) fn void(results: &LeanResults) -> Vec<String> {
    let mut all = Vec::new();
    for chain in &results.chains {
        if let Some(figures) = chain.figures.as_ref().filter(|figures| figures.void > 0) {
            let (some, of) = (figures.void, figures.runs);
            all.push(format!("chain {} {} ({some} of {of} runs)", chain.chain, chain.model.name()));
        }
    }
    let points = results.load.points.iter().filter(|point| point.void);
    all.extend(points.map(|point| format!("load at {} %", engineering(point.share * 100.0))));
    all.extend(results.usecases.iter().filter(|one| one.measurement.chain.void).map(|one| one.case.arguments()));
    all
}

fn machine(results: &LeanResults) -> Section {
    let machine = &results.machine;
    let set = results.usecases.iter().find_map(|one| one.measurement.instruction_set.clone());
    let mut facts = machine.facts();
    let tick =
        format!("{:.3} ns: the time-stamp counter runs at {} GHz", 1.0 / machine.cpu.tsc_ghz, machine.cpu.tsc_ghz);
    facts.extend([
        ("A tick is".to_owned(), tick),
        ("Instruction set counted".to_owned(), set.unwrap_or_else(|| "n/a".to_owned())),
    ]);
    facts.extend(results.header.facts());
    let origin = "Ticks, rates and utilisation are measured by this machine's clock, while pipelines run on cores of \
                  their own. Instructions are emulated: they are counted under valgrind's callgrind, in simulated \
                  time, on the same input each time, so every run gives the same numbers. No figure comes from a \
                  model. A tick is not a core cycle, because the core has its own clock. The paper's cycles can \
                  therefore be compared in their proportions only.";
    let rule = "If two readings of the clock within a turn are further apart than work can take, the machine was busy \
                elsewhere. These stretches are not counted. A run is void if they are more than a tenth of it \
                (docs/measure.md). A void run is repeated twice at most, and the least disturbed run is used. Chains \
                are run several times in turn; their figures are medians of the runs that are not void.";
    Section {
        title: "The machine, and where figures come from".to_owned(),
        blocks: vec![Block::Facts(facts), text(origin), text(rule)],
    }
}

fn chains(results: &LeanResults) -> Result<Section, PlotError> {
    let mut blocks = vec![text(
        "Chain A is NAT, deep packet inspection and L3 forwarding. Chain B is access control, an L4 load balancer and \
         L3 forwarding. In run to completion one core does all the work for a packet. In the pipelined model a first \
         core hands packets over to a second core, which does the L3 forwarding. The pipelined figures are the ticks \
         of the busy turns of both cores.",
    )];
    let name = |chain: &Chain| format!("{}, {}", chain.chain, chain.model.name());
    let is_void =
        |chain: &Chain| chain.figures.as_ref().is_some_and(|figures| figures.void > 0 && figures.void == figures.runs);
    let cpp = |chain: &Chain| chain.figures.as_ref().map(|figures| figures.cpp_ticks);
    let rows = results.chains.iter().map(|chain| {
        let figures = chain.figures.as_ref();
        let range = figures.map_or_else(
            || "n/a".to_owned(),
            |figures| format!("{:.1}–{:.1}", figures.cpp_range.0, figures.cpp_range.1),
        );
        let cur: Vec<_> =
            figures.iter().flat_map(|figures| &figures.cur).map(|cur| format!("{:.0} %", cur * 100.0)).collect();
        vec![
            name(chain),
            known(cpp(chain), 1),
            range,
            known(chain.ipp, 1),
            figures.map_or_else(|| "n/a".to_owned(), |figures| engineering(figures.pps)),
            if cur.is_empty() { "n/a".to_owned() } else { cur.join(", ") },
            format!("{:.1}", chain.paper.chain),
        ]
    });
    blocks.push(Block::Table(Table {
        caption: "Per packet".to_owned(),
        columns: columns(&[
            "chain",
            "ticks",
            "of runs",
            "instructions",
            "packets per second",
            "busy",
            "paper's cycles",
        ]),
        rows: rows.collect(),
    }));
    for chain in &results.chains {
        if let Some(stalls) = chain.figures.as_ref().and_then(|figures| figures.stalls).filter(|stalls| *stalls > 0.001)
        {
            blocks.push(Block::Note(format!(
                "{}: a batch found no room at the second core {} times per packet handed over. The ticks include this \
                 wait.",
                name(chain),
                engineering(stalls)
            )));
        }
        if let Some(why) = &chain.not_run {
            blocks.push(Block::Note(format!("{} was not run: {why}.", name(chain))));
        }
    }
    blocks.push(bars(
        &Bars {
            title: "Run to completion and pipelined".to_owned(),
            label: "ticks per packet here; core cycles per packet in the paper".to_owned(),
            places: results.chains.iter().map(name).collect(),
            groups: vec![
                Group {
                    name: "here (ticks)".to_owned(),
                    values: results.chains.iter().map(cpp).collect(),
                    void: results.chains.iter().map(is_void).collect(),
                },
                Group {
                    name: "the paper (cycles)".to_owned(),
                    values: results.chains.iter().map(|chain| Some(chain.paper.chain)).collect(),
                    ..Group::default()
                },
            ],
            stacked: false,
            ..Bars::default()
        },
        "",
    )?);
    blocks.push(by_function(results));
    blocks.extend(compared(results));
    blocks.push(text(
        "Differences from the paper: every packet of chain A is translated twice. The first translation is on the way \
         out; then a module replies for the far side, and the second translation is on the way back. NAT is the sum of \
         both. The payload fills the shortest frame, and the inspected patterns are synthetic. Packets of chain B flow \
         in one direction only, towards four servers. The paper's chains ran on 18 cores against a hardware tester; \
         these run on one or two cores, with packets that are generated and consumed in memory. They have thousands of \
         sessions, so their tables are small compared to those for the paper's many users.",
    ));
    Ok(Section { title: "Two chains, run to completion and pipelined".to_owned(), blocks })
}

/// Returns the table of the chains' functions: the cost of each here, and the cost in the paper.
fn by_function(results: &LeanResults) -> Block {
    let mut rows = Vec::new();
    for chain in &results.chains {
        let Some(figures) = &chain.figures else { continue };
        let name = |function: &str| format!("{}, {}: {function}", chain.chain, chain.model.name());
        for part in &figures.parts {
            let paper = chain.paper.functions.iter().find(|(name, _)| *name == part.name).map(|(_, cycles)| *cycles);
            rows.push(vec![name(&part.name), known(part.ticks, 1), known(part.instructions, 1), known(paper, 1)]);
        }
        let residue = [figures.residue_ticks, chain.residue_ipp(), None].map(|value| known(value, 1));
        rows.push(std::iter::once(name("(residue)")).chain(residue).collect());
    }
    Block::Table(Table {
        caption: "By function, per packet that entered".to_owned(),
        columns: columns(&["function", "ticks", "instructions", "paper's cycles"]),
        rows,
    })
}

/// Returns the effect of pipelining here and in the paper.
fn compared(results: &LeanResults) -> Vec<Block> {
    let pair = |pair: &[Chain]| {
        let [whole, cut] = pair else { return None };
        let ratio = cut.figures.as_ref()?.cpp_ticks / whole.figures.as_ref()?.cpp_ticks;
        Some(format!(
            "Chain {}: pipelined, a packet takes {ratio:.2} times the ticks of run to completion here, and {:.2} times \
             the cycles in the paper.",
            whole.chain,
            cut.paper.chain / whole.paper.chain
        ))
    };
    results.chains.chunks(2).filter_map(pair).map(Block::Text).collect()
}

/// Returns the section on the memory hierarchy: the cost of handing over, beside the cost of a core's own memory.
fn handover(results: &LeanResults) -> Result<Option<Section>, PlotError> {
    let Some(handover) = &results.handover else { return Ok(None) };
    let all = handover.rows();
    let rows = all.iter().map(|row| {
        let quartiles = |spread: &Spread| format!("{:.1}–{:.1}", spread.quartiles[0], spread.quartiles[1]);
        vec![
            format!("{}, {}: {}", row.cores, row.relation, row.what),
            known(row.ticks.as_ref().map(|spread| spread.median), 1),
            row.ticks.as_ref().map_or_else(|| "n/a".to_owned(), quartiles),
            known(row.paper, 0),
        ]
    });
    let table = Table {
        caption: "Ticks until the data is available".to_owned(),
        columns: columns(&["access", "ticks", "quartiles", "paper's cycles"]),
        rows: rows.collect(),
    };
    let drawn = Bars {
        title: "Hand-over and the memory hierarchy".to_owned(),
        label: "ticks here; core cycles in the paper".to_owned(),
        places: all.iter().map(|row| format!("{}, {}: {}", row.cores, row.relation, row.what)).collect(),
        groups: vec![
            Group {
                name: "here (ticks)".to_owned(),
                values: all.iter().map(|row| row.ticks.as_ref().map(|spread| spread.median)).collect(),
                ..Group::default()
            },
            Group {
                name: "the paper (cycles)".to_owned(),
                values: all.iter().map(|row| row.paper).collect(),
                ..Group::default()
            },
        ],
        stacked: false,
        ..Bars::default()
    };
    let blocks = vec![
        text(
            "A packet that moves to another core takes memory lines with it. The location of these lines decides the \
             cost. The test reads lines one after the other, so that a figure is the time until one line is available. \
             Packets move through the engine's ring in batches of 32, so they share the cost of a batch. A level that \
             this machine does not have is n/a.",
        ),
        bars(&drawn, "")?,
        Block::Table(table),
        Block::Code("forebay measure handover".to_owned()),
    ];
    Ok(Some(Section { title: "Cost of handing over, by the memory hierarchy".to_owned(), blocks }))
}

fn of_usecase(usecase: &UseCase) -> Result<Section, PlotError> {
    let measurement = &usecase.measurement;
    let chain = &measurement.chain;
    let mut blocks = vec![
        text(&format!(
            "{}: {}. {} packets per second.",
            usecase.case.arguments(),
            usecase.summary,
            engineering(chain.entered_pps)
        )),
        Block::Code(format!("forebay measure {}", usecase.case.arguments())),
    ];
    let mut places: Vec<_> = usecase
        .parts
        .iter()
        .map(|part| match part.modules {
            1 => part.name.clone(),
            modules => format!("{} ({modules})", part.name),
        })
        .collect();
    places.push("(residue)".to_owned());
    let values = |figure: fn(&Part) -> Option<f64>, residue| {
        usecase.parts.iter().map(figure).chain([residue]).collect::<Vec<Option<f64>>>()
    };
    let ticks =
        Group { name: "ticks".to_owned(), values: values(|part| part.ticks, chain.residue_ticks), ..Group::default() };
    let counted = usecase.parts.iter().any(|part| part.instructions.is_some());
    let instructions = Group {
        name: "instructions".to_owned(),
        values: values(|part| part.instructions, chain.residue_ipp),
        ..Group::default()
    };
    blocks.push(bars(
        &Bars {
            title: format!("Ticks of a packet by module: {}", usecase.case.name),
            label: "per packet that entered, similar modules added up".to_owned(),
            places,
            groups: if counted { vec![ticks, instructions] } else { vec![ticks] },
            stacked: false,
            ..Bars::default()
        },
        "",
    )?);
    let row = |name: &str, figures: [Option<f64>; 4]| {
        let mut row = vec![name.to_owned()];
        row.extend(figures.map(|figure| known(figure, 1)));
        row
    };
    let mut rows: Vec<_> = measurement
        .modules
        .iter()
        .map(|one| row(&one.name, [one.cpp_ticks, one.ipp, one.instructions_per_tick, one.packets_per_call]))
        .collect();
    rows.push(row("(residue)", [chain.residue_ticks, chain.residue_ipp, None, None]));
    rows.push(row("(all)", [chain.cpp_ticks, chain.ipp, None, None]));
    blocks.push(Block::Table(Table {
        caption: "By module, per packet that it processed".to_owned(),
        columns: columns(&["module", "ticks", "instructions", "per tick", "packets per call"]),
        rows,
    }));
    Ok(Section { title: format!("Use case {}", usecase.case.name), blocks })
}

fn again(results: &LeanResults) -> Section {
    let short = if results.header.short { " --short" } else { "" };
    let blocks = vec![
        Block::Code(format!("forebay lab lean --out DIR{short}")),
        text("results.json, in the same folder, contains all data of this page. The CSV files contain its tables."),
    ];
    Section { title: "How to run it again".to_owned(), blocks }
}
