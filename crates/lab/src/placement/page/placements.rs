//! The sections on Fig. 2, 8 and 9: placements, their gain, and the time of the search.

use forebay_plot::{Axis, Bars, Block, Figure, Group, Layer, PlotError, Section, Table};

use super::{METHODS, millions, percent};
use crate::blocks::{bars, columns, figure, known, text};
use crate::placement::{Gain, Order, Searched, order, search};

/// Returns the section on Fig. 2.
pub(super) fn order(rows: &[Order]) -> Result<Section, PlotError> {
    let drawn = Bars {
        title: "Router → NIDS alone on the server".to_owned(),
        label: "million packets per second".to_owned(),
        places: rows.iter().map(|row| row.name.clone()).collect(),
        groups: vec![
            Group {
                name: "simulated".to_owned(),
                values: rows.iter().map(|row| Some(row.simulated_pps / 1e6)).collect(),
                ..Group::default()
            },
            Group {
                name: "predicted".to_owned(),
                values: rows.iter().map(|row| Some(row.predicted_pps / 1e6)).collect(),
                ..Group::default()
            },
        ],
        ..Bars::default()
    };
    let table = Table {
        caption: "Simulated".to_owned(),
        columns: columns(&["placement", "Mpps", "below the best", "router alone, Mpps", "NIDS alone, Mpps"]),
        rows: rows
            .iter()
            .map(|row| {
                vec![
                    row.name.clone(),
                    millions(row.simulated_pps),
                    percent(row.below_best),
                    millions(row.functions_pps[0]),
                    millions(row.functions_pps[1]),
                ]
            })
            .collect(),
    };
    let word = format!(
        "The paper's worst placement carries {} less than its best. The simulated server is calibrated to that figure: \
         the latency of the link, the lines of a packet's descriptor and the parameters of three functions were chosen \
         to reproduce it. They do not determine which placement is the worst, or what the others carry.",
        percent(order::PAPER)
    );
    let blocks = vec![
        text(&word),
        bars(&drawn, "The router drops packets that the NIDS has no time for.")?,
        Block::Table(table),
    ];
    Ok(Section { title: "Placement of router → NIDS (Fig. 2)".to_owned(), blocks })
}

/// Returns the section on Fig. 8.
pub(super) fn gain(sets: &[Gain]) -> Result<Section, PlotError> {
    let group = |method: &&str| Group {
        name: (*method).to_owned(),
        values: sets.iter().map(|set| Some(set.of(method)?.simulated_pps / set.of("exact")?.simulated_pps)).collect(),
        ..Group::default()
    };
    let drawn = Bars {
        title: "Packets per second of six sets of chains".to_owned(),
        label: "relative to those of exact, simulated".to_owned(),
        places: sets.iter().map(|set| format!("set {}", set.set)).collect(),
        groups: METHODS.iter().map(group).collect(),
        ..Bars::default()
    };
    let row = |set: &Gain| {
        let mut row = vec![format!("{}: ({})", set.set, set.chains.join("); ("))];
        for method in METHODS {
            let of = set.of(method);
            row.push(of.map_or_else(
                || "n/a".to_owned(),
                |of| [of.predicted_pps, of.simulated_pps, of.held_pps].map(millions).join(" / "),
            ));
        }
        row
    };
    let mut heads = vec!["set"];
    heads.extend(METHODS);
    let holds = |value: fn(&crate::placement::Method) -> f64| {
        let of = |set: &Gain, method: &str| set.of(method).map_or(f64::NAN, value);
        let orders = |set: &&Gain| {
            let [exact, octans, balancing, first] =
                ["exact", "octans", "node-balancing", "node-first"].map(|name| of(set, name));
            let same = 1.0 + 1e-9;
            exact * same >= octans && octans * same >= balancing && octans * same >= first
        };
        sets.iter().filter(orders).count()
    };
    let word = format!(
        "exact ≥ octans ≥ node-balancing and node-first holds in {} of {} sets as predicted, in {} as simulated, and \
         in {} if functions are held back to the rate of the slowest function of their chain. All optima are proved: \
         the largest certified gap is {}. Methods choose by the models; the simulator then gives the rate of their \
         placements. The paper: octans gains 51.8 % over node-balancing (37.4 % to 66.3 %) and 26.7 % over node-first \
         (6.2 % to 45.1 %). The gain depends on how much functions lose on the other domain and beside each other, \
         that is, on the parameters in the section on models, which the paper does not state.",
        holds(|method| method.predicted_pps),
        sets.len(),
        holds(|method| method.simulated_pps),
        holds(|method| method.held_pps),
        percent(sets.iter().map(|set| set.gap).fold(0.0, f64::max)),
    );
    let table = Table {
        caption: "Million packets per second: predicted / simulated / simulated, held back".to_owned(),
        columns: columns(&heads),
        rows: sets.iter().map(row).collect(),
    };
    let mut placements = Vec::new();
    for set in sets {
        for method in &set.methods {
            if !method.domains.is_empty() {
                let chains = method.domains.iter().map(|chain| {
                    chain.iter().map(|domain| if *domain == 0 { "l" } else { "r" }).collect::<Vec<_>>().join("")
                });
                placements
                    .push(vec![format!("set {}, {}", set.set, method.method), chains.collect::<Vec<_>>().join(" · ")]);
            }
        }
    }
    let placements = Table {
        caption: "Placements: each function local (l) or remote (r)".to_owned(),
        columns: columns(&["", "by chain"]),
        rows: placements,
    };
    let blocks = vec![
        text(&word),
        bars(&drawn, "Simulated; random is the mean of many placements.")?,
        Block::Table(table),
        Block::Table(placements),
    ];
    Ok(Section { title: "Gain over other placements (Fig. 8)".to_owned(), blocks })
}

