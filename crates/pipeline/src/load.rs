//! Turns a valid configuration into a runnable plan: creates the functions of every worker and opens the ports.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use forebay_control::Arrangement;
use forebay_graph::{
    Claim, Files, HandedOver, Module, ObjectKey, Plan, PortPlan, Setup, SetupEnvironment, SharedObjects,
};
use forebay_packet::PoolOptions;

use crate::Source;
use crate::claims::{claim_configuration, claim_reads, reads_of};
use crate::compile::{Conditions, compile};
use crate::demands::{PortDemand, own_addresses, port_demands};
use crate::draft::{Draft, ModuleDraft, PortDraft};
use crate::faults::FaultCollector;
use crate::identity::Identity;
use crate::language::PoolSection;
use crate::parts::{PipelineParts, taken_over};
use crate::problems::{Problems, shown_file};

/// A pipeline that is ready to run.
pub struct Loaded {
    /// The plan of each worker. There is at least one.
    pub plans: Vec<Plan>,
    /// The core of each worker, if the configuration names one.
    pub cores: Vec<Option<usize>>,
    /// The place of each worker's core in the configuration, for messages.
    pub core_places: Vec<String>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The files that the pipeline reads and writes.
    pub files: Files,
    /// The parts of the pipeline, for the comparison with the next configuration.
    pub made: PipelineParts,
    /// The number of lines that each module skipped in its files. Modules that skipped no line are missing.
    pub skipped: BTreeMap<String, usize>,
    /// Whether all input packets wait until a worker takes them (`DeclarePort::waits`).
    pub input_waits: bool,
    /// The resources that the ports need.
    pub ports: Vec<PortDemand>,
    /// The pipeline's own addresses.
    pub addresses: Vec<IpAddr>,
}

/// Checks a configuration, then opens its ports.
///
/// # Errors
/// Returns all errors of the configuration, with their places. Opens no port if there is another error.
pub fn load(source: &Source, conditions: Conditions) -> Result<Loaded, Problems> {
    prepare(source, conditions, None)?.open()
}

/// A valid configuration that has not changed anything yet. Dropping it has no effect.
pub struct Prepared {
    source: Source,
    draft: Draft,
    environment: SetupEnvironment,
    made: PipelineParts,
    /// The running configuration that it will replace.
    running: Option<PipelineParts>,
    /// The number of file claims of the running pipeline. They are the first claims in `environment.files.used`.
    used: usize,
    /// The modules and states that write files, and the files.
    writes: Vec<(String, String)>,
}

/// Checks a configuration. If the configuration replaces a running one, the method [`Prepared::open`] later takes over
/// the parts that are the same in both. Reads files, but creates none, and opens no port.
///
/// # Errors
/// Returns all errors of the configuration, with their places. Changes of the largest batch, the seed, the scheduler
/// and the packet pool are errors, because they cannot change while packets run.
pub fn prepare(source: &Source, conditions: Conditions, running: Option<&PipelineParts>) -> Result<Prepared, Problems> {
    prepared(source, conditions, running, None)
}

/// Prepares the running configuration with its modules on other workers, as `arrangement` states.
///
/// # Errors
/// Returns the errors of [`prepare`], and an error if a file has changed since it was read, because only a reload may
/// apply such a change.
pub fn rearrange(
    running: &PipelineParts,
    conditions: Conditions,
    arrangement: &Arrangement,
) -> Result<Prepared, Problems> {
    let prepared = prepared(&running.source, conditions, Some(running), Some(arrangement))?;
    prepared.refuse_made_otherwise(running)?;
    Ok(prepared)
}

