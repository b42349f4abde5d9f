//! Which workers run which modules once some have gone to workers of their own.
//!
//! Modules go from one worker to a new one, and so does a copy of all that comes after them: packets never return to a worker on
//! which they have been, so that workers cannot wait for each other in a circle (`docs/workers.md`).

use std::collections::BTreeMap;

use forebay_graph::Layout;

/// Modules by name, with the workers that run them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// How many workers there are.
    pub workers: usize,
    /// By module: the workers that run it, lowest first.
    pub modules: BTreeMap<String, Vec<usize>>,
}

/// What has gone to further workers, first things first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parted {
    /// As the configuration says: by module that runs, its workers.
    base: Vec<Vec<usize>>,
    workers: usize,
    gone: Vec<Gone>,
}

/// Modules that are on a worker of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// The worker that they come from.
    pub(crate) from: usize,
    pub(crate) modules: Vec<usize>,
}

impl Parted {
    /// Nothing has gone yet.
    pub(crate) fn new(layout: &Layout) -> Self {
        let base = layout.modules.iter().map(|module| module.workers.clone()).collect();
        Self { base, workers: layout.workers, gone: Vec::new() }
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.workers + self.gone.len()
    }

    /// What has gone, each with the worker that it is on.
    pub(crate) fn gone(&self) -> impl Iterator<Item = (usize, &Gone)> {
        self.gone.iter().enumerate().map(|(at, gone)| (self.workers + at, gone))
    }

    /// The same with modules that go from a worker to a new one.
    pub(crate) fn apart(&self, from: usize, modules: Vec<usize>) -> Self {
        let mut parted = self.clone();
        parted.gone.push(Gone { from, modules });
        parted
    }

    /// The same with what is on a worker back where it came from; `None` where others have come from that worker, or where it is not
    /// one of those that were added. Later workers have lower numbers then.
    pub(crate) fn together(&self, worker: usize) -> Option<Self> {
        let at = worker.checked_sub(self.workers).filter(|at| *at < self.gone.len())?;
        if self.gone.iter().any(|gone| gone.from == worker) {
            return None;
        }
        let mut parted = self.clone();
        parted.gone.remove(at);
        parted.gone.iter_mut().filter(|gone| gone.from > worker).for_each(|gone| gone.from -= 1);
        Some(parted)
    }

    /// By module: the workers that run it, lowest first.
    pub(crate) fn placed(&self, layout: &Layout) -> Vec<Vec<usize>> {
        let mut on = self.base.clone();
        for (to, gone) in self.gone() {
            gone.modules.iter().for_each(|&module| on[module] = vec![to]);
            // Modules are in the order in which packets pass them.
            for (at, module) in layout.running() {
                let comes_after = module.before.iter().any(|before| on[*before].contains(&to));
                if comes_after && !on[at].contains(&to) {
                    on[at].push(to);
                }
            }
        }
        // Those that others run for are where these are.
        (0..on.len()).map(|at| on[layout.modules[at].leader].clone()).collect()
    }

    /// The layout of the pipeline when it is arranged like this.
    pub(crate) fn layout(&self, layout: &Layout) -> Layout {
        let mut layout = layout.clone();
        let placed = self.placed(&layout);
        layout.modules.iter_mut().zip(placed).for_each(|(module, on)| module.workers = on);
        layout.workers = self.workers();
        layout
    }
}

impl Arrangement {
    /// That of a layout.
    #[must_use]
    pub fn of(layout: &Layout) -> Self {
        let modules = layout.modules.iter().map(|module| (module.name.clone(), module.workers.clone()));
        Self { workers: layout.workers, modules: modules.collect() }
    }
}

/// Those of the modules that can go to a worker of their own: a copy of all that comes after them must be able to go with them.
pub(crate) fn movable(layout: &Layout, go: &[usize]) -> Vec<usize> {
    let after = layout.after();
    let mut goes = vec![false; layout.modules.len()];
    go.iter().for_each(|&at| goes[at] = layout.modules[at].workers.len() == 1);
    // Whether a module that stays cannot have a copy, or something after it cannot.
    let mut blocks = vec![false; goes.len()];
    for at in (0..goes.len()).rev() {
        let blocked = after[at].iter().any(|next| blocks[*next]);
        goes[at] &= !blocked;
        blocks[at] = !goes[at] && (blocked || layout.modules[at].single);
    }
    (0..goes.len()).filter(|at| goes[*at]).collect()
}
