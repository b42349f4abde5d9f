//! Full disks: the run reports incomplete files, or counts lost lines. Nothing crashes, and a truncated file is not
//! taken for a complete one.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::alone;
use crate::forebay::{CommandResult, FOREBAY, Running, done};
use crate::namespaces::{run, skip, until};

/// Runs a command with a disk of `$0` KiB mounted at its first argument. Only the command sees the disk, which ends
/// with it.
const MOUNT: &str = "mount -t tmpfs -o size=\"$0\"k forebay-test \"$1\" && shift && exec \"$@\"";

/// Returns true if the test can mount a disk. Otherwise prints the reason.
fn can_mount(what: &str, folder: &Path) -> bool {
    let folder = folder.to_str().expect("UTF-8");
    run("unshare", &["-m", "sh", "-c", MOUNT, "64", folder, "true"]).map_err(|why| skip(what, &why)).is_ok()
}

/// A folder with a configuration, and a folder in it for the small disk.
struct DiskFolder {
    folder: tempfile::TempDir,
}

impl DiskFolder {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        std::fs::create_dir(folder.path().join("disk")).expect("a writable folder");
        std::fs::write(folder.path().join("pipeline.yaml"), text).expect("a writable folder");
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Runs the pipeline to its end with a disk of `size` KiB. Afterwards the folder `kept` has a copy of the disk.
    fn on_a_disk(&self, size: u32, more: &[&str]) -> CommandResult {
        std::fs::create_dir_all(self.path("kept")).expect("a writable folder");
        let keep = "disk=$0; kept=$1; shift; \"$@\"; code=$?; cp -a \"$disk\"/. \"$kept\"; exit $code";
        let (size, disk, kept, pipeline) =
            (size.to_string(), self.path("disk"), self.path("kept"), self.path("pipeline.yaml"));
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", MOUNT, &size, &disk, "sh", "-c", keep, &disk, &kept]);
        command.args([FOREBAY, "run", "--no-live", "--no-socket", "--json"]).args(more).arg(pipeline);
        done(&mut command)
    }

    /// Runs the pipeline to its end with a limit of 64 KiB for each file.
    fn with_a_limit(&self, more: &[&str]) -> CommandResult {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 128; exec \"$@\"", "sh", FOREBAY, "run", "--no-live", "--no-socket", "--json"]);
        done(command.args(more).arg(self.path("pipeline.yaml")))
    }
}

fn report(result: &CommandResult) -> Value {
    let report = result.out.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let report: Value = report.unwrap_or_else(|| panic!("no report: {}{}", result.out, result.err));
    crate::forebay::accounted(&report["packets"], "at the end");
    report
}

/// Checks that a run which reads this capture reports that it is truncated.
fn assert_truncated(capture: &str) {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let file = folder.path().join("replay.yaml");
    let text = format!(
        "ports: {{ in: {{ pcap: {{ read: '{capture}', speed: fast }} }}, out: {{ sink: }} }}\npipeline: [in -> out]\n"
    );
    std::fs::write(&file, text).expect("a writable folder");
    let result = done(Command::new(FOREBAY).args(["run", "--no-live", "--no-socket"]).arg(&file));
    assert_eq!(result.code, Some(2), "{capture}: {}{}", result.out, result.err);
    assert!(result.err.contains("port 'in': the capture ends in the middle of its record"), "{}", result.err);
}

const CAPTURES: &str = "
ports:
  in: { generator: { count: 2000, size: 1000 } }
  out: { pcap: { write: FILE, when_full: WHEN } }
modules: { kind: { ether_split: { types: [ipv6] } } }
pipeline:
  - in -> kind
  - kind[ipv6] -> drop
  - kind[other] -> out
";

#[test]
fn a_full_disk_of_a_capture_is_reported() {
    const NAME: &str = "a_full_disk_of_a_capture_is_reported";
    let _alone = alone();
    for when_full in ["wait", "refuse"] {
        let folder = DiskFolder::new(&CAPTURES.replace("FILE", "disk/out.pcap").replace("WHEN", when_full));
        if !can_mount(NAME, &folder.folder.path().join("disk")) {
            return;
        }
        // The size is a whole number neither of packets nor of buffers.
        let result = folder.on_a_disk(700, &[]);
        assert_eq!(result.code, Some(2), "{}", result.err);
        let expected = "out.pcap, which is not complete: No space left on device";
        assert!(
            result.err.contains("error: port 'out': cannot write ") && result.err.contains(expected),
            "{}",
            result.err
        );
        report(&result);
        assert_truncated(&folder.path("kept/out.pcap"));
        // A device without any room.
        let device = folder.with_a_limit(&["--set", "ports.out.pcap.write=/dev/full"]);
        assert_eq!(device.code, Some(2), "{}", device.err);
        assert!(device.err.contains("/dev/full, which is not complete: No space left on device"), "{}", device.err);
    }
}

