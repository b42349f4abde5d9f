//! A client of a running pipeline.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::request::Request;
use crate::response::{Hello, Response};
use crate::{VERSION, connect};

/// The time limit of a whole response, and of writing a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time limit of connecting while the listener's queue is full.
const CONNECT: Duration = Duration::from_secs(2);
/// The longest response, in bytes. Without a limit, a response that does not end would fill the memory.
const MAX_RESPONSE: u64 = 256 << 20;

/// The reason why there is no response.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No process listens at the path.
    #[error("{}: {}", .path.display(), why(.path, .error))]
    Connect {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the running pipeline broke: {0}")]
    Broken(io::Error),
    /// The response takes too long. The connection cannot be used after this error: a late response would be taken for
    /// the response to the next request.
    #[error(
        "the running pipeline does not respond: its process is suspended, or the machine is overloaded; resume the \
         process, or try again later"
    )]
    Silent,
    /// As [`Silent`](Self::Silent), after a request for a change, so that the run may have made the change.
    #[error(
        "the running pipeline does not respond, and it is unknown whether it made the change: its process is \
         suspended, or the machine is overloaded; resume the process, and check for the change before you try again"
    )]
    SilentAfterChange,
    /// The line is not a response.
    #[error(
        "the running pipeline sent a response that this version does not understand: {0}; use the `forebay` that the \
         pipeline was started with"
    )]
    Malformed(#[from] serde_json::Error),
    /// The instance speaks another version of the protocol.
    #[error(
        "the running pipeline speaks protocol version{theirs}{}, and this program speaks version {VERSION}: use the \
         `forebay` that the pipeline was started with",
        if theirs.is_empty() { " 1" } else { "" }
    )]
    Version {
        /// The instance's version of the protocol and of the program; empty for protocol version 1, which does not
        /// report it.
        theirs: String,
    },
    /// The run has ended before it responded.
    #[error(
        "{}: the pipeline has ended{}", .path.display(),
        if *is_change { " before it responded: it is unknown whether it made the change" } else { "" }
    )]
    Ended {
        /// The path of its socket.
        path: PathBuf,
        /// True if the request was for a change, so that the run may have made the change.
        is_change: bool,
    },
    /// The request was refused: the reason.
    #[error("{0}")]
    Refused(String),
}

