//! Interfaces that disappear and come back under traffic, peers that send more than a port can receive, links that are
//! slower than the traffic.

use std::path::Path;
use std::time::Duration;

use crate::alone;
use crate::forebay::{Running, number};
use crate::namespaces::{Row, skip, skip_without, until, with_traffic};

/// Returns a pipeline that forwards in both directions between two interfaces, with `way` between `left` and `right`.
fn forwards(kind: &str, modules: &str, path: &str) -> String {
    format!(
        "ports:
  left: {{ {kind}: {{ interface: d0 }} }}
  right: {{ {kind}: {{ interface: d1 }} }}
modules:
  there: {{ counter: }}
  back: {{ counter: }}
{modules}pipeline:
  - left -> there -> {path}right
  - right -> back -> left
"
    )
}

/// The number of packets in a burst of light traffic, which has some thousand packets a second.
const BURST: usize = 20;
const PAUSE: Duration = Duration::from_millis(2);

/// Starts the pipeline between the row's interfaces. If the machine does not support the port type, prints the reason
/// and returns `None`. `af_packet` is always supported if the row could be created.
fn start(what: &str, kind: &str, row: &Row, folder: &Path, text: &str) -> Option<Running> {
    match Running::start(&row.device.by(), folder, text, &[]) {
        Ok(running) => Some(running),
        Err(err) if kind != "af_packet" => {
            skip_without(&format!("{what}, {kind}"), &err);
            None
        }
        Err(err) => panic!("{what}, {kind}: {err}"),
    }
}

fn a_removed_interface_is_reopened(kind: &str, short: &str) {
    let _alone = alone();
    let Some(row) = Row::new(&format!("a_removed_interface_is_reopened, {kind}"), short) else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let text = forwards(kind, "", "");
    let Some(running) = start("a_removed_interface_is_reopened", kind, &row, folder.path(), &text) else { return };
    with_traffic(&row, BURST, PAUSE, |traffic| {
        traffic.until_received("packets pass");
        for round in 0..4 {
            let (port, interface) = if round % 2 == 0 { ("left", "d0") } else { ("right", "d1") };
            let errors = number(&running.port(port)["errors"]);
            running.packets("before it goes");
            row.device.ip(&format!("link del {interface}")).expect("it exists");
            until("it is noticed", || number(&running.port(port)["errors"]) > errors);
            if port == "right" {
                // Packets continue to arrive, and the port refuses and counts them.
                let refused = || number(&running.packets("while it is away")["dropped"]["right.refused"]);
                let before = refused();
                until("packets are refused", || refused() > before + 20);
            }
            running.packets("while it is away");
            let made = if round % 2 == 0 { row.connect_left() } else { row.connect_right() };
            made.expect("made again");
            traffic.until_received("packets pass again");
            running.packets("when it is back");
        }
    });
    let (code, report, err) = running.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(number(&report["packets"]["out"]) > 100, "{report}");
}

#[test]
fn a_removed_interface_of_af_packet_is_reopened_under_traffic() {
    a_removed_interface_is_reopened("af_packet", "gp");
}

#[test]
fn a_removed_interface_of_af_xdp_is_reopened_under_traffic() {
    a_removed_interface_is_reopened("af_xdp", "gx");
}

/// Waits until the last event of the port is `event`.
fn until_last(running: &Running, port: &str, event: &str) {
    until(&format!("{port}: {event}"), || running.events(port).last().is_some_and(|last| last == event));
}

/// Regression: a link that was down and came back ended a successful run with an error.
fn link_changes_are_events(kind: &str, short: &str) {
    let _alone = alone();
    let Some(row) = Row::new(&format!("links_are_events, {kind}"), short) else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let text = forwards(kind, "", "");
    let Some(running) = start("links_are_events", kind, &row, folder.path(), &text) else { return };
    // The kernel may report the carrier late.
    with_traffic(&row, BURST, PAUSE, |traffic| traffic.until_received("packets pass"));
    until("both links are up", || {
        ["left", "right"].iter().all(|port| running.events(port).last().is_none_or(|last| last == "link_up"))
    });
    row.device.ip("link set d0 down").expect("it exists");
    until_last(&running, "left", "link_down down");
    row.device.ip("link set d0 up").expect("it exists");
    until_last(&running, "left", "link_up");
    row.right.ip("link set r0 down").expect("it exists");
    until_last(&running, "right", "link_down no_carrier");
    row.right.ip("link set r0 up").expect("it exists");
    until_last(&running, "right", "link_up");
    row.device.ip("link del d0").expect("it exists");
    until_last(&running, "left", "port_lost");
    row.connect_left().expect("made again");
    until("it is made again", || running.events("left").iter().any(|event| event == "port_remade"));
    until("its link is up", || !running.events("left").last().is_some_and(|last| last.starts_with("link_down")));
    with_traffic(&row, BURST, PAUSE, |traffic| traffic.until_received("packets pass again"));
    let (code, report, err) = running.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(number(&report["packets"]["out"]) > 20, "{report}");
    for event in ["event=link_down", "event=link_up", "event=port_lost", "event=port_remade"] {
        assert!(err.contains(event), "{event}: {err}");
    }
}

