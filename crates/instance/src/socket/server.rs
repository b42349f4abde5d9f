//! Serves the socket: one thread for the listener, and one for each connection.

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

use forebay_graph::files::check_object;
use forebay_graph::secret::{without_keys, without_keys_but};
use forebay_protocol::locate::{check_socket_path, is_listened_at};
use forebay_protocol::{Request, Response, VERSION};
use serde_json::Value;

use super::connections::{Connection, Connections, MOST_CONNECTIONS};
use super::lines::Lines;
use super::moving;
use super::service::{self, Details, Drops, Service, Wanted};
use super::tables;
use super::watch::Watch;
use crate::events::EventLog;

/// The interval at which the listener checks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// The names of the requests, as in the field `do`. `hello` reports them, so a new [`Request`] must be added here.
const REQUESTS: [&str; 16] = [
    "hello", "config", "report", "watch", "check", "reload", "move", "graph", "tables", "entries", "change", "trace",
    "drops", "act", "events", "stop",
];

/// A socket that exists but does not respond yet. Dropping it removes it.
pub struct Bound {
    path: PathBuf,
    /// The socket's device and inode. They identify the file, so that another file of the same name is not removed.
    inode: (u64, u64),
    listener: UnixListener,
}

impl Bound {
    /// Makes the socket at `path`.
    ///
    /// # Errors
    /// Returns an error if the path is too long, if another process listens at the path, if the path has a file that is
    /// not a socket, or if the system cannot make the socket.
    pub fn at(path: &Path) -> io::Result<Self> {
        check_socket_path(path)?;
        if let Ok(metadata) = path.symlink_metadata() {
            if !metadata.file_type().is_socket() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "the path has a file that is not a socket: use another path",
                ));
            }
            match is_listened_at(path) {
                Ok(true) => {
                    let error = "another pipeline listens on this path: end that pipeline, or use another path";
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, error));
                }
                // A process that was killed has left the socket.
                Ok(false) => std::fs::remove_file(path)?,
                Err(error) => return Err(error),
            }
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        let inode = path.symlink_metadata().map(|metadata| (metadata.dev(), metadata.ino()))?;
        Ok(Self { path: path.to_owned(), inode, listener })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.path.symlink_metadata().is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The server of a socket. Dropping it ends the listener and removes the socket. Open connections stay until their
/// clients leave.
pub struct Server {
    bound: Arc<Bound>,
    /// Ends the listener when it is set.
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve the socket.
    ///
    /// # Errors
    /// Returns an error if the system cannot create a thread.
    pub fn start(bound: Bound, service: impl Into<Arc<Service>>) -> io::Result<Self> {
        let (bound, service, over) = (Arc::new(bound), service.into(), Arc::new(AtomicBool::new(false)));
        let (listening, ends) = (Arc::clone(&bound), Arc::clone(&over));
        let listen = move || listen(&listening.listener, &service, &ends);
        let thread = std::thread::Builder::new().name("socket".to_owned()).spawn(listen)?;
        Ok(Self { bound, over, thread: Some(thread) })
    }

    /// Returns the path of the socket.
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

/// Accepts connections, each on its own thread, until `over` is set.
fn listen(listener: &UnixListener, service: &Arc<Service>, over: &AtomicBool) {
    let connections = Arc::new(Connections::default());
    while !over.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        // A connection that cannot be set up is closed, which its client sees.
        let Ok(handle) = stream.set_nonblocking(false).and_then(|()| stream.try_clone()) else { continue };
        let Some(connection) = connections.enter(handle, service.patience) else {
            let error = format!("all {MOST_CONNECTIONS} allowed connections are open and in use: try again later");
            let _ = send(&mut BufWriter::new(&stream), &Response::Error(error));
            continue;
        };
        let (service, all, own) = (Arc::clone(service), Arc::clone(&connections), Arc::clone(&connection));
        let talk = move || {
            let leaving = Leaving { all: &all, own: &own };
            // After an error, the rest of a request is not read. Changes of a table that were made before the error
            // stay in force.
            let reason = match talk(&own, &service) {
                Err(error) => Some(error.to_string()),
                Ok(()) => own.why_over().map(str::to_owned),
            };
            if let Some(reason) = reason {
                leaving.send(reason);
            }
        };
        if std::thread::Builder::new().name("connection".to_owned()).spawn(talk).is_err() {
            connections.leave(&connection);
        }
    }
}

