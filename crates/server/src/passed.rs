//! Sockets that the service manager has opened for this process (socket activation, sd_listen_fds(3)).

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use listenfd::ListenFd;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::socket_acceptconn;
use thiserror::Error;

use crate::settings::Listen;

/// The largest number of sockets.
const MOST: u64 = 1_024;
/// The permission of all users of the host to connect.
const OTHERS: u32 = 0o002;

/// The reason why the sockets of the service manager cannot be used.
#[derive(Debug, Error)]
pub enum PassedError {
    /// A socket has another type.
    #[error(
        "socket {0} of the service manager: allowed are TCP sockets and Unix sockets (stream) that listen and have a \
         path: use `ListenStream=`, and no `Accept=yes`"
    )]
    Other(usize),
    /// Every user of the host may connect to a socket. Its clients need no token to read.
    #[error(
        "unix:{}: every user of this host can connect (mode {mode:04o}): set `SocketMode=0660` in the socket unit",
        .path.display()
    )]
    Open {
        /// The path of the socket.
        path: PathBuf,
        /// The mode of the file.
        mode: u32,
    },
    /// There are too many sockets.
    #[error("LISTEN_FDS={0}: allowed are up to {MOST} sockets")]
    Many(u64),
    /// The file of a Unix socket cannot be checked.
    #[error("unix:{}: who may connect is not known: {error}", .path.display())]
    Unknown {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The system refuses something.
    #[error("sockets of the service manager: {0}")]
    System(#[from] io::Error),
}

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum PassedListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for PassedListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// The sockets that the service manager has opened, with their addresses.
#[derive(Debug, Default)]
pub struct Passed(Vec<(Listen, PassedListener)>);

impl Passed {
    /// Takes over the sockets in `$LISTEN_FDS`, if `$LISTEN_PID` names this process or is not set, and removes both
    /// variables. Must be called once, before other threads start. `is_checked`: the root helper has checked the
    /// modes of Unix sockets, whose files this process may not see.
    ///
    /// # Errors
    /// [`PassedError`].
    pub fn take(is_checked: bool) -> Result<Self, PassedError> {
        check_count()?;
        let mut sockets = ListenFd::from_env();
        let mut all = Vec::new();
        for at in 0..sockets.len() {
            let other = || PassedError::Other(at + 1);
            let (listen, listener) = match sockets.take_tcp_listener(at) {
                Ok(Some(listener)) => (Listen::Tcp(listener.local_addr()?), PassedListener::Tcp(listener)),
                _ => {
                    let listener = sockets.take_unix_listener(at).ok().flatten().ok_or_else(other)?;
                    // A socket without a path has no owner and no mode.
                    let path = listener.local_addr()?.as_pathname().ok_or_else(other)?.to_owned();
                    if !is_checked {
                        check_mode(&path)?;
                    }
                    (Listen::Unix(path), PassedListener::Unix(listener))
                }
            };
            if !socket_acceptconn(&listener).map_err(io::Error::from)? {
                return Err(other());
            }
            all.push((listen, listener));
        }
        Ok(Self(all))
    }

    /// Returns the addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<Listen> {
        self.0.iter().map(|(listen, _)| listen.clone()).collect()
    }

    /// Lets a child inherit the sockets, and take them as this process has.
    ///
    /// # Errors
    /// The error of the system.
    pub fn give_to(&self, child: &mut Command) -> io::Result<()> {
        for (_, listener) in &self.0 {
            fcntl_setfd(listener, FdFlags::empty())?;
        }
        if !self.0.is_empty() {
            // The number of the child is not known yet, so it gets no `$LISTEN_PID`.
            child.env("LISTEN_FDS", self.0.len().to_string());
        }
        Ok(())
    }

    /// Returns whether there are no sockets.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the sockets.
    pub(crate) fn into_sockets(self) -> Vec<(Listen, PassedListener)> {
        self.0
    }
}

/// Checks the number of sockets: room for them is reserved before they are looked at.
fn check_count() -> Result<(), PassedError> {
    let count = std::env::var("LISTEN_FDS").ok().and_then(|count| count.parse::<u64>().ok());
    count.filter(|count| *count > MOST).map_or(Ok(()), |count| Err(PassedError::Many(count)))
}

/// Checks that not every user of the host may connect to a socket.
fn check_mode(path: &Path) -> Result<(), PassedError> {
    let path = || path.to_owned();
    let metadata = path().symlink_metadata().map_err(|error| PassedError::Unknown { path: path(), error })?;
    match metadata.permissions().mode() & 0o7777 {
        mode if mode & OTHERS != 0 => Err(PassedError::Open { path: path(), mode }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_all_may_use_or_that_is_gone_is_refused() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let path = folder.path().join("sock");
        let _listener = UnixListener::bind(&path).expect("a free name");
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("an own file");
        set(0o660);
        check_mode(&path).expect("others cannot connect");
        set(0o666);
        assert!(check_mode(&path).expect_err("others can connect").to_string().contains("mode 0666"));
        std::fs::remove_file(&path).expect("an own file");
        assert!(check_mode(&path).expect_err("it is gone").to_string().contains("who may connect is not known"));
    }
}
