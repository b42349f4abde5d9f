//! Checks the whole text of a configuration. Finds every error, or returns a draft of the pipeline.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_control::{Arrangement, Settings};
use forebay_graph::{
    Claim, Declaration, Declared, Fault, Files, Function, Placement, PortDeclaration, Setup, SetupEnvironment,
    SetupError, Step, Target, in_words,
};
use forebay_packet::MAX_BATCH;
use forebay_protocol::SchedulerKind;
use forebay_units::Frequency;
use serde::de::DeserializeOwned;

use crate::conform::Misfits;
use crate::identity::{Identity, Stamps};
use crate::language::{Buffer, Flow, PoolSection};
use crate::parts::CreatedState;
use crate::problem::{Findings, Problem, Problems, SourceLocation};
use crate::wiring::{Ends, ModuleEnd, PortEnd, Wiring};
use crate::workers::Workers;
use crate::yaml::{Entry, Node};
use crate::{Source, control, flows, fold, order, shares, together};

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
    // Nothing runs, so any frequency will do. In simulated time nothing waits.
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let (draft, _) = compile(source, conditions, None, None)?;
    Ok(draft.checked())
}

/// Checks a text. File names in it are relative to `base`. Fuzzing and tests use it with any text.
///
/// # Errors
/// Returns all errors of the configuration, with their places.
pub fn check_str(text: &str, base: &Path) -> Result<Checked, Vec<Problem>> {
    check(&Source::new(text, "text", base)).map_err(|problems| problems.all)
}

/// A checked pipeline. Each function has been created once. The ports are not open.
pub(crate) struct Draft {
    pub(crate) root: Node,
    pub(crate) name: String,
    pub(crate) batch: usize,
    pub(crate) seed: u64,
    pub(crate) cores: Vec<Option<usize>>,
    pub(crate) scheduler: SchedulerKind,
    pub(crate) pool: PoolSection,
    pub(crate) modules: Vec<ModuleDraft>,
    pub(crate) ports: Vec<PortDraft>,
    pub(crate) entries: Vec<Option<Target>>,
    pub(crate) flows: Vec<forebay_graph::FlowPlan>,
    pub(crate) placement: Placement,
    /// The groups of modules that run as one.
    pub(crate) folds: Vec<Vec<usize>>,
    pub(crate) state: BTreeMap<String, CreatedState>,
    pub(crate) reads: Vec<Read>,
    pub(crate) stamps: Stamps,
    /// The controller and its settings, if there is one.
    pub(crate) control: Option<Settings>,
}

