//! Pipelines and servers that start, end, are suspended, and are killed: neither stops the other.

use std::collections::BTreeSet;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::http::{connect, connect_unix, exchange, read, read_chunk, read_head, request};
use crate::server::{PIPELINE, Pipeline, Refused, Server, folder, give, is_root, wait_for};

/// Returns the JSON of a response with the status 200.
fn get(server: &Server, path: &str) -> Value {
    let response = server.get(path);
    assert_eq!(response.status, 200, "{path}: {}", response.body);
    response.json()
}

/// Returns the names of all listed pipelines.
fn names(server: &Server) -> Vec<String> {
    let all = get(server, "/api/v1/instances");
    let all = all["instances"].as_array().expect("a list").clone();
    all.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

fn alarms(server: &Server) -> Vec<Value> {
    get(server, "/api/v1/alarms")["alarms"].as_array().expect("a list").clone()
}

/// Returns whether a pipeline counts as killed.
fn is_killed(server: &Server) -> bool {
    alarms(server).iter().any(|alarm| alarm["alarm"] == "instance_killed")
}

/// Returns the packets that entered the pipeline; 0 if it does not respond.
fn entered(server: &Server, name: &str) -> u64 {
    server.get(&format!("/api/v1/instances/{name}/drops")).json()["in"].as_u64().unwrap_or(0)
}

/// Returns the packets that have left the pipeline: forwarded and dropped ones.
fn departed(packets: &Value) -> u64 {
    let dropped = packets["dropped"].as_object().expect("reasons").values();
    packets["out"].as_u64().expect("a number") + dropped.map(|count| count.as_u64().expect("a number")).sum::<u64>()
}

/// Kills the server so that it can do nothing more, not even remove a socket.
pub fn crash(server: Server) {
    let http = server.http_process();
    kill_process(process(http), Signal::KILL).expect("it runs");
    if is_root() {
        // The root helper waits for it. After that, the system has closed its files.
        wait_for("the HTTP process to end", || !Path::new(&format!("/proc/{http}")).exists());
    }
    drop(server);
}

fn process(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("a small number")).expect("a positive number")
}

