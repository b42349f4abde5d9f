//! A TAP port and the kernel at its other end, in a network namespace of the test's own, which goes with its thread.

#![expect(unsafe_code, reason = "a thread leaves for a namespace of its own, which Rust cannot vouch for")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use etherparse::{ArpOperation, ArpPacket, EtherType as Type, Icmpv4Type, PacketBuilder, SlicedPacket, TransportSlice};
use forebay_graph::Surroundings;
use forebay_measure::Frequency;
use forebay_packet::{Pool, PoolOptions};
use rustix::thread::UnshareFlags;
use serde_json::{Value, json};

use super::*;
use crate::interface::testing::skip;

fn open(params: &Value) -> Result<(Tap, Arc<PortCounters>), SetupError> {
    open_in(&mut Surroundings::new(Frequency::new(1e9)), "host", params)
}

fn open_in(
    surroundings: &mut Surroundings,
    name: &str,
    params: &Value,
) -> Result<(Tap, Arc<PortCounters>), SetupError> {
    let params = serde_json::from_value(params.clone()).map_err(|error| SetupError::new(error.to_string()))?;
    let (counters, mut setup) = (Arc::new(PortCounters::default()), Setup::new(name, surroundings));
    Tap::check(&params, &mut setup)?;
    Ok((Tap::new(params, &mut setup, Arc::clone(&counters))?, counters))
}

