//! Signals to a run without a terminal: it reloads, opens its logs again, and says what came of it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::running::{PIPELINE, Running};

const LOGGED: &str = "
ports: { in: { generator: { source: 10.0.0.0/16, sessions: 100000, rate: 2kpps } }, out: { sink: } }
state: { n: { nat: { pool: 192.0.2.0/28, log: { file: ports.json } } } }
modules: { out_nat: { nat_out: { state: n } } }
pipeline: [ in -> out_nat -> out ]
";

fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_there() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} does not come");
}

fn has_lines(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.first() == Some(&b'{') && bytes.contains(&b'\n'))
}

#[test]
fn sighup_reloads_under_load_and_keeps_what_runs_where_the_file_is_broken() {
    let mut running = Running::as_service(PIPELINE, &[]);
    running.write(&format!("name: second\n{PIPELINE}"));
    running.signal(Signal::HUP);
    running.line("SIGHUP: changed to ");
    assert_eq!(running.name(), "second");
    // Twice in a row: the file that is there at the second is in force.
    running.write(&format!("name: third\n{PIPELINE}"));
    running.signal(Signal::HUP);
    running.write(&format!("name: fourth\n{PIPELINE}"));
    running.signal(Signal::HUP);
    running.line("SIGHUP: changed to ");
    wait_for("the fourth configuration", || running.name() == "fourth");
    let key = "a0b1c2d3e4f506172839405162738495";
    running.write(&PIPELINE.replace("{ counter: }", &format!("{{ aes_gcm_encrypt: {{ keys: {key} }} }}")));
    running.signal(Signal::HUP);
    let lines = running.line("aes_gcm_encrypt");
    assert!(lines.contains("SIGHUP: the configuration that runs stays") && !lines.contains(&key[..8]), "{lines}");
    assert_eq!(running.name(), "fourth");
    running.end();
}

#[test]
fn sigusr1_opens_a_renamed_log_again_and_copytruncate_goes_on() {
    let mut running = Running::as_service(LOGGED, &[]);
    let (log, old) = (running.path("ports.json"), running.path("ports.json.1"));
    wait_for("a log", || has_lines(&log));
    std::fs::rename(&log, &old).expect("it is there");
    running.signal(Signal::USR1);
    running.line("SIGUSR1: logs are opened again");
    wait_for("a new log", || has_lines(&log));
    assert!(has_lines(&old));
    // `copytruncate`: lines go on at the beginning of the file, not behind a hole.
    std::fs::copy(&log, running.path("ports.json.2")).expect("it is there");
    std::fs::File::options().write(true).open(&log).and_then(|file| file.set_len(0)).expect("it is there");
    wait_for("a line after the copy", || has_lines(&log));
    running.end();
}

#[test]
fn the_file_of_state_is_its_owners_alone_whatever_the_umask() {
    let running = Running::as_service(PIPELINE, &[]);
    let mode = || std::fs::metadata(running.path("state")).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    running.ask(&["reload", "--set", "name=next"]).well();
    assert_eq!(mode(), 0o600);
    running.end();
}