/// Returns the fields of a process after its name (proc(5)): its state, its parent, and so on.
fn stat(process: u32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    fields.split_ascii_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_pipeline_that_starts_after_the_server_is_found_reloaded_and_ended() {
    let folder = folder();
    let server = Server::start(folder.path());
    assert!(names(&server).is_empty());
    let pipeline = Pipeline::start(folder.path(), "edge");
    server.wait_for("edge", "running");
    let version = || get(&server, "/api/v1/instances/edge")["config_version"].clone();
    wait_for("the version of the configuration", || version().is_string());
    let before = version();
    let longer = PIPELINE
        .replace("  b: { counter: }\n", "  b: { counter: }\n  c: { counter: }\n")
        .replace("route[1] -> b -> out", "route[1] -> b -> c -> out")
        .replace("'route[1] -> b'", "'route[1] -> b -> c'");
    assert!(longer.contains("  c: ") && longer.matches("-> c").count() == 2, "{longer}");
    std::fs::write(&pipeline.file, longer).expect("a writable folder");
    pipeline.signal(Signal::HUP);
    wait_for("the new version", || version().is_string() && version() != before);
    let has_c = |path: &str| {
        let modules = get(&server, path)["modules"].as_array().expect("a list").clone();
        modules.iter().any(|module| module["name"] == "c")
    };
    wait_for("the counters of the new module", || has_c("/api/v1/instances/edge/modules"));
    assert!(has_c("/api/v1/instances/edge/graph"));
    pipeline.end();
    server.wait_for("edge", "ended");
    let metrics = server.get("/metrics").body;
    assert!(!metrics.contains("instance=\"edge\""), "{metrics}");
    assert!(alarms(&server).is_empty(), "{:?}", alarms(&server));
    let detail = server.get("/api/v1/instances/edge/modules").problem(503);
    assert!(detail.contains("has ended"), "{detail}");
}

#[test]
fn a_killed_pipeline_is_an_alarm_until_it_starts_again() {
    let folder = folder();
    let server = Server::start(folder.path());
    let mut pipeline = Pipeline::start(folder.path(), "edge");
    server.wait_for("edge", "running");
    let started = get(&server, "/api/v1/instances/edge")["started"].clone();
    wait_for("packets", || entered(&server, "edge") >= 20_000);
    pipeline.kill();
    server.wait_for("edge", "killed");
    assert!(server.get("/metrics").body.contains("forebay_instance_up{instance=\"edge\"} 0\n"));
    let all = alarms(&server);
    assert_eq!(all.len(), 1, "{all:?}");
    let expected = json!(["instance_killed", "critical", "edge", ""]);
    let alarm = &all[0];
    assert_eq!(json!([alarm["alarm"], alarm["severity"], alarm["instance"], alarm["subject"]]), expected);
    assert!(alarm["cause"].as_str().is_some_and(|cause| cause.contains("killed")), "{alarm}");
    assert!(alarm["advice"].as_str().is_some_and(|advice| !advice.is_empty()), "{alarm}");
    // At this rate, the new run needs minutes for the old counts.
    std::fs::write(&pipeline.file, PIPELINE.replace("100kpps", "100pps")).expect("a writable folder");
    let _again = Pipeline::run(folder.path(), "edge", &pipeline.file, &[]);
    server.wait_for("edge", "running");
    assert_ne!(get(&server, "/api/v1/instances/edge")["started"], started);
    assert!(alarms(&server).is_empty(), "{:?}", alarms(&server));
    wait_for("packets", || entered(&server, "edge") > 0);
    assert!(entered(&server, "edge") < 20_000, "the counters start again");
    assert_eq!(names(&server), ["edge"]);
}

/// A service manager may start a pipeline again in less time than the server needs to see how the old one ended.
#[test]
fn a_pipeline_that_starts_again_at_once_keeps_its_name_and_is_no_alarm() {
    let (folder, aside) = (folder(), folder());
    let server = Server::start(folder.path());
    let mut pipeline = Pipeline::start(folder.path(), "edge");
    server.wait_for("edge", "running");
    for _ in 0..4 {
        let started = get(&server, "/api/v1/instances/edge")["started"].clone();
        // The new one listens elsewhere until the old one is dead.
        let next = Pipeline::start(aside.path(), "edge");
        pipeline.kill();
        let socket = aside.path().join("edge.sock");
        std::fs::rename(socket, folder.path().join("edge.sock")).expect("the old socket is replaced");
        pipeline = next;
        server.line("event=instance_gone");
        wait_for("the new pipeline under the old name, without an alarm", || {
            let overview = get(&server, "/api/v1/instances/edge");
            overview["status"] == "running" && overview["started"] != started && !is_killed(&server)
        });
        assert_eq!(names(&server), ["edge"]);
    }
}

#[test]
fn a_suspended_pipeline_is_silent_and_delays_no_other() {
    let folder = folder();
    let (silent, other) = (Pipeline::start(folder.path(), "slow"), Pipeline::start(folder.path(), "edge"));
    let server = Server::start(folder.path());
    for name in ["slow", "edge"] {
        server.wait_for(name, "running");
    }
    silent.signal(Signal::STOP);
    // This request waits for the suspended pipeline, and the others do not wait for it.
    let mut waiting = connect(&server.address);
    waiting.write_all(request("GET", "/api/v1/instances/slow/graph", &[], "").as_bytes()).expect("it reads");
    for path in ["instances", "instances/slow", "instances/edge/graph", "instances/edge/modules", "alarms"] {
        get(&server, &format!("/api/v1/{path}"));
    }
    waiting.set_nonblocking(true).expect("own socket");
    let early = waiting.peek(&mut [0]).map_err(|error| error.kind());
    // A slow machine may take longer than the server waits: then the response is a refusal.
    let allowed: &[u16] = if early == Err(ErrorKind::WouldBlock) { &[200, 504] } else { &[504] };
    waiting.set_nonblocking(false).expect("own socket");
    server.wait_for("slow", "silent");
    wait_for("the alarm", || alarms(&server).iter().any(|alarm| alarm["alarm"] == "instance_silent"));
    // On a busy machine, the other one may be late for a moment, and may have other alarms.
    wait_for("only the suspended pipeline to be silent", || {
        let all = alarms(&server);
        let mut silent = all.iter().filter(|alarm| alarm["alarm"] == "instance_silent");
        let metrics = server.get("/metrics").body;
        let is_up =
            |name: &str, up: u8| metrics.contains(&format!("forebay_instance_up{{instance=\"{name}\"}} {up}\n"));
        silent.all(|alarm| alarm["instance"] == "slow") && is_up("slow", 0) && is_up("edge", 1)
    });
    silent.signal(Signal::CONT);
    assert!(allowed.contains(&read(&mut BufReader::new(waiting)).status));
    server.wait_for("slow", "running");
    wait_for("the end of the alarm", || alarms(&server).iter().all(|alarm| alarm["alarm"] != "instance_silent"));
    silent.end();
    other.end();
}

#[test]
fn a_pipeline_that_is_suspended_when_the_server_starts_is_found_later() {
    let folder = folder();
    let pipeline = Pipeline::start(folder.path(), "edge");
    pipeline.signal(Signal::STOP);
    let server = Server::start(folder.path());
    // The server has given up for the first time.
    server.line("event=instance_unreachable");
    pipeline.signal(Signal::CONT);
    server.wait_for("edge", "running");
}

#[test]
fn a_second_pipeline_of_a_name_is_listed_with_its_process_id() {
    let folder = folder();
    let server = Server::start(folder.path());
    let first = Pipeline::start(folder.path(), "edge");
    server.wait_for("edge", "running");
    let started = get(&server, "/api/v1/instances/edge")["started"].clone();
    let _second = Pipeline::run(folder.path(), "second", &first.file, &[]);
    wait_for("the second pipeline", || names(&server).len() == 2);
    let second = names(&server).into_iter().find(|name| name != "edge").expect("another name");
    let pid = get(&server, &format!("/api/v1/instances/{second}"))["pid"].clone();
    assert_eq!(second, format!("edge-{pid}"));
    first.end();
    server.wait_for("edge", "ended");
    assert_eq!(names(&server), ["edge", &second], "the second one keeps its name");
    assert_eq!(get(&server, "/api/v1/instances/edge")["started"], started);
    wait_for("packets of the second one", || entered(&server, &second) > 0);
}

/// `FOREBAY_SERVER_KILLS` is the number of kills.
#[test]
fn a_server_that_is_killed_costs_no_packet() {
    let kills: u32 = std::env::var("FOREBAY_SERVER_KILLS").map_or(10, |text| text.parse().expect("a number of kills"));
    let folder = folder();
    let pipeline = Pipeline::start(folder.path(), "edge");
    let mut gone = 0;
    for _ in 0..kills {
        let server = Server::start(folder.path());
        server.wait_for("edge", "running");
        let mut viewer = BufReader::new(connect(&server.address));
        let watch = request("GET", "/api/v1/events?instance=*", &[], "");
        viewer.get_mut().write_all(watch.as_bytes()).expect("it reads");
        assert_eq!(read_head(&mut viewer).0, 200);
        assert!(!read_chunk(&mut viewer).is_empty(), "the stream has begun");
        let now = || departed(&get(&server, "/api/v1/instances/edge/drops"));
        wait_for("more packets", || now() > gone);
        gone = now();
        crash(server);
        // The viewer notices the end, as an end or as an error.
        let _ = viewer.read_to_end(&mut Vec::new());
    }
    let report = pipeline.end();
    assert!(departed(&report["packets"]) >= gone, "{report}");
}

#[test]
fn the_root_helper_and_the_http_process_end_together() {
    if !is_root() {
        return crate::print("skipped: the_root_helper_and_the_http_process_end_together: only root has a root helper");
    }
    let folder = folder();
    let mut server = Server::start(folder.path());
    // This kills the helper, and waits for the end of the HTTP process.
    server.kill();
    assert!(TcpStream::connect(&server.address).is_err());
    let server = Server::start(folder.path());
    let http = server.http_process();
    let helper = stat(http)[1].parse().expect("the parent of the HTTP process");
    kill_process(process(http), Signal::KILL).expect("it runs");
    wait_for("the helper to end", || stat(helper).first().is_some_and(|state| state == "Z"));
    assert_eq!(server.end(), Some(2));
}

/// The HTTP process sees the folder only through the root helper.
#[test]
fn a_pipeline_of_another_user_is_killed_and_starts_again() {
    if !is_root() {
        return crate::print(
            "skipped: a_pipeline_of_another_user_is_killed_and_starts_again: only root has a root helper",
        );
    }
    let folder = folder();
    let hidden = folder.path().join("hidden");
    std::fs::create_dir(&hidden).expect("a writable folder");
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o700)).expect("own folder");
    let config = folder.path().join("serve.yaml");
    let text = format!("sockets: ['{}']\nstore: memory\nlisten: ['127.0.0.1:0']\n", hidden.display());
    std::fs::write(&config, text).expect("a writable folder");
    let server = Server::spawn(folder.path(), &["--config", &config.display().to_string()]).expect("it starts");
    let mut pipeline = Pipeline::start(&hidden, "edge");
    server.wait_for("edge", "running");
    pipeline.kill();
    server.line("event=instance_gone");
    server.wait_for("edge", "killed");
    let _again = Pipeline::run(&hidden, "edge", &pipeline.file, &[]);
    server.wait_for("edge", "running");
    assert!(alarms(&server).is_empty(), "{:?}", alarms(&server));
}

