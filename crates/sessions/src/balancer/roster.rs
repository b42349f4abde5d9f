//! The backends of all sessions: the backends of the present configuration, and former backends that still have
//! sessions.

use hashbrown::HashMap;

use super::services::{Backend, Hop, Name, Services};

/// A backend's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackendEntry {
    service: Name,
    /// The backend's address, port and protocol.
    end: Name,
    pub(super) hop: Hop,
    /// True if the backend is in the present configuration.
    pub(super) present: bool,
    /// True if the backend's sessions are tracked only by the client's packets.
    pub(super) one_way: bool,
    /// Number of open sessions. An entry may be reused only if this is 0.
    pub(super) open: u64,
    /// Number of sessions opened so far.
    pub(super) opened: u64,
    /// Number of packets sent to the backend.
    pub(super) packets: u64,
}

impl BackendEntry {
    /// Returns the backend's address, port and protocol. Port 0 means that packets keep their port.
    pub(super) fn end(&self) -> Name {
        self.end
    }
}

/// The backends of a worker's sessions.
#[derive(Debug, Default)]
pub(super) struct Roster {
    entries: Vec<BackendEntry>,
    /// Indices in `entries` of the present configuration's backends, in the order of [`Services::backends`].
    present: Vec<u16>,
}

/// Maximum number of entries. A session stores the index of an entry in 16 bits.
const MOST: usize = (1 << 16) - 2;

impl Roster {
    #[inline(always)]
    pub(super) fn get(&self, index: u16) -> &BackendEntry {
        &self.entries[usize::from(index)]
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: u16) -> &mut BackendEntry {
        &mut self.entries[usize::from(index)]
    }

    /// Returns the index in the roster of the backend that has the index `backend` in the present configuration.
    pub(super) fn of(&self, backend: usize) -> u16 {
        self.present[backend]
    }

    /// Returns the entries of the present configuration's backends, in the order of [`Services::backends`].
    pub(super) fn present(&self) -> impl Iterator<Item = &BackendEntry> {
        self.present.iter().map(|index| self.get(*index))
    }

    /// Takes over a configuration's backends. A known backend (with the same service, address, port and `mode`) keeps
    /// its entry and its sessions. The entry of a former backend is reused once the backend has no sessions. Returns
    /// false if there are not enough entries. Then the former backends are only marked as not present: the caller must
    /// end their sessions and call this again. Allocates memory, which is acceptable once per configuration.
    pub(super) fn adopt(&mut self, services: &Services) -> bool {
        let key = |hop: Hop, service: Name, end: Name| (service, end, hop == Hop::Route);
        let known: HashMap<_, u16> = (0u16..)
            .zip(&self.entries)
            .map(|(index, entry)| (key(entry.hop, entry.service, entry.end), index))
            .collect();
        self.entries.iter_mut().for_each(|entry| entry.present = false);
        let indices: Vec<_> =
            services.backends.iter().map(|it| known.get(&key(it.hop, it.service, it.end)).copied()).collect();
        for (backend, index) in services.backends.iter().zip(&indices) {
            if let Some(index) = index {
                let entry = self.get_mut(*index);
                (entry.present, entry.hop, entry.one_way) = (true, backend.hop, backend.one_way);
            }
        }
        let free = (0u16..).zip(&self.entries).filter(|(_, entry)| !entry.present && entry.open == 0);
        let mut free: Vec<u16> = free.map(|(index, _)| index).collect();
        let new = indices.iter().filter(|index| index.is_none()).count();
        if self.entries.len() + new.saturating_sub(free.len()) > MOST {
            return false;
        }
        self.present.clear();
        for (backend, index) in services.backends.iter().zip(indices) {
            let index = index.unwrap_or_else(|| self.insert(backend, free.pop()));
            self.present.push(index);
        }
        true
    }

    /// Stores a new backend in the entry `free`, or in a new entry if there is none. Returns the index of the entry.
    fn insert(&mut self, backend: &Backend, free: Option<u16>) -> u16 {
        let Backend { service, end, hop, one_way } = *backend;
        let entry = BackendEntry { service, end, hop, present: true, one_way, open: 0, opened: 0, packets: 0 };
        match free {
            Some(index) => {
                *self.get_mut(index) = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u16
            }
        }
    }
}
