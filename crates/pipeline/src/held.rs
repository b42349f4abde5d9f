//! Checks that modules cannot hold all packets of a pool.
//!
//! Functions hold packets for up to several seconds. If functions hold all chunks of the pool, no packet can enter
//! until a held packet leaves. Then even the fragment or the reply that a held packet waits for cannot enter.

use forebay_graph::{Placement, SetupError, Target};
use forebay_packet::pool::MOST_CHUNKS;

use crate::draft::{Draft, ModuleDraft};
use crate::faults::FaultCollector;

/// Adds a fault if modules together may hold so many packets of a worker's pool that less than one batch of other
/// packets can enter.
pub(crate) fn check(draft: &Draft, faults: &mut FaultCollector) {
    let (chunks, most) = (draft.pool.chunks, draft.pool.chunks.saturating_sub(draft.batch));
    for worker in 0..draft.placement.workers {
        let holding: Vec<_> = holding(draft, worker).collect();
        let all: usize = holding.iter().map(Holding::all).sum();
        let Some(Holding { module, parameter, packets, replicas }) = holding.iter().max_by_key(|it| it.all()) else {
            continue;
        };
        if all <= most {
            continue;
        }
        let each = if *replicas == 1 { String::new() } else { format!(" on each of {replicas} workers") };
        let names: Vec<_> = holding.iter().map(|it| format!("'{}'", it.module.name)).collect();
        let others = match names.len() {
            1 => String::new(),
            _ => format!(" ({all} in all: {})", names.join(", ")),
        };
        let needed = all + draft.batch;
        let or = if needed <= MOST_CHUNKS { format!(", or `pool: {{ chunks: {needed} }}`") } else { String::new() };
        let wrong = format!(
            "{packets} packets may wait here{each}{others}, but a worker's pool has {chunks} chunks (`pool.chunks`)"
        );
        let allowed =
            format!("up to {most} waiting packets in all, so that a batch of other packets can still enter{or}");
        let error = SetupError::wrong(*parameter, packets, wrong, allowed);
        faults.add_all(&draft.root, &["modules", &module.name, module.kind.name], error);
    }
}

/// A module that may hold packets of a worker.
struct Holding<'d> {
    module: &'d ModuleDraft,
    /// The parameter that limits the number of held packets.
    parameter: &'static str,
    /// The largest number of held packets on each worker that runs the module.
    packets: usize,
    /// The number of workers on which the module may hold packets of this worker's pool.
    replicas: usize,
}

impl Holding<'_> {
    /// Returns the largest number of packets of this worker's pool that the module may hold on all its workers.
    fn all(&self) -> usize {
        self.packets.saturating_mul(self.replicas)
    }
}

/// Returns the modules that may hold packets of a worker's pool. These are packets that enter by the worker's ports, or
/// that functions create on the worker.
fn holding(draft: &Draft, worker: usize) -> impl Iterator<Item = Holding<'_>> {
    let mut replicas = vec![0; draft.modules.len()];
    for (on, target) in sources(draft).filter(|(on, _)| on.contains(&worker)) {
        for module in reached(draft, target) {
            // If the source and the module are on the same workers, packets stay on their worker, by session. Otherwise
            // each of the module's workers may get the packets.
            let module_workers = &draft.placement.modules[module];
            let reached = if module_workers == on { 1 } else { module_workers.len() };
            replicas[module] = reached.max(replicas[module]);
        }
    }
    draft.modules.iter().zip(replicas).filter(|(_, replicas)| *replicas > 0).filter_map(|(module, replicas)| {
        let (parameter, packets) = module.declared.as_ref()?.1.holds?;
        Some(Holding { module, parameter, packets, replicas })
    })
}

/// Returns the sources of packets: their workers, and the first target of the packets.
fn sources(draft: &Draft) -> impl Iterator<Item = (&Vec<usize>, Target)> {
    let Placement { ports, modules, .. } = &draft.placement;
    let entries = ports.iter().zip(&draft.entries).filter_map(|(on, entry)| Some((on, (*entry)?)));
    let creates = |module: &usize| !draft.modules[*module].kind.creates.is_empty();
    entries.chain((0..draft.modules.len()).filter(creates).map(|module| (&modules[module], Target::Module(module))))
}

/// Returns the modules that packets from `from` may reach.
fn reached(draft: &Draft, from: Target) -> Vec<usize> {
    let mut reached = vec![false; draft.modules.len()];
    let mut pending = vec![from];
    while let Some(target) = pending.pop() {
        if let Target::Module(module) = target
            && !std::mem::replace(&mut reached[module], true)
        {
            pending.extend(draft.modules[module].gates.iter().map(|(_, to)| *to));
        }
    }
    (0..reached.len()).filter(|module| reached[*module]).collect()
}