/// Ends a connection when it is dropped, also if its thread panics. Then another client can connect, and the client of
/// this connection does not wait any longer.
struct Leaving<'a> {
    all: &'a Connections,
    own: &'a Arc<Connection>,
}

impl Leaving<'_> {
    /// Sends the reason to the client.
    fn send(&self, reason: String) {
        let _ = send(&mut BufWriter::new(self.own.stream()), &Response::Error(reason));
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.send("there is no response: this is a defect of Forebay".to_owned());
        }
        // Dropping the stream would not close the connection while clones of the stream exist.
        let _ = self.own.stream().shutdown(Shutdown::Both);
        self.all.leave(self.own);
    }
}

/// Writes a response as one line.
fn send(writer: &mut impl Write, response: &Response) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, response)?;
    writer.write_all(b"\n")?;
    writer.flush()
}

/// Returns a response in which possible keys are hidden, because a request may contain a key in the place of a name.
/// Names of running modules are not hidden.
fn without_secrets(response: Response, service: &Service) -> Response {
    let hide = |text: String| {
        if without_keys(&text) == text {
            return text;
        }
        let telemetries = service.instance.board().telemetries();
        let modules = telemetries.first().into_iter().flat_map(|telemetry| &telemetry.modules);
        without_keys_but(&text, &modules.map(|module| module.name.clone()).collect())
    };
    match response {
        Response::Error(text) => Response::Error(hide(text)),
        Response::Changed { made, entries, refused, refusals, warnings } => {
            let refused = refused.into_iter().map(|(number, text)| (number, hide(text))).collect();
            let warnings = warnings.into_iter().map(hide).collect();
            Response::Changed { made, entries, refused, refusals, warnings }
        }
        response => response,
    }
}

/// Serves one connection until it ends.
fn talk(connection: &Connection, service: &Service) -> io::Result<()> {
    let stream = connection.stream();
    // The time limit for a client that reads no responses is the same as for a client that does not end a line.
    stream.set_write_timeout(Some(service.patience.line))?;
    let (mut lines, mut writer) = (Lines::new(stream, connection, service.patience), BufWriter::new(stream));
    let board = service.instance.board();
    let mut last = board.nothing();
    let (mut line, mut is_greeted) = (Vec::new(), false);
    while lines.next(&mut line)? {
        connection.note_request();
        let request = read_request(&line);
        // The responses to these requests already report faults without the secrets of the configuration.
        // `without_secrets` would also hide names.
        let is_reload = matches!(request, Ok(Request::Reload { .. } | Request::Move { .. } | Request::Check { .. }));
        // Delays the end of the run until the response with the number of missing packets is sent.
        let mut end_delay = None;
        let response = match request {
            Err(error) => Response::Error(not_a_request(&line, &error)),
            Ok(Request::Hello { protocol }) => {
                is_greeted = protocol == Some(VERSION);
                if is_greeted { service::hello(service, &REQUESTS) } else { other_version(protocol) }
            }
            Ok(_) if !is_greeted => other_version(None),
            Ok(Request::Config {}) => service::config(service),
            Ok(Request::Report { recent: is_wanted, rules, histograms }) => {
                let details = Details { rules, histograms };
                let recent = service::recent_report(service, &mut last, &details);
                let (whole, census) = service::whole_report(service, &last, &details);
                let recent = is_wanted.then(|| Box::new(recent));
                Response::Report { recent, whole: Box::new(whole), census }
            }
            Ok(Request::Watch { interval_ms }) => match service::interval(interval_ms) {
                Ok(interval) => {
                    let mut watch = Watch::start(service);
                    let mut respond = |response| send(&mut writer, &response);
                    while !watch.send_next(&mut respond)?.is_over(&mut lines, interval)? {}
                    return Ok(());
                }
                Err(error) => Response::Error(error),
            },
            Ok(Request::Check { text, config_paths }) => service::check(service, &text, config_paths),
            Ok(Request::Reload { file, text, config_paths, set, forget, if_version }) => {
                let wanted = Wanted { file, text, config_paths, sets: set.unwrap_or_default(), forget, if_version };
                service::reload(service, wanted)
            }
            Ok(Request::Move { modules, most, lose_sessions }) => {
                moving::move_modules(service, &modules, most, lose_sessions)
            }
            Ok(Request::Graph {}) => Response::Graph(Box::new(service.instance.graph())),
            Ok(Request::Tables {}) => tables::tables(service),
            Ok(Request::Entries { module, table, after, filter, most }) => {
                let which = (filter.as_deref(), after.as_deref());
                tables::entries(service, &module, table.as_deref(), which, most)
            }
            Ok(Request::Change { module, table }) => match tables::find(service, &module, table.as_deref()) {
                Ok(found) => tables::change(service, &found, &mut lines)?,
                Err(message) => {
                    tables::skip(&mut lines)?;
                    Response::Error(message)
                }
            },
            Ok(Request::Trace { count, filter }) => {
                match (service.trace)(&*service.instance, count, filter.as_deref()) {
                    Ok(stories) => {
                        trace(count, &stories.packets, &mut lines, &mut writer)?;
                        Response::Traced
                    }
                    Err(message) => Response::Error(message),
                }
            }
            Ok(Request::Events { after, follow: false }) => Response::Events(service.events.after(after)),
            Ok(Request::Events { after, follow: true }) => {
                follow(after, &service.events, &mut lines, &mut writer)?;
                return Ok(());
            }
            Ok(Request::Act { module, action }) => service::act(service, &module, action),
            Ok(Request::Drops { count, for_ns, filter }) => {
                match (service.drops)(&*service.instance, filter.as_deref()) {
                    Ok(drops) => {
                        end_delay = Some(service.ending.delay());
                        let most = (count.unwrap_or(u64::MAX), for_ns.map(Duration::from_nanos));
                        watch(most, &drops, &mut lines, &mut writer)?
                    }
                    Err(message) => Response::Error(message),
                }
            }
            Ok(Request::Stop { wait: false }) => {
                service.stop.store(true, Ordering::Relaxed);
                Response::Done
            }
            Ok(Request::Stop { wait: true }) => {
                service.stop.store(true, Ordering::Relaxed);
                let send = |ended| send(&mut writer, &Response::Ended(Box::new(ended)));
                return service.ending.wait(&mut lines, send);
            }
        };
        let response = if is_reload { response } else { without_secrets(response, service) };
        send(&mut writer, &response)?;
        drop(end_delay);
    }
    Ok(())
}

