//! Finds the possible moves of modules to other workers, and the configuration that makes them.
//!
//! The result is an ordinary configuration with a setting for its section `workers`. A reload applies the setting. The
//! setting is kept for the next start, and stays in force at the next reload.

use std::collections::BTreeMap;

use forebay_graph::{Target, known_names};
use forebay_protocol::{ModuleMove, WantedWorkers};
use thiserror::Error;

use crate::compile::Conditions;
use crate::draft::Draft;
use crate::load::{Prepared, prepare};
use crate::parts::{PipelineParts, taken_over};
use crate::problems::Problems;
use crate::{Source, together};

/// The moves that can be made, and the configuration that makes them.
pub struct Moving {
    /// The checked configuration.
    pub prepared: Prepared,
    /// The source of the configuration.
    pub source: Source,
    /// The moves, in topological order.
    pub moves: Vec<ModuleMove>,
    /// The requested moves that are not made, because more moves were requested than allowed.
    pub remaining: Vec<ModuleMove>,
    /// The modules that would lose their sessions.
    pub forgetful: Vec<String>,
}

/// The reason why modules cannot move.
#[derive(Debug, Error)]
pub enum MoveError {
    /// No module has this name.
    #[error("no module is called '{name}'{known}")]
    Unknown {
        /// The name.
        name: String,
        /// The [end of the message](known_names): a similar name, if there is one, and the existing modules.
        known: String,
    },
    /// The request names a module twice.
    #[error("module '{0}' is named twice: name it once, with all of its workers")]
    Twice(String),
    /// A module would have no worker.
    #[error("module '{0}' would run on no worker: name at least one worker")]
    Nowhere(String),
    /// The worker does not exist.
    #[error(
        "module '{module}': there is no worker {worker}: the pipeline has {workers}, numbered from 0, and a move \
         cannot start a worker"
    )]
    NoWorker {
        /// The module.
        module: String,
        /// The worker.
        worker: usize,
        /// The number of workers.
        workers: usize,
    },
    /// A controller moves modules.
    #[error(
        "the controller moves modules itself, because `control.workers` is {most} and `workers` has {workers}: leave \
         `control.workers` out"
    )]
    Controlled {
        /// The number of workers that the controller may use.
        most: usize,
        /// The number of workers in the configuration.
        workers: usize,
    },
    /// More moves were requested than allowed, and no smaller number of them can be made without the others. For
    /// example, modules that share sessions must move together.
    #[error("none of {wanted} moves is possible if at most {most} may be made: {why}")]
    TooFew {
        /// The number of wanted moves.
        wanted: usize,
        /// The allowed number of moves.
        most: usize,
        /// Why no subset of the moves is possible.
        why: &'static str,
    },
    /// The new configuration has errors.
    #[error(transparent)]
    Problems(#[from] Problems),
}

/// Prepares moves of modules of the `running` pipeline. Returns `None` if all modules are on the requested workers
/// already. If more than `most` modules would move, chooses the first moves that are possible without the others.
///
/// # Errors
/// Returns a [`MoveError`] if the request or the new configuration has errors.
pub fn move_modules(
    running: &PipelineParts,
    conditions: Conditions,
    wanted: &[WantedWorkers],
    most: Option<usize>,
) -> Result<Option<Moving>, MoveError> {
    let mut moves: Vec<ModuleMove> = Vec::new();
    for wanted in wanted {
        let moved = checked_move(running, wanted)?;
        if moves.iter().any(|other| other.module == moved.module) {
            return Err(MoveError::Twice(moved.module));
        }
        moves.push(moved);
    }
    moves.retain(|moved| moved.from != moved.to);
    if moves.is_empty() {
        return Ok(None);
    }
    let prepare_with = |moves: &[ModuleMove]| -> Result<(Prepared, Source), Problems> {
        let source = running.source.with_workers(&workers_with(running, moves));
        let prepared = prepare(&source, conditions, Some(running))?;
        prepared.refuse_made_otherwise(running)?;
        Ok((prepared, source))
    };
    let (mut prepared, mut source) = prepare_with(&moves)?;
    let workers = prepared.cores().len();
    if let Some(control) = prepared.made().control().filter(|control| control.workers > workers) {
        return Err(MoveError::Controlled { most: control.workers, workers });
    }
    let mut remaining = Vec::new();
    if let Some(most) = most.filter(|most| *most < moves.len()) {
        let chosen = choose(prepared.draft(), running, &moves, most);
        if chosen.is_empty() {
            let why =
                "modules that share sessions must move together, and packets must not go in a circle over workers";
            return Err(MoveError::TooFew { wanted: moves.len(), most, why });
        }
        let is_chosen = |index: &usize| chosen.contains(index);
        remaining = (0..moves.len()).filter(|index| !is_chosen(index)).map(|index| moves[index].clone()).collect();
        moves = (0..moves.len()).filter(is_chosen).map(|index| moves[index].clone()).collect();
        (prepared, source) = prepare_with(&moves)?;
    }
    let made = prepared.made();
    let keeps = |moved: &ModuleMove| {
        let keyed = made.modules[&moved.module].0.is_keyed();
        !keyed || moved.to.iter().all(|worker| taken_over(&moved.from, &moved.to, *worker, true).is_some())
    };
    let forgetful = moves.iter().filter(|moved| !keeps(moved)).map(|moved| moved.module.clone()).collect();
    let order = |moved: &ModuleMove| running.graph.modules.iter().position(|module| module.name == moved.module);
    moves.sort_by_key(order);
    Ok(Some(Moving { prepared, source, moves, remaining, forgetful }))
}

