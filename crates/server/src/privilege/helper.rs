//! The root helper as the HTTP process sees it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use forebay_protocol::locate::Located;
use rustix::net::SocketType;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_type};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::message::{
    Connected, HelperIdentity, HelperRequest, HelperResponse, LONGEST, SocketPage, is_closed, receive_with_descriptor,
    send, wait_for_close,
};

/// The time for which the HTTP process waits for a response. It is longer than any operation takes.
const LIMIT: Duration = Duration::from_secs(5);
/// The largest number of sockets that are requested.
const MOST_SOCKETS: usize = 4_096;

/// The reason why the root helper has no result.
#[derive(Debug, Error)]
pub enum HelperError {
    /// The standard input of this process is no socket of a root helper.
    #[error("standard input is not the socket of a root helper: start `forebay serve` as root; it starts this process")]
    NoHelper,
    /// The helper has ended.
    #[error("the root helper has ended: start `forebay serve` again")]
    Ended,
    /// The helper did not respond in time.
    #[error("the root helper has not responded in {} s", .0.as_secs_f64())]
    Late(Duration),
    /// The helper refused the request, or the operation failed: its reason.
    #[error("root helper: {0}")]
    Refused(String),
    /// The request or the response does not belong to this version of the program.
    #[error("the message of the root helper is invalid: {0}: both processes must run the same program")]
    Invalid(String),
    /// An error of the system.
    #[error("the root helper cannot be reached: {0}")]
    System(#[source] io::Error),
}

impl HelperError {
    /// Returns the kind of the error. A helper that is late can be asked again.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Late(_) => io::ErrorKind::WouldBlock,
            Self::System(error) => error.kind(),
            _ => io::ErrorKind::Other,
        }
    }
}

/// The connection of the HTTP process to its root helper. Threads may share it: their requests wait for each other.
#[derive(Debug)]
pub struct Helper {
    /// The socket.
    socket: OwnedFd,
    /// The longest time for which a call waits for a response.
    limit: Duration,
    /// The number of responses that the helper owes. Above 0 between requests if a response was late: it is discarded
    /// when it comes.
    owed: Mutex<u32>,
}

impl Helper {
    /// Takes the socket that [`supervise`](super::supervise) gave to this process as its standard input.
    ///
    /// # Errors
    /// Returns [`HelperError::NoHelper`] if standard input is another file.
    pub fn from_stdin() -> Result<Self, HelperError> {
        let socket = io::stdin().as_fd().try_clone_to_owned().map_err(|_| HelperError::NoHelper)?;
        Self::over(socket, LIMIT)
    }

