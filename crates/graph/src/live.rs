//! Values that the control plane changes while workers read them: a reader sees a change whole or not at all, and never
//! waits.
//!
//! There are two copies (left-right: Ramalhete and Correia, "Left-Right: A Concurrency Control Technique with Wait-Free
//! Population Oblivious Reads", 2015). Workers read the published one. The writer changes the other, which nobody reads,
//! publishes it with one exchange of a pointer, and makes the same changes on the first when it next has something to
//! change: by then the readers have left it, for they hold it during one call only. So a change costs two updates,
//! however large the table is, and readers pay the same whether changes come or not.
//!
//! What nobody has ever changed needs none of this: readers hold it as they would any other, for one look at a flag per
//! batch, and there is one copy of it, which other modules with equal parameters may share. The first change leaves that
//! copy to them and makes the module's own, the second one its twin.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};

/// A value whose changes can be made once more on a copy, from a log of them.
pub trait Replay<L>: Clone {
    /// Makes the changes that `log` has noted, in order, and empties the log.
    fn replay(&mut self, log: &mut L);
}

/// A value that is read while it is changed. `L` is the log of its changes ([`Replay`]).
pub struct Live<T: 'static, L> {
    published: ArcSwap<T>,
    /// Whether readers hold it during a call only: it has been changed, or nobody else has it. Never unset.
    changed: AtomicBool,
    writer: Mutex<Writer<T, L>>,
}

/// What the one who makes changes has.
struct Writer<T, L> {
    /// The copy that is not published, and what it lacks. None before the second change.
    spare: Option<(Arc<T>, L)>,
    /// What the first copy is made in.
    twin: Option<Arc<T>>,
    /// How long it took to make a copy: as long it waits for readers to leave the one that it needs, and then makes
    /// another. So it never takes more than twice as long as it could have. A call takes microseconds; only a worker that
    /// the system has stopped in the middle of one holds a copy longer.
    copying: Duration,
    /// Values that are published no more and that workers may still hold. They end when a later change finds that nobody
    /// does, or with all of this: not on a worker, between two packets.
    retired: Vec<Arc<T>>,
}

impl<T: 'static, L> Live<T, L> {
    /// A value that may be shared with others: the first change leaves it to them.
    #[must_use]
    pub fn new(value: Arc<T>) -> Self {
        Self::made(value, false, None)
    }

    /// Makes a live value that has no other owner. From the start, readers hold it only during a call. So
    /// [`change_with_readers`](Self::change_with_readers) knows when they no longer use it; a reader of a shared value that is
    /// never called would keep it. The first copy is made in `twin`, so that its memory is allocated from the start. The
    /// content of `twin` does not matter.
    #[must_use]
    pub fn unshared(value: T, twin: T) -> Self {
        Self::made(Arc::new(value), true, Some(Arc::new(twin)))
    }

    fn made(value: Arc<T>, changed: bool, twin: Option<Arc<T>>) -> Self {
        let writer = Mutex::new(Writer { spare: None, twin, copying: Duration::ZERO, retired: Vec::new() });
        Self { published: ArcSwap::new(value), changed: AtomicBool::new(changed), writer }
    }

    /// The value as it is now, for a look or two; workers have a [`Reader`].
    #[must_use]
    pub fn look(&self) -> Read<'static, T> {
        Read::Changed(self.published.load())
    }

    fn lock(&self) -> MutexGuard<'_, Writer<T, L>> {
        // A change that panicked has taken the spare copy with it: what is published is whole.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Replay<L> + 'static, L: Default> Live<T, L> {
    /// Changes the value: `change` is given a copy that nobody reads, notes in the log what it does to it, and what it
    /// has done is published when it returns. Readers may see it before this does.
    pub fn change<R>(&self, change: impl FnOnce(&mut T, &mut L) -> R) -> R {
        self.change_with_readers(|value, log, _| change(value, log))
    }

    /// The same; `change` is also told whether all readers have come by since the change before: nobody reads a value that
    /// this one's predecessors took the place of, so that what they removed can be given to somebody else. A reader that is
    /// stopped in the middle of a call may see any of them.
    pub fn change_with_readers<R>(&self, change: impl FnOnce(&mut T, &mut L, bool) -> R) -> R {
        let mut writer = self.lock();
        writer.retired.retain(|value| Arc::strong_count(value) > 1);
        let patience = writer.copying;
        let free = writer.spare.take().and_then(|(mut copy, log)| {
            if alone(&mut copy, patience) {
                return Some((copy, log));
            }
            writer.retired.push(copy);
            None
        });
        let (mut copy, mut log) = free.unwrap_or_else(|| {
            let start = Instant::now();
            let value = self.published.load();
            let mut twin = writer.twin.take();
            if let Some(own) = twin.as_mut().and_then(Arc::get_mut) {
                own.clone_from(&value);
            }
            let copy = twin.unwrap_or_else(|| Arc::new(T::clone(&value)));
            writer.copying = start.elapsed();
            (copy, L::default())
        });
        // It is alone: this does not clone.
        let value = Arc::make_mut(&mut copy);
        value.replay(&mut log);
        // What is published is read. The copy at hand is nobody's, and what readers did not let go is among these.
        let result = change(value, &mut log, writer.retired.is_empty());
        let before = self.published.swap(copy);
        // The first of all is others' too, and readers keep it until they next come by.
        if self.changed.swap(true, Ordering::AcqRel) {
            writer.spare = Some((before, log));
        } else {
            writer.retired.push(before);
        }
        result
    }
}

