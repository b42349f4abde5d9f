//! Disks that are full: what is written says so, or counts what is lost; nothing crashes, and half a file is not taken for a whole.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::alone;
use crate::forebay::{Done, FOREBAY, Running, done};
use crate::namespaces::{run, skip, until};

/// Runs a command with a disk of so many KiB mounted at its first argument, which nobody else sees, and which goes with it.
const MOUNT: &str = "mount -t tmpfs -o size=\"$0\"k forebay-test \"$1\" && shift && exec \"$@\"";

/// Whether that can be done here; said where not.
fn can_mount(what: &str, folder: &Path) -> bool {
    let folder = folder.to_str().expect("UTF-8");
    run("unshare", &["-m", "sh", "-c", MOUNT, "64", folder, "true"]).map_err(|why| skip(what, &why)).is_ok()
}

/// A folder with a configuration, and a folder in it for the small disk.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        std::fs::create_dir(folder.path().join("disk")).expect("a writable folder");
        std::fs::write(folder.path().join("pipeline.yaml"), text).expect("a writable folder");
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Runs it to its end with a disk of so many KiB; what was written there is then in the folder `kept`.
    fn on_a_disk(&self, size: u32, more: &[&str]) -> Done {
        std::fs::create_dir_all(self.path("kept")).expect("a writable folder");
        let keep = "disk=$0; kept=$1; shift; \"$@\"; code=$?; cp -a \"$disk\"/. \"$kept\"; exit $code";
        let (size, disk, kept, pipeline) =
            (size.to_string(), self.path("disk"), self.path("kept"), self.path("pipeline.yaml"));
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", MOUNT, &size, &disk, "sh", "-c", keep, &disk, &kept]);
        command.args([FOREBAY, "run", "--no-live", "--no-socket", "--json"]).args(more).arg(pipeline);
        done(&mut command)
    }

    /// Runs it to its end where no file may have more than 64 KiB.
    fn with_a_limit(&self, more: &[&str]) -> Done {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 128; exec \"$@\"", "sh", FOREBAY, "run", "--no-live", "--no-socket", "--json"]);
        done(command.args(more).arg(self.path("pipeline.yaml")))
    }
}

fn report(told: &Done) -> Value {
    let report = told.out.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let report: Value = report.unwrap_or_else(|| panic!("no report: {}{}", told.out, told.err));
    crate::forebay::accounted(&report["packets"], "at the end");
    report
}

