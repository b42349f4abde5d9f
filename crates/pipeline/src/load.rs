//! A configuration that is in order to what runs: functions for every worker, open ports.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use forebay_control::Arrangement;
use forebay_graph::{Claim, Files, LASTING, Module, ONCE_A_MODULE, Plan, PortPlan, Setup, Surroundings, kept_as};
use forebay_packet::PoolOptions;

use crate::Source;
use crate::compile::{
    Conditions, Draft, ModuleDraft, PortDraft, add_faults, claim_configuration, claim_reads, compile, reads_of,
};
use crate::conform::Misfits;
use crate::demands::{PortDemand, own_addresses, port_demands};
use crate::identity::Identity;
use crate::language::PoolSection;
use crate::made::{Made, taken_over};
use crate::problem::{Findings, Problems, shown_file};

/// A pipeline that is ready to run.
pub struct Loaded {
    /// What each worker runs; at least one.
    pub plans: Vec<Plan>,
    /// By worker: the core that the configuration binds it to.
    pub cores: Vec<Option<usize>>,
    /// By worker: where the configuration says so, as messages have it.
    pub core_places: Vec<String>,
    /// What everything random derives from.
    pub seed: u64,
    /// The files that it reads and writes.
    pub files: Files,
    /// What it is made of: to be compared with its successor.
    pub made: Made,
    /// How many lines of their files modules skipped, by module; modules that skipped none are left out.
    pub skipped: BTreeMap<String, usize>,
    /// Whether all packets that enter wait until a worker takes them (`DeclarePort::waits`).
    pub input_waits: bool,
    /// The demands of its ports on the machine.
    pub ports: Vec<PortDemand>,
    /// The addresses that it answers for.
    pub addresses: Vec<IpAddr>,
}

/// Checks a configuration, then opens its ports.
///
/// # Errors
/// Everything that is wrong, with places; ports are opened only where nothing else is.
pub fn load(source: &Source, conditions: Conditions) -> Result<Loaded, Problems> {
    prepare(source, conditions, None)?.open()
}

/// A configuration that is in order; nothing outside of it knows of it yet.
pub struct Prepared {
    source: Source,
    draft: Draft,
    surroundings: Surroundings,
    made: Made,
    /// What it is to follow.
    running: Option<Made>,
    /// How many uses of files are the running pipeline's.
    used: usize,
    /// Modules and states that write files, each with the file.
    writes: Vec<(String, String)>,
}

/// Checks a configuration, which may be to follow a running one: what is the same in both will not be made or opened anew.
/// Files are read, but none is made, and no port is opened.
///
/// # Errors
/// Everything that is wrong, with places; also what cannot change while packets run: the largest batch, the seed, the
/// scheduler and the packet pool.
pub fn prepare(source: &Source, conditions: Conditions, running: Option<&Made>) -> Result<Prepared, Problems> {
    prepared(source, conditions, running, None)
}

/// The running configuration once more, with modules on other workers: it follows like any other.
///
/// # Errors
/// As [`prepare`]. Also files that were changed since they were read: what they would change is for a reload to say.
pub fn rearrange(running: &Made, conditions: Conditions, arrangement: &Arrangement) -> Result<Prepared, Problems> {
    let prepared = prepared(&running.source, conditions, Some(running), Some(arrangement))?;
    prepared.refuse_made_otherwise(running)?;
    Ok(prepared)
}

fn prepared(
    source: &Source,
    conditions: Conditions,
    running: Option<&Made>,
    arrangement: Option<&Arrangement>,
) -> Result<Prepared, Problems> {
    let (mut draft, mut surroundings) = compile(source, conditions, running, arrangement)?;
    let (mut findings, mut misfits) = (Findings::default(), Misfits::default());
    surroundings.checking = false;
    let of_modules = |claim: &&Claim| claim.writes() && draft.modules.iter().any(|module| module.name == claim.name);
    let writes = surroundings.claims.iter().filter(of_modules).map(|claim| {
        let file = claim.path.strip_prefix(&source.base).unwrap_or(&claim.path);
        (claim.who.clone(), file.display().to_string())
    });
    let writes = writes.collect();
    // What was asked for while all was checked is asked for once more.
    surroundings.claims.clear();
    if let Some(running) = running {
        // What runs reads and writes on until it is replaced.
        surroundings.files = running.files.clone();
        draft.refuse_fixed(running, &mut findings);
    }
    let used = surroundings.files.count();
    claim_configuration(source, running.is_some(), &mut surroundings.files, &mut findings);
    let reads = std::mem::take(&mut draft.reads);
    claim_reads(&reads, &draft.root, &mut surroundings.files, &mut misfits);
    misfits.report(&mut findings);
    findings.finish(&source.file, &source.text, &source.sets)?;
    let made = draft.made(source, &surroundings);
    Ok(Prepared { source: source.clone(), draft, surroundings, made, running: running.cloned(), used, writes })
}

