//! The root helper and the HTTP process as real processes. Only root can run these tests.
//!
//! Each test starts this program again as the root helper (`helper_entry`), which starts it a third time as the HTTP
//! process (`child_entry`) of another [`USER`]. Both write lines that begin with [`MARK`] to the test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use forebay_host::users;
use forebay_server::Passed;
use forebay_server::privilege::{Helper, HelperError, OPERATIONS, Operations, Starter, enter, supervise};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

/// The user of the HTTP process, by number. Most systems give this number to the user without files (`overflowuid` in
/// proc(5)), under different names.
const USER: &str = "65534";
/// The variable with the scene that the HTTP process plays.
const SCENE: &str = "FOREBAY_PRIVILEGE_SCENE";
/// The start of the lines for the test. The test harness writes other lines to the same pipe.
const MARK: &str = "@ ";
/// The time after which a process counts as hung. A scene takes less than a second.
const LIMIT: Duration = Duration::from_secs(60);

/// Writes a line for the test. Not with `println`, whose output the harness may hide. The harness may have written the
/// beginning of a line.
fn report(line: &str) {
    let mut out = io::stdout().lock();
    out.write_all(format!("\n{MARK}{line}\n").as_bytes()).and_then(|()| out.flush()).expect("the test reads");
}

/// Returns the reason if these tests cannot run.
fn missing_requirement() -> Option<String> {
    if !rustix::process::getuid().is_root() {
        return Some("only root can start a process as another user".to_owned());
    }
    let program = std::env::current_exe().expect("this program");
    let mode = program.metadata().expect("this program").mode();
    (mode & 0o005 != 0o005).then(|| format!("{} has mode {mode:o}: others cannot run it", program.display()))
}

/// Returns true if the test cannot run. Prints the reason.
fn is_skipped(test: &str) -> bool {
    let missing = missing_requirement();
    if let Some(why) = &missing {
        let _ = writeln!(io::stderr(), "skipped: privilege::{test}: {why}");
    }
    missing.is_some()
}

/// Returns the command that runs one ignored test of `program`, which is this program.
fn entry(program: &Path, test: &str) -> Command {
    let mut command = Command::new(program);
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// A root helper and its HTTP process, and the folder with their instances.
struct Scene {
    _folder: tempfile::TempDir,
    helper: Child,
    lines: Receiver<String>,
    /// The HTTP process, once it has reported its ID.
    http: Option<Pid>,
}

impl Scene {
    /// Makes a folder, fills it with `prepare`, and starts the scene.
    fn start(name: &str, prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        // As `forebay run` makes it: no other user can enter it.
        std::fs::DirBuilder::new().mode(0o700).create(folder.path().join("forebay")).expect("a writable folder");
        prepare(folder.path());
        let mut helper = entry(&std::env::current_exe().expect("this program"), "helper_entry")
            .env(SCENE, name)
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program");
        let out = BufReader::new(helper.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            let marked = out.lines().map_while(Result::ok).filter_map(|line| Some(line.strip_prefix(MARK)?.to_owned()));
            // The test may have failed and ended already.
            marked.for_each(|line| drop(sender.send(line)));
        });
        let mut scene = Self { _folder: folder, helper, lines, http: None };
        let id = scene.expect("http ");
        scene.http = id.parse().ok().and_then(Pid::from_raw);
        assert!(scene.http.is_some(), "{id}");
        scene
    }

    /// Returns the rest of the next line that starts with `start`.
    fn expect(&mut self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("no line {start:?}: {error}"));
            if let Some(rest) = line.strip_prefix(start) {
                return rest.to_owned();
            }
        }
    }

    /// Receives lines until both processes have ended: the last one closes the pipe.
    fn rest(&mut self) -> Result<Vec<String>, RecvTimeoutError> {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return Ok(lines),
                Err(timeout) => return Err(timeout),
            }
        }
    }

    /// Waits until both processes have ended. Returns the remaining lines and the status of the helper.
    fn end(mut self) -> (Vec<String>, ExitStatus) {
        let lines = self.rest().expect("both processes end");
        (lines, self.helper.wait().expect("a child"))
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.helper), signal).expect("a child");
    }
}

