//! Packets that modules hold back are the pool's: as many as may wait must leave some for those that come.
//!
//! What waits leaves when its time is over, after seconds. Where all chunks wait no packet comes in until then, not even the
//! fragment or the answer that is waited for.

use forebay_graph::{SetupError, Target};

use crate::compile::{Draft, ModuleDraft, add_faults};
use crate::conform::Misfits;
use forebay_packet::pool::MOST_CHUNKS;

/// Refuses modules that may together hold as many of a worker's packets as there are, less a batch that comes in.
pub(crate) fn check(draft: &Draft, misfits: &mut Misfits) {
    let (chunks, most) = (draft.pool.chunks, draft.pool.chunks.saturating_sub(draft.batch));
    for worker in 0..draft.placement.workers {
        let holding: Vec<_> = reached(draft, worker).into_iter().filter_map(|at| held(&draft.modules[at])).collect();
        let all: usize = holding.iter().map(|(_, _, packets)| packets).sum();
        let Some((module, parameter, packets)) = holding.iter().max_by_key(|(_, _, packets)| packets) else { continue };
        if all <= most {
            continue;
        }
        let names: Vec<_> = holding.iter().map(|(module, ..)| format!("'{}'", module.name)).collect();
        let others = match names.len() {
            1 => String::new(),
            _ => format!(" ({all} in all: {})", names.join(", ")),
        };
        let needed = all + draft.batch;
        let or = if needed <= MOST_CHUNKS { format!(", or `pool: {{ chunks: {needed} }}`") } else { String::new() };
        let told = format!(
            "{packets} packets may wait here{others}, and a worker has {chunks} (`pool.chunks`): allowed are {most} in all, a batch \
             less, so that others still come in{or}"
        );
        add_faults(
            misfits,
            &draft.root,
            &["modules", &module.name, module.kind.name],
            SetupError::at(*parameter, told),
        );
    }
}

/// How many packets a module holds at most, and by which parameter that is said.
fn held(module: &ModuleDraft) -> Option<(&ModuleDraft, &'static str, usize)> {
    let (parameter, packets) = module.declared.as_ref()?.1.holds?;
    Some((module, parameter, packets))
}

/// Modules that packets of a worker's pool may come to: from its ports, and from what it makes itself. Of those that several
/// workers have each is one: they share packets out by session.
fn reached(draft: &Draft, worker: usize) -> Vec<usize> {
    let mut reached = vec![false; draft.modules.len()];
    let ports = draft.placement.ports.iter().zip(&draft.entries).filter(|(on, _)| on.contains(&worker));
    let mut pending: Vec<Target> = ports.filter_map(|(_, entry)| *entry).collect();
    let makes =
        |at: &usize| !draft.modules[*at].kind.creates.is_empty() && draft.placement.modules[*at].contains(&worker);
    pending.extend((0..draft.modules.len()).filter(makes).map(Target::Module));
    while let Some(target) = pending.pop() {
        if let Target::Module(module) = target
            && !std::mem::replace(&mut reached[module], true)
        {
            pending.extend(draft.modules[module].gates.iter().map(|(_, to)| *to));
        }
    }
    (0..reached.len()).filter(|module| reached[*module]).collect()
}
