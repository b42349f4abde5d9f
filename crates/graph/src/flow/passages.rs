//! Finds the modules that a flow's packets pass. The search looks only at modules near the flow's steps, because
//! pipelines have thousands of flows, and each flow passes only a few of the modules.

use super::Shape;
use crate::plan::{FlowPlan, Step, Target};

/// Finds the modules of flows, one flow after the other.
pub(crate) struct Passages<'s> {
    shape: &'s Shape<'s>,
    /// By module: the modules that lead to it.
    before: Vec<Vec<usize>>,
    /// By module: whether packets can leave by a port after it.
    leaves: Vec<bool>,
    /// By module: the number of the last search in which it led to the next step.
    leads: Vec<usize>,
    /// By module: the number of the last search in which packets reached it.
    reached: Vec<usize>,
    /// The number of the present search. There is one search for each step of a flow, and one for the rest of its path.
    search: usize,
}

impl<'s> Passages<'s> {
    pub(crate) fn new(shape: &'s Shape<'s>) -> Self {
        let many = shape.modules.len();
        let (mut before, mut leaves) = (vec![Vec::new(); many], vec![false; many]);
        // Gates lead only to later modules.
        for (module, (_, gates)) in shape.modules.iter().enumerate().rev() {
            for (_, target) in gates {
                match *target {
                    Target::Module(next) => {
                        before[next].push(module);
                        leaves[module] |= leaves[next];
                    }
                    Target::Port(_) => leaves[module] = true,
                    Target::Drop => {}
                }
            }
        }
        Self { shape, before, leaves, leads: vec![0; many], reached: vec![0; many], search: 0 }
    }

    /// Returns the pipeline's shape.
    pub(crate) fn shape(&self) -> &'s Shape<'s> {
        self.shape
    }

    /// Returns the modules that packets of a flow pass, in ascending order. Empty if no path matches.
    pub(crate) fn of(&mut self, flow: &FlowPlan) -> Vec<usize> {
        let mut passed = Vec::new();
        let mut from: Vec<Target> = self.shape.ports.iter().filter_map(|(_, entry)| *entry).collect();
        let mut least = 0;
        for step in &flow.path {
            self.search += 1;
            self.mark_leading(step.module, least);
            let search = self.search;
            self.follow(&from, &mut passed, |all, module| all.leads[module] == search);
            if self.reached[step.module] != search {
                return Vec::new();
            }
            from = self.taken(step);
            least = step.module + 1;
        }
        self.search += 1;
        let ends = self.follow(&from, &mut passed, |all, module| all.leaves[module]);
        if !ends {
            return Vec::new();
        }
        passed.sort_unstable();
        passed
    }

    /// Returns the targets of packets that take a step.
    fn taken(&self, step: &Step) -> Vec<Target> {
        let gates = self.shape.modules[step.module].1.iter().enumerate();
        gates.filter(|(gate, _)| step.takes(step.module, *gate)).map(|(_, (_, target))| *target).collect()
    }

    /// Marks a module, and the modules that lead to it. Modules with numbers below `least` are not marked.
    fn mark_leading(&mut self, to: usize, least: usize) {
        let mut next = vec![to];
        while let Some(module) = next.pop() {
            if module >= least && std::mem::replace(&mut self.leads[module], self.search) != self.search {
                next.extend(&self.before[module]);
            }
        }
    }

    /// Follows packets through all modules that are `allowed`, and adds these to `passed`. Returns whether some packets
    /// leave by a port.
    fn follow(&mut self, from: &[Target], passed: &mut Vec<usize>, allowed: impl Fn(&Self, usize) -> bool) -> bool {
        let (mut next, mut leave) = (from.to_vec(), false);
        while let Some(target) = next.pop() {
            leave |= matches!(target, Target::Port(_));
            if let Target::Module(module) = target
                && self.reached[module] != self.search
                && allowed(self, module)
            {
                self.reached[module] = self.search;
                passed.push(module);
                // The search for a step ends at the step.
                next.extend(self.shape.modules[module].1.iter().map(|(_, target)| *target));
            }
        }
        leave
    }
}
