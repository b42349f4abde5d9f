//! The end by `kill -9`: no interface and no XDP program stays, and the next start has all that the killed one had.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use crate::alone;
use crate::forebay::{FOREBAY, Running, done};
use crate::namespaces::{Row, skip_without, until, with_traffic};

/// Its own program on one interface, a ring on another, an interface of its own.
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
fn what_is_killed_leaves_nothing_in_the_way() {
    const NAME: &str = "what_is_killed_leaves_nothing_in_the_way";
    let _alone = alone();
    let Some(row) = Row::new(NAME, "kl") else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let state = folder.path().join("state");
    let state = state.to_str().expect("UTF-8");
    let start = || Running::start(&row.device.by(), folder.path(), PIPELINE, &["--state", state]);
    let mut running = match start() {
        Ok(running) => running,
        Err(said) => return skip_without(NAME, &said),
    };
    let has_program = || row.device.ip("link show d0").expect("it is there").contains("xdp");
    with_traffic(&row, 20, Duration::from_millis(2), |traffic| {
        for round in 0..5 {
            traffic.until_it_comes("packets pass");
            assert!(has_program() && row.device.has("fbt0"));
            running.packets("before the end");
            let id = running.id();
            // In the middle of something, each time elsewhere.
            std::thread::sleep(Duration::from_millis(7 * round));
            running.kill();
            assert!(!has_program(), "round {round}: its program is gone");
            assert!(!row.device.has("fbt0"), "round {round}: its interface is gone");
            assert!(folder.path().join("s").exists(), "its socket is left, and nobody listens there");
            // What a write that was under way leaves beside the file is nobody's.
            std::fs::write(folder.path().join(format!("state.{id}.new")), "{ \"file\": \"half").expect("writable");
            running = start().unwrap_or_else(|said| panic!("round {round}: {said}"));
        }
        traffic.until_it_comes("packets pass");
    });
    let (code, _, said) = running.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!has_program() && !row.device.has("fbt0") && !folder.path().join("s").exists());
}

/// The host's stack gets none of an interface's frames while `host: false` runs, and all of them once it was killed.
#[test]
fn what_is_killed_gives_the_host_its_frames_back() {
    const NAME: &str = "what_is_killed_gives_the_host_its_frames_back";
    let _alone = alone();
    let Some(row) = Row::new(NAME, "kh") else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let text = "ports: { right: { af_packet: { interface: d1, host: false } } }\npipeline: [right -> drop]\n";
    row.device.ip("addr add 10.0.0.3/24 dev d1").expect("the right to");
    // A port at which nobody listens: the host refuses, or does not get what it could refuse.
    let host_is_there = || {
        let tried = || TcpStream::connect_timeout(&"10.0.0.3:9".parse().expect("an address"), Duration::from_secs(2));
        row.right.inside(tried).expect_err("nobody listens").kind() == ErrorKind::ConnectionRefused
    };
    until("the host refuses", host_is_there);
    for round in 0..2 {
        let mut running = match Running::start(&row.device.by(), folder.path(), text, &[]) {
            Ok(running) => running,
            Err(said) => return skip_without(NAME, &said),
        };
        assert!(!host_is_there(), "round {round}: the host gets frames");
        running.packets("while it runs");
        running.kill();
        until("the host gets frames again", host_is_there);
    }
}

/// The kernel answers ARP for a tap's address at other interfaces, and packets for Forebay went to the host without a
/// word.
#[test]
fn a_host_that_answers_arp_for_a_taps_address_is_an_event() {
    const NAME: &str = "a_host_that_answers_arp_for_a_taps_address_is_an_event";
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
    let wanted = "the host replies to ARP requests for 192.0.2.1 at d1, too, and packets for Forebay are lost: \
                  `sysctl -w net.ipv4.conf.d1.arp_ignore=1`, or `host: false`";
    assert!(ended.err.contains("event=arp_flux") && ended.err.contains(wanted), "{}", ended.err);
    let ended = events(false);
    if ended.code != Some(0) {
        return skip_without(NAME, &ended.err);
    }
    assert!(!ended.err.contains("arp_flux"), "{}", ended.err);
    let by = row.device.by();
    let setting = ["sysctl", "-qw", "net.ipv4.conf.d1.arp_ignore=1"];
    assert_eq!(done(std::process::Command::new(by[0]).args(&by[1..]).args(setting)).code, Some(0));
    assert!(!events(true).err.contains("arp_flux"), "the kernel does not answer any more");
}

/// Half a file of what was accepted, however it came to be, is no configuration: nothing starts from it, and it stays as it is.
#[test]
fn half_a_state_is_not_believed() {
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
    let whole = std::fs::read(&state).expect("it was kept");
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&state, &whole[..length]).expect("our own");
        let told = run();
        assert_eq!(told.code, Some(2), "{length} bytes: {}", told.err);
        assert!(told.err.contains("the file does not contain an accepted configuration"), "{}", told.err);
        assert_eq!(std::fs::read(&state).expect("it is there").len(), length, "what is wrong with it can be looked at");
    }
}
