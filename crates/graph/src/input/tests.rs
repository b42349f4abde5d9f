//! Compares the fractional buffer with a plain queue.

use std::collections::VecDeque;

use forebay_packet::{Pool, PoolOptions};
use proptest::prelude::*;

use super::*;

const BATCH: usize = 32;

#[derive(Clone, Debug)]
enum Operation {
    Push(usize),
    PushAll(usize),
    Take,
    SetTrigger(usize),
    Release,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let trigger = prop_oneof![Just(0), Just(1), Just(BATCH), 0..=BATCH];
    let operation = prop_oneof![
        4 => (1..70usize).prop_map(Operation::Push),
        3 => (1..=BATCH).prop_map(Operation::PushAll),
        6 => Just(Operation::Take),
        1 => trigger.prop_map(Operation::SetTrigger),
        1 => Just(Operation::Release),
    ];
    proptest::collection::vec(operation, 1..120)
}

struct Bench {
    pool: Pool,
    input: Input,
    spares: Spares,
    waiting: VecDeque<u32>,
    next: u32,
}

impl Bench {
    fn new() -> Self {
        let pool = Pool::new(PoolOptions { chunks: 1 << 13, frame: 64, headroom: 0, ..PoolOptions::default() });
        Self {
            pool: pool.expect("memory"),
            input: Input::new(BATCH),
            spares: Spares::new(BATCH, 2),
            waiting: VecDeque::new(),
            next: 0,
        }
    }

    fn packet(&mut self) -> Option<Packet> {
        let mut packet = self.pool.take()?;
        packet.set_flow(self.next);
        self.waiting.push_back(self.next);
        self.next += 1;
        Some(packet)
    }

    /// Takes one batch, and checks that it has the oldest packets in order. Returns its size.
    fn take(&mut self) -> Option<usize> {
        let mut batch = Batch::with_capacity(BATCH);
        let ready = self.input.is_ready();
        let taken = self.input.take(&mut batch, &mut self.spares);
        assert_eq!(taken, ready, "ready predicts take");
        for packet in batch.iter() {
            assert_eq!(Some(packet.flow()), self.waiting.pop_front(), "in order");
        }
        taken.then_some(batch.len())
    }
}

proptest! {
    #[test]
    fn a_buffer_is_a_queue_with_exact_batches(operations in operations()) {
        let mut bench = Bench::new();
        // Whether all waiting packets came under the present trigger.
        let mut exact = true;
        for operation in operations {
            match operation {
                Operation::Push(n) => for _ in 0..n {
                    let Some(packet) = bench.packet() else { break };
                    let ready = bench.input.push(packet, Ticks(1), &mut bench.spares);
                    prop_assert!(!ready || bench.input.is_ready());
                },
                Operation::PushAll(n) => {
                    let mut batch = Batch::with_capacity(BATCH);
                    for _ in 0..n {
                        batch.push(bench.packet().expect("the pool is larger than this test")).expect("room");
                    }
                    let ready = bench.input.push_all(&mut batch, Ticks(2), &mut bench.spares);
                    prop_assert!(batch.is_empty());
                    prop_assert!(!ready || bench.input.is_ready());
                }
                Operation::Take => {
                    let (trigger, waiting) = (bench.input.trigger(), bench.waiting.len());
                    let taken = bench.take();
                    match (trigger, taken) {
                        (0, None) => prop_assert_eq!(waiting, 0, "without a trigger no packet waits"),
                        (0, Some(size)) => prop_assert!(size <= BATCH),
                        (b, None) => prop_assert!(waiting < b, "{} wait for {}", waiting, b),
                        (b, Some(size)) if exact => prop_assert_eq!(size, b),
                        (b, Some(size)) => prop_assert!(size <= b),
                    }
                    exact |= bench.waiting.is_empty();
                }
                Operation::SetTrigger(trigger) => {
                    bench.input.set_trigger(trigger, BATCH, Ticks::ZERO, &mut bench.spares);
                    prop_assert_eq!(bench.input.trigger(), trigger);
                    let waits = !bench.waiting.is_empty();
                    prop_assert!(trigger > 0 || !waits || bench.input.is_ready(), "ready when lowered to 0");
                    exact = true;
                }
                Operation::Release => {
                    bench.input.release(&mut bench.spares);
                    prop_assert!(bench.waiting.is_empty() || bench.input.is_ready(), "no packet is stranded");
                    exact = bench.waiting.is_empty();
                }
            }
            prop_assert_eq!(bench.input.len(), bench.waiting.len());
        }
        bench.input.release(&mut bench.spares);
        while bench.take().is_some() {}
        prop_assert!(bench.waiting.is_empty(), "all packets can be taken in the end");
    }
}

#[test]
fn a_lowered_trigger_releases_at_once_in_batches_of_the_new_size() {
    let mut bench = Bench::new();
    bench.input.set_trigger(16, BATCH, Ticks::ZERO, &mut bench.spares);
    for _ in 0..15 {
        let packet = bench.packet().expect("a chunk");
        assert!(!bench.input.push(packet, Ticks(7), &mut bench.spares));
    }
    bench.input.set_trigger(4, BATCH, Ticks::ZERO, &mut bench.spares);
    assert_eq!([bench.take(), bench.take(), bench.take(), bench.take()], [Some(4), Some(4), Some(4), None]);
    bench.input.set_hold(Ticks(3));
    assert_eq!(bench.input.due(), Some(Ticks(10)), "the rest keeps its age");
}

#[test]
fn a_hold_limit_counts_from_the_oldest_packet() {
    let mut bench = Bench::new();
    bench.input.set_trigger(8, BATCH, Ticks::ZERO, &mut bench.spares);
    bench.input.set_hold(Ticks(100));
    assert_eq!(bench.input.due(), None);
    for now in [10, 20] {
        let packet = bench.packet().expect("a chunk");
        bench.input.push(packet, Ticks(now), &mut bench.spares);
    }
    assert_eq!(bench.input.due(), Some(Ticks(110)));
}