/// Regression: the kernel ended the process, without an error or a summary.
#[test]
fn a_file_size_limit_is_reported() {
    let _alone = alone();
    let folder = DiskFolder::new(&CAPTURES.replace("FILE", "out.pcap").replace("WHEN", "wait"));
    let result = folder.with_a_limit(&[]);
    assert_eq!(result.code, Some(2), "{result:?}");
    assert!(result.err.contains("out.pcap, which is not complete: File too large"), "{}", result.err);
    report(&result);
    assert_truncated(&folder.path("out.pcap"));
}

#[test]
fn a_full_disk_of_dropped_packets_is_reported() {
    const NAME: &str = "a_full_disk_of_dropped_packets_is_reported";
    let _alone = alone();
    let text = CAPTURES
        .replace("pcap: { write: FILE, when_full: WHEN }", "sink:")
        .replace("[other] -> out", "[other] -> drop");
    let folder = DiskFolder::new(&text.replace("[ipv6] -> drop", "[ipv6] -> out"));
    if !can_mount(NAME, &folder.folder.path().join("disk")) {
        return;
    }
    let file = folder.path("disk/drops.pcapng");
    let result = folder.on_a_disk(700, &["--drops", &file]);
    assert_eq!(result.code, Some(2), "{}", result.err);
    assert!(result.err.contains("drops.pcapng, which is not complete: No space left on device"), "{}", result.err);
    report(&result);
    assert_truncated(&folder.path("kept/drops.pcapng"));
}

#[test]
fn a_full_disk_of_alerts_is_reported_and_written_lines_are_complete() {
    const NAME: &str = "a_full_disk_of_alerts_is_reported";
    let _alone = alone();
    let folder = DiskFolder::new(
        "
ports:
  in: { generator: { rate: 100kpps, count: 20000 } }
  out: { sink: }
modules:
  ids: { nids: { rules: ['alert udp any any -> any any (msg:\"any at all\"; sid:1;)'], \
      alerts: { file: disk/alerts.json, rate: 1000000 } } }
pipeline:
  - in -> ids -> out
",
    );
    if !can_mount(NAME, &folder.folder.path().join("disk")) {
        return;
    }
    let result = folder.on_a_disk(64, &[]);
    assert_eq!(result.code, Some(2), "{}", result.err);
    assert!(result.err.contains("alerts.json, which is not complete: No space left on device"), "{}", result.err);
    report(&result);
    let text = std::fs::read_to_string(folder.path("kept/alerts.json")).expect("it was created");
    let (complete, rest) = text.rsplit_once('\n').unwrap_or(("", &text));
    assert!(complete.lines().count() > 50);
    assert!(complete.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "lines are complete");
    assert!(serde_json::from_str::<Value>(rest).is_err(), "the last line is truncated");
}

