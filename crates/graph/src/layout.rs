//! Derives the layout of a pipeline for controllers from its plan.

use forebay_protocol::{FlowLayout, Layout, ModuleLayout, SchedulerKind};
use forebay_units::Rate;

use crate::flow::{self, FlowError, Passages, Shape};
use crate::function::{StateKind, functions};
use crate::plan::{FlowPlan, Plan, Target};

impl Plan {
    /// Returns the layout of the pipeline for controllers.
    ///
    /// # Errors
    /// A declared flow that matches no path; more paths than can be distinguished.
    pub fn layout(&self) -> Result<Layout, FlowError> {
        let leaders = self.leaders();
        let known = functions();
        let changes = |kind: &str| {
            let state = known.iter().find(|known| known.name == kind).map_or(StateKind::None, |known| known.state);
            matches!(state, StateKind::PerSession | StateKind::Global)
        };
        let mut modules: Vec<ModuleLayout> = self
            .modules
            .iter()
            .enumerate()
            .map(|(at, module)| {
                let entry = self.ports.iter().any(|port| port.entry == Some(Target::Module(at)));
                ModuleLayout {
                    name: module.name.clone(),
                    function: module.kind.to_owned(),
                    leader: leaders[at],
                    before: Vec::new(),
                    entry,
                    fixed: module.trigger > 0,
                    workers: self.placement.modules[at].clone(),
                    single: entry || changes(module.kind) || self.placement.keyed[at],
                }
            })
            .collect();
        for (from, module) in self.modules.iter().enumerate() {
            for (_, target) in &module.gates {
                let Target::Module(to) = *target else { continue };
                let before = &mut modules[leaders[to]].before;
                if !before.contains(&leaders[from]) {
                    before.push(leaders[from]);
                }
            }
        }
        let shape = Shape::of(self);
        let (_, found) = flow::build(&shape, &self.flows)?;
        let mut passages = Passages::new(&shape);
        let flows = found.into_iter().map(|flow| {
            // The flow without steps has the packets of no declared flow, which may pass any module.
            let shared = self.scheduler == SchedulerKind::WeightedFair && !flow.path.is_empty();
            let needed = shared || flow.slo.is_some() || flow.min_rate.is_some();
            let path = if needed { way(&mut passages, &flow, &leaders) } else { Vec::new() };
            FlowLayout {
                name: flow.name,
                path,
                slo_s: flow.slo.map(|slo| slo.0 as f64 / 1e9),
                percentile: flow.percentile,
                min_rate: flow.min_rate.and_then(Rate::packets),
                min_rate_bits: flow.min_rate.and_then(Rate::bits),
            }
        });
        let flows = flows.collect();
        Ok(Layout {
            pipeline: self.name.clone(),
            batch: self.batch,
            scheduler: self.scheduler,
            workers: self.placement.workers,
            modules,
            flows,
        })
    }

    /// Returns, by flow of the [layout](Self::layout), the modules that run on its path, first to last. Includes flows
    /// without an objective.
    ///
    /// # Errors
    /// Those of [`layout`](Self::layout).
    pub fn ways(&self) -> Result<Vec<Vec<usize>>, FlowError> {
        let (shape, leaders) = (Shape::of(self), self.leaders());
        let (_, found) = flow::build(&shape, &self.flows)?;
        let mut passages = Passages::new(&shape);
        Ok(found.iter().map(|flow| way(&mut passages, flow, &leaders)).collect())
    }
}

/// Returns the modules that run on a flow's path, first to last. `leaders`: by module, the module that runs for it.
pub(crate) fn way(passages: &mut Passages<'_>, flow: &FlowPlan, leaders: &[usize]) -> Vec<usize> {
    let mut way: Vec<usize> = passages.of(flow).into_iter().map(|module| leaders[module]).collect();
    way.sort_unstable();
    way.dedup();
    way
}
