//! Limits of the rate of requests, of connections, and of viewers.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

use super::status;
use crate::http::{connect, connect_unix, exchange};
use crate::server::{Server, folder, give, wait_for};

/// A request that leaves the connection open.
const PING: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn a_client_that_sends_too_many_requests_is_refused_until_it_waits() {
    let folder = folder();
    let sockets = folder.path().join("http");
    std::fs::create_dir(&sockets).expect("a writable folder");
    give(&sockets);
    let socket = sockets.join("socket");
    let listen = format!("listen: ['127.0.0.1:0', 'unix:{}']", socket.display());
    let server = Server::with(folder.path(), &format!("{listen}\nlimits: {{ requests_per_second: 1 }}"), &[]);
    // On a busy machine, the limit may admit more than two requests before it refuses one.
    let refused = (0..1_000).map(|_| server.get("/healthz")).find(|response| response.status != 200);
    let refused = refused.expect("a refusal");
    assert!(refused.problem(429).contains("per second: wait"), "{refused:?}");
    let wait = refused.header("retry-after").and_then(|wait| wait.parse::<u32>().ok());
    assert_eq!(wait, Some(1), "{refused:?}");
    assert_eq!(refused.header("connection"), Some("close"));
    // Another client has a rate of its own.
    assert_eq!(status(&mut connect_unix(&socket), "GET", "/healthz", &[]), 200);
    wait_for("the server to admit the client again", || server.get("/healthz").status == 200);
}

/// Returns whether the server has closed a connection on which no response is outstanding.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_further_connection_closes_the_one_that_was_silent_longest() {
    let folder = folder();
    let server =
        Server::with(folder.path(), "limits: { connections: 8, viewers: 4, requests_per_second: 1000000 }", &[]);
    let mut open: Vec<_> = (0..8).map(|_| connect(&server.address)).collect();
    // The responses show that the server has accepted the connections, and in which order it last used them.
    for stream in &mut open {
        assert_eq!(exchange(stream, PING).status, 200);
    }
    assert_eq!(exchange(&mut open[0], PING).status, 200);
    assert_eq!(server.get("/healthz").status, 200);
    assert!(is_closed(&mut open[1]), "it was silent longest");
    open.remove(1);
    for stream in &mut open {
        assert_eq!(exchange(stream, PING).status, 200);
    }
}

#[test]
fn a_further_viewer_is_refused_until_another_one_goes() {
    let folder = folder();
    let server = Server::with(folder.path(), "limits: { viewers: 2, requests_per_second: 1000000 }", &[]);
    let watch = || {
        let mut stream = connect(&server.address);
        (status(&mut stream, "GET", "/api/v1/events", &[]), stream)
    };
    let (first, second) = (watch(), watch());
    assert_eq!((first.0, second.0), (200, 200));
    let refused = server.get("/api/v1/events");
    assert!(refused.problem(503).contains("there are 2 viewers already"), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(server.get("/api/v1/instances").status, 200, "other requests are not refused");
    drop(first);
    wait_for("room for another viewer", || watch().0 == 200);
}