impl Drop for Scene {
    /// Ends both processes if the test failed.
    fn drop(&mut self) {
        // The helper may have ended already.
        let _ = self.helper.kill();
        let _ = self.helper.wait();
        // As long as the pipe is open, the HTTP process exists and has its ID.
        if let (Err(_), Some(http)) = (self.rest(), self.http) {
            let _ = kill_process(http, Signal::KILL);
        }
    }
}

/// The root helper of a scene.
#[test]
#[ignore = "the other tests of this file start it"]
fn helper_entry() {
    let user = users::find(Path::new("/"), USER).expect("a user");
    let log = |line: &str| report(&format!("log {line}"));
    // The folder of this program may be closed to the user, but the program itself is not.
    let command = entry(Path::new("/proc/self/exe"), "child_entry");
    let status = supervise(command, &user, Operations::new(&[], &log), Passed::default()).expect("a child");
    report(&format!("ended {status}"));
    // As a shell reports it.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    std::process::exit(code.unwrap_or(1));
}

/// The HTTP process of a scene.
#[test]
#[ignore = "the other tests of this file start it"]
fn child_entry() {
    enter(Starter::RootHelper).expect("this process has no rights");
    let helper = Helper::from_stdin().expect("the socket of the helper");
    report(&format!("http {}", std::process::id()));
    match std::env::var(SCENE).expect("a test of this file starts this program").as_str() {
        "rights" => show_rights(&helper),
        "refusals" => send_wrong_requests(&helper),
        "connect" => connect(&helper),
        "signals" => receive_signals(),
        "end of socket" => wait_for_end_of_socket(&helper),
        "end of parent" => wait_for_signal(),
        other => panic!("no scene {other}"),
    }
}

#[test]
fn the_http_process_has_no_rights_and_a_helper() {
    if is_skipped("the_http_process_has_no_rights_and_a_helper") {
        return;
    }
    let mut scene = Scene::start("rights", |_| {});
    assert_eq!(scene.expect("helper "), format!("0 {}", scene.helper.id()));
    let (lines, status) = scene.end();
    assert!(status.success(), "{status}: {lines:?}");
}

fn show_rights(helper: &Helper) {
    let user = users::find(Path::new("/"), USER).expect("a user");
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("a file of the kernel");
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect(name);
        value.split_ascii_whitespace().collect::<Vec<_>>()
    };
    let (uid, gid) = (user.uid.to_string(), user.gid.to_string());
    assert_eq!(field("Uid"), [uid.as_str(); 4]);
    assert_eq!(field("Gid"), [gid.as_str(); 4]);
    assert_eq!(field("Groups"), Vec::<&str>::new());
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs"), ["1"]);
    // Threads inherit this.
    let inherited = thread::spawn(|| rustix::thread::no_new_privs().expect("a kernel with no_new_privs"));
    assert!(inherited.join().expect("it only reads"));
    let identity = helper.identity().expect("a helper");
    assert_eq!(identity.operations, OPERATIONS);
    assert!(!helper.has_ended());
    report(&format!("helper {} {}", identity.uid, identity.pid));
}

#[test]
fn wrong_requests_are_refused() {
    if is_skipped("wrong_requests_are_refused") {
        return;
    }
    let mut scene = Scene::start("refusals", |_| {});
    let line = scene.expect("log ");
    assert!(line.starts_with("root helper: request refused (1 until now): "), "{line}");
    let (lines, status) = scene.end();
    assert!(status.success(), "{status}: {lines:?}");
}

