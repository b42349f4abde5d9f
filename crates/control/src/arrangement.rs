//! The workers that run each module after some modules have moved to workers of their own.
//!
//! Modules move from one worker to a new one. All modules that follow them get a copy there. A packet thus never
//! returns to a worker that it has left, so that workers cannot wait for each other in a cycle (`docs/workers.md`).

use std::collections::BTreeMap;

use forebay_protocol::Layout;

/// The modules by name, with the workers that run them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// The number of workers.
    pub workers: usize,
    /// The workers of each module, lowest first.
    pub modules: BTreeMap<String, Vec<usize>>,
}

/// The modules that have moved to added workers, in the order of the moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// By module: its workers according to the configuration.
    base: Vec<Vec<usize>>,
    /// The number of workers according to the configuration.
    workers: usize,
    /// The added workers. Their numbers follow the numbers of the configured workers.
    added: Vec<AddedWorker>,
}

/// The modules on an added worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddedWorker {
    /// The worker from which the modules moved.
    pub(crate) from: usize,
    /// The modules that moved. The modules that follow them have copies on the added worker, but are not listed here.
    pub(crate) modules: Vec<usize>,
}

impl Assignment {
    /// Creates an assignment without moves.
    pub(crate) fn new(layout: &Layout) -> Self {
        let base = layout.modules.iter().map(|module| module.workers.clone()).collect();
        Self { base, workers: layout.workers, added: Vec::new() }
    }

    /// Returns the number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.workers + self.added.len()
    }

    /// Returns the added workers with their numbers.
    pub(crate) fn added(&self) -> impl Iterator<Item = (usize, &AddedWorker)> {
        self.added.iter().enumerate().map(|(at, added)| (self.workers + at, added))
    }

    /// Returns the assignment after `modules` have moved from a worker to a new one, whose number is
    /// [`workers`](Self::workers).
    pub(crate) fn split(&self, from: usize, modules: Vec<usize>) -> Self {
        let mut assignment = self.clone();
        assignment.added.push(AddedWorker { from, modules });
        assignment
    }

    /// Returns the assignment after the modules of an added worker have moved back. Returns `None` if the worker was
    /// not added, or if other modules have moved away from it. The numbers of later workers fall by one.
    pub(crate) fn merge(&self, worker: usize) -> Option<Self> {
        let at = worker.checked_sub(self.workers).filter(|at| *at < self.added.len())?;
        if self.added.iter().any(|added| added.from == worker) {
            return None;
        }
        let mut assignment = self.clone();
        assignment.added.remove(at);
        assignment.added.iter_mut().filter(|added| added.from > worker).for_each(|added| added.from -= 1);
        Some(assignment)
    }

    /// Returns the workers of each module, lowest first.
    pub(crate) fn module_workers(&self, layout: &Layout) -> Vec<Vec<usize>> {
        let mut on = self.base.clone();
        for (to, added) in self.added() {
            added.modules.iter().for_each(|&module| on[module] = vec![to]);
            // Modules are in the order in which packets pass them.
            for (at, module) in layout.running() {
                let follows = module.before.iter().any(|before| on[*before].contains(&to));
                if follows && !on[at].contains(&to) {
                    on[at].push(to);
                }
            }
        }
        // A module that runs as part of another module is on the workers of that module.
        (0..on.len()).map(|at| on[layout.modules[at].leader].clone()).collect()
    }

    /// Returns the pipeline's layout with this assignment.
    pub(crate) fn layout(&self, layout: &Layout) -> Layout {
        let mut layout = layout.clone();
        let module_workers = self.module_workers(&layout);
        layout.modules.iter_mut().zip(module_workers).for_each(|(module, on)| module.workers = on);
        layout.workers = self.workers();
        layout
    }
}

impl Arrangement {
    /// Returns the arrangement of a layout.
    #[must_use]
    pub fn of(layout: &Layout) -> Self {
        let modules = layout.modules.iter().map(|module| (module.name.clone(), module.workers.clone()));
        Self { workers: layout.workers, modules: modules.collect() }
    }
}

/// Returns the modules of `candidates` that can move to a worker of their own, in ascending order. A module can move if
/// it runs on one worker, and if each module that follows it moves as well or can have a copy there.
pub(crate) fn movable(layout: &Layout, candidates: &[usize]) -> Vec<usize> {
    let after = layout.after();
    let mut moves = vec![false; layout.modules.len()];
    candidates.iter().for_each(|&at| moves[at] = layout.modules[at].workers.len() == 1);
    // By module: true if the module stays on its worker, and either cannot have a copy or is followed by a module for
    // which this is true.
    let mut blocks = vec![false; moves.len()];
    for at in (0..moves.len()).rev() {
        let blocked = after[at].iter().any(|next| blocks[*next]);
        moves[at] &= !blocked;
        blocks[at] = !moves[at] && (blocked || layout.modules[at].single);
    }
    (0..moves.len()).filter(|at| moves[*at]).collect()
}
