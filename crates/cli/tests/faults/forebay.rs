//! A Forebay in a process of its own: started, asked, killed, ended.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::namespaces::until;

/// The command itself.
pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// What a command did.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs a command to its end.
pub fn done(command: &mut Command) -> Done {
    let output = command.output().expect("the command can be started");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A running pipeline, which is killed when this is dropped.
pub struct Running {
    process: Child,
    stderr: BufReader<ChildStderr>,
    socket: PathBuf,
}

impl Running {
    /// Runs `text`, its files in `folder`, by a command that runs others, such as one that leads into a namespace; what it says where
    /// it does not start.
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
        let (mut line, mut said) = (String::new(), String::new());
        // It says where it listens once it does.
        while !line.contains("reach it by") {
            line.clear();
            if stderr.read_line(&mut line).expect("UTF-8") == 0 {
                let code = process.wait().expect("it ended").code();
                return Err(format!("{said}(exit code {code:?})"));
            }
            said.push_str(&line);
        }
        Ok(Self { process, stderr, socket })
    }

    /// Asks it something.
    pub fn ask(&self, arguments: &[&str]) -> Done {
        done(Command::new(FOREBAY).args(arguments).arg("--socket").arg(&self.socket))
    }

    /// Where its packets are; that none is unaccounted for.
    pub fn packets(&self, when: &str) -> Value {
        let told = self.ask(&["show", "drops", "--json"]);
        assert_eq!(told.code, Some(0), "{when}: {}", told.err);
        let packets: Value = serde_json::from_str(&told.out).expect("JSON");
        accounted(&packets, when);
        packets
    }

    /// What a port counts.
    pub fn port(&self, name: &str) -> Value {
        let told = self.ask(&["show", "ports", "--json"]);
        assert_eq!(told.code, Some(0), "{}", told.err);
        let ports: Value = serde_json::from_str(&told.out).expect("JSON");
        let ports = ports.as_array().expect("a list");
        ports.iter().find(|port| port["name"] == name).unwrap_or_else(|| panic!("{name} in {ports:?}")).clone()
    }

    /// The names of its events of a port, in order.
    pub fn events(&self, port: &str) -> Vec<String> {
        let told = self.ask(&["show", "events", "--json"]);
        assert_eq!(told.code, Some(0), "{}", told.err);
        let events = told.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let name = |event: Value| {
            let why = event["why"].as_str().map_or(String::new(), |why| format!(" {why}"));
            (event["port"] == port).then(|| event["event"].as_str().unwrap_or_default().to_owned() + &why)
        };
        events.filter_map(name).collect()
    }

    /// Its memory, in KiB.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux");
        line.trim().trim_end_matches("kB").trim().parse().expect("a number")
    }

    /// A file as it sees it: it may have mounted something there.
    pub fn sees(&self, file: &Path) -> PathBuf {
        let mut path = PathBuf::from(format!("/proc/{}/root", self.process.id()));
        path.push(file.strip_prefix("/").expect("a whole path"));
        path
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("a process number")).expect("not 0")
    }

    /// Says that it is to end.
    pub fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).expect("it runs");
    }

    /// Kills it, so that it can put nothing in order.
    pub fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Ends it; its exit code, its report if there is one, and what it said.
    pub fn end(self) -> (Option<i32>, Value, String) {
        self.terminate();
        self.ended()
    }

    /// Waits until it has ended.
    pub fn ended(mut self) -> (Option<i32>, Value, String) {
        until("it has ended", || self.process.try_wait().expect("our own").is_some());
        let code = self.process.wait().expect("it ended").code();
        let (mut out, mut err) = (String::new(), String::new());
        self.process.stdout.take().expect("piped").read_to_string(&mut out).expect("UTF-8");
        let _ = self.stderr.read_to_string(&mut err);
        let report: Value = out.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null);
        if !report.is_null() {
            let packets = &report["packets"];
            accounted(packets, "at the end");
            for left in ["queued", "held", "in_flight"] {
                assert_eq!(number(&packets[left]), 0, "{left}: {packets}");
            }
        }
        (code, report, err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has mostly ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A count; 0 where there is none of the name.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// All of a map from reason to count.
pub fn total(counts: &Value) -> u64 {
    counts.as_object().map_or(0, |counts| counts.values().map(number).sum())
}

/// `in + created = out + dropped + consumed + queued + held + in flight`.
pub fn accounted(packets: &Value, when: &str) {
    let there: u64 = ["out", "queued", "held", "in_flight"].iter().map(|name| number(&packets[name])).sum();
    assert!(packets["in"].is_u64(), "{when}: {packets}");
    assert_eq!(
        number(&packets["in"]) + total(&packets["created"]),
        there + total(&packets["dropped"]) + total(&packets["consumed"]),
        "{when}: {packets}"
    );
}
