//! A placement as text, 80 columns wide: the cores of each domain, the chains' rates, and their limits.

use std::fmt::Write;

use forebay_placement::answer::{
    Answer, AppliedPlacement, Binding, ChainAnswer, ChainForm, ContentionPlace, DomainAnswer, SegmentMove,
};
use forebay_placement::format::rate;
use forebay_units::wording;

use crate::format::{Align, counted, table, whole, wrapped};
use crate::graph::cut;

/// Maximum width of a line, in columns.
const WIDTH: usize = 80;
/// Maximum number of free cores that are listed one by one.
const MOST_FREE: usize = 8;

/// Writes a placement as text. `applies` is true with `--apply`.
pub(super) fn text(answer: &Answer, applies: bool) -> String {
    let mut out = String::new();
    if applies && answer.applied.is_none() {
        paragraph(&mut out, "Not applied, because chains do not fit. Nothing has moved. The placement would be:");
        out.push('\n');
    }
    out.push_str(&head(answer));
    for domain in &answer.domains {
        out.push('\n');
        out.push_str(&of_domain(domain));
    }
    if !answer.chains.is_empty() {
        out.push('\n');
        out.push_str(&rates(answer));
        out.push('\n');
        for chain in &answer.chains {
            paragraph(&mut out, &binds(chain));
        }
    }
    let moves: Vec<_> =
        answer.chains.iter().flat_map(|chain| chain.moves.iter().flatten().map(move |it| (chain, it))).collect();
    if answer.domains.len() == 1 && !moves.is_empty() {
        out.push_str("\nThere is one domain: no move between domains is possible.\n");
    } else if !moves.is_empty() {
        out.push('\n');
        moves.into_iter().for_each(|(chain, segment)| paragraph(&mut out, &explained(chain, segment)));
    }
    if let Some(coupled) = &answer.coupled {
        let residual = coupled.residual.map_or("unknown".to_owned(), |residual| format!("{residual:.1e}"));
        let rounds = coupled.rounds;
        out.push('\n');
        paragraph(
            &mut out,
            &if coupled.converged {
                format!(
                    "For column `coupled`, rates and contention were solved together ({rounds} rounds, residual \
                     {residual}). The proof above applies only to the fixed-rate model."
                )
            } else {
                format!(
                    "Rates and contention together did not converge in {rounds} rounds (residual {residual}): the \
                     column `coupled` has the rates of the last round."
                )
            },
        );
    }
    if let Some(moved) = answer.moved.as_ref().filter(|_| answer.applied.is_none()) {
        out.push('\n');
        let within = answer.moved_within.unwrap_or(0) as u64;
        if moved.is_empty() && within == 0 {
            paragraph(&mut out, "No function moves.");
        }
        if within > 0 {
            let who = if within == 1 { "function or copy moves" } else { "functions or copies move" };
            paragraph(&mut out, &format!("{} {who} to another core of the same domain.", whole(within)));
        }
        let domain_name =
            |domain: Option<usize>| domain.map_or("nowhere".to_owned(), |domain| format!("domain {domain}"));
        for moved in moved {
            let functions = moved.functions.join(", ");
            let (from, to) = (domain_name(moved.from), domain_name(moved.to));
            paragraph(&mut out, &format!("moves: {}: {functions}: from {from} to {to}", moved.chain));
        }
    }
    if let Some(applied) = &answer.applied {
        out.push('\n');
        paragraph(&mut out, &outcome(applied));
        for moved in &applied.moved {
            let cores = |cores: &[usize]| cores.iter().map(usize::to_string).collect::<Vec<_>>().join(" and ");
            let plural = if moved.from.len() == 1 { "" } else { "s" };
            let (from, to) = (cores(&moved.from), cores(&moved.to));
            paragraph(&mut out, &format!("moved: {} from core{plural} {from} to {to}", moved.module));
        }
    }
    if !answer.rejected.is_empty() || !answer.notes.is_empty() {
        out.push('\n');
    }
    for rejected in &answer.rejected {
        paragraph(&mut out, &format!("rejected: {}: {}", rejected.chain, rejected.reason));
    }
    for note in &answer.notes {
        paragraph(&mut out, &format!("note: {note}"));
    }
    out
}

