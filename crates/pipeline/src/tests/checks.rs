//! Tests that `check` refuses everything that a run would refuse, as far as it can without opening interfaces and
//! creating files.

use std::path::Path;

use super::load_source;
use crate::{Source, check};

/// Returns the errors of a check. Asserts that a run has the same errors and creates no file.
fn check_error(text: &str, base: &Path) -> String {
    let source = Source::new(text, "test.yaml", base);
    let files = || {
        let files = std::fs::read_dir(base).expect("a folder").map(|file| file.expect("a file").file_name());
        files.collect::<std::collections::BTreeSet<_>>()
    };
    let before = files();
    let error = check(&source).map(|_| ()).expect_err(text).to_string();
    assert_eq!(load_source(&source).err().expect(text).to_string(), error);
    assert_eq!(files(), before, "{text}");
    error
}

fn over(port: &str, rest: &str) -> String {
    format!(
        "ports: {{ in: {port}, out: {{ sink: }} }}\nmodules: {{ m: {{ counter: }} }}\n{rest}\
         pipeline: [in -> m -> out]\n"
    )
}

/// Regression: `check` accepted parameters that ports refused when they were opened.
#[test]
fn parameters_of_ports_are_checked() {
    let folder = tempfile::tempdir().expect("a writable folder");
    for (port, expected) in [
        (
            "{ af_packet: { interface: x, ring: { block: 5KiB } } }",
            "ring.block: 5KiB: allowed are powers of two from 4KiB to 4MiB",
        ),
        ("{ af_packet: { interface: x, ring: { retire: 1500us } } }", "ring.retire: 1.5ms: allowed are 1ms to 1s"),
        ("{ af_packet: { interface: x, send_ring: 33 } }", "send_ring: 33: allowed are powers of two from 32 to 32768"),
        ("{ af_packet: { interface: x, poll: 2s } }", "poll: 2s: allowed are 1us to 1s"),
        ("{ af_xdp: { interface: x, receive: 100 } }", "receive: 100: allowed are powers of two from 32 to"),
        (
            "{ af_xdp: { interface: x, mode: generic, copy: zero } }",
            "copy: zero: in the mode `generic` the kernel copies",
        ),
        ("{ tap: { interface: x, poll: 2s } }", "poll: 2s: allowed are 1us to 1s"),
        (
            "{ pcap: { read: x, loops: 0 } }",
            "loops: '0' is out of range: allowed is a whole number from 1 to 18446744073709551615 (This many times, or \
             `forever`)",
        ),
        ("{ pcap: { read: x, speed: 0 } }", "speed: '0' is out of range: allowed is"),
        ("{ ring: { from: x, size: 0 } }", "size: 0: allowed are 1 to"),
        ("{ generator: { size: 20 } }", "size: 20: allowed are 44 to 65343"),
        ("{ generator: { size: 65344 } }", "size: 65344: allowed are 44 to 65343"),
        ("{ generator: { destination: '2001:db8::/64', size: 63 } }", "size: 63: allowed are 64 to 65343"),
        ("{ generator: { sessions: 0 } }", "sessions: 0: allowed are 1 to 16777216"),
        ("{ generator: { source: [] } }", "source: the list has no prefix: list at least one prefix"),
    ] {
        let error = check_error(&over(port, ""), folder.path());
        assert!(error.starts_with("test.yaml:1: ports.in.") && error.contains(expected), "{port}: {error}");
    }
}

/// Regression: `check` accepted two workers with one table of sessions, which a run refuses.
#[test]
fn sessions_on_different_workers_are_refused() {
    let folder = tempfile::tempdir().expect("a writable folder");
    let text = "
ports: { a: { generator: }, b: { generator: }, c: { sink: }, d: { sink: } }
state: { known: { connections: { sessions: 100 } } }
modules: { one: { firewall: { state: known, default: permit } }, two: { firewall: { state: known, default: permit } } }
workers: [{ modules: [one] }, { modules: [two] }]
pipeline: [a -> one -> c, b -> two -> d]
";
    let error = check_error(text, folder.path());
    assert!(error.contains("'known' is shared with"), "{error}");
}

fn logging(file: &str) -> String {
    format!(
        "ports: {{ in: {{ generator: }}, out: {{ sink: }} }}
state: {{ n: {{ nat: {{ pool: 192.0.2.0/28, log: {{ file: {file} }} }} }} }}
modules: {{ o: {{ nat_out: {{ state: n }} }} }}
pipeline: [in -> o -> out]
"
    )
}

fn alerting(file: &str, more: &str) -> String {
    format!(
        "ports: {{ in: {{ generator: }}, out: {{ sink: }} }}
modules:
  ids: {{ nids: {{ rules: my.rules, alerts: {{ file: {file} }} }} }}
{more}
"
    )
}

const ALONE: &str = "pipeline: [in -> ids -> out]";

