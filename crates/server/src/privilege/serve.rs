//! Serves the requests of the HTTP process in the root helper.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::message::{LONGEST, Received, receive, send};
use super::operations::{Operations, refuse};
use crate::affinity;

/// The shortest time between two lines in the log about refused requests.
const PAUSE: Duration = Duration::from_secs(1);

/// The refused requests. An attacker who sends many must not fill the log.
#[derive(Debug, Default)]
struct Refusals {
    /// The number of refused requests.
    count: u64,
    /// The time of the last line in the log.
    logged: Option<Instant>,
}

impl Refusals {
    /// Counts a refused request. Returns the line for the log, if the last line is old enough.
    fn add(&mut self, why: &str, now: Instant) -> Option<String> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now.saturating_duration_since(logged) < PAUSE) {
            return None;
        }
        self.logged = Some(now);
        Some(format!("root helper: request refused ({} until now): {why}", self.count))
    }
}

/// Responds to requests until the HTTP process closes its end of the socket, or until the socket is shut down. If
/// `process` is the HTTP process, the threads of this process follow it to its cores.
///
/// # Errors
/// Errors of the socket. One of them is a process that sends requests and does not receive the responses.
pub(super) fn serve(socket: BorrowedFd<'_>, operations: &Operations<'_>, process: Option<Pid>) -> io::Result<()> {
    let (mut refusals, mut cores) = (Refusals::default(), BTreeSet::new());
    let mut buffer = vec![0; LONGEST];
    loop {
        let prepared = match receive(socket, &mut buffer)? {
            Received::Whole(request) => operations.respond(request),
            Received::TooLong(length) => {
                refuse(&format!("a request of {length} bytes: allowed are up to {LONGEST} bytes"))
            }
            Received::End => return Ok(()),
        };
        if let Some(why) = &prepared.refusal
            && let Some(line) = refusals.add(why, Instant::now())
        {
            operations.log(&line);
        }
        // The HTTP process keeps off the cores of workers, and requests the list of sockets every second. If this
        // fails, the helper stays where the system puts it: it works for a moment each second.
        let _ = process.map(|process| affinity::follow(process, &mut cores));
        let connection = prepared.connection.as_ref().map(AsFd::as_fd);
        match send(socket, &prepared.message, connection) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            sent => sent?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_logged_once_a_second() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let lines: Vec<_> = (0..35_u32).map(|step| refusals.add("why", start + step * PAUSE / 10)).collect();
        let logged: Vec<_> = (0..).zip(&lines).filter_map(|(step, line)| line.as_ref().map(|_| step)).collect();
        assert_eq!(logged, [0, 10, 20, 30]);
        assert_eq!(lines[0].as_deref(), Some("root helper: request refused (1 until now): why"));
        assert_eq!(lines[30].as_deref(), Some("root helper: request refused (31 until now): why"));
    }
}
