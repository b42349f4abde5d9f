//! The report: what was found, beside what the paper found, and what is different.

mod load;

use forebay_lean::handover::Spread;
use forebay_plot::{Bars, Block, Group, Page, PlotError, Section, Table, engineering};

use super::{Chain, Results, UseCase};
use crate::blocks::{bars, columns, figure, known, text};
use crate::trial::Part;

/// The page's text.
pub(super) fn page(results: &Results) -> Result<String, PlotError> {
    let mut sections = vec![chains(results)?];
    sections.extend(handover(results)?);
    sections.push(load::section(&results.load)?);
    for usecase in &results.usecases {
        sections.push(of_usecase(usecase)?);
    }
    sections.extend([machine(results), again(results)]);
    Ok(Page { title: "Lean measurement on this machine".to_owned(), head: head(results), sections }.html())
}

fn head(results: &Results) -> Vec<Block> {
    let mut head = vec![text(
        "What a packet costs here, in ticks of the time-stamp counter and in instructions, beside the figures of “NFV \
         Acceleration via Lean Measurements” (NALM, IEEE/ACM Transactions on Networking, 2023).",
    )];
    if results.header.short {
        let note = "This is a short run: few and short measurements, to see what there is. Do not rely on its figures. \
                    Instructions of use cases are left out.";
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
            "Something else ran on the machine. These runs are void, after up to two attempts more: do not rely on their ticks, \
             rates and utilisation. {}.",
            void.join("; ")
        )));
    }
    head
}

/// The runs that are void.
pub(super) fn void(results: &Results) -> Vec<String> {
    let mut all = Vec::new();
    for chain in &results.chains {
        if let Some(figures) = chain.figures.as_ref().filter(|figures| figures.void > 0) {
            let (some, of) = (figures.void, figures.runs);
            all.push(format!("chain {} {} ({some} of {of} runs)", chain.chain, chain.model.name()));
        }
    }
    let points = results.load.points.iter().filter(|point| point.void);
    all.extend(points.map(|point| format!("load at {} %", engineering(point.share * 100.0))));
    all.extend(results.usecases.iter().filter(|told| told.measurement.chain.void).map(|told| told.case.told()));
    all
}

fn machine(results: &Results) -> Section {
    let machine = &results.machine;
    let set = results.usecases.iter().find_map(|told| told.measurement.instruction_set.clone());
    let mut facts = machine.facts();
    let tick =
        format!("{:.3} ns: the time-stamp counter runs at {} GHz", 1.0 / machine.cpu.tsc_ghz, machine.cpu.tsc_ghz);
    facts.extend([
        ("A tick is".to_owned(), tick),
        ("Instruction set counted".to_owned(), set.unwrap_or_else(|| "n/a".to_owned())),
    ]);
    facts.extend(results.header.facts());
    let origin = "Ticks, rates and utilisation are measured, on this machine's clock, while pipelines run on cores of their own. \
         Instructions are emulated: counted under valgrind's callgrind, in simulated time, on the same input each time; they are \
         the same in every run. Nothing is modelled. A tick is no core cycle: the core has a clock of its own, so that the paper's \
         cycles can be compared in their proportions only.";
    let rule = "Where two readings of the clock within a turn are further apart than work can be, the machine was elsewhere: \
         such stretches count for nothing, and a run is void where they are more than a tenth of it (docs/measure.md). It is \
         made again, twice at most, and the least disturbed one counts. Chains are run several times in turn; their figures are \
         medians of the runs that are not void.";
    Section {
        title: "The machine, and where figures come from".to_owned(),
        blocks: vec![Block::Facts(facts), text(origin), text(rule)],
    }
}