/// Regression: `check` accepted output files that a run cannot write.
#[test]
fn files_that_cannot_be_written_are_refused() {
    let folder = tempfile::tempdir().expect("a writable folder");
    std::fs::write(folder.path().join("my.rules"), "alert ip any any -> any any (sid:1;)\n")
        .expect("a writable folder");
    let made =
        std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().expect("the command mkfifo");
    assert!(made.success());
    for (file, expected) in [
        (".", "allowed are regular files"),
        ("pipe", "allowed are regular files"),
        ("\"a\\0b\"", "unexpected NUL byte"),
        ("missing/file", "No such file or directory"),
        ("my.rules/file", "Not a directory"),
    ] {
        let log = check_error(&logging(file), folder.path());
        assert!(log.contains("state.n.nat.log.file: cannot write ") && log.contains(expected), "{log}");
        let alerts = check_error(&alerting(file, ALONE), folder.path());
        assert!(alerts.contains("nids.alerts.file: cannot write ") && alerts.contains(expected), "{alerts}");
    }
    // Regression: the message of an empty name had no name.
    let empty = "the file name is empty: name a file";
    let log = check_error(&logging("''"), folder.path());
    assert!(log.contains("state.n.nat.log.file") && log.contains(empty), "{log}");
    let alerts = check_error(&alerting("''", ALONE), folder.path());
    assert!(alerts.contains(&format!("nids.alerts.file: {empty}")), "{alerts}");
    let tap = "  copy: { tap: { file: '' } }\npipeline: [in -> ids -> copy -> out]";
    let error = check_error(&alerting("new", tap), folder.path());
    assert!(error.contains(&format!("modules.copy.tap.file: {empty}")), "{error}");
    let tap = "  copy: { tap: { file: . } }\npipeline: [in -> ids -> copy -> out]";
    let error = check_error(&alerting("new", tap), folder.path());
    assert!(
        error.contains("test.yaml:4: modules.copy.tap.file: cannot create ") && error.contains("Is a directory"),
        "{error}"
    );
}

/// Regression: every reload of a pipeline was refused after the folder of its open alert file had been moved.
#[test]
fn files_that_a_running_pipeline_has_open_are_not_opened_again() {
    let folder = tempfile::tempdir().expect("a writable folder");
    let (before, after) = (folder.path().join("alerts"), folder.path().join("moved"));
    std::fs::create_dir(&before).expect("a writable folder");
    std::fs::write(folder.path().join("my.rules"), "alert ip any any -> any any (sid:1;)\n")
        .expect("a writable folder");
    let source = |rest: &str| Source::new(alerting("alerts/of.json", rest), "test.yaml", folder.path());
    let first = load_source(&source(ALONE)).unwrap_or_else(|problems| panic!("{problems}"));
    std::fs::rename(before, after).expect("a writable folder");
    let more = source("  more: { counter: }\npipeline: [in -> ids -> more -> out]");
    let conditions = crate::Conditions { frequency: forebay_units::Frequency::new(1e9), simulated: true };
    let second = crate::prepare(&more, conditions, Some(&first.made)).and_then(crate::Prepared::open);
    let second = second.unwrap_or_else(|problems| panic!("{problems}"));
    assert!(second.plans[0].modules.iter().any(|module| module.from.is_some()), "the rules' module is taken over");
    assert!(check(&more).is_err(), "by itself it cannot run");
}

/// Regression: alerts were appended to the rule file that defines them. `check` did not know the files that other parts
/// use.
#[test]
fn a_file_that_is_read_or_written_elsewhere_is_not_written() {
    let folder = tempfile::tempdir().expect("a writable folder");
    let rules = "alert ip any any -> any any (sid:1;)\n";
    std::fs::write(folder.path().join("my.rules"), rules).expect("a writable folder");
    std::fs::write(folder.path().join("vpn.key"), "000102030405060708090a0b0c0d0e0f\n").expect("a writable folder");
    std::fs::hard_link(folder.path().join("my.rules"), folder.path().join("link")).expect("links");
    for file in ["my.rules", "./my.rules", "link"] {
        let error = check_error(&alerting(file, ALONE), folder.path());
        assert!(
            error.contains("modules.ids.nids.alerts.file: ") && error.contains("'ids' already reads this file"),
            "{error}"
        );
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("my.rules")).expect("the file exists"), rules);
    let key = "  seal: { aes_gcm_encrypt: { use: 1, keys: [{ id: 1, file: vpn.key }] } }\n\
               pipeline: [in -> ids -> seal -> out]";
    let of_key = check_error(&alerting("vpn.key", key), folder.path());
    assert!(of_key.contains("'seal' already reads this file: allowed is another file"), "{of_key}");
    let two = "  more: { nids: { rules: ['alert ip any any -> any any (sid:1;)'], alerts: { file: new } } }\n\
               pipeline: [in -> ids -> more -> out]";
    let of_two = check_error(&alerting("new", two), folder.path());
    assert!(
        of_two.contains("modules.more.nids.alerts.file: ") && of_two.contains("'ids' already writes this file"),
        "{of_two}"
    );
    let port = alerting("new", ALONE).replace("{ sink: }", "{ pcap: { write: new } }");
    let of_port = check_error(&port, folder.path());
    let expected = ["ports.out.pcap.write: ", "'ids' already writes this file"];
    assert!(expected.iter().all(|part| of_port.contains(part)), "{of_port}");
    let log = logging("x").replace("{ generator: }", "{ generator: { destination: { routes: x } } }");
    std::fs::write(folder.path().join("x"), "10.0.0.0/8\n").expect("a writable folder");
    let of_log = check_error(&log, folder.path());
    assert!(
        of_log.contains("state 'n' already writes this file") || of_log.contains("'in' already reads this file"),
        "{of_log}"
    );
}
