//! Tests files in the forms that programs write (options without an end, compressed files, old formats), and malicious
//! files.

use super::*;

fn option(big: bool, code: u16, value: &[u8]) -> Vec<u8> {
    let mut option = [halves(big, code, value.len() as u16), value.to_vec()].concat();
    option.resize(option.len().next_multiple_of(4), 0);
    option
}

/// Returns a section header, an interface with a reserved field, and one packet.
fn with_options(big: bool, section: &[u8], reserved: u16, interface: &[u8]) -> Vec<u8> {
    let head = [words(big, &[0x1a2b_3c4d]), halves(big, 1, 0), vec![0xff; 8], section.to_vec()].concat();
    let described = [halves(big, 1, reserved), words(big, &[262_144]), interface.to_vec()].concat();
    [ng_block(big, 0x0a0d_0d0a, &head), ng_block(big, 1, &described), enhanced(big, 0, 7, 60, &[7; 60])].concat()
}

/// draft-ietf-opsawg-pcapng section 3.5: an option list may end with its block; section 4.2: reserved fields are
/// ignored.
#[test]
fn pcapng_options_need_no_end_and_no_sense() {
    for big in [false, true] {
        let end = halves(big, 0, 0);
        let ended = |option: Vec<u8>| [option, end.clone()].concat();
        let mut files = vec![
            with_options(big, &[], 0, &ended(option(big, 2, b"eth0"))),
            with_options(big, &[], 0, &option(big, 2, b"eth0")),
            with_options(big, &option(big, 4, b"dumpcap"), 0, &[]),
            with_options(big, &[], 1, &[]),
            with_options(big, &[], 0xffff, &ended(option(big, 10, &[0; 4]))),
            with_options(big, &[], 0, &ended(option(big, 3, b"R\xe9seau local"))),
            with_options(big, &ended(option(big, 1, b"caf\xe9")), 0, &[]),
            // A time resolution of two bytes, an offset of one byte, a list that its block truncates, and a list of one
            // byte.
            with_options(big, &[], 0, &ended(option(big, 9, &[9, 9]))),
            with_options(big, &[], 0, &ended(option(big, 14, &[9]))),
            with_options(big, &[], 0, &halves(big, 2, 400)),
            with_options(big, &halves(big, 2, 0xffff), 0, &[0, 0]),
        ];
        for (code, value) in [
            (15, &b"hw"[..]),
            (16, b"\x01\0\0\0\0\0\0\0"),
            (17, b"\x01\0\0\0\0\0\0\0"),
            (18, b"UTC"),
            (2988, b"\x01\0\0\0x"),
            (2989, b"\x01\0\0\0\xff"),
            (0x8001, b"zz"),
        ] {
            files.push(with_options(big, &[], 0, &ended(option(big, code, value))));
        }
        for (index, file) in files.iter().enumerate() {
            let expected = vec![(7000, vec![7; 60])];
            assert_eq!(times_and_bytes(file), expected, "file {index}");
            // A second section, of the other byte order and without an end of options.
            let two = [&file[..], &with_options(!big, &option(!big, 2, b"eth0"), 3, &[])].concat();
            assert_eq!(times_and_bytes(&two), [expected.clone(), expected].concat(), "file {index}, twice");
        }
        // The resolution applies regardless of other options, with or without an end.
        let nano = [option(big, 3, b"\xff"), option(big, 9, &[9]), option(big, 0x8001, b"x")].concat();
        assert_eq!(times_and_bytes(&with_options(big, &[], 0, &nano)), [(7, vec![7; 60])]);
    }
}

/// Blocks without packets are skipped. This holds for any length, and for known and unknown types.
#[test]
fn other_blocks_are_skipped() {
    let mut ng = ng_start(false, 1, &[]);
    for kind in [4, 5, 9, 10, 0x0bad, 0x4000_0bad, 0x8000_0001, 0] {
        ng.extend(ng_block(false, kind, &vec![0xee; 70_000]));
        ng.extend(enhanced(false, 0, 1, 60, &[1; 60]));
    }
    assert_eq!(times_and_bytes(&ng).len(), 8);
}