/// Returns the section on Fig. 9.
pub(super) fn search(rows: &[Searched]) -> Result<Section, PlotError> {
    let mut blocks = vec![text(
        "Chains of three functions on domains of ten cores, as in the paper, with functions drawn from all eight. \
         exact proves its result. octans is the paper's heuristic. Enumeration examines every placement, and is left \
         out if it would take too long.",
    )];
    for (domains, heuristic, enumeration) in search::PAPER_MS {
        let rows: Vec<_> = rows.iter().filter(|row| row.domains == domains).collect();
        if rows.is_empty() {
            continue;
        }
        let line = |name: &str, of: &dyn Fn(&Searched) -> Option<f64>| Layer::Line {
            name: name.to_owned(),
            points: rows.iter().filter_map(|row| Some((row.chains as f64, of(row)?.max(1e-4)))).collect(),
        };
        let drawn = Figure::new(
            &format!("Time of a search, {domains} domains"),
            Axis::new("chains of three functions"),
            Axis::new("milliseconds, median").log(),
        )
        .with(line("exact", &|row| Some(row.exact_ms[0])))
        .with(line("octans", &|row| Some(row.octans_ms[0])))
        .with(line("enumeration", &|row| row.brute_force_ms.map(|ms| ms[0])))
        .with(Layer::Points {
            name: "the paper: octans, enumeration".to_owned(),
            points: vec![(6.0, heuristic), (6.0, enumeration)],
        });
        blocks.push(figure(&drawn, "Measured on this machine, one thread. The paper's Octans is written in Python.")?);
    }
    let quality = Figure::new(
        "Share of instances in which octans finds a best placement (Fig. 9c)",
        Axis::new("chains of three functions"),
        Axis::new("% of instances").between(0.0, 100.0),
    );
    let quality = [2, 4].into_iter().fold(quality, |drawn, domains| {
        let of = rows.iter().filter(|row| row.domains == domains);
        let points: Vec<_> = of.map(|row| (row.chains as f64, row.octans_optimal * 100.0)).collect();
        if points.is_empty() { drawn } else { drawn.with(Layer::Line { name: format!("{domains} domains"), points }) }
    });
    blocks.push(figure(
        &quality,
        "The paper: 58 % to 70 % on 2 domains. exact is proved to be optimal where its gap is 0.",
    )?);
    let row = |row: &Searched| {
        let ms = |ms: [f64; 2]| format!("{:.3} / {:.3}", ms[0], ms[1]);
        vec![
            format!("{} × 10, {} × 3", row.domains, row.chains),
            row.instances.to_string(),
            ms(row.exact_ms),
            format!("{:.0} / {:.0}", row.nodes[0], row.nodes[1]),
            percent(row.gap),
            ms(row.octans_ms),
            format!("{} of {}", percent(row.octans_optimal), row.octans_instances),
            row.octans_gap.map_or_else(|| "n/a".to_owned(), percent),
            row.brute_force_ms.map_or_else(|| "n/a".to_owned(), |ms| known(Some(ms[0]), 1)),
            format!("{} of {}", row.enumerated[1], row.enumerated[0]),
        ]
    };
    blocks.push(Block::Table(Table {
        caption: "Milliseconds and nodes: median / maximum".to_owned(),
        columns: columns(&[
            "cores, functions",
            "instances",
            "exact, ms",
            "nodes",
            "gap, maximum",
            "octans, ms",
            "octans optimal",
            "octans below",
            "enumeration, ms",
            "exact = enumeration",
        ]),
        rows: rows.iter().map(row).collect(),
    }));
    Ok(Section { title: "Time and quality of the search (Fig. 9)".to_owned(), blocks })
}
