//! The sessions as packets use them: found by tunnel or by address, each with its bearers.
//!
//! There are two copies, so that sessions can change while workers read them (`forebay_graph::Live`). Therefore the
//! data here is small: two cache lines for a session with one bearer, and sixteen bytes for each address and tunnel in
//! the index. The data that packets change (buckets and counts) has one copy, in `accounts`. The data that only
//! operators read is in `control`.

use std::sync::Arc;

use forebay_graph::Replay;
use forebay_memory::{NoMemory, room};
use forebay_packet::Hidden;
use forebay_simd::prefetch::prefetch_read;
use forebay_tables::sessions::Seed;

use super::condition::{Condition, Seen};
use super::limit::Limit;
use super::line::{Name, User};
use super::places::Index;
use crate::gtpu_decap::HAS_QFI;

/// A bearer of a session.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Bearer {
    /// The number of its session.
    pub(super) session: u32,
    /// The tunnel in which packets come from the user; 0 in an unused slot.
    pub(super) teid: u32,
    /// The peer's identifier of the tunnel to the user; 0 if there is no such tunnel.
    pub(super) peer_teid: u32,
    /// The peer's IPv4 address, as a number in host byte order.
    pub(super) peer: u32,
    /// The limits of the bearer, by [`Direction`](super::Direction).
    pub(super) limits: [Limit; 2],
    /// The QoS flow; 0 if the bearer has none.
    pub(super) qfi: u8,
    /// True if the rate is guaranteed: the bearer then does not count in the limits of the session.
    pub(super) guaranteed: bool,
    /// True if other bearers of the session have the same tunnel: filters then select the bearer, in the uplink too.
    pub(super) several: bool,
}

impl Bearer {
    /// Returns true if a packet that names this QoS flow, with [`HAS_QFI`] set, may belong to the bearer. A bearer
    /// without a QoS flow (4G; 0 is not a flow, TS 24.501 section 9.11.4.12) accepts every flow.
    #[inline(always)]
    pub(super) fn has_flow(&self, flow: u32) -> bool {
        self.qfi == 0 || flow == HAS_QFI | u32::from(self.qfi)
    }
}

/// A session.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Session {
    pub(super) user: User,
    /// The number of its first bearer, which carries the packets that match no filter.
    pub(super) first: u32,
    /// The limits of all bearers without a guaranteed rate together, by direction.
    pub(super) limits: [Limit; 2],
    /// The filters by precedence, each with the number of the bearer of its packets; `None` if there are no filters.
    pub(super) filters: Option<Arc<Vec<(Condition, u32)>>>,
}

impl Session {
    /// Returns the number of the bearer of a packet. `None` if a filter needs a field that cannot be read in the packet
    /// ([`Seen::hidden`]), and no earlier filter matches.
    #[inline(always)]
    pub(super) fn bearer_of(&self, seen: impl FnOnce() -> Seen) -> Option<u32> {
        let Some(filters) = &self.filters else { return Some(self.first) };
        let seen = seen();
        if let Some(hidden) = seen.hidden {
            return self.bearer_of_hidden(filters, &seen, hidden);
        }
        Some(filters.iter().find(|(condition, _)| condition.holds(&seen)).map_or(self.first, |(_, bearer)| *bearer))
    }

    /// Returns the bearer of a packet with a layer that cannot be read, like [`bearer_of`](Self::bearer_of).
    #[cold]
    #[inline(never)]
    fn bearer_of_hidden(&self, filters: &[(Condition, u32)], seen: &Seen, hidden: Hidden) -> Option<u32> {
        for (condition, bearer) in filters {
            if condition.is_unknown(seen, hidden) {
                return None;
            }
            if condition.holds(seen) {
                return Some(*bearer);
            }
        }
        Some(self.first)
    }
}

/// One copy of the sessions. A bearer's or a session's number is its index in the list.
pub(super) struct Users {
    seed: Seed,
    /// By tunnel: the number of the first bearer with this tunnel. A tunnel belongs to one session, and several bearers
    /// of the session may have it.
    by_teid: Index,
    /// By address: the number of the session that has this address.
    by_name: Index,
    bearers: Vec<Bearer>,
    sessions: Vec<Session>,
}

