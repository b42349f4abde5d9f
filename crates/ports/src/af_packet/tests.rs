//! Tests with ports at both ends of a veth pair, or with the kernel's own network stack at one end, in a separate
//! network namespace.

mod faults;
mod host;
mod reload;
mod waiting;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use forebay_graph::SetupEnvironment;
use forebay_measure::{Clock, Tsc};
use forebay_packet::{ArrivalClock, Pool, PoolOptions};
use serde_json::{Value, json};

use super::*;
use crate::interface::testing::{ip, skip, with_pair};

fn environment() -> SetupEnvironment {
    SetupEnvironment::new(Tsc.frequency())
}

fn open_in(
    environment: &mut SetupEnvironment,
    name: &str,
    params: &Value,
) -> Result<(AfPacket, Arc<PortCounters>), SetupError> {
    let params = serde_json::from_value(params.clone()).map_err(|error| SetupError::new(error.to_string()))?;
    let (counters, mut setup) = (Arc::new(PortCounters::default()), Setup::new(name, environment));
    AfPacket::check(&params, &mut setup)?;
    Ok((AfPacket::new(params, &mut setup, Arc::clone(&counters))?, counters))
}

/// An open port with its own pool.
struct Bench {
    port: AfPacket,
    counters: Arc<PortCounters>,
    pool: Pool,
    batch: Batch,
}

impl Bench {
    fn new(params: &Value) -> Self {
        let mut bench = Self::over(open_in(&mut environment(), "it", params).expect("a port"));
        // The port receives from the first call on.
        assert_eq!(bench.take(), Vec::<Vec<u8>>::new());
        bench
    }

    fn over((port, counters): (AfPacket, Arc<PortCounters>)) -> Self {
        Self { port, counters, pool: pool(2_048), batch: Batch::with_capacity(32) }
    }

    /// Sends frames. Returns the number of refused frames.
    fn send<T: AsRef<[u8]>>(&mut self, frames: &[T]) -> usize {
        let mut refused = 0;
        for some in frames.chunks(32) {
            for frame in some {
                let mut packet = self.pool.take().expect("a chunk");
                assert!(packet.write(frame.as_ref()));
                self.batch.push(packet).expect("room");
            }
            self.port.send(&mut self.batch, Tsc.now());
            refused += self.batch.len();
            self.batch.clear();
        }
        refused
    }

    /// Calls `receive` once. Returns the received frames.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let now = Tsc.now();
        self.port.receive(&mut self.batch, &Intake { now, pool: &self.pool, most: 32 });
        let frames = self.batch.iter().map(|packet| {
            assert!(packet.arrival() <= now);
            packet.data().to_vec()
        });
        let frames = frames.collect();
        self.batch.clear();
        frames
    }

    /// Receives until `count` frames have come, or for 20 seconds.
    fn await_frames(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.wait(|bench| {
            frames.extend(bench.take());
            frames.len() >= count
        });
        frames
    }

    /// Repeats a step until it returns true, or for 20 seconds. Returns true if it did.
    fn wait(&mut self, mut step: impl FnMut(&mut Self) -> bool) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            if step(self) {
                return true;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        false
    }
}

fn pool(frame: usize) -> Pool {
    Pool::new(PoolOptions { chunks: 512, frame, ..PoolOptions::default() }).expect("memory")
}

/// Returns a frame with a number in it, of a protocol to which no network stack responds.
fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0x0a, 2, 0, 0, 0, 0, 0x0b, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| at as u8));
    frame
}

fn frames(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| frame(number, 60 + number as usize * 37 % 1_400)).collect()
}