/// A file that was read during the check.
pub(crate) struct Read {
    /// The section that defines its reader.
    pub(crate) section: &'static str,
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl Draft {
    fn checked(&self) -> Checked {
        Checked {
            name: self.name.clone(),
            modules: self.modules.iter().map(|module| (module.name.clone(), module.kind.name)).collect(),
            ports: self.ports.iter().map(|port| (port.name.clone(), port.kind.name)).collect(),
            flows: self.flows.iter().map(|flow| flow.name.clone()).collect(),
            skipped: self.modules.iter().flat_map(ModuleDraft::skipped).collect(),
            warnings: self.modules.iter().flat_map(ModuleDraft::warnings).collect(),
        }
    }
}

pub(crate) struct PortDraft {
    pub(crate) name: String,
    pub(crate) kind: &'static PortDeclaration,
    pub(crate) params: serde_json::Value,
}

/// A module without the functions of its workers.
pub(crate) struct ModuleDraft {
    pub(crate) name: String,
    pub(crate) kind: &'static Declaration,
    pub(crate) params: serde_json::Value,
    pub(crate) gates: Vec<(String, Target)>,
    pub(crate) buffer: Buffer,
    pub(crate) share: forebay_graph::Share,
    /// The function that was created to check the parameters, and its declarations.
    pub(crate) declared: Option<(Box<dyn Function>, Declared)>,
}

impl ModuleDraft {
    /// Returns the module's name and a JSON object for each line that it skipped in the files that it read.
    pub(crate) fn skipped(&self) -> Vec<(String, String)> {
        let tables = self.declared.iter().flat_map(|(_, declared)| &declared.tables);
        let lines = tables.filter(|(name, _)| name == "skipped").map(|(_, table)| table.entries(None, usize::MAX));
        lines.flat_map(Result::unwrap_or_default).map(|line| (self.name.clone(), line)).collect()
    }
}

impl ModuleDraft {
    /// Returns the module's name and a sentence for each warning about its tables.
    fn warnings(&self) -> Vec<(String, String)> {
        let tables = self.declared.iter().flat_map(|(_, declared)| &declared.tables);
        let warnings = tables.flat_map(|(_, table)| table.warnings());
        warnings.map(|warning| (self.name.clone(), warning)).collect()
    }
}

/// The function of a module, before its gates are connected.
pub(crate) struct CreatedModule {
    pub(crate) kind: &'static Declaration,
    params: serde_json::Value,
    function: Box<dyn Function>,
    declared: Declared,
}

pub(crate) fn compile(
    source: &Source,
    conditions: Conditions,
    running: Option<&crate::parts::PipelineParts>,
    arrangement: Option<&Arrangement>,
) -> Result<(Draft, SetupEnvironment), Problems> {
    let mut findings = Findings::default();
    let Some(mut root) = source.tree(&mut findings) else {
        findings.finish(&source.file, &source.text, &source.sets)?;
        unreachable!("a text without a tree has a problem")
    };
    let mut misfits = Misfits::find(&root);
    root.prune();
    let stamps = Stamps::of(&root, &source.base);
    let whole = |key: &str| root.get(key).and_then(|node| node.to_json().as_u64());
    let batch = whole("batch").map_or(32, |batch| {
        usize::try_from(batch).ok().filter(|batch| (1..=MAX_BATCH).contains(batch)).unwrap_or(MAX_BATCH)
    });
    let seed = whole("seed").unwrap_or(1);
    let stem = Path::new(&source.file)
        .file_stem()
        .map_or_else(|| source.file.clone(), |stem| stem.to_string_lossy().into_owned());
    let name = root.get("name").and_then(Node::as_text).map_or(stem, str::to_owned);
    let pool = root.get("pool").and_then(|node| read(&mut misfits, &root, &["pool"], node)).unwrap_or_default();

    let mut environment = SetupEnvironment::new(conditions.frequency);
    environment.files.base.clone_from(&source.base);
    environment.files.allowed_folders.clone_from(&source.allowed_folders);
    (environment.batch, environment.seed, environment.simulated) = (batch, seed, conditions.simulated);
    environment.checking = true;
    if let Some(running) = running {
        environment.objects.shared = running.tables_of(&root, &stamps);
        environment.replaces_running = true;
        // Functions that are taken over use these numbers for metadata words.
        environment.words.clone_from(&running.words);
    }
    let workers = Workers::read(&root, &mut misfits, &mut findings);
    let (written, configured) = (workers.cores.len(), workers.modules.clone());
    let workers = match arrangement {
        Some(arrangement) => workers.arranged(&root, arrangement),
        None => workers,
    };
    workers.check_state(&root, &mut findings);
    let state = make_state(&root, &stamps, running, &mut environment, &mut misfits);
    let mut reads = reads_of("state", &environment);
    let (modules, module_ends) = make_modules(&root, &workers, &mut environment, &mut misfits);
    reads.append(&mut reads_of("modules", &environment));
    let (ports, port_ends) = check_ports(&root, &mut environment, &mut misfits);
    let receiving = ports.iter().zip(&port_ends).filter(|(_, end)| end.ways.is_some_and(|(receives, _)| receives));
    let mut waiting = receiving.map(|(port, _)| port.as_ref().is_some_and(|port| port.kind.waits(&port.params)));
    environment.input_waits = waiting.next().is_some_and(|first| first && waiting.all(|waits| waits));
    unused_state(&root, &environment, &module_ends, &mut findings);

    let ends = Ends::new(port_ends, module_ends, &mut findings);
    let lines = root.get("pipeline").and_then(Node::as_list).unwrap_or_default();
    let wiring = Wiring::read(&ends, lines, &mut findings);
    if !lines.is_empty() {
        wiring.check(&ends, &mut findings);
    }
    let order = sort(&ends, &wiring, &mut findings);
    let buffers = read_buffers(&root, &ends, batch, &mut misfits, &mut findings);
    let (scheduler, mut shares) =
        (shares::scheduler(&root), shares::read_shares(&root, &ends, &mut misfits, &mut findings));
    if arrangement.is_some() {
        shares::drop_for_moved(&root, &configured, &workers.modules, &mut shares);
    }
    let fold = root.get("fold").and_then(|node| read(&mut misfits, &root, &["fold"], node)).unwrap_or_default();
    let flows = read_flows(&root, &ends, &wiring, &mut misfits, &mut findings);
    let keyed = modules.iter().map(|made| made.as_ref().is_some_and(|made| made.kind.is_keyed(&made.params)));
    let queues: Vec<bool> = ports.iter().map(|port| port.as_ref().is_some_and(|port| port.kind.queues)).collect();
    let arranged = running.filter(|_| arrangement.is_some());
    let placed = workers.place(&ends, &wiring, keyed.collect(), &queues, arranged, &mut findings);
    let control = control::read_control(&root, scheduler, written, &mut misfits);
    claim_all(&root, (source, running.is_some()), &reads, &environment.files.claims, &mut misfits, &mut findings);
    misfits.report(&mut findings);
    findings.finish(&source.file, &source.text, &source.sets)?;

    let mut position = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, module)| position[*module] = at);
    let moved = |target| if let Target::Module(module) = target { Target::Module(position[module]) } else { target };
    let mut drafts: Vec<_> = modules
        .into_iter()
        .zip(ends.modules)
        .zip(wiring.gates)
        .zip(buffers.into_iter().zip(shares))
        .map(Some)
        .collect();
    let in_order = order.iter().filter_map(|module| drafts[*module].take());
    let modules = in_order.filter_map(|(((made, end), gates), (buffer, share))| {
        let CreatedModule { kind, params, function, declared } = made?;
        let gates = gates.into_iter().map(|to| to.map_or(Target::Drop, |(to, _)| moved(to)));
        let gates = declared.gates.iter().cloned().zip(gates).collect();
        Some(ModuleDraft { name: end.name, kind, params, gates, buffer, share, declared: Some((function, declared)) })
    });
    let modules: Vec<ModuleDraft> = modules.collect();
    let placement = Placement {
        modules: order.iter().map(|module| placed.modules[*module].clone()).collect(),
        keyed: order.iter().map(|module| placed.keyed[*module]).collect(),
        ..placed
    };
    let step = |step: Step| Step { module: position[step.module], ..step };
    let flows = flows.into_iter().map(|mut flow| {
        flow.path.iter_mut().for_each(|it| *it = step(*it));
        flow
    });
    let flows = flows.collect();
    let entries: Vec<_> = wiring.entries.into_iter().map(|entry| entry.map(|(to, _)| moved(to))).collect();
    let folds = fold::folds(&modules, &entries, &placement, scheduler, fold);
    let ports = ports.into_iter().flatten().collect();
    let cores = workers.cores;
    let draft = Draft {
        root,
        name,
        batch,
        seed,
        cores,
        scheduler,
        pool,
        modules,
        ports,
        entries,
        flows,
        placement,
        folds,
        state,
        reads,
        stamps,
        control,
    };
    let (mut findings, mut misfits) = (Findings::default(), Misfits::default());
    together::check(&draft, &mut misfits);
    // A running pipeline is not refused because of where its modules run.
    if arrangement.is_none() {
        crate::held::check(&draft, &mut misfits);
    }
    misfits.report(&mut findings);
    findings.finish(&source.file, &source.text, &source.sets)?;
    Ok((draft, environment))
}

