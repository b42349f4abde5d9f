//! The request `move`: modules go to other workers.

use std::io;
use std::sync::PoisonError;

use forebay_graph::secret::without_keys;
use forebay_pipeline::Source;
use forebay_protocol::{Response, WantedWorkers, event::EventName};
use forebay_units::wording::counted;

use super::service::{Service, keep, refusal};
use crate::events::NewEvent;
use crate::moves::{MoveOrder, NotMoved, shown_move};
use crate::reload::ReloadError;

/// Carries out the request `move`, and records an event if modules moved.
pub(super) fn move_modules(
    service: &Service,
    wanted: &[WantedWorkers],
    most: Option<usize>,
    lose_sessions: bool,
) -> Response {
    // The lock makes reloads and moves happen one after the other.
    let mut source = service.source.lock().unwrap_or_else(PoisonError::into_inner);
    let mut accept = |next: &Source| -> io::Result<()> { keep(service, next, None) };
    let moved = match service.instance.move_modules(MoveOrder { wanted, most, lose_sessions }, &mut accept) {
        Ok((moved, next)) => {
            if let Some(next) = next {
                *source = next;
                let mut ledger = service.ledger.lock().unwrap_or_else(PoisonError::into_inner);
                ledger.note_reload(&moved.reloaded.change);
            }
            moved
        }
        Err(NotMoved::Reload(ReloadError::Problems(problems))) => {
            return Response::Error(refusal(&problems, source.given(), &[]));
        }
        Err(error) => return Response::Error(without_keys(&error.to_string())),
    };
    if !moved.moves.is_empty() {
        let shown = moved.moves.iter().map(shown_move).collect::<Vec<_>>().join(", ");
        let missing = match moved.reloaded.missing {
            0 => String::new(),
            missing => format!("; {} unaccounted for: this is a defect of Forebay", counted(missing, "packet")),
        };
        let names = moved.moves.iter().map(|moved| moved.module.as_str()).collect::<Vec<_>>().join(",");
        let event = NewEvent::new(EventName::Moved, format!("moved {shown}{missing}"));
        let event = event.with("modules", names).with("pause_us", moved.reloaded.pause_us.round() as u64);
        service.events.record(event.with("missing", moved.reloaded.missing));
    }
    Response::Moved(moved)
}