fn chains(results: &Results) -> Result<Section, PlotError> {
    let mut blocks = vec![text(
        "Chain A is NAT, deep packet inspection and L3 forwarding; chain B is access control, an L4 load balancer and L3 \
         forwarding. Run to completion a core does all of it for a packet; pipelined, a first core hands packets over to a second. \
         The second core has L3 forwarding. Pipelined figures are ticks of both cores' busy turns.",
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
        columns: columns(&["chain", "ticks", "of runs", "instructions", "packets a second", "busy", "paper's cycles"]),
        rows: rows.collect(),
    }));
    for chain in &results.chains {
        if let Some(stalls) = chain.figures.as_ref().and_then(|figures| figures.stalls).filter(|stalls| *stalls > 0.001)
        {
            blocks.push(Block::Note(format!(
                "{}: a batch found no room at the second core {} times per packet handed over; its ticks include waiting for it.",
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
            label: "ticks a packet here; core cycles a packet in the paper".to_owned(),
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
        "What is different from the paper: every packet of chain A is translated twice, on its way out and, answered by a module \
         that stands for the far side, on its way back, and NAT is both; its payload is as long as the shortest frame has room \
         for, and inspected for patterns that are made up; packets of chain B are followed one way alone, towards four servers; \
         the paper's chains ran on 18 cores against a hardware tester, these on one or two with packets made and ended in memory, \
         and with thousands of sessions, whose tables are small beside those of its many users.",
    ));
    Ok(Section { title: "Two chains, run to completion and pipelined".to_owned(), blocks })
}

/// The chains' functions beside the paper's.
fn by_function(results: &Results) -> Block {
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

/// What pipelining does here and in the paper.
fn compared(results: &Results) -> Vec<Block> {
    let pair = |pair: &[Chain]| {
        let [whole, cut] = pair else { return None };
        let ratio = cut.figures.as_ref()?.cpp_ticks / whole.figures.as_ref()?.cpp_ticks;
        Some(format!(
            "Chain {}: pipelined a packet takes {ratio:.2} times the ticks of run to completion here, {:.2} times the cycles in \
             the paper.",
            whole.chain,
            cut.paper.chain / whole.paper.chain
        ))
    };
    results.chains.chunks(2).filter_map(pair).map(Block::Text).collect()
}

/// The memory hierarchy: what handing over takes, and a core's own memory beside it.
fn handover(results: &Results) -> Result<Option<Section>, PlotError> {
    let Some(told) = &results.handover else { return Ok(None) };
    let all = told.rows();
    let rows = all.iter().map(|row| {
        let quartiles = |told: &Spread| format!("{:.1}–{:.1}", told.quartiles[0], told.quartiles[1]);
        vec![
            format!("{}, {}: {}", row.cores, row.relation, row.what),
            known(row.ticks.as_ref().map(|told| told.median), 1),
            row.ticks.as_ref().map_or_else(|| "n/a".to_owned(), quartiles),
            known(row.paper, 0),
        ]
    });
    let table = Table {
        caption: "Ticks until it is there".to_owned(),
        columns: columns(&["what", "ticks", "quartiles", "paper's cycles"]),
        rows: rows.collect(),
    };
    let drawn = Bars {
        title: "Hand-over and the memory hierarchy".to_owned(),
        label: "ticks here; core cycles in the paper".to_owned(),
        places: all.iter().map(|row| format!("{}, {}: {}", row.cores, row.relation, row.what)).collect(),
        groups: vec![
            Group {
                name: "here (ticks)".to_owned(),
                values: all.iter().map(|row| row.ticks.as_ref().map(|told| told.median)).collect(),
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
            "A packet that goes to another core takes lines of memory with it, and where these lie decides what it costs. Lines \
             are read one after the other, so that a figure is the time until a line is there; packets go in batches of 32 \
             through the engine's ring, so that they share what a batch costs. What this machine has not is n/a.",
        ),
        bars(&drawn, "")?,
        Block::Table(table),
        Block::Code("forebay measure handover".to_owned()),
    ];
    Ok(Some(Section { title: "What handing over costs, and where memory lies".to_owned(), blocks }))
}

fn of_usecase(told: &UseCase) -> Result<Section, PlotError> {
    let measurement = &told.measurement;
    let chain = &measurement.chain;
    let mut blocks = vec![
        text(&format!("{}: {}. {} packets a second.", told.case.told(), told.summary, engineering(chain.entered_pps))),
        Block::Code(format!("forebay measure {}", told.case.told())),
    ];
    let mut places: Vec<_> = told
        .parts
        .iter()
        .map(|part| match part.modules {
            1 => part.name.clone(),
            modules => format!("{} ({modules})", part.name),
        })
        .collect();
    places.push("(residue)".to_owned());
    let values = |figure: fn(&Part) -> Option<f64>, residue| {
        told.parts.iter().map(figure).chain([residue]).collect::<Vec<Option<f64>>>()
    };
    let ticks =
        Group { name: "ticks".to_owned(), values: values(|part| part.ticks, chain.residue_ticks), ..Group::default() };
    let counted = told.parts.iter().any(|part| part.instructions.is_some());
    let instructions = Group {
        name: "instructions".to_owned(),
        values: values(|part| part.instructions, chain.residue_ipp),
        ..Group::default()
    };
    blocks.push(bars(
        &Bars {
            title: format!("Where a packet's ticks go: {}", told.case.name),
            label: "per packet that entered, alike modules together".to_owned(),
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
        .map(|told| row(&told.name, [told.cpp_ticks, told.ipp, told.instructions_per_tick, told.packets_per_call]))
        .collect();
    rows.push(row("(residue)", [chain.residue_ticks, chain.residue_ipp, None, None]));
    rows.push(row("(all)", [chain.cpp_ticks, chain.ipp, None, None]));
    blocks.push(Block::Table(Table {
        caption: "By module, per packet that it had".to_owned(),
        columns: columns(&["module", "ticks", "instructions", "per tick", "packets a call"]),
        rows,
    }));
    Ok(Section { title: format!("Use case {}", told.case.name), blocks })
}

fn again(results: &Results) -> Section {
    let short = if results.header.short { " --short" } else { "" };
    let blocks = vec![
        Block::Code(format!("forebay lab lean --out DIR{short}")),
        text("results.json, beside this page, has everything that is shown here; the CSV files have its tables."),
    ];
    Section { title: "How to run it again".to_owned(), blocks }
}
