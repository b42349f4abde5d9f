//! Tests with blocks as the kernel writes them, and with invalid blocks.

use proptest::prelude::*;

use super::*;

const HEADER: usize = size_of::<libc::tpacket3_hdr>();

/// A frame to write into a block.
#[derive(Clone, Debug)]
struct TestFrame {
    bytes: Vec<u8>,
    beyond: u32,
    tag: Option<(Option<u16>, u16)>,
    virtio: [u8; VIRTIO],
    stamp: (u32, u32),
}

fn test_frame() -> impl Strategy<Value = TestFrame> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    let tag = proptest::option::of((proptest::option::of(any::<u16>()), any::<u16>()));
    let stamp = (any::<u32>(), 0..1_000_000_000u32);
    let all = (bytes, 0..3u32, tag, any::<[u8; VIRTIO]>(), stamp);
    all.prop_map(|(bytes, beyond, tag, virtio, stamp)| TestFrame { bytes, beyond, tag, virtio, stamp })
}

/// Builds a block as the kernel does (`prb_fill_curr_block`, `tpacket_rcv`).
fn block(frames: &[TestFrame]) -> Vec<u8> {
    let mut block = vec![0; 48];
    block[COUNT..COUNT + 4].copy_from_slice(&(frames.len() as u32).to_ne_bytes());
    block[FIRST..FIRST + 4].copy_from_slice(&48u32.to_ne_bytes());
    for (number, test_frame) in frames.iter().enumerate() {
        let mut frame = vec![0; HEADER + 20 + 12];
        let mac = frame.len() + VIRTIO;
        frame.extend(test_frame.virtio);
        frame.extend(&test_frame.bytes);
        frame.resize(frame.len().next_multiple_of(16), 0xee);
        let next = if number + 1 == frames.len() { 0 } else { frame.len() as u32 };
        let mut status = libc::TP_STATUS_USER;
        let (mut kind, mut control) = (0, 0);
        if let Some((known, tci)) = test_frame.tag {
            status |= libc::TP_STATUS_VLAN_VALID | known.map_or(0, |_| libc::TP_STATUS_VLAN_TPID_VALID);
            (kind, control) = (known.unwrap_or(0), u32::from(tci));
        }
        let length = test_frame.bytes.len() as u32;
        let words = [next, test_frame.stamp.0, test_frame.stamp.1, length, length + test_frame.beyond, status];
        words.iter().zip(frame.chunks_exact_mut(4)).for_each(|(word, to)| to.copy_from_slice(&word.to_ne_bytes()));
        frame[24..26].copy_from_slice(&(mac as u16).to_ne_bytes());
        frame[26..28].copy_from_slice(&(mac as u16 + 14).to_ne_bytes());
        frame[32..36].copy_from_slice(&control.to_ne_bytes());
        frame[36..38].copy_from_slice(&kind.to_ne_bytes());
        block.extend(frame);
    }
    block.resize(block.len().next_multiple_of(4_096), 0);
    block
}

proptest! {
    #[test]
    fn frames_that_the_kernel_writes_are_read(frames in proptest::collection::vec(test_frame(), 0..20)) {
        let block = block(&frames);
        let mut cursor = Cursor::new(&block);
        for (number, test_frame) in frames.iter().enumerate() {
            prop_assert_eq!(cursor.remaining() as usize, frames.len() - number);
            let frame = cursor.frame(&block).expect("within the block").expect("a frame remains");
            prop_assert_eq!(frame.bytes, &test_frame.bytes[..]);
            prop_assert_eq!(frame.is_cut(), test_frame.beyond > 0);
            let tag = test_frame.tag.map(|(kind, control)| {
                let (kind, control) = (kind.unwrap_or(0x8100).to_be_bytes(), control.to_be_bytes());
                [kind[0], kind[1], control[0], control[1]]
            });
            prop_assert_eq!(frame.tag, tag);
            let half = |at: usize| usize::from(u16::from_ne_bytes([test_frame.virtio[at], test_frame.virtio[at + 1]]));
            let partial = Partial { start: half(6), offset: half(8) };
            prop_assert_eq!(frame.partial, (test_frame.virtio[0] & 1 == 1).then_some(partial));
            prop_assert_eq!(frame.merged.is_some(), test_frame.virtio[1] & 0x7f != 0);
            prop_assert!(frame.merged.is_none_or(|merged| merged.size == half(4)));
            let (seconds, nanos) = (u64::from(test_frame.stamp.0), u64::from(test_frame.stamp.1));
            prop_assert_eq!(frame.stamp, if seconds == 0 { 0 } else { seconds * 1_000_000_000 + nanos });
            cursor.advance(&block);
        }
        prop_assert_eq!(cursor.frame(&block), Ok(None));
    }

    #[test]
    fn no_frame_exceeds_a_random_block(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        fuzz_block(&bytes);
    }

    /// Tests nearly valid blocks: some words of a valid block are changed.
    #[test]
    fn no_frame_exceeds_a_damaged_block(
        frames in proptest::collection::vec(test_frame(), 1..20),
        changes in proptest::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![any::<u32>(), 0..5_000u32]), 0..8,
        ),
    ) {
        let mut block = block(&frames);
        for (at, word) in changes {
            let at = at.index(block.len() / 4) * 4;
            block[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        fuzz_block(&block);
    }
}

#[test]
fn a_frame_that_exceeds_its_block_is_reported() {
    let test_frame = TestFrame { bytes: vec![1; 60], beyond: 0, tag: None, virtio: [0; VIRTIO], stamp: (1, 2) };
    let mut block = block(&[test_frame]);
    block[48 + 12..48 + 16].copy_from_slice(&5_000u32.to_ne_bytes());
    let error = Cursor::new(&block).frame(&block).expect_err("too long");
    assert_eq!(error.to_string(), "the frame at byte 48 exceeds its block of 4096 bytes");
}

/// The corpus of the fuzz target `block` contains blocks that a kernel could write, and invalid ones.
#[test]
fn the_corpus_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/block");
    let files = std::fs::read_dir(folder).expect("a folder");
    let count = files.map(|file| fuzz_block(&std::fs::read(file.expect("a file").path()).expect("bytes"))).count();
    assert!(count > 10, "{count}");
}
