//! Tests a TAP port with the kernel at its other end, in a separate network namespace that ends with the test's thread.

#![expect(unsafe_code, reason = "a thread moves to its own namespace, which the compiler cannot check")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use etherparse::{ArpOperation, ArpPacket, EtherType as Type, Icmpv4Type, PacketBuilder, SlicedPacket, TransportSlice};
use forebay_graph::SetupEnvironment;
use forebay_packet::{Pool, PoolOptions};
use forebay_units::Frequency;
use rustix::thread::UnshareFlags;
use serde_json::{Value, json};

use super::*;
use crate::interface::testing::skip;

fn open(params: &Value) -> Result<(Tap, Arc<PortCounters>), SetupError> {
    open_in(&mut SetupEnvironment::new(Frequency::new(1e9)), "host", params)
}

fn open_in(
    environment: &mut SetupEnvironment,
    name: &str,
    params: &Value,
) -> Result<(Tap, Arc<PortCounters>), SetupError> {
    let params = serde_json::from_value(params.clone()).map_err(|error| SetupError::new(error.to_string()))?;
    let (counters, mut setup) = (Arc::new(PortCounters::default()), Setup::new(name, environment));
    Tap::check(&params, &mut setup)?;
    Ok((Tap::new(params, &mut setup, Arc::clone(&counters))?, counters))
}

