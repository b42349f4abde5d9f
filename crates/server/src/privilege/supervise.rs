//! Starts the HTTP process, and serves it as the root helper until it ends.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use forebay_host::User;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::PrivilegeError;
use super::operations::Operations;
use super::serve::serve;
use crate::passed::Passed;

/// The signals that are forwarded to the HTTP process.
const FORWARDED: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGUSR1];
/// The time for which the helper waits for an HTTP process that does not receive responses.
const SEND_LIMIT: Duration = Duration::from_secs(5);

/// Starts `command` as the HTTP process of `user`, with a socket to this process as its standard input. Does the
/// `operations` that it requests, and forwards SIGTERM, SIGINT, SIGHUP and SIGUSR1 to it. The process inherits the
/// sockets in `passed`, and this process closes them. Returns its exit status when it has ended.
///
/// The thread that calls this function must not end before, because the system ends the HTTP process with it. Later,
/// the process ignores the signals above.
///
/// # Errors
/// Returns [`PrivilegeError`] if `user` is root, or if the HTTP process cannot be started or waited for.
pub fn supervise(
    mut command: Command,
    user: &User,
    operations: Operations<'_>,
    passed: Passed,
) -> Result<ExitStatus, PrivilegeError> {
    if user.uid == 0 {
        return Err(PrivilegeError::RootUser(user.name.clone()));
    }
    let pair = || {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&pair.0, Timeout::Send, Some(SEND_LIMIT))?;
        Ok::<_, io::Error>(pair)
    };
    let (ours, theirs) = pair().map_err(|error| PrivilegeError::system("make a pair of sockets", error))?;
    // The signals are received before the process exists, so that none is lost.
    let mut signals = Signals::new(FORWARDED.iter().chain(&[SIGCHLD]))
        .map_err(|error| PrivilegeError::system("receive signals", error))?;
    // The standard library calls setgid, setgroups with an empty list, and setuid, in this order (`do_exec` in
    // library/std/src/sys/process/unix/unix.rs). It calls setgroups because a user is set and no groups are, and
    // ignores only the error EPERM. Before, setgid has failed with the same error unless the group does not change.
    //
    // In a process group of its own, the process does not receive a terminal's SIGINT twice: from the terminal, and
    // from this process.
    command.stdin(Stdio::from(theirs)).uid(user.uid).gid(user.gid).process_group(0);
    passed.give_to(&mut command).map_err(|error| PrivilegeError::system("pass on sockets", error))?;
    let started = command.spawn();
    drop(passed);
    // This closes the other end of the pair here, so that this process notices when the HTTP process closes it.
    drop(command);
    let mut child = started.map_err(|source| PrivilegeError::Start { user: user.name.clone(), source })?;
    let process = Pid::from_child(&child);
    let ended = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let ended = wait(&mut child, &mut signals, &ours);
            // Another process may have inherited the socket. This ends `serve` also then.
            close(&ours);
            ended
        });
        if let Err(error) = serve(ours.as_fd(), &operations, Some(process)) {
            operations.log(&format!("root helper: serves no further requests: {error}"));
        }
        // The HTTP process ends when it notices this.
        close(&ours);
        waiting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    ended.map_err(|error| PrivilegeError::system("wait for the HTTP process", error))
}

/// Waits until the HTTP process has ended. Forwards signals to it.
fn wait(child: &mut Child, signals: &mut Signals, socket: &OwnedFd) -> io::Result<ExitStatus> {
    for signal in signals.forever() {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // Only this thread takes the exit status. Before, the system gives the process ID to no other process.
        if FORWARDED.contains(&signal)
            && let Some(named) = Signal::from_named_raw(signal)
            && kill_process(Pid::from_child(child), named).is_err()
            && [SIGTERM, SIGINT].contains(&signal)
        {
            // Some containers do not allow root to send signals to other users (CAP_KILL).
            close(socket);
        }
    }
    child.wait()
}

/// Closes both directions of the socket. The HTTP process takes this as the end of the helper.
fn close(socket: &OwnedFd) {
    // The only error is that the other end is closed already.
    let _ = shutdown(socket, Shutdown::Both);
}
