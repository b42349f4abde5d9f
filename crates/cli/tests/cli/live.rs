//! A running pipeline as others meet it: `top`, `show`, `reload`, `table`, and what is left when it is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{Done, forebay};

mod state;

/// A running pipeline, which is ended when this is dropped.
struct Running {
    process: Child,
    stderr: BufReader<ChildStderr>,
    folder: TempDir,
}

const PIPELINE: &str = "
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

impl Running {
    fn start(folder: TempDir) -> Self {
        Self::start_with(folder, &[])
    }

    fn start_with(folder: TempDir, more: &[&str]) -> Self {
        let file = folder.path().join("pipeline.yaml");
        if !file.exists() {
            std::fs::write(&file, PIPELINE).expect("a writable folder");
        }
        let mut process = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["run", "--no-live", "--duration", "60s", "--json"])
            .args(["--socket", folder.path().join("s").to_str().expect("UTF-8")])
            .args(["--state", folder.path().join("state").to_str().expect("UTF-8")])
            .args(more)
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command can be started");
        let mut stderr = BufReader::new(process.stderr.take().expect("piped"));
        let mut line = String::new();
        // It says where it listens once it does.
        while !line.contains("reach it by") {
            line.clear();
            assert!(stderr.read_line(&mut line).expect("UTF-8") > 0, "it ended before it listened");
        }
        Self { process, stderr, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ask(&self, arguments: &[&str]) -> Done {
        let socket = self.path("s");
        let mut all = arguments.to_vec();
        all.extend(["--socket", socket.to_str().expect("UTF-8")]);
        forebay(&all)
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path("pipeline.yaml"), text).expect("a writable folder");
    }

    /// Ends the run in order; its report.
    fn end(self) -> Value {
        self.end_keeping().0
    }