/// Runs a test on a thread in its own network namespace. Skips the test, with a message, if a capability or TAP devices
/// are missing.
fn alone(name: &str, test: impl FnOnce() + Send) {
    let skip = |why: &str| {
        // Not `println`, whose output the test harness captures.
        let _ = writeln!(io::stderr(), "skipped: tap::tests::{name}: {why}");
    };
    if !Path::new("/dev/net/tun").exists() {
        return skip("there is no /dev/net/tun");
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only this thread's network namespace changes, and no file descriptor is closed.
            if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
                return skip(&format!("cannot create a network namespace: {error}"));
            }
            match open(&json!({ "interface": "probe" })) {
                Ok(_) => test(),
                Err(error) => skip(&format!("cannot create a TAP device: {error}")),
            }
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Regression test: the port set the Ethernet address to its present value, and the kernel removed the neighbours of a
/// prepared interface.
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
            return skip(TEST, "the command `ip` is missing or cannot prepare an interface");
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

/// Receives until `found` returns a value for a frame; returns `None` after 20 seconds.
fn await_frame<T>(port: &mut Tap, pool: &Pool, found: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    await_frame_with(port, pool, 50_000, found)
}

/// Like [`await_frame`], for a port whose `poll` is this number of nanoseconds.
fn await_frame_with<T>(port: &mut Tap, pool: &Pool, poll: u64, mut found: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let (mut batch, start) = (Batch::with_capacity(32), Instant::now());
    while start.elapsed() < Duration::from_secs(20) {
        let ready = port.receive(&mut batch, &Intake { now: Ticks(5), pool, most: 32 });
        assert!(batch.iter().all(|packet| packet.arrival() == Ticks(5)));
        if let Some(it) = batch.iter().find_map(|packet| found(packet.data())) {
            return Some(it);
        }
        batch.clear();
        assert!(matches!(ready, Ready::Now) || ready == Ready::Input(Ticks(5 + poll)), "{ready:?}");
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

/// Returns the host's MAC address from its ARP response. The host learns the test's address from the request.
fn resolve(port: &mut Tap, pool: &Pool) -> [u8; 6] {
    resolve_with(port, pool, 50_000)
}

fn resolve_with(port: &mut Tap, pool: &Pool, poll: u64) -> [u8; 6] {
    assert_eq!(send(port, pool, &arp_request()), 0, "taken");
    let response = await_frame_with(port, pool, poll, |frame| {
        let reply = frame.get(12..14) == Some(&[8, 6]) && frame.get(20..22) == Some(&[0, 2]);
        (reply && frame.get(28..32) == Some(&HOST)).then(|| frame[22..28].try_into().expect("six bytes"))
    });
    response.expect("the host responds")
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
        assert!(reply.is_some(), "no response");
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
        // With 42 bytes of headers, the first frame is one byte too long, and the second has exactly the longest
        // length.
        for payload in [[3; 501].as_slice(), &[3; 500]] {
            assert_eq!(send(&mut port, &large, &ping(host, payload)), 0);
        }
        let reply = await_frame(&mut port, &small, |frame| {
            assert!(!is_reply(frame, &[3; 501]));
            is_reply(frame, &[3; 500]).then_some(())
        });
        assert!(reply.is_some(), "no response");
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
        // Before a host uses an address, it checks whether another host uses it (RFC 4862 section 5.4): it sends a
        // solicitation from `::`.
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
        assert_eq!(refusal, "interface: the interface 'fb0' is in use by another port or program: use another name");
        assert_eq!(port.close(), Ok(()));
        assert!(open(&params).is_ok());
        let refusal = open(&json!({ "interface": "lo" })).err().expect("refused").to_string();
        assert_eq!(refusal, "interface: the interface 'lo' exists and is not a TAP device: use another name");
    });
}

/// Runs the command `ip` as a child of this thread, in its namespace.
fn ip(words: &str) -> bool {
    std::process::Command::new("ip").args(words.split(' ')).status().is_ok_and(|status| status.success())
}

/// Regression test: a port did not work any more after its interface was removed.
#[test]
fn a_removed_interface_is_recreated_with_its_settings() {
    alone("a_removed_interface_is_recreated_with_its_settings", || {
        let params = json!({ "interface": "fb0", "address": "192.0.2.1/24", "mac": "02:00:00:00:00:aa", "mtu": 1400 });
        let mut around = SetupEnvironment::new(Frequency::new(1e9));
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
                assert!(start.elapsed() < Duration::from_secs(20), "not created again: {:?}", port.fault);
                let ready = port.receive(&mut batch, &Intake { now: Ticks(5), pool: &pool, most: 1 });
                assert!(ready == Ready::Now || ready == Ready::At(Ticks(20_000_005)), "{ready:?}");
                batch.clear();
            }
            assert_eq!(settings(), "192.0.2.1/24 1400 02:00:00:00:00:aa");
            assert_eq!(resolve(&mut port, &pool), [2, 0, 0, 0, 0, 0xaa]);
            // The port still owns the interface. Another port is rejected, and a port with the same name takes over.
            let taken = open_in(&mut around, "other", &params).err().expect("refused").to_string();
            assert!(taken.contains("in use by the port 'host'"), "{taken}");
            let (next, _) = open_in(&mut around, "host", &params).expect("the port takes over");
            drop(next);
        }
        assert_eq!(port.close(), Ok(()));
    });
}

#[test]
fn an_interface_that_cannot_be_recreated_is_reported() {
    alone("an_interface_that_cannot_be_recreated_is_reported", || {
        let (mut port, counters) = open(&json!({ "interface": "fb0" })).expect("the probe could be made");
        assert!(matches!(port.wait_on(), Waits::On(inputs) if inputs.len() == 1));
        // Another interface has the name now.
        if !(ip("link del fb0") && ip("link add fb0 type veth peer name fb1")) {
            let _ = writeln!(io::stderr(), "skipped: the command `ip` cannot create links");
            return;
        }
        let (pool, mut batch) = (pool(2_048), Batch::with_capacity(1));
        let mut receive = |port: &mut Tap| port.receive(&mut batch, &Intake { now: Ticks(5), pool: &pool, most: 1 });
        let start = Instant::now();
        while port.opener.as_ref().and_then(Opener::last_error).is_none() {
            assert!(start.elapsed() < Duration::from_secs(20), "no error is reported");
            assert_eq!(receive(&mut port), Ready::At(Ticks(20_000_005)));
        }
        assert!(matches!(port.wait_on(), Waits::None), "a port without its interface has no descriptor");
        assert_eq!(counters.errors.get(), 1);
        let last = port.close().expect_err("the interface is gone");
        let why = "the interface could not be created again: the interface 'fb0' exists and is not a TAP device: use \
                   another name";
        assert!(last.starts_with("the interface 'fb0' is gone: ") && last.ends_with(why), "{last}");
        assert_eq!(receive(&mut port), Ready::Never);
        assert_eq!(port.close(), Ok(()));
    });
}