/// Checks a configuration. Also checks that its files are not in conflict with files that the running pipeline uses,
/// and that no setting changes that cannot change while packets run.
fn prepared(
    source: &Source,
    conditions: Conditions,
    running: Option<&PipelineParts>,
    arrangement: Option<&Arrangement>,
) -> Result<Prepared, Problems> {
    let (mut draft, mut environment) = compile(source, conditions, running, arrangement)?;
    let mut faults = FaultCollector::default();
    environment.checking = false;
    let of_modules = |claim: &&Claim| claim.writes() && draft.modules.iter().any(|module| module.name == claim.name);
    let writes = environment.files.claims.iter().filter(of_modules).map(|claim| {
        let file = claim.path.strip_prefix(&source.base).unwrap_or(&claim.path);
        (claim.who.clone(), file.display().to_string())
    });
    let writes = writes.collect();
    // The modules claim their files again when they are created.
    environment.files.claims.clear();
    if let Some(running) = running {
        // The running pipeline uses its files until it is replaced.
        environment.files.used = running.files.clone();
        draft.refuse_fixed(running, &mut faults);
    }
    let used = environment.files.used.count();
    claim_configuration(source, running.is_some(), &mut environment.files.used, &mut faults);
    let reads = std::mem::take(&mut draft.reads);
    claim_reads(&reads, &draft.root, &mut environment.files.used, &mut faults);
    faults.finish(&source.file, &source.text, &source.sets)?;
    let made = draft.made(source, &environment);
    Ok(Prepared { source: source.clone(), draft, environment, made, running: running.cloned(), used, writes })
}

impl Prepared {
    /// Returns an error for each module or port with a file that has changed since the running pipeline read it,
    /// because only a reload may apply such a change.
    pub(crate) fn refuse_made_otherwise(&self, running: &PipelineParts) -> Result<(), Problems> {
        let mut faults = FaultCollector::default();
        for (section, name) in self.made.differing_from(running) {
            let place = self.draft.root.place_of([section, name]);
            let message =
                format!("'{name}' reads a file that has changed since Forebay read it: reload, or restore the file");
            faults.add(place, message);
        }
        faults.finish(&self.source.file, &self.source.text, &self.source.sets)
    }

    /// Returns the parts of the new pipeline, for the comparison with the running pipeline.
    pub(crate) fn made(&self) -> &PipelineParts {
        &self.made
    }

    /// Returns the checked pipeline.
    pub(crate) fn draft(&self) -> &Draft {
        &self.draft
    }

    /// Returns the core of each worker, if the configuration names one.
    #[must_use]
    pub fn cores(&self) -> &[Option<usize>] {
        &self.draft.cores
    }

    /// Returns the modules (`'NAME'`) and states (`state 'NAME'`) that write files, each with its file.
    #[must_use]
    pub fn writes(&self) -> &[(String, String)] {
        &self.writes
    }

    /// Creates the functions of every worker and opens the ports. If the caller drops the result, everything is closed
    /// again. In the plans, `from` is the worker from which a module or port is taken over. A module that is
    /// taken over has no function in the plan, and a port that is taken over is not opened.
    ///
    /// # Errors
    /// Returns an error for each function that cannot be created and each port that cannot be opened, with its place.
    pub fn open(mut self) -> Result<Loaded, Problems> {
        let mut skipped = BTreeMap::new();
        for (module, _) in self.draft.modules.iter().flat_map(ModuleDraft::skipped) {
            *skipped.entry(module).or_insert(0) += 1;
        }
        let core_places = (0..self.draft.cores.len()).map(|worker| self.core_place(worker)).collect();
        let mut plans = self.draft.plans();
        self.run_step(&mut plans, Self::make_modules)?;
        self.run_step(&mut plans, Self::open_ports)?;
        let (ports, addresses) = (port_demands(&self.draft), own_addresses(&self.draft));
        let Self { draft, environment, made, running, used, .. } = self;
        let SetupEnvironment { files, objects, words, input_waits, .. } = environment;
        let SharedObjects { shared: mut tables, handed_over, .. } = objects;
        let mut files = files.used;
        tables.retain(|key, _| lasts(key, &handed_over));
        files.settle(used, |who| is_taken_over(who, &plans, running.as_ref(), &made));
        let mut made = PipelineParts { tables, handed_over, words, files: files.clone(), ..made };
        made.without_outputs(&draft.root, &draft.stamps);
        let cores = draft.cores;
        Ok(Loaded { plans, cores, core_places, seed: draft.seed, files, made, skipped, input_waits, ports, addresses })
    }

