//! Tests the socket of a running pipeline with clients that send nothing or incomplete requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_instance::{
    Instance, choose,
    socket::{About, Bound, Patience, Server, Service},
    start,
};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_protocol::{Client, MAX_REQUEST, Request, Response};

mod config;

const PIPELINE: &str = "
ports: { in: { generator: { rate: 1kpps, destination: 10.0.0.0/8 } }, out: { sink: {} } }
modules: { route: { ip_lookup: { routes: ['10.0.0.0/8 0'] } } }
pipeline: [ in -> route -> out ]
";

/// A time limit that no test reaches.
const LONG: Duration = Duration::from_secs(3600);
const NO_HURRY: Patience = Patience { request: LONG, line: LONG, idle: LONG, silent: LONG };

/// The first line of a connection.
const HELLO: &[u8] = b"{\"do\":\"hello\",\"protocol\":2}\n";
/// The request before a list of changes.
const CHANGE: &[u8] = b"{\"do\":\"change\",\"module\":\"route\"}\n";
/// The number of packets to trace at which the server panics.
const DEFECT: u64 = 13;

fn with_server(patience: Patience, test: impl FnOnce(&Path)) {
    with_pipeline(PIPELINE, patience, test);
}

fn with_pipeline(pipeline: &str, patience: Patience, test: impl FnOnce(&Path)) {
    let source = Source::new(pipeline, "test.yaml", Path::new(""));
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, cores, made, .. } = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let cores = choose(&cores).expect("a core");
    let instance: Arc<dyn Instance> =
        start(plans, &cores, made, Box::new(|_| None), forebay_instance::ControlInputs::default()).expect("it starts");
    let service = Service {
        instance: Arc::clone(&instance),
        source: Mutex::new(source),
        origin: None,
        state: None,
        fingerprint: Mutex::default(),
        events: Arc::default(),
        trace: Box::new(|_, count, _| {
            assert_ne!(count, DEFECT, "a simulated defect");
            Err("not here".to_owned())
        }),
        patience,
        stop: Arc::new(AtomicBool::new(false)),
        drops: Box::new(|_, _| Err("not here".to_owned())),
        about: About::default(),
        ledger: Mutex::default(),
        ending: Arc::default(),
    };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let server = Server::start(Bound::at(&folder.path().join("s")).expect("a socket"), service).expect("a socket");
    test(server.path());
    drop(server);
    assert!(instance.end().troubles.is_empty());
}

fn connect_and_request(path: &Path) -> Result<Client, String> {
    let mut client = Client::connect(path).map_err(|error| error.to_string())?;
    match client.request(&Request::Tables {}) {
        Ok(Response::Tables(tables)) if tables.len() == 1 => Ok(client),
        other => Err(format!("{other:?}")),
    }
}

/// Returns a connection after the exchange of versions.
fn greeted(path: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.write_all(HELLO).expect("it listens");
    let mut byte = [0];
    while byte != *b"\n" {
        stream.read_exact(&mut byte).expect("a response");
    }
    stream
}

/// Returns all responses to a client that sends `lines` and then nothing.
fn responses(path: &Path, lines: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    // The server may have closed the connection already.
    let _ = stream.write_all(&[HELLO, lines].concat());
    let mut responses = String::new();
    let _ = stream.read_to_string(&mut responses);
    let (hello, rest) = responses.split_once('\n').expect("a line");
    assert!(hello.starts_with("{\"hello\":{\"protocol\":2,"), "{hello}");
    rest.to_owned()
}

/// Regression: a client of another version got a response that it could not read, or misread.
#[test]
fn clients_of_another_version_get_an_error_that_names_both() {
    with_server(NO_HURRY, |path| {
        let response = |line: &[u8]| {
            let mut stream = UnixStream::connect(path).expect("it listens");
            stream.write_all(line).expect("it listens");
            let mut response = String::new();
            BufReader::new(stream).read_line(&mut response).expect("UTF-8");
            response
        };
        for old in [&b"{\"do\":\"report\"}\n"[..], b"{\"do\":\"hello\"}\n", CHANGE] {
            let error = response(old);
            assert!(error.starts_with("{\"error\":\"the client names no protocol version"), "{error}");
            assert!(error.contains("this instance speaks version 2 (Forebay "), "{error}");
        }
        let error = response(b"{\"do\":\"hello\",\"protocol\":3}\n");
        assert!(error.starts_with("{\"error\":\"the client speaks protocol version 3: this instance"), "{error}");
    });
}

