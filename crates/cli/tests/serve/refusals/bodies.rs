//! Heads and bodies that are too large, of another type, or not HTTP.

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};

use super::{UNLIMITED, routes, server_with};
use crate::http::{Stream, connect, exchange, read, request};
use crate::server::{PIPELINE, Pipeline, Server, Tokens, folder};

/// The largest body, in bytes, by default.
const BODY: usize = 1 << 20;

#[test]
fn a_head_that_is_too_long_or_not_http_is_refused() {
    let folder = folder();
    let server = Server::with(folder.path(), UNLIMITED, &[]);
    let get = |headers: &str| format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").into_bytes();
    let many = |number: usize| get(&(0..number).map(|at| format!("X-{at}: 1\r\n")).collect::<String>());
    for (what, bytes, status) in [
        ("a long header that is allowed", get(&format!("X: {}\r\n", "a".repeat(15_000))), 200),
        ("a long header", get(&format!("X: {}\r\n", "a".repeat(17_000))), 431),
        ("a very long header", get(&format!("X: {}\r\n", "a".repeat(1_000_000))), 431),
        ("a long path", request("GET", &format!("/{}", "a".repeat(17_000)), &[], "").into_bytes(), 431),
        ("many headers that are allowed", many(60), 200),
        ("too many headers", many(70), 431),
        ("garbage", (0..=255).collect(), 400),
        ("a greeting of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(10), 400),
        ("a version that does not exist", b"GET / HTTP/1.9\r\nHost: localhost\r\n\r\n".to_vec(), 400),
        ("a continued header", get("X: a\r\n b\r\n"), 400),
        ("a space before the colon", get("X : a\r\n"), 400),
        ("two lengths", get("Content-Length: 5\r\nContent-Length: 6\r\n"), 400),
        ("a negative length", get("Content-Length: -1\r\n"), 400),
        ("HTTP/1.0", b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n".to_vec(), 200),
        ("HTTP/1.0 without a host", b"GET /healthz HTTP/1.0\r\n\r\n".to_vec(), 400),
    ] {
        assert_eq!(exchange(&mut connect(&server.address), &bytes).status, status, "{what}");
    }
    // The connection of a client of HTTP/2 is closed.
    let mut stream = connect(&server.address);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("the server reads");
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    assert!(!received.starts_with(b"HTTP/1.1 200"), "{received:?}");
    assert_eq!(server.get("/healthz").status, 200);
}

/// The body of a request cannot smuggle in a second request.
#[test]
fn a_request_with_two_framings_is_not_read_as_two_requests() {
    let folder = folder();
    let server = Server::with(folder.path(), UNLIMITED, &[]);
    let bytes = "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
                 0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut stream = connect(&server.address);
    stream.write_all(bytes.as_bytes()).expect("the server reads");
    let mut received = String::new();
    let _ = stream.read_to_string(&mut received);
    // RFC 9112 section 6.3: the chunks are the body. A server may also refuse the request, and must then close.
    assert!(received.starts_with("HTTP/1.1 4"), "{received}");
    let responses = received.matches("HTTP/1.1 ").count();
    assert!(responses == 1 || (responses == 2 && received.ends_with("ok\n")), "{received}");
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let _pipeline = Pipeline::start(folder.path(), "edge");
    let server = server_with(folder.path(), &tokens, "");
    let authorization = format!("Bearer {}", tokens.admin);
    let head = |headers: &[(&str, &str)]| {
        let fixed =
            [("Authorization", authorization.as_str()), ("If-Match", "*"), ("Content-Type", "application/yaml")];
        request("PUT", "/api/v1/instances/edge/config?dry_run=true", &[&fixed[..], headers].concat(), "")
    };
    let send = |bytes: &[u8]| exchange(&mut connect(&server.address), bytes);
    // The length alone is enough: the client has sent none of it.
    let response = send(head(&[("Content-Length", &(BODY + 1).to_string())]).as_bytes());
    assert_eq!(response.problem(413), format!("the body is longer than {BODY} bytes"));
    assert_eq!(response.header("connection"), Some("close"));
    let body = vec![b'#'; 10_000_000];
    let length = body.len().to_string();
    send(&[head(&[("Content-Length", &length)]).as_bytes(), &body].concat()).problem(413);
    let chunk = [b"10000\r\n".as_slice(), &[b'#'; 0x10000], b"\r\n"].concat();
    let chunked = |number: usize| {
        let chunks = chunk.repeat(number);
        send(&[head(&[("Transfer-Encoding", "chunked")]).as_bytes(), &chunks, b"0\r\n\r\n"].concat())
    };
    chunked(BODY / 0x10000 + 1).problem(413);
    // A body without a token is not read at all.
    let response = server.send("PUT", "/api/v1/instances/edge/config", &[], &"#".repeat(10_000_000));
    response.problem(401);
    // Comments do not make a configuration too large, as long as the body is not.
    let large = format!("{PIPELINE}#{}", "x".repeat(BODY / 2));
    let length = large.len().to_string();
    let response = send((head(&[("Content-Length", &length)]) + &large).as_bytes());
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn a_body_that_ends_early_or_has_faulty_chunks_is_refused_and_not_called_too_large() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let _pipeline = Pipeline::start(folder.path(), "edge");
    let server = server_with(folder.path(), &tokens, "");
    let authorization = format!("Bearer {}", tokens.admin);
    for (framing, body) in [("Content-Length: 100", "ports:"), ("Transfer-Encoding: chunked", "zz\r\nports:\r\n")] {
        let headers = [("Authorization", authorization.as_str()), ("If-Match", "*"), ("Content-Type", "text/yaml")];
        let head = request("PUT", "/api/v1/instances/edge/config", &headers, "");
        let head = head.trim_end();
        let mut stream = connect(&server.address);
        stream.write_all(format!("{head}\r\n{framing}\r\n\r\n{body}").as_bytes()).expect("the server reads");
        stream.end();
        let detail = read(&mut BufReader::new(stream)).problem(400);
        assert!(detail.starts_with("the body"), "{framing}: {detail}");
    }
    let audit = server.get_as(&tokens.admin, "/api/v1/audit").json();
    assert_eq!(audit["records"].as_array().map(Vec::len), Some(0), "{audit}");
}

#[test]
fn a_body_of_another_type_or_coding_is_refused() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let _pipeline = Pipeline::start(folder.path(), "edge");
    let server = server_with(folder.path(), &tokens, "");
    let authorization = format!("Bearer {}", tokens.admin);
    let instance = "/api/v1/instances/edge";
    let send = |(method, path): (&str, &str), types: &[&str], body: &[u8]| {
        let length = body.len().to_string();
        let mut headers =
            vec![("Authorization", authorization.as_str()), ("If-Match", "*"), ("Content-Length", length.as_str())];
        headers.extend(types.iter().map(|name| ("Content-Type", *name)));
        let head = request(method, &format!("{instance}{path}"), &headers, "");
        exchange(&mut connect(&server.address), &[head.as_bytes(), body].concat())
    };
    let config = ("PUT", "/config?dry_run=true");
    let (changes, actions, moves) =
        (("POST", "/tables/route/routes/changes"), ("POST", "/actions"), ("POST", "/moves"));
    let action: &[u8] = br#"{"module":"route","action":{"set_trigger":{"module":0,"trigger":8}}}"#;
    let wanted: &[u8] = br#"{"modules":[{"module":"a","to":[0]}]}"#;
    let change: &[u8] = b"add 10.9.0.0/16 1\n";
    for (route, allowed, body) in [
        (config, "application/yaml", PIPELINE.as_bytes()),
        (changes, "text/plain", change),
        (actions, "application/json", action),
        (moves, "application/json", wanted),
    ] {
        let other = if allowed == "text/plain" { "application/json" } else { "text/plain" };
        // A page of any site can send forms of the first two types without asking the server.
        let types = ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", other, "", "*/*"];
        for wrong in types.map(|wrong| vec![wrong]).into_iter().chain([vec![]]) {
            let detail = send(route, &wrong, body).problem(415);
            assert!(detail.contains(allowed), "{route:?} {wrong:?}: {detail}");
        }
        let spelled = format!("{}; charset=utf-8", allowed.to_ascii_uppercase());
        for right in [allowed, &spelled] {
            let response = send(route, &[right], body);
            assert_eq!(response.status, 200, "{route:?} {right}: {response:?}");
        }
        let detail = send(route, &[allowed], b"a: \xff\n").problem(400);
        assert!(detail.starts_with("the body: "), "{route:?}: {detail}");
    }
}

#[test]
fn each_path_names_the_methods_that_it_has() {
    let folder = folder();
    let server = Server::with(folder.path(), UNLIMITED, &[]);
    let mut methods: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (method, path) in routes(&server) {
        methods.entry(path).or_default().push(method);
    }
    for (path, methods) in methods {
        for wrong in ["DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "get"] {
            let response = server.send(wrong, &path, &[], "");
            response.problem(405);
            let allow = response.header("allow").unwrap_or_else(|| panic!("{wrong} {path}: {response:?}"));
            let mut allowed: Vec<_> = allow.split(',').map(str::trim).filter(|method| *method != "HEAD").collect();
            allowed.sort_unstable();
            let mut known: Vec<_> = methods.iter().map(String::as_str).collect();
            known.sort_unstable();
            assert_eq!(allowed, known, "{wrong} {path}");
            // No page of another site learns what it may send (CORS is off).
            assert!(!response.headers.iter().any(|(name, _)| name.starts_with("access-control-")), "{response:?}");
        }
    }
}
