//! What a running pipeline is made of, and what is different in a configuration that is to follow it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use forebay_control::Settings;
use forebay_graph::{Files, LASTING, ONCE_A_MODULE, SharedState, kept_as};
use forebay_packet::Word;
use forebay_protocol::{ConfigurationChange, SchedulerKind, graph::GraphReport};

use crate::Source;
use crate::compile::Draft;
use crate::identity::{Identity, Stamps};
use crate::problem::Findings;
use crate::yaml::Node;

/// Modules or ports by name: what each is made of, and the workers that it is on.
type Things = BTreeMap<String, (Identity, Vec<usize>)>;

/// Shared state as it was made.
#[derive(Clone)]
pub(crate) struct MadeState {
    /// What it is made of.
    pub(crate) identity: Identity,
    pub(crate) what: SharedState,
    /// What it asked for of what is [handed on](Setup::handed_on): where it is taken over it does not ask again.
    pub(crate) kept: Vec<String>,
}

/// What a running pipeline is made of, by name: how a changed configuration is told from it.
#[derive(Clone)]
pub struct Made {
    /// The configuration.
    pub(crate) source: Source,
    pub(crate) modules: Things,
    pub(crate) ports: Things,
    pub(crate) state: BTreeMap<String, MadeState>,
    /// What replicas of one module share ([`Setup::once_a_module`]), what [lasts](Setup::lasting), and what is
    /// [handed on](Setup::handed_on), by key.
    pub(crate) tables: BTreeMap<String, SharedState>,
    /// Of what is handed on, as [what it is kept](kept_as), whose it is.
    pub(crate) kept: BTreeMap<String, String>,
    /// Who reads and writes which files.
    pub(crate) files: Files,
    /// What functions that are taken over know metadata words by.
    pub(crate) words: BTreeMap<String, Word>,
    /// Names of modules that run as one, by branch.
    pub(crate) folds: Vec<Vec<String>>,
    pub(crate) batch: usize,
    pub(crate) seed: u64,
    pub(crate) scheduler: SchedulerKind,
    pub(crate) pool: (usize, usize),
    pub(crate) control: Option<Settings>,
    /// The graph as a drawing shows it.
    pub(crate) graph: GraphReport,
}

impl Made {
    /// What sets the triggers, where something does.
    #[must_use]
    pub fn control(&self) -> Option<&Settings> {
        self.control.as_ref()
    }

    /// Its graph, with the cores that the configuration names.
    #[must_use]
    pub fn graph(&self) -> &GraphReport {
        &self.graph
    }

    /// What is different in `new`.
    #[must_use]
    pub fn change_to(&self, new: &Self) -> ConfigurationChange {
        let mut change = ConfigurationChange::default();
        let parted = new.parted(self);
        for (name, (identity, on)) in &new.modules {
            match self.modules.get(name) {
                None => change.added.push(name.clone()),
                Some((old, there)) => {
                    if there != on {
                        change.moved.push(name.clone());
                    }
                    if old == identity
                        && !parted.contains(name.as_str())
                        && on.iter().any(|worker| taken_over(there, on, *worker, identity.is_keyed()).is_some())
                    {
                        change.kept += 1;
                    } else {
                        change.changed.push(name.clone());
                    }
                }
            }
        }
        let gone = self.kept.iter().filter(|(key, _)| !new.kept.contains_key(*key));
        change.forgotten = gone.map(|(_, whose)| whose.clone()).collect::<BTreeSet<_>>().into_iter().collect();
        change.removed = self.modules.keys().filter(|name| !new.modules.contains_key(*name)).cloned().collect();
        let goes_on = |old: &Self, new: &Self, name: &String| match (old.ports.get(name), new.ports.get(name)) {
            (Some((old, there)), Some((new, on))) => old == new && taken_over(there, on, on[0], true).is_some(),
            _ => false,
        };
        let not_on = |ports: &Things| ports.keys().filter(|name| !goes_on(self, new, name)).cloned().collect();
        (change.ports_closed, change.ports_opened) = (not_on(&self.ports), not_on(&new.ports));
        change
    }

