//! `forebay move`, and the move that applies a placement: moves modules of a running pipeline to other workers.

use std::io::{self, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::bail;
use forebay_instance::shown_move;
use forebay_protocol::{Client, Moved, Request, Response, WantedWorkers};
use forebay_units::wording::counted;

use super::{LONG, connect, strange};
use crate::{Answer, args, printed};

/// Limits of a move.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leave {
    /// Maximum number of modules that move; `None` if there is no limit.
    pub(crate) most: Option<usize>,
    /// True if modules may move even if they lose their sessions.
    pub(crate) lose_sessions: bool,
}

/// Runs `forebay move`. Returns `No` if `--moves` left some modules where they were.
pub(crate) fn move_modules(arguments: &args::Move) -> anyhow::Result<Answer> {
    let mut client = connect(&arguments.running)?.with_patience(LONG)?;
    let most = arguments.moves.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    let leave = Leave { most, lose_sessions: arguments.lose_sessions };
    let moved = apply(&mut client, arguments.modules.clone(), leave)?;
    if arguments.json {
        writeln!(printed::out(), "{}", serde_json::to_string(&Response::Moved(moved.clone()))?)?;
    } else {
        write(&moved, &mut printed::out())?;
    }
    conclude(&moved)
}

/// Returns the answer of a command that has moved modules.
///
/// # Errors
/// Packets are unaccounted for.
pub(crate) fn conclude(moved: &Moved) -> anyhow::Result<Answer> {
    match moved.reloaded.missing {
        0 if moved.remaining.is_empty() => Ok(Answer::Yes),
        0 => Ok(Answer::No),
        missing => bail!("{} unaccounted for: this is a defect of Forebay", counted(missing, "packet")),
    }
}

/// Moves modules of a running pipeline.
///
/// # Errors
/// The pipeline refused the move, or did not respond.
pub(crate) fn apply(client: &mut Client, modules: Vec<WantedWorkers>, leave: Leave) -> anyhow::Result<Moved> {
    let Leave { most, lose_sessions } = leave;
    let _notice = Notice::after(PATIENT);
    match client.request(&Request::Move { modules, most, lose_sessions })? {
        Response::Moved(moved) => Ok(moved),
        _ => Err(strange()),
    }
}

/// The time after which a missing response is reported.
pub(crate) const PATIENT: Duration = Duration::from_secs(2);

/// Prints that the pipeline has not responded yet. Drop this value when the response has come; then it prints nothing.
pub(crate) struct Notice(#[expect(dead_code, reason = "its end is seen by the thread")] Sender<()>);

impl Notice {
    /// Starts the timer: the text is printed after `time`.
    pub(crate) fn after(time: Duration) -> Self {
        let (answered, wait) = channel::<()>();
        std::thread::spawn(move || {
            if wait.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                let what = "the pipeline has not responded yet: it is paused or busy. Ctrl-C ends this command, \
                            but a move that it has requested still happens";
                let _ = writeln!(printed::err(), "{what}");
            }
        });
        Self(answered)
    }
}

/// Prints the moves that were made, and the moves that were not.
pub(crate) fn write(moved: &Moved, out: &mut impl Write) -> io::Result<()> {
    if moved.moves.is_empty() {
        return writeln!(out, "all modules are already on their workers: nothing has moved");
    }
    for module in &moved.moves {
        writeln!(out, "{}", shown_move(module))?;
    }
    for module in &moved.remaining {
        writeln!(out, "not moved: {}", shown_move(module))?;
    }
    super::reload::print_reload(&moved.reloaded, out)
}
