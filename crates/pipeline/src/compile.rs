//! Turns the text of a configuration into a draft of its pipeline, or finds all of its faults.
//!
//! Each step is done once, in this order. The text becomes a tree, which is checked against the schema ([`Tree`]). The
//! states and functions are created, and the ports are checked ([`Created`]). The lines connect the functions and
//! ports, and the other sections, which name them, are read ([`Connected`]). If there is no fault so far, all parts are
//! put in topological order ([`Draft`]), and are checked together.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_control::{Arrangement, Settings};
use forebay_graph::{FlowPlan, Placement, SetupEnvironment, Share, Step, Target};
use forebay_packet::MAX_BATCH;
use forebay_protocol::SchedulerKind;
use forebay_protocol::check::Fault;
use forebay_protocol::event::on_one_line;
use forebay_units::Frequency;

use crate::buffers::read_buffers;
use crate::claims::{claim_all, reads_of};
use crate::create::{CreatedModule, check_ports, make_modules, make_state, unknown_words, unused_state};
use crate::draft::{CreatedState, Draft, ModuleDraft, PortDraft, Read};
use crate::faults::FaultCollector;
use crate::identity::Stamps;
use crate::language::{Buffer, Fold, PoolSection};
use crate::parts::PipelineParts;
use crate::problems::Problems;
use crate::section::read;
use crate::wiring::{Ends, Wiring, sort};
use crate::workers::Workers;
use crate::yaml::Node;
use crate::{Source, control, flows, fold, held, schema, shares, together};

/// Facts about a valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The pipeline's name.
    pub name: String,
    /// The name and function of each module, in topological order.
    pub modules: Vec<(String, &'static str)>,
    /// The name and kind of each port, in order of definition.
    pub ports: Vec<(String, &'static str)>,
    /// The names of the declared flows.
    pub flows: Vec<String>,
    /// The lines that modules skipped in the files that they read: the module, and the line as a JSON object from its
    /// table `skipped`.
    pub skipped: Vec<(String, String)>,
    /// The warnings about modules' tables: the module and a sentence.
    pub warnings: Vec<(String, String)>,
}

/// How the pipeline will run.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// The frequency of the clock.
    pub frequency: Frequency,
    /// Whether time is simulated ([`SetupEnvironment::simulated`]).
    pub simulated: bool,
}

/// Checks a configuration without opening ports or reading traffic. Creates the functions, and reads the files of rules
/// and routes that they name.
///
/// # Errors
/// Returns all errors of the configuration, with their places.
pub fn check(source: &Source) -> Result<Checked, Problems> {
    // Nothing runs, so the frequency has no effect. In simulated time, nothing waits.
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let (draft, _) = compile(source, conditions, None, None)?;
    Ok(Checked {
        modules: draft.modules.iter().map(|module| (module.name.clone(), module.kind.name)).collect(),
        ports: draft.ports.iter().map(|port| (port.name.clone(), port.kind.name)).collect(),
        flows: draft.flows.iter().map(|flow| flow.name.clone()).collect(),
        skipped: draft.modules.iter().flat_map(ModuleDraft::skipped).collect(),
        warnings: draft.modules.iter().flat_map(ModuleDraft::warnings).collect(),
        name: draft.name,
    })
}

/// Checks a text. File names in the text are relative to `base`. Fuzzing and tests call this function with any text.
///
/// # Errors
/// Returns all errors of the configuration, with their places.
pub fn check_str(text: &str, base: &Path) -> Result<Checked, Vec<Fault>> {
    check(&Source::new(text, "text", base)).map_err(|problems| problems.faults)
}

/// Checks a configuration. If the configuration replaces a `running` one, states that are the same in both are taken
/// over. An `arrangement` places modules on other workers than the text does. Returns the draft and the environment
/// that its functions were created in.
pub(crate) fn compile(
    source: &Source,
    conditions: Conditions,
    running: Option<&PipelineParts>,
    arrangement: Option<&Arrangement>,
) -> Result<(Draft, SetupEnvironment), Problems> {
    let finish = |faults: FaultCollector| faults.finish(&source.file, &source.text, &source.sets);
    let mut faults = FaultCollector::default();
    let Some(tree) = Tree::of(source, &mut faults) else {
        finish(faults)?;
        unreachable!("a text without a tree has a problem")
    };
    let mut environment = tree.environment(source, conditions, running);
    let created = Created::of(&tree, running, arrangement, &mut environment, &mut faults);
    let connected = Connected::of(&tree, created, running, arrangement, &mut faults);
    let claims = &environment.files.claims;
    claim_all(&tree.root, (source, running.is_some()), &connected.reads, claims, &mut faults);
    finish(std::mem::take(&mut faults))?;
    let draft = connected.in_order(tree);
    together::check(&draft, &mut faults);
    // With an arrangement, the configuration runs already. It is not refused because of the workers of its modules.
    if arrangement.is_none() {
        held::check(&draft, &mut faults);
    }
    finish(faults)?;
    Ok((draft, environment))
}