#[test]
fn frames_are_received_at_the_other_end_in_order() {
    with_pair("af_packet: frames_are_received_at_the_other_end", || {
        let mut a = Bench::new(&json!({ "interface": "va" }));
        for bypass in [false, true] {
            let mut b = Bench::new(&json!({ "interface": "vb", "bypass_queues": bypass, "send_ring": 64 }));
            let sent = frames(5_000);
            let mut received = Vec::new();
            // Sends one full send ring at a time, so that the other end can follow.
            for some in sent.chunks(64) {
                assert_eq!(b.send(some), 0);
                received.extend(a.await_frames(some.len()));
            }
            assert!(received == sent, "{} of {}", received.len(), sent.len());
            assert_eq!(a.send(&sent[..50]), 0);
            assert_eq!(b.await_frames(50), &sent[..50]);
            assert_eq!((b.port.in_flight(), b.port.close()), (0, Ok(())));
            assert_eq!((b.counters.errors.get(), b.counters.dropped.get()), (0, 0));
        }
        assert_eq!((a.counters.errors.get(), a.counters.dropped.get()), (0, 0));
        // A port does not receive its own frames.
        assert_eq!(a.take(), Vec::<Vec<u8>>::new());
        assert_eq!(a.port.close(), Ok(()));
        assert_eq!(a.send(&[frame(0, 60)]), 1, "closed");
        let intake = Intake { now: Tsc.now(), pool: &a.pool, most: 32 };
        assert_eq!(a.port.receive(&mut a.batch, &intake), Ready::Never);
    });
}

/// Frames that are in the ring when the port is closed are lost and counted. These are the frames in blocks that the
/// kernel has handed over, in the unread part of a block, and in the block that the kernel is filling.
#[test]
fn frames_in_the_ring_at_the_end_are_counted_as_dropped() {
    with_pair("af_packet: frames_in_the_ring_at_the_end", || {
        for (length, taken, pause) in [(60, 0, 0), (60, 32, 20), (1_400, 40, 20), (1_400, 300, 0)] {
            let ring = json!({ "blocks": 64, "block": "4KiB" });
            let mut a = Bench::new(&json!({ "interface": "va", "ring": ring }));
            let mut b = Bench::new(&json!({ "interface": "vb", "send_ring": 64 }));
            let sent: Vec<_> = (0..100).map(|number| frame(number, length)).collect();
            assert_eq!(b.send(&sent), 0);
            std::thread::sleep(Duration::from_millis(pause));
            let received = if taken > 0 { a.await_frames(taken.min(100)).len() } else { 0 };
            if length == 60 && taken > 0 {
                assert!(received < 100, "not all: {received}");
            }
            assert_eq!(a.port.close(), Ok(()));
            assert_eq!((received as u64 + a.counters.dropped.get(), a.counters.errors.get()), (100, 0));
            assert_eq!((a.port.close(), received as u64 + a.counters.dropped.get()), (Ok(()), 100), "once");
        }
    });
}

#[test]
fn arrival_is_the_kernels_time() {
    with_pair("af_packet: arrival_is_the_kernels_time", || {
        let (mut a, mut b) = (Bench::new(&json!({ "interface": "va" })), Bench::new(&json!({ "interface": "vb" })));
        let before = Tsc.now();
        assert_eq!(b.send(&[frame(1, 60)]), 0);
        let after = Tsc.now();
        // This wait is long enough to distinguish the time of arrival from the time of the poll.
        std::thread::sleep(Duration::from_millis(30));
        let now = Tsc.now();
        a.port.receive(&mut a.batch, &Intake { now, pool: &a.pool, most: 32 });
        let packet = a.batch.first().expect("a packet");
        assert_eq!(packet.arrival_clock(), ArrivalClock::Kernel);
        let slack = Tsc.frequency().ticks(Nanos(5_000_000));
        let (arrival, from, to) = (packet.arrival(), before - slack, after + slack);
        assert!(from <= arrival && arrival <= to && arrival < now, "{from:?} <= {arrival:?} <= {to:?}");
    });
}

/// The kernel removes the outermost tag from a frame before any socket sees it.
#[test]
fn vlan_tags_come_back() {
    with_pair("af_packet: vlan_tags_come_back", || {
        let (mut a, mut b) = (Bench::new(&json!({ "interface": "va" })), Bench::new(&json!({ "interface": "vb" })));
        let tagged = |tags: &[u8]| {
            let plain = frame(7, 90);
            [&plain[..12], tags, &plain[12..]].concat()
        };
        let all = [
            tagged(&[0x81, 0, 0x20, 5]),
            tagged(&[0x81, 0, 0, 0]),
            tagged(&[0x88, 0xa8, 0x6f, 0xff]),
            tagged(&[0x88, 0xa8, 0, 9, 0x81, 0, 0, 8]),
            frame(8, 60),
        ];
        assert_eq!(b.send(&all), 0);
        assert_eq!(a.await_frames(all.len()), all);
        // The longest frame with a tag, which the MTU does not include.
        let longest = tagged(&[0x81, 0, 0, 3]).into_iter().chain([9; 2_000]).take(1_518).collect::<Vec<_>>();
        assert_eq!(b.send(&[&longest]), 0);
        assert_eq!(a.await_frames(1), [longest]);
    });
}

