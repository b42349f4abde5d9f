//! Tests that captures of every format are read correctly, that invalid captures do no harm, and that written captures
//! can be read.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_graph::{OpenPort, PortDeclaration, SetupEnvironment};
use forebay_packet::{Pool, PoolOptions};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::writer::LONGEST;
use super::*;

/// A folder for one test, which is removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("forebay-pcap-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("writable");
        path.display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A tick is a nanosecond, so that arrival times are nanoseconds.
fn open(params: Value) -> Result<OpenPort, SetupError> {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    PortDeclaration::of::<Pcap>().open(&params, &mut Setup::new("pcap", &mut environment))
}

fn pool(frame: usize) -> Pool {
    Pool::new(PoolOptions { chunks: 1024, frame, ..PoolOptions::default() }).expect("memory")
}

/// Returns words in the given byte order.
fn words(big: bool, words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| if big { word.to_be_bytes() } else { word.to_le_bytes() }).collect()
}

fn halves(big: bool, a: u16, b: u16) -> Vec<u8> {
    [a, b].iter().flat_map(|half| if big { half.to_be_bytes() } else { half.to_le_bytes() }).collect()
}

/// Returns a classic capture of packets given as seconds, fraction, original length and bytes.
fn classic(big: bool, magic: u32, link: u32, packets: &[(u32, u32, u32, &[u8])]) -> Vec<u8> {
    let mut file = words(big, &[magic]);
    file.extend(halves(big, 2, 4));
    file.extend(words(big, &[0, 0, 65535, link]));
    for (seconds, fraction, original, bytes) in packets {
        file.extend(words(big, &[*seconds, *fraction, bytes.len() as u32, *original]));
        file.extend(*bytes);
    }
    file
}

fn ng_block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let length = (padded + 12) as u32;
    let mut block = words(big, &[kind, length]);
    block.extend(body);
    block.resize(8 + padded, 0);
    block.extend(words(big, &[length]));
    block
}

/// Returns a pcapng section with one interface with these options.
fn ng_start(big: bool, link: u16, options: &[u8]) -> Vec<u8> {
    let mut section = words(big, &[0x1a2b_3c4d]);
    section.extend(halves(big, 1, 0));
    section.extend([0xff; 8]);
    let mut interface = halves(big, link, 0);
    interface.extend(words(big, &[0]));
    interface.extend(options);
    [ng_block(big, 0x0a0d_0d0a, &section), ng_block(big, 1, &interface)].concat()
}

fn enhanced(big: bool, interface: u32, time: u64, original: u32, bytes: &[u8]) -> Vec<u8> {
    let mut body = words(big, &[interface, (time >> 32) as u32, time as u32, bytes.len() as u32, original]);
    body.extend(bytes);
    ng_block(big, 6, &body)
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Returns the content in Zstandard frames of up to 1000 bytes.
fn in_zstd(bytes: &[u8]) -> Vec<u8> {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    bytes.chunks(1000).flat_map(|chunk| compress_to_vec(chunk, CompressionLevel::Fastest)).collect()
}

/// Returns the content in an LZ4 frame.
fn in_lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn times_and_bytes(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let (packets, error) = read_memory(file);
    assert!(error.is_none(), "{error:?}");
    packets
}

#[test]
fn classic_captures_of_both_orders_and_units_are_read() {
    let packets: &[(u32, u32, u32, &[u8])] = &[(10, 20, 60, &[1; 60]), (11, 999_999, 1500, &[2; 33])];
    for big in [false, true] {
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            let file = classic(big, magic, 1, packets);
            let expected =
                vec![(10_000_000_000 + 20 * unit, vec![1; 60]), (11_000_000_000 + 999_999 * unit, vec![2; 33])];
            assert_eq!(times_and_bytes(&file), expected);
            assert_eq!(times_and_bytes(&packed(&file)), expected, "in gzip");
        }
    }
    let mut reader = Reader::new(&[][..]).err().map(|error| error.to_string()).expect("an empty file is no capture");
    assert!(reader.contains("not a capture"), "{reader}");
    reader.clear();
    let file = classic(false, 0xa1b2_c3d4, 1, packets);
    let mut reader = Reader::new(&file[..]).expect("a capture");
    reader.next().expect("first").expect("sound");
    let second = reader.next().expect("second").expect("sound");
    assert_eq!((second.original_len, second.bytes.len()), (1500, 33), "a packet that the capture cut short");
}