#[test]
fn modified_and_old_captures_are_read() {
    for big in [false, true] {
        // Alexey Kuznetzov's records: an interface, a protocol and a packet type after the lengths.
        let mut file = classic(big, 0xa1b2_cd34, 1, &[]);
        for value in [1_u8, 2] {
            file.extend(words(big, &[10, u32::from(value), 60, 90, 3]));
            file.extend(halves(big, 8, 4));
            file.extend([value; 60]);
        }
        let expected = [(10_000_001_000, vec![1; 60]), (10_000_002_000, vec![2; 60])];
        assert_eq!(times_and_bytes(&file), expected);
        // Before version 2.3, the original length came first. Files of version 2.3 have both orders.
        for (minor, lengths) in [(1, [90, 60]), (3, [90, 60]), (3, [60, 90]), (4, [60, 90])] {
            let mut file = classic(big, 0xa1b2_c3d4, 1, &[]);
            file[4..8].copy_from_slice(&halves(big, 2, minor));
            file.extend(words(big, &[10, 1, lengths[0], lengths[1]]));
            file.extend([1; 60]);
            let mut reader = Reader::new(&file[..]).expect("a capture");
            let read = reader.next().expect("one").expect("sound");
            assert_eq!((read.bytes, read.original_len), (&[1; 60][..], 90), "2.{minor}");
        }
    }
    let mut file = classic(false, 0xa1b2_c3d4, 1, &[]);
    file[4] = 9;
    let text = read_memory(&file).1.expect("refused").to_string();
    assert_eq!(text, "the capture's header at byte 4 is invalid: version 9.4: allowed is 2");
}

fn three() -> Vec<u8> {
    classic(false, 0xa1b2_c3d4, 1, THREE)
}

/// A capture can be compressed by any program, in one frame or several, with skippable frames between them.
#[test]
fn packed_captures_are_read() {
    let skippable = [0x55, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9].to_vec();
    let mut ng = ng_start(false, 1, &[]);
    (0..400_u32).for_each(|n| ng.extend(enhanced(false, 0, u64::from(n), 1000, &n.to_be_bytes().repeat(250))));
    for file in [three(), ng] {
        let expected = times_and_bytes(&file);
        let half = file.len() / 2;
        for pack in [packed, in_zstd, in_lz4] {
            assert_eq!(times_and_bytes(&pack(&file)), expected);
            let parts = [pack(&file[..half]), pack(&file[half..])].concat();
            assert_eq!(times_and_bytes(&parts), expected, "two members");
        }
        for pack in [in_zstd, in_lz4] {
            let parts = [&skippable[..], &pack(&file[..half]), &skippable, &pack(&file[half..]), &skippable].concat();
            assert_eq!(times_and_bytes(&parts), expected, "with skippable frames");
        }
    }
}

/// gzip(1) ignores zeros after the last member. Other bytes there are an error.
#[test]
fn zeros_after_gzip_are_ignored_and_other_bytes_are_an_error() {
    let file = three();
    let expected = times_and_bytes(&file);
    let (whole, half) = (packed(&file), file.len() / 2);
    let two = [packed(&file[..half]), packed(&file[half..])].concat();
    for gzip in [&whole, &two] {
        for zeros in [0, 1, 9, 10, 512, 200_000] {
            let padded = [&gzip[..], &vec![0; zeros]].concat();
            assert_eq!(times_and_bytes(&padded), expected, "{zeros} zeros");
            for garbage in [&b"x"[..], b"garbage", &[0x1f, 0x8b, 8], &whole] {
                let (packets, error) = read_memory(&[&padded, garbage].concat());
                if zeros == 0 && garbage.len() == whole.len() {
                    // These bytes begin the next member.
                    continue;
                }
                let text = error.expect("an error").to_string();
                assert_eq!(packets, expected, "{zeros} zeros, then {garbage:02x?}");
                let right = zeros == 0 || text.contains("the padding after the gzip data has the byte ");
                assert!(right, "{zeros} zeros, then {garbage:02x?}: {text}");
            }
        }
    }
    // Zeros between members are not padding after the last member.
    let between = [&packed(&file[..half])[..], &[0; 8], &packed(&file[half..])].concat();
    assert!(read_memory(&between).1.is_some());
}