impl Prepared {
    /// Refuses files that were changed since the running pipeline has read them: the change is for a reload to make.
    pub(crate) fn refuse_made_otherwise(&self, running: &Made) -> Result<(), Problems> {
        let mut findings = Findings::default();
        for (section, name) in self.made.made_otherwise(running) {
            let place = self.draft.root.place_of([section, name]);
            findings.add(place, format!("'{name}' reads a file that was changed since: reload, or change it back"));
        }
        findings.finish(&self.source.file, &self.source.text, &self.source.sets)
    }

    pub(crate) fn made(&self) -> &Made {
        &self.made
    }

    pub(crate) fn draft(&self) -> &Draft {
        &self.draft
    }

    /// By worker: the core that the configuration binds it to.
    #[must_use]
    pub fn cores(&self) -> &[Option<usize>] {
        &self.draft.cores
    }

    /// The modules, as `'NAME'`, and states, as `state 'NAME'`, that write files, each with the file's name.
    #[must_use]
    pub fn writes(&self) -> &[(String, String)] {
        &self.writes
    }

    /// Makes every worker's functions, and opens ports: whoever drops them unused leaves everything as it was. The plans say
    /// from which worker a thing is taken over (`from`).
    ///
    /// # Errors
    /// What cannot be had, with places.
    pub fn open(mut self) -> Result<Loaded, Problems> {
        let mut skipped = BTreeMap::new();
        for (module, _) in self.draft.modules.iter().flat_map(ModuleDraft::skipped) {
            *skipped.entry(module).or_insert(0) += 1;
        }
        let core_places = (0..self.draft.cores.len()).map(|worker| self.core_place(worker)).collect();
        let mut plans = self.draft.plans();
        self.in_order(&mut plans, Self::make_modules)?;
        self.in_order(&mut plans, Self::open_ports)?;
        let (ports, addresses) = (port_demands(&self.draft), own_addresses(&self.draft));
        let Self { draft, surroundings, made, running, used, .. } = self;
        let Surroundings { made: mut tables, kept, mut files, words, input_waits, .. } = surroundings;
        tables.retain(|key, _| lasts(key, &kept));
        files.settle(used, |who| goes_on(who, &plans, running.as_ref(), &made));
        let mut made = Made { tables, kept, words, files: files.clone(), ..made };
        made.without_outputs(&draft.root, &draft.stamps);
        let cores = draft.cores;
        Ok(Loaded { plans, cores, core_places, seed: draft.seed, files, made, skipped, input_waits, ports, addresses })
    }

    /// Where a worker's core is written.
    fn core_place(&self, worker: usize) -> String {
        let place = self.draft.root.place_of(["workers", &worker.to_string(), "core"]);
        place.shown(&shown_file(&self.source.file), &self.source.sets)
    }

    /// One step of opening; what is wrong with it is said before the next one.
    fn in_order(
        &mut self,
        plans: &mut [Plan],
        step: impl FnOnce(&mut Self, &mut [Plan], &mut Misfits),
    ) -> Result<(), Problems> {
        let (mut findings, mut misfits) = (Findings::default(), Misfits::default());
        step(self, plans, &mut misfits);
        misfits.report(&mut findings);
        findings.finish(&self.source.file, &self.source.text, &self.source.sets)
    }

    fn make_modules(&mut self, plans: &mut [Plan], misfits: &mut Misfits) {
        let Self { draft, surroundings, made, running, .. } = self;
        let parted = running.as_ref().map(|running| made.parted(running)).unwrap_or_default();
        for (at, module) in draft.modules.iter_mut().enumerate() {
            let on = &draft.placement.modules[at];
            let there =
                running.as_ref().and_then(|running| running.module(&module.name, &made.modules[&module.name].0));
            let mut set_up = module.declared.take();
            for plan in &mut *plans {
                let mut part = module.part();
                // The workers that hand packets over to it drop what has no room.
                part.share.marks.when_full = module.share.marks.when_full;
                if let Some(share) = on.iter().position(|worker| *worker == plan.worker) {
                    part.share = module.share.of(on.len());
                    let there = there.filter(|_| !parted.contains(module.name.as_str()));
                    part.from = there.and_then(|there| taken_over(there, on, plan.worker, draft.placement.keyed[at]));
                    if part.from.is_none() {
                        surroundings.share = (share, on.len());
                        if let Err(error) = module.make(&mut part, &mut set_up, surroundings, share == 0) {
                            add_faults(misfits, &draft.root, &["modules", &module.name, module.kind.name], error);
                        }
                    }
                }
                plan.modules.push(part);
            }
        }
        plans.iter_mut().for_each(|plan| draft.fold(plan));
        // They have read what was read while they were checked.
        drop(surroundings.reads.take());
    }

