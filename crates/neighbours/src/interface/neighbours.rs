//! The neighbours of an interface: a table of fixed size that all workers read without waiting, and that few events
//! change.
//!
//! All workers share one table, because an answer comes to one worker, and all workers have packets to send. A slot is
//! a cache line. A reader either reads a consistent slot, or detects by the version of the slot that a writer was
//! changing it (a sequence lock; Boehm, "Can Seqlocks Get Along with Programming Language Memory Models?", MSPC 2012);
//! then the packet takes the slow path. Slots form groups of eight. Writers of a group exclude each other by a flag and
//! wait for it only briefly. A new entry in a full group replaces the least valuable entry.

use std::array;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use forebay_graph::Own;
use forebay_memory::{NoMemory, numbered};
use forebay_packet::host_address::is_mapped;
use forebay_packet::wire::ethernet::MacAddress;

use super::entry::{Action, Entry, Event, NeighbourState, Timers};

/// The number of slots in a group.
const GROUP: usize = 8;
/// The number of times that a writer checks whether a group is free. All checks together take longer than a change, so
/// they fail only if the other writer was interrupted.
const PATIENCE: usize = 256;

/// An address as a key of the table. An IPv4 address is stored as its IPv4-mapped IPv6 address (RFC 4291 section
/// 2.5.5.2). No node has such an address, and no IPv6 packet provides one: only ARP sets entries of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address(u128);

impl Address {
    /// Returns the key of an IPv4 address, which is a number in host byte order.
    #[inline(always)]
    pub(crate) fn v4(address: u32) -> Self {
        Self(0xffff_0000_0000 | address as u128)
    }

    /// Returns `None` for an IPv4-mapped address, which would be the key of an IPv4 address.
    #[inline(always)]
    pub(crate) fn v6(address: u128) -> Option<Self> {
        (!is_mapped(address)).then_some(Self(address))
    }

    /// Returns `None` for an IPv4-mapped address.
    pub(crate) fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Some(Self::v4(address.to_bits())),
            IpAddr::V6(address) => Self::v6(address.to_bits()),
        }
    }

    /// Returns the 128 bits of the address folded into 64 bits.
    #[inline(always)]
    pub(crate) fn number(self) -> u64 {
        self.0 as u64 ^ (self.0 >> 64) as u64
    }

    /// Returns the address; IPv4 for the key of an IPv4 address.
    pub(crate) fn ip(self) -> IpAddr {
        Ipv6Addr::from_bits(self.0).to_canonical()
    }
}

/// One neighbour, in one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Slot {
    /// Odd while a writer changes the slot. Each change increases the version by 2.
    version: AtomicU32,
    /// The upper half of the address.
    upper: AtomicU64,
    /// The lower half of the address.
    lower: AtomicU64,
    /// The MAC address in the upper 48 bits, and rounds, tries and state in the lowest 16 bits (see [`pack`]); 0 for a
    /// free slot.
    value: AtomicU64,
    /// [`Entry::at`].
    at: AtomicU64,
}

/// The slots in which the addresses of one group may be. Changes of a group are made by one thread at a time.
struct Group {
    /// Held by the thread that changes the slots.
    writer: Own<()>,
    slots: [Slot; GROUP],
}

/// The reason why a change was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another thread writes in the same group and was interrupted.
    Busy,
    /// All slots of the group are taken by more valuable entries.
    Full,
    /// The entry does not exist.
    Absent,
}

/// The result of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    /// The entry after the change; if it was removed, its last version.
    pub(crate) entry: Entry,
    /// The action that the caller must take now.
    pub(crate) action: Action,
    /// True if another entry was evicted for the entry.
    pub(crate) evicted: bool,
}

/// The table of neighbours.
pub(crate) struct Neighbours {
    groups: Box<[Group]>,
    /// The right shift from a 64-bit hash to the index of a slot.
    shift: u32,
    /// Odd numbers that outsiders do not know.
    multipliers: [u64; 2],
    /// The durations of the state machine.
    pub(crate) timers: Timers,
}

