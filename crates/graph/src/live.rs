//! Values that the control plane changes while workers read them. A reader sees each change as a whole or not at all,
//! and never waits.
//!
//! There are two copies (left-right: Ramalhete and Correia, "Left-Right: A Concurrency Control Technique with Wait-Free
//! Population Oblivious Reads", 2015). Workers read the published copy. The writer changes the other copy, which has no
//! reader, and publishes it with one exchange of a pointer. Before the next change, the writer makes the same changes
//! on the copy that was published before. By then readers have left that copy, because they hold it during one call
//! only. So a change costs two updates, whatever the size of the table, and the cost for readers does not depend on
//! changes.
//!
//! A value that has never been changed needs no second copy. Readers hold it directly and check one flag per batch.
//! Other modules with equal parameters may share this value. The first change leaves the value to the other modules,
//! and makes a copy that only the changed module uses. The second change makes the second copy of the pair.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};

/// A value that can repeat changes on a copy, from a log.
pub trait Replay<L>: Clone {
    /// Repeats the changes in `log`, in order, and empties the log.
    fn replay(&mut self, log: &mut L);
}

/// A value that is read while it changes. `L` is the log of its changes ([`Replay`]).
pub struct Live<T: 'static, L> {
    /// The copy that readers see.
    published: ArcSwap<T>,
    /// Whether readers hold the value during a call only. This is so if the value has been changed, or if it had no
    /// other owner from the start ([`unshared`](Live::unshared)). Never reset.
    changed: AtomicBool,
    writer: Mutex<Writer<T, L>>,
}

/// The writer's data.
struct Writer<T, L> {
    /// The unpublished copy, and the changes that it lacks. `None` before the second change.
    spare: Option<(Arc<T>, L)>,
    /// The memory for the first copy that the writer makes. `None` if this memory is allocated only when the copy is
    /// made, or if the copy has already been made.
    twin: Option<Arc<T>>,
    /// How long the last copying of the value took. The writer waits for readers to leave a copy for at most this long,
    /// and then makes another copy. So a change takes at most twice the time of copying. A call takes microseconds, so
    /// a reader holds a copy longer only if the system has stopped its thread within a call.
    copying: Duration,
    /// Old values that workers may still hold. A later change drops the values that no worker holds. The rest is
    /// dropped with the writer. So a worker never frees the memory of a value between two packets.
    retired: Vec<Arc<T>>,
}

impl<T: 'static, L> Live<T, L> {
    /// Makes a live value that may have other owners. The first change makes a copy, and leaves the value to the other
    /// owners.
    #[must_use]
    pub fn new(value: Arc<T>) -> Self {
        Self::made(value, false, None)
    }

    /// Makes a live value that has no other owner. From the start, readers hold it only during a call. So
    /// [`change_with_readers`](Self::change_with_readers) can find out when they no longer use it. (With
    /// [`new`](Self::new), a reader keeps the first value until its next call, which may never come.) The first copy is
    /// made in `twin`, so that its memory is allocated from the start. The content of `twin` does not matter.
    #[must_use]
    pub fn unshared(value: T, twin: T) -> Self {
        Self::made(Arc::new(value), true, Some(Arc::new(twin)))
    }

    /// Makes a live value. `changed` and `twin` are the fields of the same names.
    fn made(value: Arc<T>, changed: bool, twin: Option<Arc<T>>) -> Self {
        let writer = Mutex::new(Writer { spare: None, twin, copying: Duration::ZERO, retired: Vec::new() });
        Self { published: ArcSwap::new(value), changed: AtomicBool::new(changed), writer }
    }

    /// Returns the present value, for occasional use. Workers use a [`Reader`].
    #[must_use]
    pub fn look(&self) -> Read<'static, T> {
        Read::Changed(self.published.load())
    }

    fn lock(&self) -> MutexGuard<'_, Writer<T, L>> {
        // If an earlier change panicked, the spare copy is lost, but the published copy is intact.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Replay<L> + 'static, L: Default> Live<T, L> {
    /// Changes the value. `change` changes a copy that has no readers, and notes its changes in the log. The copy is
    /// published when `change` returns. Readers may see it before this function returns.
    pub fn change<R>(&self, change: impl FnOnce(&mut T, &mut L) -> R) -> R {
        self.change_with_readers(|value, log, _| change(value, log))
    }

    /// Changes the value, like [`change`](Self::change). The third argument of `change` is true if no reader still has
    /// a value from before the previous change. Then objects that were removed by the previous change or earlier can be
    /// reused. If the argument is false, some reader may still see any earlier value, for example because the system
    /// has stopped the reader's thread within a call.
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
        // The copy has no other owner, so this does not clone.
        let value = Arc::make_mut(&mut copy);
        value.replay(&mut log);
        // Readers may hold the published copy, but not the new copy. Older copies that readers still hold are in
        // `retired`.
        let result = change(value, &mut log, writer.retired.is_empty());
        let before = self.published.swap(copy);
        // The first value may have other owners, and readers keep it until their next call. So it cannot become the
        // spare copy.
        if self.changed.swap(true, Ordering::AcqRel) {
            writer.spare = Some((before, log));
        } else {
            writer.retired.push(before);
        }
        result
    }
}

/// Waits until `copy` has no other owner. Returns false if another owner holds it for longer than `patience`.
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

/// A worker's access to a [`Live`] value.
pub struct Reader<T: 'static, L> {
    live: Arc<Live<T, L>>,
    /// The value, as long as it has not been changed. `None` after the first read that follows a change, and for an
    /// [unshared](Live::unshared) value.
    unchanged: Option<Arc<T>>,
}

impl<T: 'static, L> Reader<T, L> {
    /// Creates a reader of `live`.
    #[must_use]
    pub fn new(live: Arc<Live<T, L>>) -> Self {
        let writer = live.lock();
        // The writer's lock is held, so that no change publishes another copy between the two loads.
        let unchanged = (!live.changed.load(Ordering::Acquire)).then(|| live.published.load_full());
        drop(writer);
        Self { live, unchanged }
    }

    /// Returns the present value, for one call. The writer may have to wait until the result is dropped.
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

    /// Returns the present value after a change, and drops the reader's own reference to the first value.
    #[inline(never)]
    fn read_changed(&mut self) -> Read<'_, T> {
        self.unchanged = None;
        Read::Changed(self.live.published.load())
    }

    /// Returns the live value, for use outside the packet path.
    #[must_use]
    pub fn live(&self) -> &Live<T, L> {
        &self.live
    }
}

/// A value during one call.
pub enum Read<'r, T: 'static> {
    /// The value has never been changed.
    Unchanged(&'r T),
    /// The value may be replaced at any time. This copy lasts until the end of the call.
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
