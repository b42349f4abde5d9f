//! Lock-free rings that hand messages of items from one thread to another.
//!
//! A ring has one sender, one receiver and a fixed number of slots. A message is two words (its tag and the time of
//! sending) and its items, in consecutive slots. One store publishes the message, whatever its number of items. So the
//! two cores exchange little more than the cache lines of the items. Free slots are the sender's credit: a message
//! without enough free slots is refused, and no thread waits. (Lamport 1983 for the two indices; Ferguson and
//! Giacomoni, "FastForward", 2008, for the cost of the lines.)
//!
//! This file uses only types of `super::sync`, so that the same code runs on loom's types in `tests/ring_loom.rs`.

use std::mem::ManuallyDrop;

use super::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The purpose of the items, at most [`Head::MOST`].
    pub tag: u32,
    /// The time of sending, on the sender's clock.
    pub at: u64,
}

impl Head {
    /// The highest tag.
    pub const MOST: u32 = u32::MAX - 1;
}

/// The number of words before a message's items.
const WORDS: usize = 2;
/// Marks the slots from here to the end as unused. The next message is at the ring's start.
const WRAP: u64 = u64::MAX;

/// A slot holds a word or an item of a message.
union Slot<T> {
    word: u64,
    item: ManuallyDrop<T>,
}

/// A value alone in two cache lines, because the processor fetches two neighbouring lines together.
#[repr(align(128))]
struct Apart<T>(T);

/// The memory that both ends of a ring share. Positions count all slots ever used, and wrap around the ring.
struct Shared<T> {
    slots: Box<[UnsafeCell<Slot<T>>]>,
    /// The number of slots ever written, published by the sender.
    written: Apart<AtomicUsize>,
    /// The number of slots ever read, published by the receiver.
    read: Apart<AtomicUsize>,
}

// SAFETY: when the sender has loaded (acquire) a `read` that is past a message, only the sender accesses the slots of
// the message. When the receiver has loaded (acquire) a `written` that is past the message, only the receiver accesses
// them. Items go from one thread to the other, which `T: Send` allows.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above. No field is bound to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    fn slot(&self, position: usize) -> &UnsafeCell<Slot<T>> {
        // The number of slots is a power of two.
        &self.slots[position & (self.slots.len() - 1)]
    }

    /// Returns the slots of `items` items of one message, the first of which is at `position`. They are consecutive.
    #[inline]
    fn items(&self, position: usize, items: usize) -> &[UnsafeCell<Slot<T>>] {
        &self.slots[position & (self.slots.len() - 1)..][..items]
    }

    /// Returns the number of slots between `position` and the ring's end.
    fn before_end(&self, position: usize) -> usize {
        self.slots.len() - (position & (self.slots.len() - 1))
    }
}

/// The sending end of a ring.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    /// The sender's position: the number of slots ever written.
    written: usize,
    /// The receiver's position when it was last loaded.
    read: usize,
}

/// The receiving end of a ring.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The sender's position when it was last loaded.
    written: usize,
    /// The receiver's position: the number of slots ever read.
    read: usize,
}

/// Creates a ring with room for at least `items` items in messages of at most `longest` items.
#[must_use]
pub fn ring<T: Send>(items: usize, longest: usize) -> (Sender<T>, Receiver<T>) {
    // Two of the longest messages always fit, whatever the number of unused slots at the end.
    let slots = (items.max(longest) + items.div_ceil(longest.max(1)) * WORDS).max(2 * (longest + WORDS));
    let slots = slots.next_power_of_two();
    let slots = (0..slots).map(|_| UnsafeCell::new(Slot { word: 0 })).collect();
    let shared = Shared { slots, written: Apart(AtomicUsize::new(0)), read: Apart(AtomicUsize::new(0)) };
    let shared = Arc::new(shared);
    (Sender { shared: Arc::clone(&shared), written: 0, read: 0 }, Receiver { shared, written: 0, read: 0 })
}

