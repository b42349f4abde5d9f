//! Answers whoever asks: a thread for the socket, and one for each connection.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_graph::report::Reading;
use forebay_graph::{Action, NamedTable};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Source, usecase};

use super::{Answer, MOST_LINE, Request, TableTold};
use crate::accepted::Accepted;
use crate::running::Instance;

/// How many connections there may be at once.
const MOST_CONNECTIONS: usize = 64;
/// How many changes are made together: a table is put in force once for all of them.
const CHANGES: usize = 4_096;
/// How many entries of a table an answer has at the most.
const MOST_ENTRIES: usize = 100_000;
/// How many refused changes are told one by one.
const REFUSALS: usize = 100;
/// How often the listener looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Follows the next packets that a filter means, and tells their ways in words.
pub type TraceOf = Box<dyn Fn(&dyn Instance, u64, Option<&str>) -> Result<Receiver<String>, String> + Send + Sync>;

/// What is behind the socket.
pub struct Service {
    /// The running pipeline.
    pub instance: Arc<dyn Instance>,
    /// The configuration that it runs.
    pub source: Mutex<Source>,
    /// What it was started from, to be read again.
    pub origin: String,
    /// Where accepted configurations are kept.
    pub state: Option<PathBuf>,
    /// How packets are traced.
    pub trace: TraceOf,
    /// Set to end the run.
    pub stop: Arc<AtomicBool>,
}

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
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
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
            Ok(Request::Report {}) => report(service, &mut last),
            Ok(Request::Reload { file, set }) => reload(service, file, set),
            Ok(Request::Tables {}) => Answer::Tables(service.instance.tables().iter().map(told).collect()),
            Ok(Request::Entries { module, table, after, most }) => find(service, &module, table.as_deref())
                .and_then(|found| found.table.entries(after.as_deref(), most.min(MOST_ENTRIES)))
                .map_or_else(Answer::Error, Answer::Entries),
            Ok(Request::Change { module, table }) => match find(service, &module, table.as_deref()) {
                Ok(found) => change(&found, &mut reader)?,
                Err(message) => {
                    skip(&mut reader)?;
                    Answer::Error(message)
                }
            },
            Ok(Request::Trace { count, filter }) => {
                match (service.trace)(&*service.instance, count, filter.as_deref()) {
                    Ok(stories) => {
                        let told = trace(count, &stories, &mut reader, &mut writer);
                        // All is told, or nobody listens any more: the workers need not watch.
                        service.instance.observe(Box::new(|_| None));
                        told?;
                        Answer::Told
                    }
                    Err(message) => Answer::Error(message),
                }
            }
            Ok(Request::Act { module, action }) => act(service, &module, action),
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

fn report(service: &Service, last: &mut Reading) -> Answer {
    let board = service.instance.board();
    let now = board.read(Tsc.now());
    let (recent, whole) = (board.report(last, &now), board.report(&board.nothing(), &now));
    *last = now;
    Answer::Report { recent: Box::new(recent), whole: Box::new(whole), census: service.instance.census() }
}

fn reload(service: &Service, file: Option<String>, set: Option<Vec<String>>) -> Answer {
    // One change after the other.
    let mut source = service.source.lock().unwrap_or_else(PoisonError::into_inner);
    let sets = set.unwrap_or_else(|| source.sets().to_vec());
    let origin = file.unwrap_or_else(|| service.origin.clone());
    let read = match origin.strip_prefix("usecase:") {
        Some(name) => usecase(name, &sets),
        None => Source::read(Path::new(&origin)).map(|read| sets.iter().fold(read, Source::set)),
    };
    let next = match read {
        Ok(next) => next,
        Err(problems) => return Answer::Error(problems.to_string()),
    };
    let mut keep = || match &service.state {
        Some(path) => Accepted::of(&next).keep(path),
        None => Ok(()),
    };
    match service.instance.reload(&next, &mut keep) {
        Ok(reloaded) => {
            *source = next;
            Answer::Reloaded(reloaded)
        }
        Err(error) => Answer::Error(error.to_string()),
    }
}

fn told(table: &NamedTable) -> TableTold {
    TableTold {
        module: table.module.clone(),
        table: table.name.clone(),
        entries: table.table.len(),
        syntax: table.table.syntax().to_owned(),
    }
}

/// The table that is meant.
fn find(service: &Service, module: &str, table: Option<&str>) -> Result<NamedTable, String> {
    let all = service.instance.tables();
    let of_module: Vec<_> = all.iter().filter(|known| known.module == module).collect();
    let meant = of_module.iter().find(|known| table.is_none_or(|name| known.name == name));
    if let (Some(meant), true) = (meant, table.is_some() || of_module.len() == 1) {
        return Ok((*meant).clone());
    }
    let listed = |known: &[&NamedTable]| {
        let names: Vec<_> = known.iter().take(20).map(|known| format!("{} of {}", known.name, known.module)).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    Err(match table {
        Some(name) => format!("module '{module}' has no table '{name}': there are {}", listed(&of_module)),
        None if of_module.is_empty() => {
            format!(
                "no module '{module}' has a table that can be changed: there are {}",
                listed(&all.iter().collect::<Vec<_>>())
            )
        }
        None => format!("module '{module}' has several tables: name one of {}", listed(&of_module)),
    })
}

/// Makes the changes that follow, many at a time.
fn change(found: &NamedTable, reader: &mut impl BufRead) -> io::Result<Answer> {
    let (mut made, mut refused, mut refusals, mut seen) = (0, Vec::new(), 0, 0);
    let (mut lines, mut line, mut bytes, mut more) = (Vec::new(), Vec::new(), 0, true);
    while more {
        more = read_line(reader, &mut line)? && !line.is_empty();
        if more {
            lines.push(String::from_utf8_lossy(&line).into_owned());
        }
        bytes += line.len();
        if lines.len() == CHANGES || bytes >= MOST_LINE || !more {
            bytes = 0;
            let changes: Vec<&str> = lines.iter().map(String::as_str).collect();
            let outcome = found.table.apply(&changes);
            made += outcome.made as u64;
            refusals += outcome.refused.len() as u64;
            for no in outcome.refused.into_iter().take(REFUSALS - refused.len()) {
                refused.push((seen + no.change as u64 + 1, no.message));
            }
            seen += lines.len() as u64;
            lines.clear();
        }
    }
    Ok(Answer::Changed { made, refused, refusals })
}

/// Passes over the changes that follow.
fn skip(reader: &mut impl BufRead) -> io::Result<()> {
    let mut line = Vec::new();
    while read_line(reader, &mut line)? && !line.is_empty() {}
    Ok(())
}

fn act(service: &Service, module: &str, action: Action) -> Answer {
    let telemetries = service.instance.board().telemetries();
    let Some(number) = telemetries[0].modules.iter().position(|told| told.name == module) else {
        return Answer::Error(format!("no module is called '{module}'"));
    };
    match service.instance.act(&action.of(number)) {
        Ok(()) => Answer::Done,
        Err(message) => Answer::Error(message),
    }
}
