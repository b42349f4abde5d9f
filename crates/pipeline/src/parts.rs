//! The parts of a running pipeline, and the differences between a running pipeline and the configuration that replaces
//! it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use forebay_control::Settings;
use forebay_graph::{Files, HandedOver, ObjectKey, SharedState};
use forebay_packet::Word;
use forebay_protocol::graph::GraphReport;
use forebay_protocol::{ConfigurationChange, SchedulerKind};

use crate::Source;
use crate::draft::{CreatedState, Draft};
use crate::faults::FaultCollector;
use crate::identity::{Identity, Stamps};
use crate::yaml::Node;

/// The identity and the workers of each module or port, by name.
type Things = BTreeMap<String, (Identity, Vec<usize>)>;

/// The parts of a running pipeline, by name, for the comparison with a changed configuration.
#[derive(Clone)]
pub struct PipelineParts {
    /// The configuration.
    pub(crate) source: Source,
    pub(crate) modules: Things,
    pub(crate) ports: Things,
    pub(crate) state: BTreeMap<String, CreatedState>,
    /// By key: the objects that replicas of one module share
    /// ([`Setup::once_per_module`](forebay_graph::Setup::once_per_module)), that [last](forebay_graph::Setup::lasting)
    /// as long as the pipeline runs, and that are [handed over](forebay_graph::Setup::handed_over).
    pub(crate) tables: BTreeMap<ObjectKey, SharedState>,
    /// The name of the module or state that owns each object that is handed over.
    pub(crate) handed_over: BTreeMap<HandedOver, String>,
    /// The readers and writers of files.
    pub(crate) files: Files,
    /// The numbers of metadata words, for functions that are taken over.
    pub(crate) words: BTreeMap<String, Word>,
    /// The groups of modules that run as one: the names of the modules of each group, in the order of their branches.
    pub(crate) folds: Vec<Vec<String>>,
    /// The largest batch, in packets.
    pub(crate) batch: usize,
    /// The seed of all random numbers.
    pub(crate) seed: u64,
    pub(crate) scheduler: SchedulerKind,
    /// The number of chunks of the packet pool, and the longest frame in bytes.
    pub(crate) pool: (usize, usize),
    pub(crate) control: Option<Settings>,
    /// The graph, for drawings.
    pub(crate) graph: GraphReport,
}

impl PipelineParts {
    /// Returns the controller and its settings, if there is one.
    #[must_use]
    pub fn control(&self) -> Option<&Settings> {
        self.control.as_ref()
    }

    /// Returns the graph, with the cores that the configuration names.
    #[must_use]
    pub fn graph(&self) -> &GraphReport {
        &self.graph
    }

    /// Returns the differences between this running configuration and `new`.
    #[must_use]
    pub fn change_to(&self, new: &Self) -> ConfigurationChange {
        let mut change = ConfigurationChange::default();
        let parted = new.parted(self);
        for (name, (identity, on)) in &new.modules {
            match self.modules.get(name) {
                None => change.added.push(name.clone()),
                Some((old, old_on)) => {
                    if old_on != on {
                        change.moved.push(name.clone());
                    }
                    if old == identity
                        && !parted.contains(name.as_str())
                        && on.iter().any(|worker| taken_over(old_on, on, *worker, identity.is_keyed()).is_some())
                    {
                        change.kept += 1;
                    } else {
                        change.changed.push(name.clone());
                    }
                }
            }
        }
        let dropped = self.handed_over.iter().filter(|(object, _)| !new.handed_over.contains_key(*object));
        change.forgotten = dropped.map(|(_, owner)| owner.clone()).collect::<BTreeSet<_>>().into_iter().collect();
        change.removed = self.modules.keys().filter(|name| !new.modules.contains_key(*name)).cloned().collect();
        let stays_open = |old: &Self, new: &Self, name: &String| match (old.ports.get(name), new.ports.get(name)) {
            (Some((old, old_on)), Some((new, on))) => old == new && taken_over(old_on, on, on[0], true).is_some(),
            _ => false,
        };
        let others = |ports: &Things| ports.keys().filter(|name| !stays_open(self, new, name)).cloned().collect();
        (change.ports_closed, change.ports_opened) = (others(&self.ports), others(&new.ports));
        change
    }