    /// Modules and ports that are made of something else in `running`: their section and name.
    pub(crate) fn made_otherwise<'a>(&'a self, running: &'a Self) -> Vec<(&'static str, &'a str)> {
        let of = |section, now: &'a Things, then: &Things| {
            let other = |name: &String| then.get(name).map(|(identity, _)| identity);
            let other = now.iter().filter(|(name, (identity, _))| other(name) != Some(identity));
            other.map(|(name, _)| (section, name.as_str())).collect::<Vec<_>>()
        };
        [of("modules", &self.modules, &running.modules), of("ports", &self.ports, &running.ports)].concat()
    }

    /// Modules that are made anew because of those with which they run as one, now or before: what runs as one is taken over as
    /// one, where all of it is as it was.
    pub(crate) fn parted<'a>(&'a self, running: &'a Self) -> HashSet<&'a str> {
        let folds = |made: &'a Self| {
            let members = made.folds.iter().flat_map(|fold| fold.iter().map(move |member| (member.as_str(), fold)));
            members.collect::<HashMap<_, _>>()
        };
        let (before, now) = (folds(running), folds(self));
        // From one worker to one worker it goes as it is.
        let as_it_was = |member: &String| match (running.modules.get(member), self.modules.get(member)) {
            (Some((old, there)), Some((new, on))) => old == new && (there == on || (there.len(), on.len()) == (1, 1)),
            _ => false,
        };
        let remade = self.folds.iter().filter(|fold| {
            let same = before.get(fold[0].as_str()) == Some(fold);
            !(same && fold.iter().all(as_it_was))
        });
        let alone = running.folds.iter().flatten().filter(|member| !now.contains_key(member.as_str()));
        remade.flatten().chain(alone).map(String::as_str).collect()
    }

    /// Notes that the command line uses files, too: as long as the run lasts, whatever the configuration.
    ///
    /// # Errors
    /// In words: the pipeline uses the file.
    pub fn claim(&mut self, who: &str, path: &Path, written: bool) -> Result<(), String> {
        self.files.claim_for_good(who, path, written)
    }

    /// Takes files out of what things are made of that they write: they are known once all are open.
    pub(crate) fn without_outputs(&mut self, root: &Node, stamps: &Stamps) {
        let files = &self.files;
        for (name, (identity, _)) in &mut self.modules {
            *identity = Identity::of(root, "modules", name, identity.kind(), stamps, files);
        }
        for (name, (identity, _)) in &mut self.ports {
            *identity = Identity::of(root, "ports", name, identity.kind(), stamps, files);
        }
    }

    /// What lasts, and what the replicas of modules share that are made in the same way in `root`: entries that were changed while packets
    /// ran stay changed, however many workers there will be.
    pub(crate) fn tables_of(&self, root: &Node, stamps: &Stamps) -> BTreeMap<String, SharedState> {
        let same = |(name, (identity, _)): &(&String, &(Identity, Vec<usize>))| {
            *identity == Identity::of(root, "modules", name, identity.kind(), stamps, &self.files)
        };
        let lasting = self.tables.iter().filter(|(key, _)| key.starts_with(LASTING) || kept_as(key).is_some());
        let mut tables: BTreeMap<_, _> = lasting.map(|(key, what)| (key.clone(), Arc::clone(what))).collect();
        for (name, _) in self.modules.iter().filter(same) {
            let prefix = format!("{ONCE_A_MODULE}{name} ");
            let of_module = self.tables.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
            tables.extend(of_module.map(|(key, table)| (key.clone(), Arc::clone(table))));
        }
        tables
    }

    /// The workers that have this module, where it is there and is made the same way.
    pub(crate) fn module(&self, name: &str, identity: &Identity) -> Option<&[usize]> {
        self.modules.get(name).filter(|(other, _)| other == identity).map(|(_, on)| &on[..])
    }
}

/// From which of the workers `there` the module on worker `worker`, one of `on`, is taken over; none where it begins anew.
///
/// A worker keeps its own; one whose state is `keyed` by sessions only as long as the same sessions come to it. A module that
/// was alone and stays alone moves.
pub(crate) fn taken_over(there: &[usize], on: &[usize], worker: usize, keyed: bool) -> Option<usize> {
    match (there, on) {
        ([old], [_]) => Some(*old),
        _ => (there == on || !keyed && there.contains(&worker)).then_some(worker),
    }
}

impl Draft {
    /// What cannot change while packets run.
    pub(crate) fn refuse_fixed(&self, running: &Made, findings: &mut Findings) {
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
        if (self.pool.chunks, self.pool.frame) != running.pool {
            findings.add(place("pool"), "pool: it cannot change while packets run: leave it as it is, or start anew");
        }
    }
}
