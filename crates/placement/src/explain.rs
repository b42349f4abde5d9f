//! Computes the cost of moves: for each segment of a chain, the best other domain while all other segments stay.
//!
//! If the other domain has too few free cores, some of its functions are exchanged with the functions of the segment.
//! Functions are exchanged one after the other, each time the function with the lowest cost.

use forebay_models::placement::{Problem, Way};

use crate::answer::SegmentMove;

/// The name of a chain, and the names of the functions on each of its seats. A seat is a core with one function or one
/// copy of the chain.
type SeatNames = (String, Vec<Vec<String>>);

/// Returns, for each chain, the best move of each segment. When the time is over, returns `None` for the remaining
/// chains. The lists are empty if the placement itself misses an objective or has too few cores.
pub(crate) fn explain(
    problem: &Problem,
    placement: &[Way],
    names: &[SeatNames],
    is_over: &dyn Fn() -> bool,
) -> Vec<Option<Vec<SegmentMove>>> {
    let Some(value) = value(problem, placement) else { return vec![Some(Vec::new()); placement.len()] };
    let chain = |(at, way): (usize, &Way)| {
        let segments = segments(way).into_iter();
        segments.map(|seats| segment(problem, placement, names, value, at, seats, is_over)).collect()
    };
    placement.iter().enumerate().map(chain).collect()
}

/// Returns the value of a placement. `None` if a domain has too few cores, or if a chain misses its objectives.
fn value(problem: &Problem, placement: &[Way]) -> Option<f64> {
    let rates = problem.rates(placement).ok()?;
    let chains = problem.chains.iter().zip(rates);
    chains.map(|(chain, (rate, _))| (rate >= chain.least).then(|| chain.value(rate))).sum()
}

/// Returns the segments of a way, each as a range of consecutive functions on one domain. Each copy of a chain is a
/// separate segment.
fn segments(way: &Way) -> Vec<std::ops::Range<usize>> {
    let domains = way.domains();
    let mut all: Vec<std::ops::Range<usize>> = Vec::new();
    for (seat, domain) in domains.iter().enumerate() {
        match all.last_mut() {
            Some(last) if matches!(way, Way::Split(_)) && domains[last.start] == *domain => last.end = seat + 1,
            _ => all.push(seat..seat + 1),
        }
    }
    all
}

/// The index of a chain, and the index of one of its functions or copies.
type Seat = (usize, usize);

/// Changes the domain of one function or copy.
fn set(placement: &mut [Way], (chain, seat): Seat, domain: usize) {
    let (Way::Split(domains) | Way::Whole(domains)) = &mut placement[chain];
    domains[seat] = domain;
}

/// Returns the best move of a segment of `chain`. `before` is the value of the placement. `None` if the time is over.
fn segment(
    problem: &Problem,
    placement: &[Way],
    names: &[SeatNames],
    before: f64,
    chain: usize,
    seats: std::ops::Range<usize>,
    is_over: &dyn Fn() -> bool,
) -> Option<SegmentMove> {
    let from = placement[chain].domains()[seats.start];
    let mut best: Option<(f64, usize, Vec<Seat>)> = None;
    for to in (0..problem.domains.len()).filter(|to| *to != from) {
        let mut moved = placement.to_vec();
        seats.clone().for_each(|seat| set(&mut moved, (chain, seat), to));
        let found = make_room(problem, moved, chain, (from, to), is_over);
        if is_over() {
            return None;
        }
        let Some((after, exchanged)) = found else { continue };
        if best.as_ref().is_none_or(|(most, ..)| after > *most) {
            best = Some((after, to, exchanged));
        }
    }
    let functions = seats.flat_map(|seat| names[chain].1[seat].clone()).collect();
    let name = |(chain, seat): &Seat| {
        let (chain, seats) = &names[*chain];
        format!("{chain}: {}", seats[*seat].join(", "))
    };
    let cost = |after: f64| if before > 0.0 { 100.0 * (before - after) / before } else { 0.0 };
    Some(SegmentMove {
        functions,
        from,
        to: best.as_ref().map(|(_, to, _)| *to),
        exchanged: best.iter().flat_map(|(.., exchanged)| exchanged.iter().map(name)).collect(),
        cost_percent: best.map(|(after, ..)| cost(after)),
    })
}

