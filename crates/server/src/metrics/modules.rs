//! The samples of modules.

use std::collections::BTreeMap;

use forebay_protocol::report::{ModuleReport, SIZE_CLASSES};

use super::groups::Groups;
use super::model::{Histogram, sum};
use super::samples::Samples;
use super::table::FamilyId;

/// The largest batch of each class, in packets.
const BATCH_BOUNDS: [f64; SIZE_CLASSES] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Adds the samples of all modules.
pub(super) fn add(samples: &mut Samples<'_>, modules: &[ModuleReport], groups: &Groups) {
    for group in &groups.groups {
        let members = || group.members.iter().map(|at| &modules[*at]);
        let label = ("module", group.label.as_str());
        if let Some(first) = members().next() {
            samples.info(FamilyId::ModuleInfo, &[label, ("function", &*first.function)]);
        }
        if group.is_aggregate {
            samples.number(FamilyId::ModuleMembers, &[label], group.members.len() as f64);
        }
        samples.count(FamilyId::ModulePackets, &[label], sum(members().map(|module| module.packets)));
        samples.count(FamilyId::ModuleDropped, &[label], sum(members().map(|module| module.dropped)));
        let trigger = common(members().map(|module| Some(module.trigger as f64)));
        samples.some(FamilyId::ModuleTrigger, &[label], trigger);
        let hold = common(members().map(|module| module.hold_us));
        samples.some(FamilyId::ModuleHold, &[label], hold.map(|micros| micros / 1e6));
        let weight = common(members().map(|module| module.weight.map(|weight| weight as f64)));
        samples.some(FamilyId::ModuleWeight, &[label], weight);
        let ticks = common(members().map(|module| module.ticks_per_packet));
        samples.some(FamilyId::ModuleTicks, &[label], ticks.or_else(|| mean_ticks(members())));
        let shares = members().filter_map(|module| module.share);
        samples.some(FamilyId::ModuleTime, &[label], shares.reduce(|sum, share| sum + share));
    }
    add_calls(samples, modules, groups);
}

/// Adds the numbers and sizes of calls. Modules of a fold run in the same calls, and the report divides these calls in
/// proportion to packets. The part of one module decreases when the others have more packets, so it is no counter. The
/// sum over the fold is one: it has the label of the module that runs for the fold.
fn add_calls(samples: &mut Samples<'_>, modules: &[ModuleReport], groups: &Groups) {
    let mut calls: BTreeMap<&str, (u64, Histogram)> = BTreeMap::new();
    for module in modules {
        let runner = module.folded.as_deref().unwrap_or(&module.name);
        let sizes = BATCH_BOUNDS.into_iter().zip(module.batch_sizes).collect();
        let sizes = Histogram { bounds: &BATCH_BOUNDS, fine: sizes, sum: module.packets as f64, is_native: false };
        match calls.get_mut(groups.label(runner)) {
            Some((batches, all)) => {
                *batches = batches.saturating_add(module.batches);
                all.add(&sizes);
            }
            None => {
                calls.insert(groups.label(runner), (module.batches, sizes));
            }
        }
    }
    for (module, (batches, sizes)) in calls {
        samples.count(FamilyId::ModuleBatches, &[("module", module)], batches);
        samples.distribution(FamilyId::ModuleBatchSize, &[("module", module)], sizes);
    }
}

/// Returns the value, if it is the same for all. A setting that differs between the members of an aggregate has no
/// value for the aggregate.
pub(super) fn common(mut values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let first = values.next()??;
    values.all(|value| value == Some(first)).then_some(first)
}

/// Returns the mean of the ticks per packet, weighted with the packets.
fn mean_ticks<'m>(modules: impl Iterator<Item = &'m ModuleReport>) -> Option<f64> {
    let timed = modules.filter_map(|module| Some((module.ticks_per_packet?, module.packets as f64)));
    let (ticks, packets) =
        timed.fold((0.0, 0.0), |(ticks, all), (each, packets)| (ticks + each * packets, all + packets));
    (packets > 0.0).then(|| ticks / packets)
}
