//! A server that a service manager has started: its messages, the sockets that it gets, and its log.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::http::{connect_unix, exchange, request};
use crate::manager::Manager;
use crate::server::{FOREBAY, Pipeline, Server, Tokens, folder, is_root};

/// Starts a server as a service manager does: with `variables`, and with open sockets from descriptor 3 on. In
/// `variables`, `$$` is the process ID of the server.
fn start(
    folder: &Path,
    variables: &str,
    sockets: Vec<OwnedFd>,
    settings: &str,
    more: &[&str],
) -> Result<Server, crate::server::Refused> {
    let config = folder.join("serve.yaml");
    let text = format!("sockets: ['{}']\nstore: memory\n{settings}\n", folder.display());
    std::fs::write(&config, text).expect("a writable folder");
    let config = config.display().to_string();
    // The shell moves the sockets to their descriptors.
    let moves = ["", "3<&0", "3<&0 4<&1"][sockets.len()];
    let script = format!("exec {moves} 0</dev/null 1>/dev/null; export {variables}; exec \"$@\"");
    let mut command = Command::new("sh");
    let mut sockets = sockets.into_iter();
    command.args(["-c", &script, "sh", FOREBAY]);
    command.stdin(sockets.next().map_or_else(Stdio::null, Stdio::from));
    command.stdout(sockets.next().map_or_else(Stdio::null, Stdio::from));
    Server::by(command, folder, &[&["--config", &config], more].concat())
}

const LOCAL: &str = "listen: ['127.0.0.1:0']";

#[test]
fn a_server_reports_its_start_its_reloads_and_its_end() {
    let folder = folder();
    let manager = Manager::in_folder(folder.path());
    let variables = format!("NOTIFY_SOCKET='{}' WATCHDOG_USEC=100000 WATCHDOG_PID=$$", manager.path.display());
    let server = start(folder.path(), &variables, vec![], LOCAL, &[]).expect("a server");
    let ready = format!("READY=1\nSTATUS=serving at {}\n", server.address);
    assert_eq!(manager.state(), ready);
    assert_eq!(server.get("/healthz").status, 200);
    manager.alive();
    for (text, event) in [("# nothing\n", "settings_read"), ("lisen: []\n", "settings_refused")] {
        std::fs::write(folder.path().join("serve.yaml"), text).expect("own file");
        server.signal(Signal::HUP);
        let reloading = manager.state();
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{reloading}"));
        assert!(time.trim_end().parse::<u64>().is_ok(), "{reloading}");
        assert_eq!(manager.state(), "READY=1\n");
        server.line(event);
    }
    manager.alive();
    server.signal(Signal::TERM);
    assert_eq!(manager.state(), "STOPPING=1\nSTATUS=ending\n");
    assert_eq!(server.end(), Some(0));
}

/// The root helper continues, and must not send in place of the HTTP process.
#[test]
fn a_server_that_hangs_stops_the_messages_of_the_watchdog() {
    let folder = folder();
    let manager = Manager::in_folder(folder.path());
    let variables = format!("NOTIFY_SOCKET='{}' WATCHDOG_USEC=100000 WATCHDOG_PID=$$", manager.path.display());
    let server = start(folder.path(), &variables, vec![], LOCAL, &[]).expect("a server");
    manager.alive();
    let number = i32::try_from(server.http_process()).ok().and_then(Pid::from_raw).expect("not 0");
    kill_process(number, Signal::STOP).expect("it runs");
    // Forty intervals without a message. Messages that come for ever fail the test.
    let is_silent = (0..2_000).any(|_| manager.next(Duration::from_secs(2)).is_none());
    assert!(is_silent, "the messages continue although the server hangs");
    kill_process(number, Signal::CONT).expect("it runs");
    manager.alive();
    manager.alive();
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_watchdog_of_another_process_gets_no_message() {
    let folder = folder();
    let manager = Manager::in_folder(folder.path());
    let variables = format!("NOTIFY_SOCKET='{}' WATCHDOG_USEC=2000 WATCHDOG_PID=1", manager.path.display());
    let server = start(folder.path(), &variables, vec![], LOCAL, &[]).expect("a server");
    assert!(manager.next(Duration::from_secs(60)).is_some_and(|message| message.starts_with("READY=1\n")));
    let pipeline = Pipeline::start(folder.path(), "edge");
    server.wait_for("edge", "running");
    server.signal(Signal::TERM);
    assert_eq!(manager.next(Duration::from_secs(60)).as_deref(), Some("STOPPING=1\nSTATUS=ending\n"));
    assert_eq!(server.end(), Some(0));
    pipeline.end();
}

#[test]
fn a_server_uses_the_sockets_of_the_service_manager() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let path = folder.path().join("serve.sock");
    let open = || -> (TcpListener, Vec<OwnedFd>) {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback");
        // A server that ends leaves the file of the socket to the service manager.
        let _ = std::fs::remove_file(&path);
        let unix = UnixListener::bind(&path).expect("a writable folder");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o660)).expect("own file");
        (tcp.try_clone().expect("a descriptor"), vec![tcp.into(), unix.into()])
    };
    let (tcp, sockets) = open();
    let address = tcp.local_addr().expect("an address").to_string();
    let settings = format!("listen: ['127.0.0.1:1']\n{}", tokens.setting());
    let server = start(folder.path(), "LISTEN_FDS=2 LISTEN_PID=$$", sockets, &settings, &[]).expect("a server");
    assert_eq!(server.address, address);
    server.line(&format!("at unix:{}", path.display()));
    assert_eq!(server.get("/api/v1/instances").status, 200);
    let bytes = request("GET", "/api/v1/instances", &[], "");
    assert_eq!(exchange(&mut connect_unix(&path), bytes.as_bytes()).status, 200);
    // The addresses do not change, and the settings are still read.
    server.signal(Signal::HUP);
    server.line("settings_read");
    assert_eq!(server.get("/api/v1/instances").status, 200);
    if is_root() {
        // Only the HTTP process listens: the root helper has closed its descriptors.
        let own = std::fs::metadata(format!("/proc/{}", server.http_process())).expect("it runs").uid();
        assert_ne!(own, 0);
        assert_eq!(listening(server.helper(), &tcp), 0);
        assert_eq!(listening(server.http_process(), &tcp), 1);
    }
    assert_eq!(server.end(), Some(0));
    assert!(path.exists(), "the file of the socket belongs to the service manager");
    // The variables are those of another process.
    let (_tcp, sockets) = open();
    let server = start(folder.path(), "LISTEN_FDS=2 LISTEN_PID=1", sockets, LOCAL, &[]).expect("a server");
    assert_ne!(server.address, address);
    assert_eq!(server.get("/healthz").status, 200);
    assert_eq!(server.end(), Some(0));
}

