//! Signals to a run without a terminal: it reloads, reopens its logs, and reports the result.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;

use crate::running::{PIPELINE, Running, wait_for};

const LOGGED: &str = "
ports: { in: { generator: { source: 10.0.0.0/16, sessions: 100000, rate: 2kpps } }, out: { sink: } }
state: { n: { nat: { pool: 192.0.2.0/28, log: { file: ports.json } } } }
modules: { out_nat: { nat_out: { state: n } } }
pipeline: [ in -> out_nat -> out ]
";

fn has_lines(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.first() == Some(&b'{') && bytes.contains(&b'\n'))
}

#[test]
fn sighup_reloads_under_load_and_a_broken_file_changes_nothing() {
    let mut running = Running::as_service(PIPELINE, &[]);
    running.write(&format!("name: second\n{PIPELINE}"));
    running.signal(Signal::HUP);
    running.line(" by=SIGHUP file=");
    assert_eq!(running.name(), "second");
    // Two consecutive signals: the file at the time of the second signal is in force.
    running.write(&format!("name: third\n{PIPELINE}"));
    running.signal(Signal::HUP);
    running.write(&format!("name: fourth\n{PIPELINE}"));
    running.signal(Signal::HUP);
    running.line(" by=SIGHUP file=");
    wait_for("the fourth configuration", || running.name() == "fourth");
    let key = "a0b1c2d3e4f506172839405162738495";
    running.write(&PIPELINE.replace("{ counter: }", &format!("{{ aes_gcm_encrypt: {{ keys: {key} }} }}")));
    running.signal(Signal::HUP);
    let lines = running.line("aes_gcm_encrypt");
    let refused = lines.contains("event=reload_refused") && lines.contains("the running configuration stays");
    assert!(refused && !lines.contains(&key[..8]), "{lines}");
    assert_eq!(running.name(), "fourth");
    running.end();
}

#[test]
fn sigusr1_reopens_a_renamed_log_and_copytruncate_continues() {
    let mut running = Running::as_service(LOGGED, &[]);
    let (log, old) = (running.path("ports.json"), running.path("ports.json.1"));
    wait_for("a log", || has_lines(&log));
    std::fs::rename(&log, &old).expect("it exists");
    running.signal(Signal::USR1);
    running.line("SIGUSR1: logs will be reopened");
    wait_for("a new log", || has_lines(&log));
    assert!(has_lines(&old));
    // `copytruncate`: lines continue at the beginning of the file, without a gap of zero bytes.
    std::fs::copy(&log, running.path("ports.json.2")).expect("it exists");
    std::fs::File::options().write(true).open(&log).and_then(|file| file.set_len(0)).expect("it exists");
    wait_for("a line after the copy", || has_lines(&log));
    // SIGHUP reopens the log, too, and reloads.
    std::fs::rename(&log, &old).expect("it exists");
    running.signal(Signal::HUP);
    running.line(" by=SIGHUP file=");
    wait_for("a log after a reload", || has_lines(&log));
    running.end();
}

/// Regression: after a failure, a log was not reopened. Its lines went to the renamed file until the end of the run.
#[test]
fn a_log_whose_name_is_taken_is_reopened_when_the_name_is_free() {
    let mut running = Running::as_service(LOGGED, &[]);
    let (log, old) = (running.path("ports.json"), running.path("ports.json.1"));
    wait_for("a log", || has_lines(&log));
    std::fs::rename(&log, &old).expect("it exists");
    std::fs::create_dir(&log).expect("its name is free");
    running.signal(Signal::USR1);
    let lines = running.line("was not reopened");
    assert!(lines.contains("SIGUSR1: logs will be reopened") && lines.contains("event=log_not_reopened"), "{lines}");
    std::fs::remove_dir(&log).expect("nothing is in it");
    wait_for("a new log", || has_lines(&log));
    let (code, report, err) = running.end_with();
    assert!(code == Some(0) && report.get("lost_lines").is_none(), "{err}");
}

/// The run ends before the log is reopened. No line is missing.
#[test]
fn a_log_that_could_not_be_reopened_is_reported_at_the_end() {
    let mut running = Running::as_service(LOGGED, &[]);
    let (log, old) = (running.path("ports.json"), running.path("ports.json.1"));
    wait_for("a log", || has_lines(&log));
    std::fs::rename(&log, &old).expect("it exists");
    std::fs::create_dir(&log).expect("its name is free");
    running.signal(Signal::USR1);
    running.line("was not reopened");
    let (code, report, err) = running.end_with();
    assert!(code == Some(2) && report.get("lost_lines").is_none(), "{err}");
    assert!(err.contains("ports.json was not opened again: ") && !err.contains("not complete"), "{err}");
}