/// Sends bytes to the helper, and returns the response.
fn exchange(socket: BorrowedFd<'_>, request: &[u8]) -> serde_json::Value {
    send(socket, request, SendFlags::NOSIGNAL).expect("a helper");
    let mut buffer = vec![0; 64 << 10];
    let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty()).expect("a response");
    serde_json::from_slice(&buffer[..length]).expect("JSON")
}

fn send_wrong_requests(helper: &Helper) {
    let stdin = io::stdin();
    let long = format!("{{\"do\":\"connect\",\"path\":\"{}\"}}", "x".repeat(70_000));
    let wrong: [&[u8]; 17] = [
        b"",
        b"\0",
        b"\xff\xfe",
        b"identity",
        b"[]",
        b"[\"identity\"]",
        b"null",
        b"{}",
        b"{\"do\":\"shell\"}",
        b"{\"do\":\"exec\",\"path\":\"/bin/sh\"}",
        b"{\"do\":\"identity\",\"uid\":0}",
        b"{\"do\":\"identity\"}{\"do\":\"identity\"}",
        b"{\"do\":\"sockets\",\"after\":[]}",
        b"{\"do\":\"connect\"}",
        b"{\"do\":\"connect\",\"path\":7}",
        b"{\"do\":\"connect\",\"path\":\"/\",\"mode\":1}",
        long.as_bytes(),
    ];
    for round in 0..10 {
        for request in wrong {
            let response = exchange(stdin.as_fd(), request);
            let keys: Vec<_> = response.as_object().expect("an object").keys().collect();
            assert_eq!(keys, ["error"], "{round} {:?}: {response}", String::from_utf8_lossy(request));
        }
        // More than 100 refused requests later, the helper still responds.
        assert_eq!(helper.identity().expect("a helper").uid, 0);
    }
}

#[test]
fn only_sockets_of_instances_are_connected_to() {
    if is_skipped("only_sockets_of_instances_are_connected_to") {
        return;
    }
    let mut listeners = None;
    let scene = Scene::start("connect", |folder| {
        let at = |name: &str| folder.join(name);
        let instance = UnixListener::bind(at("forebay/gw-7.sock")).expect("a socket");
        let outside = UnixListener::bind(at("other-8.sock")).expect("a socket");
        std::fs::write(at("forebay/file-9.sock"), "secret").expect("a writable folder");
        symlink(at("other-8.sock"), at("forebay/link-10.sock")).expect("a writable folder");
        listeners = Some((instance, outside));
    });
    let (instance, _outside) = listeners.expect("the scene was prepared");
    // On a thread, because the test must notice if the process fails before it connects.
    thread::spawn(move || {
        let (mut stream, _) = instance.accept().expect("a connection");
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).expect("a request");
        stream.write_all(&bytes.map(|byte| byte.to_ascii_uppercase())).expect("it is open");
    });
    let (lines, status) = scene.end();
    assert!(status.success(), "{status}: {lines:?}");
    assert!(lines.iter().any(|line| line == "bytes PING"), "{lines:?}");
}

fn connect(helper: &Helper) {
    let folder = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").expect("the test sets it"));
    let path = folder.join("forebay/gw-7.sock");
    let direct = UnixStream::connect(&path).expect_err("this user cannot enter the folder");
    assert_eq!(direct.kind(), io::ErrorKind::PermissionDenied);
    let listed = helper.sockets().expect("a list");
    let own: Vec<_> = listed.iter().filter(|it| it.path.starts_with(&folder)).collect();
    assert_eq!(own.len(), 1, "{own:?}");
    assert_eq!((own[0].name.as_str(), own[0].pid, &own[0].path), ("gw", Some(7), &path));
    for wrong in [
        "forebay/file-9.sock",
        "other-8.sock",
        "forebay/../other-8.sock",
        "forebay/../forebay/gw-7.sock",
        "forebay//gw-7.sock",
        "forebay/link-10.sock",
        "forebay/none-11.sock",
        "forebay",
        "/etc/shadow",
        "",
    ] {
        let error = helper.connect(&folder.join(wrong)).expect_err(wrong);
        assert!(matches!(error, HelperError::Refused(_)), "{wrong}: {error}");
    }
    let mut stream = helper.connect(&path).expect("the socket of an instance");
    let limit = stream.set_read_timeout(Some(LIMIT)).and_then(|()| stream.write_all(b"ping"));
    limit.expect("it is open");
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).expect("a response");
    report(&format!("bytes {}", String::from_utf8_lossy(&bytes)));
}