    /// Returns the modules and ports whose identity differs from that in `running`, each with its section and name.
    pub(crate) fn differing_from<'a>(&'a self, running: &'a Self) -> Vec<(&'static str, &'a str)> {
        let of = |section, now: &'a Things, then: &Things| {
            let other = |name: &String| then.get(name).map(|(identity, _)| identity);
            let other = now.iter().filter(|(name, (identity, _))| other(name) != Some(identity));
            other.map(|(name, _)| (section, name.as_str())).collect::<Vec<_>>()
        };
        [of("modules", &self.modules, &running.modules), of("ports", &self.ports, &running.ports)].concat()
    }

    /// Returns the modules that must be created again because their group, the modules that run as one with them, has
    /// changed. Modules that run as one are taken over together, and only if all of them are unchanged. A module that
    /// left its group is also created again.
    pub(crate) fn parted<'a>(&'a self, running: &'a Self) -> HashSet<&'a str> {
        let folds = |made: &'a Self| {
            let members = made.folds.iter().flat_map(|fold| fold.iter().map(move |member| (member.as_str(), fold)));
            members.collect::<HashMap<_, _>>()
        };
        let (before, now) = (folds(running), folds(self));
        // A module that moves from a single worker to another single worker also counts as unchanged.
        let is_unchanged = |member: &String| match (running.modules.get(member), self.modules.get(member)) {
            (Some((old, old_on)), Some((new, on))) => {
                old == new && (old_on == on || (old_on.len(), on.len()) == (1, 1))
            }
            _ => false,
        };
        let remade = self.folds.iter().filter(|fold| {
            let same = before.get(fold[0].as_str()) == Some(fold);
            !(same && fold.iter().all(is_unchanged))
        });
        let alone = running.folds.iter().flatten().filter(|member| !now.contains_key(member.as_str()));
        remade.flatten().chain(alone).map(String::as_str).collect()
    }

    /// Claims a file that the command line uses, for the whole run and all its configurations. `who` names the user of
    /// the file in messages. `written` is true if this user writes the file.
    ///
    /// # Errors
    /// Returns a message if the pipeline uses the file in a conflicting way.
    pub fn claim(&mut self, who: &str, path: &Path, written: bool) -> Result<(), String> {
        self.files.claim_for_good(who, path, written)
    }

    /// Removes the files that modules and ports write from their identities. Must be called after all ports are open,
    /// because only then all these files are known.
    pub(crate) fn without_outputs(&mut self, root: &Node, stamps: &Stamps) {
        let files = &self.files;
        for (name, (identity, _)) in &mut self.modules {
            *identity = Identity::of(root, "modules", name, identity.kind(), stamps, files);
        }
        for (name, (identity, _)) in &mut self.ports {
            *identity = Identity::of(root, "ports", name, identity.kind(), stamps, files);
        }
    }

    /// Returns the objects that the next configuration `root` takes over: the lasting objects, and the objects that
    /// replicas of unchanged modules share. Because of this, changes of table entries stay in force, also with another
    /// number of workers.
    pub(crate) fn tables_of(&self, root: &Node, stamps: &Stamps) -> BTreeMap<ObjectKey, SharedState> {
        let same = |(name, (identity, _)): &(&String, &(Identity, Vec<usize>))| {
            *identity == Identity::of(root, "modules", name, identity.kind(), stamps, &self.files)
        };
        let unchanged: HashSet<_> = self.modules.iter().filter(same).map(|(name, _)| name).collect();
        let stays = |key: &ObjectKey| match key {
            ObjectKey::Configuration(_) => false,
            ObjectKey::Module { module, .. } => unchanged.contains(module),
            ObjectKey::Run(_) | ObjectKey::HandedOver { .. } => true,
        };
        let tables = self.tables.iter().filter(|(key, _)| stays(key));
        tables.map(|(key, table)| (key.clone(), Arc::clone(table))).collect()
    }

    /// Returns the workers of a module, if a module with this name and identity exists.
    pub(crate) fn module(&self, name: &str, identity: &Identity) -> Option<&[usize]> {
        self.modules.get(name).filter(|(other, _)| other == identity).map(|(_, on)| &on[..])
    }
}

/// Returns the worker from which the module on `worker` is taken over; `None` if the module is created again. The
/// module was on the workers `before` and will be on the workers `on`, one of which is `worker`.
///
/// A module that was on one worker and will be on one worker moves with its state. Otherwise, a worker keeps the module
/// if it ran the module before. If `keyed` is true, the module has state for each session. Then a worker keeps the
/// module only if the set of workers does not change, because the same sessions must come to the worker.
pub(crate) fn taken_over(before: &[usize], on: &[usize], worker: usize, keyed: bool) -> Option<usize> {
    match (before, on) {
        ([old], [_]) => Some(*old),
        _ => (before == on || !keyed && before.contains(&worker)).then_some(worker),
    }
}

impl Draft {
    /// Adds an error for each changed setting that cannot change while packets run.
    pub(crate) fn refuse_fixed(&self, running: &PipelineParts, faults: &mut FaultCollector) {
        let place = |key| self.root.place_of([key]);
        if self.batch != running.batch {
            let (now, new) = (running.batch, self.batch);
            faults.add(
                place("batch"),
                format!("batch: {now} cannot become {new} while packets run: keep {now}, or restart the pipeline"),
            );
        }
        if self.seed != running.seed {
            let (now, new) = (running.seed, self.seed);
            faults.add(
                place("seed"),
                format!("seed: {now} cannot become {new} while packets run: keep {now}, or restart the pipeline"),
            );
        }
        if self.scheduler != running.scheduler {
            faults.add(
                place("scheduler"),
                "scheduler: it cannot change while packets run: leave it as it is, or restart the pipeline",
            );
        }
        if (self.pool.chunks, self.pool.frame) != running.pool {
            faults.add(
                place("pool"),
                "pool: it cannot change while packets run: leave it as it is, or restart the pipeline",
            );
        }
    }
}
