//! The socket of a running pipeline, with clients that say nothing, or not all of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_instance::socket::{Answer, Client, Patience, Request, Server, Service};
use forebay_instance::{Instance, choose, start};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source, load};

const PIPELINE: &str = "
ports: { in: { generator: { rate: 1kpps, destination: 10.0.0.0/8 } }, out: { sink: {} } }
modules: { route: { ip_lookup: { routes: ['10.0.0.0/8 0'] } } }
pipeline: [ in -> route -> out ]
";

/// Long enough that no test sees the end of it.
const LONG: Duration = Duration::from_secs(3600);
const NO_HURRY: Patience = Patience { request: LONG, line: LONG, asked: LONG, silent: LONG };

fn with_server(patience: Patience, test: impl FnOnce(&Path)) {
    let source = Source::new(PIPELINE, "test.yaml", Path::new(""));
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, cores, made, .. } = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let cores = choose(&cores).expect("a core");
    let instance: Arc<dyn Instance> = start(plans, &cores, made, Box::new(|_| None)).expect("it starts");
    let service = Service {
        instance: Arc::clone(&instance),
        source: Mutex::new(source),
        origin: None,
        state: None,
        trace: Box::new(|_, _, _| Err("not here".to_owned())),
        patience,
        stop: Arc::new(AtomicBool::new(false)),
    };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let server = Server::start(&folder.path().join("s"), service).expect("a socket");
    test(server.path());
    drop(server);
    assert!(instance.end().troubles.is_empty());
}

fn ask(path: &Path) -> Result<Client, String> {
    let mut client = Client::connect(path).map_err(|error| error.to_string())?;
    match client.ask(&Request::Tables {}) {
        Ok(Answer::Tables(tables)) if tables.len() == 1 => Ok(client),
        other => Err(format!("{other:?}")),
    }
}

/// All that is said to a client that says `said` and then nothing.
fn told(path: &Path, said: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    // It may have lost its patience already.
    let _ = stream.write_all(said);
    let mut told = String::new();
    let _ = stream.read_to_string(&mut told);
    told
}

/// Sixty-four clients that had connected and said nothing kept all others out for ever.
#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    with_server(Patience { silent: Duration::ZERO, ..NO_HURRY }, |path| {
        let connect = || UnixStream::connect(path).expect("it listens");
        let mut silent: Vec<_> = (0..300).map(|_| connect()).collect();
        silent.push(connect());
        silent.last_mut().expect("one").write_all(b"{\"do\":").expect("it listens");
        let mut asking: Vec<_> = (0..64).map(|_| ask(path).expect("there is room")).collect();
        // Who has asked stays, and who comes then is told why not.
        let refused = ask(path).err().expect("no room");
        assert!(refused.contains("64 connections are open and at work"), "{refused}");
        for client in &mut asking {
            assert!(matches!(client.ask(&Request::Tables {}), Ok(Answer::Tables(_))));
        }
        asking.pop();
        // Its place is free once its thread has seen it go.
        while ask(path).is_err() {
            std::thread::yield_now();
        }
        let mut last = String::new();
        BufReader::new(&silent[0]).read_line(&mut last).expect("UTF-8");
        assert!(last.starts_with("{\"error\":\"others needed the connection"), "{last}");
    });
}

/// A client that ended no line was waited for as long as it liked.
#[test]
fn a_client_is_waited_for_so_long_and_no_longer() {
    let short = Duration::from_millis(20);
    with_server(Patience { line: short, ..NO_HURRY }, |path| {
        for said in ["{\"do\":", "{\"do\":\"change\",\"module\":\"route\"}\nadd 10.1.0.0/16 0\nadd 10.2."] {
            assert_eq!(told(path, said.as_bytes()), "{\"error\":\"a line was not ended in 0.02 s\"}\n");
        }
        assert!(ask(path).is_ok());
    });
    with_server(Patience { request: short, ..NO_HURRY }, |path| {
        for said in ["", "{\"do\":\"change\",\"module\":\"route\"}\nadd 10.1.0.0/16 0\n"] {
            assert_eq!(told(path, said.as_bytes()), "{\"error\":\"nothing was asked in 0.02 s\"}\n");
        }
    });
}

/// What is too long, cut off or no request is told, as before.
#[test]
fn lines_of_any_kind_are_answered() {
    with_server(NO_HURRY, |path| {
        let mut stream = UnixStream::connect(path).expect("it listens");
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