#[test]
fn pcapng_is_read_in_both_orders_with_the_interface_s_own_unit() {
    for big in [false, true] {
        // if_tsresol: 10⁻⁹, 2⁻¹⁰; if_tsoffset: 5 s.
        let nano = [halves(big, 9, 1), vec![9, 0, 0, 0], halves(big, 0, 0)].concat();
        let binary = [halves(big, 9, 1), vec![0x8a, 0, 0, 0], halves(big, 0, 0)].concat();
        let mut five = if big { 5_u64.to_be_bytes() } else { 5_u64.to_le_bytes() }.to_vec();
        five = [halves(big, 14, 8), five, halves(big, 0, 0)].concat();
        for (options, time, expected) in [
            (vec![], 1_500_000, 1_500_000_000),
            (nano, 1_500, 1_500),
            (binary, 1536, 1_500_000_000),
            (five, 1, 5_000_001_000),
        ] {
            let mut file = ng_start(big, 1, &options);
            file.extend(enhanced(big, 0, time, 61, &[7; 61]));
            // A block that is not a packet, and a simple packet, which has no time stamp.
            file.extend(ng_block(big, 0x0bad, &[1, 2, 3]));
            file.extend(ng_block(big, 3, &[words(big, &[5]), vec![8; 5]].concat()));
            let obsolete = [halves(big, 0, 9), words(big, &[0, time as u32, 2, 2]), vec![9; 2]].concat();
            file.extend(ng_block(big, 2, &obsolete));
            let packets = vec![(expected, vec![7; 61]), (expected, vec![8; 5]), (expected, vec![9; 2])];
            assert_eq!(times_and_bytes(&file), packets, "big endian: {big}");
            assert_eq!(times_and_bytes(&packed(&file)), packets, "in gzip");
        }
    }
}

#[test]
fn unreadable_captures_are_reported() {
    let link = classic(false, 0xa1b2_c3d4, 105, &[]);
    let text = read_memory(&link).1.expect("refused").to_string();
    assert!(text.starts_with("link type 105 (IEEE 802.11): allowed are Ethernet (1), NULL"), "{text}");
    let mut ng = ng_start(false, 105, &[]);
    ng.extend(enhanced(false, 0, 0, 1, &[0]));
    let text = read_memory(&ng).1.expect("refused").to_string();
    assert!(
        text.starts_with("no packet can be read: 1 of link type 105 (IEEE 802.11); allowed are Ethernet"),
        "{text}"
    );
    assert!(matches!(read_memory(b"GET / HTTP/1.1").1, Some(ReadError::Format { found }) if found == b"GET "));

    let sound = classic(false, 0xa1b2_c3d4, 1, &[(1, 0, 60, &[1; 60]), (2, 0, 60, &[2; 60])]);
    let (packets, error) = read_memory(&sound[..sound.len() - 1]);
    assert_eq!(packets.len(), 1, "the packets before the fault are kept");
    assert!(matches!(error, Some(ReadError::Truncated { record: 2, .. })), "{error:?}");
    let mut long = classic(false, 0xa1b2_c3d4, 1, &[]);
    long.extend(words(false, &[0, 0, 300_000, 300_000]));
    long.resize(long.len() + 300_000, 0);
    assert!(matches!(read_memory(&long).1, Some(ReadError::Corrupt { record: 1, .. })));
    let mut alone = ng_start(false, 1, &[]);
    alone.extend(enhanced(false, 3, 0, 1, &[0]));
    assert!(matches!(read_memory(&alone).1, Some(ReadError::Corrupt { record: 1, .. })), "of a missing interface");
}

