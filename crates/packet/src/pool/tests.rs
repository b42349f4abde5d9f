//! Pools, batches and packets under random operations on two threads, compared with a model; and regression tests.

mod model;

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::{Arc, mpsc};
use std::thread;

use super::*;
use crate::testing::Numbers;
use crate::testing::driver_memory::DriverMemory;

fn pool(chunks: usize, order: Order) -> Pool {
    Pool::new(PoolOptions { chunks, frame: 128, headroom: 64, order, populated: false }).expect("a small pool")
}

/// Returns the address of a packet's chunk.
fn chunk(packet: &Packet) -> usize {
    std::ptr::from_ref(packet.meta()).addr()
}

fn elsewhere<R: Send + 'static>(job: impl FnOnce() -> R + Send + 'static) -> R {
    thread::spawn(job).join().expect("the thread does not panic")
}

#[test]
fn last_in_first_out_hands_out_the_chunk_that_came_back_last() {
    let pool = pool(16, Order::Lifo);
    let (first, second) = (pool.take().expect("one"), pool.take().expect("two"));
    let (one, two) = (chunk(&first), chunk(&second));
    drop(first);
    drop(second);
    let again = pool.take().expect("one");
    assert_eq!(chunk(&again), two);
    drop(again);
    let held = [pool.take().expect("one"), pool.take().expect("two")];
    assert_eq!(held.each_ref().map(chunk), [two, one]);
}

#[test]
fn first_in_first_out_goes_round_all_chunks() {
    for chunks in [1, 5, 16] {
        let pool = pool(chunks, Order::Fifo);
        let round = || (0..chunks).map(|_| chunk(&pool.take().expect("one"))).collect::<Vec<_>>();
        let first = round();
        let mut distinct = first.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), chunks);
        assert_eq!(round(), first);
    }
}

/// Regression test: when a thread took and returned more packets than it caches, it walked through the whole pool, and
/// each chunk was cold.
#[test]
fn packets_that_come_and_go_stay_within_the_chunks_that_they_had() {
    let pool = pool(16_384, Order::Lifo);
    let mut seen = std::collections::BTreeSet::new();
    let mut held = Vec::new();
    for round in 0..200 {
        // 1 200 packets are held once; after that, never more than 700.
        let many = if round == 10 { 1_200 } else { 700 };
        held.extend((held.len()..many).map(|_| pool.take().expect("one")));
        seen.extend(held.iter().map(chunk));
        held.clear();
    }
    assert!(seen.len() <= 2_048, "{} chunks of 16 384", seen.len());
}

#[test]
fn packets_filled_in_as_arrived_are_fresh_but_for_length_and_arrival() {
    let memory = DriverMemory::new(6, 32, 64);
    for pool in [memory.pool(), pool(6, Order::Lifo)] {
        let mut batch = Batch::with_capacity(8);
        for (len, given) in [(0, 0), (60, 60), (pool.frame_limit(), pool.frame_limit()), (1 << 16, pool.frame_limit())]
        {
            assert_eq!(pool.fill_arrived(&mut batch, 9, len, Ticks(7), ArrivalClock::Kernel), 6);
            for packet in batch.iter_mut() {
                assert_eq!((packet.len(), packet.tailroom()), (given, pool.frame_limit() - given));
                assert_eq!((packet.arrival(), packet.arrival_clock()), (Ticks(7), ArrivalClock::Kernel));
                assert_eq!((packet.flow(), packet.mark(), packet.missing()), (0, 0, 0));
                packet.data_mut().fill(0xaa);
                packet.set_flow(1);
                packet.set_mark(1);
                packet.set_missing(9);
            }
            batch.clear();
        }
        // Each call requests 8 packets, but the batch has less room.
        assert_eq!(pool.exhausted(), 4 * 2);
        pool.flush();
        assert_eq!(pool.out(), 0);
    }
    assert_eq!((memory.home(), memory.wrong()), (6, 0));
}

