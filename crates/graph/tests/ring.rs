//! Compares the ring with a queue, and tests it with two threads.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;

use forebay_graph::ring::{Head, ring};

#[derive(Clone, Debug)]
enum Step {
    Send(u32, usize),
    Peek,
    Receive,
}

fn steps(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..5u32, 0..=longest).prop_map(|(tag, items)| Step::Send(tag, items)),
        Just(Step::Peek),
        Just(Step::Receive),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn a_ring_is_a_queue_that_refuses_only_messages_without_room(
        (items, longest, steps) in (0..100usize, 1..40usize)
            .prop_flat_map(|(items, longest)| (Just(items), Just(longest), steps(longest))),
    ) {
        let (mut sender, mut receiver) = ring(items, longest);
        let slots = sender.slots();
        let mut model: VecDeque<(Head, Vec<Arc<u64>>)> = VecDeque::new();
        let (mut number, every) = (0u64, Arc::new(0));
        for step in steps {
            match step {
                Step::Send(tag, n) => {
                    let head = Head { tag, at: number };
                    let message: Vec<_> = (0..n).map(|_| Arc::clone(&every)).collect();
                    let mut giving = message.clone().into_iter();
                    if sender.send(head, &mut giving) {
                        prop_assert_eq!(giving.len(), 0);
                        model.push_back((head, message));
                        number += 1;
                    } else {
                        prop_assert_eq!(giving.len(), n, "no item is taken");
                        // At most the length of a message is unused at the end of the ring.
                        let used: usize = model.iter().map(|(_, items)| items.len() + 2).sum();
                        prop_assert!(used + (n + 2) + (longest + 2) > slots, "{} of {} slots are used", used, slots);
                    }
                }
                Step::Peek => prop_assert_eq!(receiver.peek(), model.front().map(|(head, _)| *head)),
                Step::Receive => {
                    let mut got = Vec::new();
                    let head = receiver.receive(|item| got.push(item));
                    let expected = model.pop_front();
                    prop_assert_eq!(head, expected.as_ref().map(|(head, _)| *head));
                    prop_assert_eq!(got.len(), expected.map_or(0, |(_, items)| items.len()));
                }
            }
        }
        drop(model);
        drop((sender, receiver));
        prop_assert_eq!(Arc::strong_count(&every), 1, "remaining items are dropped once");
    }
}

/// A ring takes as many items as it was made for, in the longest messages, before the receiver takes any. The first
/// three rings are full then: their number of slots is a power of two without rounding.
#[test]
fn a_new_ring_has_room_for_its_items() {
    for (items, longest) in [(8, 2), (64, 2), (48, 6), (100, 1), (64, 32), (5, 40), (0, 1)] {
        let (mut sender, mut receiver) = ring(items, longest);
        let mut rest = 0..items;
        while !rest.is_empty() {
            let mut message = rest.by_ref().take(longest).collect::<Vec<_>>().into_iter();
            assert!(sender.send(Head { tag: 0, at: 0 }, &mut message), "{items} items, {longest} a message");
        }
        let mut got = Vec::new();
        while receiver.receive(|item| got.push(item)).is_some() {}
        assert!(got.into_iter().eq(0..items), "{items} items, {longest} a message");
    }
}

#[test]
fn a_panic_while_a_message_is_taken_drops_its_rest() {
    let (mut sender, mut receiver) = ring(8, 8);
    let item = Arc::new(());
    assert!(sender.send(Head { tag: 1, at: 0 }, &mut vec![Arc::clone(&item); 5].into_iter()));
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| receiver.receive(|_| panic!("the first"))));
    assert!(panics.is_err());
    assert_eq!((Arc::strong_count(&item), receiver.peek()), (1, None));
    assert!(sender.send(Head { tag: 2, at: 0 }, &mut vec![item; 1].into_iter()));
    assert_eq!(receiver.peek(), Some(Head { tag: 2, at: 0 }));
}

#[test]
fn two_threads_pass_everything_in_order() {
    let (mut sender, mut receiver) = ring(64, 16);
    let count = if cfg!(miri) { 300 } else { 200_000u64 };
    let giver = std::thread::spawn(move || {
        let mut next = 0;
        while next < count {
            let most = (next % 16 + 1).min(count - next);
            let mut message = (next..next + most).collect::<Vec<_>>().into_iter();
            if sender.send(Head { tag: most as u32, at: next }, &mut message) {
                next += most;
            } else {
                std::thread::yield_now();
            }
        }
    });
    let mut expected = 0;
    while expected < count {
        let first = expected;
        let head = receiver.receive(|item| {
            assert_eq!(item, expected);
            expected += 1;
        });
        match head {
            Some(head) => assert_eq!((u64::from(head.tag), head.at), (expected - first, first)),
            None => std::thread::yield_now(),
        }
    }
    giver.join().expect("the other thread ends");
}
