//! Frames for tests, and helpers for tests that are skipped or use tshark.
//!
//! etherparse builds the frames: packets of users, and the outer headers of tunnels. It is independent of Forebay's
//! code. Only tests depend on this crate.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::{Command, Stdio};

use etherparse::PacketBuilder;

/// The IPv4 address of the near end of tunnels in tests: the source of outer headers.
pub const HERE: [u8; 4] = [192, 0, 2, 1];
/// The IPv4 address of the far end of tunnels in tests: the destination of outer headers.
pub const THERE: [u8; 4] = [192, 0, 2, 10];
/// The IPv6 address of the near end: 2001:db8::1.
pub const HERE_6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// The IPv6 address of the far end: 2001:db8::10.
pub const THERE_6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10];
/// The destination Ethernet address of all frames.
pub const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The source Ethernet address of all frames.
pub const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Returns a frame with IPv4 and UDP, to the user 10.60.0.1. `class` is the traffic class (DSCP and ECN).
pub fn ipv4(class: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut header = etherparse::Ipv4Header::new(0, 64, 17.into(), [198, 51, 100, 7], [10, 60, 0, 1]).expect("short");
    header.dscp = (class >> 2).try_into().expect("six bits");
    header.ecn = (class & 3).try_into().expect("two bits");
    let ip = etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default());
    PacketBuilder::ethernet2(FROM, TO).ip(ip).udp(1_000, 2_000).write(&mut frame, payload).expect("memory");
    frame
}

/// Returns a frame with IPv6 and UDP, to a user of 2001:db8:60:1::/64. `class` is the traffic class (DSCP and ECN).
pub fn ipv6(class: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let user = [0x20, 0x01, 0x0d, 0xb8, 0, 0x60, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
    PacketBuilder::ethernet2(FROM, TO)
        .ipv6([9; 16], user, 64)
        .udp(1_000, 2_000)
        .write(&mut frame, payload)
        .expect("memory");
    frame[14] |= class >> 4;
    frame[15] |= class << 4;
    frame
}

/// Returns Ethernet, IPv4 with the traffic class `class`, and UDP with these source and destination ports around
/// `payload`. The UDP checksum is present only if `summed` is true.
pub fn outer(class: u8, ports: (u16, u16), summed: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut header = etherparse::Ipv4Header::new(0, 64, 17.into(), HERE, THERE).expect("short");
    header.dscp = (class >> 2).try_into().expect("six bits");
    header.ecn = (class & 3).try_into().expect("two bits");
    let ip = etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default());
    PacketBuilder::ethernet2(FROM, TO).ip(ip).udp(ports.0, ports.1).write(&mut frame, payload).expect("memory");
    if !summed {
        frame[40..42].fill(0);
    }
    frame
}

/// Returns Ethernet, IPv6 with a traffic class and flow label, and UDP around `payload`. The UDP checksum is always
/// present.
pub fn outer_ipv6(class: u8, label: u32, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let header = etherparse::Ipv6Header {
        traffic_class: class,
        flow_label: label.try_into().expect("20 bits"),
        hop_limit: 64,
        source: HERE_6,
        destination: THERE_6,
        ..Default::default()
    };
    let ip = etherparse::IpHeaders::Ipv6(header, etherparse::Ipv6Extensions::default());
    PacketBuilder::ethernet2(FROM, TO).ip(ip).udp(ports.0, ports.1).write(&mut frame, payload).expect("memory");
    frame
}

/// Returns the frame with a VLAN tag for VLAN 5.
pub fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00, 0x00, 0x05], &frame[12..]].concat()
}

/// Reports on standard error why a test is skipped. The test harness hides the standard output of a test that passes.
pub fn skip(why: &str) {
    let _ = writeln!(io::stderr(), "skipped: {why}");
}

/// Returns, for each frame, the values that tshark shows for `fields`. Several values of one field are separated by
/// commas. If tshark is not installed, reports that and returns `None`.
pub fn tshark(frames: &[Vec<u8>], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    if Command::new("tshark").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        skip("tshark is not installed");
        return None;
    }
    // A classic capture of Ethernet (draft-ietf-opsawg-pcap), with all numbers in this machine's byte order.
    let mut capture = Vec::new();
    let word = |capture: &mut Vec<u8>, value: u32| capture.extend(value.to_ne_bytes());
    for value in [
        0xa1b2_c3d4,
        u32::from_ne_bytes([2u16.to_ne_bytes(), 4u16.to_ne_bytes()].concat().try_into().expect("four")),
        0,
        0,
        65_535,
        1,
    ] {
        word(&mut capture, value);
    }
    for frame in frames {
        let len = frame.len() as u32;
        [0, 0, len, len].into_iter().for_each(|value| word(&mut capture, value));
        capture.extend(frame);
    }
    let path = std::env::temp_dir().join(format!(
        "forebay-tunnel-{}-{:?}.pcap",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&path, capture).expect("a folder for temporary files");
    let mut command = Command::new("tshark");
    command.args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-T", "fields", "-r"]).arg(&path);
    fields.iter().for_each(|field| _ = command.args(["-e", field]));
    let output = command.output().expect("tshark is installed");
    std::fs::remove_file(&path).expect("the file exists");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}