/// Returns the number of descriptors of a process for this socket.
fn listening(process: u32, socket: &TcpListener) -> usize {
    let inode = rustix::fs::fstat(socket).expect("a socket").st_ino;
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").flatten();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.as_os_str() == format!("socket:[{inode}]").as_str()).count()
}

#[test]
fn sockets_that_are_too_open_are_refused() {
    let folder = folder();
    let refused = |socket: OwnedFd| {
        let done = start(folder.path(), "LISTEN_FDS=1 LISTEN_PID=$$", vec![socket], LOCAL, &[]);
        let refused = done.err().expect("it must not start");
        assert_eq!(refused.code, Some(2), "{refused:?}");
        refused.err.replace(&folder.path().display().to_string(), "FOLDER")
    };
    for public in ["0.0.0.0:0", "[::]:0"] {
        let listener = match TcpListener::bind(public) {
            Err(error) if public.starts_with('[') => {
                drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: IPv6: {error}\n")));
                continue;
            }
            listener => listener.expect("a free port"),
        };
        let err = refused(listener.into());
        assert!(err.contains("can be reached from other machines: add `tls` and `tokens`"), "{err}");
    }
    let path = folder.path().join("open.sock");
    let unix = UnixListener::bind(&path).expect("a writable folder");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("own file");
    let err = refused(unix.into());
    assert!(err.contains("unix:FOLDER/open.sock: every user of this host can connect (mode 0666)"), "{err}");
    let connected = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let connected = TcpStream::connect(connected.local_addr().expect("an address")).expect("it listens");
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let file = std::fs::File::open("/dev/null").expect("every system has it");
    let others: [OwnedFd; 3] = [connected.into(), datagrams.into(), file.into()];
    for other in others {
        let err = refused(other);
        assert!(err.contains("socket 1 of the service manager: allowed are TCP sockets"), "{err}");
    }
}

#[test]
fn the_log_can_be_json() {
    let folder = folder();
    let server = start(folder.path(), "", vec![], LOCAL, &["--log-format", "json"]).expect("a server");
    let pipeline = Pipeline::start(folder.path(), "edge");
    let line: Value = serde_json::from_str(&server.line("instance_found")).expect("JSON");
    assert!(line["level"] == "info" && line["event"] == "instance_found" && line["program"] == "serve", "{line}");
    assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z') && time.contains('.')), "{line}");
    assert!(line["msg"].as_str().is_some_and(|message| message.contains("edge.sock")), "{line}");
    pipeline.end();
    assert_eq!(server.end(), Some(0));
    // An error at the start is a line of JSON, too.
    let refused = start(folder.path(), "", vec![], "lisen: []", &["--log-format", "json"]).err().expect("an error");
    let line: Value = serde_json::from_str(refused.err.trim_end()).unwrap_or_else(|_| panic!("{refused:?}"));
    assert!(line["level"] == "error" && line["event"] == "serve_failed" && refused.code == Some(2), "{refused:?}");
    assert!(line["msg"].as_str().is_some_and(|message| message.contains("'lisen'")), "{line}");
}

/// The service manager makes the folder for root, the user of the service.
#[test]
fn the_store_is_in_the_folder_of_the_service() {
    let folder = folder();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).expect("a writable folder");
    let config = folder.path().join("serve.yaml");
    std::fs::write(&config, LOCAL).expect("a writable folder");
    let mut command = Command::new(FOREBAY);
    command.env("STATE_DIRECTORY", &state);
    let server = Server::by(command, folder.path(), &["--config", &config.display().to_string()]).expect("a server");
    assert_eq!(server.get("/readyz").status, 200);
    assert!(state.join("serve.db").exists());
    let own = std::fs::metadata(format!("/proc/{}", server.http_process())).expect("it runs").uid();
    assert_eq!(std::fs::metadata(&state).expect("it exists").uid(), own);
    assert_eq!(server.end(), Some(0));
}