/// Formats the result of `--apply`.
fn outcome(applied: &AppliedPlacement) -> String {
    match (applied.moved.len() as u64, applied.missing) {
        (0, _) => "Applied: all modules were already on their cores.".to_owned(),
        (count, 0) => {
            let modules = counted(count, "module");
            format!("Applied: {modules} moved; packets waited for {:.0} us, and none was lost.", applied.pause_us)
        }
        (_, missing) => {
            let packets = wording::counted(missing, "packet");
            format!("Applied: {packets} unaccounted for: this is a defect of Forebay.")
        }
    }
}

/// Adds a text, wrapped at [`WIDTH`]. All lines but the first are indented.
fn paragraph(out: &mut String, text: &str) {
    for line in wrapped(text, 2, WIDTH).lines() {
        out.push_str(&cut(line, WIDTH));
        out.push('\n');
    }
}

/// Names the chains whose rates are served.
fn chains_served(answer: &Answer) -> &'static str {
    if answer.rejected.is_empty() { "all chains" } else { "the chains that are placed" }
}

/// Formats the first lines: the used cores, the value of the placement, its proof, and the origin of the models.
fn head(answer: &Answer) -> String {
    let mut out = String::new();
    let models = &answer.models;
    paragraph(
        &mut out,
        &format!(
            "{} on {}: {} of {} in use, {}",
            counted(answer.chains.len() as u64, "chain"),
            answer.topology,
            answer.cores_used,
            counted(answer.cores_usable as u64, "core"),
            match answer.objective {
                "cores" => format!("for the rates of {}; search `{}`", chains_served(answer), answer.search),
                "sum" => format!("{} predicted in all; search `{}`", rate(answer.value), answer.search),
                _ => format!("{} served by weight; search `{}`", rate(answer.value), answer.search),
            },
        ),
    );
    let cores = answer.objective == "cores";
    let shown = |value: f64| if cores { counted(value as u64, "core") } else { rate(value) };
    let proof = match (answer.bound, answer.gap) {
        _ if answer.chains.is_empty() => String::new(),
        (Some(_), Some(0.0)) if cores => {
            format!("Proved: no placement serves the rates of {} with fewer cores.", chains_served(answer))
        }
        (Some(_), Some(0.0)) => "Proved: no placement is worth more.".to_owned(),
        (Some(bound), Some(gap)) if cores => {
            format!("At least {} are needed, {:.1} % fewer.", shown(bound), 100.0 * gap)
        }
        (Some(bound), Some(gap)) => format!(
            "No placement is worth more than {}, so this one is within {:.1} % of the best.",
            shown(bound),
            100.0 * gap
        ),
        _ => "This search proves nothing about better placements.".to_owned(),
    };
    if !proof.is_empty() {
        paragraph(&mut out, &proof);
    }
    let origin = serde_json::to_value(models.origin).ok().and_then(|name| name.as_str().map(str::to_owned));
    paragraph(&mut out, &format!("Models: {}, {}, by {}", origin.unwrap_or_default(), models.cpu, models.metric));
    out
}

/// Formats a domain: a line for each used core, and a line for the free cores.
fn of_domain(domain: &DomainAnswer) -> String {
    let free: Vec<_> = domain.cores.iter().filter(|core| core.chain.is_none()).map(|core| core.core).collect();
    let node = domain.node.map_or("node unknown".to_owned(), |node| format!("node {node}"));
    let interfaces = domain.interfaces.iter().map(|name| format!(", {name}")).collect::<String>();
    let mut out = String::new();
    paragraph(&mut out, &format!("domain {} ({node}{interfaces})", domain.domain));
    let used = domain.cores.iter().filter_map(|core| Some((core.core, core.chain.as_ref()?, &core.functions)));
    let width = domain.cores.iter().map(|core| core.core.to_string().len()).max().unwrap_or(1);
    for (core, chain, functions) in used {
        let line = format!("  core {core:>width$}  {chain}: {}", functions.join(", "));
        let _ = writeln!(out, "{}", cut(&line, WIDTH));
    }
    if free.is_empty() {
        return out;
    }
    let named = if free.len() > MOST_FREE {
        format!("{} free", counted(free.len() as u64, "core"))
    } else {
        let names: Vec<_> = free.iter().map(usize::to_string).collect();
        format!("free: {}", names.join(", "))
    };
    let _ = writeln!(out, "  {named}");
    out
}