/// Configures the kernel's own network stack at `vb`, with these addresses and a neighbour at the other end.
fn stack_at_b() -> bool {
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/vb/disable_ipv6", "0");
    ip("addr add 192.0.2.1/24 dev vb")
        && ip("-6 addr add 2001:db8::1/64 dev vb nodad")
        && ip("neigh add 192.0.2.2 lladdr 02:00:00:00:00:0a dev vb")
        && ip("-6 neigh add 2001:db8::2 lladdr 02:00:00:00:00:0a dev vb")
        && ip("link set lo up")
}

/// Returns the payload of a UDP datagram to port 9, after checking all its checksums.
fn checked_udp(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let TransportSlice::Udp(udp) = packet.transport? else { return None };
    if udp.destination_port() != 9 {
        return None;
    }
    let header = udp.to_header();
    let sum = match packet.net? {
        NetSlice::Ipv4(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(ip.calc_header_checksum(), ip.header_checksum);
            header.calc_checksum_ipv4(&ip, udp.payload())
        }
        NetSlice::Ipv6(ip) => header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()),
        NetSlice::Arp(_) => None?,
    };
    assert_eq!(sum, Ok(header.checksum), "{frame:02x?}");
    Some(udp.payload().to_vec())
}

#[test]
fn checksums_that_a_sender_left_to_its_interface_are_completed() {
    with_pair("af_packet: checksums_that_a_sender_left", || {
        if !stack_at_b() {
            return skip("af_packet: checksums_that_a_sender_left", "no addresses or neighbours can be set");
        }
        let mut a = Bench::new(&json!({ "interface": "va" }));
        for (own, to) in [("192.0.2.1:0", "192.0.2.2:9"), ("[2001:db8::1]:0", "[2001:db8::2]:9")] {
            let socket = UdpSocket::bind(own).expect("a socket");
            for length in [0usize, 1, 5, 777, 1_400] {
                let payload: Vec<_> = (0..length).map(|at| at as u8).collect();
                assert_eq!(socket.send_to(&payload, to).expect("sent"), length);
                let mut got = None;
                a.wait(|a| {
                    got = got.take().or_else(|| a.take().iter().find_map(|frame| checked_udp(frame)));
                    got.is_some()
                });
                assert_eq!(got, Some(payload), "{to} {length}");
            }
        }
        assert_eq!((a.counters.errors.get(), a.counters.dropped.get()), (0, 0));
    });
}

/// A frame that a sender on this host leaves to its interface to split is longer than any packet.
#[test]
fn frames_left_to_the_interface_to_split_are_split() {
    use rustix::fd::AsRawFd as _;
    with_pair("af_packet: frames_left_to_the_interface_to_split", || {
        if !stack_at_b() {
            return skip("af_packet: frames_left_to_the_interface_to_split", "no addresses or neighbours can be set");
        }
        let mut a = Bench::new(&json!({ "interface": "va" }));
        for (own, to) in [("192.0.2.1:0", "192.0.2.2:9"), ("[2001:db8::1]:0", "[2001:db8::2]:9")] {
            let socket = UdpSocket::bind(own).expect("a socket");
            if let Err(error) = socket::set_udp_segment(socket.as_raw_fd(), 1_000) {
                return skip(
                    "af_packet: frames_left_to_the_interface_to_split",
                    &format!("UDP segmentation is not supported: {error}"),
                );
            }
            let payload: Vec<_> = (0..50_500u32).map(|at| (at >> 3) as u8).collect();
            assert_eq!(socket.send_to(&payload, to).expect("sent"), payload.len());
            let mut parts = Vec::new();
            // More than one batch.
            a.wait(|a| {
                parts.extend(a.take().iter().filter_map(|frame| checked_udp(frame)));
                parts.len() >= 51
            });
            assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [[1_000; 50].as_slice(), &[500]].concat());
            assert_eq!(parts.concat(), payload);
        }
        assert_eq!((a.counters.errors.get(), a.counters.dropped.get()), (0, 0));
    });
}