#[test]
fn signals_are_forwarded_and_the_status_is_returned() {
    if is_skipped("signals_are_forwarded_and_the_status_is_returned") {
        return;
    }
    let mut scene = Scene::start("signals", |_| {});
    scene.expect("ready");
    for (signal, number) in
        [(Signal::HUP, SIGHUP), (Signal::USR1, SIGUSR1), (Signal::INT, SIGINT), (Signal::TERM, SIGTERM)]
    {
        scene.send(signal);
        assert_eq!(scene.expect("signal "), number.to_string());
    }
    let (lines, status) = scene.end();
    assert_eq!((lines, status.code()), (vec!["ended exit status: 7".to_owned()], Some(7)));
}

fn receive_signals() {
    let mut signals = Signals::new([SIGHUP, SIGUSR1, SIGINT, SIGTERM]).expect("signals");
    report("ready");
    for signal in signals.forever() {
        report(&format!("signal {signal}"));
        if signal == SIGTERM {
            std::process::exit(7);
        }
    }
}

/// Plays a scene, kills the helper, and returns the lines after that.
fn kill_the_helper(name: &str) -> Vec<String> {
    let mut scene = Scene::start(name, |_| {});
    scene.expect("ready");
    scene.send(Signal::KILL);
    let (lines, status) = scene.end();
    assert!(!status.success(), "{status}");
    lines
}

#[test]
fn the_http_process_notices_the_end_of_its_socket() {
    if is_skipped("the_http_process_notices_the_end_of_its_socket") {
        return;
    }
    assert_eq!(kill_the_helper("end of socket"), ["helper has ended"]);
}

fn wait_for_end_of_socket(helper: &Helper) {
    // Without this, the system ends the process by the signal.
    signal_hook::flag::register(SIGTERM, Arc::default()).expect("a signal");
    report("ready");
    helper.wait_for_end();
    assert!(helper.has_ended());
    assert!(matches!(helper.identity(), Err(HelperError::Ended)));
    report("helper has ended");
}

#[test]
fn the_http_process_gets_a_signal_when_its_helper_is_killed() {
    if is_skipped("the_http_process_gets_a_signal_when_its_helper_is_killed") {
        return;
    }
    assert_eq!(kill_the_helper("end of parent"), Vec::<String>::new());
}

fn wait_for_signal() {
    report("ready");
    loop {
        thread::park();
    }
}

#[test]
fn the_status_of_a_killed_http_process_is_returned() {
    if is_skipped("the_status_of_a_killed_http_process_is_returned") {
        return;
    }
    let mut scene = Scene::start("end of parent", |_| {});
    scene.expect("ready");
    kill_process(scene.http.expect("it has reported its ID"), Signal::KILL).expect("it waits");
    let (lines, status) = scene.end();
    assert_eq!((lines.len(), status.code()), (1, Some(137)), "{lines:?}");
    assert!(lines[0].starts_with("ended signal: 9"), "{lines:?}");
}

#[test]
fn root_is_no_user_for_the_http_process() {
    let root = forebay_host::User { name: "root".to_owned(), uid: 0, gid: 0 };
    let operations = Operations::new(&[], &|_| {});
    let error = supervise(Command::new("/bin/true"), &root, operations, Passed::default()).expect_err("it is root");
    let expected = "user 'root' is root (user number 0): name a user without rights for the HTTP process";
    assert_eq!(error.to_string(), expected);
}
