//! A configuration's text to a plan: every check there is, and what the engine needs at the end.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use forebay_graph::{
    Declaration, Declared, Fault, Files, Function, Module, Plan, PortDeclaration, PortPlan, SchedulerKind, Setup,
    SetupError, SharedState, Step, Surroundings, Target,
};
use forebay_measure::Frequency;
use forebay_packet::{MAX_BATCH, PoolOptions};
use serde::de::DeserializeOwned;

use crate::conform::Misfits;
use crate::language::{Buffer, Flow, PoolSection, Worker};
use crate::problem::{Findings, Problem, Problems};
use crate::wiring::{Ends, ModuleEnd, PortEnd, Wiring};
use crate::yaml::{Entry, Node};
use crate::{Source, flows, order, shares};

/// What a configuration that is in order says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The pipeline's name.
    pub name: String,
    /// Modules in topological order: name and function.
    pub modules: Vec<(String, &'static str)>,
    /// Ports in order of definition: name and kind.
    pub ports: Vec<(String, &'static str)>,
    /// Declared flows' names.
    pub flows: Vec<String>,
}

/// A pipeline whose ports are open.
pub struct Loaded {
    /// What the engine runs.
    pub plan: Plan,
    /// The core to pin the worker to.
    pub core: Option<usize>,
    /// What everything random derives from.
    pub seed: u64,
    /// The files that it reads and writes.
    pub files: Files,
}

/// How the pipeline will run.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// What a tick is worth.
    pub frequency: Frequency,
    /// Whether time is simulated ([`Surroundings::simulated`]).
    pub simulated: bool,
}

/// Checks a configuration without opening ports or reading traffic. Functions are made, and the files of rules and
/// routes that they name are read.
///
/// # Errors
/// Everything that is wrong, with places.
pub fn check(source: &Source) -> Result<Checked, Problems> {
    // Nothing runs: any will do, and simulated time waits for nothing.
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let (draft, _) = compile(source, conditions)?;
    Ok(draft.checked())
}

/// Checks a text; names of files in it are relative to `base`. For fuzzing and tests: it takes any text.
///
/// # Errors
/// Everything that is wrong, with places.
pub fn check_str(text: &str, base: &Path) -> Result<Checked, Vec<Problem>> {
    check(&Source::new(text, "text", base)).map_err(|problems| problems.all)
}

/// Checks a configuration, then opens its ports.
///
/// # Errors
/// Everything that is wrong, with places; ports are opened only where nothing else is.
pub fn load(source: &Source, conditions: Conditions) -> Result<Loaded, Problems> {
    let (mut draft, mut surroundings) = compile(source, conditions)?;
    let mut findings = Findings::default();
    let mut misfits = Misfits::default();
    surroundings.checking = false;
    for (at, kind) in std::mem::take(&mut draft.provisional) {
        let module = &mut draft.modules[at];
        let params = draft.root.get("modules").and_then(|modules| modules.get(&module.name)?.get(kind.name));
        let params = params.map(Node::to_json).unwrap_or_default();
        let mut setup = Setup::new(&module.name, &mut surroundings);
        match kind.build(&params, &mut setup) {
            Ok(function) => (module.function, module.counters) = (function, setup.finish().counters),
            Err(error) => add_faults(&mut misfits, &draft.root, &["modules", &module.name, kind.name], error),
        }
    }
    let mut ports = Vec::new();
    for (port, entry) in draft.ports.into_iter().zip(draft.entries) {
        let mut setup = Setup::new(&port.name, &mut surroundings);
        match port.kind.open(&port.params, &mut setup) {
            Ok(open) => ports.push(PortPlan { name: port.name, kind: port.kind.name, open, entry }),
            Err(error) => add_faults(&mut misfits, &draft.root, &["ports", &port.name, port.kind.name], error),
        }
    }
    misfits.report(&mut findings);
    findings.finish(&source.file, &source.sets)?;
    let PoolSection { chunks, frame } = draft.pool;
    let pool = PoolOptions { chunks, frame, ..PoolOptions::default() };
    let (name, batch, modules, flows) = (draft.name, draft.batch, draft.modules, draft.flows);
    Ok(Loaded {
        plan: Plan { name, batch, scheduler: draft.scheduler, pool, modules, ports, flows },
        core: draft.core,
        seed: draft.seed,
        files: surroundings.files,
    })
}

