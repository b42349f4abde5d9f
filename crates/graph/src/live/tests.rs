//! Two copies against one plain value, and readers beside a writer.

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
    assert!(first.numbers.is_empty(), "what others share stays as it was");
}

#[test]
fn readers_that_do_not_come_by_hold_nobody_up() {
    let live: Arc<LiveList> = Arc::new(Live::new(Arc::default()));
    let mut idle = Reader::new(Arc::clone(&live));
    let mut once = Reader::new(Arc::clone(&live));
    push(&live, 0);
    assert_eq!(once.read().numbers, [0]);
    for number in 1..1_000 {
        push(&live, number);
    }
    assert_eq!(live.look().copies(), 2, "the writer never had to give a copy up");
    assert_eq!(idle.read().numbers.len(), 1_000);
}

#[test]
fn a_reader_that_is_stopped_in_a_call_keeps_its_copy_and_the_writer_takes_another() {
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

/// What was removed before was given out again by whoever took the copy at hand for the last that anybody read.
#[test]
fn a_change_is_told_of_readers_that_are_two_changes_behind() {
    let live: Arc<LiveList> = Arc::new(Live::unshared(List::default(), List::default()));
    let change = || {
        live.change_with_readers(|list, log, left| {
            list.numbers.push(0);
            log.push(0);
            left
        })
    };
    let mut idle = Reader::new(Arc::clone(&live));
    let mut reader = Reader::new(Arc::clone(&live));
    for before in 0..3 {
        let held = reader.read();
        assert!(change(), "it reads what is published");
        assert!(!change(), "it reads what was published before the last change");
        assert!(!change(), "and still does");
        assert_eq!(held.numbers.len(), before * 4);
        drop(held);
        assert!(change());
    }
    assert_eq!(idle.read().numbers.len(), 12);
}

/// The first of all values is others', too, and stays with readers that are not called.
#[test]
fn a_reader_that_keeps_the_first_value_is_told() {
    let live: Arc<LiveList> = Arc::new(Live::new(Arc::default()));
    let mut reader = Reader::new(Arc::clone(&live));
    let told = || live.change_with_readers(|_, _: &mut Vec<u32>, left| left);
    assert_eq!([told(), told(), told()], [true, false, false]);
    drop(reader.read());
    assert!(told());
}

/// Says on which thread it ended.
#[derive(Clone)]
struct Mortal(Arc<Mutex<Vec<thread::ThreadId>>>);

impl Drop for Mortal {
    fn drop(&mut self) {
        self.0.lock().expect("nobody panics").push(thread::current().id());
    }
}

impl Replay<()> for Mortal {
    fn replay(&mut self, (): &mut ()) {}
}

#[test]
fn what_workers_let_go_ends_with_the_writer() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let live = Arc::new(Live::<Mortal, ()>::new(Arc::new(Mortal(Arc::clone(&ends)))));
    let mut reader = Reader::new(Arc::clone(&live));
    live.change(|_, ()| {});
    // The worker was the last to hold the value of the start.
    thread::spawn(move || drop(reader.read())).join().expect("reading does not panic");
    assert!(ends.lock().expect("nobody panics").is_empty());
    live.change(|_, ()| {});
    assert_eq!(*ends.lock().expect("nobody panics"), [thread::current().id()]);
}

#[test]
fn a_change_that_panics_leaves_what_is_published() {
    let live: Arc<LiveList> = Arc::new(Live::new(Arc::default()));
    (0..3).for_each(|number| push(&live, number));
    let panics = thread::scope(|scope| {
        let change = || {
            live.change(|list, _: &mut Vec<u32>| {
                list.numbers.clear();
                assert_eq!(list.numbers, [9], "as meant");
            })
        };
        scope.spawn(change).join()
    });
    assert!(panics.is_err());
    push(&live, 3);
    push(&live, 4);
    assert_eq!(live.look().numbers, [0, 1, 2, 3, 4]);
}

/// Readers in other threads see whole changes only, in the order in which they were made.
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
    fn it_is_what_one_value_would_be(steps in prop::collection::vec((prop::collection::vec(any::<u32>(), 0..4), 0u8..10), 1..60)) {
        let live: Arc<LiveList> = Arc::new(Live::new(Arc::default()));
        let mut reader = Reader::new(Arc::clone(&live));
        let mut model = Vec::new();
        for (numbers, what) in steps {
            match what {
                0 | 1 => reader = Reader::new(Arc::clone(&live)),
                _ => {
                    live.change(|list, log| {
                        list.numbers.extend_from_slice(&numbers);
                        log.extend_from_slice(&numbers);
                    });
                    model.extend(numbers);
                }
            }
            if what % 2 == 0 {
                prop_assert_eq!(&reader.read().numbers, &model);
            }
            prop_assert_eq!(&live.look().numbers, &model);
        }
    }
}
