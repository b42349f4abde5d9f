//! Creates the states and functions of a configuration, and checks its ports.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use forebay_graph::{Declaration, Declared, Files, Function, Setup, SetupEnvironment, SetupError, nearest};
use forebay_protocol::check::Fault;

use crate::draft::{CreatedState, PortDraft};
use crate::faults::FaultCollector;
use crate::identity::{Identity, Stamps};
use crate::parts::PipelineParts;
use crate::section::{entries, kind_of};
use crate::wiring::{ModuleEnd, PortEnd};
use crate::wording::quote;
use crate::workers::Workers;
use crate::yaml::{Entry, Node};

/// The function of a module, before its gates are connected.
pub(crate) struct CreatedModule {
    /// The function's declaration.
    pub(crate) kind: &'static Declaration,
    pub(crate) params: serde_json::Value,
    pub(crate) function: Box<dyn Function>,
    /// The gates, tables and counters that the function declared when it was created.
    pub(crate) declared: Declared,
}

/// Creates the states that modules share, and registers them in `environment` for the modules. Takes over a state of
/// the running pipeline that was created in the same way. Must be called before [`make_modules`].
pub(crate) fn make_state(
    root: &Node,
    stamps: &Stamps,
    running: Option<&PipelineParts>,
    environment: &mut SetupEnvironment,
    faults: &mut FaultCollector,
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
            Err(error) => faults.add_all(root, &["state", &entry.key, &kind.key], error),
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

/// Adds an error for each state that no module uses. If a module could not be created, adds no error, because that
/// module may use the state.
pub(crate) fn unused_state(
    root: &Node,
    environment: &SetupEnvironment,
    modules: &[ModuleEnd],
    faults: &mut FaultCollector,
) {
    if modules.iter().any(|end| end.gates.is_none()) {
        return;
    }
    let asked = environment.objects.requested_states.borrow();
    for entry in entries(root, "state").filter(|entry| environment.objects.states.contains_key(&entry.key)) {
        if !asked.contains(&entry.key) {
            let wrong = format!("no module uses the state '{}'", entry.key);
            faults.add_fault(entry.place, Fault::with_hint(wrong, "name it in a module, or remove it"));
        }
    }
}

/// Creates the function of each module once, for its first worker, in order to check its parameters. The lists have the
/// order of the text, and `None` for a module with a fault.
pub(crate) fn make_modules(
    root: &Node,
    workers: &Workers,
    environment: &mut SetupEnvironment,
    faults: &mut FaultCollector,
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
                faults.add_all(root, &["modules", &entry.key, &kind.key], error);
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

/// Checks the parameters of the ports without opening them. The lists have the order of the text. A draft is `None` if
/// the kind of the port is missing or unknown.
pub(crate) fn check_ports(
    root: &Node,
    environment: &mut SetupEnvironment,
    faults: &mut FaultCollector,
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
                Err(error) => faults.add_all(root, &["ports", &entry.key, &kind.key], error),
            }
            PortDraft { name: entry.key.clone(), kind: declaration, params }
        }));
        ends.push(PortEnd { name: entry.key.clone(), place: entry.place, new: entry.new, ways });
    }
    refuse_shared_interfaces(root, faults);
    (drafts, ends)
}

/// Refuses a second port on an interface, because each of the two ports would receive every frame.
fn refuse_shared_interfaces(root: &Node, faults: &mut FaultCollector) {
    let mut seen: HashMap<(String, Option<String>), &str> = HashMap::new();
    for entry in entries(root, "ports") {
        let Some(kind) = kind_of(entry).filter(|kind| matches!(&*kind.key, "af_packet" | "af_xdp")) else { continue };
        let text = |key: &str| kind.value.get(key).and_then(Node::as_text).map(str::to_owned);
        let Some(interface) = text("interface") else { continue };
        if let Some(first) = seen.insert((interface.clone(), text("namespace")), &entry.key) {
            let message = format!(
                "'{interface}' is the interface of port '{first}' already, and both ports would receive every frame: \
                 remove this port and name '{first}' in `pipeline` instead, because a port can both receive and send"
            );
            faults.add_at(root, &["ports", &entry.key, &kind.key, "interface"], &message);
        }
    }
}

/// Adds a fault for each metadata word that a parameter names and no function uses. The function that writes the word
/// may be missing, because `profile --co-runs` measures each module by itself. Must be called after all modules were
/// created.
pub(crate) fn unknown_words(root: &Node, environment: &SetupEnvironment, faults: &mut FaultCollector) {
    let functions = forebay_graph::functions();
    let declared = functions.iter().flat_map(|function| function.reads.iter().chain(function.writes)).copied();
    // A function outside this repository may use a word that it does not declare.
    let known: BTreeSet<&str> = declared.chain(environment.own_words.iter().map(String::as_str)).collect();
    for (module, parameter, word) in environment.named_words.iter().filter(|(.., word)| !known.contains(&**word)) {
        let entry = entries(root, "modules").find(|entry| entry.key == *module);
        let Some(kind) = entry.and_then(kind_of) else { continue };
        let near = nearest(word, known.iter().copied());
        let wrong = format!("no function uses the metadata word {}{near}", quote(word));
        let error = SetupError::wrong_name(parameter, word, wrong, known.iter().copied());
        faults.add_all(root, &["modules", module, &kind.key], error);
    }
}
