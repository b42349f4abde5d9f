//! Answers whoever asks: a thread for the socket, and one for each connection.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::service::{self, Service};
use super::{Answer, MOST_LINE, Request};

/// How many connections there may be at once.
const MOST_CONNECTIONS: usize = 64;
/// How often the listener looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The socket; dropping it takes it away.
pub struct Server {
    path: PathBuf,
    /// The socket's own device and number: another file of its name is left alone.
    place: (u64, u64),
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path`.
    ///
    /// # Errors
    /// As making sockets; also a path where another one listens already.
    pub fn start(path: &Path, service: Service) -> io::Result<Self> {
        if let Ok(told) = path.symlink_metadata() {
            if !told.file_type().is_socket() {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
            }
            match UnixStream::connect(path) {
                Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another pipeline listens there")),
                // It was left by a process that was killed.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
                Err(error) => return Err(error),
            }
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let place = path.symlink_metadata().map(|told| (told.dev(), told.ino()))?;
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let service = Arc::new(service);
        let thread =
            std::thread::Builder::new().name("socket".to_owned()).spawn(move || listen(&listener, &service, &ends))?;
        Ok(Self { path: path.to_owned(), place, over, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if self.path.symlink_metadata().is_ok_and(|told| (told.dev(), told.ino()) == self.place) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn listen(listener: &UnixListener, service: &Arc<Service>, over: &AtomicBool) {
    let connections = Arc::new(AtomicUsize::new(0));
    while !over.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        if connections.load(Ordering::Relaxed) >= MOST_CONNECTIONS {
            let message = format!("{MOST_CONNECTIONS} connections are open, which is as many as there may be");
            let _ = tell(&mut BufWriter::new(&stream), &Answer::Error(message));
            continue;
        }
        connections.fetch_add(1, Ordering::Relaxed);
        let (service, counted) = (Arc::clone(service), Arc::clone(&connections));
        let talk = move || {
            // Who goes away in the middle of a sentence has said nothing.
            let ended = stream.set_nonblocking(false).and_then(|()| talk(&stream, &service));
            if let Err(error) = ended.as_ref().map_err(|error| error.to_string()) {
                let _ = tell(&mut BufWriter::new(&stream), &Answer::Error(error.clone()));
            }
            counted.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("connection".to_owned()).spawn(talk).is_err() {
            connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn tell(writer: &mut impl Write, answer: &Answer) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, answer)?;
    writer.write_all(b"\n")?;
    writer.flush()
}

/// Reads a line, without its end, into `line`; `false` at the end of all. A line that was cut off has not been said.
pub(super) fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let read = reader.by_ref().take(MOST_LINE as u64 + 1).read_until(b'\n', line)?;
    if read > MOST_LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line is longer than {MOST_LINE} bytes")));
    }
    if line.pop() != Some(b'\n') {
        return Ok(false);
    }
    line.pop_if(|byte| *byte == b'\r');
    Ok(true)
}

/// One connection, to its end.
fn talk(stream: &UnixStream, service: &Service) -> io::Result<()> {
    let (mut reader, mut writer) = (BufReader::with_capacity(1 << 16, stream), BufWriter::new(stream));
    let board = service.instance.board();
    let mut last = board.nothing();
    let mut line = Vec::new();
    while read_line(&mut reader, &mut line)? {
        let answer = match serde_json::from_slice(&line) {
            Err(error) => Answer::Error(format!("not a request: {error}")),
            Ok(Request::Report {}) => service::report(service, &mut last),
            Ok(Request::Reload { file, set }) => service::reload(service, file, set),
            Ok(Request::Tables {}) => service::tables(service),
            Ok(Request::Entries { module, table, after, most }) => {
                service::entries(service, &module, table.as_deref(), after.as_deref(), most)
            }
            Ok(Request::Change { module, table }) => match service::find(service, &module, table.as_deref()) {
                Ok(found) => service::change(&found, &mut reader)?,
                Err(message) => {
                    service::skip(&mut reader)?;
                    Answer::Error(message)
                }
            },
            Ok(Request::Trace { count, filter }) => {
                match (service.trace)(&*service.instance, count, filter.as_deref()) {
                    Ok(stories) => {
                        trace(count, &stories.told, &mut reader, &mut writer)?;
                        Answer::Told
                    }
                    Err(message) => Answer::Error(message),
                }
            }
            Ok(Request::Act { module, action }) => service::act(service, &module, action),
            Ok(Request::Stop {}) => {
                service.stop.store(true, Ordering::Relaxed);
                Answer::Done
            }
        };
        tell(&mut writer, &answer)?;
    }
    Ok(())
}

/// Tells `count` stories as they come, or as many as there are before the client goes away.
fn trace(
    count: u64,
    stories: &Receiver<String>,
    reader: &mut BufReader<&UnixStream>,
    writer: &mut impl Write,
) -> io::Result<()> {
    let mut told = 0;
    while told < count {
        match stories.recv_timeout(LOOK) {
            Ok(story) => {
                tell(writer, &Answer::Story(story))?;
                told += 1;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                reader.get_ref().set_read_timeout(Some(Duration::from_millis(1)))?;
                // Nothing to read is a client that waits; the end of all is one that has gone.
                let gone = reader.fill_buf().is_ok_and(<[u8]>::is_empty);
                reader.get_ref().set_read_timeout(None)?;
                if gone {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