/// Returns the error for a client of another version, or for a connection that does not begin with `hello`.
fn other_version(theirs: Option<u32>) -> Response {
    let theirs = match theirs {
        Some(version) => format!("the client speaks protocol version {version}"),
        None => "the client names no protocol version (an older `forebay` names none)".to_owned(),
    };
    Response::Error(format!(
        "{theirs}: this instance speaks version {VERSION} (Forebay {}); use a client of this \
         version, which begins with {{\"do\":\"hello\",\"protocol\":{VERSION}}}",
        env!("CARGO_PKG_VERSION")
    ))
}

/// Reads a request. serde would also read a list as a request.
fn read_request(line: &[u8]) -> serde_json::Result<Request> {
    check_object(line)?;
    serde_json::from_slice(line)
}

/// Returns the error for a line that is not a request. The line may contain a key, so nothing of it is quoted, except
/// the name of a request.
fn not_a_request(line: &[u8], error: &serde_json::Error) -> String {
    // For some errors in keys and values, serde does not report the position.
    let place = match (error.line(), error.column()) {
        (0, _) => String::new(),
        (line, column) => format!(" (line {line} column {column})"),
    };
    let value: Value = serde_json::from_slice(line).unwrap_or_default();
    let named = REQUESTS.into_iter().find(|name| value["do"] == **name);
    let allowed = named.and_then(fields).unwrap_or_else(|| {
        let requests = REQUESTS.map(|name| format!("`{name}`")).join(", ");
        format!("allowed are {requests}, for example {{\"do\":\"report\"}}")
    });
    format!("not a request{place}: {allowed}")
}

/// Returns a phrase that lists the fields of a request.
fn fields(request: &str) -> Option<String> {
    let schema = forebay_protocol::schema::request();
    let mut forms = schema.get("oneOf")?.as_array()?.iter();
    let properties = forms.find_map(|form| form["properties"].as_object().filter(|it| it["do"]["const"] == request))?;
    let names: Vec<_> = properties.keys().filter(|name| *name != "do").map(|name| format!("`{name}`")).collect();
    let noun = if names.len() == 1 { "field" } else { "fields" };
    Some(match &names[..] {
        [] => format!("`{request}` has no fields"),
        names => {
            format!("`{request}` has the {noun} {} (`forebay schema request` has their values)", names.join(", "))
        }
    })
}

