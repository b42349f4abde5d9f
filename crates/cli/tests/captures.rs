//! Real captures through a firewall, a NAT and a router, and through the gateway use case. The captures are not part of
//! the project. If they are missing, the tests print that they are skipped.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_graph::{RunToCompletion, Setup, SetupEnvironment, Worker, drive, ports};
use forebay_measure::Simulated;
use forebay_pipeline::{Conditions, Source, load, usecase};
use forebay_units::{Frequency, Ticks};
use serde_json::json;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The captures with their numbers of packets, as listed in their folder.
const CAPTURES: [(&str, u64); 5] = [
    ("web.pcap", 4_631),
    ("many-flows.pcap", 7_133),
    ("rtp.pcap", 4_092),
    ("modbus.pcap", 13_622),
    ("echo-connections.pcap.gz", 82_582),
];

fn captures() -> Vec<(PathBuf, u64)> {
    let folder = Path::new(ROOT).join("../shared/data/pcap");
    let existing =
        CAPTURES.iter().map(|(name, packets)| (folder.join(name), *packets)).filter(|(path, _)| path.exists());
    let existing: Vec<_> = existing.collect();
    if existing.is_empty() {
        let _ = writeln!(std::io::stderr(), "skipped: no captures in {}", folder.display());
    }
    existing
}

/// Returns the number of frames of a capture that tshark calls malformed, or that have a wrong IPv4, TCP or UDP
/// checksum; `None` without tshark.
fn malformed(capture: &Path) -> Option<usize> {
    let checks = ["ip", "tcp", "udp"].map(|protocol| format!("{protocol}.check_checksum:TRUE"));
    let wrong = "_ws.malformed || ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0";
    let mut tshark = Command::new("tshark");
    // Packets are checked one by one: the result of stream reassembly depends on the order of the two directions.
    let unassembled = ["tcp.desegment_tcp_streams", "http.desegment_headers", "http.desegment_body"];
    let unassembled = unassembled.map(|option| format!("{option}:FALSE"));
    for option in checks.iter().chain(&unassembled) {
        tshark.args(["-o", option]);
    }
    tshark.arg("-r").arg(capture).args(["-Y", wrong, "-T", "fields", "-e", "frame.number"]);
    let output = tshark.output().ok()?;
    let trouble = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark cannot read {}: {trouble}", capture.display());
    Some(String::from_utf8_lossy(&output.stdout).lines().count())
}

#[test]
fn captures_pass_a_firewall_a_nat_and_a_router_and_the_output_is_well_formed() {
    for (capture, packets) in captures() {
        let folder = tempfile::tempdir().expect("a folder");
        let result = folder.path().join("result.pcap");
        let example = Path::new(ROOT).join("examples/capture.yaml");
        let source = Source::read(&example)
            .expect("the example")
            .set(format!("ports.in.pcap.read={}", capture.canonicalize().expect("it exists").display()))
            .set(format!("ports.out.pcap.write={}", result.display()))
            // Some hosts talk to themselves over 127.0.0.1.
            .set("modules.valid.ip_validate.martians=pass".to_owned());
        let frequency = Frequency::new(1e9);
        let plan = load(&source, Conditions { frequency, simulated: true }).expect("the example loads").plans.remove(0);
        let mut worker: Worker<_, RunToCompletion> =
            Worker::new(plan, Simulated::new(frequency), vec![]).expect("a sound plan");
        let ended = drive::simulate(&mut worker, Ticks(10_000_000_000_000));
        assert_eq!(ended, drive::Ended::Finished, "{}", capture.display());
        worker.shut_down().expect("the result can be written");
        let census = worker.census();
        let oversize: u64 = worker.telemetry().ports.iter().map(|port| port.counters.dropped.get()).sum();
        assert_eq!(census.entered + oversize, packets, "{}: {census:?}", capture.display());
        assert_eq!((census.missing(), census.queued, census.held), (0, 0, 0), "{census:?}");
        assert!(census.out > 0, "{}: {census:?}", capture.display());
        match (malformed(&capture), malformed(&result)) {
            (Some(before), Some(after)) => {
                assert!(after <= before, "{}: {after} wrong, {before} before", capture.display())
            }
            _ => drop(writeln!(std::io::stderr(), "skipped: no tshark to read {} back", result.display())),
        }
    }
}

#[test]
fn captures_pass_the_gateway_use_case() {
    for (capture, packets) in captures() {
        let frequency = Frequency::new(1e9);
        let source = usecase("gw", &["n=16".to_owned()]).expect("a use case");
        let mut plan = load(&source, Conditions { frequency, simulated: true }).expect("it loads").plans.remove(0);
        let kind = ports().into_iter().find(|kind| kind.name == "pcap").expect("registered");
        let mut environment = SetupEnvironment::new(frequency);
        environment.simulated = true;
        let params = json!({ "read": capture.display().to_string(), "speed": "fast" });
        let open = kind.open(&params, &mut Setup::new("in", &mut environment)).expect("a capture");
        let entry = plan.ports.iter_mut().find(|port| port.entry.is_some()).expect("a source");
        entry.open = Some(open);
        let mut worker: Worker<_, RunToCompletion> =
            Worker::new(plan, Simulated::new(frequency), vec![]).expect("a sound plan");
        assert_eq!(drive::simulate(&mut worker, Ticks(10_000_000_000_000)), drive::Ended::Finished);
        worker.shut_down().expect("no port has troubles");
        let census = worker.census();
        let oversize: u64 = worker.telemetry().ports.iter().map(|port| port.counters.dropped.get()).sum();
        assert_eq!(census.entered + oversize, packets, "{}: {census:?}", capture.display());
        assert_eq!((census.missing(), census.queued, census.held), (0, 0, 0), "{census:?}");
    }
}