    /// Returns the place of a worker's core in the configuration.
    fn core_place(&self, worker: usize) -> String {
        let place = self.draft.root.place_of(["workers", &worker.to_string(), "core"]);
        place.shown(&shown_file(&self.source.file), &self.source.sets)
    }

    /// Runs one step of opening. Returns the errors of this step, so that the next step does not run after an error.
    fn run_step(
        &mut self,
        plans: &mut [Plan],
        step: impl FnOnce(&mut Self, &mut [Plan], &mut FaultCollector),
    ) -> Result<(), Problems> {
        let mut faults = FaultCollector::default();
        step(self, plans, &mut faults);
        faults.finish(&self.source.file, &self.source.text, &self.source.sets)
    }

    /// Adds each module to the plan of every worker. Creates the module's function only on the workers that run the
    /// module and do not take it over.
    fn make_modules(&mut self, plans: &mut [Plan], faults: &mut FaultCollector) {
        let Self { draft, environment, made, running, .. } = self;
        let parted = running.as_ref().map(|running| made.parted(running)).unwrap_or_default();
        for (at, module) in draft.modules.iter_mut().enumerate() {
            let on = &draft.placement.modules[at];
            let running_on =
                running.as_ref().and_then(|running| running.module(&module.name, &made.modules[&module.name].0));
            let mut set_up = module.declared.take();
            for plan in &mut *plans {
                let mut part = module.part();
                // The workers that send packets to the module need this setting. It states whether they drop packets or
                // wait if the ring to the module's worker is full.
                part.share.marks.when_full = module.share.marks.when_full;
                if let Some(share) = on.iter().position(|worker| *worker == plan.worker) {
                    part.share = module.share.of(on.len());
                    let running_on = running_on.filter(|_| !parted.contains(module.name.as_str()));
                    part.from = running_on.and_then(|old| taken_over(old, on, plan.worker, draft.placement.keyed[at]));
                    if part.from.is_none() {
                        environment.share = (share, on.len());
                        if let Err(error) = module.make(&mut part, &mut set_up, environment, share == 0) {
                            faults.add_all(&draft.root, &["modules", &module.name, module.kind.name], error);
                        }
                    }
                }
                plan.modules.push(part);
            }
        }
        plans.iter_mut().for_each(|plan| draft.fold(plan));
        // Discards the list of read files: the check has claimed them already.
        drop(environment.files.reads.take());
    }

    /// Adds each port to the plan of every worker. Opens the port on each of its workers that does not take the port
    /// over.
    fn open_ports(&mut self, plans: &mut [Plan], faults: &mut FaultCollector) {
        let Self { draft, environment, made, running, .. } = self;
        environment.frame = draft.pool.frame;
        for (at, (port, entry)) in draft.ports.iter().zip(&draft.entries).enumerate() {
            let on = &draft.placement.ports[at];
            let running_port = running.as_ref().and_then(|running| running.ports.get(&port.name));
            let running_port = running_port.filter(|(identity, _)| *identity == made.ports[&port.name].0);
            for plan in &mut *plans {
                let share = on.iter().position(|worker| *worker == plan.worker);
                // If several workers run the port, each worker receives a share of its packets. With other workers, the
                // shares change, and the port must be opened again.
                let from = share.and_then(|_| taken_over(&running_port?.1, on, plan.worker, true));
                let (name, kind) = (port.name.clone(), port.kind.name);
                let mut part = PortPlan { name, kind, open: None, from, entry: *entry };
                if let Some(share) = share.filter(|_| from.is_none()) {
                    environment.share = (share, on.len());
                    match port.open(environment) {
                        Ok(open) => part.open = Some(open),
                        Err(error) => faults.add_all(&draft.root, &["ports", &port.name, kind], error),
                    }
                }
                plan.ports.push(part);
            }
            claim_reads(&reads_of("ports", environment), &draft.root, &mut environment.files.used, faults);
        }
    }
}

