//! Tests both sides of a ring on plain memory: against a queue with random operations, and from two threads.

use std::cell::UnsafeCell;
use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A ring in the test's own memory, with the same parts as one that the kernel maps.
struct Plain<T> {
    words: [AtomicU32; 3],
    entries: Box<[UnsafeCell<T>]>,
}

// SAFETY: the two sides access the entries by the protocol of the indices.
unsafe impl<T: Entry> Sync for Plain<T> {}

// SAFETY: the value owns the words and the entries, and it is on the heap in an `Arc`.
unsafe impl<T: Entry> RingMemory for Plain<T> {
    fn parts(&self) -> Parts {
        let [produced, consumed, flags] = &self.words;
        let entries = NonNull::from(&*self.entries).cast();
        let count = self.entries.len() as u32;
        Parts { produced: produced.into(), consumed: consumed.into(), flags: flags.into(), entries, count }
    }
}

/// Returns a ring of `count` entries whose indices begin at `first`.
fn plain<T: Entry + Default>(count: usize, first: u32) -> Arc<Plain<T>> {
    let entries = (0..count).map(|_| UnsafeCell::new(T::default())).collect();
    Arc::new(Plain { words: [first.into(), first.into(), 0.into()], entries })
}

#[derive(Clone, Debug)]
enum Operation {
    Write(u8),
    Publish,
    Read(u8),
    Release,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let one = prop_oneof![
        (0..20u8).prop_map(Operation::Write),
        Just(Operation::Publish),
        (0..20u8).prop_map(Operation::Read),
        Just(Operation::Release),
    ];
    proptest::collection::vec(one, 0..200)
}

proptest! {
    /// Published entries are read once, in order. A write without room is rejected. Released entries become room again.
    /// The indices may wrap around.
    #[test]
    fn a_ring_is_a_bounded_queue(
        operations in operations(),
        log in 0..5u32,
        first in prop_oneof![Just(0), u32::MAX - 40..=u32::MAX],
    ) {
        let count = 1usize << log;
        let memory = plain::<Descriptor>(count, first);
        // SAFETY: the memory was made for this ring, of these entries, and has these two sides only.
        let (mut producer, mut consumer) = unsafe { (Producer::new(memory.clone()), Consumer::new(memory)) };
        // The written but unpublished entries; the published but unread entries; the number of read but unreleased
        // entries.
        let (mut hidden, mut queue, mut unreleased, mut next) = (VecDeque::new(), VecDeque::new(), 0, 0u32);
        for operation in operations {
            match operation {
                Operation::Write(times) => for _ in 0..times {
                    let entry = Descriptor { address: u64::from(next) << 20, len: next, options: !next };
                    let room = count - hidden.len() - queue.len() - unreleased;
                    prop_assert_eq!(producer.room(99) as usize, room);
                    prop_assert_eq!(producer.write(entry), room > 0);
                    if room > 0 {
                        hidden.push_back(entry);
                        next += 1;
                    }
                },
                Operation::Publish => {
                    producer.publish();
                    queue.append(&mut hidden);
                }
                Operation::Read(times) => for _ in 0..times {
                    prop_assert_eq!(consumer.waiting() as usize, queue.len());
                    let entry = queue.pop_front();
                    unreleased += usize::from(entry.is_some());
                    prop_assert_eq!(consumer.read(), entry);
                },
                Operation::Release => {
                    consumer.release();
                    unreleased = 0;
                }
            }
            prop_assert_eq!(producer.waiting() as usize, queue.len() + unreleased);
        }
    }
}

/// Simulates a kernel on another thread that moves addresses from FILL to RX: every address arrives once, in order.
#[test]
fn entries_from_one_thread_are_read_by_another_in_order() {
    const TIMES: u64 = if cfg!(miri) { 300 } else { 200_000 };
    let (fill, rx) = (plain::<u64>(64, u32::MAX - 10), plain::<Descriptor>(32, 5));
    let (mut fill_kernel, mut rx_kernel) =
        // SAFETY: the test is the other side of each ring, with these entries, and makes no further side.
        unsafe { (Consumer::<u64>::new(fill.clone()), Producer::<Descriptor>::new(rx.clone())) };
    let kernel = std::thread::spawn(move || {
        let mut received = 0;
        while received < TIMES {
            let room = rx_kernel.room(8);
            for address in (0..room).map_while(|_| fill_kernel.read()) {
                received += 1;
                assert!(rx_kernel.write(Descriptor { address, len: 60, options: 0 }), "there is room");
            }
            fill_kernel.release();
            rx_kernel.publish();
            std::thread::yield_now();
        }
    });
    // SAFETY: each ring has one side there and one here, with these entries.
    let (mut fill, mut rx) = unsafe { (Producer::<u64>::new(fill), Consumer::<Descriptor>::new(rx)) };
    let (mut produced, mut expected) = (0, 0);
    while expected < TIMES {
        while produced < TIMES && fill.write(produced) {
            produced += 1;
        }
        fill.publish();
        while let Some(descriptor) = rx.read() {
            assert_eq!(descriptor, Descriptor { address: expected, len: 60, options: 0 });
            expected += 1;
        }
        rx.release();
        std::thread::yield_now();
    }
    kernel.join().expect("no panic");
}

#[test]
fn the_kernels_wakeup_flag_is_read() {
    let memory = plain::<u64>(4, 0);
    // SAFETY: it is the only producer of the ring.
    let producer = unsafe { Producer::<u64>::new(memory.clone()) };
    assert!(!producer.needs_wakeup());
    memory.words[2].store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    assert!(producer.needs_wakeup());
    memory.words[2].store(!libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    assert!(!producer.needs_wakeup());
}