    /// The same, with the folder.
    fn end_keeping(mut self) -> (Value, TempDir) {
        let id = i32::try_from(self.process.id()).expect("a process number");
        let id = rustix::process::Pid::from_raw(id).expect("not 0");
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
        let output = self.process.stdout.take().expect("piped");
        let line = BufReader::new(output).lines().last().expect("a report").expect("UTF-8");
        assert!(self.process.wait().expect("it ends").success(), "{:?}", self.stderr.by_ref().lines().last());
        let folder = std::mem::replace(&mut self.folder, temporary());
        (serde_json::from_str(&line).expect("JSON"), folder)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has mostly ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn temporary() -> TempDir {
    tempfile::tempdir().expect("a writable folder for temporary files")
}

fn json(done: &Done) -> Value {
    assert_eq!(done.code, Some(0), "{}", done.err);
    serde_json::from_str(done.out.trim()).expect("JSON")
}

fn packets(modules: &Value, name: &str) -> u64 {
    let modules = modules.as_array().expect("a list");
    let module = modules.iter().find(|module| module["name"] == name).expect(name);
    module["packets"].as_u64().expect("a number")
}

/// Rows of rules that were gone stayed, so that each reload of a changed list made all answers longer.
#[test]
fn counters_of_rules_that_are_gone_are_listed_no_more() {
    let running = Running::start(tempfile::tempdir().expect("a folder"));
    let with = |rule: &str| {
        let rule = format!("  fw: {{ acl: {{ rules: ['@{rule} 0.0.0.0/0 0 : 65535 0 : 65535 0/0 permit'] }} }}\n");
        PIPELINE.replace("modules:\n", &format!("modules:\n{rule}")).replace("in -> route", "in -> fw -> route")
    };
    for rule in ["10.0.0.0/8", "172.16.0.0/12", "0.0.0.0/0"] {
        running.write(&with(rule));
        assert_eq!(running.ask(&["reload"]).code, Some(0));
    }
    let told: Value = serde_json::from_str(&running.ask(&["show", "modules", "--json"]).out).expect("JSON");
    let fw = told.as_array().expect("modules").iter().find(|module| module["name"] == "fw").expect("it is there");
    let rules = fw["counters"]["rules, IPv4"].as_object().expect("counters");
    assert_eq!(rules.keys().collect::<Vec<_>>().len(), 1, "{fw}");
    running.end();
}

/// They were answered as made, and were nowhere.
#[test]
fn changes_that_a_reload_overtakes_are_not_told_as_made() {
    let running = Running::start(tempfile::tempdir().expect("a folder"));
    let mut stream = UnixStream::connect(running.path("s")).expect("it listens");
    let block: String = (0..4_096).map(|at| format!("add 11.0.{}.{}/32 1\n", at / 256, at % 256)).collect();
    write!(stream, "{{\"do\":\"change\",\"module\":\"route\"}}\n{block}").expect("it listens");
    let entries = || {
        let told: Value = serde_json::from_str(&running.ask(&["show", "tables", "--json"]).out).expect("JSON");
        told[0]["entries"].as_u64().expect("a number")
    };
    while entries() < 4_096 {
        std::thread::yield_now();
    }
    running.write(&PIPELINE.replace("10.0.0.0/8 1", "10.0.0.0/9 1"));
    assert_eq!(running.ask(&["reload"]).code, Some(0));
    write!(stream, "add 12.0.0.0/8 1\nadd 13.0.0.0/8 1\n\n").expect("it listens");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("an answer");
    assert!(answer.contains("a reload has replaced the table 'routes' of module 'route' meanwhile"), "{answer}");
    assert_eq!(entries(), 2);
    running.end();
}

/// After its first second a run without a live table looked again and again without a pause: a core was lost to it.
#[test]
fn a_run_that_shows_nothing_takes_no_core_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = Running::start_with(folder, &["--interval", "100ms"]);
    let thread = format!("/proc/{0}/task/{0}/schedstat", running.process.id());
    let processor = || {
        let told = std::fs::read_to_string(&thread).expect("Linux says so");
        told.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).expect("a number")
    };
    std::thread::sleep(std::time::Duration::from_millis(200));
    let (before, start) = (processor(), std::time::Instant::now());
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (took, of) = (processor() - before, start.elapsed().as_nanos() as u64);
    assert!(took * 10 < of, "{took} ns of {of}");
    running.end();
}

#[test]
fn every_answer_adds_up_while_packets_run_and_are_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    // Half of the packets have no route.
    let dropping = PIPELINE.replace("100kpps", "2Mpps").replace("'0.0.0.0/0 0', '10.0.0.0/8 1'", "'10.0.0.0/17 1'");
    std::fs::write(folder.path().join("pipeline.yaml"), dropping).expect("a writable folder");
    let running = Running::start(folder);
    let sum = |reasons: &Value| reasons.as_object().expect("reasons").values().filter_map(Value::as_u64).sum::<u64>();
    for _ in 0..30 {
        let told: Value = serde_json::from_str(&running.ask(&["show", "drops", "--json"]).out).expect("JSON");
        let count = |key: &str| told[key].as_u64().expect("a number");
        let waiting = count("queued") + count("held") + count("in_flight");
        let ended = count("out") + sum(&told["dropped"]) + sum(&told["consumed"]) + waiting;
        assert_eq!(count("in") + sum(&told["created"]), ended, "{told}");
    }
    let told = running.end();
    assert!(
        told["packets"]["dropped"]["route.no_route"].as_u64() > Some(0)
            && told["packets"]["dropped"]["since"].is_null()
    );
}

