//! A run that a service manager has started: its messages to the service manager, and its socket.

use std::io::{Read, Write};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::manager::Manager;
use crate::running::{PIPELINE, Running, temporary, wait_for};

/// Returns the variables of a service with a watchdog.
fn variables(manager: &Manager) -> [(&'static str, String); 2] {
    [("NOTIFY_SOCKET", manager.path.display().to_string()), ("WATCHDOG_USEC", "100000".to_owned())]
}

/// Checks that the next two states are these, in any order.
fn check_states(manager: &Manager, expected: [&str; 2]) {
    let states = [manager.state(), manager.state()];
    assert!(expected.iter().all(|expected| states.contains(&(*expected).to_owned())), "{states:?}");
}

/// Checks a message about the beginning of a reload.
fn check_reloading(message: &str) {
    let time = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{message}"));
    assert!(time.trim_end().parse::<u64>().is_ok(), "{message}");
}

#[test]
fn a_run_reports_its_start_its_reloads_and_its_end() {
    let folder = temporary();
    let manager = Manager::in_folder(folder.path());
    let mut running = Running::with_variables(&format!("name: first\n{PIPELINE}"), &[], &variables(&manager));
    assert_eq!(manager.state(), "READY=1\nSTATUS=pipeline first, 1 worker\n");
    running.request(&["show", "workers"]).success();
    manager.alive();
    manager.alive();
    running.write(&format!("name: second\n{PIPELINE}"));
    running.signal(Signal::HUP);
    check_reloading(&manager.state());
    check_states(&manager, ["READY=1\n", "STATUS=pipeline second, 1 worker\n"]);
    assert_eq!(running.name(), "second");
    running.write("ports: 3\n");
    running.signal(Signal::HUP);
    check_reloading(&manager.state());
    assert_eq!(manager.state(), "READY=1\n");
    running.line("event=reload_refused");
    // The service manager has not requested this reload, and receives only the new state.
    running.write(PIPELINE);
    running.request(&["reload", "--set", "name=third"]).success();
    assert_eq!(manager.state(), "STATUS=pipeline third, 1 worker\n");
    manager.alive();
    running.signal(Signal::TERM);
    assert_eq!(manager.state(), "STOPPING=1\nSTATUS=ending\n");
    running.ended();
}

/// The worker hangs because it writes to a full pipe. The main thread, which sends the messages, runs.
#[test]
fn a_worker_that_hangs_stops_the_messages_of_the_watchdog() {
    let folder = temporary();
    let manager = Manager::in_folder(folder.path());
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("the command mkfifo").success());
    // Opened for both directions, so that the open does not wait for the run.
    let mut reader = std::fs::File::options().read(true).write(true).open(&pipe).expect("it exists");
    let text = format!(
        "ports: {{ in: {{ generator: {{ rate: 100kpps }} }}, out: {{ pcap: {{ write: '{}' }} }} }}\n\
         modules: {{ a: {{ counter: }} }}\npipeline: [ in -> a -> out ]\n",
        pipe.display()
    );
    let running = Running::with_variables(&text, &[], &variables(&manager));
    assert!(manager.state().starts_with("READY=1\n"));
    manager.alive();
    // Forty intervals without a message. Messages that come for ever fail the test.
    let silent = (0..2_000).any(|_| manager.next(Duration::from_secs(2)).is_none());
    assert!(silent, "the messages continue although the worker hangs");
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while reader.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    manager.alive();
    manager.alive();
    running.end();
}

#[test]
fn a_watchdog_of_another_process_gets_no_message() {
    let folder = temporary();
    let manager = Manager::in_folder(folder.path());
    let [notify, _] = variables(&manager);
    let variables = [notify, ("WATCHDOG_USEC", "20000".to_owned()), ("WATCHDOG_PID", "1".to_owned())];
    let running = Running::with_variables(PIPELINE, &[], &variables);
    assert!(manager.state().starts_with("READY=1\n"));
    // As long as several intervals, but no message depends on the time.
    wait_for("packets", || {
        let done = running.request(&["show", "modules", "--json"]);
        serde_json::from_str::<serde_json::Value>(&done.success()).expect("JSON")[0]["packets"].as_u64() > Some(20_000)
    });
    running.signal(Signal::TERM);
    assert_eq!(manager.next(Duration::from_secs(60)).as_deref(), Some("STOPPING=1\nSTATUS=ending\n"));
    running.ended();
}

/// The server of `--http` is not the service.
#[test]
fn children_do_not_get_the_variables_of_the_service_manager() {
    let folder = temporary();
    let manager = Manager::in_folder(folder.path());
    let [notify, watchdog] = variables(&manager);
    let running = Running::with_variables(PIPELINE, &["--http", "127.0.0.1:0"], &[notify, watchdog]);
    assert!(manager.state().starts_with("READY=1\n"));
    let parent = running.id().to_string();
    let children = std::fs::read_dir("/proc").expect("/proc").flatten().filter(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)) == Some(parent.as_str())
    });
    let children: Vec<_> = children.map(|entry| entry.path()).collect();
    assert_eq!(children.len(), 1, "{children:?}");
    let variables = std::fs::read(children[0].join("environ")).expect("own process");
    let variables = String::from_utf8_lossy(&variables);
    assert!(variables.contains("PATH=") && !variables.contains("NOTIFY_SOCKET"), "{variables}");
    assert!(!variables.contains("WATCHDOG_USEC"), "{variables}");
    running.end();
}

/// In a namespace with an empty /run: other tests must not find this run.
#[test]
fn a_service_of_the_system_is_found_by_its_name() {
    let program = env!("CARGO_BIN_EXE_forebay");
    let script = r#"
        mount -t tmpfs none /run && mkdir -m 755 /run/forebay && mkdir -m 700 /run/forebay/edge || exit 3
        unset XDG_RUNTIME_DIR
        RUNTIME_DIRECTORY=/run/forebay/edge "$0" run "$1" --instance edge --no-live --duration 60s &
        until "$0" show workers --instance edge --json; do kill -0 $! || exit 1; sleep 0.1; done
        test -S /run/forebay/edge/named/edge.sock || exit 2
        # Root finds it by /run/forebay alone.
        "$0" list running
        kill $!
        wait $!
    "#;
    let mounted = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/run"]).output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        let why = "skipped: a_service_of_the_system_is_found_by_its_name: no file system can be mounted";
        let _ = writeln!(std::io::stderr(), "{why}: {mounted:?}");
        return;
    }
    let file = crate::File::new(PIPELINE);
    let nothing = file.beside("nothing");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, program, file.path()]).env("TMPDIR", &nothing);
    let done = crate::CommandResult::of(command.output().expect("the command unshare"));
    assert!(done.out.contains("/run/forebay/edge/named/edge.sock"), "{}\n{}", done.out, done.err);
    done.success();
}
