//! Clients that do not read, or do not complete their requests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use forebay_protocol::Response;
use forebay_protocol::event::{Event, EventName, Level};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::http::{connect, connect_unix, read_chunk, read_head, request};
use crate::imitation::{serve_as_pipeline, write_line};
use crate::server::{Pipeline, Server, Tokens, folder, give, wait_for};

/// The clients at a time.
const CLIENTS: usize = 1_000;
/// The open files that this process needs for them, also if other tests run beside.
const FILES: u64 = 4_096;

/// Allows this process [`FILES`] open files. Returns false if the system refuses.
fn allow_files() -> bool {
    let limit = getrlimit(Resource::Nofile);
    let is_enough = |most: Option<u64>| most.is_none_or(|most| most >= FILES);
    let raised = Rlimit { current: Some(FILES), maximum: limit.maximum };
    is_enough(limit.current) || (is_enough(limit.maximum) && setrlimit(Resource::Nofile, raised).is_ok())
}

/// Connects as a client that has room for 2 KB of a response.
fn connect_small(address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().expect("an address");
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    set_socket_recv_buffer_size(&socket, 2_048).expect("a size that is allowed");
    rustix::net::connect(&socket, &address).expect("the server listens");
    TcpStream::from(socket)
}

/// Connects many clients that do not go on, and checks that the server responds to others, in at most `most_kb` more
/// memory.
fn hold_off(name: &str, limits: &str, most_kb: u64) {
    if !allow_files() {
        return crate::print(&format!("skipped: {name}: this user may open too few files"));
    }
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let _pipeline = Pipeline::start(folder.path(), "edge");
    let settings = format!("{}\nlimits: {{ {limits}requests_per_second: 1000000 }}", tokens.setting());
    let server = Server::with(folder.path(), &settings, &[]);
    server.wait_for("edge", "running");
    let reads = ["/healthz", "/metrics", "/api/v1/instances", "/api/v1/instances/edge/modules"];
    let check = || reads.iter().for_each(|path| assert_eq!(server.get(path).status, 200, "{path}"));
    check();
    let before = server.own_kb();
    let authorization = format!("Bearer {}", tokens.admin);
    let config = "/api/v1/instances/edge/config";
    let headers =
        [("Authorization", authorization.as_str()), ("Content-Type", "application/yaml"), ("Content-Length", "1000")];
    let mut clients = Vec::with_capacity(CLIENTS);
    for number in 0..CLIENTS {
        let started = match number % 8 {
            0 | 1 => String::new(),
            2 | 3 => "GET /healthz HTTP/1.1\r\nHost: loc".to_owned(),
            4 | 5 => request("PUT", config, &headers, "") + "ports:",
            6 => request("GET", "/healthz", &[], ""),
            // The client does not read the responses.
            _ => request("GET", "/metrics", &[], "").repeat(20),
        };
        let mut stream = connect_small(&server.address);
        // The server may have closed the connection already, because it needs the room.
        let _ = stream.write_all(started.as_bytes());
        clients.push(stream);
    }
    check();
    // The last clients may not have been accepted before.
    check();
    let more = server.own_kb().saturating_sub(before);
    assert!(more < most_kb, "{CLIENTS} clients cost {more} kB");
    drop(clients);
    check();
}

#[test]
fn clients_that_do_not_go_on_cost_no_more_than_their_connections() {
    let name = "clients_that_do_not_go_on_cost_no_more_than_their_connections";
    hold_off(name, "connections: 16, viewers: 4, ", 8_000);
}

#[test]
fn clients_that_do_not_go_on_cost_bounded_memory_by_default() {
    hold_off("clients_that_do_not_go_on_cost_bounded_memory_by_default", "", 30_000);
}

/// An event of the stream.
struct Received {
    id: u64,
    name: String,
    data: Value,
}

/// A client of the stream of events.
struct Viewer(Box<dyn BufRead>);

impl Viewer {
    /// Begins to read the stream: its head and its first event.
    fn of(stream: impl std::io::Read + Write + 'static) -> Self {
        let mut stream = BufReader::new(stream);
        let bytes = request("GET", "/api/v1/events", &[], "");
        stream.get_mut().write_all(bytes.as_bytes()).expect("the server reads");
        assert_eq!(read_head(&mut stream).0, 200);
        let mut viewer = Self(Box::new(stream));
        assert_eq!(viewer.read().name, "state");
        viewer
    }

    /// Returns the next event. Each event is a chunk of its own.
    fn read(&mut self) -> Received {
        loop {
            let chunk = String::from_utf8(read_chunk(&mut self.0)).expect("UTF-8");
            assert!(!chunk.is_empty(), "the stream has ended");
            let field = |name: &str| chunk.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            // Comments keep the connection alive.
            let (Some(id), Some(name), Some(data)) = (field("id:"), field("event:"), field("data:")) else { continue };
            let number = id.rsplit('-').next().expect("a part").parse().expect("a number");
            let data = serde_json::from_str(data).expect("JSON");
            return Received { id: number, name: name.to_owned(), data };
        }
    }

    /// Reads until the event whose message begins with `message`. Returns the events before it.
    fn until(&mut self, message: &str) -> Vec<Received> {
        let mut before = Vec::new();
        loop {
            let event = self.read();
            if event.data["event"]["msg"].as_str().is_some_and(|text| text.starts_with(message)) {
                return before;
            }
            before.push(event);
        }
    }
}

#[test]
fn a_viewer_that_reads_too_slowly_receives_the_state_again_and_delays_no_other() {
    let folder = folder();
    let sockets = folder.path().join("http");
    std::fs::create_dir(&sockets).expect("a writable folder");
    give(&sockets);
    let socket = sockets.join("socket");
    let followers = serve_as_pipeline(&folder.path().join("source.sock"));
    let listen = format!("listen: ['127.0.0.1:0', 'unix:{}']", socket.display());
    let server = Server::with(folder.path(), &listen, &[]);
    let mut pipeline = followers.recv_timeout(Duration::from_secs(60)).expect("the server follows events");
    // The kernel keeps less for a client of a Unix socket than for one of TCP.
    let mut slow = Viewer::of(connect_unix(&socket));
    let mut fast = Viewer::of(connect(&server.address));
    let mut send = |number: u64| {
        let event = Event {
            id: number,
            time: "2026-01-01T00:00:00.000Z".to_owned(),
            level: Level::Info,
            event: EventName::ReloadAccepted,
            pipeline: "source".to_owned(),
            fields: BTreeMap::new(),
            message: format!("number {number}: {}", "x".repeat(16_000)),
        };
        write_line(&mut pipeline, &Response::Events(vec![event]));
    };
    let count = 400;
    for number in 1..=count {
        send(number);
        // The other viewer has each event before the next one is sent, and misses none.
        let before = fast.until(&format!("number {number}:"));
        assert!(before.iter().all(|event| ["instance", "alarm"].contains(&event.name.as_str())), "{number}");
    }
    let mut ids = Vec::new();
    loop {
        let event = slow.read();
        ids.push(event.id);
        if event.name == "state" {
            assert_eq!(event.data["instances"][0]["name"], "source");
            break;
        }
        assert!(event.id < count, "it has received every event");
    }
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    assert!(ids.len() < 300, "{} events were kept for a client that does not read", ids.len());
    // From then on, it misses nothing.
    send(count + 1);
    let before = slow.until(&format!("number {}:", count + 1));
    assert!(before.iter().all(|event| event.id > ids[ids.len() - 1]));
    wait_for("the server to respond", || server.get("/healthz").status == 200);
}