/// Returns the wanted move of a module. Checks that the module and the workers exist.
fn checked_move(running: &PipelineParts, wanted: &WantedWorkers) -> Result<ModuleMove, MoveError> {
    let Some((_, from)) = running.modules.get(&wanted.module) else {
        let names = running.graph.modules.iter().map(|module| module.name.as_str());
        return Err(MoveError::Unknown { name: wanted.module.clone(), known: known_names(&wanted.module, names) });
    };
    let (module, mut to) = (wanted.module.clone(), wanted.to.clone());
    to.sort_unstable();
    to.dedup();
    let workers = running.graph.workers.len();
    match to.last() {
        None => Err(MoveError::Nowhere(module)),
        Some(&worker) if worker >= workers => Err(MoveError::NoWorker { module, worker, workers }),
        Some(_) => Ok(ModuleMove { module, from: from.clone(), to }),
    }
}

/// Returns the section `workers` after these moves, in one line. It lists all modules of each worker. It contains every
/// worker, even if the worker runs nothing, with its core if the configuration names one.
fn workers_with(running: &PipelineParts, moves: &[ModuleMove]) -> String {
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

/// Chooses at most `most` of the moves, in their order of priority. Returns their indices; the result is empty if no
/// choice is possible. Modules that share sessions move together. Packets must not go in a circle over workers.
fn choose(draft: &Draft, running: &PipelineParts, moves: &[ModuleMove], most: usize) -> Vec<usize> {
    let groups = together::groups(draft);
    let group =
        |moved: usize| draft.modules.iter().position(|it| it.name == moves[moved].module).map(|index| groups[index]);
    let mut units: Vec<Vec<usize>> = Vec::new();
    for moved in 0..moves.len() {
        match units.iter_mut().find(|unit| group(unit[0]) == group(moved)) {
            Some(unit) => unit.push(moved),
            None => units.push(vec![moved]),
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
            let moved = chosen.iter().map(|index| &moves[*index]).find(|moved| moved.module == module.name);
            on.clone_from(moved.map_or(&running.modules[&module.name].1, |moved| &moved.to));
        }
        placement.circle(&edges).is_none()
    };
    let mut chosen: Vec<usize> = Vec::new();
    // A unit is a list of moves that must be made together. If no unit is possible alone, tries pairs of units, for
    // example the modules on both sides of a module.
    let next = |chosen: &[usize]| -> Option<Vec<usize>> {
        let open: Vec<_> = units.iter().filter(|unit| !chosen.contains(&unit[0])).collect();
        let alone = open.iter().map(|unit| (*unit).clone());
        let pairs = open
            .iter()
            .enumerate()
            .flat_map(|(index, one)| open[index + 1..].iter().map(move |other| [&one[..], &other[..]].concat()));
        let with = |more: Vec<usize>| [chosen, &more[..]].concat();
        alone.chain(pairs).map(with).find(|all| all.len() <= most && is_possible(all))
    };
    while let Some(all) = next(&chosen) {
        chosen = all;
    }
    chosen
}
