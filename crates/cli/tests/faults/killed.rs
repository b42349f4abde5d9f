//! A run that ends by `kill -9`: no interface and no XDP program stays, and the next start has the state of the killed
//! run.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use crate::alone;
use crate::forebay::{FOREBAY, Running, done};
use crate::namespaces::{Row, skip_without, until, with_traffic};

/// An XDP program on one interface, a packet ring on another, and an interface that Forebay creates.
const PIPELINE: &str = "
ports:
  left: { af_xdp: { interface: d0 } }
  right: { af_packet: { interface: d1 } }
  host: { tap: { interface: fbt0, address: 192.0.2.1/24 } }
modules:
  there: { counter: }
  back: { counter: }
pipeline:
  - left -> there -> right
  - right -> back -> left
  - host -> drop
";

#[test]
fn a_killed_run_leaves_no_program_and_no_interface() {
    const NAME: &str = "a_killed_run_leaves_no_program_and_no_interface";
    let _alone = alone();
    let Some(row) = Row::new(NAME, "kl") else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let state = folder.path().join("state");
    let state = state.to_str().expect("UTF-8");
    let start = || Running::start(&row.device.by(), folder.path(), PIPELINE, &["--state", state]);
    let mut running = match start() {
        Ok(running) => running,
        Err(err) => return skip_without(NAME, &err),
    };
    let has_program = || row.device.ip("link show d0").expect("it exists").contains("xdp");
    with_traffic(&row, 20, Duration::from_millis(2), |traffic| {
        for round in 0..5 {
            traffic.until_received("packets pass");
            assert!(has_program() && row.device.has("fbt0"));
            running.packets("before the end");
            let id = running.id();
            // Kills the run at a different moment in each round.
            std::thread::sleep(Duration::from_millis(7 * round));
            running.kill();
            assert!(!has_program(), "round {round}: the program is removed");
            assert!(!row.device.has("fbt0"), "round {round}: the interface is removed");
            assert!(folder.path().join("s").exists(), "the socket file stays, and no process listens");
            // An interrupted write leaves a partial file. No later run reads it.
            std::fs::write(folder.path().join(format!("state.{id}.new")), "{ \"file\": \"half").expect("writable");
            running = start().unwrap_or_else(|err| panic!("round {round}: {err}"));
        }
        traffic.until_received("packets pass");
    });
    let (code, _, err) = running.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(!has_program() && !row.device.has("fbt0") && !folder.path().join("s").exists());
}

/// With `host: false`, the host's network stack gets no frames of an interface. After the run is killed, it gets all.
#[test]
fn after_a_kill_the_host_gets_its_frames_again() {
    const NAME: &str = "after_a_kill_the_host_gets_its_frames_again";
    let _alone = alone();
    let Some(row) = Row::new(NAME, "kh") else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let text = "ports: { right: { af_packet: { interface: d1, host: false } } }\npipeline: [right -> drop]\n";
    row.device.ip("addr add 10.0.0.3/24 dev d1").expect("the right to");
    // No process listens at this port: the host refuses the connection, or it does not get the packet.
    let host_gets_frames = || {
        let tried = || TcpStream::connect_timeout(&"10.0.0.3:9".parse().expect("an address"), Duration::from_secs(2));
        row.right.inside(tried).expect_err("no process listens").kind() == ErrorKind::ConnectionRefused
    };
    until("the host refuses", host_gets_frames);
    for round in 0..2 {
        let mut running = match Running::start(&row.device.by(), folder.path(), text, &[]) {
            Ok(running) => running,
            Err(err) => return skip_without(NAME, &err),
        };
        assert!(!host_gets_frames(), "round {round}: the host gets frames");
        running.packets("while it runs");
        running.kill();
        until("the host gets frames again", host_gets_frames);
    }
}

/// Regression: the kernel responds to ARP requests for a tap's address at other interfaces. Packets for Forebay went to
/// the host without a warning.
#[test]
fn a_host_that_responds_to_arp_for_a_taps_address_is_an_event() {
    const NAME: &str = "a_host_that_responds_to_arp_for_a_taps_address_is_an_event";
    let _alone = alone();
    let Some(row) = Row::new(NAME, "ka") else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let file = folder.path().join("pipeline.yaml");
    let events = |host: bool| {
        let ports = format!(
            "ports: {{ lan: {{ af_packet: {{ interface: d1, host: {host} }} }}, \
             host: {{ tap: {{ interface: fbt0, address: 192.0.2.1/24 }} }} }}\npipeline: [lan -> host, host -> lan]\n"
        );
        std::fs::write(&file, ports).expect("a writable folder");
        let by = row.device.by();
        let mut command = std::process::Command::new(by[0]);
        command.args(&by[1..]).args([FOREBAY, "run", "--no-live", "--no-socket", "--duration", "10ms"]).arg(&file);
        done(&mut command)
    };
    let ended = events(true);
    if ended.code != Some(0) {
        return skip_without(NAME, &ended.err);
    }
    let expected = "the host replies to ARP requests for 192.0.2.1 at d1, too, and packets for Forebay are lost: \
                  run `sysctl -w net.ipv4.conf.d1.arp_ignore=1`, or set `host: false`";
    assert!(ended.err.contains("event=arp_flux") && ended.err.contains(expected), "{}", ended.err);
    let ended = events(false);
    if ended.code != Some(0) {
        return skip_without(NAME, &ended.err);
    }
    assert!(!ended.err.contains("arp_flux"), "{}", ended.err);
    let by = row.device.by();
    let setting = ["sysctl", "-qw", "net.ipv4.conf.d1.arp_ignore=1"];
    assert_eq!(done(std::process::Command::new(by[0]).args(&by[1..]).args(setting)).code, Some(0));
    assert!(!events(true).err.contains("arp_flux"), "the kernel does not respond any more");
}

/// A truncated state is not a configuration: no run starts from it, and the file stays unchanged.
#[test]
fn a_truncated_state_is_refused() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let (file, state) = (folder.path().join("pipeline.yaml"), folder.path().join("state"));
    std::fs::write(&file, "ports: { in: { generator: { rate: 1kpps } }, out: { sink: } }\npipeline: [in -> out]\n")
        .expect("a writable folder");
    let run = || {
        let mut command = std::process::Command::new(FOREBAY);
        done(command.args(["run", "--no-live", "--no-socket", "--duration", "10ms", "--state"]).args([&state, &file]))
    };
    assert_eq!(run().code, Some(0));
    let whole = std::fs::read(&state).expect("it was stored");
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&state, &whole[..length]).expect("a writable folder");
        let result = run();
        assert_eq!(result.code, Some(2), "{length} bytes: {}", result.err);
        assert!(result.err.contains("the file does not contain an accepted configuration"), "{}", result.err);
        assert_eq!(std::fs::read(&state).expect("it exists").len(), length, "the file stays for inspection");
    }
}