/// Sends the paths of packets as they are traced. Returns after `count` packets, or when the client disconnects.
fn trace(count: u64, stories: &Receiver<String>, lines: &mut Lines<'_>, writer: &mut impl Write) -> io::Result<()> {
    let mut sent = 0;
    while sent < count {
        match stories.recv_timeout(LOOK) {
            Ok(story) => {
                send(writer, &Response::Story(story))?;
                sent += 1;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) if lines.is_over()? => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Ok(())
}

/// Sends events as they are recorded, until the client disconnects.
fn follow(mut after: u64, log: &EventLog, lines: &mut Lines<'_>, writer: &mut impl Write) -> io::Result<()> {
    while !lines.is_over()? {
        let events = log.wait_after(after, LOOK);
        let Some(last) = events.last() else { continue };
        after = last.id;
        send(writer, &Response::Events(events))?;
    }
    Ok(())
}

/// Sends packets as they are dropped, up to the requested number and time, or until the client closes its side.
fn watch(
    (count, time): (u64, Option<Duration>),
    drops: &Drops,
    lines: &mut Lines<'_>,
    writer: &mut impl Write,
) -> io::Result<Response> {
    let (begin, mut looked, mut sent) = (Instant::now(), Instant::now(), 0);
    while sent < count {
        let remaining = time.map_or(LOOK, |time| time.saturating_sub(begin.elapsed()).min(LOOK));
        if remaining.is_zero() {
            break;
        }
        // Flush before each wait, so that the client does not wait for packets that are already written.
        let next = match drops.packets.try_recv() {
            Ok(packet) => Ok(packet),
            Err(_) => {
                writer.flush()?;
                drops.packets.recv_timeout(remaining)
            }
        };
        match next {
            Ok(packet) => {
                serde_json::to_writer(&mut *writer, &Response::Dropped(packet))?;
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
    Ok(Response::Watched { sent, lost: drops.lost.load(Ordering::Relaxed) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of serde quotes text of a wrong line, which may contain a key.
    #[test]
    fn nothing_of_a_line_that_is_no_request_is_shown() {
        let requests = REQUESTS.map(|name| format!("`{name}`")).join(", ");
        let requests = format!(": allowed are {requests}, for example {{\"do\":\"report\"}}");
        let wrong =
            |line: &str| not_a_request(line.as_bytes(), &read_request(line.as_bytes()).expect_err("no request"));
        for (line, rest) in [
            ("{\"do\":\"Kq7wZr5tXy3u\"}", &*requests),
            ("{\"do\":\"report\",\"Kq7wZr5tXy3u\":1}", ": `report` has the fields `histograms`, `recent`, `rules` ("),
            ("{\"do\":\"watch\",\"Kq7wZr5tXy3u\":1}", ": `watch` has the field `interval_ms` ("),
            ("{\"do\":\"config\",\"Kq7wZr5tXy3u\":1}", ": `config` has no fields"),
            ("{\"do\":\"reload\",\"set\":\"Kq7wZr5tXy3u\"}", ": `reload` has the fields `"),
            ("{\"do\":\"reload\",\"forget\":\"Kq7wZr5tXy3u\"}", ": `reload` has the fields `"),
            ("{\"do\":\"trace\",\"count\":\"Kq7wZr5tXy3u\"}", ": `trace` has the fields `"),
            ("{\"Kq7wZr5tXy3u\":1}", &requests),
            // Regression: a list with the name of a request was a request.
            ("[\"stop\",\"Kq7wZr5tXy3u\"]", &requests),
            ("[\"stop\"]", &requests),
            ("\"Kq7wZr5tXy3u\"", &requests),
            ("Kq7wZr5tXy3u", &requests),
        ] {
            let why = wrong(line);
            assert!(why.starts_with("not a request") && why.contains(rest) && !why.contains("Kq7w"), "{why}");
        }
        assert!(wrong("{\"do\":\"tab").starts_with("not a request (line 1 column 10): allowed are `hello`, "));
    }

    #[test]
    fn every_request_is_listed() {
        let unknown = serde_json::from_str::<Request>("{\"do\":\"x\"}").expect_err("no request").to_string();
        assert_eq!(unknown.matches('`').count(), 2 * (REQUESTS.len() + 1), "{unknown}");
        assert!(REQUESTS.iter().all(|name| unknown.contains(&format!("`{name}`"))), "{unknown}");
    }
}