/// Runs a test on a thread in a network namespace of its own; not where the right for that, or a TAP device, is missing,
/// which is said.
fn alone(name: &str, test: impl FnOnce() + Send) {
    let skip = |why: &str| {
        // Not `println`, which the test harness keeps to itself.
        let _ = writeln!(io::stderr(), "skipped: tap::tests::{name}: {why}");
    };
    if !Path::new("/dev/net/tun").exists() {
        return skip("there is no /dev/net/tun");
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only this thread's network namespace changes, and no file descriptor is closed.
            if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
                return skip(&format!("no network namespace of its own: {error}"));
            }
            match open(&json!({ "interface": "probe" })) {
                Ok(_) => test(),
                Err(error) => skip(&format!("no TAP device: {error}")),
            }
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// The port set the Ethernet address to what it was, and the kernel forgot the neighbours of an interface that was
/// prepared.
#[test]
fn a_prepared_interface_keeps_its_neighbours_and_routes() {
    const TEST: &str = "a_prepared_interface_keeps_its_neighbours_and_routes";
    alone(TEST, || {
        let commands = [
            "tuntap add dev fb0 mode tap",
            "link set fb0 address 02:00:00:00:01:01",
            "addr add 192.0.2.1/24 dev fb0",
            "link set fb0 up",
            "neigh replace 192.0.2.254 lladdr 02:00:00:00:01:fe dev fb0 nud permanent",
            "route replace default via 192.0.2.254 dev fb0",
        ];
        if !commands.iter().all(|command| ip(command)) {
            return skip(TEST, "the command `ip` is missing, or prepares no interface");
        }
        let params = json!({ "interface": "fb0", "address": "192.0.2.1/24", "mac": "02:00:00:00:01:01" });
        let (mut port, _) = open(&params).expect("a port");
        assert_eq!(send(&mut port, &pool(2_048), &[0; 60]), 0);
        assert_eq!(port.close(), Ok(()));
        drop(port);
        assert!(ip("route del default via 192.0.2.254 dev fb0"), "the route was there");
        assert!(ip("neigh del 192.0.2.254 dev fb0"), "the neighbour was there");
    });
}

fn pool(frame: usize) -> Pool {
    Pool::new(PoolOptions { chunks: 256, frame, ..PoolOptions::default() }).expect("memory")
}

fn send(port: &mut Tap, pool: &Pool, frame: &[u8]) -> usize {
    let mut batch = Batch::with_capacity(4);
    let mut packet = pool.take().expect("a chunk");
    assert!(packet.write(frame));
    batch.push(packet).expect("room");
    port.send(&mut batch, Ticks::ZERO);
    batch.len()
}

/// Receives until a frame is what is looked for; `None` after many seconds.
fn await_frame<T>(port: &mut Tap, pool: &Pool, found: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    await_frame_with(port, pool, 50_000, found)
}

/// The same of a port that leaves the interface alone for `poll` nanoseconds.
fn await_frame_with<T>(port: &mut Tap, pool: &Pool, poll: u64, mut found: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let (mut batch, start) = (Batch::with_capacity(32), Instant::now());
    while start.elapsed() < Duration::from_secs(20) {
        let ready = port.receive(&mut batch, &Intake { now: Ticks(5), pool, most: 32 });
        assert!(batch.iter().all(|packet| packet.arrival() == Ticks(5)));
        if let Some(it) = batch.iter().find_map(|packet| found(packet.data())) {
            return Some(it);
        }
        batch.clear();
        assert!(matches!(ready, Ready::Now) || ready == Ready::At(Ticks(5 + poll)), "{ready:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

const HOST: [u8; 4] = [192, 0, 2, 1];
const OURS: [u8; 4] = [192, 0, 2, 2];
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn arp_request() -> Vec<u8> {
    let kind = etherparse::ArpHardwareId::ETHERNET;
    let packet = ArpPacket::new(kind, Type::IPV4, ArpOperation::REQUEST, &OUR_MAC, &OURS, &[0; 6], &HOST);
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(OUR_MAC, [0xff; 6]).arp(packet.expect("sizes fit"));
    builder.write(&mut frame).expect("memory");
    frame
}

/// The host's MAC address, by its answer to our question, from which it learns ours.
fn resolve(port: &mut Tap, pool: &Pool) -> [u8; 6] {
    resolve_with(port, pool, 50_000)
}

fn resolve_with(port: &mut Tap, pool: &Pool, poll: u64) -> [u8; 6] {
    assert_eq!(send(port, pool, &arp_request()), 0, "taken");
    let answer = await_frame_with(port, pool, poll, |frame| {
        let reply = frame.get(12..14) == Some(&[8, 6]) && frame.get(20..22) == Some(&[0, 2]);
        (reply && frame.get(28..32) == Some(&HOST)).then(|| frame[22..28].try_into().expect("six bytes"))
    });
    answer.expect("the host answers")
}

fn ping(to: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(OUR_MAC, to).ipv4(OURS, HOST, 64).icmpv4_echo_request(7, 1);
    builder.write(&mut frame, payload).expect("memory");
    frame
}

fn is_reply(frame: &[u8], payload: &[u8]) -> bool {
    let Ok(SlicedPacket { transport: Some(TransportSlice::Icmpv4(icmp)), .. }) = SlicedPacket::from_ethernet(frame)
    else {
        return false;
    };
    matches!(icmp.icmp_type(), Icmpv4Type::EchoReply(_)) && icmp.payload() == payload
}

#[test]
fn the_kernel_answers_arp_and_pings() {
    alone("the_kernel_answers_arp_and_pings", || {
        let mac = "02:00:00:00:00:aa";
        let params = json!({ "interface": "fb0", "address": "192.0.2.1/24", "mac": mac, "mtu": 1400 });
        let (mut port, counters) = open(&params).expect("the probe could be made");
        let pool = pool(2_048);
        let host = resolve(&mut port, &pool);
        assert_eq!(host, [2, 0, 0, 0, 0, 0xaa]);
        assert_eq!(send(&mut port, &pool, &ping(host, b"anybody there?")), 0);
        let reply = await_frame(&mut port, &pool, |frame| is_reply(frame, b"anybody there?").then_some(()));
        assert!(reply.is_some(), "no answer");
        assert_eq!((counters.errors.get(), counters.dropped.get()), (0, 0));
        assert_eq!(port.close(), Ok(()));
        let mut batch = Batch::with_capacity(1);
        assert_eq!(port.receive(&mut batch, &Intake { now: Ticks(5), pool: &pool, most: 1 }), Ready::Never);
        assert_eq!(send(&mut port, &pool, &arp_request()), 1, "refused");
    });
}

#[test]
fn a_frame_longer_than_the_pools_is_dropped_and_counted() {
    alone("a_frame_longer_than_the_pools_is_dropped_and_counted", || {
        let (mut port, counters) =
            open(&json!({ "interface": "fb0", "address": "192.0.2.1/24" })).expect("the probe could be made");
        let (large, small) = (pool(2_048), pool(542));
        assert_eq!(small.frame_limit(), 542);
        let host = resolve(&mut port, &large);
        // 42 bytes of headers: one byte too long, then just right.
        for payload in [[3; 501].as_slice(), &[3; 500]] {
            assert_eq!(send(&mut port, &large, &ping(host, payload)), 0);
        }
        let reply = await_frame(&mut port, &small, |frame| {
            assert!(!is_reply(frame, &[3; 501]));
            is_reply(frame, &[3; 500]).then_some(())
        });
        assert!(reply.is_some(), "no answer");
        assert_eq!(counters.dropped.get(), 1);
        assert_eq!((counters.oversize.get(), counters.longest.get()), (1, 543));
    });
}

#[test]
fn an_ipv6_host_asks_for_its_neighbour() {
    alone("an_ipv6_host_asks_for_its_neighbour", || {
        let (mut port, _) =
            open(&json!({ "interface": "fb0", "address": "2001:db8::1/64" })).expect("the probe could be made");
        let pool = pool(2_048);
        // Before it uses an address a host asks whether anyone else does (RFC 4862 section 5.4): a solicitation from `::`.
        let target = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let asked = await_frame(&mut port, &pool, |frame| {
            (frame.get(12..14) == Some(&[0x86, 0xdd])
                && frame.get(54) == Some(&135)
                && frame.get(62..78) == Some(&target))
            .then_some(())
        });
        assert!(asked.is_some(), "no solicitation");
    });
}

#[test]
fn two_ports_cannot_have_one_interface_and_a_closed_one_gives_it_back() {
    alone("two_ports_cannot_have_one_interface_and_a_closed_one_gives_it_back", || {
        let params = json!({ "interface": "fb0" });
        let (mut port, _) = open(&params).expect("the probe could be made");
        let refusal = open(&params).err().expect("refused").to_string();
        assert_eq!(refusal, "interface: the interface 'fb0' is in use by another port or program");
        assert_eq!(port.close(), Ok(()));
        assert!(open(&params).is_ok());
        let refusal = open(&json!({ "interface": "lo" })).err().expect("refused").to_string();
        assert_eq!(refusal, "interface: there is an interface 'lo' already, and it is no TAP device");
    });
}

/// The command `ip`, of a child of this thread, which is in its namespace.
fn ip(words: &str) -> bool {
    std::process::Command::new("ip").args(words.split(' ')).status().is_ok_and(|status| status.success())
}

/// A port whose interface was taken away was dead from then on.
#[test]
fn an_interface_that_is_taken_away_is_made_again_with_its_settings() {
    alone("an_interface_that_is_taken_away_is_made_again_with_its_settings", || {
        let params = json!({ "interface": "fb0", "address": "192.0.2.1/24", "mac": "02:00:00:00:00:aa", "mtu": 1400 });
        let mut around = Surroundings::new(Frequency::new(1e9));
        let (mut port, counters) = open_in(&mut around, "host", &params).expect("the probe could be made");
        let (pool, mut batch) = (pool(2_048), Batch::with_capacity(1));
        for round in 1..=3 {
            if !ip("link del fb0") {
                let _ = writeln!(io::stderr(), "skipped: the command `ip` cannot delete a link");
                return;
            }
            assert_eq!(send(&mut port, &pool, &arp_request()), 1, "refused");
            assert_eq!(counters.errors.get(), round);
            let start = Instant::now();
            while port.device.is_none() {
                assert!(start.elapsed() < Duration::from_secs(20), "not made again: {:?}", port.fault);
                let ready = port.receive(&mut batch, &Intake { now: Ticks(5), pool: &pool, most: 1 });
                assert!(ready == Ready::Now || ready == Ready::At(Ticks(20_000_005)), "{ready:?}");
                batch.clear();
            }
            assert_eq!(settings(), "192.0.2.1/24 1400 02:00:00:00:00:aa");
            assert_eq!(resolve(&mut port, &pool), [2, 0, 0, 0, 0, 0xaa]);
            // It is the port's as before: another one is refused, and one of its name takes it over.
            let taken = open_in(&mut around, "other", &params).err().expect("refused").to_string();
            assert!(taken.contains("in use by the port 'host'"), "{taken}");
            let (next, _) = open_in(&mut around, "host", &params).expect("it is taken over");
            drop(next);
        }
        assert_eq!(port.close(), Ok(()));
    });
}

#[test]
fn an_interface_that_cannot_be_made_again_is_said() {
    alone("an_interface_that_cannot_be_made_again_is_said", || {
        let (mut port, counters) = open(&json!({ "interface": "fb0" })).expect("the probe could be made");
        // Somebody else has the name meanwhile.
        if !(ip("link del fb0") && ip("link add fb0 type veth peer name fb1")) {
            let _ = writeln!(io::stderr(), "skipped: the command `ip` cannot make links");
            return;
        }
        let (pool, mut batch) = (pool(2_048), Batch::with_capacity(1));
        let mut ask = |port: &mut Tap| port.receive(&mut batch, &Intake { now: Ticks(5), pool: &pool, most: 1 });
        let start = Instant::now();
        while port.opener.as_ref().and_then(Opener::trouble).is_none() {
            assert!(start.elapsed() < Duration::from_secs(20), "it does not say why");
            assert_eq!(ask(&mut port), Ready::At(Ticks(20_000_005)));
        }
        assert_eq!(counters.errors.get(), 1);
        let last = port.close().expect_err("it is gone");
        let why = "it could not be made again: there is an interface 'fb0' already, and it is no TAP device";
        assert!(last.starts_with("the interface 'fb0' is gone: ") && last.ends_with(why), "{last}");
        assert_eq!(ask(&mut port), Ready::Never);
        assert_eq!(port.close(), Ok(()));
    });
}

#[test]
fn what_makes_no_tap_is_named() {
    let refusal = |params: Value| open(&params).err().expect("refused").to_string();
    assert_eq!(refusal(json!({ "interface": "a", "poll": "10ns" })), "poll: 10ns: allowed are 1us to 1s");
    assert_eq!(refusal(json!({ "interface": "a", "mtu": 67 })), "mtu: 67: allowed are 68 to 65321 bytes");
    let mtu = json!({ "interface": "a", "mtu": 1279, "address": "2001:db8::1/64" });
    assert_eq!(refusal(mtu), "mtu: 1279: allowed are 1280 to 65321 bytes with an IPv6 address");
    let long = refusal(json!({ "interface": "sixteen-letters-" }));
    assert!(long.contains("'sixteen-letters-' is no interface's name: 1 to 15 characters"), "{long}");
    let nowhere = refusal(json!({ "interface": "a", "namespace": "no-such-namespace" }));
    assert!(nowhere.starts_with("namespace: no network namespace at /run/netns/no-such-namespace: "), "{nowhere}");
    let mut surroundings = Surroundings::new(Frequency::new(1e9));
    surroundings.simulated = true;
    let params = serde_json::from_value(json!({ "interface": "a" })).expect("parameters");
    let made = Tap::new(params, &mut Setup::new("host", &mut surroundings), Arc::new(PortCounters::default()));
    assert!(made.err().expect("refused").to_string().contains("simulated"));
}

/// A pool holds frames of up to 65343 bytes, and an MTU above 9194 was refused.
#[test]
fn the_host_sends_packets_as_long_as_a_chunk_holds() {
    let longest = forebay_packet::MAX_FRAME as u16 - 22;
    assert_eq!(longest, MOST_MTU);
    let above = open(&json!({ "interface": "a", "mtu": longest + 1 })).err().expect("refused").to_string();
    assert_eq!(above, format!("mtu: {}: allowed are 68 to {longest} bytes", longest + 1));
    alone("the_host_sends_packets_as_long_as_a_chunk_holds", || {
        let params = json!({ "interface": "fb0", "address": "192.0.2.1/24", "mtu": longest });
        let (mut port, _) = open(&params).expect("the probe could be made");
        let pool = pool(forebay_packet::MAX_FRAME);
        resolve(&mut port, &pool);
        let socket = std::net::UdpSocket::bind("192.0.2.1:0").expect("a socket");
        let payload: Vec<u8> = (0..usize::from(longest) - 28).map(|at| (at >> 3) as u8).collect();
        socket.send_to(&payload, "192.0.2.2:9").expect("the packet is sent");
        let frame = await_frame(&mut port, &pool, |frame| (frame.len() > 60_000).then(|| frame.to_vec()));
        let frame = frame.expect("it enters");
        assert_eq!(frame.len(), usize::from(longest) + 14);
        assert!(frame[42..] == payload, "other bytes");
    });
}

/// Two at once could put an interface back after it had been set again, under a lock each for the look and for the undoing.
#[test]
fn what_is_set_again_is_never_put_back() {
    alone("what_is_set_again_is_never_put_back", || {
        let mut around = Surroundings::new(Frequency::new(1e9));
        let mtu = |mtu: u16| json!({ "interface": "fb0", "mtu": mtu });
        let (first, _) = open_in(&mut around, "host", &mtu(1_400)).expect("the probe could be made");
        let device = Arc::clone(first.device.as_ref().expect("open"));
        let wanted = |mtu: u16| {
            let name = "fb0".to_owned().try_into().expect("a name");
            // The same namespace as a name for another: a thread goes there, between the look and the undoing at that time.
            let namespace = Some(PathBuf::from("/proc/thread-self/ns/net"));
            Wanted { name, address: None, mac: None, mtu: Some(mtu), namespace }
        };
        for round in 0..500u16 {
            let before = device.change(&wanted(1_300)).expect("it is there");
            std::thread::scope(|scope| {
                scope.spawn(|| device.undo(&before));
                device.change(&wanted(2_000 + round)).expect("it is there");
            });
            let now = device.change(&wanted(1_300)).expect("it is there").wanted;
            assert_eq!(now.mtu, Some(2_000 + round));
        }
    });
}

/// What the interface is set to, as `ip` tells it: addresses, MTU and Ethernet address.
fn settings() -> String {
    let ip = |what: &str| {
        let told = std::process::Command::new("ip").args(["-o", what, "show", "dev", "fb0"]).output();
        String::from_utf8(told.expect("the command ip").stdout).expect("UTF-8")
    };
    let after = |text: &str, word: &str| {
        let mut words = text.split_whitespace().skip_while(|it| *it != word).skip(1);
        words.next().unwrap_or("none").to_owned()
    };
    let (link, addresses) = (ip("link"), ip("addr"));
    let global = addresses.lines().filter(|line| !line.contains("scope link"));
    let global: Vec<_> =
        global.map(|line| after(line, if line.contains("inet6") { "inet6" } else { "inet" })).collect();
    format!("{} {} {}", global.join(" "), after(&link, "mtu"), after(&link, "link/ether"))
}

/// Another address for a port that ran made the kernel say that the interface was in use, by the port itself, and the whole
/// change was refused.
#[test]
fn a_port_takes_the_interface_over_from_the_one_before_it() {
    alone("a_port_takes_the_interface_over_from_the_one_before_it", || {
        if std::process::Command::new("ip").arg("-V").output().is_err() {
            let _ = writeln!(io::stderr(), "skipped: the command `ip` is missing, which tells the settings");
            return;
        }
        let mut around = Surroundings::new(Frequency::new(1e9));
        let old = json!({ "interface": "fb0", "address": "192.0.2.7/24", "mac": "02:00:00:00:00:aa", "mtu": 1400 });
        let new = json!({ "interface": "fb0", "address": "192.0.2.1/25", "mac": "02:00:00:00:00:bb", "poll": "1ms" });
        let (mut first, _) = open_in(&mut around, "host", &old).expect("the probe could be made");
        let pool = pool(2_048);
        let mut batch = Batch::with_capacity(32);
        first.receive(&mut batch, &Intake { now: Ticks(5), pool: &pool, most: 32 });
        assert_eq!(settings(), "192.0.2.7/24 1400 02:00:00:00:00:aa");
        let taken = open_in(&mut around, "other", &new).err().expect("refused").to_string();
        assert!(taken.starts_with("interface: the interface 'fb0' is in use by the port 'host'"), "{taken}");
        // A change that is refused after all leaves it as it was.
        let (unused, _) = open_in(&mut around, "host", &new).expect("it is taken over");
        assert_eq!(settings(), "192.0.2.1/25 1500 02:00:00:00:00:bb");
        drop(unused);
        assert_eq!(settings(), "192.0.2.7/24 1400 02:00:00:00:00:aa");
        // So does one that cannot be: the kernel takes no group address for an interface's own.
        let group = json!({ "interface": "fb0", "address": "2001:db8::1/64", "mac": "03:00:00:00:00:bb" });
        assert!(open_in(&mut around, "host", &group).is_err());
        assert_eq!(settings(), "192.0.2.7/24 1400 02:00:00:00:00:aa");

        let (mut second, _) = open_in(&mut around, "host", &new).expect("it is taken over");
        second.receive(&mut batch, &Intake { now: Ticks(5), pool: &pool, most: 32 });
        assert_eq!(first.close(), Ok(()));
        drop(first);
        assert_eq!(settings(), "192.0.2.1/25 1500 02:00:00:00:00:bb");
        assert_eq!(resolve_with(&mut second, &pool, 1_000_000), [2, 0, 0, 0, 0, 0xbb]);
        let ipv6 = json!({ "interface": "fb0", "address": "2001:db8::1/64" });
        let (third, _) = open_in(&mut around, "host", &ipv6).expect("it is taken over");
        assert!(settings().starts_with("2001:db8::1/64 1500 "), "{}", settings());
        // A port that was never asked for a packet undoes nothing that came after it.
        let (fourth, _) = open_in(&mut around, "host", &old).expect("it is taken over");
        drop(third);
        assert_eq!(settings(), "192.0.2.7/24 1400 02:00:00:00:00:aa");
        drop((second, fourth));
        // Nobody has it any more.
        // A process that another test starts has copies of all open files until it runs its program.
        let until = Instant::now() + Duration::from_secs(60);
        let opened = std::iter::repeat_with(|| open_in(&mut around, "other", &new));
        let mut opened = opened.take_while(|opened| opened.is_ok() || Instant::now() < until);
        assert!(opened.any(|opened| opened.is_ok()));
    });
}
