//! A pipeline that runs in its own process while a test sends requests, changes it and ends it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::{CommandResult, forebay};

/// All packets match the longer prefix.
pub(crate) const PIPELINE: &str = "
ports:
  in:  { generator: { rate: 100kpps, destination: 10.0.0.0/16 } }
  out: { sink: }
modules:
  route: { ip_lookup: { routes: ['0.0.0.0/0 0', '10.0.0.0/8 1'] } }
  a: { counter: }
  b: { counter: }
pipeline:
  - in -> route
  - route[0] -> a -> out
  - route[1] -> b -> out
";

/// A running pipeline. It is killed when this value is dropped.
pub(crate) struct Running {
    process: Child,
    stderr: BufReader<ChildStderr>,
    folder: TempDir,
}

impl Running {
    /// Runs [`PIPELINE`] in its own folder.
    pub(crate) fn start() -> Self {
        Self::of(PIPELINE)
    }

    /// Runs `text` in its own folder.
    pub(crate) fn of(text: &str) -> Self {
        Self::in_folder(temporary(), text, &[])
    }

    /// Runs `text` as the folder's `pipeline.yaml`, with the further arguments `more`.
    pub(crate) fn in_folder(folder: TempDir, text: &str, more: &[&str]) -> Self {
        Self::by(Command::new(env!("CARGO_BIN_EXE_forebay")), folder, text, more, &[])
    }