/// Waits until nobody else holds `copy`; false where somebody does not let go for so long.
fn alone<T>(copy: &mut Arc<T>, patience: Duration) -> bool {
    let mut since = None;
    for attempt in 0u32.. {
        if Arc::get_mut(copy).is_some() {
            return true;
        }
        match attempt {
            0..64 => std::hint::spin_loop(),
            _ if since.get_or_insert_with(Instant::now).elapsed() > patience => return false,
            64..256 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    false
}

impl<T: 'static, L> fmt::Debug for Live<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("changed", &self.changed).finish_non_exhaustive()
    }
}

/// A worker's way to a [`Live`] value.
pub struct Reader<T: 'static, L> {
    live: Arc<Live<T, L>>,
    /// The value as it was before any change.
    unchanged: Option<Arc<T>>,
}

impl<T: 'static, L> Reader<T, L> {
    /// A reader of `live`.
    #[must_use]
    pub fn new(live: Arc<Live<T, L>>) -> Self {
        let writer = live.lock();
        // Under the lock, so that it is not the copy that a change is about to publish.
        let unchanged = (!live.changed.load(Ordering::Acquire)).then(|| live.published.load_full());
        drop(writer);
        Self { live, unchanged }
    }

    /// The value as it is now, for one call: the writer cannot go on for long until this is dropped.
    #[inline(always)]
    pub fn read(&mut self) -> Read<'_, T> {
        if self.live.changed.load(Ordering::Acquire) {
            return self.read_changed();
        }
        match &self.unchanged {
            Some(value) => Read::Unchanged(value),
            None => Read::Changed(self.live.published.load()),
        }
    }

    #[inline(never)]
    fn read_changed(&mut self) -> Read<'_, T> {
        self.unchanged = None;
        Read::Changed(self.live.published.load())
    }

    /// The value's owner, for looks that need no haste.
    #[must_use]
    pub fn live(&self) -> &Live<T, L> {
        &self.live
    }
}

/// A value for the time of one call.
pub enum Read<'r, T: 'static> {
    /// It has never been changed.
    Unchanged(&'r T),
    /// It may be replaced at any time; this copy is kept until then.
    Changed(Guard<Arc<T>>),
}

impl<T: 'static> Deref for Read<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        match self {
            Self::Unchanged(value) => value,
            Self::Changed(guard) => guard,
        }
    }
}

#[cfg(test)]
mod tests;
