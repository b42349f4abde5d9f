//! Answers whoever asks: a thread for the socket, and one for each connection.

use std::io::{self, BufWriter, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_graph::event::EventLog;
use forebay_graph::secret::{without_keys, without_keys_but};

use super::connections::{Connection, Connections, MOST_CONNECTIONS};
use super::lines::Lines;
use super::moving;
use super::place::is_listened_at;
use super::service::{self, Drops, Service};
use super::{Answer, Request};

/// How often the listener looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The requests, by the names that stand in `do`.
const REQUESTS: [&str; 14] = [
    "hello", "config", "report", "reload", "move", "graph", "tables", "entries", "change", "trace", "drops", "act",
    "events", "stop",
];

/// A socket of one's own, at which nobody answers yet; dropping it takes it away.
pub struct Bound {
    path: PathBuf,
    /// The socket's own device and number: another file of its name is left alone.
    place: (u64, u64),
    listener: UnixListener,
}

impl Bound {
    /// Makes the socket at `path`.
    ///
    /// # Errors
    /// As making sockets; also a path where another one listens already.
    pub fn at(path: &Path) -> io::Result<Self> {
        if let Ok(told) = path.symlink_metadata() {
            if !told.file_type().is_socket() {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
            }
            match is_listened_at(path) {
                Ok(true) => {
                    let told = "another pipeline listens there: end that one, or give this run a path of its own";
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, told));
                }
                // It was left by a process that was killed.
                Ok(false) => std::fs::remove_file(path)?,
                Err(error) => return Err(error),
            }
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let place = path.symlink_metadata().map(|told| (told.dev(), told.ino()))?;
        Ok(Self { path: path.to_owned(), place, listener })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.path.symlink_metadata().is_ok_and(|told| (told.dev(), told.ino()) == self.place) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Who answers at a socket; dropping it takes the socket away.
pub struct Server {
    bound: Arc<Bound>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers at the socket.
    ///
    /// # Errors
    /// As starting a thread.
    pub fn start(bound: Bound, service: impl Into<Arc<Service>>) -> io::Result<Self> {
        let (bound, service, over) = (Arc::new(bound), service.into(), Arc::new(AtomicBool::new(false)));
        let (there, ends) = (Arc::clone(&bound), Arc::clone(&over));
        let listen = move || listen(&there.listener, &service, &ends);
        let thread = std::thread::Builder::new().name("socket".to_owned()).spawn(listen)?;
        Ok(Self { bound, over, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.bound.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(listener: &UnixListener, service: &Arc<Service>, over: &AtomicBool) {
    let connections = Arc::new(Connections::default());
    while !over.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        // What cannot be set up is dropped, which its client sees.
        let Ok(theirs) = stream.set_nonblocking(false).and_then(|()| stream.try_clone()) else { continue };
        let Some(connection) = connections.enter(theirs, service.patience) else {
            let told = format!("{MOST_CONNECTIONS} connections are open and at work, which is as many as there may be");
            let _ = tell(&mut BufWriter::new(&stream), &Answer::Error(told));
            continue;
        };
        let (service, all, own) = (Arc::clone(service), Arc::clone(&connections), Arc::clone(&connection));
        let talk = move || {
            let leaving = Leaving { all: &all, own: &own };
            // Who goes away in the middle of a sentence has said nothing.
            let why = match talk(&own, &service) {
                Err(error) => Some(error.to_string()),
                Ok(()) => own.why_over().map(str::to_owned),
            };
            if let Some(why) = why {
                leaving.tell(why);
            }
        };
        if std::thread::Builder::new().name("connection".to_owned()).spawn(talk).is_err() {
            connections.leave(&connection);
        }
    }
}

/// Ends a connection when it is dropped, also where its thread panics: its place is another's then, and its client waits no
/// longer.
struct Leaving<'a> {
    all: &'a Connections,
    own: &'a Arc<Connection>,
}

impl Leaving<'_> {
    /// Says why, to whoever still listens.
    fn tell(&self, why: String) {
        let _ = tell(&mut BufWriter::new(self.own.stream()), &Answer::Error(why));
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell("there is no answer: this is a defect of Forebay".to_owned());
        }
        // Clones of the stream may be there for a moment yet.
        let _ = self.own.stream().shutdown(Shutdown::Both);
        self.all.leave(self.own);
    }
}

fn tell(writer: &mut impl Write, answer: &Answer) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, answer)?;
    writer.write_all(b"\n")?;
    writer.flush()
}

