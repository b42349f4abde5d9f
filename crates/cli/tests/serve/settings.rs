//! Settings: defaults, faults with their lines, and what a server refuses to start with.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::http::{Response, connect_unix, exchange, request};
use crate::server::{FOREBAY, NO_RIGHTS, PIPELINE, Pipeline, Server, Tokens, folder, give, is_root, wait_for};

/// Starts a server with settings that it must refuse, and returns its standard error.
fn refused(settings: &str, more: &[&str]) -> String {
    let folder = folder();
    let refused = Server::try_with(folder.path(), settings, more).err().expect("it must not start");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    refused.err.replace(&folder.path().display().to_string(), "FOLDER")
}

#[test]
fn all_faults_of_the_settings_are_reported_with_their_lines() {
    let err = refused("listen: [127.0.0.1:9640, nowhere]\nhosts: ['a b']\nlimits: { viewers: 600 }\n", &[]);
    let lines: Vec<_> = err.lines().collect();
    assert_eq!(lines.len(), 3, "{err}");
    assert!(lines[0].contains("serve.yaml:2: 'nowhere': allowed are an IP address"), "{err}");
    assert!(lines[1].contains("serve.yaml:3: 'a b' is not the name of a host"), "{err}");
    assert!(lines[2].contains("serve.yaml:4: 600 viewers need more than 512 connections"), "{err}");
    let err = refused("lisen: []\nlimits: { connections: 1 }\n", &[]);
    assert!(err.contains("unknown key 'lisen' (did you mean 'listen'?)"), "{err}");
    assert!(err.contains("serve.yaml:3: limits.connections: '1' is out of range"), "{err}");
}

#[test]
fn a_public_address_needs_tls_and_tokens() {
    let err = refused("", &["--listen", "0.0.0.0:0"]);
    assert!(err.contains("0.0.0.0:0 can be reached from other machines: add `tls` and `tokens`"), "{err}");
    let err = refused("listen: ['[::]:0']\ntokens: /nonexistent\n", &[]);
    assert!(err.contains("add `tls`, or listen at 127.0.0.1"), "{err}");
}

#[test]
fn a_file_of_tokens_that_others_can_read_is_refused() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    std::fs::set_permissions(&tokens.file, std::fs::Permissions::from_mode(0o644)).expect("own file");
    let refused = Server::try_with(folder.path(), &tokens.setting(), &[]).err().expect("it must not start");
    assert!(refused.code == Some(2) && refused.err.contains("mode 0644: allowed are 0600 and 0400"), "{refused:?}");
}

#[test]
fn faults_of_tokens_have_lines_and_no_hashes() {
    let folder = folder();
    let file = folder.path().join("tokens.yaml");
    let hash = "0123456789abcdef".repeat(4);
    let text = format!(
        "tokens:\n  - {{ name: a, sha256: {hash}, role: viewer, expires: soon }}\n  \
         - {{ name: b, sha256: {}, role: root }}\n",
        &hash[1..]
    );
    std::fs::write(&file, text).expect("a writable folder");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("own file");
    give(&file);
    let refused = Server::try_with(folder.path(), &format!("tokens: '{}'", file.display()), &[]).err().expect("faults");
    assert!(refused.code == Some(2) && refused.err.contains("tokens.yaml:3: "), "{refused:?}");
    assert!(!refused.err.contains("abcdef0123456789"), "{refused:?}");
}

#[test]
fn an_address_in_use_is_refused() {
    let first = folder();
    let server = Server::start(first.path());
    let err = refused("", &["--listen", &server.address]);
    assert!(err.contains("another process listens there"), "{err}");
}