/// Returns the files that a section has read since the last call.
pub(crate) fn reads_of(section: &'static str, environment: &SetupEnvironment) -> Vec<Read> {
    let reads = environment.files.reads.take();
    reads.into_iter().map(|(name, path)| Read { section, name, path }).collect()
}

/// Refuses files that a configuration uses in conflicting ways. Ignores the files of a running configuration.
fn claim_all(
    root: &Node,
    (source, reloads): (&Source, bool),
    reads: &[Read],
    claims: &[Claim],
    misfits: &mut Misfits,
    findings: &mut Findings,
) {
    let mut files = Files::default();
    claim_configuration(source, reloads, &mut files, findings);
    claim_reads(reads, root, &mut files, misfits);
    for claim in claims {
        let Err(message) = claim.note(&mut files) else { continue };
        let section = ["modules", "ports"]
            .into_iter()
            .find(|section| entries(root, section).any(|entry| entry.key == claim.name));
        let Some(section) = section else { continue };
        let kind = entries(root, section).find(|entry| entry.key == claim.name).and_then(kind_of);
        let kind = kind.map_or("", |kind| &kind.key);
        add_faults(misfits, root, &[section, &claim.name, kind], SetupError::at(&claim.parameter, message));
    }
}

/// Claims the configuration's own file or the standard input for reading. A reload does not read the standard input
/// here.
pub(crate) fn claim_configuration(source: &Source, reloads: bool, files: &mut Files, findings: &mut Findings) {
    let who = "the configuration";
    let claimed = match &source.path {
        Some(path) => files.claim(who, path, false),
        None if source.file == "stdin" && !reloads => files.claim_input(who),
        None => Ok(()),
    };
    if let Err(message) = claimed {
        findings.add(SourceLocation::START, message);
    }
}

