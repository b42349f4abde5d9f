//! Forebay in its own process: started, queried, killed, ended.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::namespaces::until;

/// The `forebay` command.
pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// The result of a command.
#[derive(Debug)]
pub struct CommandResult {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs a command to its end.
pub fn done(command: &mut Command) -> CommandResult {
    let output = command.output().expect("the command can be started");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    CommandResult { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A running pipeline. It is killed when this value is dropped.
pub struct Running {
    process: Child,
    stderr: BufReader<ChildStderr>,
    socket: PathBuf,
}

impl Running {
    /// Runs `text` in `folder` with the command prefix `by`, for example one that enters a namespace. If the run does
    /// not start, returns its standard error.
    pub fn start(by: &[&str], folder: &Path, text: &str, more: &[&str]) -> Result<Self, String> {
        let file = folder.join("pipeline.yaml");
        std::fs::write(&file, text).expect("a writable folder");
        let socket = folder.join("s");
        let words = [by, &[FOREBAY]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["run", "--no-live", "--json", "--duration", "300s", "--socket"]).arg(&socket);
        let mut process = command
            .args(more)
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command can be started");
        let mut stderr = BufReader::new(process.stderr.take().expect("piped"));
        let (mut line, mut err) = (String::new(), String::new());
        // The run prints this line when its socket listens.
        while !line.contains("reach it by") {
            line.clear();
            if stderr.read_line(&mut line).expect("UTF-8") == 0 {
                let code = process.wait().expect("it ended").code();
                return Err(format!("{err}(exit code {code:?})"));
            }
            err.push_str(&line);
        }
        Ok(Self { process, stderr, socket })
    }

    /// Runs `forebay` with these arguments and the pipeline's socket.
    pub fn request(&self, arguments: &[&str]) -> CommandResult {
        done(Command::new(FOREBAY).args(arguments).arg("--socket").arg(&self.socket))
    }

    /// Returns the counts of packets, after checking that all packets are accounted for.
    pub fn packets(&self, when: &str) -> Value {
        let result = self.request(&["show", "drops", "--json"]);
        assert_eq!(result.code, Some(0), "{when}: {}", result.err);
        let packets: Value = serde_json::from_str(&result.out).expect("JSON");
        accounted(&packets, when);
        packets
    }

    /// Returns the counters of a port.
    pub fn port(&self, name: &str) -> Value {
        let result = self.request(&["show", "ports", "--json"]);
        assert_eq!(result.code, Some(0), "{}", result.err);
        let ports: Value = serde_json::from_str(&result.out).expect("JSON");
        let ports = ports.as_array().expect("a list");
        ports.iter().find(|port| port["name"] == name).unwrap_or_else(|| panic!("{name} in {ports:?}")).clone()
    }

    /// Returns the names of the run's events of a port, in order.
    pub fn events(&self, port: &str) -> Vec<String> {
        let result = self.request(&["show", "events", "--json"]);
        assert_eq!(result.code, Some(0), "{}", result.err);
        let events = result.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let name = |event: Value| {
            let why = event["why"].as_str().map_or(String::new(), |why| format!(" {why}"));
            (event["port"] == port).then(|| event["event"].as_str().unwrap_or_default().to_owned() + &why)
        };
        events.filter_map(name).collect()
    }

    /// Returns the resident memory of the process, in KiB.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux");
        line.trim().trim_end_matches("kB").trim().parse().expect("a number")
    }

    /// Returns the path of a file as the process sees it, including its own mounts.
    pub fn sees(&self, file: &Path) -> PathBuf {
        let mut path = PathBuf::from(format!("/proc/{}/root", self.process.id()));
        path.push(file.strip_prefix("/").expect("a whole path"));
        path
    }

    /// Returns the process number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("a process number")).expect("not 0")
    }

    /// Sends SIGTERM to the process.
    pub fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).expect("it runs");
    }

    /// Kills the process, so that it cannot clean up.
    pub fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Ends the run. Returns its exit code, its report (null if there is none), and its standard error.
    pub fn end(self) -> (Option<i32>, Value, String) {
        self.terminate();
        self.ended()
    }

    /// Waits until the run has ended. Returns the same as [`end`](Self::end).
    pub fn ended(mut self) -> (Option<i32>, Value, String) {
        until("it has ended", || self.process.try_wait().expect("a child").is_some());
        let code = self.process.wait().expect("it ended").code();
        let (mut out, mut err) = (String::new(), String::new());
        self.process.stdout.take().expect("piped").read_to_string(&mut out).expect("UTF-8");
        let _ = self.stderr.read_to_string(&mut err);
        let report: Value = out.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null);
        if !report.is_null() {
            let packets = &report["packets"];
            accounted(packets, "at the end");
            for remaining in ["queued", "held", "in_flight"] {
                assert_eq!(number(&packets[remaining]), 0, "{remaining}: {packets}");
            }
        }
        (code, report, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Usually the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a count, or 0 if it is missing.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Returns the sum of a map from reason to count.
pub fn total(counts: &Value) -> u64 {
    counts.as_object().map_or(0, |counts| counts.values().map(number).sum())
}

/// Checks that `in + created = out + dropped + consumed + queued + held + in flight`.
pub fn accounted(packets: &Value, when: &str) {
    let present: u64 = ["out", "queued", "held", "in_flight"].iter().map(|name| number(&packets[name])).sum();
    assert!(packets["in"].is_u64(), "{when}: {packets}");
    assert_eq!(
        number(&packets["in"]) + total(&packets["created"]),
        present + total(&packets["dropped"]) + total(&packets["consumed"]),
        "{when}: {packets}"
    );
}