/// For zeros after the last frame, zstd(1), lz4(1) and Wireshark return the whole content and an error. This reader
/// does the same, for any number of zeros. It reports a truncated file only if the bytes may begin a frame.
#[test]
fn zeros_and_other_bytes_after_zstandard_and_lz4_are_an_error() {
    let file = three();
    let expected = times_and_bytes(&file);
    for pack in [in_zstd, in_lz4] {
        let whole = pack(&file);
        for behind in [&[0][..], &[0; 3], &[0; 4], &[0; 512], b"x", b"abc", b"garbage", &packed(&file)] {
            let (packets, error) = read_memory(&[&whole, behind].concat());
            assert_eq!(packets, expected, "{behind:02x?}");
            let (text, shown) = (error.expect("an error").to_string(), &behind[..behind.len().min(4)]);
            let right =
                text.contains(&format!("expected a frame of Zstandard or LZ4, but found the bytes {shown:02x?}"));
            assert!(right, "{behind:02x?}: {text}");
        }
        for begun in [&[0x28][..], &[0x28, 0xb5, 0x2f], &[4, 0x22], &[0x5f, 0x2a], &[0x50]] {
            let (packets, error) = read_memory(&[&whole, begun].concat());
            assert_eq!(packets, expected, "{begun:02x?}");
            assert!(matches!(error, Some(ReadError::Truncated { .. })), "{begun:02x?}: {error:?}");
        }
    }
}

/// Captures compressed by the programs themselves, with every option that changes the format.
#[test]
fn captures_packed_by_other_programs_are_read() {
    let folder = Folder::new("programs");
    let frames: Vec<Vec<u8>> = (0..3000_u32).map(|n| (n / 3).to_be_bytes().repeat(15 + n as usize % 200)).collect();
    let packets: Vec<_> = frames.iter().map(|frame| (9, 0, frame.len() as u32, &frame[..])).collect();
    let file = classic(false, 0xa1b2_c3d4, 1, &packets);
    let expected = times_and_bytes(&file);
    let path = folder.file("a.pcap", &file);
    for line in [
        "gzip -1",
        "gzip -9",
        "zstd -1",
        "zstd -19",
        "zstd --no-check",
        "zstd --long=27",
        "lz4 -1",
        "lz4 -9",
        "lz4 -B4 -BD",
        "lz4 -B7 -BX",
        "lz4 --content-size",
        "lz4 --no-frame-crc",
    ] {
        let mut words = line.split(' ');
        let program = words.next().expect("a program");
        let output = Command::new(program).args(words).args(["-c", &path]).output();
        let Ok(output) = output else {
            let _ = writeln!(std::io::stderr(), "skipped: {program} is not installed");
            continue;
        };
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(times_and_bytes(&output.stdout), expected, "{line}");
    }
}