impl<T: Send> Sender<T> {
    /// Returns the number of slots. Each item takes one, and each message two more.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.shared.slots.len()
    }

    /// Returns whether a message of `items` items can be sent now. If so, this remains true until a message is sent.
    #[inline]
    pub fn has_room(&mut self, items: usize) -> bool {
        self.reserve(items + WORDS).is_some()
    }

    /// Sends a message of all `items`. Returns false, and takes no items, if the ring has no room for as many items as
    /// the iterator's `len` says. Items beyond `len` are not taken.
    #[inline]
    pub fn send(&mut self, head: Head, items: &mut impl ExactSizeIterator<Item = T>) -> bool {
        let most = items.len();
        let Some(start) = self.reserve(most + WORDS) else { return false };
        let mut count = 0;
        // In `zip` the slots come before the items, so no item is taken without a slot for it.
        for (slot, item) in self.shared.items(start + WORDS, most).iter().zip(items.by_ref()) {
            // SAFETY: the slot is between `written` and the ring's length past `read`, so only the sender accesses it.
            slot.with_mut(|slot| unsafe { (*slot).item = ManuallyDrop::new(item) });
            count += 1;
        }
        self.write_word(start, u64::from(head.tag.min(Head::MOST)) | (count as u64) << 32);
        self.write_word(start + 1, head.at);
        self.written = start + WORDS + count;
        self.shared.written.0.store(self.written, Ordering::Release);
        true
    }

    /// Returns the position at which a message of `slots` slots can be written. `None` if the ring has no room for it.
    #[inline]
    fn reserve(&mut self, slots: usize) -> Option<usize> {
        let end = self.shared.before_end(self.written);
        // A message that does not fit before the ring's end goes to its start. The slots before the end stay unused.
        let unused = if slots <= end { 0 } else { end };
        let needed = self.written + unused + slots;
        if needed - self.read > self.shared.slots.len() {
            self.read = self.shared.read.0.load(Ordering::Acquire);
            if needed - self.read > self.shared.slots.len() {
                return None;
            }
        }
        if unused > 0 {
            self.write_word(self.written, WRAP);
        }
        Some(self.written + unused)
    }

    #[inline]
    fn write_word(&self, position: usize, word: u64) {
        self.shared.slot(position).with_mut(|slot| {
            // SAFETY: as for items, only the sender accesses the slot.
            unsafe { (*slot).word = word }
        });
    }
}

impl<T: Send> Receiver<T> {
    /// Returns whether no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read == self.shared.written.0.load(Ordering::Acquire)
    }

    /// Returns the next message's head, if there is a message.
    #[inline]
    pub fn peek(&mut self) -> Option<Head> {
        let (word, position) = self.next()?;
        Some(Head { tag: word as u32, at: self.read_word(position + 1) })
    }

    /// Takes the next message and passes its items to `each` in order. Returns `None` if there is no message. If `each`
    /// panics, the rest of the message is dropped.
    #[inline]
    pub fn receive(&mut self, mut each: impl FnMut(T)) -> Option<Head> {
        let (word, position) = self.next()?;
        let head = Head { tag: word as u32, at: self.read_word(position + 1) };
        let (first, count) = (position + WORDS, (word >> 32) as usize);
        let Self { shared, read, .. } = self;
        let mut rest = Rest { slots: shared.items(first, count).iter(), shared, read, end: first + count };
        while let Some(item) = rest.take() {
            each(item);
        }
        Some(head)
    }

    /// Returns the next message's first word and its position.
    #[inline]
    fn next(&mut self) -> Option<(u64, usize)> {
        if self.read == self.written {
            self.written = self.shared.written.0.load(Ordering::Acquire);
            if self.read == self.written {
                return None;
            }
        }
        let word = self.read_word(self.read);
        if word != WRAP {
            return Some((word, self.read));
        }
        // The sender published the `WRAP` mark together with the message at the start, so that message is there.
        self.read += self.shared.before_end(self.read);
        Some((self.read_word(self.read), self.read))
    }

    #[inline]
    fn read_word(&self, position: usize) -> u64 {
        self.shared.slot(position).with(|slot| {
            // SAFETY: the slot is published by the sender and not yet given back, so only the receiver accesses it. A
            // message's first two slots hold words.
            unsafe { (*slot).word }
        })
    }
}

/// The items of a message that have not been taken yet. Dropping this value frees the slots of the message for the
/// sender.
struct Rest<'a, T> {
    slots: std::slice::Iter<'a, UnsafeCell<Slot<T>>>,
    shared: &'a Shared<T>,
    read: &'a mut usize,
    end: usize,
}

impl<T> Rest<'_, T> {
    #[inline]
    fn take(&mut self) -> Option<T> {
        // SAFETY: as in `read_word`. The slot holds an item, which is read once, because the iterator moves on.
        let item = self.slots.next()?.with(|slot| unsafe { std::ptr::read(&raw const (*slot).item) });
        Some(ManuallyDrop::into_inner(item))
    }
}

impl<T> Drop for Rest<'_, T> {
    #[inline]
    fn drop(&mut self) {
        while self.take().is_some() {}
        *self.read = self.end;
        self.shared.read.0.store(self.end, Ordering::Release);
    }
}

/// The last of the two ends drops the remaining items.
impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let (mut read, written) = (self.read.0.load(Ordering::Relaxed), self.written.0.load(Ordering::Relaxed));
        while read != written {
            // SAFETY: no other owner exists, and between `read` and `written` there are whole messages.
            let word = self.slot(read).with(|slot| unsafe { (*slot).word });
            if word == WRAP {
                read += self.before_end(read);
                continue;
            }
            read += WORDS;
            for _ in 0..word >> 32 {
                // SAFETY: as above. Each item is dropped once.
                self.slot(read).with_mut(|slot| unsafe { ManuallyDrop::drop(&mut (*slot).item) });
                read += 1;
            }
        }
    }
}
