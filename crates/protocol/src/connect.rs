//! Connects with a time limit, and reads the listener's process ID. The standard library does neither.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::locate::check_socket_path;

/// Connects to the socket at `path`. If the listener's queue of connections is full, the call waits up to `patience`;
/// with 0, it does not wait.
///
/// # Errors
/// Errors of the system's `connect`; [`WouldBlock`](io::ErrorKind::WouldBlock) if the queue stayed full.
pub(crate) fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    check_socket_path(path)?;
    let bytes = path.as_os_str().as_bytes();
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    address.sun_path.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from as libc::c_char);
    let length = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    // SAFETY: the call passes no memory.
    let made = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made by the call above, and nothing else owns it.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(made) });
    if patience.is_zero() {
        stream.set_nonblocking(true)?;
    } else {
        stream.set_write_timeout(Some(patience))?;
    }
    loop {
        // SAFETY: `address` lives until the call returns and has at least `length` bytes: the check above guarantees
        // that the path fits.
        let done = unsafe {
            libc::connect(stream.as_raw_fd(), (&raw const address).cast::<libc::sockaddr>(), length as libc::socklen_t)
        };
        if done == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// Returns the process ID of the listener as this process sees it. `None` if the listener has no ID here, because it is
/// in another PID namespace.
pub(crate) fn process(stream: &UnixStream) -> Option<u32> {
    // rustix has this call, but its type has no value for ID 0, which stands for a process of another namespace.
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `credentials` has `length` bytes, the kernel may write any bits to them, and both live until the call
    // returns.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast::<libc::c_void>(),
            &raw mut length,
        )
    };
    if done == 0 { u32::try_from(credentials.pid).ok().filter(|pid| *pid > 0) } else { None }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Returns a listener at `path` whose queue is full, and the connection that fills it.
    pub(crate) fn busy(path: &Path) -> (UnixListener, UnixStream) {
        let listener = UnixListener::bind(path).expect("a socket");
        // SAFETY: the call passes no memory.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let first = connect(path, Duration::ZERO).expect("there is room for one");
        (listener, first)
    }

    /// Regression: a client waited for ever if the process accepted no connection.
    #[test]
    fn a_listener_without_room_is_not_waited_for_for_ever() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let path = folder.path().join("s");
        let (listener, first) = busy(&path);
        for patience in [Duration::ZERO, Duration::from_millis(10)] {
            let error = connect(&path, patience).expect_err("there is no room");
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
        }
        assert_eq!(process(&first), Some(std::process::id()));
        let _ = listener.accept().expect("one waits");
        assert!(connect(&path, Duration::ZERO).is_ok());
        drop(listener);
        assert_eq!(
            connect(&path, Duration::ZERO).expect_err("nothing listens").kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert!(connect(&folder.path().join("x".repeat(200)), Duration::ZERO).is_err());
    }
}
