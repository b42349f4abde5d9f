//! GTP-U messages byte by byte, as in the figures of TS 29.281, and random bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::cases;

fn parse(bytes: &[u8]) -> Message<'_> {
    Message::parse(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:02x?}"))
}

#[test]
fn a_plain_t_pdu() {
    let bytes = [0x30, 0xff, 0, 3, 0x12, 0x34, 0x56, 0x78, 0x45, 1, 2, 0xee];
    let message = parse(&bytes);
    assert_eq!((message.kind, message.teid, message.sequence), (kind::G_PDU, 0x1234_5678, None));
    assert_eq!(
        (message.payload_at, message.payload),
        (8, &[0x45, 1, 2][..]),
        "later bytes are not part of the message",
    );
    assert_eq!(Gtpu::g_pdu(3, 0x1234_5678).as_bytes(), &bytes[..8]);
    assert_eq!(Gtpu::PLAIN_G_PDU.to_be_bytes(), bytes[..2]);
}

#[test]
fn optional_fields_are_present_if_any_flag_is_set() {
    // Only the N-PDU number: sequence number and next type are present and have no meaning.
    let message = parse(&[0x31, 0xff, 0, 5, 0, 0, 0, 1, 9, 9, 9, 0x85, 0x45]);
    assert_eq!((message.sequence, message.payload_at, message.payload), (None, 12, &[0x45][..]));
    let message = parse(&[0x32, 0xff, 0, 4, 0, 0, 0, 1, 0xab, 0xcd, 9, 0x85]);
    assert_eq!((message.sequence, message.payload), (Some(0xabcd), &[][..]));
}

#[test]
fn extension_headers_are_skipped() {
    // A PDU Session Container of flow 9, a UDP port, a service class of two units.
    let bytes = [
        0x34,
        0xff,
        0,
        4 + 4 + 4 + 8 + 1,
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        0x85,
        1,
        0x10,
        0x89 & 0x3f,
        0x40,
        1,
        0x12,
        0x34,
        0x20,
        2,
        5,
        0,
        0,
        0,
        0,
        0,
        0,
        0x60,
    ];
    let message = parse(&bytes);
    assert_eq!((message.qfi, message.not_understood), (Some(9), None));
    assert_eq!((message.payload_at, message.payload), (28, &[0x60][..]));
    // A PDCP PDU number (0xc0), which must be understood and is not supported.
    let message = parse(&[0x34, 0xff, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0xc0, 1, 0, 5, 0, 0x45]);
    assert_eq!((message.not_understood, message.payload), (Some(0xc0), &[0x45][..]));
}

#[test]
fn invalid_messages_are_rejected() {
    assert_eq!(Message::parse(&[0x30; 7]), Err(GtpuError::Truncated(7)));
    assert_eq!(Message::parse(&[0x50, 255, 0, 0, 0, 0, 0, 0]), Err(GtpuError::Version(0x50)), "version 2");
    assert_eq!(Message::parse(&[0x20, 255, 0, 0, 0, 0, 0, 0]), Err(GtpuError::Version(0x20)), "GTP'");
    assert_eq!(Message::parse(&[0x30, 255, 0, 2, 0, 0, 0, 0, 1]), Err(GtpuError::Length { length: 2, available: 1 }));
    assert_eq!(
        Message::parse(&[0x32, 255, 0, 3, 0, 0, 0, 0, 1, 1, 1]),
        Err(GtpuError::Length { length: 3, available: 3 }),
        "no room for the optional fields"
    );
    for extension in [&[][..], &[0, 0, 0, 0], &[2, 0, 0, 0], &[1, 0, 0]] {
        let mut bytes = vec![0x34, 255, 0, 4 + extension.len() as u8, 0, 0, 0, 0, 0, 0, 0, 0x85];
        bytes.extend(extension);
        assert_eq!(Message::parse(&bytes), Err(GtpuError::Extension(0x85)), "{extension:?}");
    }
}

#[test]
fn signals_byte_by_byte() {
    let written = |signal: Signal, sequence| {
        let (bytes, len) = signal.emit(sequence);
        bytes[..len].to_vec()
    };
    assert_eq!(written(Signal::EchoRequest, 7), [0x32, 1, 0, 4, 0, 0, 0, 0, 0, 7, 0, 0]);
    assert_eq!(written(Signal::EchoResponse, 0x102), [0x32, 2, 0, 6, 0, 0, 0, 0, 1, 2, 0, 0, 14, 0]);
    let error = Signal::ErrorIndication { teid: 0xaabb_ccdd, peer: [192, 0, 2, 1].into() };
    let bytes = written(error, 0);
    assert_eq!(bytes[..12], [0x32, 26, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[12..], [16, 0xaa, 0xbb, 0xcc, 0xdd, 133, 0, 4, 192, 0, 2, 1]);
    let supported = written(Signal::SupportedExtensions, 0);
    assert_eq!(supported, [0x32, 31, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 141, 2, 0x40, 0x85]);
    let longest = Signal::ErrorIndication { teid: 1, peer: Ipv6Addr::LOCALHOST.into() };
    assert_eq!(written(longest, 0).len(), LONGEST_SIGNAL);
    for signal in [Signal::EchoRequest, Signal::EchoResponse, error, longest, Signal::SupportedExtensions] {
        assert_eq!(Signal::parse(&parse(&written(signal, 3))), Some(signal));
    }
    let without_address = [0x32, 26, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 1];
    assert_eq!(Signal::parse(&parse(&without_address)), None);
}

proptest! {
    #![proptest_config(cases(4_096))]

    #[test]
    fn written_messages_are_parsed_back(
        teid: u32,
        sequence in proptest::option::of(any::<u16>()),
        qfi in proptest::option::of(0u8..64),
        payload in vec(any::<u8>(), 0..64),
        padding in vec(any::<u8>(), 0..8),
    ) {
        let options = Options { sequence, qfi };
        let (flags, bytes) = options.emit();
        let mut header = Gtpu::g_pdu((options.len() + payload.len()) as u16, teid);
        header.flags = flags;
        let all = [header.as_bytes(), &bytes[..options.len()], &payload, &padding].concat();
        let message = parse(&all);
        prop_assert_eq!((message.kind, message.teid, message.sequence), (kind::G_PDU, teid, sequence));
        prop_assert_eq!((message.qfi, message.not_understood), (qfi, None));
        prop_assert_eq!((message.payload_at, message.payload), (8 + options.len(), &payload[..]));
        prop_assert_eq!(options.is_empty(), sequence.is_none() && qfi.is_none());
    }

    #[test]
    fn the_payload_is_part_of_the_message_for_any_bytes(
        mut bytes in vec(any::<u8>(), 0..80), flags in 0x30u8..0x38, length in 0u16..80, units in vec(0u8..4, 0..20),
    ) {
        // Likely to be a message: valid flags, a length that may fit, short extension headers.
        let put = |bytes: &mut Vec<u8>, at: usize, value: u8| if let Some(slot) = bytes.get_mut(at) { *slot = value };
        put(&mut bytes, 0, flags);
        put(&mut bytes, 2, 0);
        put(&mut bytes, 3, length as u8);
        for (index, units) in units.into_iter().enumerate() {
            put(&mut bytes, 12 + 4 * index, units);
        }
        if let Ok(message) = Message::parse(&bytes) {
            let end = message.payload_at + message.payload.len();
            prop_assert_eq!(end, 8 + usize::from(length), "the payload ends at the length");
            prop_assert_eq!(&bytes[message.payload_at..end], message.payload);
            let _ = Signal::parse(&message);
        }
    }
}
