//! Tests that no wake is lost, under every order in which a worker that parks and a thread that gives it work can
//! interleave and see each other's writes (loom).

#![allow(missing_docs)]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};
}

#[path = "../src/wake/flag.rs"]
mod flag;

use flag::ParkFlag;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};

/// A worker's handle, with a counter in the place of the eventfd.
struct Handle {
    flag: ParkFlag,
    signals: Mutex<usize>,
    changed: Condvar,
}

impl Handle {
    fn new() -> Arc<Self> {
        Arc::new(Self { flag: ParkFlag::new(), signals: Mutex::new(0), changed: Condvar::new() })
    }

    /// As `Wake::wake`.
    fn wake(&self) {
        if self.flag.take() {
            *self.signals.lock().expect("no thread has panicked") += 1;
            self.changed.notify_one();
        }
    }

    /// As `Wake::park`, without a limit of time: a lost wake is a deadlock, which loom reports.
    fn park(&self, has_work: impl FnOnce() -> bool) {
        self.flag.raise();
        let mut signals = self.signals.lock().expect("no thread has panicked");
        if !has_work() {
            while *signals == 0 {
                signals = self.changed.wait(signals).expect("no thread has panicked");
            }
        }
        self.flag.lower();
        *signals = 0;
    }
}

/// Threads each give one piece of work, and a worker takes all of it. `preemptions` bounds how often the model takes
/// the processor from a thread that could go on, if it is not `None`.
fn give_and_take(givers: usize, preemptions: Option<usize>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let (handle, work) = (Handle::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..givers {
            let (handle, work) = (handle.clone(), work.clone());
            loom::thread::spawn(move || {
                work.fetch_add(1, Ordering::Release);
                handle.wake();
            });
        }
        let mut taken = 0;
        while taken < givers {
            taken += work.swap(0, Ordering::Acquire);
            if taken < givers {
                handle.park(|| work.load(Ordering::Acquire) > 0);
            }
        }
    });
}

#[test]
fn a_worker_finds_its_work_or_is_woken() {
    give_and_take(1, None);
}

/// Three threads have too many interleavings to try them all.
#[test]
fn one_of_several_threads_wakes_the_worker() {
    give_and_take(2, Some(2));
}
