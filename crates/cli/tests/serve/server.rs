//! A server and a pipeline in their own processes.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::http::{self, Response};

pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// The user of the HTTP process, if root runs the tests: the number that most systems give to the user without rights.
pub const NO_RIGHTS: &str = "65534";

/// A pipeline with a flow that has an objective, with drops, and with a table.
pub const PIPELINE: &str = "
ports:
  in:  { generator: { rate: 100kpps, destination: 10.0.0.0/16, destination_port: 53-56, sessions: 64 } }
  out: { sink: }
modules:
  fw: { acl: { rules: ['deny udp from any to any port 53', 'permit any'] } }
  route: { ip_lookup: { routes: ['0.0.0.0/0 0', '10.0.0.0/8 1'] } }
  a: { counter: }
  b: { counter: }
pipeline:
  - in -> fw -> route
  - route[0] -> a -> out
  - route[1] -> b -> out
flows:
  - { name: video, path: 'route[1] -> b', slo: 100ms }
";

/// Makes a folder that the user without rights can enter.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("own folder");
    folder
}

/// Returns whether root runs the tests.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives a file to the user of the HTTP process.
pub fn give(path: &Path) {
    if is_root() {
        let id = NO_RIGHTS.parse().ok();
        std::os::unix::fs::chown(path, id, id).expect("root may");
    }
}

/// Waits until `is_there` returns true. `what` names the condition in the panic after a minute.
pub fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    for _ in 0..1_200 {
        if is_there() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("timed out waiting for {what}");
}

/// A running pipeline. It is killed when this value is dropped.
pub struct Pipeline {
    process: Child,
    stderr: Option<BufReader<ChildStderr>>,
    pub file: PathBuf,
}

impl Pipeline {
    /// Runs [`PIPELINE`] under this name, with its socket in `folder`.
    pub fn start(folder: &Path, name: &str) -> Self {
        Self::of(folder, name, PIPELINE, &[])
    }

    /// Runs `text` with further arguments.
    pub fn of(folder: &Path, name: &str, text: &str, more: &[&str]) -> Self {
        let file = folder.join(format!("{name}.yaml"));
        std::fs::write(&file, text).expect("a writable folder");
        Self::run(folder, name, &file, more)
    }

    /// Runs the pipeline in `file` again.
    pub fn run(folder: &Path, name: &str, file: &Path, more: &[&str]) -> Self {
        // The folder of sockets belongs to this test: other tests do not find the pipeline.
        let mut command = Command::new("sh");
        // Every user may connect.
        command.args([
            "-c",
            "umask 000; exec \"$@\"",
            "sh",
            FOREBAY,
            "run",
            "--no-live",
            "--json",
            "--duration",
            "7200s",
        ]);
        command.args(["--socket"]).arg(folder.join(format!("{name}.sock"))).args(more).arg(file);
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command can be started");
        let mut stderr = BufReader::new(process.stderr.take().expect("piped"));
        let (mut line, mut all) = (String::new(), String::new());
        while !line.contains("reach it by") {
            line.clear();
            assert!(stderr.read_line(&mut line).expect("UTF-8") > 0, "it ended before it listened: {all}");
            all += &line;
        }
        Self { process, stderr: Some(stderr), file: file.to_path_buf() }
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }

    /// Kills the process, so that it cannot remove its socket.
    pub fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Ends the run, and returns its report, after checking that all packets are accounted for.
    pub fn end(mut self) -> Value {
        self.signal(Signal::TERM);
        let mut out = String::new();
        self.process.stdout.take().expect("piped").read_to_string(&mut out).expect("UTF-8");
        let mut err = String::new();
        self.stderr.take().expect("piped").read_to_string(&mut err).expect("UTF-8");
        let report: Value = serde_json::from_str(out.lines().last().expect("a report")).expect("JSON");
        assert_eq!(missing(&report["packets"]), 0, "{}", report["packets"]);
        assert_eq!(self.process.wait().expect("it ends").code(), Some(0), "{err}");
        report
    }
}

