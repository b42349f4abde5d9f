//! Reads the lines of a client, with time limits.

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use forebay_protocol::MAX_REQUEST;

use super::connections::Connection;

/// The time limits of clients.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The time limit for the next request. It is longer than the longest interval of `top`, so that `top` stays
    /// connected.
    pub request: Duration,
    /// The time limit for the rest of a line that has begun, and for the client to read a response.
    pub line: Duration,
    /// The idle time after which another client can displace a connection that has sent a request.
    pub idle: Duration,
    /// The idle time after which another client can displace a connection that has sent no request.
    pub silent: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(2 * 3600),
            line: Duration::from_secs(30),
            idle: Duration::from_secs(10),
            silent: Duration::from_millis(100),
        }
    }
}

/// The lines of one connection.
pub(super) struct Lines<'a> {
    reader: BufReader<&'a UnixStream>,
    connection: &'a Connection,
    patience: Patience,
}

impl<'a> Lines<'a> {
    pub(super) fn new(stream: &'a UnixStream, connection: &'a Connection, patience: Patience) -> Self {
        Self { reader: BufReader::with_capacity(1 << 16, stream), connection, patience }
    }

    /// Reads a line, without its line break, into `line`. Returns `false` at the end of the stream, and ignores a line
    /// that the end of the stream cuts off. Returns an error if a time limit is exceeded or the line is longer than
    /// [`MAX_REQUEST`].
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        let mut begun = None;
        loop {
            if self.reader.buffer().is_empty() && !self.wait(begun)? {
                return Ok(false);
            }
            begun.get_or_insert_with(Instant::now);
            let buffer = self.reader.buffer();
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(buffer.len());
            line.extend_from_slice(&buffer[..taken]);
            self.reader.consume(taken + usize::from(end.is_some()));
            if line.len() > MAX_REQUEST {
                let error = format!("a line is longer than {MAX_REQUEST} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            if end.is_some() {
                line.pop_if(|byte| *byte == b'\r');
                return Ok(true);
            }
        }
    }

    /// Returns why the stream ended before the empty line that ends a list of changes.
    pub(super) fn why_over(&self) -> &'static str {
        self.connection.why_over().unwrap_or("the connection ended before the empty line that ends the changes")
    }

    /// Waits for more bytes of the line that began at `begun`, or for the next line. Returns `false` at the end of the
    /// stream, and an error if a time limit is exceeded.
    fn wait(&mut self, begun: Option<Instant>) -> io::Result<bool> {
        let patience = match begun {
            None => self.patience.request,
            Some(begun) => self.patience.line.saturating_sub(begun.elapsed()).max(Duration::from_millis(1)),
        };
        self.reader.get_ref().set_read_timeout(Some(patience))?;
        self.connection.set_waiting(true);
        let more = self.reader.fill_buf().map(|more| !more.is_empty());
        self.connection.set_waiting(false);
        match more {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.wait(begun),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                let (what, patience) = match begun {
                    Some(_) => ("a line was not ended", self.patience.line),
                    None => ("no request came", self.patience.request),
                };
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what} in {} s", patience.as_secs_f32())))
            }
            more => more,
        }
    }

    /// Returns whether the client has disconnected. Takes up to a millisecond. Callers use it while they send responses
    /// and read no request.
    pub(super) fn is_over(&mut self) -> io::Result<bool> {
        self.reader.get_ref().set_read_timeout(Some(Duration::from_millis(1)))?;
        // A time-out means that the client waits; the end of the stream means that it has disconnected.
        Ok(self.reader.fill_buf().is_ok_and(<[u8]>::is_empty))
    }
}