#[test]
fn invalid_ports_are_rejected_with_the_cause() {
    let refusal = |params: Value| open(&params).err().expect("refused").to_string();
    assert_eq!(refusal(json!({ "interface": "a", "poll": "10ns" })), "poll: 10ns: allowed are 1us to 1s");
    assert_eq!(refusal(json!({ "interface": "a", "mtu": 67 })), "mtu: 67: allowed are 68 to 65321 bytes");
    let mtu = json!({ "interface": "a", "mtu": 1279, "address": "2001:db8::1/64" });
    assert_eq!(refusal(mtu), "mtu: 1279: allowed are 1280 to 65321 bytes with an IPv6 address");
    let long = refusal(json!({ "interface": "sixteen-letters-" }));
    assert!(long.contains("'sixteen-letters-' is not an interface name: a name has 1 to 15 characters"), "{long}");
    let nowhere = refusal(json!({ "interface": "a", "namespace": "no-such-namespace" }));
    assert!(nowhere.starts_with("namespace: no network namespace at /run/netns/no-such-namespace: "), "{nowhere}");
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    environment.simulated = true;
    let params = serde_json::from_value(json!({ "interface": "a" })).expect("parameters");
    let made = Tap::new(params, &mut Setup::new("host", &mut environment), Arc::new(PortCounters::default()));
    assert!(made.err().expect("refused").to_string().contains("simulated"));
}

/// Regression test: a pool holds frames of up to 65343 bytes, but an MTU above 9194 was rejected.
#[test]
fn the_host_sends_packets_as_long_as_a_chunk_holds() {
    let longest = forebay_packet::MAX_FRAME as u16 - 22;
    assert_eq!(longest, MAX_MTU);
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
        let frame = frame.expect("the packet enters");
        assert_eq!(frame.len(), usize::from(longest) + 14);
        assert!(frame[42..] == payload, "other bytes");
    });
}

/// Regression test: with separate locks for the comparison and the restoration, a port could restore settings after the
/// interface had been configured again.
#[test]
fn newer_settings_are_never_undone() {
    alone("newer_settings_are_never_undone", || {
        let mut around = SetupEnvironment::new(Frequency::new(1e9));
        let mtu = |mtu: u16| json!({ "interface": "fb0", "mtu": mtu });
        let (first, _) = open_in(&mut around, "host", &mtu(1_400)).expect("the probe could be made");
        let device = Arc::clone(first.device.as_ref().expect("open"));
        let settings = |mtu: u16| {
            let name = "fb0".to_owned().try_into().expect("a name");
            // This is the namespace of this thread by another name. To enter it takes time, in which the other thread
            // can run between the comparison and the restoration.
            let namespace = Some(PathBuf::from("/proc/thread-self/ns/net"));
            Settings { name, address: None, mac: None, mtu: Some(mtu), namespace }
        };
        for round in 0..500u16 {
            let before = device.change(&settings(1_300)).expect("the interface exists");
            std::thread::scope(|scope| {
                scope.spawn(|| device.undo(&before));
                device.change(&settings(2_000 + round)).expect("the interface exists");
            });
            let now = device.change(&settings(1_300)).expect("the interface exists").settings;
            assert_eq!(now.mtu, Some(2_000 + round));
        }
    });
}