#[test]
fn errors_name_the_invalid_size() {
    let refused = |options: PoolOptions| Pool::new(options).expect_err("refused").to_string();
    let good = PoolOptions { chunks: 4, ..PoolOptions::default() };
    for chunks in [0, (1 << 24) + 1, usize::MAX] {
        let text = refused(PoolOptions { chunks, ..good });
        assert!(text.contains(&chunks.to_string()) && text.contains("16777216"), "{text}");
    }
    for frame in [65_344, 65_536, usize::MAX] {
        let text = refused(PoolOptions { frame, ..good });
        assert!(text.contains(&frame.to_string()) && text.contains("65343"), "{text}");
    }
    assert!(refused(PoolOptions { frame: 63, ..good }).contains("leaves 63 bytes"));
    assert!(refused(PoolOptions { headroom: 65_000, ..good }).contains("65535"));
    assert_eq!(Pool::new(PoolOptions { frame: 64, headroom: 0, ..good }).expect("the least").frame_limit(), 64);
    assert_eq!(Pool::new(PoolOptions { frame: 65_343, ..good }).expect("the most").frame_limit(), 65_343);
}

#[test]
fn a_pools_memory_is_whole_huge_pages() {
    let good = PoolOptions::default();
    // 64 + 2 048 + 128 bytes are 35 lines.
    assert_eq!(good.bytes(), (16_384usize * 35 * 64).next_multiple_of(1 << 21));
    assert_eq!(PoolOptions { chunks: 1, ..good }.bytes(), 1 << 21);
    let most = PoolOptions { chunks: usize::MAX, frame: usize::MAX, headroom: usize::MAX, ..good };
    assert!(most.bytes() > good.bytes());
}

/// Regression test: the sum of offset and headroom wrapped, and packets pointed outside their chunks.
#[test]
fn a_headroom_that_overflows_is_refused() {
    for headroom in [usize::MAX, usize::MAX - 63, usize::MAX - 64 - 2_048 + 1, 1 << 63] {
        let options = PoolOptions { chunks: 4, headroom, ..PoolOptions::default() };
        assert!(matches!(Pool::new(options), Err(PoolError::Layout(_))), "headroom {headroom}");
        let layout = Layout { data: 64, headroom, end: 2_048 };
        assert_eq!(layout.check(), Err(LayoutError::Room { headroom, remaining: 0 }));
    }
}

#[test]
fn an_invalid_start_of_packet_memory_is_refused() {
    for data in [0, 63, 65, 100, 16_384] {
        assert_eq!(Layout { data, headroom: 0, end: 20_000 }.check(), Err(LayoutError::Data(data)));
    }
    for data in [64, 128, 16_320] {
        assert_eq!(Layout { data, headroom: 0, end: 20_000 }.check(), Ok(()));
    }
}

/// Regression test: a thread that had taken every cached chunk and returned none kept an empty cache of a closed pool.
/// The next pool with that number then took chunks from the old pool's memory.
#[test]
fn an_empty_cache_of_a_closed_pool_is_not_reused() {
    let (jobs, inbox) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    let other_thread = thread::spawn(move || inbox.into_iter().for_each(|job| job()));
    let (taken, arrived) = mpsc::channel();
    for round in 0..4u64 {
        // With a capacity of 1, the thread's cache is empty once it has taken the chunk.
        let memory = DriverMemory::new(1, 0, 64);
        let pool = Arc::new(memory.pool());
        let (shared, reply) = (Arc::clone(&pool), taken.clone());
        let job = move || {
            let packet = shared.take();
            drop(shared);
            reply.send(packet).expect("the test waits");
        };
        jobs.send(Box::new(job)).expect("the thread waits");
        let packet = arrived.recv().expect("a reply");
        assert!(packet.is_some(), "round {round}");
        assert_eq!((pool.out(), memory.home()), (1, 0), "round {round}: the chunk belongs to this pool");
        drop(pool);
        drop(packet);
        assert_eq!((memory.home(), memory.wrong()), (1, 0), "round {round}: the chunk returns to its pool");
    }
    drop(jobs);
    other_thread.join().expect("no panic");
}

