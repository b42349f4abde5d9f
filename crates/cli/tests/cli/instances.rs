//! Runs by name: `run --instance`, `--instance` of the commands for running pipelines, `list running`, `stop`,
//! completions.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::running::{PIPELINE, Running, temporary, wait_for};
use crate::{CommandResult, File, forebay};

/// A user's folder for sockets.
struct User(TempDir);

impl User {
    fn new() -> Self {
        Self(temporary())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.env("XDG_RUNTIME_DIR", self.0.path());
        command
    }

    fn request(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::of(
            self.command().args(arguments).stdin(Stdio::null()).output().expect("the command can be started"),
        )
    }

    fn run(&self, file: &Path, more: &[&str]) -> Run {
        let mut command = self.command();
        command.arg("run").arg(file).args(["--no-live", "--duration", "120s", "--json"]).args(more);
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command can be started");
        let mut stderr = BufReader::new(process.stderr.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("reach it by") {
            line.clear();
            assert!(stderr.read_line(&mut line).expect("UTF-8") > 0, "it ended before it listened");
        }
        Run { process, stderr, socket_line: line }
    }
}

/// A run. It is killed when this value is dropped.
struct Run {
    process: Child,
    stderr: BufReader<ChildStderr>,
    /// The line that names the run's socket.
    socket_line: String,
}

impl Run {
    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).expect("not 0");
        kill_process(id, signal).expect("it runs");
    }

    /// Waits for the end, and returns the exit code and the report.
    fn end(mut self) -> (Option<i32>, Value) {
        let mut out = String::new();
        self.process.stdout.take().expect("piped").read_to_string(&mut out).expect("UTF-8");
        let _ = self.stderr.read_to_string(&mut String::new());
        let report = serde_json::from_str(out.lines().last().expect("a report")).expect("JSON");
        (self.process.wait().expect("it ends").code(), report)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn runs_are_listed_found_and_ended_by_name() {
    let (user, file) = (User::new(), File::new(PIPELINE));
    let none = user.request(&["list", "running"]).success();
    assert!(none.contains("no pipeline is running"), "{none}");
    let edge = user.run(&file.path, &["--instance", "edge-1"]);
    assert!(edge.socket_line.contains("reach it by --instance edge-1"), "{}", edge.socket_line);
    let by_default = user.run(&file.path, &[]);

    // Both runs are listed with all fields.
    let listed = user.request(&["list", "running", "--json"]).json();
    let listed = listed.as_array().expect("a list");
    let fields = [
        "answers", "forebay", "in_pps", "name", "out_pps", "pid", "pipeline", "since", "socket", "uptime_s", "workers",
    ];
    for run in listed {
        let mut names: Vec<_> = run.as_object().expect("an object").keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, fields, "{run}");
        assert!(run["in_pps"].as_f64().is_some_and(|rate| rate > 0.0) && run["answers"] == true, "{run}");
    }
    let name_and_pid: Vec<_> = listed.iter().map(|run| (&run["name"], &run["pid"])).collect();
    let expected = [("edge-1".into(), edge.process.id().into()), ("test".into(), by_default.process.id().into())];
    let expected: Vec<(&Value, &Value)> = expected.iter().map(|(name, pid)| (name, pid)).collect();
    assert_eq!(name_and_pid, expected);
    let table = user.request(&["list", "running"]).success();
    assert!(table.lines().count() == 3 && table.starts_with("name"), "{table}");

    // A run is found by its name, not by a part of the name.
    for (arguments, code, expected) in [
        (
            &["show", "modules"][..],
            2,
            "several pipelines are running: name one\n  --instance edge-1\n  --instance test",
        ),
        (&["show", "modules", "--instance", "edge"], 2, "called 'edge': running are edge-1, test"),
        (&["show", "modules", "--instance", "edge-1", "--socket", "/x"], 2, "cannot be used with"),
        (&["run", file.path(), "--instance", "edge-1"], 2, "a pipeline of that name runs already"),
        (&["run", file.path(), "--instance", "test"], 2, "or end that one with `forebay stop --instance test`"),
        (&["run", file.path(), "--instance", "../x"], 2, "allowed are up to 40 letters"),
        (&["show", "modules", "--instance", "test"], 0, ""),
        (&["graph", "--instance", "edge-1"], 0, ""),
        (&["table", "--instance", "edge-1", "route", "add 10.9.0.0/16 1"], 0, ""),
        (&["reload", "--instance", "edge-1"], 0, ""),
        (&["top", "--instance", "nowhere"], 2, "called 'nowhere'"),
    ] {
        let done = user.request(arguments);
        assert!(done.code == Some(code) && done.err.contains(expected), "{arguments:?}: {:?} {}", done.code, done.err);
    }

    // Completions: names of runs, and names of parts of the run that the command line names.
    let complete = |words: &[&str]| {
        let mut command = user.command();
        command.env("FOREBAY_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        let done = command.env("_CLAP_IFS", "\n").arg("--").args(words).output().expect("it can be started");
        CommandResult::of(done).success()
    };
    assert_eq!(complete(&["forebay", "stop", "--instance", ""]), "edge-1\ntest");
    assert_eq!(complete(&["forebay", "table", "--instance", "test", ""]).lines().next(), Some("route"));
    let modules = complete(&["forebay", "show", "--instance=test", "modules", ""]);
    assert!(modules.starts_with("a\nb\nroute") || modules.starts_with("route\na\nb"), "{modules}");
    assert_eq!(complete(&["forebay", "show", "--instance", "test", "ports", "o"]), "out");
    assert_eq!(complete(&["forebay", "show", "--instance", "nowhere", "ports", "o"]), "");

    // The first run is stopped. The command reports its exit code and counts.
    let done = user.request(&["stop", "--instance", "edge-1"]);
    let expected = format!("edge-1 (process {}) has ended after ", edge.process.id());
    assert!(
        done.code == Some(0) && done.out.starts_with(&expected) && done.out.contains("exit code 0"),
        "{}",
        done.out
    );
    let (code, report) = edge.end();
    assert_eq!(code, Some(0));
    let entered = report["packets"]["in"].as_u64().expect("a count");
    let counted: String = done.out.lines().nth(1).expect("counts").chars().filter(char::is_ascii_digit).collect();
    assert!(counted.starts_with(&entered.to_string()), "{} {entered}", done.out);

    // Only the second run remains. A suspended process does not end in time, which is reported.
    by_default.signal(Signal::STOP);
    let suspended = user.request(&["stop", "--timeout", "300ms"]);
    assert!(
        suspended.code == Some(1) && suspended.err.contains("has not ended in 0.3 s"),
        "{:?} {}",
        suspended.code,
        suspended.err
    );
    by_default.signal(Signal::CONT);
    let ended = user.request(&["stop", "--json"]).json();
    let fields = (&ended["has_ended"], &ended["ended"]["exit"], &ended["name"]);
    assert_eq!(fields, (&true.into(), &0.into(), &"test".into()));
    let (code, report) = by_default.end();
    assert_eq!((code, &report["packets"]), (Some(0), &ended["ended"]["packets"]));
    assert_eq!(user.request(&["stop"]).code, Some(2));
}

/// Regression: `stop` ended with 2 if the pipeline was killed before it responded. The errors of other commands did not
/// name the pipeline.
#[test]
fn a_pipeline_that_is_killed_before_it_responds_has_ended() {
    for (arguments, code) in [(&["stop", "--json"][..], 0), (&["reload"], 2), (&["show", "modules"], 2)] {
        let mut running = Running::start();
        let socket = running.socket();
        running.signal(Signal::STOP);
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let command = command.args(arguments).args(["--socket", &socket]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let waiting = command.spawn().expect("the command can be started");
        // The listener, and the connection that it has not accepted.
        let is_connected = || {
            let sockets = std::fs::read_to_string("/proc/net/unix").expect("Linux");
            sockets.lines().filter(|line| line.ends_with(&socket)).count() > 1
        };
        wait_for("the command connects", is_connected);
        running.kill();
        let done = CommandResult::of(waiting.wait_with_output().expect("it ends"));
        assert_eq!(done.code, Some(code), "{arguments:?}: {}{}", done.out, done.err);
        if code == 0 {
            let ended = done.json();
            assert_eq!((&ended["has_ended"], &ended["ended"]), (&true.into(), &Value::Null), "{ended}");
        } else {
            assert_eq!(done.err, format!("error: {socket}: the pipeline has ended\n"));
        }
    }
}

/// A killed process leaves its socket file.
#[test]
fn a_killed_run_is_not_listed_and_its_name_can_be_used() {
    let (user, file) = (User::new(), File::new(PIPELINE));
    let mut killed = user.run(&file.path, &["--instance", "edge"]);
    killed.process.kill().expect("it runs");
    killed.process.wait().expect("it ends");
    let listed = user.request(&["list", "running"]);
    assert!(listed.out.contains("no pipeline is running") && listed.err.contains("was killed"), "{}", listed.err);
    let done = user.request(&["stop", "--instance", "edge"]);
    assert!(done.code == Some(2) && done.err.contains("none is running"), "{}", done.err);
    let next = user.run(&file.path, &["--instance", "edge"]);
    assert_eq!(user.request(&["stop", "--instance", "edge"]).code, Some(0));
    assert_eq!(next.end().0, Some(0));
}

/// A client that waits for the end and then disconnects does not delay the run, and the run ends for others.
#[test]
fn clients_that_wait_for_the_end_do_not_delay_it() {
    let (user, file) = (User::new(), File::new(PIPELINE));
    let run = user.run(&file.path, &["--instance", "edge"]);
    let socket = user.0.path().join("forebay/named/edge.sock");
    // Without the response to `hello`, the server could fail to send it, and not read the request after it. All clients
    // are connected before the first request, because the run may have ended after the last request.
    let mut clients: [_; 3] = std::array::from_fn(|_| {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
        std::io::Write::write_all(&mut stream, b"{\"do\":\"hello\",\"protocol\":2}\n").expect("it listens");
        let mut stream = BufReader::new(stream);
        assert!(stream.read_line(&mut String::new()).expect("UTF-8") > 0, "a response to hello");
        stream
    });
    let requests = ["{\"do\":\"drops\"}\n", "{\"do\":\"stop\",\"wait\":true}", "{\"do\":\"stop\",\"wait\":true}\n"];
    for (client, request) in clients.iter_mut().zip(requests) {
        std::io::Write::write_all(client.get_mut(), request.as_bytes()).expect("it listens");
    }
    let [_drops, _unfinished, stop] = clients;
    drop(stop);
    let (code, report) = run.end();
    assert_eq!(code, Some(0));
    assert!(
        report["duration_s"].as_f64().is_some_and(|seconds| seconds < 119.0),
        "the request ended the run: {report}"
    );
    wait_for("the end of the socket", || !socket.exists());
}

/// Regression: if the response contained the number of another process, `stop` advised to kill that process.
#[test]
fn stop_names_only_the_process_that_listens() {
    let folder = temporary();
    let socket = folder.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    // Responds to `hello` only. Returns the output of `stop`, and the further requests.
    let stop = |pid: u32, timeout: &str| {
        let listener = listener.try_clone().expect("a listener");
        let hello = serde_json::json!({ "hello": {
            "protocol": 2, "forebay": "0", "pipeline": "edge", "instance": null, "pid": pid,
            "started": "2026-11-25T09:00:00Z", "workers": 1, "capabilities": [],
        } });
        let fake = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let mut lines = BufReader::new(stream.try_clone().expect("a connection")).lines().map_while(Result::ok);
            assert!(lines.next().is_some_and(|line| line.contains("hello")));
            std::io::Write::write_all(&mut stream, format!("{hello}\n").as_bytes()).expect("it listens");
            lines.collect::<Vec<_>>()
        });
        let done = forebay(&["stop", "--timeout", timeout, "--socket", socket.to_str().expect("UTF-8")]);
        (done, fake.join().expect("the listener does not panic"))
    };
    let own = std::process::id();
    let (done, requests) = stop(1, "60s");
    let expected = format!("error: process {own} listens at the socket, but the response is from process 1: ");
    assert!(done.code == Some(2) && done.err.starts_with(&expected) && !done.err.contains("kill"), "{}", done.err);
    assert_eq!(requests, [""; 0], "it was not requested to stop");
    // Long enough for the response of `hello` on a busy machine.
    let (done, requests) = stop(own, "3s");
    let expected =
        format!("edge (process {own}) has not ended in 3 s and is still stopping. Wait longer with --timeout; ");
    assert!(done.code == Some(1) && done.err.starts_with(&expected), "{}", done.err);
    assert!(done.err.ends_with(&format!("`kill -9 {own}` ends it at once\n")) && requests.len() == 1, "{}", done.err);
}

