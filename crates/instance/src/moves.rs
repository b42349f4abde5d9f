//! Moves modules of a running pipeline to other workers, with a reload that changes nothing else.

use std::sync::PoisonError;

use forebay_graph::Scheduler;
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{MoveError, Moving, Source, listed, shown_setting};
use forebay_protocol::{ModuleMove, Moved, Reloaded, WantedWorkers};
use thiserror::Error;

use crate::reload::{ReloadError, conditions};
use crate::running::Running;

/// A request to move modules.
#[derive(Clone, Copy, Debug)]
pub struct MoveOrder<'a> {
    /// The modules and their workers, in order of priority.
    pub wanted: &'a [WantedWorkers],
    /// The largest number of modules to move; `None` if there is no limit.
    pub most: Option<usize>,
    /// Whether modules may move even if they lose their sessions.
    pub lose_sessions: bool,
}

/// Why modules did not move. The pipeline runs as before.
#[derive(Debug, Error)]
pub enum NotMoved {
    /// The request cannot be fulfilled.
    #[error(transparent)]
    Wish(#[from] MoveError),
    /// Sessions would be lost.
    #[error(
        "{}: the sessions of {} would be lost, because each worker would get other sessions: allowed are moves from \
         one worker to one worker; to lose the sessions, use `lose_sessions` (--lose-sessions)",
        shown(.moves), quoted(.modules)
    )]
    Sessions {
        /// The modules whose sessions would be lost.
        modules: Vec<String>,
        /// Their moves.
        moves: Vec<ModuleMove>,
    },
    /// The new configuration was refused.
    #[error(transparent)]
    Reload(#[from] ReloadError),
}

/// Lists moves for an error.
fn shown(moves: &[ModuleMove]) -> String {
    moves.iter().map(shown_move).collect::<Vec<_>>().join(", ")
}

fn quoted(names: &[String]) -> String {
    listed(names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().iter().map(String::as_str))
}

/// Formats a move for messages: `'nat' from worker 0 to 1`.
#[must_use]
pub fn shown_move(moved: &ModuleMove) -> String {
    let numbers = |workers: &[usize]| workers.iter().map(usize::to_string).collect::<Vec<_>>().join(" and ");
    let plural = if moved.from.len() == 1 { "" } else { "s" };
    format!("'{}' from worker{plural} {} to {}", moved.module, numbers(&moved.from), numbers(&moved.to))
}

impl<S: Scheduler + 'static> Running<S> {
    /// Moves modules to other workers. Calls `accept` with the new configuration after all checks, immediately before
    /// the configuration takes effect. Returns no configuration if no module had to move. After an error nothing has
    /// changed.
    pub(crate) fn make_moves(
        &self,
        order: MoveOrder<'_>,
        accept: &mut dyn FnMut(&Source) -> std::io::Result<()>,
    ) -> Result<(Moved, Option<Source>), NotMoved> {
        let began = Tsc.now();
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let running = self.worker_set().made.clone();
        let Some(moving) = forebay_pipeline::move_modules(&running, conditions(), order.wanted, order.most)? else {
            let reloaded = Reloaded { cores: self.worker_set().cores.to_vec(), ..Reloaded::default() };
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