/// Returns the cores that the threads of a process may use, one set for each thread.
fn cores(process: u32) -> Vec<BTreeSet<usize>> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten();
    // A thread that has ended meanwhile has no status.
    let statuses = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    let lists = statuses.filter_map(|status| {
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:").map(|list| list.trim().to_owned()))
    });
    let number = |text: &str| text.parse::<usize>().expect("the number of a core");
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => number(part)..=number(part),
    };
    lists.map(|list| list.split(',').flat_map(range).collect()).collect()
}

#[test]
fn the_threads_of_the_server_are_kept_off_the_cores_of_workers() {
    let allowed = cores(std::process::id()).into_iter().next().expect("a thread");
    let (Some(one), Some(two), true) = (allowed.first(), allowed.last(), allowed.len() > 1) else {
        return crate::print("skipped: the_threads_of_the_server_are_kept_off_the_cores_of_workers: there is one core");
    };
    let folder = folder();
    let server = Server::start(folder.path());
    let text = |workers: &str| format!("{PIPELINE}workers: [{workers}]\n");
    let first = Pipeline::of(folder.path(), "edge", &text(&format!("{{ core: {one} }}")), &[]);
    server.wait_for("edge", "running");
    assert_eq!(get(&server, "/api/v1/instances/edge/workers")["workers"][0]["core"], json!(one));
    let http = server.http_process();
    // The server looks once a second.
    let check = |workers: &[usize]| {
        let free: BTreeSet<_> = allowed.iter().copied().filter(|core| !workers.contains(core)).collect();
        let expected = if free.is_empty() { &allowed } else { &free };
        let is_kept = |process: u32| cores(process).iter().all(|cores| cores == expected);
        wait_for(&format!("the HTTP process to keep off the cores {workers:?}"), || is_kept(http));
        if is_root() {
            let helper = stat(http)[1].parse().expect("the parent of the HTTP process");
            wait_for(&format!("the root helper to keep off the cores {workers:?}"), || is_kept(helper));
        }
    };
    check(&[*one]);
    let second = Pipeline::of(folder.path(), "second", &text(&format!("{{ core: {two} }}")), &[]);
    check(&[*one, *two]);
    second.end();
    check(&[*one]);
    let both = text(&format!("{{ core: {one} }}, {{ core: {two}, modules: [b] }}"));
    std::fs::write(&first.file, both).expect("a writable folder");
    first.signal(Signal::HUP);
    check(&[*one, *two]);
    first.end();
    check(&[]);
}

