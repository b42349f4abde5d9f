//! Asks a running pipeline.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::{Answer, Request, peer};

/// How long it is waited for the other side, to give a whole answer or to take what is said.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it is waited for a place among those that wait to be let in.
const PLACE: Duration = Duration::from_secs(2);
/// The longest answer, in bytes: one without an end fills no memory.
const MOST_ANSWER: u64 = 256 << 20;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("{}: {}", .path.display(), why(.path, .error))]
    Connect {
        /// Where.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the running pipeline broke: {0}")]
    Broken(io::Error),
    /// It takes too long. What it says later is no answer to another question: the connection is of no use any more.
    #[error("the running pipeline does not answer: is it stopped, or the machine overloaded?")]
    Silent,
    /// What came is no answer.
    #[error("the running pipeline answered what this version does not understand: {0}")]
    Strange(#[from] serde_json::Error),
    /// The run has ended.
    #[error("the pipeline has ended")]
    Ended,
    /// The answer is no.
    #[error("{0}")]
    Refused(String),
}

/// Why nobody listens at a path, for who thought that somebody did.
fn why(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no socket is there: is the pipeline running, with that --socket?".to_owned(),
        io::ErrorKind::ConnectionRefused if path.metadata().is_ok_and(|told| !told.file_type().is_socket()) => {
            "that is no socket".to_owned()
        }
        io::ErrorKind::ConnectionRefused => "nobody listens there any more: the pipeline was killed".to_owned(),
        io::ErrorKind::PermissionDenied => "it is another user's: who may not open the socket cannot ask".to_owned(),
        io::ErrorKind::WouldBlock => {
            "it accepts no connection, and no other has room to wait: is it stopped, or asked by too many?".to_owned()
        }
        _ => error.to_string(),
    }
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => Self::Ended,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Broken(error),
        }
    }
}

/// A connection to a running pipeline.
pub struct Client {
    reader: BufReader<UnixStream>,
    writer: BufWriter<UnixStream>,
    /// How long it is waited for a whole answer.
    patience: Duration,
    /// Answers begin when there is something to report.
    is_told: bool,
}

impl Client {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let failed = |error| ClientError::Connect { path: path.to_owned(), error };
        let stream = peer::connect(path, PLACE).map_err(failed)?;
        let writer = BufWriter::with_capacity(1 << 16, stream.try_clone().map_err(failed)?);
        let reader = BufReader::with_capacity(1 << 16, stream);
        Self { reader, writer, patience: PATIENCE, is_told: false }.with_patience(PATIENCE).map_err(failed)
    }

    /// The same, which waits so long for the other side; longer than nothing.
    ///
    /// # Errors
    /// What the system says to that.
    pub fn with_patience(self, patience: Duration) -> io::Result<Self> {
        self.reader.get_ref().set_write_timeout(Some(patience))?;
        Ok(Self { patience, ..self })
    }

    /// The number of the process at the other end, as the kernel has it: what that process says of itself may be false.
    /// `None` where it has no number here, in another PID namespace.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        peer::process(self.reader.get_ref())
    }

    /// The connection once more, to be shut down while an answer is waited for.
    ///
    /// # Errors
    /// As the system says.
    pub fn stream(&self) -> io::Result<UnixStream> {
        self.reader.get_ref().try_clone()
    }

    /// Asks, and gives the answer.
    ///
    /// # Errors
    /// [`ClientError`]; an answer that is an error is one.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        self.send(request)?;
        self.answer()
    }

    /// Asks for reports that come when there is something to report, however long that takes; gives the first answer.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn begin(&mut self, request: &Request) -> Result<Answer, ClientError> {
        // A process that does not even say what runs there has nothing to report, however long the client waits.
        self.ask(&Request::Hello {})?;
        self.is_told = true;
        self.ask(request)
    }

    /// Changes a table by the lines of `changes`.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn change(&mut self, request: &Request, changes: &mut dyn Read) -> Result<Answer, ClientError> {
        self.send(request)?;
        let mut changes = BufReader::with_capacity(1 << 16, changes);
        let mut line = Vec::new();
        while changes.read_until(b'\n', &mut line)? > 0 {
            // An empty line would end the changes, and says nothing.
            if !line.trim_ascii().is_empty() {
                let said = [line.trim_ascii_end(), b"\n"].concat();
                self.writer.write_all(&said).map_err(|error| self.why_not(error))?;
            }
            line.clear();
        }
        let said = self.writer.write_all(b"\n").and_then(|()| self.writer.flush());
        said.map_err(|error| self.why_not(error))?;
        self.answer()
    }

    fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let sent = self.writer.write_all(&line).and_then(|()| self.writer.flush());
        sent.map_err(|error| self.why_not(error))
    }

    /// Why the other side takes nothing any more: it may have said so.
    fn why_not(&mut self, error: io::Error) -> ClientError {
        let until = Instant::now() + self.patience;
        loop {
            match self.answer_until(Some(until)) {
                Err(refused @ ClientError::Refused(_)) => return refused,
                // Answers to what was asked before.
                Ok(_) => {}
                Err(_) => return error.into(),
            }
        }
    }

    /// The next answer.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn answer(&mut self) -> Result<Answer, ClientError> {
        let until = (!self.is_told).then(|| Instant::now() + self.patience);
        self.answer_until(until)
    }

    /// The next answer, all of it by `until`: who sends a byte now and then does not answer.
    /// Without such a time it may begin at any time.
    fn answer_until(&mut self, mut until: Option<Instant>) -> Result<Answer, ClientError> {
        let mut line = Vec::new();
        loop {
            if self.reader.buffer().is_empty() {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(ClientError::Silent);
                }
                self.reader.get_ref().set_read_timeout(left)?;
            }
            let more = match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                more => more?,
            };
            if more.is_empty() && line.is_empty() {
                return Err(ClientError::Ended);
            }
            let end = more.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(more.len());
            line.extend_from_slice(&more[..taken]);
            self.reader.consume(taken + usize::from(end.is_some()));
            // A line that is cut off is no answer.
            if end.is_some() || taken == 0 || line.len() as u64 > MOST_ANSWER {
                break;
            }
            until = until.or_else(|| Instant::now().checked_add(self.patience));
        }
        match serde_json::from_slice(&line)? {
            Answer::Error(message) => Err(ClientError::Refused(message)),
            answer => Ok(answer),
        }
    }
}
