//! The backends that sessions have, over configurations: those that the present one has, and those that it has no more but
//! that sessions are still of.

use hashbrown::HashMap;

use super::services::{Backend, Hop, Name, Services};

/// A backend's place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    service: Name,
    end: Name,
    pub(super) hop: Hop,
    /// Whether the present configuration has it.
    pub(super) present: bool,
    /// Whether its sessions are followed by what clients send alone.
    pub(super) one_way: bool,
    /// How many sessions it has.
    pub(super) open: u64,
    /// How many it has been given.
    pub(super) opened: u64,
    /// How many packets it has been sent.
    pub(super) packets: u64,
}

impl Place {
    /// The backend's own address and port.
    pub(super) fn end(&self) -> Name {
        self.end
    }
}

/// The places.
#[derive(Debug, Default)]
pub(super) struct Roster {
    places: Vec<Place>,
    /// The places of the present configuration's backends, in its order.
    present: Vec<u16>,
}

/// Sessions write down their place in 16 bits.
const MOST: usize = (1 << 16) - 2;

impl Roster {
    #[inline(always)]
    pub(super) fn get(&self, place: u16) -> &Place {
        &self.places[usize::from(place)]
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, place: u16) -> &mut Place {
        &mut self.places[usize::from(place)]
    }

    /// The place of a backend of the present configuration.
    pub(super) fn of(&self, backend: usize) -> u16 {
        self.present[backend]
    }

    /// The places of the present configuration's backends.
    pub(super) fn present(&self) -> impl Iterator<Item = &Place> {
        self.present.iter().map(|place| self.get(*place))
    }

    /// Takes over a configuration's backends: one that was there keeps its place and its sessions, one that is gone keeps its
    /// place as long as it has sessions. `false` where there are not places enough: nothing has changed then but that those
    /// which are gone are told as such, and their sessions must be ended. Once a configuration, this takes memory.
    pub(super) fn adopt(&mut self, services: &Services) -> bool {
        let key = |hop: Hop, service: Name, end: Name| (service, end, hop == Hop::Route);
        let known: HashMap<_, u16> = (0u16..)
            .zip(&self.places)
            .map(|(number, place)| (key(place.hop, place.service, place.end), number))
            .collect();
        self.places.iter_mut().for_each(|place| place.present = false);
        let places: Vec<_> =
            services.backends.iter().map(|it| known.get(&key(it.hop, it.service, it.end)).copied()).collect();
        for (backend, place) in services.backends.iter().zip(&places) {
            if let Some(number) = place {
                let place = self.get_mut(*number);
                (place.present, place.hop, place.one_way) = (true, backend.hop, backend.one_way);
            }
        }
        let free = (0u16..).zip(&self.places).filter(|(_, place)| !place.present && place.open == 0);
        let mut free: Vec<u16> = free.map(|(number, _)| number).collect();
        let new = places.iter().filter(|place| place.is_none()).count();
        if self.places.len() + new.saturating_sub(free.len()) > MOST {
            return false;
        }
        self.present.clear();
        for (backend, place) in services.backends.iter().zip(places) {
            let number = place.unwrap_or_else(|| self.settle(backend, free.pop()));
            self.present.push(number);
        }
        true
    }

    fn settle(&mut self, backend: &Backend, free: Option<u16>) -> u16 {
        let Backend { service, end, hop, one_way } = *backend;
        let place = Place { service, end, hop, present: true, one_way, open: 0, opened: 0, packets: 0 };
        match free {
            Some(number) => {
                *self.get_mut(number) = place;
                number
            }
            None => {
                self.places.push(place);
                (self.places.len() - 1) as u16
            }
        }
    }
}