/// The text as a tree, and the settings that concern the pipeline as a whole. After an error, a setting has its
/// default, except that a `batch` that is out of range becomes the largest allowed batch.
struct Tree {
    root: Node,
    /// The stamps of the files that the text names.
    stamps: Stamps,
    /// The pipeline's name; by default the name of the file without its folder and extension.
    name: String,
    /// The largest batch, in packets.
    batch: usize,
    /// The seed of all random numbers.
    seed: u64,
    pool: PoolSection,
    fold: Fold,
    scheduler: SchedulerKind,
}

impl Tree {
    /// Reads the text, and checks it against the schema. Returns `None` if there is no tree, for example if the text is
    /// not YAML; then there is a fault.
    fn of(source: &Source, faults: &mut FaultCollector) -> Option<Self> {
        let mut root = source.tree(faults)?;
        faults.check(schema::rules(), &root);
        root.prune();
        let whole = |key: &str| root.get(key).and_then(|node| node.to_json().as_u64());
        let batch = whole("batch").map_or(32, |batch| {
            usize::try_from(batch).ok().filter(|batch| (1..=MAX_BATCH).contains(batch)).unwrap_or(MAX_BATCH)
        });
        let stem = Path::new(&source.file).file_stem();
        let stem = stem.map_or_else(|| source.file.clone(), |stem| stem.to_string_lossy().into_owned());
        let stem = on_one_line(&stem);
        Some(Self {
            stamps: Stamps::of(&root, &source.base),
            name: root.get("name").and_then(Node::as_text).map_or(stem, str::to_owned),
            batch,
            seed: whole("seed").unwrap_or(1),
            pool: root.get("pool").and_then(|node| read(faults, &root, &["pool"], node)).unwrap_or_default(),
            fold: root.get("fold").and_then(|node| read(faults, &root, &["fold"], node)).unwrap_or_default(),
            scheduler: shares::scheduler(&root),
            root,
        })
    }

    /// Returns the environment in which the functions are created, with the objects that the running pipeline hands
    /// over.
    fn environment(
        &self,
        source: &Source,
        conditions: Conditions,
        running: Option<&PipelineParts>,
    ) -> SetupEnvironment {
        let mut environment = SetupEnvironment::new(conditions.frequency);
        environment.files.base.clone_from(&source.base);
        environment.files.allowed_folders.clone_from(&source.allowed_folders);
        (environment.batch, environment.seed) = (self.batch, self.seed);
        (environment.simulated, environment.checking) = (conditions.simulated, true);
        if let Some(running) = running {
            environment.objects.shared = running.tables_of(&self.root, &self.stamps);
            environment.replaces_running = true;
            // Functions that are taken over use these numbers for metadata words.
            environment.words.clone_from(&running.words);
        }
        environment
    }
}

/// The states, functions and ports, in the order of the text.
struct Created {
    workers: Workers,
    /// The number of workers in the text.
    worker_sections: usize,
    /// The workers of each module according to the text, without the arrangement.
    configured: Vec<Vec<usize>>,
    /// The states that could be created, by name.
    state: BTreeMap<String, CreatedState>,
    /// `None` for a module whose function could not be created.
    modules: Vec<Option<CreatedModule>>,
    /// `None` for a port whose kind is missing or unknown.
    ports: Vec<Option<PortDraft>>,
    /// The modules and ports as lines name them.
    ends: Ends,
    /// The files that were read.
    reads: Vec<Read>,
}

impl Created {
    /// Creates the states and functions, and checks the ports. Adds their faults to `faults`. With an arrangement, the
    /// arrangement replaces the workers of modules in the text.
    fn of(
        tree: &Tree,
        running: Option<&PipelineParts>,
        arrangement: Option<&Arrangement>,
        environment: &mut SetupEnvironment,
        faults: &mut FaultCollector,
    ) -> Self {
        let root = &tree.root;
        let workers = Workers::read(root, faults);
        let (worker_sections, configured) = (workers.cores.len(), workers.modules.clone());
        let workers = match arrangement {
            Some(arrangement) => workers.arranged(root, arrangement),
            None => workers,
        };
        workers.check_state(root, faults);
        let state = make_state(root, &tree.stamps, running, environment, faults);
        let mut reads = reads_of("state", environment);
        let (modules, module_ends) = make_modules(root, &workers, environment, faults);
        reads.append(&mut reads_of("modules", environment));
        // A module that could not be created may be the one that uses the word.
        if modules.iter().all(Option::is_some) {
            unknown_words(root, environment, faults);
        }
        let (ports, port_ends) = check_ports(root, environment, faults);
        let receiving = ports.iter().zip(&port_ends).filter(|(_, end)| end.ways.is_some_and(|(receives, _)| receives));
        let mut waiting = receiving.map(|(port, _)| port.as_ref().is_some_and(|port| port.kind.waits(&port.params)));
        environment.input_waits = waiting.next().is_some_and(|first| first && waiting.all(|waits| waits));
        unused_state(root, environment, &module_ends, faults);
        let ends = Ends::new(port_ends, module_ends, faults);
        Self { workers, worker_sections, configured, state, modules, ports, ends, reads }
    }
}

