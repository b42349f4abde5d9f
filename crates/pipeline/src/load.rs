//! A configuration that is in order to what runs: functions for every worker, open ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_graph::{Files, LASTING, Module, ONCE_A_MODULE, Plan, PortPlan, Setup, Surroundings};
use forebay_packet::PoolOptions;

use crate::Source;
use crate::compile::{Conditions, Draft, ModuleDraft, PortDraft, add_faults, compile};
use crate::conform::Misfits;
use crate::identity::Identity;
use crate::language::PoolSection;
use crate::made::{Made, taken_over};
use crate::problem::{Findings, Problems};

/// A pipeline that is ready to run.
pub struct Loaded {
    /// What each worker runs; at least one.
    pub plans: Vec<Plan>,
    /// By worker: the core that the configuration binds it to.
    pub cores: Vec<Option<usize>>,
    /// What everything random derives from.
    pub seed: u64,
    /// The files that it reads and writes.
    pub files: Files,
    /// What it is made of: to be compared with its successor.
    pub made: Made,
}

/// Checks a configuration, then opens its ports.
///
/// # Errors
/// Everything that is wrong, with places; ports are opened only where nothing else is.
pub fn load(source: &Source, conditions: Conditions) -> Result<Loaded, Problems> {
    open(source, conditions, None)
}

/// Checks a configuration that is to follow a running one. What is the same in both is not made or opened anew: the plans
/// say from which worker it is taken over (`from`).
///
/// # Errors
/// As [`load`]; also what cannot change while packets run: the largest batch, the seed, the scheduler and the packet pool.
pub fn reload(source: &Source, conditions: Conditions, running: &Made) -> Result<Loaded, Problems> {
    open(source, conditions, Some(running))
}

fn open(source: &Source, conditions: Conditions, running: Option<&Made>) -> Result<Loaded, Problems> {
    let (draft, mut surroundings) = compile(source, conditions, running)?;
    let mut findings = Findings::default();
    let mut misfits = Misfits::default();
    surroundings.checking = false;
    let PoolSection { chunks, frame } = draft.pool;
    if let Some(running) = running {
        // What runs reads and writes on until it is replaced.
        surroundings.files = running.files.clone();
    }
    let made = draft.made(&surroundings, (chunks, frame));
    if let Some(running) = running {
        draft.refuse_fixed(running, (chunks, frame), &mut findings);
    }
    let placement = Arc::new(draft.placement.clone());
    let mut plans: Vec<Plan> = (0..placement.workers)
        .map(|worker| Plan {
            name: draft.name.clone(),
            batch: draft.batch,
            scheduler: draft.scheduler,
            pool: PoolOptions { chunks, frame, ..PoolOptions::default() },
            modules: Vec::new(),
            ports: Vec::new(),
            flows: draft.flows.clone(),
            worker,
            placement: Arc::clone(&placement),
        })
        .collect();
    let Draft { root, modules, ports, entries, cores, seed, .. } = draft;
    for (at, mut module) in modules.into_iter().enumerate() {
        let on = &placement.modules[at];
        let there = running.and_then(|running| running.module(&module.name, &made.modules[&module.name].0));
        let mut set_up = module.declared.take();
        for plan in &mut plans {
            let mut part = module.part();
            if let Some(share) = on.iter().position(|worker| *worker == plan.worker) {
                part.share = module.share.of(on.len());
                part.from = there.and_then(|there| taken_over(there, on, plan.worker, placement.keyed[at]));
                if part.from.is_none() {
                    surroundings.share = (share, on.len());
                    if let Err(error) = module.make(&mut part, &mut set_up, &mut surroundings, share == 0) {
                        add_faults(&mut misfits, &root, &["modules", &module.name, module.kind.name], error);
                    }
                }
            }
            plan.modules.push(part);
        }
    }
    for (at, (port, entry)) in ports.into_iter().zip(entries).enumerate() {
        let on = &placement.ports[at];
        let there = running.and_then(|running| running.ports.get(&port.name));
        let there = there.filter(|(identity, _)| *identity == made.ports[&port.name].0).map(|(_, there)| &there[..]);
        for plan in &mut plans {
            let share = on.iter().position(|worker| *worker == plan.worker);
            // With other shares it must be opened anew.
            let from = share.and_then(|_| taken_over(there?, on, plan.worker, true));
            let mut part = PortPlan { name: port.name.clone(), kind: port.kind.name, open: None, from, entry };
            if let Some(share) = share.filter(|_| from.is_none()) {
                surroundings.share = (share, on.len());
                match port.open(&mut surroundings) {
                    Ok(open) => part.open = Some(open),
                    Err(error) => add_faults(&mut misfits, &root, &["ports", &port.name, port.kind.name], error),
                }
            }
            plan.ports.push(part);
        }
    }
    misfits.report(&mut findings);
    findings.finish(&source.file, &source.sets)?;
    let lasts = |key: &str| key.starts_with(ONCE_A_MODULE) || key.starts_with(LASTING);
    let shared = surroundings.made.into_iter().filter(|(key, _)| lasts(key));
    let mut files = surroundings.files;
    // What the command line uses stays used.
    let named = |who: &str| who.starts_with("--") || who.contains(' ');
    files.retain(|who| named(who) || made.modules.contains_key(who) || made.ports.contains_key(who));
    let mut made = Made { tables: shared.collect(), words: surroundings.words, files: files.clone(), ..made };
    made.without_outputs(&root, &surroundings.base);
    Ok(Loaded { plans, cores, seed, files, made })
}

