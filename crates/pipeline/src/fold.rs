//! Finds the modules of different branches that can run as one ([`forebay_graph::Branches`]).
//!
//! The algorithm is the minimization of an automaton, with modules as states. At first, all modules with the same
//! function that may run as one are in one group. Then groups are split until two conditions hold for each group:
//!
//! - All members get their packets from one split module, or from members of one group.
//! - Each gate leads from all members to the same target, or to members of one group.
//!
//! A branch that differs from the other branches is alone in the end, and the other branches still run as one. The flow
//! word, which the split module sets, identifies the branch of a packet at each member.

use std::collections::HashMap;

use forebay_graph::{Placement, Target};
use forebay_protocol::SchedulerKind;

use crate::draft::ModuleDraft;
use crate::language::{Buffer, Fold};

/// The properties that the modules of one group share after a round.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// The group of these modules before the round.
    group: usize,
    /// The group that sends them packets.
    from: usize,
    /// The target of each gate.
    gates: Vec<Next>,
}

/// The target of a gate.
#[derive(PartialEq, Eq, Hash)]
enum Next {
    /// A module of this group.
    Group(usize),
    /// A port, or the end of dropped packets.
    Away(Target),
}

/// Returns the groups of modules that run as one. The groups are in the modules' order, and the members of each group
/// are in the order of branches. `modules` are in topological order. `entries` are the targets of ports.
pub(crate) fn folds(
    modules: &[ModuleDraft],
    entries: &[Option<Target>],
    placement: &Placement,
    scheduler: SchedulerKind,
    fold: Fold,
) -> Vec<Vec<usize>> {
    // Under a scheduler that shares time, each module needs its own share.
    if fold == Fold::Off || scheduler != SchedulerKind::RunToCompletion {
        return Vec::new();
    }
    let mut feeders = vec![Vec::new(); modules.len()];
    for (from, module) in modules.iter().enumerate() {
        for (_, target) in &module.gates {
            if let Target::Module(to) = *target {
                feeders[to].push(from);
            }
        }
    }
    let mut groups = first_groups(modules, entries, placement);
    loop {
        let refined = refine(modules, &feeders, &groups);
        if refined != groups {
            groups = refined;
            continue;
        }
        let classes = classes(&groups);
        let stays = |members: &&Vec<usize>| keep_their_branches(modules, members, &classes, &groups);
        let wrong: Vec<usize> = classes.iter().filter(|members| !stays(members)).flatten().copied().collect();
        if wrong.is_empty() {
            return classes;
        }
        wrong.into_iter().for_each(|module| groups[module] = module);
    }
}

/// Returns the first group of each module, identified by its first member. Modules with the same function, number of
/// gates and workers are in one group. Their parameters may differ: the folded function keeps the parameters of each
/// branch ([`forebay_graph::Declare::FOLD`]). A module is alone if its function does not fold, if it has a buffer of
/// its own, or if a port sends packets to it. Later rounds only compare sources and targets, so every other difference
/// must be checked here.
fn first_groups(modules: &[ModuleDraft], entries: &[Option<Target>], placement: &Placement) -> Vec<usize> {
    let mut known = HashMap::new();
    let group = |(number, module): (usize, &ModuleDraft)| {
        let plain = module.buffer == Buffer::default() && module.kind.folds;
        if !plain || entries.contains(&Some(Target::Module(number))) {
            return number;
        }
        *known.entry((module.kind.name, module.gates.len(), &placement.modules[number])).or_insert(number)
    };
    modules.iter().enumerate().map(group).collect()
}

/// Splits the groups by the sources and the targets of packets. A module that gets packets from several groups, or from
/// none, is alone.
fn refine(modules: &[ModuleDraft], feeders: &[Vec<usize>], groups: &[usize]) -> Vec<usize> {
    let mut known = HashMap::new();
    let group = |(number, module): (usize, &ModuleDraft)| {
        let mut from = feeders[number].iter().map(|feeder| groups[*feeder]);
        let Some(first) = from.next().filter(|first| from.all(|other| other == *first)) else { return number };
        let next = |(_, target): &(String, Target)| match *target {
            Target::Module(next) => Next::Group(groups[next]),
            away => Next::Away(away),
        };
        let key = Key { group: groups[number], from: first, gates: module.gates.iter().map(next).collect() };
        *known.entry(key).or_insert(number)
    };
    modules.iter().enumerate().map(group).collect()
}

/// Returns the groups with more than one member, ordered by their first members.
fn classes(groups: &[usize]) -> Vec<Vec<usize>> {
    let mut members = vec![Vec::new(); groups.len()];
    groups.iter().enumerate().for_each(|(module, group)| members[*group].push(module));
    members.retain(|members| members.len() > 1);
    members
}

/// Returns whether each member with a single gate leads to the member of its own branch in the next group. Otherwise
/// the branch of a packet would be lost there. `members` is one of the `classes`.
fn keep_their_branches(modules: &[ModuleDraft], members: &[usize], classes: &[Vec<usize>], groups: &[usize]) -> bool {
    let next = members.iter().filter_map(|member| match modules[*member].gates[..] {
        [(_, Target::Module(next))] => Some(next),
        _ => None,
    });
    let next: Vec<_> = next.collect();
    let Some(first) = next.first() else { return true };
    match classes.binary_search_by_key(&groups[*first], |members| members[0]) {
        Ok(class) => next == classes[class],
        // All members lead to the same module.
        Err(_) => true,
    }
}