/// Regression: reports with thousands of rules were longer than the documented limit of a line.
#[test]
fn counters_of_rules_are_reported_on_request_only() {
    let pipeline = "
ports: { in: { generator: { rate: 1kpps, destination: 10.0.0.0/8 } }, out: { sink: {} } }
modules: { fw: { acl: { rules: ['permit any'] } }, route: { ip_lookup: { routes: ['10.0.0.0/8 0'] } } }
pipeline: [ in -> fw -> route -> out ]
";
    with_pipeline(pipeline, NO_HURRY, |path| {
        let mut client = Client::connect(path).expect("it listens");
        let mut headings = |rules: &[&str]| {
            let rules = rules.iter().map(|name| (*name).to_owned()).collect();
            let request = Request::Report { recent: true, rules, histograms: false };
            let Ok(Response::Report { recent: Some(recent), whole, .. }) = client.request(&request) else {
                panic!("no report")
            };
            let module = |report: &forebay_protocol::Report| {
                let module = report.modules.iter().find(|module| module.name == "fw").expect("a module");
                module.counters.keys().cloned().collect::<Vec<_>>()
            };
            assert_eq!(module(&recent), module(&whole));
            module(&whole)
        };
        let all = ["compiling given up", "rules added", "rules, IPv4", "rules, IPv6"].map(str::to_owned);
        assert_eq!(headings(&[]), all[..2]);
        assert_eq!(headings(&["route"]), all[..2]);
        assert_eq!(headings(&["fw"]), all);
        assert_eq!(headings(&["*"]), all);
    });
}

/// Regression: because of sixty-four clients that sent nothing, no other client could connect.
#[test]
fn silent_clients_do_not_keep_others_out() {
    with_server(Patience { silent: Duration::ZERO, ..NO_HURRY }, |path| {
        let connect = || UnixStream::connect(path).expect("it listens");
        let mut silent: Vec<_> = (0..300).map(|_| connect()).collect();
        silent.push(connect());
        silent.last_mut().expect("one").write_all(b"{\"do\":").expect("it listens");
        let mut asking: Vec<_> = (0..64).map(|_| connect_and_request(path).expect("there is room")).collect();
        // Clients with requests stay connected. A further client gets an error.
        let refused = connect_and_request(path).err().expect("no room");
        assert!(refused.contains("all 64 allowed connections are open and in use"), "{refused}");
        for client in &mut asking {
            assert!(matches!(client.request(&Request::Tables {}), Ok(Response::Tables(_))));
        }
        asking.pop();
        // The connection is free when its thread has seen the end.
        while connect_and_request(path).is_err() {
            std::thread::yield_now();
        }
        let mut last = String::new();
        BufReader::new(&silent[0]).read_line(&mut last).expect("UTF-8");
        assert!(
            last.starts_with("{\"error\":\"the server closed this idle connection to accept another client"),
            "{last}"
        );
    });
}

/// Regression: the server waited without limit for the end of a line.
#[test]
fn the_server_waits_for_a_client_with_time_limits() {
    let short = Duration::from_millis(20);
    with_server(Patience { line: short, ..NO_HURRY }, |path| {
        assert_eq!(responses(path, b"{\"do\":"), "{\"error\":\"a line was not ended in 0.02 s\"}\n");
        let change = responses(path, &[CHANGE, b"add 10.1.0.0/16 0\nadd 10.2."].concat());
        assert_eq!(change, "{\"error\":\"a line was not ended in 0.02 s (no change was made)\"}\n");
        assert!(connect_and_request(path).is_ok());
    });
    with_server(Patience { request: short, ..NO_HURRY }, |path| {
        assert_eq!(responses(path, b""), "{\"error\":\"no request came in 0.02 s\"}\n");
        let change = responses(path, &[CHANGE, b"add 10.1.0.0/16 0\n"].concat());
        assert_eq!(change, "{\"error\":\"no request came in 0.02 s (no change was made)\"}\n");
    });
}

