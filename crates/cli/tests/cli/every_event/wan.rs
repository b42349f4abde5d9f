//! Events of interfaces: a run in its own network namespace, whose links go down and come up again.

use std::io::Write;
use std::process::Command;

use forebay_protocol::event::Event;

use crate::running::temporary;

const NAME: &str = "every_event_is_produced_and_parsed_in_both_formats";

/// The host's network stack also answers ARP requests for the address of `host` at `wan`.
const EDGE: &str = "
ports:
  wan: { af_packet: { interface: d0, host: true } }
  host: { tap: { interface: fbt0, address: 192.0.2.1/24 } }
pipeline: [ wan -> host, host -> wan ]
";

/// Each step waits until the run has recorded the event of the step before.
const STEPS: &str = r#"
make() { ip link add d0 type veth peer name r0 && ip link set d0 up && ip link set r0 up; }
await() { until grep -q "\"event\":\"$1\"" err; do kill -0 $run 2>/dev/null || exit 3; sleep 0.1; done; }
# Forebay finds the namespace's interfaces there.
mount -t sysfs sysfs /sys && make || exit 4
"$0" run edge.yaml --no-live --json --socket s --log-format json --duration 120s >out 2>err & run=$!
await listening
ip link set r0 down; await link_down
ip link set r0 up; await link_up
ip link del d0; await port_lost
make || exit 5
await port_remade
kill $run; wait $run
"#;

/// Returns the events. Without the right to create interfaces, prints the reason and returns `None`.
pub(super) fn events() -> Option<Vec<Event>> {
    let folder = temporary();
    std::fs::write(folder.path().join("edge.yaml"), EDGE).expect("a writable folder");
    let mut command = Command::new("timeout");
    command.args([
        "--signal=KILL",
        "120",
        "unshare",
        "--net",
        "--mount",
        "sh",
        "-c",
        STEPS,
        env!("CARGO_BIN_EXE_forebay"),
    ]);
    let done = command.current_dir(folder.path()).output().expect("coreutils are installed");
    let lines = std::fs::read_to_string(folder.path().join("err")).unwrap_or_default();
    let err = String::from_utf8_lossy(&done.stderr);
    let missing = ["needs the right", "/dev/net/tun", "Operation not permitted", "not supported", "unshare"];
    if !done.status.success() && missing.iter().any(|missing| err.contains(missing) || lines.contains(missing)) {
        // Writes to standard error itself, because the test harness hides `eprintln!` of passing tests.
        let _ = writeln!(std::io::stderr(), "skipped: {NAME}, events of interfaces: {err}{lines}");
        return None;
    }
    assert!(done.status.success(), "{}: {err}{lines}", done.status);
    Some(super::read(&lines))
}
