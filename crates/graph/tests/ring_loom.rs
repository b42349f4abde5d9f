//! Tests the ring under every order in which two threads can interleave and see each other's writes (loom).

// Other tests cover the functions of the ring that the model does not use.
#![allow(dead_code, missing_docs)]

mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};
}

#[path = "../src/ring.rs"]
mod ring;

use ring::{Head, ring};

fn head(tag: u32) -> Head {
    Head { tag, at: u64::from(tag) }
}

#[test]
fn messages_arrive_whole_in_order_and_once() {
    loom::model(|| {
        // The ring has eight slots. The third message needs slots that the first one gave back, and starts at slot 0.
        let (mut sender, mut receiver) = ring::<Box<u32>>(1, 1);
        let giver = loom::thread::spawn(move || {
            let mut sent = 0;
            for tag in 1..=3 {
                if sender.send(head(tag), &mut vec![Box::new(tag)].into_iter()) {
                    sent += 1;
                } else {
                    loom::thread::yield_now();
                }
            }
            sent
        });
        let mut got = Vec::new();
        for _ in 0..3 {
            let peeked = receiver.peek();
            let taken = receiver.receive(|item| got.push(*item));
            assert!(peeked.is_none() || peeked == taken);
        }
        let sent = giver.join().expect("the other thread ends");
        while receiver.receive(|item| got.push(*item)).is_some() {}
        assert_eq!(got.len(), sent);
        assert!(got.is_sorted() && got.windows(2).all(|pair| pair[0] < pair[1]));
    });
}

#[test]
fn remaining_items_are_dropped_with_the_last_end() {
    loom::model(|| {
        let item = loom::sync::Arc::new(());
        let (mut sender, mut receiver) = ring(2, 2);
        let given = vec![item.clone(), item.clone()];
        let giver = loom::thread::spawn(move || {
            assert!(sender.send(head(1), &mut given.into_iter()));
        });
        receiver.receive(drop);
        drop(receiver);
        giver.join().expect("the other thread ends");
        assert_eq!(loom::sync::Arc::strong_count(&item), 1);
    });
}