/// Returns the number of packets that are unaccounted for.
pub fn missing(packets: &Value) -> i64 {
    let count = |value: &Value| value.as_i64().expect("a number");
    let sum = |value: &Value| value.as_object().expect("reasons").values().map(count).sum::<i64>();
    let entered = count(&packets["in"]) + sum(&packets["created"]);
    let gone = count(&packets["out"]) + sum(&packets["dropped"]) + sum(&packets["consumed"]);
    entered - gone - count(&packets["queued"]) - count(&packets["held"]) - count(&packets["in_flight"])
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A running server. It is killed when this value is dropped.
pub struct Server {
    process: Child,
    /// The lines of its standard error.
    log: Receiver<String>,
    pub address: String,
}

/// A server that did not start.
#[derive(Debug)]
pub struct Refused {
    pub code: Option<i32>,
    pub err: String,
}

impl Server {
    /// Starts a server at a free port of loopback, for the pipelines with sockets in `folder`, with its store in
    /// memory.
    pub fn start(folder: &Path) -> Self {
        Self::with(folder, "", &[])
    }

    /// Starts a server with further settings (YAML lines) and arguments.
    pub fn with(folder: &Path, settings: &str, more: &[&str]) -> Self {
        Self::try_with(folder, settings, more).unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// Starts a server, or returns why it did not start.
    pub fn try_with(folder: &Path, settings: &str, more: &[&str]) -> Result<Self, Refused> {
        let mut text = format!("sockets: ['{}']\n{settings}\n", folder.display());
        for (key, value) in [("store", "memory"), ("listen", "['127.0.0.1:0']")] {
            if !settings.contains(&format!("{key}:")) && !more.contains(&format!("--{key}").as_str()) {
                text += &format!("{key}: {value}\n");
            }
        }
        let config = folder.join("serve.yaml");
        std::fs::write(&config, text).expect("a writable folder");
        let config = config.display().to_string();
        Self::spawn(folder, &[&["--config", &config], more].concat())
    }

    /// Starts a server with exactly these arguments.
    pub fn spawn(folder: &Path, arguments: &[&str]) -> Result<Self, Refused> {
        Self::by(Command::new(FOREBAY), folder, arguments)
    }

    /// Starts a server by a command to which the arguments of `forebay` are added.
    pub fn by(mut command: Command, folder: &Path, arguments: &[&str]) -> Result<Self, Refused> {
        // The folders in which pipelines listen by default hold those of other tests.
        let nothing = folder.join("nothing");
        command.arg("serve").args(arguments).env("XDG_RUNTIME_DIR", &nothing).env("TMPDIR", &nothing);
        if is_root() && !arguments.contains(&"--user") {
            command.args(["--user", NO_RIGHTS]);
        }
        let mut process = command.stderr(Stdio::piped()).spawn().expect("the command can be started");
        let mut stderr = BufReader::new(process.stderr.take().expect("piped"));
        let (mut line, mut err) = (String::new(), String::new());
        while !line.contains(" event=serving ") && !line.contains("\"event\":\"serving\"") {
            line.clear();
            if stderr.read_line(&mut line).expect("UTF-8") == 0 {
                return Err(Refused { code: process.wait().expect("it ended").code(), err });
            }
            err += &line;
        }
        let address = line.split_once("\"at ").expect("an address").1;
        let address = address.trim_end().trim_end_matches(['"', '}']).to_owned();
        let (send, log) = channel();
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Ok(Self { process, log, address })
    }

    /// Sends a request without a token, and returns the response.
    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "")
    }

    /// Sends a request with a token, and returns the response.
    pub fn get_as(&self, token: &str, path: &str) -> Response {
        self.send("GET", path, &[("Authorization", &format!("Bearer {token}"))], "")
    }

    /// Sends a request over a connection of its own, and returns the response.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let bytes = http::request(method, path, headers, body);
        http::exchange(&mut http::connect(&self.address), bytes.as_bytes())
    }

    /// Waits until the server lists a pipeline with this status.
    pub fn wait_for(&self, name: &str, status: &str) {
        let path = format!("/api/v1/instances/{name}");
        let has = || {
            let response = self.get(&path);
            response.status == 200 && response.json()["status"] == status
        };
        wait_for(&format!("{name} to be {status}"), has);
    }

    /// Waits for a line of the log that contains `part`, and returns it.
    pub fn line(&self, part: &str) -> String {
        loop {
            let line =
                self.log.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("no line with '{part}'"));
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }

    /// Returns the process ID of the root helper, if root runs the tests; otherwise that of the server.
    pub fn helper(&self) -> u32 {
        self.process.id()
    }

    /// Returns the process ID of the HTTP process.
    pub fn http_process(&self) -> u32 {
        if is_root() { child_of(self.process.id()).expect("an HTTP process") } else { self.process.id() }
    }

    /// Returns the memory of the HTTP process that belongs to no file, in kilobytes.
    pub fn own_kb(&self) -> u64 {
        let path = format!("/proc/{}/status", self.http_process());
        let status = std::fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line RssAnon");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        let http = self.http_process();
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
        wait_for("the HTTP process to end", || !Path::new(&format!("/proc/{http}")).exists());
    }

    /// Ends the server, and returns its exit code.
    pub fn end(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the process ID of the child of a process.
fn child_of(parent: u32) -> Option<u32> {
    let parent = parent.to_string();
    let is_child = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)) == Some(parent.as_str())
    };
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_child)
}

/// Tokens, one for each role, in a file of the server.
pub struct Tokens {
    pub file: PathBuf,
    pub viewer: String,
    pub operator: String,
    pub admin: String,
    pub expired: String,
}

impl Tokens {
    /// Makes tokens with `forebay token`.
    pub fn make(folder: &Path) -> Self {
        let mut text = "tokens:\n".to_owned();
        let mut make = |arguments: &[&str]| {
            let output =
                Command::new(FOREBAY).arg("token").args(arguments).output().expect("the command can be started");
            assert!(output.status.success(), "{output:?}");
            text += &String::from_utf8(output.stdout).expect("UTF-8");
            let err = String::from_utf8(output.stderr).expect("UTF-8");
            err.lines().find_map(|line| line.strip_prefix("token: ")).expect("a token").to_owned()
        };
        let [viewer, operator, admin] =
            ["viewer", "operator", "admin"].map(|role| make(&[&format!("{role}-1"), "--role", role]));
        let expired = make(&["old", "--role", "admin", "--expires", "2020-01-01"]);
        let file = folder.join("tokens.yaml");
        std::fs::write(&file, text).expect("a writable folder");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("own file");
        give(&file);
        Self { file, viewer, operator, admin, expired }
    }

    /// Returns the setting that names the file.
    pub fn setting(&self) -> String {
        format!("tokens: '{}'", self.file.display())
    }
}