/// Regression: the truncated last line of a killed run, or of a full disk, became the beginning of the next run's first
/// line.
#[test]
fn alerts_begin_a_new_line_after_a_truncated_one() {
    let _alone = alone();
    let folder = DiskFolder::new(
        "
ports:
  in: { generator: { rate: 100kpps, count: 3 } }
  out: { sink: }
modules:
  ids: { nids: { rules: ['alert udp any any -> any any (msg:\"any at all\"; sid:1;)'], alerts: { file: alerts.json } } }
pipeline:
  - in -> ids -> out
",
    );
    for (before, lines) in [("{\"time\":\"2026-01-0", 1), ("{}\n", 1), ("", 0)] {
        std::fs::write(folder.path("alerts.json"), before).expect("a writable folder");
        let result =
            done(Command::new(FOREBAY).args(["run", "--no-live", "--no-socket"]).arg(folder.path("pipeline.yaml")));
        assert_eq!(result.code, Some(0), "{}", result.err);
        let text = std::fs::read_to_string(folder.path("alerts.json")).expect("it exists");
        let all: Vec<_> = text.lines().collect();
        assert!(all.len() > lines, "{text}");
        assert!(all[lines..].iter().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{text}");
    }
}

#[test]
fn a_full_disk_of_decisions_is_reported_and_the_recording_is_incomplete() {
    const NAME: &str = "a_full_disk_of_decisions_is_reported";
    let _alone = alone();
    let text = done(Command::new(FOREBAY).args(["usecase", "l2l3", "--set", "slo=1ms"]));
    let folder = DiskFolder::new(&text.out);
    if !can_mount(NAME, &folder.folder.path().join("disk")) {
        return;
    }
    let file = folder.path("disk/decisions");
    let result = folder.on_a_disk(64, &["--controller", "optimal", "--duration", "3s", "--decisions", &file]);
    assert_eq!(result.code, Some(2), "{}", result.err);
    assert!(result.err.contains("--decisions ") && result.err.contains("No space left on device"), "{}", result.err);
    report(&result);
    let replayed = done(Command::new(FOREBAY).args(["replay", &folder.path("kept/decisions")]));
    assert_eq!(replayed.code, Some(0), "{}{}", replayed.out, replayed.err);
    assert!(replayed.err.contains("the last line is incomplete"), "{}", replayed.err);
}

#[test]
fn a_full_disk_of_the_state_refuses_starts_and_reloads_and_keeps_the_state() {
    const NAME: &str = "a_full_disk_of_the_state_refuses_starts_and_reloads";
    let _alone = alone();
    let small = "ports: { in: { generator: { rate: 10kpps } }, out: { sink: } }\npipeline: [in -> out]\n";
    // The configuration is larger than the disk.
    let large = format!("# {}\n{small}", "x".repeat(100_000));
    let folder = DiskFolder::new(&large);
    let disk = folder.folder.path().join("disk");
    if !can_mount(NAME, &disk) {
        return;
    }
    let state = folder.path("disk/state");
    let result = folder.on_a_disk(64, &["--state", &state, "--duration", "1s"]);
    assert_eq!(result.code, Some(2), "{}", result.err);
    assert!(result.err.contains("--state ") && result.err.contains("No space left on device"), "{}", result.err);
    let remaining: Vec<_> =
        std::fs::read_dir(folder.path("kept")).expect("made").flatten().map(|it| it.file_name()).collect();
    assert!(remaining.iter().all(|name| name == "state.lock"), "{remaining:?}");
    // The same during a run.
    let disk = disk.to_str().expect("UTF-8");
    let by = ["unshare", "-m", "sh", "-c", MOUNT, "64", disk];
    let running = Running::start(&by, folder.folder.path(), small, &["--state", &state]).expect("it starts");
    let seen = running.sees(Path::new(&state));
    let stored = std::fs::read(&seen).expect("it was stored");
    std::fs::write(folder.path("pipeline.yaml"), &large).expect("a writable folder");
    let result = running.request(&["reload"]);
    assert_eq!(result.code, Some(2), "{}", result.out);
    assert!(result.err.contains(&format!("{state}: No space left on device")), "{}", result.err);
    assert_eq!(std::fs::read(&seen).expect("it exists"), stored, "the accepted configuration is complete");
    let files = std::fs::read_dir(seen.parent().expect("a folder")).expect("it exists").count();
    assert_eq!(files, 2, "the file and its lock");
    // The run continues, and accepts a configuration that fits.
    let before = running.packets("afterwards")["in"].as_u64();
    until("packets pass", || running.packets("afterwards")["in"].as_u64() > before);
    std::fs::write(folder.path("pipeline.yaml"), format!("# another\n{small}")).expect("a writable folder");
    let result = running.request(&["reload"]);
    assert_eq!(result.code, Some(0), "{}", result.err);
    assert_ne!(std::fs::read(&seen).expect("it exists"), stored);
    let (code, _, err) = running.end();
    assert_eq!(code, Some(0), "{err}");
}

/// A command that cannot print its output ends with an error.
#[test]
fn an_unwritable_report_is_reported() {
    let _alone = alone();
    let folder = DiskFolder::new(&CAPTURES.replace("pcap: { write: FILE, when_full: WHEN }", "sink:"));
    for arguments in [
        &["run", "--no-live", "--no-socket", "--json", "pipeline.yaml"][..],
        &["run", "--no-live", "--no-socket", "pipeline.yaml"],
        &["check", "pipeline.yaml"],
        &["list", "functions"],
        &["list", "functions", "--json"],
        &["describe", "acl"],
        &["schema"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux");
        let output = Command::new(FOREBAY).args(arguments).current_dir(&folder.folder).stdout(full).output();
        let output = output.expect("the command can be started");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(err.contains("standard output: No space left on device"), "{arguments:?}: {err}");
    }
}