impl Draft {
    fn made(&self, surroundings: &Surroundings, pool: (usize, usize)) -> Made {
        let identity = |section: &str, name: &str, kind: &str| {
            Identity::of(&self.root, section, name, kind, &surroundings.base, &surroundings.files)
        };
        let modules = self.modules.iter().zip(&self.placement.modules);
        let ports = self.ports.iter().zip(&self.placement.ports);
        Made {
            modules: modules
                .map(|(module, on)| {
                    let identity = identity("modules", &module.name, module.kind.name);
                    (module.name.clone(), (identity, on.clone()))
                })
                .collect(),
            ports: ports
                .map(|(port, on)| (port.name.clone(), (identity("ports", &port.name, port.kind.name), on.clone())))
                .collect(),
            state: self.state.clone(),
            tables: BTreeMap::new(),
            files: Files::default(),
            words: BTreeMap::new(),
            batch: self.batch,
            seed: self.seed,
            scheduler: self.scheduler,
            pool,
        }
    }
}

impl ModuleDraft {
    /// The module as every worker knows it, without a function.
    fn part(&self) -> Module {
        Module {
            name: self.name.clone(),
            kind: self.kind.name,
            function: None,
            from: None,
            gates: self.gates.clone(),
            drops: self.kind.drops,
            creates: self.kind.creates,
            consumes: self.kind.consumes,
            counters: Vec::new(),
            tables: Vec::new(),
            trigger: self.buffer.trigger,
            hold: self.buffer.hold,
            share: self.share,
        }
    }

    /// Makes a worker's own function; the `first` worker gets the one that was made while checking, unless it was made
    /// for that only.
    fn make(
        &self,
        part: &mut Module,
        checked: &mut Option<(Box<dyn forebay_graph::Function>, forebay_graph::Declared)>,
        surroundings: &mut Surroundings,
        first: bool,
    ) -> Result<(), forebay_graph::SetupError> {
        let (function, declared) = match checked.take().filter(|(_, declared)| first && !declared.provisional) {
            Some(made) => made,
            None => {
                let mut setup = Setup::new(&self.name, surroundings);
                let function = self.kind.build(&self.params, &mut setup)?;
                (function, setup.finish())
            }
        };
        (part.function, part.counters, part.tables) = (Some(function), declared.counters, declared.tables);
        Ok(())
    }
}

impl PortDraft {
    fn open(&self, surroundings: &mut Surroundings) -> Result<forebay_graph::OpenPort, forebay_graph::SetupError> {
        self.kind.open(&self.params, &mut Setup::new(&self.name, surroundings))
    }
}