/// A pipeline but for its ports, which are not open.
struct Draft {
    root: Node,
    name: String,
    batch: usize,
    seed: u64,
    core: Option<usize>,
    scheduler: SchedulerKind,
    pool: PoolSection,
    modules: Vec<Module>,
    /// Modules whose functions left something undone because they were only checked, by place.
    provisional: Vec<(usize, &'static Declaration)>,
    ports: Vec<PortDraft>,
    entries: Vec<Option<Target>>,
    flows: Vec<forebay_graph::FlowPlan>,
}

impl Draft {
    fn checked(&self) -> Checked {
        Checked {
            name: self.name.clone(),
            modules: self.modules.iter().map(|module| (module.name.clone(), module.kind)).collect(),
            ports: self.ports.iter().map(|port| (port.name.clone(), port.kind.name)).collect(),
            flows: self.flows.iter().map(|flow| flow.name.clone()).collect(),
        }
    }
}

struct PortDraft {
    name: String,
    kind: &'static PortDeclaration,
    params: serde_json::Value,
}

/// A module as it was made, before its gates lead anywhere.
struct ModuleDraft {
    kind: &'static Declaration,
    function: Box<dyn Function>,
    declared: Declared,
}

fn compile(source: &Source, conditions: Conditions) -> Result<(Draft, Surroundings), Problems> {
    let mut findings = Findings::default();
    let Some(root) = source.tree(&mut findings) else {
        findings.finish(&source.file, &source.sets)?;
        unreachable!("a text without a tree has a problem")
    };
    let mut misfits = Misfits::find(&root);
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

    let mut surroundings = Surroundings::new(conditions.frequency);
    surroundings.base.clone_from(&source.base);
    (surroundings.batch, surroundings.seed, surroundings.simulated) = (batch, seed, conditions.simulated);
    surroundings.checking = true;
    make_state(&root, &mut surroundings, &mut misfits);
    let (modules, module_ends) = make_modules(&root, &mut surroundings, &mut misfits);
    let (ports, port_ends) = check_ports(&root, &mut misfits);
    unused_state(&root, &mut surroundings, &module_ends, &mut findings);

    let ends = Ends::new(port_ends, module_ends, &mut findings);
    let lines = root.get("pipeline").and_then(Node::as_list).unwrap_or_default();
    let wiring = Wiring::read(&ends, lines, &mut findings);
    if !lines.is_empty() {
        wiring.check(&ends, &mut findings);
    }
    let order = sort(&ends, &wiring, &mut findings);
    let buffers = read_buffers(&root, &ends, batch, &mut misfits, &mut findings);
    let (scheduler, shares) =
        (shares::scheduler(&root), shares::read_shares(&root, &ends, &mut misfits, &mut findings));
    let flows = read_flows(&root, &ends, &wiring, &mut misfits, &mut findings);
    let core = read_workers(&root, &mut misfits, &mut findings);
    if let Some(control) = entries(&root, "").find(|entry| entry.key == "control") {
        findings.add(
            control.place,
            "control: this version has no controllers: leave the section out and set triggers under `buffers`",
        );
    }
    misfits.report(&mut findings);
    findings.finish(&source.file, &source.sets)?;

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
    let mut provisional = Vec::new();
    let in_order = order.iter().filter_map(|module| Some((*module, drafts[*module].take()?)));
    let modules = in_order.filter_map(|(module, (((draft, end), gates), (buffer, share)))| {
        let ModuleDraft { kind, function, declared } = draft?;
        if declared.provisional {
            provisional.push((position[module], kind));
        }
        let gates = gates.into_iter().map(|to| to.map_or(Target::Drop, |(to, _)| moved(to)));
        Some(Module {
            name: end.name,
            kind: kind.name,
            function,
            gates: declared.gates.into_iter().zip(gates).collect(),
            drops: kind.drops,
            creates: kind.creates,
            consumes: kind.consumes,
            counters: declared.counters,
            trigger: buffer.trigger,
            hold: buffer.hold,
            share,
        })
    });
    let modules = modules.collect();
    let step = |step: Step| Step { module: position[step.module], ..step };
    let flows = flows.into_iter().map(|mut flow| {
        flow.path.iter_mut().for_each(|it| *it = step(*it));
        flow
    });
    let flows = flows.collect();
    let entries = wiring.entries.into_iter().map(|entry| entry.map(|(to, _)| moved(to))).collect();
    let ports = ports.into_iter().flatten().collect();
    Ok((
        Draft { root, name, batch, seed, core, scheduler, pool, modules, provisional, ports, entries, flows },
        surroundings,
    ))
}

/// The entries of a section, or with an empty name the sections themselves.
pub(crate) fn entries<'r>(root: &'r Node, section: &str) -> impl Iterator<Item = &'r Entry> {
    let node = if section.is_empty() { Some(root) } else { root.get(section) };
    node.and_then(Node::as_map).into_iter().flat_map(|map| map.iter())
}

/// The one key of a module, port or state: its kind, with the parameters. Nothing where it has not one key.
fn kind_of(entry: &Entry) -> Option<&Entry> {
    let mut kinds = entry.value.as_map()?.iter();
    kinds.next().filter(|_| kinds.next().is_none())
}