/// Claims the files that have been read. Adds an error if another part of the pipeline writes one of them.
pub(crate) fn claim_reads(reads: &[Read], root: &Node, files: &mut Files, misfits: &mut Misfits) {
    for Read { section, name, path } in reads {
        let who = if *section == "state" { format!("state '{name}'") } else { format!("'{name}'") };
        if let Err(message) = files.claim(&who, path, false) {
            misfits.add(root, &[section, name], &message);
        }
    }
}

/// Returns the entries of a section. With an empty name, returns the sections themselves.
pub(crate) fn entries<'r>(root: &'r Node, section: &str) -> impl Iterator<Item = &'r Entry> {
    let node = if section.is_empty() { Some(root) } else { root.get(section) };
    node.and_then(Node::as_map).into_iter().flat_map(|map| map.iter())
}

/// Returns the only key of a module, port or state, which is its kind, with the parameters. `None` if it does not have
/// exactly one key.
pub(crate) fn kind_of(entry: &Entry) -> Option<&Entry> {
    let mut kinds = entry.value.as_map()?.iter();
    kinds.next().filter(|_| kinds.next().is_none())
}

/// Reads a value with fixed keys. Adds its errors to `misfits`.
pub(crate) fn read<T: DeserializeOwned>(misfits: &mut Misfits, root: &Node, path: &[&str], node: &Node) -> Option<T> {
    let value = node.to_json();
    match serde_path_to_error::deserialize(&value) {
        Ok(read) => Some(read),
        Err(error) => {
            let place = error.path().to_string();
            add_faults(misfits, root, path, SetupError::at(place, in_words(&error.into_inner().to_string())));
            None
        }
    }
}

/// Adds the errors of the parameters at `path`.
pub(crate) fn add_faults(misfits: &mut Misfits, root: &Node, path: &[&str], error: SetupError) {
    for Fault { path: within, message } in error.faults {
        let parts = within.split(['.', '[']).map(|part| part.trim_end_matches(']')).filter(|part| !part.is_empty());
        let path: Vec<&str> = path.iter().copied().chain(parts).collect();
        misfits.add(root, &path, &message);
    }
}