#[test]
fn the_settings_are_read_again_on_sighup_and_stay_if_they_have_faults() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let server = Server::with(folder.path(), &tokens.setting(), &[]);
    assert_eq!(server.get_as(&tokens.admin, "/api/v1/audit").status, 200);
    let text = std::fs::read_to_string(&tokens.file).expect("the tokens");
    std::fs::write(&tokens.file, text.replace("role: \"admin\"", "role: \"viewer\"")).expect("own file");
    server.signal(Signal::HUP);
    server.line("settings_read");
    assert_eq!(server.get_as(&tokens.admin, "/api/v1/audit").status, 403);
    std::fs::write(&tokens.file, "tokens: 3\n").expect("own file");
    server.signal(Signal::HUP);
    server.line("settings_refused");
    assert_eq!(server.get_as(&tokens.admin, "/api/v1/audit").status, 403);
    // The last entry is removed: its token must not stay valid.
    for none in ["tokens:\n", "# none\n"] {
        std::fs::write(&tokens.file, &text).expect("own file");
        server.signal(Signal::HUP);
        server.line("settings_read");
        assert_eq!(server.get_as(&tokens.admin, "/api/v1/audit").status, 200);
        std::fs::write(&tokens.file, none).expect("own file");
        server.signal(Signal::HUP);
        server.line("settings_read");
        assert_eq!(server.get_as(&tokens.admin, "/api/v1/audit").status, 401, "{none}");
    }
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_file_that_sets_nothing_leaves_the_defaults() {
    let folder = folder();
    let config = folder.path().join("empty.yaml");
    std::fs::write(&config, "# listen: ['127.0.0.1:9640']\n\n").expect("a writable folder");
    let arguments = ["--config", &config.display().to_string(), "--listen", "127.0.0.1:0", "--store", "memory"];
    let server = Server::spawn(folder.path(), &arguments).expect("a server");
    assert_eq!(server.get("/api/v1/instances").status, 200);
    assert_eq!(server.get("/api/v1/audit").status, 401, "there are no tokens");
}

/// Regression: the HTTP process was called `exe`.
#[test]
fn the_http_process_has_the_name_of_the_program() {
    let folder = folder();
    let server = Server::start(folder.path());
    let name = std::fs::read_to_string(format!("/proc/{}/comm", server.http_process())).expect("it runs");
    assert_eq!(name.trim(), "forebay");
}

#[test]
fn the_http_process_has_no_rights() {
    let folder = folder();
    let server = Server::start(folder.path());
    let process = server.http_process();
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect(name).trim().to_owned();
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(line(set), "0000000000000000", "{set}");
    }
    assert_eq!(line("NoNewPrivs:"), "1");
    assert!(!line("Uid:").split_whitespace().any(|id| id == "0"), "{status}");
    if is_root() {
        assert_eq!(line("Uid:"), [NO_RIGHTS; 4].join("\t"));
        assert_eq!(line("Gid:"), [NO_RIGHTS; 4].join("\t"));
        assert_eq!(line("Groups:"), "");
        assert_eq!(server.get("/readyz").status, 200, "the helper responds");
        server.signal(Signal::STOP);
        wait_for("the helper to be missed", || server.get("/readyz").status == 503);
        server.signal(Signal::CONT);
        wait_for("the helper to respond again", || server.get("/readyz").status == 200);
    }
}

#[test]
fn root_needs_another_user() {
    if !is_root() {
        return crate::print("skipped: root_needs_another_user: only root can start the server as another user");
    }
    let err = refused("", &["--user", "root"]);
    assert!(err.contains("the HTTP process must not be root"), "{err}");
    let err = refused("", &["--user", "no-such-user"]);
    assert!(err.contains("no-such-user"), "{err}");
}

/// Returns the processes of the server of a run whose pipeline has its socket at `path`.
fn servers_of(path: &Path) -> Vec<String> {
    let path = path.display().to_string();
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let commands = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    let is_server = |command: &String| {
        let mut arguments = command.split('\0');
        arguments.any(|argument| argument == "serve") && arguments.any(|argument| argument == path)
    };
    commands.filter(is_server).collect()
}

/// Runs a pipeline with a server at a Unix socket, and waits until the server knows it. Returns the socket.
fn run_with_server(folder: &Path) -> (Pipeline, PathBuf) {
    let sockets = folder.join("http");
    std::fs::create_dir(&sockets).expect("a writable folder");
    // If root runs the test, another user listens there.
    std::fs::set_permissions(&sockets, std::fs::Permissions::from_mode(0o777)).expect("own folder");
    let socket = sockets.join("socket");
    let listen = format!("unix:{}", socket.display());
    let pipeline = Pipeline::of(folder, "edge", PIPELINE, &["--http", &listen]);
    wait_for("the server of the run", || UnixStream::connect(&socket).is_ok());
    let status = || send(&socket, "GET", "/api/v1/instances/edge").map(|response| response.json()["status"].clone());
    wait_for("the pipeline", || status().is_ok_and(|status| status == "running"));
    (pipeline, socket)
}

