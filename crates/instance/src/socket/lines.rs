//! What a client says, a line at a time, and how long it is waited for.

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::MOST_LINE;
use super::connections::Connection;

/// How long clients are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the next request. Longer than `top` waits at the most between two of its own.
    pub request: Duration,
    /// For the rest of a line that has begun, and for an answer to be taken.
    pub line: Duration,
    /// One that has asked before, and others who need its place, may wait so long.
    pub asked: Duration,
    /// The same of one that has never asked anything.
    pub silent: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(2 * 3600),
            line: Duration::from_secs(30),
            asked: Duration::from_secs(10),
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

    /// Reads a line, without its end, into `line`; `false` at the end of all. A line that was cut off has not been said.
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
            if line.len() > MOST_LINE {
                let told = format!("a line is longer than {MOST_LINE} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, told));
            }
            if end.is_some() {
                line.pop_if(|byte| *byte == b'\r');
                return Ok(true);
            }
        }
    }

    /// Why there are no more, for who has not said all.
    pub(super) fn why_over(&self) -> &'static str {
        self.connection.why_over().unwrap_or("the end came before the empty line that ends the changes")
    }

    /// Waits for more of a line that has `begun` then, or for the next one; whether there is any.
    fn wait(&mut self, begun: Option<Instant>) -> io::Result<bool> {
        let patience = match begun {
            None => self.patience.request,
            Some(begun) => self.patience.line.saturating_sub(begun.elapsed()).max(Duration::from_millis(1)),
        };
        self.reader.get_ref().set_read_timeout(Some(patience))?;
        self.connection.set_waiting(true);
        let told = self.reader.fill_buf().map(|more| !more.is_empty());
        self.connection.set_waiting(false);
        match told {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.wait(begun),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                let (what, patience) = match begun {
                    Some(_) => ("a line was not ended", self.patience.line),
                    None => ("nothing was asked", self.patience.request),
                };
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what} in {} s", patience.as_secs_f32())))
            }
            told => told,
        }
    }

    /// Whether the client has gone, while it is to be told something.
    pub(super) fn is_over(&mut self) -> io::Result<bool> {
        self.reader.get_ref().set_read_timeout(Some(Duration::from_millis(1)))?;
        // Nothing to read is a client that waits; the end of all is one that has gone.
        Ok(self.reader.fill_buf().is_ok_and(<[u8]>::is_empty))
    }
}