#[test]
fn link_changes_of_af_packet_are_events() {
    link_changes_are_events("af_packet", "ep");
}

#[test]
fn link_changes_of_af_xdp_are_events() {
    link_changes_are_events("af_xdp", "ex");
}

/// Regression: a run ended with an error if the carrier came late, or if the peer of its interface ended first.
#[test]
fn an_interface_that_is_down_is_an_error_but_a_missing_carrier_is_not() {
    const NAME: &str = "a_missing_carrier_is_not_an_error_of_a_run";
    let _alone = alone();
    let Some(row) = Row::new(NAME, "ec") else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let text = forwards("af_packet", "", "");
    for (command, event, expected) in [("r0", "link_down no_carrier", 0), ("d1", "link_down down", 2)] {
        let Some(running) = start(NAME, "af_packet", &row, folder.path(), &text) else { return };
        let namespace = if command == "r0" { &row.right } else { &row.device };
        namespace.ip(&format!("link set {command} down")).expect("it exists");
        until_last(&running, "right", event);
        let (code, _, err) = running.end();
        assert_eq!(code, Some(expected), "{err}");
        namespace.ip(&format!("link set {command} up")).expect("it exists");
    }
}

fn a_flood_is_counted_and_leaves_no_effect(kind: &str, short: &str) {
    let _alone = alone();
    let Some(row) = Row::new(&format!("a_flood_is_counted_and_leaves_no_effect, {kind}"), short) else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    // A packet takes about a hundred microseconds.
    let text = forwards(kind, "  slow: { bypass: { cycles_per_packet: 200000 } }\n", "slow -> ");
    let Some(running) = start("a_flood_is_counted_and_leaves_no_effect", kind, &row, folder.path(), &text) else {
        return;
    };
    let lost = || number(&running.port("left")["dropped"]);
    let mut memory = (0, 0);
    with_traffic(&row, 64, Duration::ZERO, |_| {
        until("packets are lost", || lost() > 1_000);
        memory.0 = running.resident();
        let much = lost() + 50_000;
        until("many are lost", || {
            running.packets("while it is flooded");
            lost() > much
        });
        memory.1 = running.resident();
    });
    assert!(memory.1 <= memory.0 + 16_384, "memory grew from {} to {} KiB", memory.0, memory.1);
    with_traffic(&row, 1, PAUSE, |traffic| {
        traffic.until_received("the flood has passed");
        let lost = || number(&running.port("left")["dropped"]);
        let mut before = lost();
        until("nothing is lost any more", || {
            traffic.until_received("packets pass");
            let now = lost();
            std::mem::replace(&mut before, now) == now
        });
    });
    let (code, report, err) = running.end();
    assert_eq!(code, Some(0), "{err}");
    let left = report["ports"].as_array().expect("ports").iter().find(|port| port["name"] == "left").expect("it");
    assert!(number(&left["dropped"]) > 50_000, "{left}");
}

#[test]
fn a_flood_of_af_packet_is_counted_and_leaves_no_effect() {
    a_flood_is_counted_and_leaves_no_effect("af_packet", "fp");
}

#[test]
fn a_flood_of_af_xdp_is_counted_and_leaves_no_effect() {
    a_flood_is_counted_and_leaves_no_effect("af_xdp", "fx");
}

/// A very slow link: frames wait in the kernel until there is no room for more.
#[test]
fn a_clogged_link_refuses_and_recovers() {
    const NAME: &str = "a_clogged_link_refuses_and_recovers";
    let _alone = alone();
    let Some(row) = Row::new(NAME, "cl") else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let Some(running) = start(NAME, "af_packet", &row, folder.path(), &forwards("af_packet", "", "")) else { return };
    with_traffic(&row, BURST, PAUSE, |traffic| {
        traffic.until_received("packets pass");
        for round in 0..2 {
            let tc = |words: &str| {
                let words: Vec<_> = words.split(' ').collect();
                crate::namespaces::run("ip", &[&["netns", "exec", &row.device.0, "tc"], &words[..]].concat())
            };
            if let Err(why) = tc("qdisc add dev d1 root tbf rate 8kbit burst 2kb limit 100mb") {
                return skip(NAME, &why);
            }
            let refused = || number(&running.packets("while it is clogged")["dropped"]["right.refused"]);
            let before = refused();
            until("packets are refused", || refused() > before + 500);
            let waiting = number(&running.packets("while it is clogged")["in_flight"]);
            assert!(waiting > 0, "round {round}: frames wait in the kernel");
            tc("qdisc del dev d1 root").expect("it exists");
            traffic.until_received("packets pass again");
            until("nothing waits", || number(&running.packets("afterwards")["in_flight"]) < waiting.min(100));
        }
    });
    let (code, _, err) = running.end();
    assert_eq!(code, Some(0), "{err}");
}

