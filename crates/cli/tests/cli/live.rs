//! A running pipeline as those see it who ask: what `show`, `top` and `table` tell several of them, and what it costs.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::forebay;
use crate::running::{PIPELINE, Running, json, packets, temporary};

/// Of packets that a busy machine loses before they enter there is a word, too.
fn assert_accounted(running: &Running) {
    let drops = running.ask(&["show", "drops"]).well();
    let is_accounted = drops.contains("every packet accounted for") || drops.contains(" LOST before they entered");
    assert!(is_accounted && !drops.contains("UNACCOUNTED"), "{drops}");
}

#[test]
fn a_running_pipeline_is_shown_changed_and_told_to_the_packet() {
    let running = Running::start();
    let modules = json(&running.ask(&["show", "modules", "--json"]));
    assert!(packets(&modules, "route") > 0);
    assert_eq!(packets(&modules, "a"), 0, "everything matches the longer prefix");
    assert_accounted(&running);
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
    let told = json(&running.ask(&["reload", "--json"]))["reloaded"].clone();
    // The two branches ran as one, and are not alike any more: both are made anew.
    assert_eq!((told["kept"].as_u64(), told["missing"].as_i64()), (Some(1), Some(0)), "{told}");
    assert_eq!([&told["added"], &told["changed"]], [&serde_json::json!(["c"]), &serde_json::json!(["a", "b"])]);
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
fn every_answer_adds_up_while_packets_run_and_are_dropped() {
    // Half of the packets have no route.
    let dropping = PIPELINE.replace("100kpps", "2Mpps").replace("'0.0.0.0/0 0', '10.0.0.0/8 1'", "'10.0.0.0/17 1'");
    let running = Running::of(&dropping);
    let sum = |reasons: &Value| reasons.as_object().expect("reasons").values().filter_map(Value::as_u64).sum::<u64>();
    let (mut answers, mut before) = (0, 0);
    while answers < 30 {
        let told = json(&running.ask(&["show", "drops", "--json"]));
        let count = |key: &str| told[key].as_u64().expect("a number");
        let waiting = count("queued") + count("held") + count("in_flight");
        let ended = count("out") + sum(&told["dropped"]) + sum(&told["consumed"]) + waiting;
        assert_eq!(count("in") + sum(&told["created"]), ended, "{told}");
        assert!(count("in") >= before, "{before} had come: {told}");
        before = count("in");
        // Until packets come and are dropped, an answer says nothing.
        answers += u32::from(count("out") > 0 && sum(&told["dropped"]) > 0);
    }
    let told = running.end();
    assert!(
        told["packets"]["dropped"]["route.no_route"].as_u64() > Some(0)
            && told["packets"]["dropped"]["since"].is_null()
    );
}

/// The second watch ended the first one's without a word, and so did a reload; a run that wrote what was dropped could not be
/// watched at all.
#[test]
fn everybody_who_watches_gets_what_was_asked_for() {
    let folder = temporary();
    let drops = folder.path().join("drops.pcapng").display().to_string();
    let running = Running::in_folder(folder, PIPELINE, &["--drops", &drops]);
    let socket = running.socket();
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

#[test]
fn top_without_a_terminal_is_lines_and_ends_with_the_pipeline() {
    let running = Running::start();
    let mut top = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["top", "--interval", "100ms", "--socket", &running.socket()])
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

/// After its first second a run without a live table looked again and again without a pause: a core was lost to it.
#[test]
fn a_run_that_shows_nothing_takes_no_core_of_its_own() {
    let running = Running::in_folder(temporary(), PIPELINE, &["--interval", "100ms"]);
    let thread = format!("/proc/{0}/task/{0}/schedstat", running.id());
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

/// A folder in place of a file of changes was told as a connection that broke.
#[test]
fn a_folder_for_standard_input_is_told_as_such() {
    let running = Running::start();
    let folder = std::fs::File::open(running.path(".")).expect("a folder");
    let done = running.ask_from(&["table", "route"], folder.into());
    let told = "standard input is a folder: write changes as arguments";
    assert!(done.code == Some(2) && done.err.contains(told), "{}", done.err);
}

#[test]
fn what_cannot_be_asked_is_refused_with_what_can() {
    let running = Running::start();
    for (arguments, told) in [
        (&["table", "a", "add x"][..], "module 'a' has no table that can be changed: there are route.routes"),
        (&["table", "route.routs", "add x"], "no table 'routs' (did you mean 'route.routes'?): there are route.routes"),
        (
            &["show", "table", "rout"],
            "no module is called 'rout' (did you mean 'route'?): of tables there are route.routes",
        ),
        (&["show", "table", "rout.routes"], "(did you mean 'route.routes'?)"),
        (&["show", "table", "nothing"], "no module is called 'nothing': of tables there are route.routes"),
        (&["show", "table"], "show table: name one of route.routes"),
        (&["show", "tables", "route"], "(did you mean `show table route`?)"),
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
    assert!(none.code == Some(2) && none.err.contains("that is not a socket"), "{}", none.err);
    let error: Value = serde_json::from_str(none.out.trim()).expect("JSON");
    assert_eq!(error, serde_json::json!({ "error": format!("{}: that is not a socket", file.display()) }));
    let refused = running.ask(&["reload", "--json", "--set", "batch=7"]);
    let error: Value = serde_json::from_str(refused.out.trim()).expect("JSON");
    assert!(error["error"].as_str().is_some_and(|told| told.contains("batch: it is 32")), "{error}");
    // Whatever is said on the socket, it answers, and goes on.
    for nonsense in [
        &b"\n"[..],
        b"{}\n",
        b"{\"do\":\"dance\"}\n",
        b"\xff\xfe\n",
        &[b'x'; 3 << 20],
        b"{\"do\":\"report\",\"more\":1}\n",
    ] {
        let mut stream = running.say(b"");
        // One that is too long is cut off while it is being said.
        let _ = stream.write_all(nonsense);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("{\"error\""), "{answer}");
    }
    assert_accounted(&running);
    let occupied = forebay(&["run", "usecase:rc", "--no-live", "--socket", &running.socket()]);
    assert!(occupied.code == Some(2) && occupied.err.contains("another pipeline listens there"), "{}", occupied.err);
}