/// Explains why no process listens at a path.
fn why(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no socket is there: check that the pipeline runs with this --socket".to_owned(),
        io::ErrorKind::ConnectionRefused if path.metadata().is_ok_and(|metadata| !metadata.file_type().is_socket()) => {
            "that is not a socket: `forebay list running` shows the sockets".to_owned()
        }
        io::ErrorKind::ConnectionRefused => {
            "no process listens there, because the pipeline was killed: start it again".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "the socket belongs to another user: run this command as that user, or as root".to_owned()
        }
        io::ErrorKind::WouldBlock => {
            "the pipeline accepts no connection, and its queue is full: the process is suspended or has too many \
             clients; resume the process, or try again later"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

impl ClientError {
    /// Returns the error that the run at `path` has ended.
    fn ended(path: &Path) -> Self {
        Self::Ended { path: path.to_owned(), is_change: false }
    }

    /// Turns an error of the connection to `path` into the reason for the user: if the other side has closed the
    /// connection, the run has ended; after a time-out, the pipeline does not respond.
    fn of_connection(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                Self::ended(path)
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Broken(error),
        }
    }

    /// Returns the error of a request that was sent.
    fn after(self, request: &Request) -> Self {
        match self {
            Self::Ended { path, .. } => Self::Ended { path, is_change: request.is_change() },
            Self::Silent if request.is_change() => Self::SilentAfterChange,
            other => other,
        }
    }
}

/// A connection to a running pipeline.
pub struct Client {
    reader: BufReader<UnixStream>,
    writer: BufWriter<UnixStream>,
    /// The path of the socket, for errors.
    path: PathBuf,
    /// The time limit of a whole response.
    patience: Duration,
    /// True after a request for a stream of responses. The server sends these responses when there is something to
    /// report, so the time limit counts only from the first byte of a response.
    is_stream: bool,
    /// The response to `hello`; `None` before the exchange of versions.
    hello: Option<Hello>,
}

impl Client {
    /// Connects to the socket at `path`. The first request begins with the exchange of versions.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream =
            connect::connect(path, CONNECT).map_err(|error| ClientError::Connect { path: path.to_owned(), error })?;
        Self::over(stream, path)
    }

    /// Makes a client of a stream that is already connected, for example by another process with more rights. No
    /// request may have been sent on it before. The first request begins with the exchange of versions. `path` is used
    /// only in errors.
    ///
    /// # Errors
    /// [`ClientError::Connect`] if the system refuses a second handle or the time limit.
    pub fn over(stream: UnixStream, path: &Path) -> Result<Self, ClientError> {
        let failed = |error| ClientError::Connect { path: path.to_owned(), error };
        // The time limits need a stream that blocks.
        stream.set_nonblocking(false).map_err(failed)?;
        let writer = BufWriter::with_capacity(1 << 16, stream.try_clone().map_err(failed)?);
        let reader = BufReader::with_capacity(1 << 16, stream);
        Self { reader, writer, path: path.to_owned(), patience: PATIENCE, is_stream: false, hello: None }
            .with_patience(PATIENCE)
            .map_err(failed)
    }

    /// Sets the time limit of a whole response and of writing a request. It must be more than zero.
    pub fn with_patience(self, patience: Duration) -> io::Result<Self> {
        self.reader.get_ref().set_write_timeout(Some(patience))?;
        Ok(Self { patience, ..self })
    }

    /// Returns the process ID of the other side, as the kernel reports it. The ID in `hello` may be wrong. `None` if
    /// the process has no ID here, because it is in another PID namespace.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        connect::process(self.reader.get_ref())
    }

    /// Returns another handle of the connection, to shut it down while a response is awaited.
    ///
    /// # Errors
    /// Errors of the system calls.
    pub fn socket(&self) -> io::Result<UnixStream> {
        self.reader.get_ref().try_clone()
    }

    /// Returns the instance. The first call exchanges versions.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Version`] if the instance speaks another version.
    pub fn hello(&mut self) -> Result<&Hello, ClientError> {
        if self.hello.is_none() {
            self.write(&Request::Hello { protocol: Some(VERSION) })?;
            let hello = match self.response() {
                Ok(Response::Hello(hello)) => hello,
                // Version 1 refuses the field `protocol` with this text.
                Err(ClientError::Refused(text)) if text.starts_with("not a request") => {
                    return Err(ClientError::Version { theirs: String::new() });
                }
                Ok(_) => return Err(ClientError::Version { theirs: String::new() }),
                Err(error) => return Err(error),
            };
            if hello.protocol != VERSION {
                let theirs = format!(" {} (Forebay {})", hello.protocol, hello.forebay);
                return Err(ClientError::Version { theirs });
            }
            self.hello = Some(hello);
        }
        // `hello` was set above, so this error cannot occur.
        self.hello.as_ref().ok_or_else(|| ClientError::ended(&self.path))
    }

    /// Sends a request and returns the response.
    ///
    /// # Errors
    /// [`ClientError`], also if the response is an error.
    pub fn request(&mut self, request: &Request) -> Result<Response, ClientError> {
        self.send(request)?;
        self.response().map_err(|error| error.after(request))
    }

    /// Sends a request whose responses come when there is something to report. Returns the first response. From now on,
    /// responses on this connection may begin at any time.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn stream(&mut self, request: &Request) -> Result<Response, ClientError> {
        // A process that does not respond to `hello` in time will report nothing, however long the client waits.
        self.hello()?;
        self.is_stream = true;
        self.request(request)
    }

    /// Changes a table: sends `request`, then the lines of `changes` and the empty line that ends them. Empty lines of
    /// `changes` are skipped. Returns the response to all changes. If reading `changes` fails, the request is
    /// incomplete, and the connection cannot be used any more.
    pub fn change(&mut self, request: &Request, changes: &mut dyn Read) -> Result<Response, ClientError> {
        self.send(request)?;
        self.send_changes(changes).and_then(|()| self.response()).map_err(|error| error.after(request))
    }

    /// Sends the lines of `changes`, and the empty line that ends them.
    fn send_changes(&mut self, changes: &mut dyn Read) -> Result<(), ClientError> {
        let mut changes = BufReader::with_capacity(1 << 16, changes);
        let mut line = Vec::new();
        loop {
            let read = changes.read_until(b'\n', &mut line);
            if read.map_err(|error| ClientError::of_connection(&self.path, error))? == 0 {
                break;
            }
            // An empty line would end the changes.
            if !line.trim_ascii().is_empty() {
                let change = [line.trim_ascii_end(), b"\n"].concat();
                self.writer.write_all(&change).map_err(|error| self.reason(error))?;
            }
            line.clear();
        }
        let ended = self.writer.write_all(b"\n").and_then(|()| self.writer.flush());
        ended.map_err(|error| self.reason(error))
    }

    /// Sends a request, after the exchange of versions.
    fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        self.hello()?;
        self.write(request)
    }

    /// Sends a request without an exchange of versions before it.
    fn write(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let sent = self.writer.write_all(&line).and_then(|()| self.writer.flush());
        sent.map_err(|error| self.reason(error))
    }

    /// Returns the error for a failed write. If the other side sent its reason before it closed the connection, the
    /// result is that reason; otherwise it is `error`.
    fn reason(&mut self, error: io::Error) -> ClientError {
        let until = Instant::now() + self.patience;
        loop {
            match self.response_until(Some(until)) {
                Err(refused @ ClientError::Refused(_)) => return refused,
                // A response to an earlier request: the reason may follow.
                Ok(_) => {}
                Err(_) => return ClientError::of_connection(&self.path, error),
            }
        }
    }

    /// Returns the next response.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub fn response(&mut self) -> Result<Response, ClientError> {
        let until = (!self.is_stream).then(|| Instant::now() + self.patience);
        self.response_until(until)
    }

    /// Returns the next response if all of it arrives before `until`. Single bytes that arrive do not extend this time.
    /// Without `until` the response may begin at any time, and must be complete `patience` after its first bytes.
    fn response_until(&mut self, mut until: Option<Instant>) -> Result<Response, ClientError> {
        let mut line = Vec::new();
        loop {
            if self.reader.buffer().is_empty() {
                let remaining = until.map(|until| until.saturating_duration_since(Instant::now()));
                if remaining.is_some_and(|remaining| remaining.is_zero()) {
                    return Err(ClientError::Silent);
                }
                let limited = self.reader.get_ref().set_read_timeout(remaining);
                limited.map_err(|error| ClientError::of_connection(&self.path, error))?;
            }
            let more = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                more => more.map_err(|error| ClientError::of_connection(&self.path, error))?,
            };
            // A line that is cut off is not a response: the pipeline was killed while it wrote the line.
            if more.is_empty() {
                return Err(ClientError::ended(&self.path));
            }
            let end = more.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(more.len());
            line.extend_from_slice(&more[..taken]);
            self.reader.consume(taken + usize::from(end.is_some()));
            if end.is_some() || line.len() as u64 > MAX_RESPONSE {
                break;
            }
            until = until.or_else(|| Instant::now().checked_add(self.patience));
        }
        match serde_json::from_slice(&line)? {
            Response::Error(message) => Err(ClientError::Refused(message)),
            response => Ok(response),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The response of an instance to `hello`.
    const HELLO: &str = "{\"hello\":{\"protocol\":2,\"forebay\":\"9.0\",\"pipeline\":\"gw\",\"instance\":null,\
                         \"pid\":1,\"started\":\"\",\"workers\":1,\"capabilities\":[]}}\n";

    /// Returns the error of the first request to an instance that sends `line` in response to `hello`. The path of the
    /// socket in it is `SOCKET`.
    fn error_after(line: &'static str) -> String {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).expect("a socket");
        let instance = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).expect("UTF-8");
            stream.write_all(line.as_bytes()).expect("the client reads");
            request
        });
        let mut client = Client::connect(&path).expect("a listener");
        let error = client.request(&Request::Graph {}).expect_err("another version").to_string();
        assert_eq!(instance.join().expect("no panic"), "{\"do\":\"hello\",\"protocol\":2}\n");
        error.replace(path.to_str().expect("UTF-8"), "SOCKET")
    }

    /// Regression test: the error did not name the pipeline, and did not say whether the change was made.
    #[test]
    fn the_error_of_a_change_says_that_its_result_is_unknown() {
        let ended = |request: &Request| ClientError::ended(Path::new("/run/s")).after(request).to_string();
        let change = Request::Change { module: "m".to_owned(), table: None };
        let unknown = "/run/s: the pipeline has ended before it responded: it is unknown whether it made the change";
        assert_eq!(ended(&change), unknown);
        assert_eq!(ended(&Request::Graph {}), "/run/s: the pipeline has ended");
        let silent = |request: &Request| ClientError::Silent.after(request).to_string();
        let unknown = "the running pipeline does not respond, and it is unknown whether it made the change: ";
        assert!(silent(&change).starts_with(unknown), "{}", silent(&change));
        assert!(!silent(&Request::Graph {}).contains("unknown"));
    }

    #[test]
    fn an_instance_of_another_version_is_an_error_that_names_both() {
        let old = error_after("{\"error\":\"not a request (line 1 column 2): allowed are `hello`\"}\n");
        assert!(old.starts_with("the running pipeline speaks protocol version 1, and this program speaks"), "{old}");
        let new = error_after(
            "{\"hello\":{\"protocol\":3,\"forebay\":\"9.0\",\"pipeline\":\"gw\",\"instance\":null,\"pid\":1,\
             \"started\":\"\",\"workers\":1,\"capabilities\":[]}}\n",
        );
        assert!(new.starts_with("the running pipeline speaks protocol version 3 (Forebay 9.0), and"), "{new}");
        // Other refusals are reported as they are.
        assert_eq!(error_after("{\"error\":\"too busy\"}\n"), "too busy");
    }

    #[test]
    fn a_client_of_an_open_stream_waits_for_responses_and_names_the_path_in_errors() {
        let (own, instance) = UnixStream::pair().expect("two sockets");
        own.set_nonblocking(true).expect("a socket");
        let mut client = Client::over(own, Path::new("/run/s")).expect("a socket");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                BufReader::new(&instance).read_line(&mut String::new()).expect("UTF-8");
                (&instance).write_all(HELLO.as_bytes()).expect("the client reads");
            });
            assert_eq!(client.hello().expect("a response").pipeline, "gw");
        });
        drop(instance);
        let error = client.request(&Request::Graph {}).expect_err("it has ended").to_string();
        assert_eq!(error, "/run/s: the pipeline has ended");
    }

    /// Regression test: the error was that this version does not understand the response.
    #[test]
    fn a_response_that_is_cut_off_is_the_end_of_the_pipeline() {
        assert_eq!(error_after("{\"hello\":{\"protocol\":2,\"forebay\":\"9"), "SOCKET: the pipeline has ended");
        assert_eq!(error_after("{\"error\":\"too busy\"}"), "SOCKET: the pipeline has ended");
    }

    /// The instance responds to `hello`, reads the request, and ends.
    #[test]
    fn a_change_that_is_not_answered_is_of_unknown_result() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).expect("a socket");
        let error = |lines: usize, ask: &dyn Fn(&mut Client) -> Result<Response, ClientError>| {
            let mut client = Client::connect(&path).expect("a listener");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().expect("a client connects");
                    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
                    reader.read_line(&mut String::new()).expect("UTF-8");
                    stream.write_all(HELLO.as_bytes()).expect("the client reads");
                    for _ in 0..lines {
                        reader.read_line(&mut String::new()).expect("UTF-8");
                    }
                });
                ask(&mut client).expect_err("no response").to_string()
            })
        };
        let change = Request::Change { module: "m".to_owned(), table: None };
        let reload =
            Request::Reload { file: None, text: None, config_paths: None, set: None, forget: false, if_version: None };
        let unknown = "before it responded: it is unknown whether it made the change";
        let reloaded = error(1, &|client| client.request(&reload));
        assert!(reloaded.ends_with(unknown), "{reloaded}");
        // The request, and the empty line that ends the changes.
        let changed = error(2, &|client| client.change(&change, &mut io::empty()));
        assert!(changed.ends_with(unknown), "{changed}");
        let shown = error(1, &|client| client.request(&Request::Graph {}));
        assert!(shown.ends_with("the pipeline has ended"), "{shown}");
    }
}