/// Creates the state that modules share. Takes over state of the running pipeline that was created in the same way.
pub(crate) fn make_state(
    root: &Node,
    stamps: &Stamps,
    running: Option<&crate::parts::PipelineParts>,
    environment: &mut SetupEnvironment,
    misfits: &mut Misfits,
) -> BTreeMap<String, CreatedState> {
    let known = forebay_graph::states();
    let mut all = BTreeMap::new();
    for entry in entries(root, "state") {
        let Some(kind) = kind_of(entry) else { continue };
        let Some(declaration) = known.iter().find(|declaration| declaration.name == kind.key) else { continue };
        let identity = Identity::of(root, "state", &entry.key, &kind.key, stamps, &Files::default());
        let existing =
            running.and_then(|running| running.state.get(&entry.key)).filter(|other| other.identity == identity);
        let made = match existing {
            Some(state) => Ok(state.clone()),
            None => {
                let made = declaration.build(&kind.value.to_json(), &mut Setup::new(&entry.key, environment));
                let handed_over = std::mem::take(&mut environment.objects.handed_over).into_keys().collect();
                made.map(|object| CreatedState { identity, object, handed_over })
            }
        };
        match made {
            Ok(state) => {
                environment.objects.states.insert(entry.key.clone(), Arc::clone(&state.object));
                all.insert(entry.key.clone(), state);
            }
            Err(error) => add_faults(misfits, root, &["state", &entry.key, &kind.key], error),
        }
    }
    let broken = entries(root, "state").map(|entry| &entry.key).filter(|name| !all.contains_key(*name));
    environment.objects.broken_states = broken.cloned().collect();
    let handed_over = all.iter().flat_map(|(name, state)| {
        let objects = state.handed_over.iter();
        objects.map(|object| (object.clone(), name.clone()))
    });
    environment.objects.handed_over = handed_over.collect();
    all
}

/// Adds an error for each state that no module uses. Adds none if a module could not be created, because it may use the
/// state.
pub(crate) fn unused_state(
    root: &Node,
    environment: &SetupEnvironment,
    modules: &[ModuleEnd],
    findings: &mut Findings,
) {
    if modules.iter().any(|end| end.gates.is_none()) {
        return;
    }
    let asked = environment.objects.requested_states.borrow();
    for entry in entries(root, "state").filter(|entry| environment.objects.states.contains_key(&entry.key)) {
        if !asked.contains(&entry.key) {
            findings.add(entry.place, format!("no module uses the state '{}'", entry.key));
        }
    }
}

pub(crate) fn make_modules(
    root: &Node,
    workers: &Workers,
    environment: &mut SetupEnvironment,
    misfits: &mut Misfits,
) -> (Vec<Option<CreatedModule>>, Vec<ModuleEnd>) {
    let known = forebay_graph::functions();
    let make = |(entry, on): (&Entry, &Vec<usize>)| {
        let kind = kind_of(entry)?;
        let declaration = known.iter().find(|declaration| declaration.name == kind.key)?;
        environment.share = (0, on.len());
        let mut setup = Setup::new(&entry.key, environment);
        let params = kind.value.to_json();
        match declaration.build(&params, &mut setup) {
            Ok(function) => Some(CreatedModule { kind: declaration, params, function, declared: setup.finish() }),
            Err(error) => {
                add_faults(misfits, root, &["modules", &entry.key, &kind.key], error);
                None
            }
        }
    };
    let drafts: Vec<_> = entries(root, "modules").zip(&workers.modules).map(make).collect();
    let ends = entries(root, "modules").zip(&drafts).map(|(entry, draft)| {
        let gates = draft.as_ref().map(|draft| draft.declared.gates.clone());
        ModuleEnd { name: entry.key.clone(), place: entry.place, gates }
    });
    let ends = ends.collect();
    (drafts, ends)
}

fn check_ports(
    root: &Node,
    environment: &mut SetupEnvironment,
    misfits: &mut Misfits,
) -> (Vec<Option<PortDraft>>, Vec<PortEnd>) {
    let known = forebay_graph::ports();
    let mut drafts = Vec::new();
    let mut ends = Vec::new();
    for entry in entries(root, "ports") {
        let kind = kind_of(entry);
        let declaration = kind.and_then(|kind| known.iter().find(|declaration| declaration.name == kind.key));
        let mut ways = None;
        drafts.push(kind.zip(declaration).map(|(kind, declaration)| {
            let params = kind.value.to_json();
            match declaration.check(&params, &mut Setup::new(&entry.key, environment)) {
                Ok(checked) => ways = Some(checked),
                Err(error) => add_faults(misfits, root, &["ports", &entry.key, &kind.key], error),
            }
            PortDraft { name: entry.key.clone(), kind: declaration, params }
        }));
        ends.push(PortEnd { name: entry.key.clone(), place: entry.place, new: entry.new, ways });
    }
    refuse_shared_interfaces(root, misfits);
    (drafts, ends)
}