/// Captures of every type, to be damaged.
fn samples() -> Vec<Vec<u8>> {
    let packets: &[(u32, u32, u32, &[u8])] = &[(10, 20, 60, &[1; 60]), (11, 5, 1500, &[2; 33]), (12, 5, 0, &[])];
    let mut ng = ng_start(false, 1, &[halves(false, 9, 1), vec![9, 0, 0, 0], halves(false, 0, 0)].concat());
    ng.extend(enhanced(false, 0, 77, 9, &[7; 9]));
    ng.extend(ng_block(false, 3, &[words(false, &[5]), vec![8; 5]].concat()));
    ng.extend(ng_start(true, 1, &[]));
    ng.extend(enhanced(true, 0, 78, 9, &[7; 9]));
    let plain = [classic(false, 0xa1b2_c3d4, 1, packets), classic(true, 0xa1b2_3c4d, 1, packets), ng];
    plain.iter().map(|file| packed(file)).chain(plain.iter().cloned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn broken_captures_do_no_harm(
        sample in 0_usize..6,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut file = samples().swap_remove(sample);
        for (index, byte) in changes {
            let at = index.index(file.len());
            file[at] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        let (packets, error) = read_memory(&file);
        // The reader invents no bytes: a packet's bytes were in the file. (This is not checked for compressed files.)
        if sample >= 3 {
            prop_assert!(packets.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() <= file.len(), "{error:?}");
        }
    }

    #[test]
    fn noise_does_no_harm(noise in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_usize..7) {
        let starts: [&[u8]; 7] = [
            &[], &[0x1f, 0x8b], &[0xd4, 0xc3, 0xb2, 0xa1], &[0xa1, 0xb2, 0xc3, 0xd4],
            &[0x4d, 0x3c, 0xb2, 0xa1], &[0x0a, 0x0d, 0x0d, 0x0a], &[0xa1, 0xb2, 0x3c, 0x4d],
        ];
        let _ = read_memory(&[starts[kind], &noise].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn written_captures_can_be_read(
        packets in proptest::collection::vec(
            (0_u64..4_000_000_000_000_000_000, proptest::collection::vec(any::<u8>(), 0..2000)), 0..300,
        ),
    ) {
        let folder = Folder::new("back");
        let mut writer = Writer::create(&folder.path("a.pcap"), WhenFull::Wait).expect("writable");
        let mut ng = NgWriter::create(&folder.path("a.pcapng"), WhenFull::Wait).expect("writable");
        for (nanos, bytes) in &packets {
            prop_assert!(writer.write(*nanos, bytes.len(), bytes));
            prop_assert!(ng.write(*nanos, bytes.len(), bytes, "a reason"));
        }
        writer.finish().expect("written");
        ng.finish().expect("written");
        for name in ["a.pcap", "a.pcapng"] {
            let file = std::fs::read(folder.path(name)).expect("the file exists");
            prop_assert_eq!(&times_and_bytes(&file), &packets);
        }
    }
}

#[test]
fn comments_show_in_tshark() {
    if Command::new("tshark").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: tshark is not installed");
        return;
    }
    let folder = Folder::new("tshark");
    let path = folder.path("drops.pcapng");
    let mut ng = NgWriter::create(&path, WhenFull::Wait).expect("writable");
    ng.write(1_700_000_000_123_456_789, 60, &[0xff; 60], "acl: denied by rule 7");
    ng.write(1_700_000_001_000_000_000, 1514, &[0xff; 61], "router: ttl_expired");
    ng.finish().expect("written");
    let fields = ["frame.comment", "frame.len", "frame.time_epoch"];
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let out = Command::new("tshark").arg("-r").arg(&path).args(["-T", "fields"]).args(fields).output().expect("runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(lines[0].starts_with("acl: denied by rule 7\t60\t") && lines[0].contains(".123456789"), "{text}");
    assert!(lines[1].starts_with("router: ttl_expired\t1514\t"), "{text}");
}

/// Receives until no packets remain, on a clock that jumps to the time for which the port waits. Returns times and
/// bytes.
fn play(port: &mut OpenPort, pool: &Pool) -> Vec<(u64, ArrivalClock, Vec<u8>)> {
    let (mut batch, mut now, mut all) = (Batch::with_capacity(32), Ticks(1_000), Vec::new());
    for _ in 0..1_000_000 {
        let ready = port.port.receive(&mut batch, &Intake { now, pool, most: 32 });
        for packet in batch.iter() {
            assert!(packet.arrival() <= now, "no packet arrives before its time");
            all.push((packet.arrival().0, packet.arrival_clock(), packet.data().to_vec()));
        }
        batch.clear();
        match ready {
            Ready::Now => {}
            Ready::At(at) => now = at.max(now),
            Ready::Never => return all,
            Ready::Input(_) => panic!("a file does not wait for input"),
        }
    }
    panic!("a capture of few packets does not end");
}

const THREE: &[(u32, u32, u32, &[u8])] = &[(50, 0, 60, &[1; 60]), (50, 300, 60, &[2; 60]), (50, 200, 60, &[3; 60])];

/// Regression test: a capture with only oversize packets, replayed forever, occupied its worker forever.
#[test]
fn a_capture_of_oversize_packets_yields_to_the_worker() {
    let folder = Folder::new("oversize");
    let large = vec![0; 20_000];
    let file = folder.file("large.pcap", &classic(false, 0xa1b2_c3d4, 1, &[(0, 0, 20_000, &large)]));
    let mut port = open(json!({ "read": file, "speed": "fast", "loops": "forever" })).expect("a capture");
    let pool = pool(2048);
    let mut batch = Batch::with_capacity(32);
    let ready = port.port.receive(&mut batch, &Intake { now: Ticks(1), pool: &pool, most: 32 });
    assert!(batch.is_empty() && matches!(ready, Ready::Now));
}

#[test]
fn packets_are_written_with_the_date_of_the_replayed_capture() {
    let folder = Folder::new("both");
    let file = folder.file("three.pcap", &classic(false, 0xa1b2_c3d4, 1, THREE));
    let out = folder.path("out.pcap");
    let mut port = open(json!({ "read": file, "write": out.display().to_string(), "speed": "fast" })).expect("sound");
    assert!(port.receives && port.sends);
    let (pool, mut batch) = (pool(2048), Batch::with_capacity(32));
    port.port.receive(&mut batch, &Intake { now: Ticks(7_000), pool: &pool, most: 32 });
    port.port.send(&mut batch, Ticks(7_000));
    assert_eq!(batch.len(), 0);
    batch.push(pool.take().expect("a packet")).expect("room");
    assert!(batch[0].write(&[9; 70]));
    port.port.send(&mut batch, Ticks(9_500));
    port.port.close().expect("written");
    let written = times_and_bytes(&std::fs::read(out).expect("the file exists"));
    let first = 50_000_000_000;
    let expected = [(first, vec![1; 60]), (first, vec![2; 60]), (first, vec![3; 60]), (first + 2_500, vec![9; 70])];
    assert_eq!(written, expected);
}

#[test]
fn invalid_parameters_are_rejected_with_the_cause() {
    let folder = Folder::new("params");
    let file = folder.file("three.pcap", &classic(false, 0xa1b2_c3d4, 1, THREE));
    let missing = folder.path("missing.pcap").display().to_string();
    for (params, path, says) in [
        (json!({}), "", "`read` and `write` are missing"),
        (json!({ "read": missing }), "read", "missing.pcap: cannot open"),
        (json!({ "read": file, "write": file }), "write", "'pcap' already reads this file"),
        (json!({ "read": file, "speed": 0 }), "speed", "above 0"),
        (json!({ "read": file, "speed": "slow" }), "speed", "original"),
        (json!({ "read": file, "loops": 0 }), "loops", "forever"),
        (json!({ "write": "/nowhere/at/all.pcap" }), "write", "cannot create"),
        (json!({ "read": file, "sped": 1 }), "", "sped"),
    ] {
        let error = open(params).err().expect(says);
        assert!(error.faults[0].path.starts_with(path) && error.to_string().contains(says), "{error}");
    }
    assert_eq!(std::fs::read(&file).expect("the file exists").len(), 24 + 3 * 76, "the capture was not touched");
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    environment.files.base = folder.0.clone();
    let relative = json!({ "read": "three.pcap" });
    assert!(PortDeclaration::of::<Pcap>().open(&relative, &mut Setup::new("pcap", &mut environment)).is_ok());
}

#[test]
fn the_example_has_valid_parameters() {
    let params: Params =
        serde_json::from_value(json!({ "read": "in.pcap.gz", "write": "out.pcap", "speed": "fast", "loops": 3 }))
            .expect("the parameters of the example");
    assert_eq!((params.speed, params.loops), (Speed::Named(Pace::Fast), Loops::Times(3)));
}

/// Real captures, with the number of packets in each (counted by other programs).
const REAL: &[(&str, usize)] = &[
    ("web.pcap", 4_631),
    ("many-flows.pcap", 7_133),
    ("rtp.pcap", 4_092),
    ("modbus.pcap", 13_622),
    ("echo-connections.pcap.gz", 82_582),
];

#[test]
fn real_captures_are_played_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/pcap");
    let pool = pool(9_216);
    for (name, packets) in REAL {
        let path = folder.join(name);
        if !path.exists() {
            let _ = writeln!(std::io::stderr(), "skipped: {name} is not in ../shared/data/pcap");
            continue;
        }
        let mut port = open(json!({ "read": path.display().to_string(), "speed": "fast" })).expect("a capture");
        let played = play(&mut port, &pool);
        let dropped = port.counters.dropped.get() as usize;
        assert_eq!(played.len() + dropped, *packets, "{name}");
        assert_eq!(port.counters.errors.get(), 0, "{name}");
        println!("{name}: {} played, {dropped} longer than a chunk", played.len());
    }
}

mod disk;
mod formats;
mod links;
mod played;
mod streams;
mod written;
