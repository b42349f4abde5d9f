//! A placement as a picture: domains contain cores, cores contain functions.

use std::collections::BTreeMap;

use forebay_placement::answer::{Answer, CoreAnswer};
use forebay_placement::format::rate;
use forebay_plot::{Cell, Nest, Sort};

/// Number of colours. If there are more chains, several chains have the same colour.
const COLOURS: usize = 7;
/// Maximum length of a line of notes, in characters.
const LETTERS: usize = 104;

/// Draws a placement.
pub(super) fn nest(answer: &Answer) -> Nest {
    let mut sorts = vec![Sort { name: "memory domain".to_owned(), series: 0 }];
    let mut numbers = BTreeMap::new();
    for (at, chain) in answer.chains.iter().enumerate() {
        numbers.insert(chain.chain.as_str(), sorts.len());
        sorts.push(Sort { name: chain.chain.clone(), series: at % (COLOURS - 1) + 1 });
    }
    let core = |core: &CoreAnswer| {
        let names: Vec<_> =
            std::iter::once(format!("core {}", core.core)).chain(core.functions.iter().cloned()).collect();
        let sort = core.chain.as_deref().and_then(|chain| numbers.get(chain)).copied();
        Cell { name: names.join("\n"), sort: sort.unwrap_or(0), void: core.chain.is_none(), parts: Vec::new() }
    };
    let boxes = answer.domains.iter().map(|domain| {
        let node = domain.node.map_or(String::new(), |node| format!(" (node {node})"));
        let interfaces: String = domain.interfaces.iter().map(|name| format!(", {name}")).collect();
        let mut parts: Vec<_> = domain.cores.iter().map(core).collect();
        // Group boxes of one chain; used cores first.
        parts.sort_by_key(|part| (part.void, part.sort));
        Cell { name: format!("domain {}{node}{interfaces}", domain.domain), sort: 0, void: false, parts }
    });
    let mut notes = Vec::new();
    for chain in &answer.chains {
        let [low, high] = chain.interval_95_pps;
        let line =
            format!("{}: {} predicted ({} to {})", chain.chain, rate(chain.predicted_pps), rate(low), rate(high));
        notes.extend(crate::format::wrapped(&line, 2, LETTERS).lines().map(str::to_owned));
    }
    for rejected in &answer.rejected {
        let line = format!("rejected: {}: {}", rejected.chain, rejected.reason);
        notes.extend(crate::format::wrapped(&line, 2, LETTERS).lines().map(str::to_owned));
    }
    let title = format!("{} on {}", answer.name, answer.topology);
    Nest { title, sorts, boxes: boxes.collect(), void: "free core".to_owned(), notes, grid: None }
}
