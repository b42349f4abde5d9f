//! Rings that hand items from one thread to another, a message at a time, without a lock.
//!
//! One sender, one receiver, a fixed number of slots. A message is two words (what it is, when it was sent) and its
//! items behind them, in one piece; it is published by one store, however many items it has, so that the two cores
//! exchange little more than the cache lines that the items themselves are in. Free slots are the sender's credit:
//! a message for which there are none is refused, and nobody waits. (Lamport 1983 for the two indices; Ferguson and
//! Giacomoni, "FastForward", 2008, for what the lines cost.)
//!
//! The file uses nothing but what `super::sync` gives, so that the same code runs on loom's types in
//! `tests/ring_loom.rs`.

use std::mem::ManuallyDrop;

use super::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};

/// What a message says of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the items are for; [`Head::MOST`] at most.
    pub tag: u32,
    /// When it was sent, on the sender's clock.
    pub at: u64,
}

impl Head {
    /// The highest tag.
    pub const MOST: u32 = u32::MAX - 1;
}

/// A message's words, before its items.
const WORDS: usize = 2;
/// Stands where a message would have come, but for the slots behind: the next one is at the ring's start.
const TURN_ROUND: u64 = u64::MAX;

/// A slot holds a message's word or one of its items.
union Slot<T> {
    word: u64,
    item: ManuallyDrop<T>,
}

/// What is in a cache line (and the neighbour that the processor fetches with it) of its own.
#[repr(align(128))]
struct Apart<T>(T);

struct Shared<T> {
    slots: Box<[UnsafeCell<Slot<T>>]>,
    /// Slots ever written, published by the sender.
    written: Apart<AtomicUsize>,
    /// Slots ever read, published by the receiver.
    read: Apart<AtomicUsize>,
}

// SAFETY: a slot is accessed by the sender alone from the moment it reads (acquire) that the receiver has read it, and
// by the receiver alone from the moment it reads (acquire) that the sender has written it; items go from one thread to
// the other, which `T: Send` allows.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    fn slot(&self, position: usize) -> &UnsafeCell<Slot<T>> {
        // The number of slots is a power of two.
        &self.slots[position & (self.slots.len() - 1)]
    }

    /// The slots of `items` items of one message, whose first is at `position`: they are in one piece.
    #[inline]
    fn items(&self, position: usize, items: usize) -> &[UnsafeCell<Slot<T>>] {
        &self.slots[position & (self.slots.len() - 1)..][..items]
    }

    /// How many slots lie between `position` and the ring's end.
    fn before_end(&self, position: usize) -> usize {
        self.slots.len() - (position & (self.slots.len() - 1))
    }
}

/// The end of a ring that gives.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    written: usize,
    /// As last looked at.
    read: usize,
}

/// The end of a ring that takes.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// As last looked at.
    written: usize,
    read: usize,
}

/// A ring with room for `items` items in messages of `longest` at most, or somewhat more.
#[must_use]
pub fn ring<T: Send>(items: usize, longest: usize) -> (Sender<T>, Receiver<T>) {
    // Twice the longest message always fits, whatever is left unused at the end.
    let slots = (items.max(longest) + items.div_ceil(longest.max(1)) * WORDS).max(2 * (longest + WORDS));
    let slots = slots.next_power_of_two();
    let slots = (0..slots).map(|_| UnsafeCell::new(Slot { word: 0 })).collect();
    let shared = Shared { slots, written: Apart(AtomicUsize::new(0)), read: Apart(AtomicUsize::new(0)) };
    let shared = Arc::new(shared);
    (Sender { shared: Arc::clone(&shared), written: 0, read: 0 }, Receiver { shared, written: 0, read: 0 })
}