/// An answer without what may be a key: one may stand where a request has a name. Modules that run are no keys.
fn without_secrets(answer: Answer, service: &Service) -> Answer {
    let hide = |why: String| {
        if without_keys(&why) == why {
            return why;
        }
        let telemetries = service.instance.board().telemetries();
        let modules = telemetries.first().into_iter().flat_map(|telemetry| &telemetry.modules);
        without_keys_but(&why, &modules.map(|module| module.name.clone()).collect())
    };
    match answer {
        Answer::Error(why) => Answer::Error(hide(why)),
        Answer::Changed { made, entries, refused, refusals, warnings } => {
            let refused = refused.into_iter().map(|(number, why)| (number, hide(why))).collect();
            let warnings = warnings.into_iter().map(hide).collect();
            Answer::Changed { made, entries, refused, refusals, warnings }
        }
        answer => answer,
    }
}

/// One connection, to its end.
fn talk(connection: &Connection, service: &Service) -> io::Result<()> {
    let stream = connection.stream();
    // One that takes no answers is waited for no longer than one that ends no line.
    stream.set_write_timeout(Some(service.patience.line))?;
    let (mut lines, mut writer) = (Lines::new(stream, connection, service.patience), BufWriter::new(stream));
    let board = service.instance.board();
    let mut last = board.nothing();
    let mut line = Vec::new();
    while lines.next(&mut line)? {
        connection.note_asked();
        let request = serde_json::from_slice(&line);
        // The problems of a configuration are shown without its secrets, and with all names.
        let is_reload = matches!(request, Ok(Request::Reload { .. } | Request::Move { .. }));
        let answer = match request {
            Err(error) => Answer::Error(not_a_request(&error)),
            Ok(Request::Hello {}) => service::hello(service, &REQUESTS),
            Ok(Request::Config {}) => service::config(service),
            Ok(Request::Report {}) => service::report(service, &mut last),
            Ok(Request::Reload { file, set, forget }) => {
                service::reload(service, file, &set.unwrap_or_default(), forget)
            }
            Ok(Request::Move { modules, most, lose_sessions }) => {
                moving::move_modules(service, &modules, most, lose_sessions)
            }
            Ok(Request::Graph {}) => Answer::Graph(Box::new(service.instance.graph())),
            Ok(Request::Tables {}) => service::tables(service),
            Ok(Request::Entries { module, table, after, filter, most }) => {
                let which = (filter.as_deref(), after.as_deref());
                service::entries(service, &module, table.as_deref(), which, most)
            }
            Ok(Request::Change { module, table }) => match service::find(service, &module, table.as_deref()) {
                Ok(found) => service::change(service, &found, &mut lines)?,
                Err(message) => {
                    service::skip(&mut lines)?;
                    Answer::Error(message)
                }
            },
            Ok(Request::Trace { count, filter }) => {
                match (service.trace)(&*service.instance, count, filter.as_deref()) {
                    Ok(stories) => {
                        trace(count, &stories.told, &mut lines, &mut writer)?;
                        Answer::Told
                    }
                    Err(message) => Answer::Error(message),
                }
            }
            Ok(Request::Events { after, follow: false }) => Answer::Events(service.events.after(after)),
            Ok(Request::Events { after, follow: true }) => {
                follow(after, &service.events, &mut lines, &mut writer)?;
                return Ok(());
            }
            Ok(Request::Act { module, action }) => service::act(service, &module, action),
            Ok(Request::Drops { count, for_ns, filter }) => {
                match (service.drops)(&*service.instance, filter.as_deref()) {
                    Ok(drops) => {
                        let most = (count.unwrap_or(u64::MAX), for_ns.map(Duration::from_nanos));
                        watch(most, &drops, &mut lines, &mut writer)?
                    }
                    Err(message) => Answer::Error(message),
                }
            }
            Ok(Request::Stop { wait: false }) => {
                service.stop.store(true, Ordering::Relaxed);
                Answer::Done
            }
            Ok(Request::Stop { wait: true }) => {
                service.stop.store(true, Ordering::Relaxed);
                let tell = |ended| tell(&mut writer, &Answer::Ended(Box::new(ended)));
                return service.ending.wait(&mut lines, tell);
            }
        };
        let answer = if is_reload { answer } else { without_secrets(answer, service) };
        tell(&mut writer, &answer)?;
    }
    Ok(())
}