/// Returns the interface's settings from `ip`: addresses, MTU and Ethernet address.
fn settings() -> String {
    let ip = |object: &str| {
        let output = std::process::Command::new("ip").args(["-o", object, "show", "dev", "fb0"]).output();
        String::from_utf8(output.expect("the command ip").stdout).expect("UTF-8")
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

/// Regression test: if a reload gave a running port another address, the kernel reported that the interface was in use
/// (by the port itself), and the whole reload was rejected.
#[test]
fn a_port_takes_the_interface_over_from_the_one_before_it() {
    alone("a_port_takes_the_interface_over_from_the_one_before_it", || {
        if std::process::Command::new("ip").arg("-V").output().is_err() {
            let _ = writeln!(io::stderr(), "skipped: the command `ip` is missing, which shows the settings");
            return;
        }
        let mut around = SetupEnvironment::new(Frequency::new(1e9));
        let old = json!({ "interface": "fb0", "address": "192.0.2.7/24", "mac": "02:00:00:00:00:aa", "mtu": 1400 });
        let new = json!({ "interface": "fb0", "address": "192.0.2.1/25", "mac": "02:00:00:00:00:bb", "poll": "1ms" });
        let (mut first, _) = open_in(&mut around, "host", &old).expect("the probe could be made");
        let pool = pool(2_048);
        let mut batch = Batch::with_capacity(32);
        first.receive(&mut batch, &Intake { now: Ticks(5), pool: &pool, most: 32 });
        assert_eq!(settings(), "192.0.2.7/24 1400 02:00:00:00:00:aa");
        let taken = open_in(&mut around, "other", &new).err().expect("refused").to_string();
        assert!(taken.starts_with("interface: the interface 'fb0' is in use by the port 'host'"), "{taken}");
        // A change that is finally rejected leaves the interface as it was.
        let (unused, _) = open_in(&mut around, "host", &new).expect("the port takes over");
        assert_eq!(settings(), "192.0.2.1/25 1500 02:00:00:00:00:bb");
        drop(unused);
        assert_eq!(settings(), "192.0.2.7/24 1400 02:00:00:00:00:aa");
        // The same applies to an impossible change: the kernel does not accept a group address as an interface's own.
        let group = json!({ "interface": "fb0", "address": "2001:db8::1/64", "mac": "03:00:00:00:00:bb" });
        assert!(open_in(&mut around, "host", &group).is_err());
        assert_eq!(settings(), "192.0.2.7/24 1400 02:00:00:00:00:aa");

        let (mut second, _) = open_in(&mut around, "host", &new).expect("the port takes over");
        second.receive(&mut batch, &Intake { now: Ticks(5), pool: &pool, most: 32 });
        assert_eq!(first.close(), Ok(()));
        drop(first);
        assert_eq!(settings(), "192.0.2.1/25 1500 02:00:00:00:00:bb");
        assert_eq!(resolve_with(&mut second, &pool, 1_000_000), [2, 0, 0, 0, 0, 0xbb]);
        let ipv6 = json!({ "interface": "fb0", "address": "2001:db8::1/64" });
        let (third, _) = open_in(&mut around, "host", &ipv6).expect("the port takes over");
        assert!(settings().starts_with("2001:db8::1/64 1500 "), "{}", settings());
        // A port that was never called does not replace settings that a later port has made.
        let (fourth, _) = open_in(&mut around, "host", &old).expect("the port takes over");
        drop(third);
        assert_eq!(settings(), "192.0.2.7/24 1400 02:00:00:00:00:aa");
        drop((second, fourth));
        // No port uses the interface any more. A process that another test starts has copies of all open files until it
        // runs its program.
        let until = Instant::now() + Duration::from_secs(60);
        let opened = std::iter::repeat_with(|| open_in(&mut around, "other", &new));
        let mut opened = opened.take_while(|opened| opened.is_ok() || Instant::now() < until);
        assert!(opened.any(|opened| opened.is_ok()));
    });
}
