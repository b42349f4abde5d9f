//! Both sides of a ring on plain memory: against a queue under random operations, and from two threads.

use std::cell::UnsafeCell;
use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A ring in memory of the test's own; what the kernel maps has the same parts.
struct Plain<T> {
    words: [AtomicU32; 3],
    entries: Box<[UnsafeCell<T>]>,
}

// SAFETY: the two sides reach the entries by the protocol of the indices.
unsafe impl<T: Entry> Sync for Plain<T> {}

// SAFETY: the words and entries are the value's own, on the heap as it is in an `Arc`.
unsafe impl<T: Entry> Place for Plain<T> {
    fn parts(&self) -> Parts {
        let [given, taken, flags] = &self.words;
        let entries = NonNull::from(&*self.entries).cast();
        let count = self.entries.len() as u32;
        Parts { given: given.into(), taken: taken.into(), flags: flags.into(), entries, count }
    }
}

/// A ring of `count` entries whose indices begin at `first`.
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
    /// What is written comes out once published, in order, once; what has no room is refused; room comes back when what was
    /// read is released. Also where the indices wrap round.
    #[test]
    fn a_ring_is_a_bounded_queue(operations in operations(), log in 0..5u32, first in prop_oneof![Just(0), u32::MAX - 40..=u32::MAX]) {
        let count = 1usize << log;
        let place = plain::<Descriptor>(count, first);
        let (mut giving, mut taking) = (Giving::new(place.clone()), Taking::new(place));
        // Written and not published; published and not read; read and not released.
        let (mut hidden, mut queue, mut unreleased, mut next) = (VecDeque::new(), VecDeque::new(), 0, 0u32);
        for operation in operations {
            match operation {
                Operation::Write(times) => for _ in 0..times {
                    let entry = Descriptor { address: u64::from(next) << 20, len: next, options: !next };
                    let room = count - hidden.len() - queue.len() - unreleased;
                    prop_assert_eq!(giving.room(99) as usize, room);
                    prop_assert_eq!(giving.write(entry), room > 0);
                    if room > 0 {
                        hidden.push_back(entry);
                        next += 1;
                    }
                },
                Operation::Publish => {
                    giving.publish();
                    queue.append(&mut hidden);
                }
                Operation::Read(times) => for _ in 0..times {
                    prop_assert_eq!(taking.waiting() as usize, queue.len());
                    let entry = queue.pop_front();
                    unreleased += usize::from(entry.is_some());
                    prop_assert_eq!(taking.read(), entry);
                },
                Operation::Release => {
                    taking.release();
                    unreleased = 0;
                }
            }
            prop_assert_eq!(giving.waiting() as usize, queue.len() + unreleased);
        }
    }
}

/// A kernel that takes from FILL what it gives to RX, on another thread: every address comes round, in order, and none twice.
#[test]
fn what_one_thread_gives_another_takes_in_order() {
    const TIMES: u64 = if cfg!(miri) { 300 } else { 200_000 };
    let (fill, rx) = (plain::<u64>(64, u32::MAX - 10), plain::<Descriptor>(32, 5));
    let (mut fill_kernel, mut rx_kernel) = (Taking::<u64>::new(fill.clone()), Giving::<Descriptor>::new(rx.clone()));
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
    let (mut fill, mut rx) = (Giving::<u64>::new(fill), Taking::<Descriptor>::new(rx));
    let (mut given, mut expected) = (0, 0);
    while expected < TIMES {
        while given < TIMES && fill.write(given) {
            given += 1;
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
fn the_kernels_wish_to_be_woken_is_seen() {
    let place = plain::<u64>(4, 0);
    let giving = Giving::<u64>::new(place.clone());
    assert!(!giving.needs_wakeup());
    place.words[2].store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    assert!(giving.needs_wakeup());
    place.words[2].store(!libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    assert!(!giving.needs_wakeup());
}