/// Regression test: two threads may find at the same time that a pool is idle. The second removed the next pool with
/// that number from the registry.
#[test]
fn removing_a_pool_twice_keeps_its_successor() {
    let pool = pool(4, Order::Lifo);
    let gone = Inner {
        id: pool.inner.id,
        backing: Box::new(native::native(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("memory")),
        capacity: 1,
        fresh: pool.inner.fresh,
        order: Order::Lifo,
        out: AtomicUsize::new(0),
        caches: AtomicUsize::new(0),
        closed: AtomicBool::new(true),
        exhausted: AtomicU64::new(0),
    };
    gone.release_if_idle();
    assert!(registry::get(pool.inner.id).is_some_and(|registered| Arc::ptr_eq(&registered, &pool.inner)));
}

/// Regression test: a long-lived thread kept the memory and the number of every pool it had used.
#[test]
fn a_thread_releases_closed_pools_when_it_uses_a_new_pool() {
    let old = pool(64, Order::Lifo);
    let memory = Arc::downgrade(&old.inner);
    drop(old.take());
    elsewhere(move || drop(old));
    assert_ne!(memory.strong_count(), 0, "chunks are still in this thread's cache");
    drop(pool(64, Order::Lifo).take());
    assert_eq!(memory.strong_count(), 0);
}

#[test]
fn a_packet_outlives_its_pools_handle() {
    let memory = DriverMemory::new(8, 64, 128);
    let pool = memory.pool();
    let mut packet = pool.take().expect("one");
    assert!(packet.write(b"still here"));
    drop(pool);
    let packet = elsewhere(move || packet);
    assert_eq!(packet.data(), b"still here");
    assert_eq!(memory.home(), 7);
    elsewhere(move || drop(packet));
    assert_eq!((memory.home(), memory.wrong(), Arc::strong_count(&memory)), (8, 0, 1));
}

#[test]
fn packets_that_an_ending_thread_drops_are_returned() {
    thread_local! { static LAST: RefCell<Vec<Packet>> = const { RefCell::new(Vec::new()) }; }
    for keep_first in [true, false] {
        let memory = DriverMemory::new(16, 0, 64);
        let pool = Arc::new(memory.pool());
        let shared = Arc::clone(&pool);
        elsewhere(move || {
            // The thread-local that is used first is destroyed last: in one round after the caches, in one before.
            let keep = |packet| LAST.with_borrow_mut(|last| last.push(packet));
            if keep_first {
                LAST.with_borrow_mut(Vec::clear);
            }
            (0..3).for_each(|_| keep(shared.take().expect("one")));
        });
        assert_eq!((pool.out(), memory.home(), memory.wrong()), (0, 16, 0));
    }
}

#[test]
fn threads_that_pass_packets_on_lose_none_and_share_none() {
    const THREADS: usize = 3;
    let turns = if cfg!(miri) { 40 } else { 20_000 };
    let (native, memory) = (pool(64, Order::Lifo), DriverMemory::new(48, 64, 64));
    let weak = Arc::downgrade(&native.inner);
    let pools = Arc::new([native, memory.pool()]);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<(u64, Packet)>()).unzip();
    let threads: Vec<_> = receivers
        .into_iter()
        .enumerate()
        .map(|(index, inbox)| {
            let (pools, next) = (Arc::clone(&pools), senders[(index + 1) % THREADS].clone());
            thread::spawn(move || {
                let mut numbers = Numbers(0x9e37_79b9 + index as u64);
                let mut held: Vec<(u64, Packet)> = Vec::new();
                for turn in 0..turns {
                    if let Some(mut packet) = pools[numbers.below(2)].take() {
                        let stamp = (index * turns + turn) as u64;
                        assert!(packet.write(&stamp.to_ne_bytes()));
                        held.push((stamp, packet));
                    }
                    held.extend(inbox.try_iter());
                    for _ in 0..numbers.below(4).min(held.len()) {
                        let (stamp, packet) = held.swap_remove(numbers.below(held.len()));
                        assert_eq!(packet.data(), stamp.to_ne_bytes(), "no other thread wrote to this packet");
                        if numbers.below(2) == 0 {
                            // The next thread may have ended; the packet is then dropped here.
                            drop(next.send((stamp, packet)));
                        }
                    }
                    if numbers.below(64) == 0 {
                        pools[numbers.below(2)].flush();
                    }
                }
            })
        })
        .collect();
    drop((senders, pools));
    threads.into_iter().for_each(|thread| thread.join().expect("no packet was shared"));
    assert_eq!(weak.strong_count(), 0, "the last chunk returned to the native pool");
    assert_eq!((memory.home(), memory.wrong(), Arc::strong_count(&memory)), (48, 0, 1));
}

