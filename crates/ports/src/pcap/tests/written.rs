//! Tests that captures are written in the format that their name requires.

use super::*;

#[test]
fn a_capture_has_the_format_that_its_name_requires() {
    let folder = Folder::new("written");
    let packets: Vec<Vec<u8>> = (0..5_000_u32).map(|index| index.to_be_bytes().repeat(20)).collect();
    for (name, magic) in [
        ("a.pcap", [0x4d, 0x3c, 0xb2, 0xa1]),
        ("a.PCAPNG", [0x0a, 0x0d, 0x0d, 0x0a]),
        ("a", [0x4d, 0x3c, 0xb2, 0xa1]),
        ("a.capture", [0x4d, 0x3c, 0xb2, 0xa1]),
        ("a.pcap.gz", [0x1f, 0x8b, 8, 0]),
        ("a.pcapng.gz", [0x1f, 0x8b, 8, 0]),
        ("a.gz", [0x1f, 0x8b, 8, 0]),
    ] {
        let path = folder.path(name);
        // A longer existing file is replaced.
        std::fs::write(&path, vec![7; 3 << 20]).expect("writable");
        let mut writer = Writer::create(&path, WhenFull::Wait).expect("a format that is written");
        for (index, packet) in packets.iter().enumerate() {
            assert!(writer.write(1_700_000_000_000_000_001 + index as u64, packet.len() + 100, packet), "{name}");
        }
        writer.finish().expect("written");
        let bytes = std::fs::read(&path).expect("a file");
        assert_eq!(bytes[..4], magic, "{name}");
        let mut reader = Reader::open(&path).expect("a capture");
        for (index, packet) in packets.iter().enumerate() {
            let read = reader.next().unwrap_or_else(|| panic!("{name}: packet {index}")).expect("sound");
            assert_eq!(read.nanos, 1_700_000_000_000_000_001 + index as u64, "{name}");
            assert_eq!((read.bytes, read.original_len as usize), (&packet[..], packet.len() + 100), "{name}");
        }
        assert!(reader.next().is_none(), "{name}");
    }
}

#[test]
fn a_name_of_another_format_is_rejected_and_no_file_is_created() {
    let folder = Folder::new("refused");
    for (name, format) in [("a.pcap.zst", "Zstandard"), ("a.lz4", "LZ4"), ("a.pcapng.XZ", "xz"), ("a.bz2", "bzip2")] {
        let path = folder.path(name);
        let error = Writer::create(&path, WhenFull::Wait).err().expect("refused").to_string();
        assert!(error.contains(&format!("captures cannot be written as {format}: use a name")), "{error}");
        assert!(!path.exists(), "{name}");
    }
    let error = NgWriter::create(&folder.path("a.pcap"), WhenFull::Wait).err().expect("refused").to_string();
    assert!(error.contains("use a name that ends in .pcapng"), "{error}");
}

/// Regression test: a truncated packet was written as if it had been short on the wire.
#[test]
fn the_original_length_of_a_cut_packet_is_written() {
    let folder = Folder::new("cut");
    let packets: &[(u32, u32, u32, &[u8])] = &[(10, 20, 1500, &[1; 60]), (11, 0, 60, &[2; 60]), (12, 0, 40, &[3; 60])];
    let read = folder.file("in.pcap", &classic(false, 0xa1b2_c3d4, 1, packets));
    let pool = pool(2_048);
    for name in ["out.pcap", "out.pcapng"] {
        let path = folder.0.join(name);
        let mut from = open(json!({ "read": read, "speed": "fast" })).expect("a capture");
        let mut to = open(json!({ "write": path })).expect("a file");
        let mut batch = Batch::with_capacity(32);
        from.port.receive(&mut batch, &Intake { now: Ticks(1), pool: &pool, most: 32 });
        // An added header increases both lengths.
        assert!(batch[0].prepend(8).is_some());
        to.port.send(&mut batch, Ticks(2));
        assert_eq!(to.port.close(), Ok(()));
        let mut reader = Reader::open(&path).expect("a capture");
        for lengths in [(68, 1508), (60, 60), (60, 60)] {
            let record = reader.next().expect("a packet").expect("sound");
            assert_eq!((record.bytes.len(), record.original_len), lengths, "{name}");
        }
        // The next packet in the same chunk has no missing bytes.
        from.port.receive(&mut batch, &Intake { now: Ticks(1), pool: &pool, most: 32 });
        assert!(pool.take().is_some_and(|packet| packet.missing() == 0));
    }
}
