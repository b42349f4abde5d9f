//! Requests that a server must refuse, and clients that must not stop it.

mod bodies;
mod files;
mod flood;
mod limits;
mod slow;
mod tls;

use std::io::{BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Uid;
use serde_json::Value;

use crate::http::{Stream, connect, connect_unix, exchange, read_head, request};
use crate::server::{FOREBAY, Pipeline, Server, Tokens, folder, give, is_root};

/// Requests without a limit of their rate.
const UNLIMITED: &str = "limits: { requests_per_second: 1000000 }";

/// The paths that a client at a loopback address may use without a token. Every other path needs one.
const OPEN: &[&str] = &[
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/v1/openapi.json",
    "/api/v1/alarms",
    "/api/v1/events",
    "/api/v1/functions/acl",
    "/api/v1/instances",
    "/api/v1/instances/edge",
    "/api/v1/instances/edge/drops",
    "/api/v1/instances/edge/events",
    "/api/v1/instances/edge/flows",
    "/api/v1/instances/edge/graph",
    "/api/v1/instances/edge/history",
    "/api/v1/instances/edge/modules",
    "/api/v1/instances/edge/ports",
    "/api/v1/instances/edge/workers",
    "/api/v1/topology",
];

/// Starts a server that accepts tokens and any rate of requests, and waits until it knows the pipeline `edge`.
fn server_with(folder: &Path, tokens: &Tokens, more: &str) -> Server {
    let server = Server::with(folder, &format!("{}\n{UNLIMITED}\n{more}", tokens.setting()), &[]);
    server.wait_for("edge", "running");
    server
}

/// Returns the methods and paths of the API's description, with the names of the pipeline `edge`.
fn routes(server: &Server) -> Vec<(String, String)> {
    let description = server.get("/api/v1/openapi.json").json();
    let mut routes = Vec::new();
    for (path, operations) in description["paths"].as_object().expect("paths") {
        let path = path.replace("{name}", "edge").replace("{module}", "route").replace("{table}", "routes");
        let path = path.replace("{function}", "acl");
        assert!(!path.contains('{'), "{path}: this test does not know the parameter");
        let methods = operations.as_object().expect("operations").keys();
        routes.extend(methods.map(|method| (method.to_ascii_uppercase(), path.clone())));
    }
    assert!(routes.len() > OPEN.len(), "{routes:?}");
    routes
}

/// Sends a request, and returns the status of the response. Does not wait for the end of its body, because streams have
/// none.
fn status(stream: &mut dyn Stream, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    Write::write_all(stream, request(method, path, headers, "").as_bytes()).expect("the server reads");
    read_head(&mut BufReader::new(stream)).0
}

#[test]
fn a_foreign_host_or_origin_is_refused() {
    let folder = folder();
    let server = Server::with(folder.path(), "hosts: [edge.example.net]", &[]);
    let port = server.address.rsplit(':').next().expect("a port");
    let with_port = format!("localhost:{port}");
    for host in
        ["localhost", &server.address, "127.0.0.1", &with_port, "edge.example.net", "EDGE.example.net:80", "[::1]"]
    {
        assert_eq!(server.send("GET", "/healthz", &[("Host", host)], "").status, 200, "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "edge.example.net.evil.example",
        "192.0.2.1",
    ] {
        let detail = server.send("GET", "/healthz", &[("Host", host)], "").problem(421);
        assert!(detail.contains(host), "{detail}");
    }
    // An absolute form has its own host (RFC 9112 section 3.2.2).
    let bytes = "GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(exchange(&mut connect(&server.address), bytes.as_bytes()).status, 421);
    let bytes = "GET /healthz HTTP/1.1\r\n\r\n";
    assert_eq!(exchange(&mut connect(&server.address), bytes.as_bytes()).status, 400);
    let bytes = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert_ne!(exchange(&mut connect(&server.address), bytes.as_bytes()).status, 200);
    for (origin, status) in [
        ("http://localhost", 200),
        ("https://edge.example.net", 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
    ] {
        assert_eq!(server.send("GET", "/api/v1/instances", &[("Origin", origin)], "").status, status, "{origin}");
    }
    assert_eq!(server.send("GET", "/healthz", &[("Sec-Fetch-Site", "cross-site")], "").status, 403);
}

#[test]
fn a_missing_wrong_or_expired_token_is_refused_at_every_route() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let _pipeline = Pipeline::start(folder.path(), "edge");
    let server = server_with(folder.path(), &tokens, "");
    let bearer = |token: &str| format!("Bearer {token}");
    let admin = bearer(&tokens.admin);
    // A token that is not accepted is refused also where none is needed: its client expects the rights of the token.
    let wrong = [
        ("unknown", vec![bearer(&format!("forebay_{}", "0".repeat(64)))]),
        ("cut", vec![bearer(&tokens.admin[..tokens.admin.len() - 1])]),
        ("longer", vec![bearer(&format!("{}0", tokens.admin))]),
        ("expired", vec![bearer(&tokens.expired)]),
        ("of another scheme", vec![format!("Basic {}", tokens.admin)]),
        ("without a scheme", vec![tokens.admin.clone()]),
        ("empty", vec![String::new()]),
        ("missing after the scheme", vec!["Bearer".to_owned()]),
        ("sent twice", vec![admin.clone(), admin.clone()]),
        ("one of two", vec![admin.clone(), bearer(&tokens.viewer)]),
    ];
    let mut unused = OPEN.to_vec();
    for (method, path) in routes(&server) {
        let send = |values: &[String]| {
            let headers: Vec<_> = values.iter().map(|value| ("Authorization", value.as_str())).collect();
            status(&mut connect(&server.address), &method, &path, &headers)
        };
        for (what, values) in &wrong {
            assert_eq!(send(values), 401, "{method} {path}: a token that is {what}");
        }
        if OPEN.contains(&path.as_str()) {
            assert_eq!((method.as_str(), send(&[])), ("GET", 200), "{path}");
            unused.retain(|open| *open != path);
            continue;
        }
        assert_eq!(send(&[]), 401, "{method} {path}");
        let needed = match (method.as_str(), path.as_str()) {
            ("GET", "/api/v1/audit") | ("PUT", _) => 2,
            ("GET", _) => 0,
            _ => 1,
        };
        for (role, token) in [&tokens.viewer, &tokens.operator, &tokens.admin].into_iter().enumerate() {
            let status = send(&[bearer(token)]);
            let is_refused = [401, 403].contains(&status);
            assert!(if role < needed { status == 403 } else { !is_refused }, "{method} {path}: role {role}: {status}");
        }
    }
    assert_eq!(unused, [""; 0], "the description lacks them");
}

#[test]
fn a_refusal_says_why_and_names_the_scheme() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let server = Server::with(folder.path(), &tokens.setting(), &[]);
    let response = server.get_as(&tokens.expired, "/api/v1/audit");
    assert!(response.problem(401).contains("the token has expired"), "{response:?}");
    assert_eq!(response.header("www-authenticate"), Some("Bearer realm=\"forebay\""));
    assert!(server.get_as("forebay_0", "/api/v1/audit").problem(401).contains("the token is unknown"));
    assert!(server.get("/api/v1/audit").problem(401).contains("needs a token"));
    let detail = server.get_as(&tokens.operator, "/api/v1/audit").problem(403);
    assert_eq!(detail, "the token has the role operator, and this needs the role admin");
}

/// Returns a user of this host: as root any other user, otherwise the user of this process.
fn user() -> Option<(String, u32)> {
    let own = rustix::process::geteuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id: u32 = fields.nth(1)?.parse().ok()?;
        (if own == 0 { id != 0 } else { id == own }).then(|| (name.to_owned(), id))
    })
}