/// A truncated compressed capture is read up to the fault. A wrong byte is detected.
#[test]
fn cut_and_broken_packed_captures_are_errors() {
    for pack in [packed, in_zstd, in_lz4] {
        let whole = pack(&three());
        let mut truncated = 0;
        for cut in 5..whole.len() {
            let (_, error) = read_memory(&whole[..cut]);
            // There is no error only if the format does not require more bytes at this point.
            let error = error.unwrap_or_else(|| panic!("cut at {cut} of {}", whole.len()));
            truncated += u32::from(matches!(error, ReadError::Truncated { .. }));
        }
        assert!(truncated as usize >= whole.len() - 16, "{truncated} of {}", whole.len());
        // Several blocks of each format; the last one is truncated.
        let noise: Vec<u8> = (0..1_400_000_u32).map(|i| (i.wrapping_mul(i ^ 0x9e37_79b9) >> 13) as u8).collect();
        let many: Vec<_> = noise.chunks(1_400).map(|packet| (1_u32, 0_u32, packet.len() as u32, packet)).collect();
        let long = pack(&classic(false, 0xa1b2_c3d4, 1, &many));
        let (packets, error) = read_memory(&long[..long.len() - long.len() / 8]);
        assert!(matches!(error, Some(ReadError::Truncated { .. })), "{error:?}");
        // Other programs write a block or a window that is larger than this capture.
        let gzip = long.starts_with(&[0x1f, 0x8b]);
        assert!((!packets.is_empty() || !gzip) && packets.len() < 1_000, "{} packets", packets.len());
    }
    let mut wrong = in_zstd(&three());
    let last = wrong.len() - 1;
    wrong[last] ^= 1;
    let text = read_memory(&wrong).1.expect("a checksum").to_string();
    assert!(text.contains("checksum of a Zstandard frame is wrong"), "{text}");
}

/// A frame that requires a window of 256 MiB is rejected before memory is allocated (RFC 8878 section 3.1.1.1.2).
#[test]
fn a_zstandard_window_above_the_limit_is_refused() {
    // Magic number, no checksum, not a single segment; window: 2^(10 + 18).
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 18 << 3, 0x01, 0x00, 0x00];
    let text = read_memory(&frame).1.expect("refused").to_string();
    assert!(text.contains("268435456"), "{text}");
    // A single segment has a window of the size of its content: 2^40 bytes.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 0x01, 0x00, 0x00];
    assert!(read_memory(&frame).1.is_some());
}

/// A record of a gigabyte of zeros, compressed to very few bytes, takes no more memory than a packet.
#[test]
fn a_bomb_takes_no_memory() {
    // A block of zeros in a section: 16 MiB for each member, and a block length of 4 GiB.
    let mut start = ng_start(false, 1, &[]);
    start.extend(enhanced(false, 0, 1, 60, &[1; 60]));
    start.extend(words(false, &[0x0bad, 0xffff_fffc]));
    let zeros = vec![0; 4 << 20];
    for pack in [packed, in_lz4] {
        let bomb = [pack(&start), pack(&zeros)].concat();
        assert!(bomb.len() < 100_000, "{}", bomb.len());
        let mut reader = Reader::new(&bomb[..]).expect("a capture");
        assert_eq!(reader.next().expect("one").expect("sound").bytes, [1; 60]);
        let error = reader.next().expect("an error").expect_err("the block is not there");
        assert!(matches!(error, ReadError::Truncated { record: 2, .. }), "{error}");
        assert!(reader.memory() < 1 << 19, "{} bytes", reader.memory());
    }
    // Lengths that no packet has are rejected before memory is allocated.
    for captured in [LONGEST as u32 + 1, 0x7fff_ffff, 0xffff_ffff] {
        let mut file = classic(false, 0xa1b2_c3d4, 1, &[]);
        file.extend(words(false, &[0, 0, captured, captured]));
        let error = read_memory(&file).1.expect("refused");
        assert!(matches!(error, ReadError::Corrupt { record: 1, at: 24, .. }), "{error}");
        let mut ng = ng_start(false, 1, &[]);
        ng.extend(words(false, &[6, 0xffff_fff0, 0, 0, 0, captured, captured]));
        assert!(matches!(read_memory(&ng).1, Some(ReadError::Corrupt { record: 1, at: 48, .. })));
        // A simple packet of that length, limited only by the interface's own limit.
        let mut ng = ng_start(false, 1, &[]);
        ng.extend(words(false, &[3, 0xffff_fff0, captured]));
        assert!(matches!(read_memory(&ng).1, Some(ReadError::Corrupt { record: 1, at: 48, .. })));
    }
}