    /// Uses this socket, and waits for responses up to `limit`.
    fn over(socket: OwnedFd, limit: Duration) -> Result<Self, HelperError> {
        if socket_type(&socket).ok() != Some(SocketType::SEQPACKET) {
            return Err(HelperError::NoHelper);
        }
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(limit)).map_err(|error| HelperError::System(error.into()))?;
        }
        Ok(Self { socket, limit, owed: Mutex::new(0) })
    }

    /// Requests a description of the helper.
    ///
    /// # Errors
    /// [`HelperError`].
    pub fn identity(&self) -> Result<HelperIdentity, HelperError> {
        Ok(self.request(&HelperRequest::Identity {})?.0)
    }

    /// Lists the sockets of the instances of all users, with and without a listener, by path; at most a few thousand.
    ///
    /// # Errors
    /// [`HelperError`].
    pub fn sockets(&self) -> Result<Vec<Located>, HelperError> {
        let mut all: Vec<Located> = Vec::new();
        loop {
            let after = all.last().map(|last| last.path.clone());
            let (page, _) = self.request::<SocketPage>(&HelperRequest::Sockets { after })?;
            let is_last = !page.more || page.sockets.is_empty();
            all.extend(page.sockets.into_iter().map(|it| Located { name: it.name, pid: it.pid, path: it.path }));
            if is_last || all.len() >= MOST_SOCKETS {
                return Ok(all);
            }
        }
    }

    /// Connects to the socket of an instance. `path` must be one that [`sockets`](Self::sockets) lists.
    ///
    /// # Errors
    /// [`HelperError`]; it is [`Refused`](HelperError::Refused) for another path, or if the instance accepts no
    /// connection.
    pub fn connect(&self, path: &Path) -> Result<UnixStream, HelperError> {
        let (Connected {}, passed) = self.request(&HelperRequest::Connect { path: path.to_owned() })?;
        passed.map(UnixStream::from).ok_or_else(|| HelperError::Invalid("it has no descriptor".to_owned()))
    }

    /// Returns whether the helper has ended. This process must then end, too. True also if the system does not report
    /// this.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        is_closed(&self.socket).unwrap_or(true)
    }

    /// Waits until the helper has ended. Call it on a thread of its own: other calls do not wait for it.
    pub fn wait_for_end(&self) {
        // Without a limit, the call returns only at the end. If it fails, the end would not be noticed.
        let _ = wait_for_close(self.socket.as_fd(), None);
    }

    /// Sends a request, and receives the response and the descriptor beside it.
    fn request<T: DeserializeOwned>(&self, request: &HelperRequest) -> Result<(T, Option<OwnedFd>), HelperError> {
        let text = serde_json::to_vec(request).map_err(|error| HelperError::Invalid(error.to_string()))?;
        let mut buffer = vec![0; LONGEST];
        let mut owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner);
        send(self.socket.as_fd(), &text, None).map_err(|error| self.failed(error))?;
        *owed += 1;
        // The helper sends one response per request, in order: the last one is the response to this request.
        let (length, passed) = loop {
            let received =
                receive_with_descriptor(self.socket.as_fd(), &mut buffer).map_err(|error| self.failed(error))?;
            if received.0 == 0 {
                return Err(HelperError::Ended);
            }
            *owed -= 1;
            if *owed == 0 {
                break received;
            }
        };
        drop(owed);
        match serde_json::from_slice(&buffer[..length]) {
            Ok(HelperResponse::Ok(result)) => Ok((result, passed)),
            Ok(HelperResponse::Error(why)) => Err(HelperError::Refused(why)),
            Err(error) => Err(HelperError::Invalid(error.to_string())),
        }
    }

    /// Returns the meaning of an error of the socket.
    fn failed(&self, error: io::Error) -> HelperError {
        match error.kind() {
            io::ErrorKind::WouldBlock => HelperError::Late(self.limit),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => HelperError::Ended,
            _ => HelperError::System(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use rustix::net::{AddressFamily, SocketFlags, socketpair};

    use super::super::message::{Received, receive};
    use super::super::operations::{OPERATIONS, Operations};
    use super::super::serve::serve;
    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair of sockets")
    }

    /// Calls `with` with a client of a helper that runs on another thread, and returns the lines of its log.
    fn with_helper(folder: &Path, with: impl FnOnce(&Helper)) -> Vec<String> {
        let (ours, theirs) = pair();
        let folders = [folder.to_owned()];
        thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let lines = std::cell::RefCell::new(Vec::new());
                let log = |line: &str| lines.borrow_mut().push(line.to_owned());
                serve(ours.as_fd(), &Operations::new(&folders, &log), None).expect("a client that receives");
                lines.take()
            });
            // If `with` panics, the client is dropped, and the thread ends.
            let helper = Helper::over(theirs, LIMIT).expect("a socket");
            with(&helper);
            drop(helper);
            serving.join().expect("it serves")
        })
    }

    #[test]
    fn threads_share_a_helper() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let root = folder.path().canonicalize().expect("a folder");
        let path = root.join("gw-7.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let lines = with_helper(&root, |helper| {
            let identity = helper.identity().expect("a helper");
            assert_eq!(
                (identity.pid, identity.operations.as_slice()),
                (std::process::id(), &OPERATIONS.map(str::to_owned)[..])
            );
            let found = Located { name: "gw".to_owned(), pid: Some(7), path: path.clone() };
            assert!(helper.sockets().expect("a list").contains(&found));
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let mut stream = helper.connect(&path).expect("a listed socket");
                        stream.write_all(b"x").expect("there is room");
                        let refused = helper.connect(&root.join("other")).expect_err("not listed");
                        assert!(matches!(refused, HelperError::Refused(_)), "{refused}");
                        assert_eq!(helper.identity().expect("a helper").pid, std::process::id());
                    });
                }
            });
            for _ in 0..4 {
                let mut text = String::new();
                listener.accept().expect("a connection").0.read_to_string(&mut text).expect("it was closed");
                assert_eq!(text, "x");
            }
            assert!(!helper.has_ended());
        });
        assert!(lines[0].starts_with("root helper: request refused (1 until now): "), "{lines:?}");
    }

    #[test]
    fn a_late_response_is_not_taken_for_the_next_one() {
        let (ours, theirs) = pair();
        let helper = Helper::over(theirs, Duration::from_millis(1)).expect("a socket");
        let respond = |pid: u32| {
            let identity = HelperIdentity { uid: 0, pid, operations: vec![] };
            let text = serde_json::to_vec(&HelperResponse::Ok(identity)).expect("JSON");
            send(ours.as_fd(), &text, None).expect("there is room");
        };
        for _ in 0..2 {
            assert!(matches!(helper.identity(), Err(HelperError::Late(_))));
        }
        for pid in [1, 2, 3] {
            respond(pid);
        }
        assert_eq!(helper.identity().expect("a response").pid, 3);
        respond(4);
        assert_eq!(helper.identity().expect("a response").pid, 4);
        let mut buffer = vec![0; LONGEST];
        for _ in 0..4 {
            assert_ne!(receive(ours.as_fd(), &mut buffer).expect("a request"), Received::End);
        }
        drop(ours);
        helper.wait_for_end();
        assert!(helper.has_ended());
        assert!(matches!(helper.identity(), Err(HelperError::Ended)));
        assert!(matches!(helper.sockets(), Err(HelperError::Ended)));
    }

    #[test]
    fn invalid_responses_are_errors() {
        let (ours, theirs) = pair();
        let helper = Helper::over(theirs, LIMIT).expect("a socket");
        for wrong in ["{}", "x", r#"{"ok":7}"#, r#"{"error":7}"#, r#"{"maybe":{}}"#, r#"{"ok":{"uid":-1}}"#] {
            send(ours.as_fd(), wrong.as_bytes(), None).expect("there is room");
            assert!(matches!(helper.identity(), Err(HelperError::Invalid(_))), "{wrong}");
        }
        send(ours.as_fd(), br#"{"ok":{}}"#, None).expect("there is room");
        let error = helper.connect(Path::new("/a")).expect_err("no descriptor").to_string();
        let expected = "the message of the root helper is invalid: it has no descriptor: both processes must run the \
                        same program";
        assert_eq!(error, expected);
    }

    #[test]
    fn other_files_are_no_helper() {
        let (stream, _other) = UnixStream::pair().expect("a pair of sockets");
        let file = std::fs::File::open("/dev/null").expect("every system has it");
        for wrong in [OwnedFd::from(stream), OwnedFd::from(file)] {
            assert!(matches!(Helper::over(wrong, LIMIT), Err(HelperError::NoHelper)));
        }
    }
}