/// Sends a request to a Unix socket. Returns the response if it is no problem.
fn send(socket: &Path, method: &str, path: &str) -> Result<Response, Response> {
    let headers = [("If-Match", "*"), ("Content-Type", "application/yaml")];
    let bytes = request(method, path, &headers, "");
    let response = exchange(&mut connect_unix(socket), bytes.as_bytes());
    if response.status < 400 { Ok(response) } else { Err(response) }
}

#[test]
fn the_server_of_a_run_serves_it_alone_and_refuses_changes() {
    let folder = folder();
    let _other = Pipeline::start(folder.path(), "other");
    let (pipeline, socket) = run_with_server(folder.path());
    let list = send(&socket, "GET", "/api/v1/instances").expect("a list").json();
    assert_eq!(list["instances"].as_array().map(Vec::len), Some(1), "{list}");
    assert!(send(&socket, "GET", "/metrics").expect("metrics").body.contains("forebay_instance_up"));
    assert!(send(&socket, "GET", "/api/v1/instances/edge/config").is_ok(), "the socket gives the rights of a viewer");
    for (method, path) in [
        ("PUT", "/api/v1/instances/edge/config"),
        ("POST", "/api/v1/instances/edge/actions"),
        ("POST", "/api/v1/instances/edge/moves"),
        ("POST", "/api/v1/instances/edge/tables/route/routes/changes"),
    ] {
        let refused = send(&socket, method, path).expect_err("no token can be valid");
        assert!(refused.problem(401).contains("a change needs a token"), "{method} {path}: {refused:?}");
    }
    let processes = servers_of(&folder.path().join("edge.sock"));
    assert_eq!(processes.len(), if is_root() { 2 } else { 1 }, "{processes:?}");
    pipeline.signal(Signal::TERM);
    wait_for("the server to end", || servers_of(&folder.path().join("edge.sock")).is_empty());
    assert!(!socket.exists(), "the server has removed its socket");
}

#[test]
fn the_server_of_a_run_ends_with_a_killed_run() {
    let folder = folder();
    let (mut pipeline, _) = run_with_server(folder.path());
    pipeline.kill();
    wait_for("the server to end", || servers_of(&folder.path().join("edge.sock")).is_empty());
}

#[test]
fn a_run_whose_server_cannot_listen_does_not_start() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let in_use = listener.local_addr().expect("an address").to_string();
    let missing = format!("unix:{}/missing/socket", folder.path().display());
    let capture = folder.path().join("capture.pcap");
    let file = folder.path().join("edge.yaml");
    let sink = format!("out: {{ pcap: {{ write: '{}' }} }}", capture.display());
    let text = PIPELINE.replace("out: { sink: }", &sink);
    assert_ne!(text, PIPELINE);
    std::fs::write(&file, text).expect("a writable folder");
    for (listen, expected) in [
        (in_use.as_str(), "another process listens there"),
        ("0.0.0.0:0", "can be reached from other machines"),
        ("[::]:0", "can be reached from other machines"),
        (missing.as_str(), "the folder does not exist"),
        ("nowhere", "allowed is an IP address with a port"),
    ] {
        let mut command = Command::new(FOREBAY);
        command.args(["run", "--no-live", "--duration", "60s", "--http", listen]);
        let output = command.arg("--socket").arg(folder.path().join("edge.sock")).arg(&file).output();
        let output = output.expect("the command can be started");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && err.contains(expected), "{listen}: {output:?}");
        // Packets would run, and files would be replaced, although the command fails.
        assert!(!err.contains("event=started") && !capture.exists(), "{listen}: {err}");
        assert_eq!(servers_of(&folder.path().join("edge.sock")), [""; 0], "{listen}");
    }
}
