//! A configuration that is in order to what runs: functions for every worker, open ports.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_graph::{
    Files, LASTING, Module, ONCE_A_MODULE, Plan, PortPlan, SchedulerKind, Setup, SharedState, Surroundings,
};
use forebay_packet::{PoolOptions, Word};
use serde::{Deserialize, Serialize};

use crate::Source;
use crate::compile::{Conditions, Draft, ModuleDraft, PortDraft, add_faults, compile};
use crate::conform::Misfits;
use crate::identity::Identity;
use crate::language::PoolSection;
use crate::problem::{Findings, Problems};
use crate::yaml::Node;

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

/// What a running pipeline is made of, by name: how a changed configuration is told from it.
#[derive(Clone)]
pub struct Made {
    pub(crate) modules: BTreeMap<String, (Identity, Vec<usize>)>,
    pub(crate) ports: BTreeMap<String, (Identity, Vec<usize>)>,
    pub(crate) state: BTreeMap<String, (Identity, SharedState)>,
    /// What replicas of one module share ([`Setup::once_a_module`]), and what [lasts](Setup::lasting), by key.
    tables: BTreeMap<String, SharedState>,
    /// Who reads and writes which files.
    files: Files,
    /// What functions that are taken over know metadata words by.
    pub(crate) words: BTreeMap<String, Word>,
    batch: usize,
    seed: u64,
    scheduler: SchedulerKind,
    pool: (usize, usize),
}

/// What is different in a changed configuration, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// How many modules are taken over with their state, by one worker at least.
    pub kept: usize,
    /// Modules that are made anew, having changed, or because other sessions come to their workers.
    pub changed: Vec<String>,
    /// Modules that were not there before.
    pub added: Vec<String>,
    /// Modules that are gone.
    pub removed: Vec<String>,
    /// Modules that run on other workers than before.
    pub moved: Vec<String>,
    /// Ports that are opened, anew or for the first time.
    pub ports_opened: Vec<String>,
    /// Ports that are closed, for good or to be opened anew.
    pub ports_closed: Vec<String>,
}

impl Made {
    /// What is different in `new`.
    #[must_use]
    pub fn change_to(&self, new: &Self) -> Change {
        let mut change = Change::default();
        for (name, (identity, on)) in &new.modules {
            match self.modules.get(name) {
                None => change.added.push(name.clone()),
                Some((old, there)) => {
                    if there != on {
                        change.moved.push(name.clone());
                    }
                    if old == identity
                        && on.iter().any(|worker| taken_over(there, on, *worker, identity.is_keyed()).is_some())
                    {
                        change.kept += 1;
                    } else {
                        change.changed.push(name.clone());
                    }
                }
            }
        }
        change.removed = self.modules.keys().filter(|name| !new.modules.contains_key(*name)).cloned().collect();
        let goes_on = |old: &Self, new: &Self, name: &String| match (old.ports.get(name), new.ports.get(name)) {
            (Some((old, there)), Some((new, on))) => old == new && taken_over(there, on, on[0], true).is_some(),
            _ => false,
        };
        let not_on = |ports: &BTreeMap<String, (Identity, Vec<usize>)>| {
            ports.keys().filter(|name| !goes_on(self, new, name)).cloned().collect()
        };
        (change.ports_closed, change.ports_opened) = (not_on(&self.ports), not_on(&new.ports));
        change
    }

    /// Notes that the command line uses files, too.
    ///
    /// # Errors
    /// In words: the pipeline uses the file.
    pub fn claim(&mut self, who: &str, path: &Path, written: bool) -> Result<(), String> {
        self.files.claim(who, path, written)
    }

    /// Takes files out of what things are made of that they write: they are known once all are open.
    fn without_outputs(&mut self, root: &Node, base: &Path) {
        let files = &self.files;
        for (name, (identity, _)) in &mut self.modules {
            *identity = Identity::of(root, "modules", name, identity.kind(), base, files);
        }
        for (name, (identity, _)) in &mut self.ports {
            *identity = Identity::of(root, "ports", name, identity.kind(), base, files);
        }
    }

    /// What lasts, and what the replicas of modules share that are made in the same way in `root`: entries that were changed while packets
    /// ran stay changed, however many workers there will be.
    pub(crate) fn tables_of(&self, root: &Node, base: &Path) -> BTreeMap<String, SharedState> {
        let same = |(name, (identity, _)): &(&String, &(Identity, Vec<usize>))| {
            *identity == Identity::of(root, "modules", name, identity.kind(), base, &self.files)
        };
        let lasting = self.tables.iter().filter(|(key, _)| key.starts_with(LASTING));
        let mut tables: BTreeMap<_, _> = lasting.map(|(key, what)| (key.clone(), Arc::clone(what))).collect();
        for (name, _) in self.modules.iter().filter(same) {
            let prefix = format!("{ONCE_A_MODULE}{name} ");
            let of_module = self.tables.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
            tables.extend(of_module.map(|(key, table)| (key.clone(), Arc::clone(table))));
        }
        tables
    }

    /// The workers that have this module, where it is there and is made the same way.
    fn module(&self, name: &str, identity: &Identity) -> Option<&[usize]> {
        self.modules.get(name).filter(|(other, _)| other == identity).map(|(_, on)| &on[..])
    }
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

/// From which of the workers `there` the module on worker `worker`, one of `on`, is taken over; none where it begins anew.
///
/// A worker keeps its own; one whose state is `keyed` by sessions only as long as the same sessions come to it. A module that
/// was alone and stays alone moves.
fn taken_over(there: &[usize], on: &[usize], worker: usize, keyed: bool) -> Option<usize> {
    match (there, on) {
        ([old], [_]) => Some(*old),
        _ => (there == on || !keyed && there.contains(&worker)).then_some(worker),
    }
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

    /// What cannot change while packets run.
    fn refuse_fixed(&self, running: &Made, pool: (usize, usize), findings: &mut Findings) {
        let place = |key| self.root.place_of([key]);
        if self.batch != running.batch {
            let (now, new) = (running.batch, self.batch);
            findings.add(
                place("batch"),
                format!("batch: it is {now} and would be {new}: it cannot change while packets run"),
            );
        }
        if self.seed != running.seed {
            let (now, new) = (running.seed, self.seed);
            findings.add(
                place("seed"),
                format!("seed: it is {now} and would be {new}: it cannot change while packets run"),
            );
        }
        if self.scheduler != running.scheduler {
            findings.add(
                place("scheduler"),
                "scheduler: it cannot change while packets run: leave it as it is, or start anew",
            );
        }
        if pool != running.pool {
            findings.add(place("pool"), "pool: it cannot change while packets run: leave it as it is, or start anew");
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
