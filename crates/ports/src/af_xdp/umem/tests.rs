//! Tests chunks and addresses of every shape, and possible actions of a kernel.

use std::sync::Arc;

use forebay_units::Ticks;

use super::*;
use crate::af_xdp::ring::Descriptor;

const SHAPES: [Shape; 5] = [
    Shape { chunks: 100, frame: 2_048, aligned: false },
    Shape { chunks: 100, frame: 64, aligned: false },
    Shape { chunks: 100, frame: Shape::longest(false), aligned: false },
    Shape { chunks: 100, frame: 1_728, aligned: true },
    Shape { chunks: 100, frame: Shape::longest(true), aligned: true },
];

#[test]
fn a_chunk_holds_the_frame_and_is_aligned_for_the_kernel() {
    for shape in SHAPES {
        let umem = Umem::new(shape).expect("memory");
        assert!(umem.pool().frame_limit() >= shape.frame, "{shape:?}");
        let registration = umem.registration();
        assert!((2_048..=4_096).contains(&registration.chunk_size) && registration.addr.is_multiple_of(4_096));
        assert_eq!(registration.len, umem.stride * 100);
        if shape.aligned {
            assert!(registration.chunk_size.is_power_of_two() && umem.stride == u64::from(registration.chunk_size));
        } else {
            assert_eq!(umem.stride / 64 % 2, 1, "an odd number of lines");
        }
        // The frame after both headrooms of the kernel is where a fresh packet has its own.
        let first = umem.lead + u64::from(registration.headroom) + HEADROOM as u64;
        assert_eq!(umem.pool().take().expect("one").start() as u64, first);
    }
}

#[test]
fn addresses_are_decoded_as_encoded_and_others_are_rejected() {
    for shape in SHAPES {
        let umem = Umem::new(shape).expect("memory");
        for index in 0..100 {
            for start in [umem.lead as usize, 64, 300, shape.chunk()] {
                let start = start.min(umem.stride as usize - 1);
                assert_eq!(umem.decode(umem.encode(index, start)), Some((index, start)));
            }
            // SAFETY: each shape has 100 chunks.
            assert_eq!(umem.index_of(unsafe { umem.chunk(index) }), index);
        }
        for outside in [umem.encode(100, 64), umem.stride * 100, ADDRESS, u64::MAX] {
            assert_eq!(umem.decode(outside), None);
        }
    }
}

/// A kernel may return chunks correctly or incorrectly: no chunk is accepted twice, and all chunks return to the pool.
#[test]
fn lent_chunks_return_once_and_all_are_freed_at_the_end() {
    for shape in SHAPES {
        let umem = Arc::new(Umem::new(shape).expect("memory"));
        let mut lent = Lent::new(Arc::clone(&umem));
        let mut addresses = Vec::new();
        assert_eq!(lent.lend_free(60, |address| addresses.push(address)), 60);
        assert_eq!(lent.lend_free(60, |address| addresses.push(address)), 40);
        assert_eq!((lent.count(), umem.pool().out()), (100, 100));
        let frame = |address: u64, len| {
            let (index, _) = umem.decode(address).expect("ours");
            Descriptor { address: umem.encode(index, 64 + HEADROOM), len, options: 0 }
        };
        let packet = lent.packet(frame(addresses[0], 60), Ticks(3)).expect("it was lent");
        assert_eq!((packet.len(), packet.headroom(), packet.arrival()), (60, HEADROOM, Ticks(3)));
        assert!(lent.packet(frame(addresses[0], 60), Ticks(3)).is_none(), "twice");
        assert!(lent.packet(frame(addresses[1], 9_999), Ticks(3)).is_none(), "longer than a chunk");
        assert!(!lent.sent(addresses[1]), "twice");
        assert_eq!(lent.count(), 98);
        let back = lent.lend_packet(packet).expect("of this memory");
        assert_eq!((back, lent.count()), (frame(addresses[0], 60), 99));
        assert!(lent.sent(back.address) && !lent.sent(back.address));
        assert!(!lent.sent(u64::MAX));
        // SAFETY: there is no socket at all.
        unsafe { lent.reclaim(false) };
        umem.pool().flush();
        assert_eq!((lent.count(), umem.pool().out()), (0, 0));
        let other = Pool::new(Default::default()).expect("memory").take().expect("one");
        assert!(lent.lend_packet(other).is_err());
    }
}

/// Regression test: a port received only as many frames as it had given the kernel chunks at its start. An optimised
/// build did not count the returned chunks (see `mark_returned`). This fails only with `cargo test --release`.
#[test]
fn chunks_returned_in_a_loop_are_counted() {
    let umem = Arc::new(Umem::new(SHAPES[0]).expect("memory"));
    let mut lent = Lent::new(Arc::clone(&umem));
    let mut descriptors = Vec::new();
    lent.lend_free(100, |address| {
        let (index, _) = umem.decode(address).expect("ours");
        descriptors.push(Descriptor { address: umem.encode(index, 64 + HEADROOM), len: 60, options: 0 });
    });
    descriptors.push(descriptors[0]);
    let (mut packets, mut rejected) = (forebay_packet::Batch::with_capacity(200), 0);
    for descriptor in std::hint::black_box(&descriptors) {
        match lent.packet(*descriptor, Ticks(3)) {
            Some(packet) => _ = packets.push(packet),
            None => rejected += 1,
        }
    }
    assert_eq!((lent.count(), packets.len(), rejected), (0, 100, 1));
}

#[test]
fn a_quarter_of_the_memory_cannot_be_reserved() {
    let umem = Umem::new(SHAPES[0]).expect("memory");
    assert_eq!(umem.reserve(50), Ok(()));
    assert_eq!(umem.reserve(26), Err(25));
    umem.release(50);
    assert_eq!(umem.reserve(75), Ok(()));
}