/// Starts a server at a Unix socket.
fn at_socket(folder: &Path, socket: &Path) -> Result<Server, Refused> {
    Server::try_with(folder, &format!("listen: ['unix:{}']", socket.display()), &[])
}

#[test]
fn a_unix_socket_is_removed_replaced_if_stale_and_not_taken_away() {
    let folder = folder();
    let own = folder.path().join("own");
    std::fs::create_dir(&own).expect("a writable folder");
    give(&own);
    let socket = own.join("serve.sock");
    let responds =
        || exchange(&mut connect_unix(&socket), request("GET", "/healthz", &[], "").as_bytes()).status == 200;
    let server = at_socket(folder.path(), &socket).expect("it starts");
    assert!(responds());
    assert_eq!(server.end(), Some(0));
    assert!(!socket.exists(), "SIGTERM removes the socket");

    crash(at_socket(folder.path(), &socket).expect("it starts"));
    assert!(socket.exists(), "a killed server leaves its socket behind");
    let server = at_socket(folder.path(), &socket).expect("a stale socket is replaced");
    assert!(responds());

    let refused = at_socket(folder.path(), &socket).err().expect("another server listens there");
    let why = format!("unix:{}: another process listens there: end it, or choose another address", socket.display());
    assert!(refused.code == Some(2) && refused.err.contains(&why), "{refused:?}");
    assert!(responds(), "the first server is not disturbed");
    assert_eq!(server.end(), Some(0));

    std::fs::write(&socket, "a file").expect("a writable folder");
    let refused = at_socket(folder.path(), &socket).err().expect("a file is there");
    assert!(refused.code == Some(2) && refused.err.contains(&socket.display().to_string()), "{refused:?}");
    assert!(!refused.err.contains("another process"), "no process listens at a file: {refused:?}");
    assert_eq!(std::fs::read_to_string(&socket).expect("the file stays"), "a file");
}
