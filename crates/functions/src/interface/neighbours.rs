//! The neighbours of an interface: a table of fixed size that all workers read without waiting and few events change.
//!
//! One table for all workers, because an answer comes to one of them and all have packets to send. A place is a cache line: a
//! reader takes it whole or sees by its version that it was being written (a sequence lock; Boehm, "Can Seqlocks Get Along with
//! Programming Language Memory Models?", MSPC 2012), and then the packet goes the slow way. Places come in groups of
//! eight, whose writers exclude each other by a flag that nobody waits for longer than a moment. Who wants a place in a full
//! group takes the place of what is worth least.

use std::array;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use forebay_graph::Own;
use forebay_memory::{NoMemory, numbered};
use forebay_packet::host_address::is_mapped;
use forebay_packet::wire::ethernet::MacAddress;

use super::entry::{Action, Entry, Event, Kind, Timers};

/// Places in a group.
const GROUP: usize = 8;
/// How often a writer looks whether a group is free: longer than a change takes, unless its writer was interrupted.
const PATIENCE: usize = 256;

/// An address as the table has it: of IPv4 as the IPv6 addresses that stand for them (RFC 4291 section 2.5.5.2),
/// which are no node's and never come from a packet of IPv6: ARP alone speaks for IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address(u128);

impl Address {
    #[inline(always)]
    pub(crate) fn v4(address: u32) -> Self {
        Self(0xffff_0000_0000 | address as u128)
    }

    /// `None` for an IPv4-mapped address, which would be IPv4's key.
    #[inline(always)]
    pub(crate) fn v6(address: u128) -> Option<Self> {
        (!is_mapped(address)).then_some(Self(address))
    }

    pub(crate) fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(address) => Some(Self::v4(address.to_bits())),
            IpAddr::V6(address) => Self::v6(address.to_bits()),
        }
    }

    /// Its bits, in half as many.
    #[inline(always)]
    pub(crate) fn number(self) -> u64 {
        self.0 as u64 ^ (self.0 >> 64) as u64
    }

    pub(crate) fn ip(self) -> IpAddr {
        Ipv6Addr::from_bits(self.0).to_canonical()
    }
}

/// One neighbour, in one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Place {
    /// Odd while it is written.
    version: AtomicU32,
    upper: AtomicU64,
    lower: AtomicU64,
    /// MAC address, and in the lowest 16 bits rounds, tries and kind; 0 for a free place.
    value: AtomicU64,
    at: AtomicU64,
}

struct Group {
    /// Lent to who writes.
    writer: Own<()>,
    places: [Place; GROUP],
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Somebody else writes in the same group, and was interrupted at that.
    Busy,
    /// All places of the group are taken by what is worth more.
    Full,
    /// There is no such entry.
    Absent,
}

/// What a change came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    /// The entry as it is now; where it was removed, as it was last.
    pub(crate) entry: Entry,
    pub(crate) action: Action,
    /// Whether another was put out for it.
    pub(crate) evicted: bool,
}

/// The table.
pub(crate) struct Neighbours {
    groups: Box<[Group]>,
    shift: u32,
    multipliers: [u64; 2],
    pub(crate) timers: Timers,
}

impl Place {
    /// What it holds, unless it is being written.
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

    /// The same for who holds the group.
    fn held(&self) -> Option<(Address, Entry)> {
        let (address, value, at) = self.read()?;
        Some((address, unpack(value, at)?))
    }