#[test]
fn a_running_pipeline_is_shown_changed_and_told_to_the_packet() {
    let running = Running::start(temporary());
    let modules = json(&running.ask(&["show", "modules", "--json"]));
    assert!(packets(&modules, "route") > 0);
    assert_eq!(packets(&modules, "a"), 0, "everything matches the longer prefix");
    assert!(running.ask(&["show", "drops"]).out.contains("every packet accounted for"));
    for what in ["flows", "ports", "workers", "tables"] {
        let done = running.ask(&["show", what]);
        assert!(done.code == Some(0) && !done.out.is_empty(), "{what}: {}", done.err);
        json(&running.ask(&["show", what, "--json"]));
    }
    let story = running.ask(&["show", "trace", "--count", "2"]);
    assert!(story.out.contains("packet 1 from in") && story.out.contains("left by out"), "{}", story.out);

    // The table is changed, and survives a change of everything else.
    let done = running.ask(&["table", "route", "replace 10.0.0.0/8 0", "add 192.0.2.0/24 1"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "2 changes made, 0 refused\n"), "{}", done.err);
    let refused = running.ask(&["table", "route", "remove 203.0.113.0/24"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("203.0.113.0/24"), "{}", refused.err);
    running.write(
        &PIPELINE
            .replace("b: { counter: }", "b: { counter: }\n  c: { mac_swap: }")
            .replace("-> b -> out", "-> b -> c -> out"),
    );
    let told = json(&running.ask(&["reload", "--json"]));
    assert_eq!((told["kept"].as_u64(), told["missing"].as_i64()), (Some(3), Some(0)), "{told}");
    assert_eq!(told["added"], serde_json::json!(["c"]));
    let entries = running.ask(&["show", "table", "route"]).out;
    assert!(entries.contains("192.0.2.0/24 1") && entries.contains("10.0.0.0/8 0"), "{entries}");
    let modules = json(&running.ask(&["show", "modules", "--json"]));
    assert!(packets(&modules, "a") > 0, "the changed route is followed");

    // A configuration that is wrong changes nothing, whatever is wrong with it.
    for wrong in ["ports: {", "", "batch: 7", &PIPELINE.replace("counter", "count"), &format!("batch: 8\n{PIPELINE}")] {
        running.write(wrong);
        let done = running.ask(&["reload"]);
        assert_eq!(done.code, Some(2), "{wrong}");
        assert!(done.err.starts_with("error: "), "{}", done.err);
    }
    assert!(running.ask(&["show", "modules"]).out.contains("mac_swap"));
    let missing = running.ask(&["reload", "not-there.yaml"]);
    assert!(missing.code == Some(2) && missing.err.contains("not-there.yaml"), "{}", missing.err);

    let report = running.end();
    assert_eq!(report["packets"]["in"], report["packets"]["out"]);
    assert_eq!(report["packets"]["dropped"], serde_json::json!({}));
}

#[test]
fn what_cannot_be_asked_is_refused_with_what_can() {
    let running = Running::start(temporary());
    for (arguments, told) in [
        (&["table", "a", "add x"][..], "no module 'a' has a table"),
        (&["table", "route.rules", "add x"], "no table 'rules'"),
        (&["show", "table", "nothing"], "routes of route"),
        (&["show", "trace", "--filter", "foo"], "foo"),
        (&["table", "route", "remove\n10.0.0.0/8"], "more than one line"),
    ] {
        let done = running.ask(arguments);
        assert!(done.code == Some(2) && done.err.contains(told), "{arguments:?}: {}", done.err);
    }
    let nobody = forebay(&["top", "--socket", "/nowhere/at/all"]);
    assert!(nobody.code == Some(2) && nobody.err.contains("/nowhere/at/all: no socket is there"), "{}", nobody.err);
    let file = running.path("pipeline.yaml");
    let none = forebay(&["show", "modules", "--json", "--socket", file.to_str().expect("UTF-8")]);
    assert!(none.code == Some(2) && none.err.contains("that is no socket"), "{}", none.err);
    let error: Value = serde_json::from_str(none.out.trim()).expect("JSON");
    assert_eq!(error, serde_json::json!({ "error": format!("{}: that is no socket", file.display()) }));
    let refused = running.ask(&["reload", "--json", "--set", "batch=7"]);
    let error: Value = serde_json::from_str(refused.out.trim()).expect("JSON");
    assert!(error["error"].as_str().is_some_and(|told| told.contains("batch: it is 32")), "{error}");
    // Whatever is said on the socket, it answers, and goes on.
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    for nonsense in [
        &b"\n"[..],
        b"{}\n",
        b"{\"do\":\"dance\"}\n",
        b"\xff\xfe\n",
        &[b'x'; 3 << 20],
        b"{\"do\":\"report\",\"more\":1}\n",
    ] {
        let mut stream = UnixStream::connect(running.path("s")).expect("it listens");
        // One that is too long is cut off while it is being said.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("{\"error\""), "{answer}");
    }
    assert!(running.ask(&["show", "drops"]).out.contains("every packet accounted for"));
    let occupied = forebay(&["run", "usecase:rc", "--no-live", "--socket", running.path("s").to_str().expect("UTF-8")]);
    assert!(occupied.code == Some(2) && occupied.err.contains("another pipeline listens there"), "{}", occupied.err);
}

fn shown(running: &Running) -> Done {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let mut stream = UnixStream::connect(running.path("s")).expect("it listens");
    stream.write_all(b"{\"do\":\"report\"}\n").expect("it listens");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("it answers");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    Done { code: Some(0), out: answer["report"]["whole"].to_string(), err: String::new() }
}

#[test]
fn top_without_a_terminal_is_lines_and_ends_with_the_pipeline() {
    let running = Running::start(temporary());
    let socket = running.path("s");
    let mut top = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["top", "--interval", "100ms", "--socket", socket.to_str().expect("UTF-8")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    let mut lines = BufReader::new(top.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    assert!(first.contains("pps"), "{first}");
    running.end();
    let last = lines.map(|line| line.expect("UTF-8")).last().expect("a line");
    assert_eq!(last, "the pipeline has ended");
    assert!(top.wait().expect("it ends").success());
}

/// A capture that is written lost all that was in it at every change, because the file had changed meanwhile.
#[test]
fn what_is_written_goes_on_over_changes() {
    let folder = temporary();
    let file = folder.path().join("out.pcap");
    let writes = PIPELINE.replace("out: { sink: }", &format!("out: {{ pcap: {{ write: '{}' }} }}", file.display()));
    std::fs::write(folder.path().join("pipeline.yaml"), &writes).expect("a writable folder");
    let running = Running::start(folder);
    for change in ["a: { counter: }", "a: { mac_swap: }", "a: { counter: }"] {
        running.write(&writes.replace("a: { counter: }", change));
        let told = json(&running.ask(&["reload", "--json"]));
        assert_eq!(told["ports_opened"], serde_json::json!([]), "{told}");
    }
    // Nobody else may write it, or write it anew.
    for wrong in [
        writes.replace("write:", "when_full: wait, write:"),
        writes
            .replace("pipeline:", "  t: { tap: { file: FILE } }\npipeline:")
            .replace("-> a -> out", "-> a -> t -> out")
            .replace("FILE", &file.display().to_string()),
    ] {
        running.write(&wrong);
        let done = running.ask(&["reload"]);
        assert!(done.code == Some(2) && done.err.contains("out.pcap"), "{} {}", done.out, done.err);
    }
    let (report, _folder) = running.end_keeping();
    let frames = report["packets"]["out"].as_u64().expect("a number");
    let length = std::fs::metadata(&file).expect("it is there").len();
    assert_eq!(length, 24 + frames * (16 + 60), "each packet that has left is in the capture");
}

/// A file that was no socket was taken away by whoever wanted to listen there.
#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let folder = temporary();
    let file = folder.path().join("precious");
    std::fs::write(&file, "x").expect("a writable folder");
    let done =
        forebay(&["run", "usecase:rc", "--no-live", "--duration", "1s", "--socket", file.to_str().expect("UTF-8")]);
    assert!(done.code == Some(2) && done.err.contains("no socket"), "{}", done.err);
    assert_eq!(std::fs::read(&file).expect("it is there"), b"x");
}

/// Whatever may never come to an end kept a reload waiting, and all that came after it.
#[test]
fn what_is_no_regular_file_is_refused_and_holds_nothing_up() {
    let running = Running::start(temporary());
    let pipe = running.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("the command mkfifo").success());
    let name = pipe.to_str().expect("UTF-8");
    let refused = |done: Done| {
        assert!(done.code == Some(2) && done.err.contains("it is a pipe: allowed are regular files"), "{}", done.err);
    };
    refused(running.ask(&["reload", name]));
    for (from, to) in [
        ("routes: ['0.0.0.0/0 0', '10.0.0.0/8 1']", format!("routes: '{name}', next_hops: 2")),
        ("generator: { rate: 100kpps, destination: 10.0.0.0/16 }", format!("pcap: {{ read: '{name}' }}")),
        ("destination: 10.0.0.0/16", format!("destination: {{ routes: '{name}' }}")),
    ] {
        assert!(PIPELINE.contains(from), "{from}");
        running.write(&PIPELINE.replace(from, &to));
        refused(running.ask(&["reload"]));
    }
    refused(forebay(&["run", name, "--no-live"]));
    refused(forebay(&["check", name]));
    for word in ["-", "/dev/stdin"] {
        let done = running.ask(&["reload", word]);
        assert!(done.code == Some(2), "{}", done.out);
    }
    running.write(PIPELINE);
    json(&running.ask(&["reload", "--json"]));
}

#[test]
fn a_configuration_comes_by_standard_input_too() {
    let run = |name: &str, text: &str| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command.args(["run", name, "--no-live", "--json", "--no-socket"]).write_stdin(text).output();
        let output = output.expect("the command can be started");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for name in ["-", "/dev/stdin", "/dev/fd/0"] {
        let text = PIPELINE.replace("rate: 100kpps", "rate: 100kpps, count: 10");
        let (code, told) = run(name, &text);
        assert_eq!(code, Some(0), "{name}: {told}");
        let (code, told) = run(name, "batch: 7000");
        assert!(code == Some(2) && told.contains("stdin:1: batch: '7000' is out of range"), "{name}: {told}");
    }
}

/// A capture was written over the routes that the pipeline had read, and over its own configuration.
#[test]
fn nothing_is_written_over_what_is_read() {
    let folder = temporary();
    let routes = folder.path().join("routes");
    std::fs::write(&routes, "0.0.0.0/0 0\n10.0.0.0/8 1\n").expect("a writable folder");
    std::fs::hard_link(&routes, folder.path().join("link")).expect("links");
    let reads = PIPELINE.replace("routes: ['0.0.0.0/0 0', '10.0.0.0/8 1']", "routes: routes");
    std::fs::write(folder.path().join("pipeline.yaml"), &reads).expect("a writable folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (pipeline, short) = (file("pipeline.yaml"), ["--no-live", "--no-socket", "--duration", "100ms"]);
    let refused = |done: Done, reader: &str| {
        let told = format!("is the file that {reader} reads: allowed is one of its own");
        assert!(done.code == Some(2) && done.err.contains(&told), "{} {}", done.out, done.err);
    };
    for name in ["routes", "link"] {
        refused(forebay(&[&["run", &pipeline, "--drops", &file(name)], &short[..]].concat()), "'route'");
    }
    let writes = |name: &str| reads.replace("out: { sink: }", &format!("out: {{ pcap: {{ write: '{name}' }} }}"));
    for (name, reader) in [("routes", "'route'"), ("link", "'route'"), ("pipeline.yaml", "the configuration")] {
        std::fs::write(&pipeline, writes(name)).expect("a writable folder");
        refused(forebay(&[&["run", &pipeline], &short[..]].concat()), reader);
    }
    assert_eq!(std::fs::read(&routes).expect("it is there"), b"0.0.0.0/0 0\n10.0.0.0/8 1\n");
    std::fs::write(&pipeline, &reads).expect("a writable folder");
    let running = Running::start(folder);
    for (name, reader) in [("routes", "'route'"), ("link", "'route'"), ("pipeline.yaml", "the configuration")] {
        running.write(&writes(name));
        refused(running.ask(&["reload"]), reader);
    }
    // What is read no more may be written, a configuration that ran meanwhile too. The one of the start is read again.
    let (once, then) = (running.path("once.yaml"), running.path("then.yaml"));
    for file in [&once, &then] {
        std::fs::write(file, PIPELINE).expect("a writable folder");
        json(&running.ask(&["reload", file.to_str().expect("UTF-8"), "--json"]));
    }
    for (name, reader) in [("pipeline.yaml", "the configuration"), ("then.yaml", "the configuration")] {
        std::fs::write(running.path("next.yaml"), writes(name)).expect("a writable folder");
        refused(running.ask(&["reload", running.path("next.yaml").to_str().expect("UTF-8")]), reader);
    }
    std::fs::write(running.path("next.yaml"), writes("once.yaml")).expect("a writable folder");
    json(&running.ask(&["reload", running.path("next.yaml").to_str().expect("UTF-8"), "--json"]));
    running.write(PIPELINE);
    json(&running.ask(&["reload", "--json"]));
    running.write(&PIPELINE.replace("out: { sink: }", "out: { pcap: { write: link } }"));
    json(&running.ask(&["reload", "--json"]));
    let (_, folder) = running.end_keeping();
    assert!(std::fs::read(folder.path().join("routes")).expect("it is there").starts_with(&[0x4d, 0x3c, 0xb2, 0xa1]));
}

/// The second watch ended the first one's without a word, and so did a reload; a run that wrote what was dropped could not be
/// watched at all.
#[test]
fn everybody_who_watches_gets_what_was_asked_for() {
    let folder = temporary();
    let drops = folder.path().join("drops.pcapng").display().to_string();
    let running = Running::start_with(folder, &["--drops", &drops]);
    let socket = running.path("s");
    let mut first = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["show", "trace", "--count", "2", "--filter", "host 192.0.2.1", "--socket"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    // Nothing of what there is yet is for the first.
    for _ in 0..3 {
        let second = running.ask(&["show", "trace", "--count", "2"]);
        assert!(second.out.contains("packet 1 from in") && second.out.contains("packet 2 from in"), "{}", second.out);
    }
    assert!(first.try_wait().expect("a child").is_none(), "it waits");
    running.write(&PIPELINE.replace("destination: 10.0.0.0/16", "destination: 192.0.2.1"));
    json(&running.ask(&["reload", "--json"]));
    let mut told = String::new();
    first.stdout.take().expect("piped").read_to_string(&mut told).expect("UTF-8");
    assert!(first.wait().expect("it ends").success());
    assert_eq!(told.matches("left by out").count(), 2, "{told}");
    // One that goes away before it has seen all leaves the others alone.
    let mut gone = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["show", "trace", "--filter", "arp", "--socket"])
        .arg(&socket)
        .spawn()
        .expect("the command can be started");
    assert!(running.ask(&["show", "trace"]).out.contains("left by out"));
    gone.kill().expect("it runs");
    gone.wait().expect("it ends");
    assert!(running.ask(&["show", "trace"]).out.contains("left by out"));
    running.end();
}

/// Packets that a shaper held, which a change took away, were counted and seen by nobody.
#[test]
fn held_packets_that_are_dropped_at_a_change_are_seen() {
    let folder = temporary();
    let drops = folder.path().join("drops.pcapng");
    let shaped = PIPELINE
        .replace("  b: { counter: }", "  b: { shaper: { rate: 8kbps, burst: 2KiB, queue: 100 } }")
        .replace("rate: 100kpps", "rate: 100kpps, count: 100");
    std::fs::write(folder.path().join("pipeline.yaml"), &shaped).expect("a writable folder");
    let more = ["--drops", &drops.display().to_string(), "--trace", "100"];
    let running = Running::start_with(folder, &more);
    // All have come, and most wait for seconds.
    let entered = |shown: &Value| shown["in"].as_u64().expect("a number");
    while entered(&json(&running.ask(&["show", "drops", "--json"]))) < 100 {}
    running.write(&shaped.replace("b: { shaper: { rate: 8kbps, burst: 2KiB, queue: 100 } }", "b: { counter: }"));
    let told = json(&running.ask(&["reload", "--json"]));
    let dropped = told["dropped"].as_u64().expect("a number");
    assert!(dropped > 0, "{told}");
    let (report, folder) = running.end_keeping();
    assert_eq!(report["packets"]["dropped"]["wound_up"].as_u64(), Some(dropped));
    let written = std::fs::read(drops).expect("it is there");
    let comment = b"b.wound_up";
    let seen = written.windows(comment.len()).filter(|window| window == comment).count();
    assert_eq!(seen as u64, dropped);
    drop(folder);
}

/// Another address for a `tap` port made the kernel say that the interface was in use, and the reload was refused.
#[test]
fn a_tap_port_changes_and_keeps_its_interface() {
    use std::io::Write;
    let folder = temporary();
    let interface = format!("fbl{}", std::process::id());
    let with = |more: &str| {
        PIPELINE
            .replace(
                "out: { sink: }",
                &format!("out: {{ sink: }}\n  host: {{ tap: {{ interface: {interface}, {more} }} }}"),
            )
            .replace("pipeline:", "pipeline:\n  - host -> drop")
    };
    let file = folder.path().join("pipeline.yaml");
    std::fs::write(&file, with("mtu: 1400")).expect("a writable folder");
    let probe = forebay(&["run", file.to_str().expect("UTF-8"), "--no-live", "--no-socket", "--duration", "10ms"]);
    if probe.code == Some(2) && ["CAP_NET_ADMIN", "/dev/net/tun"].iter().any(|why| probe.err.contains(why)) {
        let _ = writeln!(std::io::stderr(), "skipped: a_tap_port_changes_and_keeps_its_interface: {}", probe.err);
        return;
    }
    let of = |what: &str| {
        std::fs::read_to_string(format!("/sys/class/net/{interface}/{what}")).map(|told| told.trim().to_owned())
    };
    let running = Running::start(folder);
    let number = of("ifindex").expect("it is there");
    assert_eq!(of("mtu").expect("it is there"), "1400");
    running.write(&with("mtu: 1300, poll: 1ms"));
    let told = json(&running.ask(&["reload", "--json"]));
    assert_eq!(told["ports_opened"], serde_json::json!(["host"]), "{told}");
    assert_eq!(
        (of("ifindex").expect("it is there"), of("mtu").expect("it is there")),
        (number.clone(), "1300".to_owned())
    );
    // Refused for whatever reason, it is as it was.
    for wrong in [with("mtu: 1200") + "  - in -> nowhere\n", with("mtu: 1200, mac: '03:00:00:00:00:01'")] {
        running.write(&wrong);
        assert_eq!(running.ask(&["reload"]).code, Some(2));
        assert_eq!(
            (of("ifindex").expect("it is there"), of("mtu").expect("it is there")),
            (number.clone(), "1300".to_owned())
        );
    }
    running.write(&with("mtu: 1200").replace("host:", "other:").replace("host ->", "other ->"));
    let done = running.ask(&["reload"]);
    assert!(done.code == Some(2) && done.err.contains("in use by the port 'host'"), "{}", done.err);
    running.end();
    assert!(of("mtu").is_err(), "it has gone");
}
