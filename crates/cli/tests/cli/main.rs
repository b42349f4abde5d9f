//! The `forebay` command as users run it: arguments in, output and exit codes out.

mod checks;
mod co_runs;
mod commands;
mod compare;
mod contract;
mod cut;
mod doctor;
mod ends;
mod events;
mod every_event;
mod files;
mod gate;
mod graph;
mod handover;
mod history;
mod inspect;
mod install;
mod instances;
mod lab;
mod live;
mod lost_lines;
#[path = "../serve/manager.rs"]
mod manager;
mod marks;
mod measure;
mod moves;
mod new;
mod place;
mod profile;
mod rates;
mod reload;
mod replay;
mod rules;
mod run;
mod run_tests;
mod running;
mod secrets;
mod service;
mod sessions;
mod signals;
mod simulate;
mod state;
mod tables;
mod temporary;
mod terminal;
mod topology;
mod upf;
mod versions;
mod watch;
mod workers;
mod wrong;

use std::io::Write as _;
use std::path::PathBuf;

use assert_cmd::Command;
use tempfile::TempDir;

/// The result of a command.
struct CommandResult {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs `forebay` with arguments.
fn forebay(arguments: &[&str]) -> CommandResult {
    let output =
        Command::new(env!("CARGO_BIN_EXE_forebay")).args(arguments).output().expect("the command can be started");
    CommandResult::of(output)
}

/// Runs a command, and runs it again, up to twenty times, while other programs on its core prevent a measurement.
/// Prints the error of each run that is repeated.
fn undisturbed(mut run: impl FnMut() -> CommandResult) -> CommandResult {
    for _ in 0..20 {
        let done = run();
        if !done.err.contains("other programs used the core too much") {
            return done;
        }
        let _ = writeln!(std::io::stderr(), "repeated: {}", done.err.trim_end());
    }
    run()
}

impl CommandResult {
    fn of(output: std::process::Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Returns the output of a command, which must have exit code 0.
    fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self.out
    }

    /// Parses the last line of the output as JSON.
    fn json(&self) -> serde_json::Value {
        let last = self.out.lines().last().unwrap_or_else(|| panic!("no output; {}", self.err));
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}"))
    }
}

/// A configuration in its own folder.
struct File {
    folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new(text: &str) -> Self {
        let folder = TempDir::new().expect("a folder for the test");
        let path = folder.path().join("test.yaml");
        std::fs::write(&path, text).expect("a file in it");
        Self { folder, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("a plain name")
    }

    fn beside(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a plain name").to_owned()
    }
}

/// A router for 1 000 packets in four sessions. It drops IPv6 packets, of which there are none, and a quarter of the
/// others.
const ROUTER: &str = "\
ports:
  in: { generator: { count: 1000, sessions: 4 } }
  out: { sink: {} }
modules:
  kind: { ether_split: { types: [ipv4] } }
  hop: { ttl: }
  spread: { hash_split: { gates: 2 } }
  write: { mac_rewrite: { source: 02:00:00:00:00:aa, destination: 02:00:00:00:00:bb } }
pipeline:
  - in -> kind
  - kind[ipv4] -> hop -> spread
  - kind[other] -> drop
  - spread[0] -> write -> out
  - spread[1] -> drop
";