/// Regression: the error of interrupted changes did not name the changes that were made. Whole blocks were made, and
/// the rest only if the end was forced.
#[test]
fn errors_of_interrupted_changes_name_the_changes_that_were_made() {
    with_server(NO_HURRY, |path| {
        let lines = |of: u8| (0..4_100u16).map(move |it| format!("add {of}.{}.{}.0/24 0\n", it >> 8, it & 0xff));
        let changes = |of, rest: &[u8]| [CHANGE, lines(of).collect::<String>().as_bytes(), rest].concat();
        let made = "(4096 of the first 4096 changes were made, and none of the later changes)";
        let long = responses(path, &changes(20, &[b'x'; MAX_REQUEST + 1]));
        assert_eq!(long, format!("{{\"error\":\"a line is longer than {MAX_REQUEST} bytes {made}\"}}\n"));
        let mut stream = greeted(path);
        stream.write_all(&changes(30, b"")).expect("it listens");
        stream.shutdown(std::net::Shutdown::Write).expect("it listens");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("UTF-8");
        let why = "the connection ended before the empty line that ends the changes";
        assert_eq!(response, format!("{{\"error\":\"{why} {made}\"}}\n"));
        let mut client = Client::connect(path).expect("it listens");
        let Ok(Response::Tables(tables)) = client.request(&Request::Tables {}) else { panic!("no tables") };
        assert_eq!(tables[0].entries, 1 + 2 * 4_096);
    });
}

/// Regression: a client whose changes were all refused filled the event log.
#[test]
fn refused_changes_are_not_events() {
    with_server(NO_HURRY, |path| {
        let mut client = connect_and_request(path).expect("there is room");
        let request = Request::Change { module: "route".to_owned(), table: None };
        let mut change = |mut lines: &[u8]| match client.change(&request, &mut lines) {
            Ok(Response::Changed { made, refusals, .. }) => (made, refusals),
            other => panic!("{other:?}"),
        };
        assert_eq!((change(b"nonsense\n"), change(b"")), ((0, 1), (0, 0)));
        assert_eq!(change(b"nonsense\nadd 10.7.0.0/16 0\n"), (1, 1));
        let Ok(Response::Events(events)) = client.request(&Request::Events { after: 0, follow: false }) else {
            panic!("no events")
        };
        let reported: Vec<_> = events.iter().map(|event| (event.event, event.fields["made"].as_u64())).collect();
        assert_eq!(reported, [(forebay_protocol::event::EventName::TableChanged, Some(1))]);
    });
}

/// A stream of changes. In the middle of it, other clients need the connection.
struct Interrupted<'a> {
    path: &'a Path,
    others: Vec<UnixStream>,
    blocks: u32,
}

impl Read for Interrupted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.blocks == 1 {
            // The first 63 take all free connections. The next one displaces this connection, the only idle one.
            self.others.extend((0..100).map(|_| UnixStream::connect(self.path).expect("it listens")));
            // The server accepts them one after the other, and refuses the last one.
            let _ = self.others[99].read_to_string(&mut String::new());
        }
        self.blocks += 1;
        let line = b"replace 10.0.0.0/8 0\n";
        let length = buffer.len() / line.len() * line.len();
        buffer[..length].chunks_mut(line.len()).for_each(|to| to.copy_from_slice(line));
        Ok(if self.blocks > 8 { 0 } else { length })
    }
}

/// Regression: the client got the number of the changes so far as if all changes had been made, or an error that the
/// pipeline had ended.
#[test]
fn a_client_that_is_displaced_in_the_middle_of_changes_gets_an_error() {
    with_server(Patience { idle: Duration::ZERO, ..NO_HURRY }, |path| {
        let mut client = connect_and_request(path).expect("there is room");
        let request = Request::Change { module: "route".to_owned(), table: None };
        let mut changes = Interrupted { path, others: Vec::new(), blocks: 0 };
        let error = client.change(&request, &mut changes).expect_err("an interrupted stream").to_string();
        assert!(error.starts_with("the server closed this idle connection to accept another client"), "{error}");
        assert!(
            error.ends_with(" were made, and none of the later changes)") || error.ends_with("(no change was made)")
        );
    });
}

