//! Compares the two copies with one plain value, and tests readers beside a writer.

use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::thread;

use proptest::prelude::*;

use super::*;

/// A list of numbers that counts how often it is copied.
#[derive(Debug, Default)]
struct List {
    numbers: Vec<u32>,
    copies: Arc<AtomicUsize>,
}

impl Clone for List {
    fn clone(&self) -> Self {
        self.copies.fetch_add(1, Ordering::Relaxed);
        Self { numbers: self.numbers.clone(), copies: Arc::clone(&self.copies) }
    }
}

impl List {
    fn copies(&self) -> usize {
        self.copies.load(Ordering::Relaxed)
    }
}

impl Replay<Vec<u32>> for List {
    fn replay(&mut self, log: &mut Vec<u32>) {
        self.numbers.append(log);
    }
}

type LiveList = Live<List, Vec<u32>>;

fn push(live: &LiveList, number: u32) {
    live.change(|list, log| {
        list.numbers.push(number);
        log.push(number);
    });
}

#[test]
fn two_copies_are_made_and_no_more() {
    let first = Arc::new(List::default());
    let live: Arc<LiveList> = Arc::new(Live::new(Arc::clone(&first)));
    let mut reader = Reader::new(Arc::clone(&live));
    for number in 0..100 {
        assert_eq!(reader.read().numbers.len(), number as usize);
        push(&live, number);
        assert_eq!(first.copies(), usize::min(number as usize + 1, 2));
    }
    assert_eq!(reader.read().numbers, (0..100).collect::<Vec<_>>());
    assert!(first.numbers.is_empty(), "the shared value does not change");
}

#[test]
fn idle_readers_do_not_delay_changes() {
    let live: Arc<LiveList> = Arc::new(Live::new(Arc::default()));
    let mut idle = Reader::new(Arc::clone(&live));
    let mut once = Reader::new(Arc::clone(&live));
    push(&live, 0);
    assert_eq!(once.read().numbers, [0]);
    for number in 1..1_000 {
        push(&live, number);
    }
    assert_eq!(live.look().copies(), 2, "the writer never had to replace a copy");
    assert_eq!(idle.read().numbers.len(), 1_000);
}

#[test]
fn a_reader_that_is_stopped_in_a_call_keeps_its_copy_and_the_writer_makes_another() {
    let live: Arc<LiveList> = Arc::new(Live::new(Arc::default()));
    push(&live, 0);
    let mut reader = Reader::new(Arc::clone(&live));
    let held = reader.read();
    push(&live, 1);
    push(&live, 2);
    assert_eq!(held.numbers, [0]);
    assert_eq!(live.look().numbers, [0, 1, 2]);
    assert_eq!(live.look().copies(), 3);
}

/// Removed objects were once reused too early, because the copy at hand was taken for the last one that had a reader.
#[test]
fn a_change_learns_of_readers_that_are_two_changes_behind() {
    let live: Arc<LiveList> = Arc::new(Live::unshared(List::default(), List::default()));
    let change = || {
        live.change_with_readers(|list, log, readers_left| {
            list.numbers.push(0);
            log.push(0);
            readers_left
        })
    };
    let mut idle = Reader::new(Arc::clone(&live));
    let mut reader = Reader::new(Arc::clone(&live));
    for before in 0..3 {
        let held = reader.read();
        assert!(change(), "it reads the published value");
        assert!(!change(), "it reads the value before the last change");
        assert!(!change(), "and still does");
        assert_eq!(held.numbers.len(), before * 4);
        drop(held);
        assert!(change());
    }
    assert_eq!(idle.read().numbers.len(), 12);
}

/// The first value is also shared with others, and readers that are not called keep it.
#[test]
fn a_change_learns_of_a_reader_that_keeps_the_first_value() {
    let live: Arc<LiveList> = Arc::new(Live::new(Arc::default()));
    let mut reader = Reader::new(Arc::clone(&live));
    let readers_left = || live.change_with_readers(|_, _: &mut Vec<u32>, readers_left| readers_left);
    assert_eq!([readers_left(), readers_left(), readers_left()], [true, false, false]);
    drop(reader.read());
    assert!(readers_left());
}

/// Logs the thread on which it is dropped.
#[derive(Clone)]
struct DropLogger(Arc<Mutex<Vec<thread::ThreadId>>>);

impl Drop for DropLogger {
    fn drop(&mut self) {
        self.0.lock().expect("no thread panics").push(thread::current().id());
    }
}

impl Replay<()> for DropLogger {
    fn replay(&mut self, (): &mut ()) {}
}

#[test]
fn values_that_workers_release_are_dropped_by_the_writer() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let live = Arc::new(Live::<DropLogger, ()>::new(Arc::new(DropLogger(Arc::clone(&ends)))));
    let mut reader = Reader::new(Arc::clone(&live));
    live.change(|_, ()| {});
    // The worker was the last owner of the first value.
    thread::spawn(move || drop(reader.read())).join().expect("reading does not panic");
    assert!(ends.lock().expect("no thread panics").is_empty());
    live.change(|_, ()| {});
    assert_eq!(*ends.lock().expect("no thread panics"), [thread::current().id()]);
}

#[test]
fn a_change_that_panics_leaves_the_published_value() {
    let live: Arc<LiveList> = Arc::new(Live::new(Arc::default()));
    (0..3).for_each(|number| push(&live, number));
    let panics = thread::scope(|scope| {
        let change = || {
            live.change(|list, _: &mut Vec<u32>| {
                list.numbers.clear();
                assert_eq!(list.numbers, [9], "this panics on purpose");
            })
        };
        scope.spawn(change).join()
    });
    assert!(panics.is_err());
    push(&live, 3);
    push(&live, 4);
    assert_eq!(live.look().numbers, [0, 1, 2, 3, 4]);
}

/// Readers on other threads see only whole changes, in order.
#[test]
fn readers_see_whole_changes_in_order() {
    let live: Arc<LiveList> = Arc::new(Live::new(Arc::default()));
    let start = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..2 {
            let mut reader = Reader::new(Arc::clone(&live));
            let start = &start;
            scope.spawn(move || {
                start.wait();
                let mut seen = 0;
                while seen < 2_000 {
                    let list = reader.read();
                    let numbers = &list.numbers;
                    assert!(numbers.len().is_multiple_of(2), "half a change");
                    assert!(numbers.len() >= seen, "back in time");
                    assert!(numbers.iter().enumerate().all(|(at, number)| at == *number as usize));
                    seen = numbers.len();
                }
            });
        }
        start.wait();
        for pair in 0..1_000 {
            live.change(|list, log| {
                list.numbers.extend([2 * pair, 2 * pair + 1]);
                log.extend([2 * pair, 2 * pair + 1]);
            });
        }
    });
}

proptest! {
    #[test]
    fn it_behaves_like_one_plain_value(
        steps in prop::collection::vec((prop::collection::vec(any::<u32>(), 0..4), 0u8..10), 1..60),
    ) {
        let live: Arc<LiveList> = Arc::new(Live::new(Arc::default()));
        let mut reader = Reader::new(Arc::clone(&live));
        let mut model = Vec::new();
        for (numbers, action) in steps {
            match action {
                0 | 1 => reader = Reader::new(Arc::clone(&live)),
                _ => {
                    live.change(|list, log| {
                        list.numbers.extend_from_slice(&numbers);
                        log.extend_from_slice(&numbers);
                    });
                    model.extend(numbers);
                }
            }
            if action % 2 == 0 {
                prop_assert_eq!(&reader.read().numbers, &model);
            }
            prop_assert_eq!(&live.look().numbers, &model);
        }
    }
}