const ALERTS: &str = "
ports: { in: { generator: { rate: 500pps } }, out: { sink: } }
modules:
  ids: { nids: { rules: ['alert ip any any -> any any (sid:1;)'], alerts: { file: alerts.json, rate: 100000 } } }
pipeline: [ in -> ids -> out ]
";

#[test]
fn signals_reopen_a_renamed_file_of_alerts_and_no_alert_is_lost() {
    let mut running = Running::as_service(ALERTS, &[]);
    let file = running.path("alerts.json");
    let names = ["alerts.json.1", "alerts.json.2"].map(|name| running.path(name));
    let signals = [(Signal::USR1, "SIGUSR1: logs will be reopened"), (Signal::HUP, " by=SIGHUP file=")];
    for ((signal, line), old) in signals.into_iter().zip(&names) {
        wait_for("a file of alerts", || has_lines(&file));
        std::fs::rename(&file, old).expect("it exists");
        running.signal(signal);
        running.line(line);
    }
    wait_for("a third file of alerts", || has_lines(&file));
    let (report, folder) = running.end_keeping();
    let lines =
        |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("it exists").lines().count() as u64;
    let all = ["alerts.json", "alerts.json.1", "alerts.json.2"].map(lines);
    assert!(all.iter().all(|lines| *lines > 0), "{all:?}");
    assert_eq!(Some(all.iter().sum()), report["modules"][0]["counters"]["alerts"]["written"].as_u64());
    assert_eq!(Some(all.iter().sum()), report["packets"]["in"].as_u64());
}

#[test]
fn a_copied_and_truncated_file_of_alerts_continues_at_its_beginning() {
    let running = Running::as_service(ALERTS, &[]);
    let file = running.path("alerts.json");
    for signal in [None, Some(Signal::USR1), Some(Signal::HUP)] {
        wait_for("a file of alerts", || has_lines(&file));
        std::fs::copy(&file, running.path("copy")).expect("it exists");
        std::fs::File::options().write(true).open(&file).and_then(|file| file.set_len(0)).expect("it exists");
        signal.into_iter().for_each(|signal| running.signal(signal));
        wait_for("an alert after the copy", || has_lines(&file));
        assert!(has_lines(&running.path("copy")));
    }
    running.end();
}

/// A recording belongs to one run: it begins with the run's pipeline.
#[test]
fn a_recording_is_not_rotated_and_only_its_owner_can_read_it() {
    let controlled = format!("{PIPELINE}control: {{ batching: null, period: 1ms }}\n");
    let mut running = Running::as_service(&controlled, &["--decisions", "/dev/null"]);
    running.signal(Signal::USR1);
    running.line("SIGUSR1: logs will be reopened");
    running.end();
    let file = crate::File::new(&controlled);
    let decisions = file.beside("day.jsonl");
    let run = "umask 000; exec \"$0\" run \"$1\" --virtual --duration 20ms --decisions \"$2\"";
    let store = "umask 000; exec \"$0\" measure \"$1\" --no-count --duration 20ms --store \"$2\" --save it";
    for (script, path) in [(run, &decisions), (store, &file.beside("store"))] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_forebay"), file.path(), path]);
        let done = crate::CommandResult::of(command.output().expect("a shell"));
        assert!(matches!(done.code, Some(0 | 1)), "{}", done.err);
    }
    let mode = |path: &Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(Path::new(&decisions)), 0o600);
    let mut stored = 0;
    let mut folders = vec![std::path::PathBuf::from(file.beside("store"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains("ip_lookup")) {
                // The program itself is a link or a copy, and not a configuration.
                if path.extension().is_some() {
                    stored += 1;
                    assert_eq!(mode(&path), 0o600, "{}", path.display());
                }
            }
        }
    }
    assert!(stored > 0);
}

#[test]
fn only_the_owner_can_read_the_state_whatever_the_umask() {
    let running = Running::as_service(PIPELINE, &[]);
    let mode = || std::fs::metadata(running.path("state")).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    running.request(&["reload", "--set", "name=next"]).success();
    assert_eq!(mode(), 0o600);
    running.end();
}