/// Runs Bash itself, with a colon in the word to complete.
#[test]
fn bash_completes_use_cases_functions_and_files() {
    let (user, file) = (User::new(), File::new(PIPELINE));
    let program = Path::new(env!("CARGO_BIN_EXE_forebay")).parent().expect("a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let complete = |words: &[&str]| {
        let quoted: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
        let script = format!(
            "source <(forebay completions bash); compopt() {{ :; }}; COMP_WORDS=({}); COMP_CWORD={}; _forebay; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            quoted.join(" "),
            words.len() - 1
        );
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", &script]).env("PATH", &path).env("XDG_RUNTIME_DIR", user.0.path());
        let done = CommandResult::of(command.current_dir(file.folder.path()).output().expect("bash"));
        assert_eq!(done.err, "");
        done.out
    };
    assert_eq!(complete(&["forebay", "run", "usecase", ":", "g"]), "gw\n");
    assert!(complete(&["forebay", "run", "use"]).lines().any(|line| line == "usecase:vrf"));
    assert_eq!(complete(&["forebay", "check", "te"]), "test.yaml\n");
    assert_eq!(complete(&["forebay", "describe", "ip_look"]), "ip_lookup\n");
    assert!(complete(&["forebay", "run", "--controller", ""]).contains("optimal\n"));
    assert!(complete(&["forebay", "show", ""]).contains("control\n"));
    assert!(!complete(&["forebay", "show", "modules", ""]).contains("route"), "no pipeline is running");
}
