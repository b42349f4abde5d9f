//! An open socket at which the server listens.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use forebay_protocol::locate;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::access::Peer;
use crate::passed::PassedListener;
use crate::settings::Listen;

/// The mode of a Unix socket: the group of the server may connect, too.
const MODE: u32 = 0o660;

/// The reason why the server cannot listen.
#[derive(Debug, Error)]
pub enum BindError {
    /// The system refuses the address.
    #[error("{listen}: {}", why(.error))]
    Address {
        /// The address.
        listen: Listen,
        /// The error of the system.
        error: io::Error,
    },
    /// A file that is not a socket is there.
    #[error("{0}: a file that is not a socket is there: remove it, or choose another address with --listen")]
    File(Listen),
    /// Another process listens there.
    #[error("{0}: another process listens there: end it, or choose another address with --listen")]
    InUse(Listen),
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has this address".to_owned(),
        io::ErrorKind::NotFound => "the folder does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "this user may not listen there: choose a port from 1024 on, or a socket in a folder of this user"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// Returns the reason why the system refuses an address.
fn failed(listen: &Listen, error: io::Error) -> BindError {
    match error.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(listen.clone()),
        _ => BindError::Address { listen: listen.clone(), error },
    }
}

/// Checks that a process could listen at an address now. The process that listens later may still be refused, for
/// example because it belongs to another user.
///
/// # Errors
/// [`BindError`].
pub fn check_address(listen: &Listen) -> Result<(), BindError> {
    let error = match listen {
        Listen::Tcp(address) => std::net::TcpListener::bind(address).err(),
        Listen::Unix(path) => match path.symlink_metadata() {
            Ok(metadata) if !metadata.file_type().is_socket() => return Err(BindError::File(listen.clone())),
            Ok(_) => match locate::is_listened_at(path) {
                Ok(is_listened_at) => is_listened_at.then(|| io::ErrorKind::AddrInUse.into()),
                Err(error) => Some(error),
            },
            Err(_) => path.parent().and_then(|folder| folder.metadata().err()),
        },
    };
    error.map_or(Ok(()), |error| Err(failed(listen, error)))
}

/// An open socket at which the server listens. A Unix socket that the server made is removed when the value is dropped.
#[derive(Debug)]
pub struct Bound {
    listen: Listen,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    /// The path is that of a socket that the server has made.
    Unix(UnixListener, Option<PathBuf>),
}

impl Bound {
    /// Listens at an address. A Unix socket that a killed process left behind is replaced.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn at(listen: &Listen) -> Result<Self, BindError> {
        let failed = |error| failed(listen, error);
        let listener = match listen {
            Listen::Tcp(address) => Listener::Tcp(TcpListener::bind(address).await.map_err(failed)?),
            Listen::Unix(path) => {
                if let Ok(metadata) = path.symlink_metadata() {
                    if !metadata.file_type().is_socket() {
                        return Err(BindError::File(listen.clone()));
                    }
                    if !locate::is_listened_at(path).map_err(failed)? {
                        std::fs::remove_file(path).map_err(failed)?;
                    }
                }
                let listener = UnixListener::bind(path).map_err(failed)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE)).map_err(failed)?;
                Listener::Unix(listener, Some(path.clone()))
            }
        };
        Ok(Self { listen: listen.clone(), listener })
    }

    /// Listens at a socket that the service manager has opened.
    ///
    /// # Errors
    /// [`BindError`].
    pub(crate) fn passed(listen: Listen, passed: PassedListener) -> Result<Self, BindError> {
        let listener = match passed {
            PassedListener::Tcp(listener) => {
                listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)).map(Listener::Tcp)
            }
            PassedListener::Unix(listener) => listener
                .set_nonblocking(true)
                .and_then(|()| UnixListener::from_std(listener))
                .map(|listener| Listener::Unix(listener, None)),
        };
        match listener {
            Ok(listener) => Ok(Self { listen, listener }),
            Err(error) => Err(failed(&listen, error)),
        }
    }

    /// Returns the address. A port 0 is replaced by the port that the system chose.
    #[must_use]
    pub fn address(&self) -> Listen {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().map_or_else(|_| self.listen.clone(), Listen::Tcp),
            Listener::Unix(..) => self.listen.clone(),
        }
    }

    /// Waits for a connection.
    pub(super) async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match &self.listener {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Events are small and must not wait.
                stream.set_nodelay(true)?;
                Ok((Stream::Tcp(stream), Peer::Remote { address, is_public: self.listen.is_public() }))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let other = stream.peer_cred()?;
                Ok((Stream::Unix(stream), Peer::Local { uid: other.uid(), pid: other.pid() }))
            }
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Listener::Unix(_, Some(path)) = &self.listener {
            // Another process may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

/// A connection of either type.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
