//! The end of a server while a change is being made. The test plays the pipeline, so that the change takes as long as
//! the test wants.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_protocol::response::{Configuration, Hello, TableSummary};
use forebay_protocol::{Request, Response, VERSION};
use rustix::process::Signal;

use crate::http::{connect, exchange, request};
use crate::server::{Server, Tokens, folder, give};

/// The time after which a step counts as missing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves as a pipeline with one table. Reports each request for a change to `begun`, and responds to it after a
/// message from `release`.
fn serve_as_pipeline(socket: &Path, begun: Sender<()>, release: Receiver<()>) {
    let listener = UnixListener::bind(socket).expect("a writable folder");
    // The server may be another user.
    std::fs::set_permissions(socket, Permissions::from_mode(0o777)).expect("own file");
    let release = Arc::new(Mutex::new(release));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (begun, release) = (begun.clone(), Arc::clone(&release));
            std::thread::spawn(move || respond(stream, &begun, &release));
        }
    });
}

fn respond(mut stream: UnixStream, begun: &Sender<()>, release: &Mutex<Receiver<()>>) {
    let lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
    for line in lines.map_while(Result::ok) {
        // The lines of a change are no requests, and an empty line ends them.
        let Ok(request) = serde_json::from_str::<Request>(&line) else {
            if line.is_empty() {
                begun.send(()).expect("the test waits");
                release.lock().expect("no panic").recv_timeout(PATIENCE).expect("the test sends it");
                let changed = Response::Changed { made: 1, entries: 1, refused: vec![], refusals: 0, warnings: vec![] };
                write_line(&mut stream, &changed);
            }
            continue;
        };
        let response = match request {
            Request::Hello { .. } => Response::Hello(Hello {
                protocol: VERSION,
                forebay: "0.1.0".to_owned(),
                pipeline: "played".to_owned(),
                instance: None,
                pid: 1,
                started: "2026-01-01T00:00:00Z".to_owned(),
                workers: 1,
                capabilities: Vec::new(),
            }),
            Request::Config {} => Response::Config(Box::new(Configuration {
                text: String::new(),
                settings: Vec::new(),
                version: "1".to_owned(),
                changes: 0,
                file: "played.yaml".to_owned(),
                tables: BTreeMap::new(),
            })),
            Request::Tables {} => Response::Tables(vec![TableSummary {
                module: "route".to_owned(),
                table: "routes".to_owned(),
                entries: 0,
                syntax: String::new(),
            }]),
            // Events and counters do not come.
            Request::Events { .. } => Response::Events(Vec::new()),
            Request::Watch { .. } => Response::Done,
            _ => continue,
        };
        write_line(&mut stream, &response);
    }
}

fn write_line(stream: &mut UnixStream, response: &Response) {
    let line = serde_json::to_string(response).expect("plain data") + "\n";
    // The server may have ended.
    let _ = stream.write_all(line.as_bytes());
}

/// Regression: SIGTERM ended a change between the pipeline and the audit log.
#[test]
fn a_change_that_is_being_made_ends_before_the_server() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let (begun, is_begun) = channel();
    let (release, is_released) = channel();
    serve_as_pipeline(&folder.path().join("played.sock"), begun, is_released);
    let place = folder.path().join("store");
    std::fs::create_dir(&place).expect("a writable folder");
    give(&place);
    let settings = format!("{}\nstore: '{}'", tokens.setting(), place.join("serve.db").display());
    let server = Server::with(folder.path(), &settings, &[]);
    crate::server::wait_for("the pipeline", || server.get("/api/v1/instances/played").status == 200);
    let authorization = format!("Bearer {}", tokens.operator);
    let headers = [("Authorization", authorization.as_str()), ("Content-Type", "text/plain")];
    let path = "/api/v1/instances/played/tables/route/routes/changes";
    let change = request("POST", path, &headers, "add 10.0.0.0/8 1");
    let mut stream = connect(&server.address);
    let change = std::thread::spawn(move || exchange(&mut stream, change.as_bytes()));
    is_begun.recv_timeout(PATIENCE).expect("the change reaches the pipeline");
    server.signal(Signal::TERM);
    server.line("event=ending");
    // The server still responds, because it waits for the change.
    assert_eq!(server.get("/healthz").status, 200);
    release.send(()).expect("the pipeline waits");
    assert_eq!(change.join().expect("a response").status, 200);
    assert_eq!(server.end(), Some(0));
    let server = Server::with(folder.path(), &settings, &[]);
    let records = server.get_as(&tokens.admin, "/api/v1/audit").json()["records"].clone();
    assert_eq!(records.as_array().map(Vec::len), Some(1), "{records}");
    assert_eq!(records[0]["ended"]["status"], 200, "{records}");
}
