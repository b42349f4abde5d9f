//! Modules of a running pipeline move to other workers: the configuration that says so, and which moves are possible.
//!
//! The result is a configuration like any other, with a setting for its section `workers`: it follows the running one
//! by a reload, is kept for the next start, and stays in force at the next reload.

use std::collections::BTreeMap;

use forebay_graph::Target;
use forebay_protocol::{ModuleMove, WantedWorkers};
use thiserror::Error;

use crate::Source;
use crate::compile::{Conditions, Draft};
use crate::load::{Prepared, prepare};
use crate::made::{Made, taken_over};
use crate::problem::{Problems, listed, nearest};
use crate::together;

/// Modules that can move, and the configuration by which they do.
pub struct Moving {
    /// The configuration, checked.
    pub prepared: Prepared,
    /// The same as it will be in force.
    pub source: Source,
    /// The moves, in topological order.
    pub moves: Vec<ModuleMove>,
    /// Wanted moves that are more than were allowed.
    pub remaining: Vec<ModuleMove>,
    /// Modules whose sessions would be lost.
    pub forgetful: Vec<String>,
}

/// Why modules cannot move.
#[derive(Debug, Error)]
pub enum MoveError {
    /// No module has this name.
    #[error("no module is called '{name}'{near}: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// A name that may have been meant.
        near: String,
        /// The modules that there are.
        known: String,
    },
    /// A module is named twice.
    #[error("module '{0}' is named twice: allowed is once, with all of its workers")]
    Twice(String),
    /// A module would run nowhere.
    #[error("module '{0}' would run on no worker: name at least one")]
    Nowhere(String),
    /// There is no such worker.
    #[error(
        "module '{module}': there is no worker {worker}: there are {workers}, numbered from 0, and a move starts none"
    )]
    NoWorker {
        /// The module.
        module: String,
        /// The worker.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
    /// A controller moves modules.
    #[error(
        "the controller moves modules itself (`control.workers: {most}`, where `workers` has {workers}): leave `control.workers` out"
    )]
    Controlled {
        /// How many workers the controller may use.
        most: usize,
        /// How many the configuration has.
        workers: usize,
    },
    /// Modules share sessions, and more of them would have to move together than are allowed.
    #[error("none of {wanted} moves can be made with at most {most}: {why}")]
    TooFew {
        /// How many are wanted.
        wanted: usize,
        /// How many are allowed.
        most: usize,
        /// Why a part of them cannot be made.
        why: &'static str,
    },
    /// The configuration that would follow has mistakes.
    #[error(transparent)]
    Problems(#[from] Problems),
}

/// Prepares that modules of what is `running` go to other workers; `None` where all are there already. Of more moves
/// than `most` those are made that come first and are possible without the others.
///
/// # Errors
/// [`MoveError`]: all that is wrong with the wish, or with the configuration that would follow.
pub fn move_modules(
    running: &Made,
    conditions: Conditions,
    wanted: &[WantedWorkers],
    most: Option<usize>,
) -> Result<Option<Moving>, MoveError> {
    let mut wishes: Vec<ModuleMove> = Vec::new();
    for wish in wanted {
        let moved = wished(running, wish)?;
        if wishes.iter().any(|other| other.module == moved.module) {
            return Err(MoveError::Twice(moved.module));
        }
        wishes.push(moved);
    }
    wishes.retain(|wish| wish.from != wish.to);
    if wishes.is_empty() {
        return Ok(None);
    }
    let prepare_with = |moves: &[ModuleMove]| -> Result<(Prepared, Source), Problems> {
        let source = running.source.with_workers(&workers_with(running, moves));
        let prepared = prepare(&source, conditions, Some(running))?;
        prepared.refuse_made_otherwise(running)?;
        Ok((prepared, source))
    };
    let (mut prepared, mut source) = prepare_with(&wishes)?;
    let workers = prepared.cores().len();
    if let Some(control) = prepared.made().control().filter(|control| control.workers > workers) {
        return Err(MoveError::Controlled { most: control.workers, workers });
    }
    let mut remaining = Vec::new();
    if let Some(most) = most.filter(|most| *most < wishes.len()) {
        let chosen = choose(prepared.draft(), running, &wishes, most);
        if chosen.is_empty() {
            let why = "modules that share sessions move together, and packets must not go in a circle over workers";
            return Err(MoveError::TooFew { wanted: wishes.len(), most, why });
        }
        let is_chosen = |at: &usize| chosen.contains(at);
        remaining = (0..wishes.len()).filter(|at| !is_chosen(at)).map(|at| wishes[at].clone()).collect();
        wishes = (0..wishes.len()).filter(is_chosen).map(|at| wishes[at].clone()).collect();
        (prepared, source) = prepare_with(&wishes)?;
    }
    let made = prepared.made();
    let keeps = |moved: &ModuleMove| {
        let keyed = made.modules[&moved.module].0.is_keyed();
        !keyed || moved.to.iter().all(|worker| taken_over(&moved.from, &moved.to, *worker, true).is_some())
    };
    let forgetful = wishes.iter().filter(|moved| !keeps(moved)).map(|moved| moved.module.clone()).collect();
    let order = |moved: &ModuleMove| running.graph.modules.iter().position(|module| module.name == moved.module);
    wishes.sort_by_key(order);
    Ok(Some(Moving { prepared, source, moves: wishes, remaining, forgetful }))
}

