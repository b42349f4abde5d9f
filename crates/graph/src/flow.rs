//! Flows: the path of a packet, in one word that advances at splits.
//!
//! A packet's flow word is its position among all paths. It changes only where a module has several gates, to
//! `next[word] + gate`. Paths that meet again and are equal for every declared flow share words from there on. At a
//! port by which packets leave, the word determines the packet's flow.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use forebay_units::Percentile;
use thiserror::Error;

use crate::fold::{self, Arrival};
use crate::plan::{FlowPlan, Plan, Step, Target};

mod passages;

pub(crate) use passages::Passages;

/// The largest number of flow words of a pipeline.
const MOST_WORDS: usize = 1 << 20;
/// The largest number of flows if none are declared.
const MOST_UNDECLARED: usize = 4_096;

/// Why flows cannot be distinguished.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FlowError {
    /// A declared flow's path does not exist.
    #[error("no path through the pipeline passes these modules and gates in this order")]
    NoPath {
        /// The index of the declared flow.
        flow: usize,
    },
    /// There are too many paths. Their number multiplies where branches meet and part again.
    #[error(
        "there are more than {MOST_UNDECLARED} paths through the pipeline: declare the flows that matter under 'flows:'"
    )]
    TooManyPaths,
    /// The declared flows need too many flow words.
    #[error(
        "the declared flows need more than {MOST_WORDS} flow words: declare fewer flows, or flows with more steps in \
         common"
    )]
    TooManyWords,
}

/// The tables by which the engine follows flows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowTable {
    /// The flow word of entering packets, by port.
    pub(crate) entry: Vec<u32>,
    /// By flow word: the first word after the next split, to which the gate's number is added.
    pub(crate) next: Vec<u32>,
    /// By flow word: the flow of a packet that leaves. The number of flows if it belongs to none.
    pub(crate) flow: Vec<u32>,
    /// By flow word: the branch of packets that run folded. 0 if they never do. Empty in a graph without folds.
    pub(crate) branch: Vec<u32>,
    /// By module: how words advance.
    pub(crate) splits: Vec<Split>,
    /// By flow word: the module at which its packets first run folded. `None` if they never do.
    pub(crate) arrival: Vec<Option<Arrival>>,
    /// By flow word: a key that depends on names only, so that another pipeline can find the word of the same path.
    pub(crate) keys: Arc<[u64]>,
}

/// How flow words advance at a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Split {
    /// Words do not change, because there is one gate, or no path to the module.
    #[default]
    None,
    /// All paths to the module are equal. The new word is this number plus the gate's number.
    One(u32),
    /// Words advance by [`FlowTable::next`]. In a graph with folds, each word must determine a branch. So a packet with
    /// an unknown word, whose path a reload has removed, gets the word of an arbitrary path: the number here plus the
    /// gate's number. `None` in a graph without folds: then an unknown word does not change.
    Many(Option<u32>),
}

impl FlowTable {
    /// Returns the flow words by their keys.
    pub(crate) fn words(&self) -> HashMap<u64, u32> {
        self.keys.iter().copied().zip(0..).collect()
    }
}

/// The part of a pipeline that determines its flows.
pub(crate) struct Shape<'a> {
    /// By module: the module's name, and each gate's name and target.
    pub(crate) modules: Vec<(&'a str, Vec<(&'a str, Target)>)>,
    /// By port: the port's name, and the target of entering packets.
    pub(crate) ports: Vec<(&'a str, Option<Target>)>,
    /// By module: its fold.
    pub(crate) folds: Vec<Option<Arrival>>,
}

impl<'a> Shape<'a> {
    /// Returns the part of a plan that determines its flows.
    pub(crate) fn of(plan: &'a Plan) -> Self {
        let gates = |gates: &'a [(String, Target)]| gates.iter().map(|(name, to)| (name.as_str(), *to)).collect();
        Self {
            modules: plan.modules.iter().map(|module| (module.name.as_str(), gates(&module.gates))).collect(),
            ports: plan.ports.iter().map(|port| (port.name.as_str(), port.entry)).collect(),
            folds: fold::positions(&plan.folds, plan.modules.len()),
        }
    }
}

/// The progress along a path. Paths with equal progress at a split share the words after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Progress {
    /// By declared flow: the number of completed steps.
    Declared(Vec<u16>),
    /// Without declared flows: the port by which the path begins, and the gates taken at splits, as pairs of module and
    /// gate. The port is the first pair: its number follows after the numbers of the modules, and its gate is 0.
    Taken(Vec<(usize, usize)>),
}