#[test]
fn packets_filled_with_lines_hold_the_lines_picked() {
    let memory = DriverMemory::new(6, 32, 64);
    let lines = [1, 2, 3].map(|byte| Line([byte; 64]));
    for pool in [memory.pool(), pool(6, Order::Lifo), pool(6, Order::Fifo)] {
        let mut batch = Batch::with_capacity(8);
        let picks = [2, 0, 1, 9, 0, 0, 0, 0, 0, 0];
        assert_eq!(pool.fill_lines(&mut batch, &picks, &lines, 60, Ticks(7), ArrivalClock::Intended), 6);
        // An index out of range selects the first line.
        for (packet, byte) in batch.iter_mut().zip([3, 1, 2, 1, 1, 1]) {
            assert_eq!(packet.data(), [byte; 60]);
            assert_eq!((packet.arrival(), packet.arrival_clock()), (Ticks(7), ArrivalClock::Intended));
        }
        batch.clear();
        assert_eq!(pool.fill_lines(&mut batch, &picks, &[], 60, Ticks(7), ArrivalClock::Poll), 0);
        pool.flush();
        assert_eq!(pool.out(), 0);
    }
    assert_eq!((memory.home(), memory.wrong()), (6, 0));
}

/// As a driver does it: chunks without packets go to a device, return with frames, and go out again.
#[test]
fn chunks_go_to_a_device_and_come_back_as_packets_or_alone() {
    let layout = Layout { data: 64, headroom: 256, end: 64 + 2_304 };
    let slab = Slab::new(layout, 37 * 64, 8, false).expect("memory");
    let start = slab.start();
    let pool = Pool::foreign(Box::new(slab), 8).expect("a pool");
    let mut chunks = [Chunk::new(NonNull::dangling()); 12];
    assert_eq!(pool.take_chunks(&mut chunks), 8);
    assert_eq!((pool.out(), pool.exhausted()), (8, 4));
    let inside = |chunk: &Chunk| chunk.address().addr().get() - start.addr().get();
    assert!(chunks[..8].iter().all(|chunk| inside(chunk).is_multiple_of(37 * 64) && inside(chunk) < 8 * 37 * 64));
    for (at, chunk) in chunks[..8].iter().enumerate() {
        // SAFETY: the test owns the chunk, and the frame is inside its packet memory.
        let mut packet = unsafe {
            chunk.address().add(300).write_bytes(at as u8, 60);
            assert!(pool.packet(*chunk, 63, 60, Ticks(1), ArrivalClock::Poll).is_none());
            assert!(pool.packet(*chunk, 2_309, 60, Ticks(1), ArrivalClock::Poll).is_none());
            pool.packet(*chunk, 300, 60, Ticks(7), ArrivalClock::Kernel).expect("inside")
        };
        assert!(pool.owns(&packet));
        assert_eq!((packet.data(), packet.arrival(), packet.headroom()), ([at as u8; 60].as_slice(), Ticks(7), 236));
        packet.prepend(4).expect("headroom").fill(9);
        assert_eq!((packet.start(), packet.len()), (296, 64));
        assert_eq!(packet.into_chunk(), *chunk);
    }
    // SAFETY: the test owns all eight chunks, and none of them is a packet.
    unsafe { pool.give_chunks(&chunks[..8]) };
    assert!(pool.take().is_some_and(|packet| packet.tailroom() == 2_048));
    pool.flush();
    assert_eq!(pool.out(), 0);
    assert!(!pool.owns(&self::pool(1, Order::Lifo).take().expect("one")));
}

#[test]
fn chunks_that_would_overlap_are_refused() {
    let layout = Layout { data: 64, headroom: 0, end: 256 };
    for stride in [0, 64, 255, 257, 300, (1 << 17) + 64] {
        assert!(matches!(Slab::new(layout, stride, 4, false), Err(PoolError::Stride { .. })), "{stride}");
    }
    assert!(matches!(Slab::new(layout, 256, 0, false), Err(PoolError::Chunks(0))));
}