/// Regression: a thread that panicked kept its connection, and its client waited for ever.
#[test]
fn a_panic_ends_only_its_own_connection() {
    with_server(NO_HURRY, |path| {
        let request = format!("{{\"do\":\"trace\",\"count\":{DEFECT}}}\n");
        for _ in 0..2 {
            // More than half of the connections each time.
            let mut asking: Vec<_> = (0..40).map(|_| greeted(path)).collect();
            asking.iter_mut().for_each(|stream| stream.write_all(request.as_bytes()).expect("it listens"));
            for mut stream in asking {
                let mut response = String::new();
                stream.read_to_string(&mut response).expect("UTF-8");
                assert_eq!(response, "{\"error\":\"there is no response: this is a defect of Forebay\"}\n");
            }
        }
        assert!(connect_and_request(path).is_ok());
    });
}

/// Empty, incomplete and wrong lines get an error.
#[test]
fn lines_of_any_kind_get_a_response() {
    with_server(NO_HURRY, |path| {
        let mut stream = greeted(path);
        stream.write_all(b"{\"do\":\"tables\"}\r\n\n{\"do\":\"tab").expect("it listens");
        stream.shutdown(std::net::Shutdown::Write).expect("it listens");
        let lines: Vec<_> = BufReader::new(stream).lines().map(|line| line.expect("UTF-8")).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].starts_with("{\"tables\":[") && lines[1].starts_with("{\"error\":\"not a request"),
            "{lines:?}"
        );
    });
}

/// Regression: a request with 20 000 groups of digits overflowed the stack of its thread, and the process ended.
#[test]
fn a_request_full_of_digits_gets_a_response() {
    with_server(NO_HURRY, |path| {
        let mut stream = greeted(path);
        let module = "a0b1c2d3 e4f50617 28394051 x ".repeat(20_000);
        let request = format!("{{\"do\":\"entries\",\"most\":1,\"module\":\"{module}\"}}\n");
        stream.write_all(request.as_bytes()).expect("it listens");
        let mut response = String::new();
        BufReader::new(stream).read_line(&mut response).expect("UTF-8");
        assert!(
            response.starts_with("{\"error\":\"no module is called '(not shown) x (not shown) x "),
            "{response:.200}"
        );
        assert!(!response.contains("a0b1"), "{response:.200}");
    });
}

/// Regression: a client of a stopped process waited for ever.
#[test]
fn a_client_waits_for_a_response_with_a_time_limit() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let path = folder.path().join("s");
    let _silent = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let client = || {
        let client = Client::connect(&path).expect("the system takes connections");
        client.with_patience(Duration::from_millis(20)).expect("more than nothing")
    };
    let change: Request = serde_json::from_slice(CHANGE).expect("a request");
    let changes = b"{\"add\":\"10.0.0.0/8 0\"}\n".repeat(100_000);
    for response in [
        client().request(&Request::Report { recent: false, rules: Vec::new(), histograms: false }),
        client().change(&change, &mut &changes[..20]),
        // More data than the system buffers for a process that does not read.
        client().change(&change, &mut &changes[..]),
    ] {
        let why = response.expect_err("no response").to_string();
        assert_eq!(
            why,
            "the running pipeline does not respond: its process is suspended, or the machine is overloaded; resume \
             the process, or try again later"
        );
    }
}

/// Regression: a client waited for ever if the socket sent single blanks, because each blank restarted the time limit.
#[test]
fn a_slow_response_does_not_extend_the_time_limit() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let path = folder.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().expect("a client");
                // Sends until the client no longer reads, or for much longer than the client should wait.
                let _ = (0..3_000).try_for_each(|_| {
                    std::thread::sleep(Duration::from_millis(10));
                    stream.write_all(b" ")
                });
            }
        });
        let client = || {
            let client = Client::connect(&path).expect("the system takes connections");
            client.with_patience(Duration::from_millis(200)).expect("more than nothing")
        };
        let request = Request::Drops { count: None, for_ns: None, filter: None };
        for response in [
            client().request(&Request::Report { recent: false, rules: Vec::new(), histograms: false }),
            client().stream(&request),
        ] {
            let why = response.expect_err("no complete response").to_string();
            assert_eq!(
                why,
                "the running pipeline does not respond: its process is suspended, or the machine is overloaded; resume \
                 the process, or try again later"
            );
        }
    });
}