/// Reads a value whose keys are fixed. What is wrong is added.
pub(crate) fn read<T: DeserializeOwned>(misfits: &mut Misfits, root: &Node, path: &[&str], node: &Node) -> Option<T> {
    let value = node.to_json();
    match serde_path_to_error::deserialize(&value) {
        Ok(read) => Some(read),
        Err(error) => {
            let place = error.path().to_string();
            add_faults(misfits, root, path, SetupError::at(place, error.into_inner().to_string()));
            None
        }
    }
}

/// Adds what is wrong with parameters at `path`.
fn add_faults(misfits: &mut Misfits, root: &Node, path: &[&str], error: SetupError) {
    for Fault { path: within, message } in error.faults {
        let parts = within.split(['.', '[']).map(|part| part.trim_end_matches(']')).filter(|part| !part.is_empty());
        let path: Vec<&str> = path.iter().copied().chain(parts).collect();
        misfits.add(root, &path, &message);
    }
}

fn make_state(root: &Node, surroundings: &mut Surroundings, misfits: &mut Misfits) {
    let known = forebay_graph::states();
    for entry in entries(root, "state") {
        let Some(kind) = kind_of(entry) else { continue };
        let Some(declaration) = known.iter().find(|declaration| declaration.name == kind.key) else { continue };
        let built = declaration.build(&kind.value.to_json(), &mut Setup::new(&entry.key, surroundings));
        match built {
            Ok(state) => {
                surroundings.state.insert(entry.key.clone(), state);
            }
            Err(error) => add_faults(misfits, root, &["state", &entry.key, &kind.key], error),
        }
    }
}

/// State that no module took a share in. Where a module could not be made, it may have wanted to.
fn unused_state(root: &Node, surroundings: &mut Surroundings, modules: &[ModuleEnd], findings: &mut Findings) {
    if modules.iter().any(|end| end.gates.is_none()) {
        return;
    }
    for entry in entries(root, "state") {
        if surroundings.state.get(&entry.key).is_some_and(|state: &SharedState| Arc::strong_count(state) == 1) {
            findings.add(entry.place, format!("no module uses the state '{}'", entry.key));
        }
    }
}

fn make_modules(
    root: &Node,
    surroundings: &mut Surroundings,
    misfits: &mut Misfits,
) -> (Vec<Option<ModuleDraft>>, Vec<ModuleEnd>) {
    let known = forebay_graph::functions();
    let make = |entry: &Entry| {
        let kind = kind_of(entry)?;
        let declaration = known.iter().find(|declaration| declaration.name == kind.key)?;
        let mut setup = Setup::new(&entry.key, surroundings);
        match declaration.build(&kind.value.to_json(), &mut setup) {
            Ok(function) => Some(ModuleDraft { kind: declaration, function, declared: setup.finish() }),
            Err(error) => {
                add_faults(misfits, root, &["modules", &entry.key, &kind.key], error);
                None
            }
        }
    };
    let drafts: Vec<_> = entries(root, "modules").map(make).collect();
    let ends = entries(root, "modules").zip(&drafts).map(|(entry, draft)| {
        let gates = draft.as_ref().map(|draft| draft.declared.gates.clone());
        ModuleEnd { name: entry.key.clone(), place: entry.place, gates }
    });
    let ends = ends.collect();
    (drafts, ends)
}

fn check_ports(root: &Node, misfits: &mut Misfits) -> (Vec<Option<PortDraft>>, Vec<PortEnd>) {
    let known = forebay_graph::ports();
    let mut drafts = Vec::new();
    let mut ends = Vec::new();
    for entry in entries(root, "ports") {
        let kind = kind_of(entry);
        let declaration = kind.and_then(|kind| known.iter().find(|declaration| declaration.name == kind.key));
        let mut ways = None;
        drafts.push(kind.zip(declaration).map(|(kind, declaration)| {
            let params = kind.value.to_json();
            match declaration.check(&params) {
                Ok(checked) => ways = Some(checked),
                Err(error) => add_faults(misfits, root, &["ports", &entry.key, &kind.key], error),
            }
            PortDraft { name: entry.key.clone(), kind: declaration, params }
        }));
        ends.push(PortEnd { name: entry.key.clone(), place: entry.place, ways });
    }
    (drafts, ends)
}

/// Modules in topological order.
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
    flows::read(ends, wiring, &declared, findings)
}

fn read_workers(root: &Node, misfits: &mut Misfits, findings: &mut Findings) -> Option<usize> {
    let workers = root.get("workers").and_then(Node::as_list).unwrap_or_default();
    if let Some(second) = workers.get(1) {
        findings.add(second.place, format!("{} workers: this version runs one", workers.len()));
    }
    let mut core = None;
    for (number, node) in workers.iter().enumerate().rev() {
        core = read::<Worker>(misfits, root, &["workers", &number.to_string()], node).and_then(|worker| worker.core);
    }
    core
}