/// Formats the table of the chains with their predicted rates. The column `coupled` exists only if rates and contention
/// were also solved together (`--rate-coupled`).
fn rates(answer: &Answer) -> String {
    let coupled = answer.coupled.is_some();
    let mut columns =
        vec![("chain", Align::Left), ("comes", Align::Right), ("predicted", Align::Right), ("95 %", Align::Left)];
    if coupled {
        columns.push(("coupled", Align::Right));
    }
    columns.push(("home", Align::Right));
    columns.push(("runs", Align::Left));
    let row = |chain: &ChainAnswer| {
        let [low, high] = chain.interval_95_pps;
        let mut row = vec![
            cut(&chain.chain, 20),
            chain.rate_pps.map_or("any".to_owned(), rate),
            rate(chain.predicted_pps),
            between(low, high),
        ];
        if coupled {
            row.push(chain.coupled_pps.map_or("n/a".to_owned(), rate));
        }
        row.push(chain.home.to_string());
        row.push(match chain.form {
            ChainForm::Pipelined => "pipelined".to_owned(),
            ChainForm::Fused if chain.seats.len() == 1 => "fused".to_owned(),
            ChainForm::Fused => format!("fused ×{}", chain.seats.len()),
        });
        row
    };
    let rows: Vec<_> = answer.chains.iter().map(row).collect();
    table(&columns, &rows).lines().map(|line| cut(line, WIDTH) + "\n").collect()
}

/// Formats an interval. If both ends have the same unit, the unit is written once.
fn between(low: f64, high: f64) -> String {
    let (low, high) = (rate(low), rate(high));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

/// Explains which function limits the rate of a chain, and why.
fn binds(chain: &ChainAnswer) -> String {
    let Binding { function, drop, place, domain, share } = &chain.binds;
    let taken = match place {
        None => "as fast as alone".to_owned(),
        Some(place) => {
            let name = match place {
                ContentionPlace::Cache => {
                    format!(
                        "contention for the last-level cache of domain {domain} takes {:.1} % of the solo rate",
                        100.0 * share
                    )
                }
                ContentionPlace::Memory => {
                    format!(
                        "contention for the memory of domain {domain} takes {:.1} % of the solo rate",
                        100.0 * share
                    )
                }
                ContentionPlace::Link => {
                    format!("contention for the link of domain {domain} takes {:.1} % of the solo rate", 100.0 * share)
                }
                ContentionPlace::Constant => {
                    format!("the model's constant takes {:.1} % of the solo rate", 100.0 * share)
                }
            };
            format!("{:.1} % slower than alone: {name}", 100.0 * drop)
        }
    };
    let missed = match chain.least_pps {
        Some(least) if !chain.keeps_objective => format!(". It misses its objectives, which need {}", rate(least)),
        _ => String::new(),
    };
    let enough = chain.rate_pps.is_some_and(|offered| chain.predicted_pps >= offered);
    let short = match chain.rate_pps {
        Some(offered) if !enough => {
            format!(". It falls short by {} of {}", rate(offered - chain.predicted_pps), rate(offered))
        }
        Some(offered) if chain.interval_95_pps[0] < offered => {
            format!(
                ". It may fall short: its interval begins at {} of {}",
                rate(chain.interval_95_pps[0]),
                rate(offered)
            )
        }
        _ => String::new(),
    };
    let serves = if enough { "forwards all packets; slowest is" } else { "is limited by" };
    format!("{} {serves} {function}: {taken}{short}{missed}", chain.chain)
}

/// Explains the cost of moving functions of a chain to another domain.
fn explained(chain: &ChainAnswer, segment: &SegmentMove) -> String {
    let functions = if segment.functions.len() == chain.functions.len() {
        "the whole chain".to_owned()
    } else {
        segment.functions.join(", ")
    };
    let start = format!("{}: {functions} on domain {}", chain.chain, segment.from);
    match (segment.to, segment.cost_percent) {
        (Some(to), Some(cost)) => {
            let exchanged = if segment.exchanged.is_empty() {
                String::new()
            } else {
                format!(", in exchange for {}", segment.exchanged.join("; "))
            };
            let cost = if cost.abs() < 0.05 {
                "costs nothing".to_owned()
            } else if cost < 0.0 {
                format!("gains {:.1} %", -cost)
            } else {
                format!("costs {cost:.1} %")
            };
            format!("{start}: moving it to domain {to}{exchanged} {cost}")
        }
        _ => format!("{start}: no other domain can take it"),
    }
}