    /// Writes it. Only who holds the group may.
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

fn pack(entry: &Entry) -> u64 {
    let [a, b, c, d, e, f] = entry.mac.0;
    let low = u16::from(entry.rounds) << 8 | u16::from(entry.tries & 0xf) << 4 | entry.kind as u16;
    let [g, h] = low.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[inline(always)]
fn unpack(value: u64, at: u64) -> Option<Entry> {
    let [a, b, c, d, e, f, rounds, low] = value.to_be_bytes();
    let kind = Kind::of((low & 0xf).into())?;
    Some(Entry { kind, mac: MacAddress([a, b, c, d, e, f]), tries: low >> 4, rounds, at })
}

/// Whether the kind in a place's value is one whose address is used.
#[inline(always)]
fn is_usable(value: u64) -> bool {
    USABLE >> (value & 0xf) & 1 == 1
}

/// Those of [`Kind::is_usable`], as bits.
const USABLE: u32 = {
    let (mut bits, mut number) = (0, 0);
    while number < 8 {
        if let Some(kind) = Kind::of(number)
            && kind.is_usable()
        {
            bits |= 1 << number;
        }
        number += 1;
    }
    bits
};

impl Neighbours {
    /// Room for about so many neighbours: twice as many places, and at least 64, of 64 bytes each.
    pub(crate) fn new(capacity: usize, secret: u64, timers: Timers) -> Result<Self, NoMemory> {
        let groups = (capacity * 2 / GROUP).next_power_of_two().max(8);
        let group = |_| Group { writer: Own::new(()), places: array::from_fn(|_| Place::default()) };
        let multipliers = [secret | 1, secret.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1];
        let shift = 61 - groups.trailing_zeros();
        Ok(Self { groups: numbered(groups, group)?, shift, multipliers, timers })
    }

    /// Where the search for an address begins: its group, and the place in it. A sum of products with odd numbers that
    /// outsiders do not know (Dietzfelbinger and others 1997), so that nobody can aim at one group.
    #[inline(always)]
    fn start(&self, address: Address) -> (usize, usize) {
        let [a, b] = self.multipliers;
        let folded = ((address.0 >> 64) as u64).wrapping_mul(a).wrapping_add((address.0 as u64).wrapping_mul(b));
        let start = (folded ^ folded >> 32).wrapping_mul(a) >> self.shift;
        (start as usize / GROUP, start as usize % GROUP)
    }

    /// The Ethernet address that packets to `address` go to at present; `None` where more is to be done.
    #[inline(always)]
    pub(crate) fn usable(&self, address: Address, now: u64) -> Option<u64> {
        let (group, first) = self.start(address);
        let places = &self.groups.get(group)?.places;
        for step in 0..GROUP {
            let (there, value, at) = places[(first + step) % GROUP].read()?;
            if there == address && value != 0 {
                return (is_usable(value) && now < at).then_some(value);
            }
        }
        None
    }

    /// What is known of an address.
    pub(crate) fn look(&self, address: Address) -> Option<Entry> {
        let group = self.groups.get(self.start(address).0)?;
        group.places.iter().filter_map(Place::held).find(|(there, _)| *there == address).map(|(_, entry)| entry)
    }

    /// Lets `change` see to the group of an address, alone; `None` while another does, who was interrupted.
    fn alone<R>(
        &self,
        address: Address,
        patience: usize,
        change: impl FnOnce(&[Place; GROUP], usize) -> R,
    ) -> Option<R> {
        let (group, first) = self.start(address);
        let group = self.groups.get(group)?;
        let mut left = patience;
        let writer = loop {
            match group.writer.lend() {
                Some(writer) => break writer,
                None if left == 0 => return None,
                None => {
                    left -= 1;
                    std::hint::spin_loop();
                }
            }
        };
        let result = change(&group.places, first);
        drop(writer);
        Some(result)
    }

    /// What becomes of an entry that is there.
    pub(crate) fn step(&self, address: Address, event: Event, now: u64) -> Result<Changed, Refused> {
        let changed = self.alone(address, PATIENCE, |places, _| {
            let place = places.iter().find(|place| place.held().is_some_and(|(there, _)| there == address))?;
            let (_, entry) = place.held()?;
            Some(step(place, address, entry, event, now, &self.timers))
        });
        changed.ok_or(Refused::Busy)?.ok_or(Refused::Absent)
    }

    /// The same, of an entry that is made where it is not there: `wanted` for packets, stale for who asked. What is new
    /// puts out what is worth less than itself.
    pub(crate) fn step_or_make(&self, address: Address, event: Event, now: u64) -> Result<Changed, Refused> {
        let made = match event {
            Event::Asked(mac) => Entry::stale(mac, now, &self.timers),
            _ => Entry::wanted(),
        };
        let changed = self.alone(address, PATIENCE, |places, first| {
            let mut worst = (0, usize::MAX, u64::MAX);
            for step_on in 0..GROUP {
                let at = (first + step_on) % GROUP;
                match places[at].held() {
                    Some((there, entry)) if there == address => {
                        return Ok(step(&places[at], address, entry, event, now, &self.timers));
                    }
                    Some((_, entry)) => worst = worse(worst, (worth(&entry, now), at, entry.at)),
                    None => worst = worse(worst, (FREE, at, 0)),
                }
            }
            let (worth, at, _) = worst;
            // Who merely asks for us puts out nobody that packets go to: a flood of questions would.
            let most = if matches!(event, Event::Asked(_)) { PAST } else { IN_USE };
            if worth > most {
                return Err(Refused::Full);
            }
            let mut changed = step(&places[at], address, made, event, now, &self.timers);
            changed.evicted = worth > FREE;
            Ok(changed)
        });
        changed.ok_or(Refused::Busy)?
    }

    /// Puts an entry in, whatever is known; waits for who writes. For operators.
    pub(crate) fn put(&self, address: Address, entry: Entry, now: u64) -> Result<(), Refused> {
        let put = self.alone(address, usize::MAX, |places, first| {
            let mut worst = (usize::MAX, 0, u64::MAX);
            for at in (0..GROUP).map(|step| (first + step) % GROUP) {
                let this = match places[at].held() {
                    Some((there, _)) if there == address => (0, at, 0),
                    None => (1, at, 0),
                    Some((_, other)) => (2 + worth(&other, now), at, other.at),
                };
                worst = if (this.0, this.2) < (worst.0, worst.2) { this } else { worst };
            }
            if worst.0 > 2 + IN_USE {
                return Err(Refused::Full);
            }
            places[worst.1].write(address, Some(entry));
            Ok(())
        });
        put.ok_or(Refused::Busy)?
    }

    /// Takes an entry out; whether it was there. For operators.
    pub(crate) fn remove(&self, address: Address) -> bool {
        let removed = self.alone(address, usize::MAX, |places, _| {
            let place = places.iter().find(|place| place.held().is_some_and(|(there, _)| there == address));
            place.map(|place| place.write(Address(0), None)).is_some()
        });
        removed.unwrap_or(false)
    }

    /// Sees to entries that nobody waits for and whose time has come, in the group of this number.
    pub(crate) fn sweep(&self, group: usize, now: u64) -> usize {
        let Some(places) = self.groups.get(group % self.groups.len()).map(|group| &group.places) else { return 0 };
        let mut gone = 0;
        for place in places {
            let Some((address, entry)) = place.held() else { continue };
            // What is timed is somebody's; where that one is no more, it goes after long enough.
            let due =
                entry.due(&self.timers).saturating_add(if entry.kind.is_timed() { self.timers.forget } else { 0 });
            if now < due {
                continue;
            }
            if entry.kind.is_timed() {
                gone += usize::from(self.remove_if_unchanged(address, &entry));
            } else if let Ok(changed) = self.step(address, Event::Time, now) {
                gone += usize::from(changed.action == Action::Remove);
            }
        }
        gone
    }

    fn remove_if_unchanged(&self, address: Address, entry: &Entry) -> bool {
        let removed = self.alone(address, PATIENCE, |places, _| {
            let place = places.iter().find(|place| place.held() == Some((address, *entry)));
            place.map(|place| place.write(Address(0), None)).is_some()
        });
        removed.unwrap_or(false)
    }

    /// How many groups there are.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// All entries, by address.
    pub(crate) fn all(&self) -> Vec<(Address, Entry)> {
        let mut all: Vec<_> =
            self.groups.iter().flat_map(|group| group.places.iter().filter_map(Place::held)).collect();
        all.sort_unstable_by_key(|(address, _)| *address);
        all.dedup_by_key(|(address, _)| *address);
        all
    }
}

/// Makes a step and writes what has come of it.
fn step(place: &Place, address: Address, mut entry: Entry, event: Event, now: u64, timers: &Timers) -> Changed {
    let before = place.held();
    let action = entry.step(event, now, timers);
    if action == Action::Remove {
        place.write(Address(0), None);
    } else if before != Some((address, entry)) {
        place.write(address, Some(entry));
    }
    Changed { entry, action, evicted: false }
}

const FREE: usize = 0;
/// What has failed or not been used: the most that who asks for us may put out.
const PAST: usize = 2;
/// What is in use: the most that a packet may put out.
const IN_USE: usize = 4;

/// What an entry is worth when room is needed.
fn worth(entry: &Entry, now: u64) -> usize {
    match entry.kind {
        Kind::Failed => 1,
        Kind::Stale => PAST,
        Kind::Reachable if now >= entry.at => PAST,
        Kind::Incomplete => 3,
        Kind::Reachable | Kind::Delay | Kind::Probe => IN_USE,
        Kind::Permanent => 5,
    }
}

type Worth = (usize, usize, u64);

/// What goes first: what is worth less, and of two alike what would end earlier. The first free place counts, so that what is
/// looked for stands near where the search begins.
fn worse(a: Worth, b: Worth) -> Worth {
    if a.1 != usize::MAX && (a.0, a.2) <= (b.0, b.2) { a } else { b }
}

#[cfg(test)]
mod tests;
