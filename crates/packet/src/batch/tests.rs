//! Tests of a batch by itself. `pool/tests/model.rs` tests batches with pools and threads.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::testing::cases;
use crate::testing::driver_memory::DriverMemory;
use crate::{Pool, PoolOptions};

fn pool() -> Pool {
    Pool::new(PoolOptions { chunks: 600, frame: 64, headroom: 0, ..PoolOptions::default() }).expect("a small pool")
}

/// Creates a batch of `capacity` with `n` packets, whose flows count up from `first`.
fn batch(pool: &Pool, capacity: usize, n: usize, first: u32) -> Batch {
    let mut batch = Batch::with_capacity(capacity);
    assert_eq!(pool.fill(&mut batch, n), n.min(capacity));
    (first..).zip(batch.iter_mut()).for_each(|(flow, packet)| packet.set_flow(flow));
    batch
}

fn flows(packets: &[Packet]) -> Vec<u32> {
    packets.iter().map(Packet::flow).collect()
}

#[test]
fn a_capacity_is_at_least_one_and_at_most_the_largest_batch() {
    for (requested, capacity) in
        [(0, 1), (1, 1), (MAX_BATCH, MAX_BATCH), (MAX_BATCH + 1, MAX_BATCH), (usize::MAX, MAX_BATCH)]
    {
        assert_eq!(Batch::with_capacity(requested).capacity(), capacity);
    }
    assert_eq!((Batch::none().capacity(), Batch::none().room(), Batch::none().len()), (0, 0, 0));
}

#[test]
fn a_full_batch_gives_the_packet_back() {
    let pool = pool();
    let mut full = batch(&pool, 2, 2, 0);
    let packet = pool.take().expect("one");
    let packet = full.push(packet).expect_err("no room");
    assert!(Batch::none().push(packet).is_err());
    assert_eq!(flows(&full), [0, 1]);
}

#[test]
fn packets_can_be_reordered_in_place() {
    let pool = pool();
    let mut batch = batch(&pool, 8, 5, 0);
    batch.reverse();
    batch.swap(0, 1);
    assert_eq!(flows(&batch), [3, 4, 2, 1, 0]);
    drop(batch);
    pool.flush();
    assert_eq!(pool.out(), 0);
}

/// Regression test: the remaining packets moved through a pointer that a second borrow of the slots had invalidated
/// (found by Miri).
#[test]
fn remaining_packets_keep_their_order_after_append() {
    let pool = pool();
    let (mut from, mut to) = (batch(&pool, 8, 8, 10), batch(&pool, 5, 2, 0));
    assert_eq!(to.append(&mut from), 3);
    assert_eq!((flows(&to), flows(&from)), (vec![0, 1, 10, 11, 12], vec![13, 14, 15, 16, 17]));
    assert_eq!((to.append(&mut from), Batch::none().append(&mut from)), (0, 0));
    assert_eq!(flows(&from), [13, 14, 15, 16, 17]);
}

#[test]
fn a_panic_while_draining_loses_no_packet() {
    for at in 0..6 {
        let pool = pool();
        let mut batch = batch(&pool, 8, 6, 0);
        let mut kept = vec![];
        let drained = panic::catch_unwind(AssertUnwindSafe(|| {
            batch.drain_each(|index, packet| {
                if index == at {
                    panic::resume_unwind(Box::new("on purpose"));
                }
                kept.push(packet);
            });
        }));
        assert!(drained.is_err());
        assert_eq!((kept.len(), batch.len()), (at, 0));
        pool.flush();
        assert_eq!(pool.out(), at, "only the kept packets are out");
    }
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn packets_of_several_pools_return_to_their_pools(
        picks in proptest::collection::vec(0usize..3, 1..60), clear: bool,
    ) {
        let memories = [DriverMemory::new(20, 0, 64), DriverMemory::new(20, 64, 128)];
        let pools = [memories[0].pool(), memories[1].pool(), pool()];
        let mut batch = Batch::with_capacity(64);
        let mut taken = [0; 3];
        for pick in picks {
            if let Some(packet) = pools[pick].take() {
                prop_assert!(batch.push(packet).is_ok());
                taken[pick] += 1;
            }
        }
        for (pool, taken) in pools.iter().zip(taken) {
            pool.flush();
            prop_assert_eq!(pool.out(), taken);
        }
        if clear {
            batch.clear();
            prop_assert_eq!(batch.len(), 0);
        } else {
            drop(batch);
        }
        for pool in &pools {
            pool.flush();
            prop_assert_eq!(pool.out(), 0);
        }
        drop(pools);
        for memory in &memories {
            prop_assert_eq!((memory.home(), memory.wrong(), Arc::strong_count(memory)), (20, 0, 1));
        }
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_batch_handed_over_is_complete_and_in_order(room in 1usize..40, size in 0usize..40, capacity in 1usize..40) {
        let pool = pool();
        let mut from = batch(&pool, capacity, size, 7);
        let (before, mut to) = (flows(&from), Batch::with_capacity(room));
        from.hand_over(&mut to);
        prop_assert_eq!((flows(&to), from.len()), (before, 0));
    }

    #[test]
    fn a_run_has_one_flow_and_arrival_time(
        kinds in proptest::collection::vec((0u32..2, 0u64..2, any::<u8>()), 0..40), long in 0usize..40,
    ) {
        let pool = pool();
        let mut batch = batch(&pool, 80, long + kinds.len(), 0);
        let kinds: Vec<_> = std::iter::repeat_n((0, 0, 9), long).chain(kinds).collect();
        for (packet, (flow, arrival, mark)) in batch.iter_mut().zip(&kinds) {
            packet.set_flow(*flow << 31 | 5);
            packet.set_arrival(forebay_units::Ticks(*arrival << 63 | 3), crate::ArrivalClock::Poll);
            // Mark and words do not affect the comparison.
            packet.set_mark(*mark);
            packet.set_word(crate::Word::new(0).expect("the first"), u32::from(*mark));
        }
        let alike = |kind: &&(u32, u64, u8)| kinds.first().is_some_and(|first| (first.0, first.1) == (kind.0, kind.1));
        prop_assert_eq!(Packet::run_alike(&batch), kinds.iter().take_while(alike).count());
    }
}