/// Refuses a second port on an interface, because each of them would receive every frame.
fn refuse_shared_interfaces(root: &Node, misfits: &mut Misfits) {
    let mut seen: HashMap<(String, Option<String>), &str> = HashMap::new();
    for entry in entries(root, "ports") {
        let Some(kind) = kind_of(entry).filter(|kind| matches!(&*kind.key, "af_packet" | "af_xdp")) else { continue };
        let text = |key: &str| kind.value.get(key).and_then(Node::as_text).map(str::to_owned);
        let Some(interface) = text("interface") else { continue };
        if let Some(first) = seen.insert((interface.clone(), text("namespace")), &entry.key) {
            let message = format!(
                "'{interface}' is the interface of port '{first}' already, and each port would receive every frame: a \
                 port both receives and sends, so name '{first}' in `pipeline` at both places"
            );
            misfits.add(root, &["ports", &entry.key, &kind.key, "interface"], &message);
        }
    }
}

/// Returns the modules in topological order. Adds an error for each cycle.
fn sort(ends: &Ends, wiring: &Wiring, findings: &mut Findings) -> Vec<usize> {
    let mut successors = vec![Vec::new(); ends.modules.len()];
    for edge in &wiring.edges {
        if let Target::Module(to) = edge.to {
            successors[edge.from].push(to);
        }
    }
    order::topological(&successors).unwrap_or_else(|cycles| {
        let places: HashMap<_, _> = wiring.edges.iter().map(|edge| ((edge.from, edge.to), edge.place)).collect();
        for cycle in cycles {
            let place = places.get(&(cycle[0], Target::Module(cycle[1 % cycle.len()])));
            let name = |module: &usize| ends.modules[*module].name.as_str();
            let names: Vec<_> = cycle.iter().chain([&cycle[0]]).map(name).collect();
            let shown = if names.len() <= 16 {
                names.join(" -> ")
            } else {
                format!("{} -> … -> {}", names[..8].join(" -> "), names[names.len() - 8..].join(" -> "))
            };
            findings.add(
                place.copied().unwrap_or(ends.modules[cycle[0]].place),
                format!("packets would go in a circle: {shown}"),
            );
        }
        Vec::new()
    })
}

fn read_buffers(root: &Node, ends: &Ends, batch: usize, misfits: &mut Misfits, findings: &mut Findings) -> Vec<Buffer> {
    let mut buffers = vec![Buffer::default(); ends.modules.len()];
    for entry in entries(root, "buffers") {
        let Ok(Target::Module(module)) = ends.find(&entry.key) else {
            let message = ends.find(&entry.key).err().unwrap_or_else(|| format!("'{}' is a port", entry.key));
            findings.add(entry.place, format!("{message}: buffers belong to modules"));
            continue;
        };
        let Some(buffer) = read::<Buffer>(misfits, root, &["buffers", &entry.key], &entry.value) else { continue };
        if buffer.trigger > batch {
            let message = format!(
                "{} packets can never come together: allowed are 0 to {batch}, the largest batch",
                buffer.trigger
            );
            misfits.add(root, &["buffers", &entry.key, "trigger"], &message);
        }
        buffers[module] = buffer;
    }
    buffers
}

fn read_flows(
    root: &Node,
    ends: &Ends,
    wiring: &Wiring,
    misfits: &mut Misfits,
    findings: &mut Findings,
) -> Vec<forebay_graph::FlowPlan> {
    let nodes = root.get("flows").and_then(Node::as_list).unwrap_or_default();
    let mut declared = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        if let Some(flow) = read::<Flow>(misfits, root, &["flows", &number.to_string()], node) {
            declared.push((flow, node));
        }
    }
    flows::read(ends, wiring, &declared, root.get("control").is_some(), findings)
}
