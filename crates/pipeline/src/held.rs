//! Packets that modules hold back are the pool's: as many as may wait must leave some for those that come.
//!
//! What waits leaves when its time is over, after seconds. Where all chunks wait no packet comes in until then, not even the
//! fragment or the answer that is waited for.

use forebay_graph::{Placement, SetupError, Target};

use crate::compile::{Draft, ModuleDraft, add_faults};
use crate::conform::Misfits;
use forebay_packet::pool::MOST_CHUNKS;

/// Refuses modules that may together hold as many of a worker's packets as there are, less a batch that comes in.
pub(crate) fn check(draft: &Draft, misfits: &mut Misfits) {
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
        let told = format!(
            "{packets} packets may wait here{each}{others}, and a worker has {chunks} (`pool.chunks`): allowed are {most} in all, a \
             batch less, so that others still come in{or}"
        );
        add_faults(
            misfits,
            &draft.root,
            &["modules", &module.name, module.kind.name],
            SetupError::at(*parameter, told),
        );
    }
}

/// A module that may hold packets of a worker.
struct Holding<'d> {
    module: &'d ModuleDraft,
    /// By which how many it holds is said.
    parameter: &'static str,
    /// How many it holds at most, on each of the workers that run it.
    packets: usize,
    /// How many of those may have this worker's packets.
    replicas: usize,
}

impl Holding<'_> {
    fn all(&self) -> usize {
        self.packets.saturating_mul(self.replicas)
    }
}

/// The modules that may hold packets of a worker's pool: what comes in by its ports, and what it makes itself.
fn holding(draft: &Draft, worker: usize) -> impl Iterator<Item = Holding<'_>> {
    let mut replicas = vec![0; draft.modules.len()];
    for (on, target) in sources(draft).filter(|(on, _)| on.contains(&worker)) {
        for module in reached(draft, target) {
            // What comes in on the same workers stays on its own, by session; else each of them may get it.
            let theirs = &draft.placement.modules[module];
            let may = if theirs == on { 1 } else { theirs.len() };
            replicas[module] = may.max(replicas[module]);
        }
    }
    draft.modules.iter().zip(replicas).filter(|(_, replicas)| *replicas > 0).filter_map(|(module, replicas)| {
        let (parameter, packets) = module.declared.as_ref()?.1.holds?;
        Some(Holding { module, parameter, packets, replicas })
    })
}

/// Where packets begin: on which workers, and where they go first.
fn sources(draft: &Draft) -> impl Iterator<Item = (&Vec<usize>, Target)> {
    let Placement { ports, modules, .. } = &draft.placement;
    let entries = ports.iter().zip(&draft.entries).filter_map(|(on, entry)| Some((on, (*entry)?)));
    let makes = |at: &usize| !draft.modules[*at].kind.creates.is_empty();
    entries.chain((0..draft.modules.len()).filter(makes).map(|at| (&modules[at], Target::Module(at))))
}

/// Modules that packets may come to from there.
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
