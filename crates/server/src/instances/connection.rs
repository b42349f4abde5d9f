//! A connection to a running pipeline. It is the asynchronous counterpart of `forebay_protocol::Client`, so that a
//! single thread serves all clients, and a request ends when its client goes away.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_protocol::response::Hello;
use forebay_protocol::{ClientError, Request, Response, VERSION};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The time limit of a response. An instance that responds later counts as silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest response, in bytes. Without a limit, a response that does not end would fill the memory.
const MAX_RESPONSE: usize = 64 << 20;
/// The longest response of a process whose user is not trusted.
const MAX_FOREIGN_RESPONSE: usize = 4 << 20;
/// The longest first response, which has the version and a few names. Its sender may be any user.
const MAX_HELLO: usize = 64 << 10;

/// A connection to a running pipeline, after the exchange of versions.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<UnixStream>,
    /// The path of the socket, for errors.
    path: PathBuf,
    /// The bytes of a response that is not complete yet. They stay here if reading is cancelled.
    line: Vec<u8>,
    /// The longest response that is read, in bytes.
    max_response: usize,
}

impl Connection {
    /// Exchanges versions over a connected stream. Returns the connection and the instance.
    ///
    /// # Errors
    /// As `forebay_protocol::Client::hello`.
    pub async fn begin(stream: UnixStream, path: &Path) -> Result<(Self, Hello), ClientError> {
        let stream = BufReader::with_capacity(1 << 13, stream);
        let mut connection = Self { stream, path: path.to_owned(), line: Vec::new(), max_response: MAX_HELLO };
        let hello = connection.request(&Request::Hello { protocol: Some(VERSION) }).await?;
        match hello {
            Response::Hello(hello) if hello.protocol == VERSION => Ok((connection, hello)),
            Response::Hello(hello) => {
                let theirs = format!(" {} (Forebay {})", hello.protocol, hello.forebay);
                Err(ClientError::Version { theirs })
            }
            _ => Err(ClientError::Version { theirs: String::new() }),
        }
    }

    /// Allows longer responses, after the first one.
    pub fn allow_long_responses(&mut self, is_trusted: bool) {
        self.max_response = if is_trusted { MAX_RESPONSE } else { MAX_FOREIGN_RESPONSE };
    }

    /// Sends a request and returns the response.
    ///
    /// # Errors
    /// [`ClientError`], also if the response is an error.
    pub async fn request(&mut self, request: &Request) -> Result<Response, ClientError> {
        self.request_with(request, &[]).await
    }

    /// Sends a request that is followed by lines, and returns the response to all of them. An empty line ends them, so
    /// no line may be empty.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn request_with(&mut self, request: &Request, lines: &[&str]) -> Result<Response, ClientError> {
        let is_change = request.is_change();
        let exchanged = timeout(PATIENCE, async {
            let mut bytes = serde_json::to_vec(request)?;
            bytes.push(b'\n');
            if matches!(request, Request::Change { .. }) {
                lines.iter().for_each(|line| bytes.extend_from_slice(format!("{line}\n").as_bytes()));
                bytes.push(b'\n');
            }
            // If the instance closes the connection, it sends the reason first: read it.
            let sent = self.stream.get_mut().write_all(&bytes).await;
            let response = self.read().await;
            match (sent, response) {
                (Err(error), Err(ClientError::Ended { .. })) => Err(self.broken(error)),
                (_, response) => response,
            }
        });
        match exchanged.await {
            Ok(Err(ClientError::Ended { path, .. })) => Err(ClientError::Ended { path, is_change }),
            Ok(result) => result,
            Err(_) if is_change => Err(ClientError::SilentAfterChange),
            Err(_) => Err(ClientError::Silent),
        }
    }

    /// Returns the next response of a stream, whenever it comes. May be cancelled: no byte is lost.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn next(&mut self) -> Result<Response, ClientError> {
        self.read().await
    }

    async fn read(&mut self) -> Result<Response, ClientError> {
        loop {
            let more = match self.stream.fill_buf().await {
                Ok(more) => more,
                Err(error) => return Err(self.broken(error)),
            };
            if more.is_empty() {
                return Err(ClientError::Ended { path: self.path.clone(), is_change: false });
            }
            let end = more.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(more.len());
            self.line.extend_from_slice(&more[..taken]);
            self.stream.consume(taken + usize::from(end.is_some()));
            if end.is_some() {
                break;
            }
            if self.line.len() > self.max_response {
                let why = format!("a response is longer than {} KiB", self.max_response >> 10);
                return Err(ClientError::Broken(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
        }
        // The memory of a long response is not kept.
        let line = std::mem::take(&mut self.line);
        match serde_json::from_slice(&line)? {
            Response::Error(message) => Err(ClientError::Refused(message)),
            response => Ok(response),
        }
    }

    /// Returns the error of the connection.
    fn broken(&self, error: io::Error) -> ClientError {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                ClientError::Ended { path: self.path.clone(), is_change: false }
            }
            _ => ClientError::Broken(error),
        }
    }
}