impl<T: Send> Sender<T> {
    /// How many slots there are: items, and two for each message.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.shared.slots.len()
    }

    /// Whether a message of so many items can be sent now. What there is room for once, there is until it is sent.
    #[inline]
    pub fn has_room(&mut self, items: usize) -> bool {
        self.reserve(items + WORDS).is_some()
    }

    /// Sends a message of all `items`; `false`, and none of them taken, where there is not room for as many as the
    /// iterator says that it has. Those that it gives beyond are not taken.
    #[inline]
    pub fn send(&mut self, head: Head, items: &mut impl ExactSizeIterator<Item = T>) -> bool {
        let most = items.len();
        let Some(start) = self.reserve(most + WORDS) else { return false };
        let mut count = 0;
        // In this order no item is taken for which there is no slot.
        for (slot, item) in self.shared.items(start + WORDS, most).iter().zip(items.by_ref()) {
            // SAFETY: the slot is between `written` and the ring's length past `read`: the sender's alone.
            slot.with_mut(|slot| unsafe { (*slot).item = ManuallyDrop::new(item) });
            count += 1;
        }
        self.write_word(start, u64::from(head.tag.min(Head::MOST)) | (count as u64) << 32);
        self.write_word(start + 1, head.at);
        self.written = start + WORDS + count;
        self.shared.written.0.store(self.written, Ordering::Release);
        true
    }

    /// Where a message of `slots` slots can be written.
    #[inline]
    fn reserve(&mut self, slots: usize) -> Option<usize> {
        let end = self.shared.before_end(self.written);
        // What does not fit before the end goes to the start, and the slots in between stay unused.
        let unused = if slots <= end { 0 } else { end };
        let needed = self.written + unused + slots;
        if needed - self.read > self.shared.slots.len() {
            self.read = self.shared.read.0.load(Ordering::Acquire);
            if needed - self.read > self.shared.slots.len() {
                return None;
            }
        }
        if unused > 0 {
            self.write_word(self.written, TURN_ROUND);
        }
        Some(self.written + unused)
    }

    #[inline]
    fn write_word(&self, position: usize, word: u64) {
        self.shared.slot(position).with_mut(|slot| {
            // SAFETY: as for items: the slot is the sender's alone.
            unsafe { (*slot).word = word }
        });
    }
}

impl<T: Send> Receiver<T> {
    /// The next message's head, where one is there.
    #[inline]
    pub fn peek(&mut self) -> Option<Head> {
        let (word, position) = self.next()?;
        Some(Head { tag: word as u32, at: self.read_word(position + 1) })
    }

    /// Takes the next message: its items go to `each` in order. `None` where none is there. Should `each` panic, the
    /// rest of the message is dropped.
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

    /// The next message's first word, and where it is.
    #[inline]
    fn next(&mut self) -> Option<(u64, usize)> {
        if self.read == self.written {
            self.written = self.shared.written.0.load(Ordering::Acquire);
            if self.read == self.written {
                return None;
            }
        }
        let word = self.read_word(self.read);
        if word != TURN_ROUND {
            return Some((word, self.read));
        }
        // It is published together with the message at the start.
        self.read += self.shared.before_end(self.read);
        Some((self.read_word(self.read), self.read))
    }

    #[inline]
    fn read_word(&self, position: usize) -> u64 {
        self.shared.slot(position).with(|slot| {
            // SAFETY: the slot is before what the sender has published and not yet given back: the receiver's alone;
            // a message's first two slots hold words.
            unsafe { (*slot).word }
        })
    }
}

/// The items of a message that have not been taken yet. Gives the message's slots back at the end.
struct Rest<'a, T> {
    slots: std::slice::Iter<'a, UnsafeCell<Slot<T>>>,
    shared: &'a Shared<T>,
    read: &'a mut usize,
    end: usize,
}

impl<T> Rest<'_, T> {
    #[inline]
    fn take(&mut self) -> Option<T> {
        // SAFETY: as in `read_word`; the slot holds an item, which is read once, because the iterator moves on.
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

/// What nobody has taken is dropped with the last of the two ends.
impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let (mut read, written) = (self.read.0.load(Ordering::Relaxed), self.written.0.load(Ordering::Relaxed));
        while read != written {
            // SAFETY: nobody else is left, and between `read` and `written` lie whole messages.
            let word = self.slot(read).with(|slot| unsafe { (*slot).word });
            if word == TURN_ROUND {
                read += self.before_end(read);
                continue;
            }
            read += WORDS;
            for _ in 0..word >> 32 {
                // SAFETY: as above; each item is dropped once.
                self.slot(read).with_mut(|slot| unsafe { ManuallyDrop::drop(&mut (*slot).item) });
                read += 1;
            }
        }
    }
}