/// Moves functions of chains other than `own` from the domain `to` to the domain `from` until all functions on `to`
/// have a core. Returns the value of the result and the functions that moved. `None` if there are too few cores, if a
/// chain would miss its objectives, or if the time is over.
fn make_room(
    problem: &Problem,
    mut placement: Vec<Way>,
    own: usize,
    (from, to): (usize, usize),
    is_over: &dyn Fn() -> bool,
) -> Option<(f64, Vec<Seat>)> {
    let used = placement.iter().flat_map(Way::domains).filter(|domain| **domain == to).count();
    let excess = used.saturating_sub(problem.domains[to].cores);
    let mut exchanged = Vec::new();
    // Before the last exchange, more functions are on `to` than there are cores. With a very large number of cores,
    // each intermediate placement has a value.
    let mut roomy = problem.clone();
    roomy.domains.iter_mut().for_each(|domain| domain.cores = usize::MAX / 1024);
    for _ in 0..excess {
        let others = placement.iter().enumerate().filter(|(chain, _)| *chain != own);
        let seats = others.flat_map(|(chain, way)| (0..way.domains().len()).map(move |seat| (chain, seat)));
        let seats: Vec<_> = seats.filter(|(chain, seat)| placement[*chain].domains()[*seat] == to).collect();
        let valued = seats.into_iter().take_while(|_| !is_over()).filter_map(|seat| {
            let mut next = placement.clone();
            set(&mut next, seat, from);
            Some((value(&roomy, &next)?, seat))
        });
        let (_, seat) = valued.max_by(|a, b| a.0.total_cmp(&b.0))?;
        set(&mut placement, seat, from);
        exchanged.push(seat);
    }
    Some((value(problem, &placement)?, exchanged))
}

#[cfg(test)]
mod tests {
    use forebay_models::placement::{Chain, Domain, Function, Limits, Sensitivity, Shape};

    use super::*;

    fn problem(cores: usize) -> (Problem, Vec<SeatNames>) {
        let limits = Limits { cache: 4.0, memory: 8.0, link: 4.0 };
        let drop = Sensitivity { cache: 0.2, memory: 0.2, constant: 0.0 };
        let function = Function { rates: vec![4e6, 3e6], metric: 1.0, local: drop, remote: drop, shape: Shape::Linear };
        let chain =
            Chain { functions: vec![function; 2], home: 0, rate: f64::INFINITY, weight: 1.0, least: 0.0, copies: 0 };
        let domain = |class| Domain { cores, class, limits };
        let names = |name: &str| (name.to_owned(), vec![vec!["a".to_owned()], vec!["b".to_owned()]]);
        let problem = Problem { domains: vec![domain(0), domain(1)], chains: vec![chain; 2] };
        (problem, vec![names("x"), names("y")])
    }

    fn explained(problem: &Problem, placement: &[Way], names: &[SeatNames]) -> Vec<Vec<SegmentMove>> {
        explain(problem, placement, names, &|| false).into_iter().map(|moves| moves.expect("time enough")).collect()
    }

    #[test]
    fn moves_that_are_not_explained_in_time_are_left_out() {
        let (problem, names) = problem(4);
        let placement = vec![Way::Split(vec![0, 0]), Way::Split(vec![0, 1])];
        let looks = std::cell::Cell::new(0);
        let is_over = || looks.replace(looks.get() + 1) > 0;
        let explained = explain(&problem, &placement, &names, &is_over);
        assert_eq!(explained.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_move_costs_what_the_chains_lose() {
        let (problem, names) = problem(4);
        let placement = vec![Way::Split(vec![0, 0]), Way::Split(vec![0, 1])];
        let moves = explained(&problem, &placement, &names);
        assert_eq!(moves[1].len(), 2);
        let first = &moves[0][0];
        assert_eq!((first.from, first.to, first.functions.len(), first.exchanged.len()), (0, Some(1), 2, 0));
        let after = vec![Way::Split(vec![1, 1]), Way::Split(vec![0, 1])];
        let sum = |placement: &[Way]| value(&problem, placement).expect("it fits");
        let cost = 100.0 * (1.0 - sum(&after) / sum(&placement));
        assert!((first.cost_percent.expect("a cost") - cost).abs() < 1e-9, "{first:?} {cost}");
    }

    #[test]
    fn functions_change_places_where_no_core_is_free() {
        let (problem, names) = problem(2);
        let placement = vec![Way::Split(vec![0, 0]), Way::Split(vec![1, 1])];
        let moves = explained(&problem, &placement, &names);
        assert_eq!(moves[0][0].exchanged, ["y: b", "y: a"].map(str::to_owned).into_iter().collect::<Vec<_>>());
        // Both chains are equal, so the exchange costs nothing.
        assert!(moves[0][0].cost_percent.expect("a cost").abs() < 1e-9, "{moves:?}");
    }

    #[test]
    fn a_single_domain_has_no_other() {
        let (mut problem, names) = problem(4);
        problem.domains.truncate(1);
        let placement = vec![Way::Split(vec![0, 0]), Way::Split(vec![0, 0])];
        let moves = explained(&problem, &placement, &names);
        assert_eq!((moves[0][0].to, moves[0][0].cost_percent), (None, None));
    }
}