    /// Runs `text` without a terminal and with umask 000, so that each user can read its files unless it sets their
    /// mode.
    pub(crate) fn as_service(text: &str, more: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 000; exec setsid \"$@\"", "sh", env!("CARGO_BIN_EXE_forebay")]);
        Self::by(command, temporary(), text, more, &[])
    }

    /// Runs `text` like [`as_service`](Self::as_service), with these environment variables.
    pub(crate) fn with_variables(text: &str, more: &[&str], variables: &[(&str, String)]) -> Self {
        let mut command = Command::new("setsid");
        command.arg(env!("CARGO_BIN_EXE_forebay")).envs(variables.iter().map(|(name, value)| (name, value)));
        Self::by(command, temporary(), text, more, &[])
    }

    /// Runs `text` with a pipe as standard input. Writes `first` to the pipe before the run listens, and returns the
    /// pipe.
    pub(crate) fn with_input(text: &str, first: &[u8]) -> (Self, ChildStdin) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.stdin(Stdio::piped());
        let mut running = Self::by(command, temporary(), text, &[], first);
        let pipe = running.process.stdin.take().expect("piped");
        (running, pipe)
    }

    fn by(mut command: Command, folder: TempDir, text: &str, more: &[&str], first: &[u8]) -> Self {
        let file = folder.path().join("pipeline.yaml");
        std::fs::write(&file, text).expect("a writable folder");
        let mut process = command
            .args(["run", "--no-live", "--duration", "60s", "--json"])
            .args(["--socket", folder.path().join("s").to_str().expect("UTF-8")])
            .args(["--state", folder.path().join("state").to_str().expect("UTF-8")])
            .args(more)
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command can be started");
        if let Some(pipe) = &mut process.stdin {
            pipe.write_all(first).expect("a pipe has room for it");
        }
        let mut stderr = BufReader::new(process.stderr.take().expect("piped"));
        let mut line = String::new();
        // The run prints this line when its socket listens.
        while !line.contains("reach it by") {
            line.clear();
            assert!(stderr.read_line(&mut line).expect("UTF-8") > 0, "it ended before it listened");
        }
        Self { process, stderr, folder }
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw).expect("not 0");
        rustix::process::kill_process(id, signal).expect("it runs");
    }

    /// Returns the lines of standard error up to the next line that contains `part`.
    pub(crate) fn line(&mut self, part: &str) -> String {
        let mut lines = String::new();
        while !lines.contains(part) {
            assert!(self.stderr.read_line(&mut lines).expect("UTF-8") > 0, "it ended without '{part}': {lines}");
        }
        lines
    }

    /// Returns the path of a file in the pipeline's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of the socket.
    pub(crate) fn socket(&self) -> String {
        self.path("s").to_str().expect("UTF-8").to_owned()
    }

    /// Returns the process number.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Runs `forebay` with these arguments and the pipeline's socket.
    pub(crate) fn request(&self, arguments: &[&str]) -> CommandResult {
        forebay(&[arguments, &["--socket", &self.socket()]].concat())
    }

    /// Like [`request`](Self::request), with this standard input.
    pub(crate) fn request_with_input(&self, arguments: &[&str], input: Stdio) -> CommandResult {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(arguments).args(["--socket", &self.socket()]).stdin(input);
        CommandResult::of(command.output().expect("the command can be started"))
    }

    /// Connects to the socket, exchanges versions, and writes `bytes`. Returns the open connection.
    pub(crate) fn connect(&self, bytes: &[u8]) -> UnixStream {
        let mut stream = UnixStream::connect(self.path("s")).expect("it listens");
        stream.write_all(b"{\"do\":\"hello\",\"protocol\":2}\n").expect("it listens");
        let mut byte = [0];
        while byte != *b"\n" {
            stream.read_exact(&mut byte).expect("a response");
        }
        stream.write_all(bytes).expect("it listens");
        stream
    }

    /// Returns the name of the configuration in force.
    pub(crate) fn name(&self) -> String {
        let mut response = String::new();
        BufReader::new(self.connect(b"{\"do\":\"report\"}\n")).read_line(&mut response).expect("it responds");
        let response: Value = serde_json::from_str(&response).expect("JSON");
        response["report"]["whole"]["pipeline"].as_str().expect("a name").to_owned()
    }

    /// Writes another configuration to the file. The pipeline does not read it before a reload.
    pub(crate) fn write(&self, text: &str) {
        std::fs::write(self.path("pipeline.yaml"), text).expect("a writable folder");
    }

    /// Kills the process, so that it cannot clean up.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Returns the folder of the pipeline.
    pub(crate) fn into_folder(mut self) -> TempDir {
        std::mem::replace(&mut self.folder, temporary())
    }

    /// Stops the run with a signal, and returns its report.
    pub(crate) fn end(self) -> Value {
        self.end_keeping().0
    }

    /// Like [`end`](Self::end), and returns the folder, too.
    pub(crate) fn end_keeping(self) -> (Value, TempDir) {
        self.signal(rustix::process::Signal::TERM);
        self.ended()
    }

    /// Stops the run with a signal, and returns its exit code, its report, and the rest of its standard error.
    pub(crate) fn end_with(mut self) -> (Option<i32>, Value, String) {
        self.signal(rustix::process::Signal::TERM);
        let (mut out, mut err) = (String::new(), String::new());
        self.process.stdout.take().expect("piped").read_to_string(&mut out).expect("UTF-8");
        self.stderr.read_to_string(&mut err).expect("UTF-8");
        let report = serde_json::from_str(out.lines().last().expect("a report")).expect("JSON");
        (self.process.wait().expect("it ends").code(), report, err)
    }

    /// Waits for a run that ends by itself with exit code 0, and returns its report and its folder.
    pub(crate) fn ended(mut self) -> (Value, TempDir) {
        let output = self.process.stdout.take().expect("piped");
        let line = BufReader::new(output).lines().last().expect("a report").expect("UTF-8");
        assert!(self.process.wait().expect("it ends").success(), "{:?}", self.stderr.by_ref().lines().last());
        (serde_json::from_str(&line).expect("JSON"), self.into_folder())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Usually the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until `is_there` returns true. `what` names the condition in the panic after a minute.
pub(crate) fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_there() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("timed out waiting for {what}");
}

pub(crate) fn temporary() -> TempDir {
    tempfile::tempdir().expect("a writable folder for temporary files")
}

/// Returns the JSON output of a command, which must have exit code 0.
pub(crate) fn json(done: &CommandResult) -> Value {
    assert_eq!(done.code, Some(0), "{}", done.err);
    serde_json::from_str(done.out.trim()).expect("JSON")
}

/// Returns the packet count of a module in the output of `show modules`.
pub(crate) fn packets(modules: &Value, name: &str) -> u64 {
    let modules = modules.as_array().expect("a list");
    let module = modules.iter().find(|module| module["name"] == name).expect(name);
    module["packets"].as_u64().expect("a number")
}