/// Where a line is no request, and what is one. It may have a setting with a key in it: nothing of it is quoted.
fn not_a_request(error: &serde_json::Error) -> String {
    let requests = REQUESTS.map(|name| format!("`{name}`")).join(", ");
    // Of keys and values serde does not know where they stand.
    let place = match (error.line(), error.column()) {
        (0, _) => String::new(),
        (line, column) => format!(" (line {line} column {column})"),
    };
    format!("not a request{place}: allowed are {requests}")
}

/// Tells `count` stories as they come, or as many as there are before the client goes away.
fn trace(count: u64, stories: &Receiver<String>, lines: &mut Lines<'_>, writer: &mut impl Write) -> io::Result<()> {
    let mut told = 0;
    while told < count {
        match stories.recv_timeout(LOOK) {
            Ok(story) => {
                tell(writer, &Answer::Story(story))?;
                told += 1;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) if lines.is_over()? => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Ok(())
}

/// Sends events as they are recorded, until the client goes away.
fn follow(mut after: u64, log: &EventLog, lines: &mut Lines<'_>, writer: &mut impl Write) -> io::Result<()> {
    while !lines.is_over()? {
        let events = log.wait_after(after, LOOK);
        let Some(last) = events.last() else { continue };
        after = last.id;
        tell(writer, &Answer::Events(events))?;
    }
    Ok(())
}

/// Sends packets as they are dropped, as many and for as long as is wanted, or until the client says that it is enough
/// by sending no more.
fn watch(
    (count, time): (u64, Option<Duration>),
    drops: &Drops,
    lines: &mut Lines<'_>,
    writer: &mut impl Write,
) -> io::Result<Answer> {
    let (begin, mut looked, mut sent) = (Instant::now(), Instant::now(), 0);
    while sent < count {
        let left = time.map_or(LOOK, |time| time.saturating_sub(begin.elapsed()).min(LOOK));
        if left.is_zero() {
            break;
        }
        // The client has all that was written before the next wait.
        let next = match drops.packets.try_recv() {
            Ok(packet) => Ok(packet),
            Err(_) => {
                writer.flush()?;
                drops.packets.recv_timeout(left)
            }
        };
        match next {
            Ok(packet) => {
                serde_json::to_writer(&mut *writer, &Answer::Dropped(packet))?;
                writer.write_all(b"\n")?;
                sent += 1;
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            if lines.is_over()? {
                break;
            }
        }
    }
    Ok(Answer::Watched { sent, lost: drops.lost.load(Ordering::Relaxed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What serde says of a wrong line quotes any text in it.
    #[test]
    fn nothing_of_a_line_that_is_no_request_is_shown() {
        for line in [
            "{\"do\":\"Kq7wZr5tXy3u\"}",
            "{\"do\":\"report\",\"Kq7wZr5tXy3u\":1}",
            "{\"do\":\"reload\",\"set\":\"Kq7wZr5tXy3u\"}",
            "{\"do\":\"reload\",\"forget\":\"Kq7wZr5tXy3u\"}",
            "{\"do\":\"trace\",\"count\":\"Kq7wZr5tXy3u\"}",
            "{\"Kq7wZr5tXy3u\":1}",
            "\"Kq7wZr5tXy3u\"",
            "Kq7wZr5tXy3u",
        ] {
            let why = not_a_request(&serde_json::from_str::<Request>(line).expect_err("no request"));
            let rest = format!(": allowed are {}", REQUESTS.map(|name| format!("`{name}`")).join(", "));
            assert!(why.starts_with("not a request") && why.ends_with(&rest) && !why.contains("Kq7w"), "{why}");
        }
        let cut = serde_json::from_str::<Request>("{\"do\":\"tab").expect_err("no request");
        assert!(not_a_request(&cut).starts_with("not a request (line 1 column 10): allowed are `hello`, "));
    }

    #[test]
    fn every_request_is_listed() {
        let unknown = serde_json::from_str::<Request>("{\"do\":\"x\"}").expect_err("no request").to_string();
        assert_eq!(unknown.matches('`').count(), 2 * (REQUESTS.len() + 1), "{unknown}");
        assert!(REQUESTS.iter().all(|name| unknown.contains(&format!("`{name}`"))), "{unknown}");
    }
}