/// A change of one session. The control plane creates it, and each copy of the table [applies](Users::apply) it once.
pub(super) enum Step {
    Add { number: u32, session: Session, bearers: Arc<[(u32, Bearer)]> },
    Remove { number: u32, bearers: Arc<[(u32, Bearer)]> },
}

impl Clone for Users {
    fn clone(&self) -> Self {
        Self {
            seed: self.seed,
            by_teid: self.by_teid.clone(),
            by_name: self.by_name.clone(),
            bearers: with_capacity_of(&self.bearers),
            sessions: with_capacity_of(&self.sessions),
        }
    }

    /// Allocates no memory if both have the same capacity.
    fn clone_from(&mut self, other: &Self) {
        self.seed = other.seed;
        self.by_teid.clone_from(&other.by_teid);
        self.by_name.clone_from(&other.by_name);
        self.bearers.clone_from(&other.bearers);
        self.sessions.clone_from(&other.sessions);
    }
}

/// Returns a copy with the same capacity, so that later additions to the copy allocate no memory.
fn with_capacity_of<T: Clone>(list: &Vec<T>) -> Vec<T> {
    let mut copy = Vec::with_capacity(list.capacity());
    copy.extend_from_slice(list);
    copy
}

impl Replay<Vec<Step>> for Users {
    fn replay(&mut self, log: &mut Vec<Step>) {
        log.drain(..).for_each(|step| self.apply(&step));
    }
}

impl Users {
    /// Creates an empty table with the given capacity. Additions allocate memory only for their filters.
    pub(super) fn new(sessions: usize, bearers: usize, seed: Seed) -> Result<Self, NoMemory> {
        let (by_teid, by_name) = (Index::new(bearers)?, Index::new(sessions * 2)?);
        Ok(Self { seed, by_teid, by_name, bearers: room(bearers)?, sessions: room(sessions)? })
    }

    /// Returns the tag with which a tunnel is found in the index.
    #[inline(always)]
    fn tag_of_teid(&self, teid: u32) -> u32 {
        (self.seed.hash(teid.into(), 1) >> 32) as u32
    }

    /// Returns the tag with which an address is found in the index.
    #[inline(always)]
    fn tag_of_name(&self, name: Name) -> u32 {
        let hash = match name {
            Name::V4(address) => self.seed.hash(address.into(), 4),
            Name::V6(prefix) => self.seed.hash(prefix, 6),
        };
        (hash >> 32) as u32
    }

    /// Returns the bearer with this number; `None` for a number such as `u32::MAX` that no bearer has. An unused slot
    /// is an empty bearer.
    #[inline(always)]
    pub(super) fn bearer(&self, number: u32) -> Option<&Bearer> {
        self.bearers.get(number as usize)
    }

    /// Returns the session with this number; `None` for a number such as `u32::MAX` that no session has. An unused slot
    /// is an empty session.
    #[inline(always)]
    pub(super) fn session(&self, number: u32) -> Option<&Session> {
        self.sessions.get(number as usize)
    }

    /// Returns the number of the first bearer with this tunnel.
    #[inline]
    pub(super) fn by_teid(&self, teid: u32) -> Option<u32> {
        self.by_teid.find(self.tag_of_teid(teid), |bearer| self.has_teid(bearer, teid))
    }

    /// Returns the number of the session that has an address.
    #[inline]
    pub(super) fn by_name(&self, name: Name) -> Option<u32> {
        self.by_name.find(self.tag_of_name(name), |session| self.has_name(session, name))
    }

    #[inline(always)]
    fn has_teid(&self, bearer: u32, teid: u32) -> bool {
        self.bearer(bearer).is_some_and(|bearer| bearer.teid == teid)
    }

    #[inline(always)]
    fn has_name(&self, session: u32, name: Name) -> bool {
        self.session(session).is_some_and(|session| match name {
            Name::V4(address) => session.user.ipv4 == address,
            Name::V6(prefix) => session.user.ipv6 == prefix,
        })
    }

