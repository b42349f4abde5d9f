//! What a pipeline looks like to whoever decides on its batches: what does not change while it runs.

use serde::{Deserialize, Serialize};

use crate::flow::{self, FlowError, Passages};
use crate::function::{StateKind, functions};
use crate::plan::{FlowPlan, Plan, Target};
use crate::scheduler::SchedulerKind;
use crate::worker::shape;
use forebay_units::{Percentile, Rate};

/// A pipeline's shape. Modules and flows stand at their places in the [`Plan`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// The pipeline's name.
    pub pipeline: String,
    /// Packets in the largest batch.
    pub batch: usize,
    /// Which scheduler its workers have.
    pub scheduler: SchedulerKind,
    /// How many workers run it.
    pub workers: usize,
    /// By module.
    pub modules: Vec<ModuleLayout>,
    /// By flow.
    pub flows: Vec<FlowLayout>,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModuleLayout {
    /// Its name.
    pub name: String,
    /// Its function's name.
    pub function: String,
    /// The module that runs for it: itself, but where equal branches run as one. Only that one has a queue.
    pub leader: usize,
    /// The modules that its packets come from: those that run.
    pub before: Vec<usize>,
    /// Whether packets come to it from a port.
    pub entry: bool,
    /// Whether its trigger is written in the configuration: nobody changes it then.
    pub fixed: bool,
    /// The workers that run it.
    pub workers: Vec<usize>,
    /// Whether it can be on one worker only: it has state that its packets change, or packets come to it from a port.
    #[serde(default)]
    pub single: bool,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowLayout {
    /// Its name.
    pub name: String,
    /// The modules that run on its way, first to last; none where nobody asks: it has no objective, and time is not shared out.
    pub path: Vec<usize>,
    /// The delay objective, in seconds.
    pub slo_s: Option<f64>,
    /// Which of its delays must keep it.
    pub percentile: Percentile,
    /// The rate objective, in packets a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate: Option<f64>,
    /// The rate objective, in bits a second of frames, where it is stated so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_bits: Option<f64>,
}

impl Layout {
    /// The modules that run: those that others run for have no queue.
    pub fn running(&self) -> impl Iterator<Item = (usize, &ModuleLayout)> {
        self.modules.iter().enumerate().filter(|(at, module)| module.leader == *at)
    }

    /// By module: those that its packets go to, of those that run.
    #[must_use]
    pub fn after(&self) -> Vec<Vec<usize>> {
        let mut after = vec![Vec::new(); self.modules.len()];
        for (at, module) in self.running() {
            module.before.iter().for_each(|&before| after[before].push(at));
        }
        after
    }
}

impl Plan {
    /// What the pipeline looks like to whoever decides on its batches.
    ///
    /// # Errors
    /// A declared flow that no path fits; more paths than can be told apart.
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
        let shape = shape(self);
        let (_, found) = flow::build(&shape, &self.flows)?;
        let mut passages = Passages::new(&shape);
        let flows = found.into_iter().map(|flow| {
            // Without any step it is what is left over, and may be anywhere.
            let shared = self.scheduler == SchedulerKind::WeightedFair && !flow.path.is_empty();
            let asked = shared || flow.slo.is_some() || flow.min_rate.is_some();
            let path = if asked { way(&mut passages, &flow, &leaders) } else { Vec::new() };
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

    /// By flow of the [layout](Self::layout), those without an objective included: the modules that run on its way, first to last.
    ///
    /// # Errors
    /// As [`layout`](Self::layout).
    pub fn ways(&self) -> Result<Vec<Vec<usize>>, FlowError> {
        let (shape, leaders) = (shape(self), self.leaders());
        let (_, found) = flow::build(&shape, &self.flows)?;
        let mut passages = Passages::new(&shape);
        Ok(found.iter().map(|flow| way(&mut passages, flow, &leaders)).collect())
    }
}

/// The modules that run on a flow's way, first to last.
pub(crate) fn way(passages: &mut Passages<'_>, flow: &FlowPlan, leaders: &[usize]) -> Vec<usize> {
    let mut way: Vec<usize> = passages.of(flow).into_iter().map(|module| leaders[module]).collect();
    way.sort_unstable();
    way.dedup();
    way
}