/// Sends a request to a Unix socket as this user, and returns the status of the response.
fn status_as(user: u32, socket: &Path, path: &str, headers: &[(&str, &str)]) -> u16 {
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            if is_root() {
                // This changes the user of this thread alone.
                let user = Uid::from_raw(user);
                rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
            }
            status(&mut connect_unix(socket), "GET", path, headers)
        });
        client.join().expect("no panic")
    })
}

#[test]
fn at_the_unix_socket_only_its_user_and_root_can_use_a_token_of_a_user() {
    let Some((name, user)) = user() else {
        return crate::print(
            "skipped: at_the_unix_socket_only_its_user_and_root_can_use_a_token_of_a_user: /etc/passwd has no user",
        );
    };
    let folder = folder();
    let sockets = folder.path().join("http");
    std::fs::create_dir(&sockets).expect("a writable folder");
    give(&sockets);
    let socket = sockets.join("socket");
    let mut text = "tokens:\n".to_owned();
    let mut token_of = |user: &str| {
        let name = format!("of-{user}");
        let arguments = ["token", &name, "--role", "viewer", "--user", user, "--json"];
        let output = Command::new(FOREBAY).args(arguments).output().expect("the command can be started");
        let made: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        text += &format!("  - {}\n", made["entry"]);
        format!("Bearer {}", made["token"].as_str().expect("a token"))
    };
    let (of_user, of_root) = (token_of(&name), token_of("root"));
    let file = folder.path().join("tokens.yaml");
    std::fs::write(&file, text).expect("a writable folder");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("own file");
    give(&file);
    let settings = format!("tokens: '{}'\nlisten: ['127.0.0.1:0', 'unix:{}']", file.display(), socket.display());
    let server = Server::with(folder.path(), &settings, &[]);
    assert_eq!(socket.metadata().expect("a socket").permissions().mode() & 0o777, 0o660);
    if is_root() {
        // Otherwise the mode of the socket, and not the server, would refuse the other user.
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).expect("root may");
    }
    let path = "/api/v1/instances";
    assert_eq!(status_as(user, &socket, path, &[("Authorization", &of_user)]), 200);
    assert_eq!(status_as(user, &socket, path, &[("Authorization", &of_root)]), 401);
    if is_root() {
        assert_eq!(status_as(0, &socket, path, &[("Authorization", &of_user)]), 200, "root may use each token");
        assert_eq!(status_as(0, &socket, path, &[("Authorization", &of_root)]), 200);
    }
    // At an address, the user of a client is unknown.
    for token in [&of_user, &of_root] {
        assert_eq!(server.send("GET", path, &[("Authorization", token)], "").status, 200);
    }
    // Without a token, the socket gives the rights of a viewer.
    assert_eq!(status_as(user, &socket, "/api/v1/instances/missing/config", &[]), 404);
    assert_eq!(status_as(user, &socket, "/api/v1/audit", &[]), 401);
    let refused =
        exchange(&mut connect_unix(&socket), request("PUT", "/api/v1/instances/x/config", &[], "").as_bytes());
    assert!(refused.problem(401).contains("a change needs a token"), "{refused:?}");
}