/// A slow share holds all packets of a small pool. The port receives nothing, and counts the arriving packets as lost.
#[test]
fn an_exhausted_pool_is_counted_and_recovers() {
    const NAME: &str = "an_exhausted_pool_is_counted_and_recovers";
    let _alone = alone();
    let Some(row) = Row::new(NAME, "ex") else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    // Packets held by modules must leave a part of the pool free. Packets that wait for a module's share need not.
    let share = "shares: { there: { rate: 100pps, queue: 4096, when_full: drop } }\n";
    let held = format!("pool: {{ chunks: 512 }}\nscheduler: weighted-fair\n{share}{}", forwards("af_packet", "", ""));
    // A ring with few blocks is full soon.
    let held = held.replace("interface: d0", "interface: d0, ring: { blocks: 4, block: 128KiB }");
    let free = held.replace(share, "");
    let Some(running) = start(NAME, "af_packet", &row, folder.path(), &held) else { return };
    with_traffic(&row, 64, Duration::from_millis(1), |traffic| {
        until("packets are lost", || number(&running.port("left")["dropped"]) > 100);
        let packets = running.packets("while the pool is empty");
        assert!(number(&packets["queued"]) > 300, "{packets}");
        std::fs::write(folder.path().join("pipeline.yaml"), &free).expect("a writable folder");
        let reloaded = running.request(&["reload", "--json"]);
        assert_eq!(reloaded.code, Some(0), "{}", reloaded.err);
        let reloaded: serde_json::Value = serde_json::from_str(&reloaded.out).expect("JSON");
        assert_eq!(reloaded["reloaded"]["missing"], 0, "{reloaded}");
        traffic.until_received("packets pass");
        running.packets("afterwards");
    });
    let (code, report, err) = running.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(number(&report["pool_exhausted"]) > 0 && err.contains("event=pool_low"), "{err}{report}");
}

/// Another process removes Forebay's own interface. Forebay creates it again.
#[test]
fn a_removed_interface_of_tap_is_recreated_under_traffic() {
    const NAME: &str = "a_removed_interface_of_tap_is_recreated_under_traffic";
    let _alone = alone();
    let Some(row) = Row::new(NAME, "gt") else { return };
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let text = "
ports:
  in: { generator: { rate: 5kpps, destination: 192.0.2.1/32 } }
  host: { tap: { interface: fbt0, address: 192.0.2.1/24 } }
modules:
  there: { counter: }
  back: { counter: }
pipeline:
  - in -> there -> host
  - host -> back -> drop
";
    let Some(running) = start(NAME, "tap", &row, folder.path(), text) else { return };
    let mut sent = number(&running.port("host")["sent"]);
    until("packets pass", || number(&running.port("host")["sent"]) > sent + 100);
    for round in 1..=4 {
        row.device.ip("link del fbt0").expect("it exists");
        until("it is noticed", || number(&running.port("host")["errors"]) == round);
        running.packets("after it has gone");
        until("it is there again", || {
            row.device.ip("-o addr show dev fbt0").is_ok_and(|it| it.contains("192.0.2.1/24"))
        });
        sent = number(&running.port("host")["sent"]);
        until("packets pass again", || number(&running.port("host")["sent"]) > sent + 100);
        // The host also sends through the interface.
        let received = number(&running.port("host")["received"]);
        row.device.inside(|| {
            let socket = std::net::UdpSocket::bind("192.0.2.1:0").expect("its address");
            until("packets of the host arrive", || {
                // The host sends an ARP request for the other address.
                let _ = socket.send_to(b"anybody there?", "192.0.2.9:7");
                number(&running.port("host")["received"]) > received
            });
        });
        running.packets("when it is back");
    }
    // The interface may be reported as down before it is reported as removed.
    let port_events =
        || running.events("host").into_iter().filter(|event| event.starts_with("port_")).collect::<Vec<_>>();
    until("the last reopening is an event", || port_events().len() == 8);
    assert_eq!(port_events(), ["port_lost", "port_remade"].repeat(4));
    row.device.ip("link set fbt0 down").expect("it exists");
    until_last(&running, "host", "link_down down");
    row.device.ip("link set fbt0 up").expect("it exists");
    until_last(&running, "host", "link_up");
    let (code, report, err) = running.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(number(&report["packets"]["dropped"]["host.refused"]) > 0, "{report}");
}