/// A wish that names what there is.
fn wished(running: &Made, wish: &WantedWorkers) -> Result<ModuleMove, MoveError> {
    let names = || running.graph.modules.iter().map(|module| module.name.as_str());
    let Some((_, from)) = running.modules.get(&wish.module) else {
        let (near, known) = (nearest(&wish.module, names()), format!("there are {}", listed(names())));
        return Err(MoveError::Unknown { name: wish.module.clone(), near, known });
    };
    let (module, mut to) = (wish.module.clone(), wish.to.clone());
    to.sort_unstable();
    to.dedup();
    let workers = running.graph.workers.len();
    match to.last() {
        None => Err(MoveError::Nowhere(module)),
        Some(&worker) if worker >= workers => Err(MoveError::NoWorker { module, worker, workers }),
        Some(_) => Ok(ModuleMove { module, from: from.clone(), to }),
    }
}

/// The section `workers` with which these moves are made, in one line. Every worker stays, with its core where the
/// configuration says it, and names all that it runs: also one that runs nothing.
fn workers_with(running: &Made, moves: &[ModuleMove]) -> String {
    let moved: BTreeMap<_, _> = moves.iter().map(|moved| (moved.module.as_str(), &moved.to)).collect();
    let on = |name: &str| moved.get(name).copied().unwrap_or(&running.modules[name].1);
    let worker = |worker: &forebay_protocol::graph::GraphWorker| {
        let all = running.graph.modules.iter().map(|module| module.name.as_str());
        let modules: Vec<&str> = all.filter(|name| on(name).contains(&worker.id)).collect();
        match worker.core {
            Some(core) => serde_json::json!({ "core": core, "modules": modules }),
            None => serde_json::json!({ "modules": modules }),
        }
    };
    serde_json::Value::from_iter(running.graph.workers.iter().map(worker)).to_string()
}

/// Which of the wishes are made where at most `most` are: first ones first, modules that share sessions together, and
/// none by which packets would go in a circle over workers.
fn choose(draft: &Draft, running: &Made, wishes: &[ModuleMove], most: usize) -> Vec<usize> {
    let groups = together::groups(draft);
    let group = |wish: usize| draft.modules.iter().position(|it| it.name == wishes[wish].module).map(|at| groups[at]);
    let mut units: Vec<Vec<usize>> = Vec::new();
    for wish in 0..wishes.len() {
        match units.iter_mut().find(|unit| group(unit[0]) == group(wish)) {
            Some(unit) => unit.push(wish),
            None => units.push(vec![wish]),
        }
    }
    let edges = draft.modules.iter().enumerate().flat_map(|(from, module)| {
        module
            .gates
            .iter()
            .filter_map(move |(_, to)| if let Target::Module(to) = *to { Some((from, to)) } else { None })
    });
    let edges: Vec<_> = edges.collect();
    let is_possible = |chosen: &[usize]| {
        let mut placement = draft.placement.clone();
        for (module, on) in draft.modules.iter().zip(&mut placement.modules) {
            let moved = chosen.iter().map(|wish| &wishes[*wish]).find(|wish| wish.module == module.name);
            on.clone_from(moved.map_or(&running.modules[&module.name].1, |moved| &moved.to));
        }
        placement.circle(&edges).is_none()
    };
    let mut chosen: Vec<usize> = Vec::new();
    // Two units at once where neither is possible alone: what lies on both sides of a module, for one.
    let next = |chosen: &[usize]| -> Option<Vec<usize>> {
        let left: Vec<_> = units.iter().filter(|unit| !chosen.contains(&unit[0])).collect();
        let alone = left.iter().map(|unit| (*unit).clone());
        let pairs = left
            .iter()
            .enumerate()
            .flat_map(|(at, one)| left[at + 1..].iter().map(move |other| [&one[..], &other[..]].concat()));
        let with = |more: Vec<usize>| [chosen, &more[..]].concat();
        alone.chain(pairs).map(with).find(|all| all.len() <= most && is_possible(all))
    };
    while let Some(all) = next(&chosen) {
        chosen = all;
    }
    chosen
}