/// The longest packet is read, and a packet with one more byte is rejected.
#[test]
fn packets_of_256_kib_are_read() {
    let frame = vec![3; LONGEST];
    let file = classic(true, 0xa1b2_c3d4, 1, &[(1, 0, LONGEST as u32, &frame)]);
    assert_eq!(times_and_bytes(&file)[0].1.len(), LONGEST);
    let mut ng = ng_start(true, 1, &[]);
    ng.extend(enhanced(true, 0, 1_000_000, LONGEST as u32, &frame));
    assert_eq!(times_and_bytes(&ng)[0].1.len(), LONGEST);
}

#[test]
fn errors_name_the_problem_and_its_position() {
    let ng = ng_start(false, 1, &[]);
    let broken = |tail: Vec<u8>| read_memory(&[&ng[..], &tail].concat()).1.expect("refused").to_string();
    let mut end = enhanced(false, 0, 1, 4, &[1; 4]);
    let last = end.len() - 1;
    end[last] = 1;
    for (tail, says) in [
        (words(false, &[6, 8]), "record 1 at byte 48 is invalid: the block has 8 bytes: allowed are 12 and more"),
        (words(false, &[6, 16, 0, 16]), "the block of 16 bytes is too short"),
        (words(false, &[0x0a0d_0d0a, 28, 7]), "the byte-order magic of the section is [07, 00, 00, 00]"),
        ([words(false, &[0x0a0d_0d0a, 28, 0x1a2b_3c4d]), halves(false, 2, 0)].concat(), "version 2: allowed is 1"),
        (enhanced(false, 9, 1, 4, &[1; 4]), "the packet has interface 9, but the section describes only 1 interface"),
        (words(false, &[6, 36, 0, 0, 0, 99, 99, 0, 36]), "99 captured bytes do not fit into a block of 36 bytes"),
        (end, "the block has the length 36 at its start and 16777252 at its end"),
        (words(false, &[6]), "the capture ends in the middle of its record 1, which starts at byte 48"),
        (words(false, &[6, 36, 0, 0]), "the capture ends in the middle of its record 1, which starts at byte 48"),
    ] {
        let text = broken(tail);
        assert!(text.contains(says), "{text}");
    }
    for (bytes, says) in [
        (&b"snoop\0\0\0\0\0\0\x02\0\0\0\x04"[..], "this is a snoop capture (RFC 1761): allowed are pcap and pcapng"),
        (b"GMBU\0\x02\x01\0", "this is a capture of Microsoft Network Monitor 2"),
        (b"\xfd7zXZ\0\0\x04", "this is an xz file"),
        (b"\x02\x21\x4c\x18\0\0\0\0", "this is an LZ4 file of the legacy frame format"),
        (b"hello, world, hello", "this is not a capture: it starts with the bytes [68, 65, 6c, 6c]"),
        (b"", "this is not a capture: it is empty; allowed are pcap and pcapng"),
    ] {
        let text = read_memory(bytes).1.expect("refused").to_string();
        assert!(text.starts_with(says), "{text}");
    }
}

