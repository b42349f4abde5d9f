//! Which modules of branches can run as one ([`forebay_graph::Branches`]).
//!
//! Modules are grouped as states of an automaton are when it is made smallest: at first all of one kind with nothing told of them
//! that would be theirs alone; then groups are parted, until in each all get their packets from one split, or from members of one
//! group, and go on alike: each gate leads all of them to one place, or to members of one group. So a branch that is not like the
//! others is by itself, and the others still run as one. The flow word, which a split sets, then says at any member which branch
//! a packet is in.

use std::collections::HashMap;

use forebay_graph::{Placement, Target};
use forebay_protocol::SchedulerKind;

use crate::compile::ModuleDraft;
use crate::language::{Buffer, Fold};

/// What modules of one group have in common after a round.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// Their group before it.
    group: usize,
    /// The group that their packets come from.
    from: usize,
    /// Where each gate leads.
    gates: Vec<Next>,
}

/// Where a gate leads.
#[derive(PartialEq, Eq, Hash)]
enum Next {
    Group(usize),
    Away(Target),
}

/// The folds, in the modules' order: by branch. `modules` are in topological order, `entries` lists what ports lead to.
pub(crate) fn folds(
    modules: &[ModuleDraft],
    entries: &[Option<Target>],
    placement: &Placement,
    scheduler: SchedulerKind,
    fold: Fold,
) -> Vec<Vec<usize>> {
    // Where time is shared out each module has its own share of it.
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
        let parted = part(modules, &feeders, &groups);
        if parted != groups {
            groups = parted;
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

/// By module, its group, told by the first that is in it: modules of one kind; of which something is told that is theirs alone,
/// by themselves.
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

/// The groups parted by where packets come from and where they go.
fn part(modules: &[ModuleDraft], feeders: &[Vec<usize>], groups: &[usize]) -> Vec<usize> {
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

/// Groups of several, in order.
fn classes(groups: &[usize]) -> Vec<Vec<usize>> {
    let mut members = vec![Vec::new(); groups.len()];
    groups.iter().enumerate().for_each(|(module, group)| members[*group].push(module));
    members.retain(|members| members.len() > 1);
    members
}

/// Whether each member that goes on to a class without a split goes on to the one of its own branch: nothing would say otherwise
/// which branch a packet is in.
fn keep_their_branches(modules: &[ModuleDraft], members: &[usize], classes: &[Vec<usize>], groups: &[usize]) -> bool {
    let next = members.iter().filter_map(|member| match modules[*member].gates[..] {
        [(_, Target::Module(next))] => Some(next),
        _ => None,
    });
    let next: Vec<_> = next.collect();
    let Some(first) = next.first() else { return true };
    match classes.binary_search_by_key(&groups[*first], |members| members[0]) {
        Ok(class) => next == classes[class],
        // All to one place.
        Err(_) => true,
    }
}
