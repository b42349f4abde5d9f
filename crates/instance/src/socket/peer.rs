//! Connecting without waiting for ever, and asking the kernel who listens. The standard library has neither.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Connects to the socket at `path`. Where its listener has no room for another connection, it waits for a place, up to
/// `patience`.
///
/// # Errors
/// As connecting; [`WouldBlock`](io::ErrorKind::WouldBlock) where there was no place.
pub(super) fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    // Refuses what is no path of a socket, with the words of the standard library.
    SocketAddr::from_pathname(path)?;
    let bytes = path.as_os_str().as_bytes();
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    address.sun_path.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from as libc::c_char);
    let length = offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    // SAFETY: no memory is passed.
    let made = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was made just now, and nothing else has it.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(made) });
    if patience.is_zero() {
        stream.set_nonblocking(true)?;
    } else {
        stream.set_write_timeout(Some(patience))?;
    }
    loop {
        // SAFETY: `address` is there until the call returns, and has at least `length` bytes: the path is shorter than
        // its room.
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

/// The number of the process that listens at the other end, as this process sees it. `None` where it has none here: it
/// is in another PID namespace.
pub(super) fn process(stream: &UnixStream) -> Option<u32> {
    // rustix has this call, but has no value for the number 0, which means none.
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `credentials` has `length` bytes, any of which the kernel may write, and both are there until the call
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
pub(super) mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A listener at `path` with no room for another connection, and the connection that took it.
    pub(in crate::socket) fn busy(path: &Path) -> (UnixListener, UnixStream) {
        let listener = UnixListener::bind(path).expect("a socket");
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let first = connect(path, Duration::ZERO).expect("there is room for one");
        (listener, first)
    }

    /// Connecting to a process that accepted nothing waited for ever.
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