/// A model: the blocks of a capture in any format, and the packets that must be read from them.
#[derive(Clone, Debug)]
enum Step {
    Packet { kind: u8, time: u32, bytes: Vec<u8>, cut: u8, options: bool },
    Other { kind: u32, body: Vec<u8> },
    Interface { options: Vec<(u16, Vec<u8>)>, nano: bool, ended: bool },
    Section { big: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
    let packet = (0_u8..3, any::<u32>(), bytes(100), any::<u8>(), any::<bool>())
        .prop_map(|(kind, time, bytes, cut, options)| Step::Packet { kind, time, bytes, cut, options });
    // Not a section, interface or packet.
    let other = (11_u32..0x0a0d_0000, bytes(200)).prop_map(|(kind, body)| Step::Other { kind, body });
    let option = (0_u16..40, bytes(20)).prop_filter("not of time, no end", |(code, _)| ![0, 9, 14].contains(code));
    let interface = (proptest::collection::vec(option, 0..4), any::<bool>(), any::<bool>())
        .prop_map(|(options, nano, ended)| Step::Interface { options, nano, ended });
    prop_oneof![8 => packet, 2 => other, 1 => interface, 1 => any::<bool>().prop_map(|big| Step::Section { big })]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn pcapng_is_read_as_it_was_written(steps in proptest::collection::vec(step(), 0..60), pack in 0_usize..4) {
        let (mut big, mut file, mut expected) = (false, ng_start(false, 1, &[]), Vec::new());
        let (mut nano, mut last) = (vec![false], 0);
        for step in steps {
            match step {
                Step::Section { big: order } => {
                    big = order;
                    file.extend(ng_start(big, 1, &[]));
                    nano = vec![false];
                }
                Step::Interface { options, nano: unit, ended } => {
                    let mut body = [halves(big, 1, 7), words(big, &[0])].concat();
                    options.iter().for_each(|(code, value)| body.extend(option(big, *code, value)));
                    if unit {
                        body.extend(option(big, 9, &[9]));
                    }
                    if ended {
                        body.extend([0; 4]);
                    }
                    file.extend(ng_block(big, 1, &body));
                    nano.push(unit);
                }
                Step::Other { kind, body } => file.extend(ng_block(big, kind, &body)),
                Step::Packet { kind: 0, bytes, .. } => {
                    file.extend(ng_block(big, 3, &[words(big, &[bytes.len() as u32]), bytes.clone()].concat()));
                    expected.push((last, bytes));
                }
                Step::Packet { kind, time, bytes, cut, options } => {
                    let interface = nano.len() - 1;
                    last = u64::from(time) * if nano[interface] { 1 } else { 1000 };
                    let lengths = [bytes.len() as u32, bytes.len() as u32 + u32::from(cut)];
                    let number =
                        if kind == 1 { words(big, &[interface as u32]) } else { halves(big, interface as u16, 9) };
                    let mut body = [number, words(big, &[0, time]), words(big, &lengths), bytes.clone()].concat();
                    if options {
                        body.resize(body.len().next_multiple_of(4), 0);
                        body.extend(option(big, 1, b"\xff\xfe"));
                    }
                    file.extend(ng_block(big, if kind == 1 { 6 } else { 2 }, &body));
                    expected.push((last, bytes));
                }
            }
        }
        let file = match pack {
            0 => file,
            1 => packed(&file),
            2 => in_zstd(&file),
            _ => in_lz4(&file),
        };
        prop_assert_eq!(times_and_bytes(&file), expected);
    }

    #[test]
    fn classic_is_read_as_it_was_written(
        packets in proptest::collection::vec(
            (any::<u32>(), 0_u32..1_000_000, 0_u32..9000, proptest::collection::vec(any::<u8>(), 0..100)), 0..40,
        ),
        big in any::<bool>(), nano in any::<bool>(), pack in 0_usize..4,
    ) {
        let records: Vec<_> = packets.iter().map(|(s, f, more, b)| (*s, *f, b.len() as u32 + more, &b[..])).collect();
        let file = classic(big, if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }, 1, &records);
        let file = match pack {
            0 => file.clone(),
            1 => packed(&file),
            2 => in_zstd(&file),
            _ => in_lz4(&file),
        };
        let mut reader = Reader::new(&file[..]).expect("a capture");
        for (seconds, fraction, original, bytes) in records {
            let nanos = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * if nano { 1 } else { 1000 };
            let expected = Record { nanos, original_len: original, bytes };
            prop_assert_eq!(reader.next().expect("one").expect("sound"), expected);
        }
        prop_assert!(reader.next().is_none());
    }
}