    /// Writes the number of the first bearer with each of these tunnels into `found`, `u32::MAX` for an unknown tunnel.
    /// Each step prefetches the memory of the next step for all packets, so that their cache misses overlap.
    #[inline(always)]
    pub(super) fn find_bearers<const N: usize>(&self, teids: &[u32; N], found: &mut [u32; N]) {
        let mut tags = [0; N];
        for (tag, teid) in tags.iter_mut().zip(teids) {
            *tag = self.tag_of_teid(*teid);
            self.by_teid.prefetch(*tag);
        }
        for (found, tag) in found.iter_mut().zip(&tags) {
            *found = self.by_teid.first(*tag).unwrap_or(u32::MAX);
            prefetch_read(&self.bearers, *found as usize);
        }
        for (found, teid) in found.iter_mut().zip(teids) {
            if *found != u32::MAX && !self.has_teid(*found, *teid) {
                *found = self.by_teid(*teid).unwrap_or(u32::MAX);
            }
            if let Some(bearer) = self.bearer(*found) {
                prefetch_read(&self.sessions, bearer.session as usize);
            }
        }
    }

    /// Writes the number of the session that has each of these addresses into `found`, `u32::MAX` for an unknown
    /// address.
    #[inline(always)]
    pub(super) fn find_sessions<const N: usize>(&self, names: &[Name; N], found: &mut [u32; N]) {
        let mut tags = [0; N];
        for (tag, name) in tags.iter_mut().zip(names) {
            *tag = self.tag_of_name(*name);
            self.by_name.prefetch(*tag);
        }
        for (found, tag) in found.iter_mut().zip(&tags) {
            *found = self.by_name.first(*tag).unwrap_or(u32::MAX);
            prefetch_read(&self.sessions, *found as usize);
        }
        for (found, name) in found.iter_mut().zip(names) {
            if *found != u32::MAX && !self.has_name(*found, *name) {
                *found = self.by_name(*name).unwrap_or(u32::MAX);
            }
            if let Some(session) = self.session(*found) {
                prefetch_read(&self.bearers, session.first as usize);
            }
        }
    }

    /// Prefetches the filters of sessions in two calls. The first call prefetches the heads of the lists, which are not
    /// stored in the sessions, and the second call the filters themselves. Between the calls, the caller should do
    /// other work, so that the memory has time to respond.
    #[inline(always)]
    pub(super) fn prefetch_filters<const N: usize>(&self, sessions: &[u32; N], step: Filters) {
        for filters in sessions.iter().filter_map(|number| self.session(*number)?.filters.as_deref()) {
            match step {
                Filters::Lists => prefetch_read(std::slice::from_ref(filters), 0),
                Filters::Conditions => prefetch_read(filters, 0),
            }
        }
    }

    /// Makes a change. A session that is added must not exist, and a session that is removed must exist.
    pub(super) fn apply(&mut self, step: &Step) {
        match step {
            Step::Add { number, session, bearers } => {
                for (at, (slot, bearer)) in bearers.iter().enumerate() {
                    put(&mut self.bearers, *slot, *bearer);
                    if is_first(bearers, at) {
                        self.by_teid.insert(self.tag_of_teid(bearer.teid), *slot);
                    }
                }
                put(&mut self.sessions, *number, session.clone());
                for name in session.user.names() {
                    self.by_name.insert(self.tag_of_name(name), *number);
                }
            }
            Step::Remove { number, bearers } => {
                for (at, (slot, bearer)) in bearers.iter().enumerate() {
                    if is_first(bearers, at) {
                        self.by_teid.remove(self.tag_of_teid(bearer.teid), *slot);
                    }
                    put(&mut self.bearers, *slot, Bearer::default());
                }
                if let Some(session) = self.sessions.get_mut(*number as usize) {
                    let session = std::mem::take(session);
                    for name in session.user.names() {
                        self.by_name.remove(self.tag_of_name(name), *number);
                    }
                }
            }
        }
    }
}

/// The step of [`Users::prefetch_filters`]: first the heads of the lists, then the filters.
#[derive(Clone, Copy)]
pub(super) enum Filters {
    Lists,
    Conditions,
}

/// Returns true if no bearer before index `at` has the same tunnel as the bearer at `at`. Several bearers may have the
/// same tunnel, and the index `by_teid` contains only the first of them.
fn is_first(bearers: &[(u32, Bearer)], at: usize) -> bool {
    bearers[..at].iter().all(|(_, before)| before.teid != bearers[at].1.teid)
}

/// Writes an element of a list, which grows if necessary.
fn put<T: Clone + Default>(list: &mut Vec<T>, number: u32, value: T) {
    let number = number as usize;
    if list.len() <= number {
        list.resize(number + 1, T::default());
    }
    list[number] = value;
}