/// Builds the tables, path by path.
struct Builder<'a> {
    shape: &'a Shape<'a>,
    declared: &'a [FlowPlan],
    table: FlowTable,
    /// By split module and progress before it: the word of its first gate.
    splits: HashMap<(usize, Progress), u32>,
    /// By flow word: its key ([`FlowTable::keys`]).
    keys: Vec<u64>,
    /// The flows so far: the declared flows, then `other` or the undeclared paths.
    found: Vec<FlowPlan>,
    /// By last port and progress: the flow of an undeclared path.
    known: HashMap<(usize, Progress), u32>,
}

/// Distinguishes the flows of a pipeline. Returns the tables and the flows: the declared flows, and `other` if a path
/// belongs to none of them. Without declared flows every path is a flow.
pub(crate) fn build(shape: &Shape<'_>, declared: &[FlowPlan]) -> Result<(FlowTable, Vec<FlowPlan>), FlowError> {
    let mut passages = Passages::new(shape);
    for (flow, plan) in declared.iter().enumerate() {
        if passages.of(plan).is_empty() {
            return Err(FlowError::NoPath { flow });
        }
    }
    let found = declared.to_vec();
    let mut builder = Builder {
        shape,
        declared,
        table: FlowTable { splits: vec![Split::None; shape.modules.len()], ..FlowTable::default() },
        splits: HashMap::new(),
        keys: Vec::new(),
        found,
        known: HashMap::new(),
    };
    let start =
        if declared.is_empty() { Progress::Taken(Vec::new()) } else { Progress::Declared(vec![0; declared.len()]) };
    for (port, (name, entry)) in shape.ports.iter().enumerate() {
        // The port is part of an undeclared path's name. It has a number after the numbers of the modules.
        let from_here = match &start {
            Progress::Taken(_) => Progress::Taken(vec![(shape.modules.len() + port, 0)]),
            declared @ Progress::Declared(_) => declared.clone(),
        };
        let word = builder.words(1)?;
        builder.table.entry.push(word);
        builder.keys.push(key_of(&("port", name)));
        if let Some(target) = *entry {
            builder.fill(word, target, from_here)?;
        }
    }
    let none = builder.found.len() as u32;
    builder.table.flow.iter_mut().for_each(|flow| *flow = (*flow).min(none));
    builder.table.keys = builder.keys.into();
    if builder.table.arrival.iter().any(Option::is_some) {
        let branch = |arrival: &Option<Arrival>| arrival.map_or(0, |arrival| arrival.branch as u32);
        builder.table.branch = builder.table.arrival.iter().map(branch).collect();
        fold_splits(&shape.folds, &mut builder.table.splits);
    } else {
        let many = builder.table.splits.iter_mut().filter(|split| matches!(split, Split::Many(_)));
        many.for_each(|split| *split = Split::Many(None));
    }
    Ok((builder.table, builder.found))
}

/// Turns the splits of folds into [`Split::Many`]. A split in a fold receives the packets of all modules of the fold.
/// The words of these packets differ, even if all paths to each single module are equal.
fn fold_splits(folds: &[Option<Arrival>], splits: &mut [Split]) {
    let mut known = HashMap::new();
    for (arrival, split) in folds.iter().zip(&*splits) {
        if let (Some(arrival), Split::One(first) | Split::Many(Some(first))) = (arrival, split) {
            known.entry(arrival.fold).or_insert(*first);
        }
    }
    for (arrival, split) in folds.iter().zip(splits) {
        if let Some(first) = arrival.and_then(|arrival| known.get(&arrival.fold)) {
            *split = Split::Many(Some(*first));
        }
    }
}