impl Slot {
    /// Returns the address, the value and the time of the slot. `None` if a writer is changing it.
    #[inline(always)]
    fn read(&self) -> Option<(Address, u64, u64)> {
        let version = self.version.load(Ordering::Acquire);
        let upper = self.upper.load(Ordering::Relaxed);
        let lower = self.lower.load(Ordering::Relaxed);
        let value = self.value.load(Ordering::Relaxed);
        let at = self.at.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        whole.then_some((Address(u128::from(upper) << 64 | u128::from(lower)), value, at))
    }

    /// Returns the slot's entry; `None` if the slot is free. For a thread that does not hold the group, `None` may also
    /// mean that a writer is changing the slot.
    fn held(&self) -> Option<(Address, Entry)> {
        let (address, value, at) = self.read()?;
        Some((address, unpack(value, at)?))
    }

    /// Writes the slot; without an entry, the slot becomes free. Only for the thread that holds the group.
    fn write(&self, address: Address, entry: Option<Entry>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.upper.store((address.0 >> 64) as u64, Ordering::Relaxed);
        self.lower.store(address.0 as u64, Ordering::Relaxed);
        self.value.store(entry.as_ref().map_or(0, pack), Ordering::Relaxed);
        self.at.store(entry.map_or(0, |entry| entry.at), Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// Returns the value of a slot with this entry. [`unpack`] is the inverse.
fn pack(entry: &Entry) -> u64 {
    let [a, b, c, d, e, f] = entry.mac.0;
    let low = u16::from(entry.rounds) << 8 | u16::from(entry.tries & 0xf) << 4 | entry.state as u16;
    let [g, h] = low.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Returns the entry of a slot's value; `None` for a free slot.
#[inline(always)]
fn unpack(value: u64, at: u64) -> Option<Entry> {
    let [a, b, c, d, e, f, rounds, low] = value.to_be_bytes();
    let state = NeighbourState::of((low & 0xf).into())?;
    Some(Entry { state, mac: MacAddress([a, b, c, d, e, f]), tries: low >> 4, rounds, at })
}

/// Returns true if the state in a slot's value is [usable](NeighbourState::is_usable).
#[inline(always)]
fn is_usable(value: u64) -> bool {
    USABLE >> (value & 0xf) & 1 == 1
}

/// A bit for each state for which [`NeighbourState::is_usable`] returns true.
const USABLE: u32 = {
    let (mut bits, mut number) = (0, 0);
    while number < 8 {
        if let Some(state) = NeighbourState::of(number)
            && state.is_usable()
        {
            bits |= 1 << number;
        }
        number += 1;
    }
    bits
};

impl Neighbours {
    /// Creates a table for about `capacity` neighbours. It has at least twice this number of slots, and at least 64, of
    /// 64 bytes each.
    pub(crate) fn new(capacity: usize, secret: u64, timers: Timers) -> Result<Self, NoMemory> {
        let groups = (capacity * 2 / GROUP).next_power_of_two().max(8);
        let group = |_| Group { writer: Own::new(()), slots: array::from_fn(|_| Slot::default()) };
        let multipliers = [secret | 1, secret.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1];
        let shift = 61 - groups.trailing_zeros();
        Ok(Self { groups: numbered(groups, group)?, shift, multipliers, timers })
    }

    /// Returns the group and slot at which the search for an address begins. The slot is derived from a sum of products
    /// with odd numbers that outsiders do not know (Dietzfelbinger and others 1997), so that an attacker cannot choose
    /// addresses of one group.
    #[inline(always)]
    fn start(&self, address: Address) -> (usize, usize) {
        let [a, b] = self.multipliers;
        let folded = ((address.0 >> 64) as u64).wrapping_mul(a).wrapping_add((address.0 as u64).wrapping_mul(b));
        let start = (folded ^ folded >> 32).wrapping_mul(a) >> self.shift;
        (start as usize / GROUP, start as usize % GROUP)
    }

    /// Returns a value whose upper 48 bits are the Ethernet address to which packets to `address` are sent now. `None`
    /// if the slow path must decide.
    #[inline(always)]
    pub(crate) fn usable(&self, address: Address, now: u64) -> Option<u64> {
        let (group, first) = self.start(address);
        let slots = &self.groups.get(group)?.slots;
        for step in 0..GROUP {
            let (found, value, at) = slots[(first + step) % GROUP].read()?;
            if found == address && value != 0 {
                return (is_usable(value) && now < at).then_some(value);
            }
        }
        None
    }

    /// Returns the entry of an address. `None` if there is no entry, or if a writer is changing its slot.
    pub(crate) fn look(&self, address: Address) -> Option<Entry> {
        let group = self.groups.get(self.start(address).0)?;
        group.slots.iter().filter_map(Slot::held).find(|(found, _)| *found == address).map(|(_, entry)| entry)
    }

    /// Runs `change` with exclusive access to the group of an address. `change` gets the slots and the index at which
    /// the search for the address begins. Returns `None`, without a call of `change`, if another writer holds the group
    /// during `patience` checks.
    fn with_group<R>(
        &self,
        address: Address,
        patience: usize,
        change: impl FnOnce(&[Slot; GROUP], usize) -> R,
    ) -> Option<R> {
        let (group, first) = self.start(address);
        let group = self.groups.get(group)?;
        let mut remaining = patience;
        let writer = loop {
            match group.writer.lend() {
                Some(writer) => break writer,
                None if remaining == 0 => return None,
                None => {
                    remaining -= 1;
                    std::hint::spin_loop();
                }
            }
        };
        let result = change(&group.slots, first);
        drop(writer);
        Some(result)
    }

    /// Handles an event of an existing entry. The caller must take the action in the result.
    pub(crate) fn step(&self, address: Address, event: Event, now: u64) -> Result<Changed, Refused> {
        let changed = self.with_group(address, PATIENCE, |slots, _| {
            let slot = slots.iter().find(|slot| slot.held().is_some_and(|(found, _)| found == address))?;
            let (_, entry) = slot.held()?;
            Some(step(slot, address, entry, event, now, &self.timers))
        });
        changed.ok_or(Refused::Busy)?.ok_or(Refused::Absent)
    }

    /// Handles an event of an entry. If the entry does not exist, creates it: [`Entry::stale`] for a request to us,
    /// [`Entry::wanted`] for other events. If the group is full, a new entry evicts a less valuable entry. The caller
    /// must take the action in the result.
    pub(crate) fn step_or_make(&self, address: Address, event: Event, now: u64) -> Result<Changed, Refused> {
        let made = match event {
            Event::Asked(mac) => Entry::stale(mac, now, &self.timers),
            _ => Entry::wanted(),
        };
        let changed = self.with_group(address, PATIENCE, |slots, first| {
            let mut worst = (0, usize::MAX, u64::MAX);
            for step_on in 0..GROUP {
                let at = (first + step_on) % GROUP;
                match slots[at].held() {
                    Some((found, entry)) if found == address => {
                        return Ok(step(&slots[at], address, entry, event, now, &self.timers));
                    }
                    Some((_, entry)) => worst = worse(worst, (worth(&entry, now), at, entry.at)),
                    None => worst = worse(worst, (FREE, at, 0)),
                }
            }
            let (worth, at, _) = worst;
            // A request to us must not evict entries in use, because a flood of requests would evict all of them.
            let most = if matches!(event, Event::Asked(_)) { PAST } else { IN_USE };
            if worth > most {
                return Err(Refused::Full);
            }
            let mut changed = step(&slots[at], address, made, event, now, &self.timers);
            changed.evicted = worth > FREE;
            Ok(changed)
        });
        changed.ok_or(Refused::Busy)?
    }

    /// Writes an entry, and replaces the known entry of the address, if there is one. Waits for other writers without a
    /// limit, so only changes by operators may call this function.
    pub(crate) fn put(&self, address: Address, entry: Entry, now: u64) -> Result<(), Refused> {
        let put = self.with_group(address, usize::MAX, |slots, first| {
            let mut worst = (usize::MAX, 0, u64::MAX);
            for at in (0..GROUP).map(|step| (first + step) % GROUP) {
                let this = match slots[at].held() {
                    Some((found, _)) if found == address => (0, at, 0),
                    None => (1, at, 0),
                    Some((_, other)) => (2 + worth(&other, now), at, other.at),
                };
                worst = if (this.0, this.2) < (worst.0, worst.2) { this } else { worst };
            }
            if worst.0 > 2 + IN_USE {
                return Err(Refused::Full);
            }
            slots[worst.1].write(address, Some(entry));
            Ok(())
        });
        put.ok_or(Refused::Busy)?
    }

    /// Removes an entry. Returns true if it existed. Waits for other writers without a limit, so only changes by
    /// operators may call this function.
    pub(crate) fn remove(&self, address: Address) -> bool {
        let removed = self.with_group(address, usize::MAX, |slots, _| {
            let slot = slots.iter().find(|slot| slot.held().is_some_and(|(found, _)| found == address));
            slot.map(|slot| slot.write(Address(0), None)).is_some()
        });
        removed.unwrap_or(false)
    }

    /// Handles the entries of a group whose time has come, except entries for whose time a worker waits. `group` may be
    /// any number, and wraps around. Returns the number of removed entries.
    pub(crate) fn sweep(&self, group: usize, now: u64) -> usize {
        let Some(slots) = self.groups.get(group % self.groups.len()).map(|group| &group.slots) else { return 0 };
        let mut removed = 0;
        for slot in slots {
            let Some((address, entry)) = slot.held() else { continue };
            // A worker handles the time of a timed entry. If that worker no longer exists, the entry is removed here,
            // `timers.forget` after its time.
            let due =
                entry.due(&self.timers).saturating_add(if entry.state.is_timed() { self.timers.forget } else { 0 });
            if now < due {
                continue;
            }
            if entry.state.is_timed() {
                removed += usize::from(self.remove_if_unchanged(address, &entry));
            } else if let Ok(changed) = self.step(address, Event::Time, now) {
                removed += usize::from(changed.action == Action::Remove);
            }
        }
        removed
    }

    /// Removes an entry if it is still equal to `entry`. Returns true if it was removed.
    fn remove_if_unchanged(&self, address: Address, entry: &Entry) -> bool {
        let removed = self.with_group(address, PATIENCE, |slots, _| {
            let slot = slots.iter().find(|slot| slot.held() == Some((address, *entry)));
            slot.map(|slot| slot.write(Address(0), None)).is_some()
        });
        removed.unwrap_or(false)
    }

    /// Returns the number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Returns all entries, ordered by address.
    pub(crate) fn all(&self) -> Vec<(Address, Entry)> {
        let mut all: Vec<_> = self.groups.iter().flat_map(|group| group.slots.iter().filter_map(Slot::held)).collect();
        all.sort_unstable_by_key(|(address, _)| *address);
        all.dedup_by_key(|(address, _)| *address);
        all
    }
}

/// Handles an event of `entry`, and writes the result to the slot. Only for the thread that holds the group.
fn step(slot: &Slot, address: Address, mut entry: Entry, event: Event, now: u64, timers: &Timers) -> Changed {
    let before = slot.held();
    let action = entry.step(event, now, timers);
    if action == Action::Remove {
        slot.write(Address(0), None);
    } else if before != Some((address, entry)) {
        slot.write(address, Some(entry));
    }
    Changed { entry, action, evicted: false }
}

/// The worth of a free slot.
const FREE: usize = 0;
/// The worth of unused entries. A request to us may evict entries up to this worth.
const PAST: usize = 2;
/// The worth of entries in use. A packet may evict entries up to this worth.
const IN_USE: usize = 4;

/// Returns the worth of an entry: entries with the least worth are evicted first.
fn worth(entry: &Entry, now: u64) -> usize {
    match entry.state {
        NeighbourState::Failed => 1,
        NeighbourState::Stale => PAST,
        NeighbourState::Reachable if now >= entry.at => PAST,
        NeighbourState::Incomplete => 3,
        NeighbourState::Reachable | NeighbourState::Delay | NeighbourState::Probe => IN_USE,
        NeighbourState::Permanent => 5,
    }
}

/// A candidate to evict: its worth, the index of its slot (`usize::MAX` for no candidate), and the time of its entry.
type Worth = (usize, usize, u64);

/// Returns the candidate to evict: the candidate with less worth, or with equal worth the candidate whose time comes
/// earlier. If both are equal, returns `a`, so that a new entry is near the start of its search.
fn worse(a: Worth, b: Worth) -> Worth {
    if a.1 != usize::MAX && (a.0, a.2) <= (b.0, b.2) { a } else { b }
}

#[cfg(test)]
mod tests;