/// That `forebay` does not take a capture for a whole one.
fn is_told_to_be_cut(capture: &str) {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let file = folder.path().join("replay.yaml");
    let text = format!(
        "ports: {{ in: {{ pcap: {{ read: '{capture}', speed: fast }} }}, out: {{ sink: }} }}\npipeline: [in -> out]\n"
    );
    std::fs::write(&file, text).expect("a writable folder");
    let told = done(Command::new(FOREBAY).args(["run", "--no-live", "--no-socket"]).arg(&file));
    assert_eq!(told.code, Some(2), "{capture}: {}{}", told.out, told.err);
    assert!(told.err.contains("port 'in': the capture ends in the middle of its record"), "{}", told.err);
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
fn a_capture_on_a_full_disk_is_told() {
    const NAME: &str = "a_capture_on_a_full_disk_is_told";
    let _alone = alone();
    for when_full in ["wait", "refuse"] {
        let place = Place::new(&CAPTURES.replace("FILE", "disk/out.pcap").replace("WHEN", when_full));
        if !can_mount(NAME, &place.folder.path().join("disk")) {
            return;
        }
        // Neither a whole number of packets nor of buffers.
        let told = place.on_a_disk(700, &[]);
        assert_eq!(told.code, Some(2), "{}", told.err);
        let said = "out.pcap, which is not complete: No space left on device";
        assert!(told.err.contains("error: port 'out': cannot write ") && told.err.contains(said), "{}", told.err);
        report(&told);
        is_told_to_be_cut(&place.path("kept/out.pcap"));
        // No room for the file at all.
        let device = place.with_a_limit(&["--set", "ports.out.pcap.write=/dev/full"]);
        assert_eq!(device.code, Some(2), "{}", device.err);
        assert!(device.err.contains("/dev/full, which is not complete: No space left on device"), "{}", device.err);
    }
}

/// The kernel ended the process, without a word or a summary.
#[test]
fn a_file_that_may_not_grow_is_told() {
    let _alone = alone();
    let place = Place::new(&CAPTURES.replace("FILE", "out.pcap").replace("WHEN", "wait"));
    let told = place.with_a_limit(&[]);
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(told.err.contains("out.pcap, which is not complete: File too large"), "{}", told.err);
    report(&told);
    is_told_to_be_cut(&place.path("out.pcap"));
}

#[test]
fn dropped_packets_on_a_full_disk_are_told() {
    const NAME: &str = "dropped_packets_on_a_full_disk_are_told";
    let _alone = alone();
    let text = CAPTURES
        .replace("pcap: { write: FILE, when_full: WHEN }", "sink:")
        .replace("[other] -> out", "[other] -> drop");
    let place = Place::new(&text.replace("[ipv6] -> drop", "[ipv6] -> out"));
    if !can_mount(NAME, &place.folder.path().join("disk")) {
        return;
    }
    let file = place.path("disk/drops.pcapng");
    let told = place.on_a_disk(700, &["--drops", &file]);
    assert_eq!(told.code, Some(2), "{}", told.err);
    assert!(told.err.contains("drops.pcapng, which is not complete: No space left on device"), "{}", told.err);
    report(&told);
    is_told_to_be_cut(&place.path("kept/drops.pcapng"));
}

#[test]
fn alerts_on_a_full_disk_are_told_and_those_that_are_written_are_whole() {
    const NAME: &str = "alerts_on_a_full_disk_are_told";
    let _alone = alone();
    let place = Place::new(
        "
ports:
  in: { generator: { rate: 100kpps, count: 20000 } }
  out: { sink: }
modules:
  ids: { nids: { rules: ['alert udp any any -> any any (msg:\"any at all\"; sid:1;)'], alerts: { file: disk/alerts.json, rate: 1000000 } } }
pipeline:
  - in -> ids -> out
",
    );
    if !can_mount(NAME, &place.folder.path().join("disk")) {
        return;
    }
    let told = place.on_a_disk(64, &[]);
    assert_eq!(told.code, Some(2), "{}", told.err);
    assert!(told.err.contains("alerts.json, which is not complete: No space left on device"), "{}", told.err);
    report(&told);
    let text = std::fs::read_to_string(place.path("kept/alerts.json")).expect("it was begun");
    let (whole, rest) = text.rsplit_once('\n').unwrap_or(("", &text));
    assert!(whole.lines().count() > 50);
    assert!(whole.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "lines are whole");
    assert!(serde_json::from_str::<Value>(rest).is_err(), "the last is cut, and no line");
}

/// What a killed or full run has left of its last line became the beginning of the next run's first.
#[test]
fn alerts_go_on_in_a_line_of_their_own_after_one_that_is_cut() {
    let _alone = alone();
    let place = Place::new(
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
        std::fs::write(place.path("alerts.json"), before).expect("a writable folder");
        let told =
            done(Command::new(FOREBAY).args(["run", "--no-live", "--no-socket"]).arg(place.path("pipeline.yaml")));
        assert_eq!(told.code, Some(0), "{}", told.err);
        let text = std::fs::read_to_string(place.path("alerts.json")).expect("it is there");
        let all: Vec<_> = text.lines().collect();
        assert!(all.len() > lines, "{text}");
        assert!(all[lines..].iter().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{text}");
    }
}

#[test]
fn decisions_on_a_full_disk_are_told_and_not_taken_for_a_whole_recording() {
    const NAME: &str = "decisions_on_a_full_disk_are_told";
    let _alone = alone();
    let text = done(Command::new(FOREBAY).args(["usecase", "l2l3", "--set", "slo=1ms"]));
    let place = Place::new(&text.out);
    if !can_mount(NAME, &place.folder.path().join("disk")) {
        return;
    }
    let file = place.path("disk/decisions");
    let told = place.on_a_disk(64, &["--controller", "optimal", "--duration", "3s", "--decisions", &file]);
    assert_eq!(told.code, Some(2), "{}", told.err);
    assert!(told.err.contains("--decisions ") && told.err.contains("No space left on device"), "{}", told.err);
    report(&told);
    let replayed = done(Command::new(FOREBAY).args(["replay", &place.path("kept/decisions")]));
    assert_eq!(replayed.code, Some(0), "{}{}", replayed.out, replayed.err);
    assert!(replayed.err.contains("its last line was not written to its end"), "{}", replayed.err);
}

#[test]
fn a_state_on_a_full_disk_refuses_the_start_or_the_reload_and_stays_whole() {
    const NAME: &str = "a_state_on_a_full_disk_refuses";
    let _alone = alone();
    let small = "ports: { in: { generator: { rate: 10kpps } }, out: { sink: } }\npipeline: [in -> out]\n";
    // Longer than the disk is.
    let large = format!("# {}\n{small}", "x".repeat(100_000));
    let place = Place::new(&large);
    let disk = place.folder.path().join("disk");
    if !can_mount(NAME, &disk) {
        return;
    }
    let state = place.path("disk/state");
    let told = place.on_a_disk(64, &["--state", &state, "--duration", "1s"]);
    assert_eq!(told.code, Some(2), "{}", told.err);
    assert!(told.err.contains("--state ") && told.err.contains("No space left on device"), "{}", told.err);
    let left: Vec<_> =
        std::fs::read_dir(place.path("kept")).expect("made").flatten().map(|it| it.file_name()).collect();
    assert!(left.iter().all(|name| name == "state.lock"), "{left:?}");
    // Of a running one.
    let disk = disk.to_str().expect("UTF-8");
    let by = ["unshare", "-m", "sh", "-c", MOUNT, "64", disk];
    let running = Running::start(&by, place.folder.path(), small, &["--state", &state]).expect("it starts");
    let seen = running.sees(Path::new(&state));
    let kept = std::fs::read(&seen).expect("it was kept");
    std::fs::write(place.path("pipeline.yaml"), &large).expect("a writable folder");
    let told = running.ask(&["reload"]);
    assert_eq!(told.code, Some(2), "{}", told.out);
    assert!(told.err.contains("No space left on device"), "{}", told.err);
    assert_eq!(std::fs::read(&seen).expect("it is there"), kept, "what was accepted is there, whole");
    let left = std::fs::read_dir(seen.parent().expect("a folder")).expect("it is there").count();
    assert_eq!(left, 2, "the file and its lock");
    // It runs on, and takes what there is room for.
    let before = running.packets("afterwards")["in"].as_u64();
    until("it goes on", || running.packets("afterwards")["in"].as_u64() > before);
    std::fs::write(place.path("pipeline.yaml"), format!("# another\n{small}")).expect("a writable folder");
    let told = running.ask(&["reload"]);
    assert_eq!(told.code, Some(0), "{}", told.err);
    assert_ne!(std::fs::read(&seen).expect("it is there"), kept);
    let (code, _, said) = running.end();
    assert_eq!(code, Some(0), "{said}");
}

/// What is asked for and cannot be printed is no success.
#[test]
fn a_report_that_cannot_be_written_is_told() {
    let _alone = alone();
    let place = Place::new(&CAPTURES.replace("pcap: { write: FILE, when_full: WHEN }", "sink:"));
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
        let output = Command::new(FOREBAY).args(arguments).current_dir(&place.folder).stdout(full).output();
        let output = output.expect("the command can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("No space left on device"), "{arguments:?}: {said}");
    }
}