/// The modules and ports with their connections, in the order of the text. All lists by module have this order, until
/// [`in_order`](Self::in_order) sorts them.
struct Connected {
    /// The requested core of each worker.
    cores: Vec<Option<usize>>,
    state: BTreeMap<String, CreatedState>,
    modules: Vec<Option<CreatedModule>>,
    ports: Vec<Option<PortDraft>>,
    ends: Ends,
    reads: Vec<Read>,
    wiring: Wiring,
    /// The indices of the modules in topological order. Empty if there is a cycle, which is then in the faults.
    order: Vec<usize>,
    buffers: Vec<Buffer>,
    shares: Vec<Share>,
    flows: Vec<FlowPlan>,
    placement: Placement,
    /// The controller and its settings; `None` without one, or if the section has errors.
    control: Option<Settings>,
}

impl Connected {
    /// Connects the modules and ports, and reads the sections that name them. Adds all faults to `faults`. `running` is
    /// used only with an arrangement.
    fn of(
        tree: &Tree,
        created: Created,
        running: Option<&PipelineParts>,
        arrangement: Option<&Arrangement>,
        faults: &mut FaultCollector,
    ) -> Self {
        let root = &tree.root;
        let Created { workers, worker_sections, configured, state, modules, ports, ends, reads } = created;
        let lines = root.get("pipeline").and_then(Node::as_list).unwrap_or_default();
        let wiring = Wiring::read(&ends, lines, faults);
        if !lines.is_empty() {
            wiring.check(&ends, faults);
        }
        let order = sort(&ends, &wiring, faults);
        let buffers = read_buffers(root, &ends, tree.batch, faults);
        let mut shares = shares::read_shares(root, &ends, faults);
        if arrangement.is_some() {
            shares::drop_for_moved(root, &configured, &workers.modules, &mut shares);
        }
        let flows = flows::read_flows(root, &ends, &wiring, faults);
        let keyed = modules.iter().map(|made| made.as_ref().is_some_and(|made| made.kind.is_keyed(&made.params)));
        let queues: Vec<bool> = ports.iter().map(|port| port.as_ref().is_some_and(|port| port.kind.queues)).collect();
        let arranged = running.filter(|_| arrangement.is_some());
        let placement = workers.place(&ends, &wiring, keyed.collect(), &queues, arranged, faults);
        let control = control::read_control(root, tree.scheduler, tree.batch, worker_sections, faults);
        let cores = workers.cores;
        Self { cores, state, modules, ports, ends, reads, wiring, order, buffers, shares, flows, placement, control }
    }

    /// Puts all parts in topological order, and renumbers the modules in all of them. The caller has checked that there
    /// is no fault.
    fn in_order(self, tree: Tree) -> Draft {
        let order = &self.order;
        let mut position = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, module)| position[*module] = at);
        let moved =
            |target| if let Target::Module(module) = target { Target::Module(position[module]) } else { target };
        let step = |step: Step| Step { module: position[step.module], ..step };
        let modules = self.modules.into_iter().zip(self.ends.modules).zip(self.wiring.gates);
        let modules = modules.zip(self.buffers.into_iter().zip(self.shares));
        let mut drafts: Vec<_> = modules.map(Some).collect();
        let in_order = order.iter().filter_map(|module| drafts[*module].take());
        let modules = in_order.filter_map(|(((made, end), gates), (buffer, share))| {
            let CreatedModule { kind, params, function, declared } = made?;
            let gates = gates.into_iter().map(|to| to.map_or(Target::Drop, |(to, _)| moved(to)));
            let gates = declared.gates.iter().cloned().zip(gates).collect();
            let declared = Some((function, declared));
            Some(ModuleDraft { name: end.name, kind, params, gates, buffer, share, declared })
        });
        let modules: Vec<ModuleDraft> = modules.collect();
        let placement = Placement {
            modules: order.iter().map(|module| self.placement.modules[*module].clone()).collect(),
            keyed: order.iter().map(|module| self.placement.keyed[*module]).collect(),
            ..self.placement
        };
        let flows = self.flows.into_iter().map(|mut flow| {
            flow.path.iter_mut().for_each(|it| *it = step(*it));
            flow
        });
        let flows = flows.collect();
        let entries: Vec<_> = self.wiring.entries.into_iter().map(|entry| entry.map(|(to, _)| moved(to))).collect();
        let folds = fold::folds(&modules, &entries, &placement, tree.scheduler, tree.fold);
        Draft {
            root: tree.root,
            name: tree.name,
            batch: tree.batch,
            seed: tree.seed,
            cores: self.cores,
            scheduler: tree.scheduler,
            pool: tree.pool,
            modules,
            ports: self.ports.into_iter().flatten().collect(),
            entries,
            flows,
            placement,
            folds,
            state: self.state,
            reads: self.reads,
            stamps: tree.stamps,
            control: self.control,
        }
    }
}
