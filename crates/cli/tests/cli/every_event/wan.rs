//! Events of interfaces: a run in a network namespace of its own, whose links go and come back.

use std::io::Write;
use std::process::Command;

use forebay_protocol::event::Event;

use crate::running::temporary;

const NAME: &str = "every_kind_is_seen_and_read_again_in_both_formats";

/// The host's stack answers ARP for the address of `host` at `wan`, too.
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

/// The events; `None`, and a printed reason, where there is no right to make interfaces.
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
    let done = command.current_dir(folder.path()).output().expect("coreutils are there");
    let lines = std::fs::read_to_string(folder.path().join("err")).unwrap_or_default();
    let said = String::from_utf8_lossy(&done.stderr);
    let missing = ["needs the right", "/dev/net/tun", "Operation not permitted", "not supported", "unshare"];
    if !done.status.success() && missing.iter().any(|missing| said.contains(missing) || lines.contains(missing)) {
        // Standard error itself: the test harness shows what passing tests print to it.
        let _ = writeln!(std::io::stderr(), "skipped: {NAME}, events of interfaces: {said}{lines}");
        return None;
    }
    assert!(done.status.success(), "{}: {said}{lines}", done.status);
    Some(super::read(&lines))
}
