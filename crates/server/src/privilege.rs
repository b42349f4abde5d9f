//! Splits the server into two processes: the HTTP process without rights, and the root helper.
//!
//! An attacker who takes over a process that reads requests from the network gets its rights. So if `forebay serve` is
//! started as root, the started process becomes the root helper ([`supervise`]). It starts the HTTP process: the same
//! program as another user, without capabilities, with a socket to the helper as standard input. The HTTP process first
//! calls [`enter`], which checks that it has no rights. It then requests operations of a closed list ([`OPERATIONS`])
//! from the [`Helper`], for example a connection to the instance of another user. If `forebay serve` is started as
//! another user, there is no helper, and the process serves HTTP itself.
//!
//! If one of the two processes ends, the other one ends, too. The helper waits for the HTTP process. The HTTP process
//! gets SIGTERM when the helper is killed, and its socket reports the end ([`Helper::wait_for_end`]).

mod helper;
mod message;
mod operations;
mod rights;
mod serve;
mod supervise;

use std::io;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use thiserror::Error;

pub use helper::{Helper, HelperError};
pub use message::HelperIdentity;
pub use operations::{OPERATIONS, Operations};
pub use supervise::supervise;

use rights::Rights;

/// The file with the rights of the calling thread (proc(5)).
const STATUS: &str = "/proc/thread-self/status";

/// The reason why the server cannot be split into two processes.
#[derive(Debug, Error)]
pub enum PrivilegeError {
    /// The user for the HTTP process is root.
    #[error("user '{0}' is root (user number 0): name a user without rights for the HTTP process")]
    RootUser(String),
    /// The HTTP process cannot be started.
    #[error(
        "the HTTP process cannot be started as user '{user}': {source}: the user must be allowed to run this program"
    )]
    Start {
        /// The user.
        user: String,
        /// The system's error.
        source: io::Error,
    },
    /// The calling process is the HTTP process, and it has a right that it must not have.
    #[error("this process would serve HTTP with {right}: {advice}")]
    Right {
        /// The right, for example `user number 0 (Uid: 0 0 0 0)`.
        right: String,
        /// The action that removes the right.
        advice: &'static str,
    },
    /// The rights of the calling process are unknown.
    #[error("the rights of this process are unknown: {STATUS} {0}: mount the file system /proc")]
    Unknown(String),
    /// An error of the system.
    #[error("cannot {action}: {source}")]
    System {
        /// The failed action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl PrivilegeError {
    /// Creates the error for an action of the system.
    fn system(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System { action, source: source.into() }
    }
}

/// The process that started an HTTP process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// The root helper. The HTTP process gets SIGTERM when the helper ends.
    RootHelper,
    /// Any other process, for example a shell or a service manager.
    Other,
}

/// Removes the rights of the calling thread and of the threads that it starts, for ever, and checks that none remain.
///
/// Call it first in the HTTP process, before it starts other threads and reads any input. It sets `no_new_privs`, so
/// that no program can return rights. It empties the sets of capabilities: those that the file of this program has, for
/// `forebay run`, would otherwise give rights to the server, too.
///
/// # Errors
/// Returns [`PrivilegeError`] if the process belongs to root or has another right. The process must then end.
pub fn enter(starter: Starter) -> Result<(), PrivilegeError> {
    set_no_new_privs(true).map_err(|error| PrivilegeError::system("set no_new_privs", error))?;
    let none = CapabilitySet::empty();
    // Without inheritable capabilities, the system empties the ambient set, too (capabilities(7)).
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(|error| PrivilegeError::system("remove the capabilities of this process", error))?;
    // After the capabilities, because a change of rights can reset the signal (prctl(2)). If the helper has ended
    // already, no signal comes, but its socket reports the end.
    if starter == Starter::RootHelper {
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|error| PrivilegeError::system("request a signal for the end of the root helper", error))?;
    }
    let text = std::fs::read_to_string(STATUS).map_err(|error| PrivilegeError::Unknown(format!("({error})")))?;
    Rights::parse(&text)?.check()
}

/// Lets the calling process end together with its parent. The process gets SIGTERM when the thread that started it
/// ends.
///
/// # Errors
/// Returns [`PrivilegeError`] if the system refuses this, or if the parent is not the process `parent` any more.
pub fn end_with_parent(parent: u32) -> Result<(), PrivilegeError> {
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| PrivilegeError::system("request a signal for the end of the parent", error))?;
    // If the parent ended before, no signal comes.
    let now = rustix::process::getppid().map(|pid| pid.as_raw_pid().unsigned_abs());
    if now == Some(parent) {
        return Ok(());
    }
    let ended = io::Error::new(io::ErrorKind::NotFound, format!("process {parent} has ended"));
    Err(PrivilegeError::system("follow the parent", ended))
}

/// Fuzzing: a request of the HTTP process is one of the list, or refused. An accepted request has the same form again.
pub(crate) fn fuzz_request(bytes: &[u8]) {
    if let Ok(request) = message::HelperRequest::parse(bytes) {
        let again = serde_json::to_vec(&request).expect("a request is plain data");
        assert_eq!(message::HelperRequest::parse(&again), Ok(request));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a thread of its own, because the rights do not return.
    #[test]
    fn a_thread_without_rights_is_not_enough_for_root() {
        let entered = std::thread::spawn(|| enter(Starter::Other)).join().expect("it returns");
        match rustix::process::getuid().is_root() {
            true => {
                let error = entered.expect_err("it is root").to_string();
                assert!(error.starts_with("this process would serve HTTP with user number 0 (Uid: 0 "), "{error}");
            }
            false => assert!(entered.is_ok(), "{entered:?}"),
        }
    }
}