/// Returns whether a shared object is kept for the next configuration. Tables of sessions that no part of this
/// configuration uses are not kept. Otherwise they would stay in memory as long as the pipeline runs, and a later
/// configuration would find old sessions in them. The reference count cannot decide this, because the running pipeline
/// holds references, too.
fn lasts(key: &ObjectKey, requested: &BTreeMap<HandedOver, String>) -> bool {
    match key {
        ObjectKey::Configuration(_) => false,
        ObjectKey::Module { .. } | ObjectKey::Run(_) => true,
        ObjectKey::HandedOver { object, .. } => requested.contains_key(object),
    }
}

/// Returns whether the user `who` of a file is taken over from the running pipeline. `who` is the text of a claim:
/// `'NAME'` or `state 'NAME'`. The configuration file itself is not taken over, because the next configuration has its
/// own file.
fn is_taken_over(who: &str, plans: &[Plan], running: Option<&PipelineParts>, made: &PipelineParts) -> bool {
    if let Some(name) = who.strip_prefix("state '").and_then(|name| name.strip_suffix('\'')) {
        let of = |made: &PipelineParts| Some(Arc::as_ptr(&made.state.get(name)?.object).cast::<()>());
        return running.and_then(of).is_some_and(|old| of(made) == Some(old));
    }
    let Some(name) = who.strip_prefix('\'').and_then(|name| name.strip_suffix('\'')) else { return false };
    let modules = |plan: &Plan| plan.modules.iter().any(|module| module.name == name && module.from.is_some());
    plans.iter().any(|plan| modules(plan) || plan.ports.iter().any(|port| port.name == name && port.from.is_some()))
}

impl Draft {
    /// Returns the plan of each worker, without modules and ports.
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

    /// Combines the functions of modules that run as one into one function. The first of these modules gets this
    /// function.
    fn fold(&self, plan: &mut Plan) {
        for members in &self.folds {
            let functions: Vec<_> = members.iter().filter_map(|member| plan.modules[*member].function.take()).collect();
            // Modules of other workers and modules that are taken over have no function here.
            if functions.len() == members.len() {
                let folded = self.modules[members[0]].kind.fold(functions).expect("modules of one kind that folds");
                plan.modules[members[0]].function = Some(folded);
            }
        }
    }

    /// Returns the parts of this pipeline for the comparison with the next configuration. [`open`](Prepared::open) sets
    /// the fields that are empty here.
    fn made(&self, source: &Source, environment: &SetupEnvironment) -> PipelineParts {
        let identity = |section: &str, name: &str, kind: &str| {
            Identity::of(&self.root, section, name, kind, &self.stamps, &environment.files.used)
        };
        let modules = self.modules.iter().zip(&self.placement.modules);
        let ports = self.ports.iter().zip(&self.placement.ports);
        PipelineParts {
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
            handed_over: BTreeMap::new(),
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
    /// Returns the module's part of a plan, without a function.
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

    /// Creates the module's function for a worker. If `first` is true, the worker gets the function that the check has
    /// created, except if that function is provisional.
    fn make(
        &self,
        part: &mut Module,
        checked: &mut Option<(Box<dyn forebay_graph::Function>, forebay_graph::Declared)>,
        environment: &mut SetupEnvironment,
        first: bool,
    ) -> Result<(), forebay_graph::SetupError> {
        let (function, declared) = match checked.take().filter(|(_, declared)| first && !declared.provisional) {
            Some(made) => made,
            None => {
                let mut setup = Setup::new(&self.name, environment);
                let function = self.kind.build(&self.params, &mut setup)?;
                (function, setup.finish())
            }
        };
        (part.function, part.counters, part.tables) = (Some(function), declared.counters, declared.tables);
        Ok(())
    }
}

impl PortDraft {
    /// Opens the port on one worker. The caller has set the worker's share of the packets in `environment.share`.
    fn open(&self, environment: &mut SetupEnvironment) -> Result<forebay_graph::OpenPort, forebay_graph::SetupError> {
        self.kind.open(&self.params, &mut Setup::new(&self.name, environment))
    }
}