    fn open_ports(&mut self, plans: &mut [Plan], misfits: &mut Misfits) {
        let Self { draft, surroundings, made, running, .. } = self;
        surroundings.frame = draft.pool.frame;
        for (at, (port, entry)) in draft.ports.iter().zip(&draft.entries).enumerate() {
            let on = &draft.placement.ports[at];
            let there = running.as_ref().and_then(|running| running.ports.get(&port.name));
            let there = there.filter(|(identity, _)| *identity == made.ports[&port.name].0);
            for plan in &mut *plans {
                let share = on.iter().position(|worker| *worker == plan.worker);
                // With other shares it must be opened anew.
                let from = share.and_then(|_| taken_over(&there?.1, on, plan.worker, true));
                let (name, kind) = (port.name.clone(), port.kind.name);
                let mut part = PortPlan { name, kind, open: None, from, entry: *entry };
                if let Some(share) = share.filter(|_| from.is_none()) {
                    surroundings.share = (share, on.len());
                    match port.open(surroundings) {
                        Ok(open) => part.open = Some(open),
                        Err(error) => add_faults(misfits, &draft.root, &["ports", &port.name, kind], error),
                    }
                }
                plan.ports.push(part);
            }
            claim_reads(&reads_of("ports", surroundings), &draft.root, &mut surroundings.files, misfits);
        }
    }
}

/// Whether what was made under a key is there for the next configuration to find. Sessions that nothing of this one has asked
/// for are not: their tables would stay for as long as the pipeline runs, and a configuration that is as one before would find
/// old sessions in them. Who holds them tells nothing: what runs until it is replaced does, too.
fn lasts(key: &str, kept: &BTreeMap<String, String>) -> bool {
    match kept_as(key) {
        Some(as_this) => kept.contains_key(as_this),
        None => key.starts_with(ONCE_A_MODULE) || key.starts_with(LASTING),
    }
}

/// Whether what `who` of the running pipeline uses is used on, because it is taken over. The configuration is not: the next
/// has a file of its own.
fn goes_on(who: &str, plans: &[Plan], running: Option<&Made>, made: &Made) -> bool {
    if let Some(name) = who.strip_prefix("state '").and_then(|name| name.strip_suffix('\'')) {
        let of = |made: &Made| Some(Arc::as_ptr(&made.state.get(name)?.what).cast::<()>());
        return running.and_then(of).is_some_and(|old| of(made) == Some(old));
    }
    let Some(name) = who.strip_prefix('\'').and_then(|name| name.strip_suffix('\'')) else { return false };
    let modules = |plan: &Plan| plan.modules.iter().any(|module| module.name == name && module.from.is_some());
    plans.iter().any(|plan| modules(plan) || plan.ports.iter().any(|port| port.name == name && port.from.is_some()))
}

impl Draft {
    /// Each worker's plan, without modules and ports.
    fn plans(&self) -> Vec<Plan> {
        let PoolSection { chunks, frame } = self.pool;
        let placement = Arc::new(self.placement.clone());
        let plan = |worker| Plan {
            name: self.name.clone(),
            batch: self.batch,
            scheduler: self.scheduler,
            pool: PoolOptions { chunks, frame, ..PoolOptions::default() },
            modules: Vec::new(),
            ports: Vec::new(),
            folds: self.folds.clone(),
            flows: self.flows.clone(),
            worker,
            placement: Arc::clone(&placement),
            meter: None,
        };
        (0..placement.workers).map(plan).collect()
    }

    /// Makes one function out of those of modules that run as one.
    fn fold(&self, plan: &mut Plan) {
        for members in &self.folds {
            let functions: Vec<_> = members.iter().filter_map(|member| plan.modules[*member].function.take()).collect();
            // Those of other workers, and what is taken over, are none.
            if functions.len() == members.len() {
                let folded = self.modules[members[0]].kind.fold(functions).expect("modules of one kind that folds");
                plan.modules[members[0]].function = Some(folded);
            }
        }
    }

    fn made(&self, source: &Source, surroundings: &Surroundings) -> Made {
        let identity = |section: &str, name: &str, kind: &str| {
            Identity::of(&self.root, section, name, kind, &self.stamps, &surroundings.files)
        };
        let modules = self.modules.iter().zip(&self.placement.modules);
        let ports = self.ports.iter().zip(&self.placement.ports);
        Made {
            source: source.clone(),
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
            kept: BTreeMap::new(),
            files: Files::default(),
            words: BTreeMap::new(),
            folds: self
                .folds
                .iter()
                .map(|members| members.iter().map(|member| self.modules[*member].name.clone()).collect())
                .collect(),
            batch: self.batch,
            seed: self.seed,
            scheduler: self.scheduler,
            pool: (self.pool.chunks, self.pool.frame),
            control: self.control.clone(),
            graph: self.graph(),
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