impl Builder<'_> {
    /// Adds `n` flow words to the tables. Returns the first one. The caller adds their keys.
    fn words(&mut self, n: usize) -> Result<u32, FlowError> {
        let first = self.table.next.len();
        if first + n > MOST_WORDS {
            return Err(if self.declared.is_empty() { FlowError::TooManyPaths } else { FlowError::TooManyWords });
        }
        self.table.next.resize(first + n, 0);
        self.table.flow.resize(first + n, u32::MAX);
        self.table.arrival.resize(first + n, None);
        Ok(first as u32)
    }

    /// Fills the tables for packets with `word` that go to `target`.
    fn fill(&mut self, word: u32, target: Target, progress: Progress) -> Result<(), FlowError> {
        let mut pending = vec![(word, target, progress)];
        while let Some((word, mut target, mut progress)) = pending.pop() {
            loop {
                let module = match target {
                    Target::Drop => break,
                    Target::Port(port) => {
                        self.table.flow[word as usize] = self.leave(port, progress)?;
                        break;
                    }
                    Target::Module(module) => module,
                };
                let arrival = &mut self.table.arrival[word as usize];
                *arrival = arrival.or(self.shape.folds[module]);
                let gates = &self.shape.modules[module].1;
                if let [(_, only)] = gates[..] {
                    progress.advance(self.declared, module, 0, false);
                    target = only;
                    continue;
                }
                let key = (module, progress);
                if let Some(first) = self.splits.get(&key) {
                    self.table.next[word as usize] = *first;
                    break;
                }
                let first = self.words(gates.len())?;
                self.table.next[word as usize] = first;
                let split = &mut self.table.splits[module];
                *split = if *split == Split::None { Split::One(first) } else { Split::Many(Some(first)) };
                let before = self.named(&key.1);
                for (gate, (name, target)) in gates.iter().enumerate() {
                    self.keys.push(key_of(&(self.shape.modules[module].0, *name, &before)));
                    let mut after = key.1.clone();
                    after.advance(self.declared, module, gate, true);
                    pending.push((first + gate as u32, *target, after));
                }
                self.splits.insert(key, first);
                break;
            }
        }
        Ok(())
    }

    /// Returns the progress with names in place of numbers, for a key that another pipeline can find.
    fn named(&self, progress: &Progress) -> Vec<(String, String)> {
        let modules = &self.shape.modules;
        match progress {
            Progress::Declared(done) => {
                let flows = self.declared.iter().zip(done);
                flows.map(|(flow, done)| (flow.name.clone(), done.to_string())).collect()
            }
            Progress::Taken(taken) => {
                let named = taken.iter().map(|&(index, gate)| match modules.get(index) {
                    Some((module, gates)) => ((*module).to_owned(), gates[gate].0.to_owned()),
                    None => (self.shape.ports[index - modules.len()].0.to_owned(), String::new()),
                });
                named.collect()
            }
        }
    }

    /// Returns the flow of a path that ends at `port`, and adds it to `found` if it is new.
    fn leave(&mut self, port: usize, progress: Progress) -> Result<u32, FlowError> {
        if let Progress::Declared(done) = &progress {
            let complete = |flow: &usize| usize::from(done[*flow]) == self.declared[*flow].path.len();
            if let Some(flow) = (0..self.declared.len()).find(complete) {
                return Ok(flow as u32);
            }
            if self.found.len() == self.declared.len() {
                self.found.push(undeclared("other".to_owned(), Vec::new()));
            }
            return Ok(self.declared.len() as u32);
        }
        let Progress::Taken(taken) = &progress else { return Ok(u32::MAX) };
        let steps = taken.iter().filter(|(module, _)| *module < self.shape.modules.len());
        let path = steps.map(|&(module, gate)| Step { module, gate: Some(gate) }).collect::<Vec<_>>();
        let name = self.name(taken, port);
        let key = (port, progress);
        if let Some(flow) = self.known.get(&key) {
            return Ok(*flow);
        }
        if self.found.len() == MOST_UNDECLARED {
            return Err(FlowError::TooManyPaths);
        }
        let flow = self.found.len() as u32;
        self.found.push(undeclared(name, path));
        self.known.insert(key, flow);
        Ok(flow)
    }

    /// Returns an undeclared path's name: the ports, and the gates taken at splits, in the configuration's notation.
    fn name(&self, taken: &[(usize, usize)], port: usize) -> String {
        let modules = &self.shape.modules;
        let part = |&(index, gate): &(usize, usize)| match modules.get(index) {
            Some((module, gates)) => format!("{module}[{}]", gates[gate].0),
            None => self.shape.ports[index - modules.len()].0.to_owned(),
        };
        let mut parts: Vec<_> = taken.iter().map(part).collect();
        parts.push(self.shape.ports[port].0.to_owned());
        parts.join(" > ")
    }
}

/// Returns a key of names: a hash, which is the same for equal names as long as the process runs.
fn key_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn undeclared(name: String, path: Vec<Step>) -> FlowPlan {
    FlowPlan { name, path, slo: None, percentile: Percentile::default(), min_rate: None }
}

impl Progress {
    /// Advances past `module`, which the path leaves through `gate`. `split`: the module has several gates.
    fn advance(&mut self, declared: &[FlowPlan], module: usize, gate: usize, split: bool) {
        match self {
            Self::Declared(done) => {
                for (done, flow) in done.iter_mut().zip(declared) {
                    if flow.path.get(usize::from(*done)).is_some_and(|step| step.takes(module, gate)) {
                        *done += 1;
                    }
                }
            }
            Self::Taken(taken) if split => taken.push((module, gate)),
            Self::Taken(_) => {}
        }
    }
}

impl Step {
    /// Returns whether a packet that leaves `module` through `gate` completes this step.
    fn takes(&self, module: usize, gate: usize) -> bool {
        self.module == module && self.gate.is_none_or(|wanted| wanted == gate)
    }
}

#[cfg(test)]
mod tests;
