//! Modules of a running pipeline move to other workers, by a reload that changes nothing else.

use std::sync::PoisonError;

use forebay_graph::Scheduler;
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{MoveError, Moving, Source, listed, shown_setting};
use forebay_protocol::{ModuleMove, Moved, Reloaded, WantedWorkers};
use thiserror::Error;

use crate::reload::{ReloadError, conditions};
use crate::running::Running;

/// Which modules are to move, and what they may lose by it.
#[derive(Clone, Copy, Debug)]
pub struct MoveOrder<'a> {
    /// The modules with their workers, the most wanted first.
    pub wanted: &'a [WantedWorkers],
    /// How many may move at most.
    pub most: Option<usize>,
    /// Whether modules may move whose sessions are lost by it.
    pub lose_sessions: bool,
}

/// Why modules did not move: all runs on as before.
#[derive(Debug, Error)]
pub enum NotMoved {
    /// The wish cannot be fulfilled.
    #[error(transparent)]
    Wish(#[from] MoveError),
    /// Sessions would be lost.
    #[error(
        "{}: other sessions would come to each worker, and those of {} would be lost: allowed are moves from one \
        worker to one, and \
         these with `lose_sessions` (--lose-sessions)", shown(.moves), quoted(.modules)
    )]
    Sessions {
        /// The modules whose sessions would be lost.
        modules: Vec<String>,
        /// How they would move.
        moves: Vec<ModuleMove>,
    },
    /// The configuration was refused.
    #[error(transparent)]
    Reload(#[from] ReloadError),
}

fn shown(moves: &[ModuleMove]) -> String {
    moves.iter().map(shown_move).collect::<Vec<_>>().join(", ")
}

fn quoted(names: &[String]) -> String {
    listed(names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().iter().map(String::as_str))
}

/// A move in words: `'nat' from worker 0 to 1`.
#[must_use]
pub fn shown_move(moved: &ModuleMove) -> String {
    let numbers = |workers: &[usize]| workers.iter().map(usize::to_string).collect::<Vec<_>>().join(" and ");
    let plural = if moved.from.len() == 1 { "" } else { "s" };
    format!("'{}' from worker{plural} {} to {}", moved.module, numbers(&moved.from), numbers(&moved.to))
}

impl<S: Scheduler + 'static> Running<S> {
    /// Moves modules to other workers. `accept` is called once nothing can be wrong any more, with the configuration
    /// that will be in force.
    pub(crate) fn make_moves(
        &self,
        order: MoveOrder<'_>,
        accept: &mut dyn FnMut(&Source) -> std::io::Result<()>,
    ) -> Result<(Moved, Option<Source>), NotMoved> {
        let began = Tsc.now();
        let _one = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let running = self.crew().made.clone();
        let Some(moving) = forebay_pipeline::move_modules(&running, conditions(), order.wanted, order.most)? else {
            let reloaded = Reloaded { cores: self.crew().cores.to_vec(), ..Reloaded::default() };
            return Ok((Moved { reloaded, ..Moved::default() }, None));
        };
        let Moving { prepared, source, moves, remaining, forgetful } = moving;
        if !forgetful.is_empty() && !order.lose_sessions {
            let loses = |moved: &ModuleMove| forgetful.contains(&moved.module);
            return Err(NotMoved::Sessions { moves: moves.into_iter().filter(loses).collect(), modules: forgetful });
        }
        let reloaded = self.follow(began, prepared, None, &mut || accept(&source))?;
        let sets = source.given().iter().map(|set| shown_setting(set)).collect();
        Ok((Moved { moves, remaining, reloaded: Reloaded { sets, ..reloaded } }, Some(source)))
    }
}
