//! Packets that a module holds back: waiting for a neighbour, for their turn, for the rest of a datagram.
//!
//! The engine owns the shelf, so that what is held can always be counted and never be lost with its function.

use forebay_packet::{Batch, Packet};

/// Under what a packet is held. A key is valid until its packet is taken; an old one never finds another packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    place: u32,
    generation: u32,
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    packet: Option<Packet>,
}

/// Held packets by key.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Keys promised during the present call, with the packet's index in the batch.
    promised: Vec<(usize, Key)>,
    held: usize,
}

impl Shelf {
    /// How many packets are held.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Promises a place for the packet at `index` of the batch; [`put`](Self::put) fills it.
    pub(crate) fn reserve(&mut self, index: usize) -> Key {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        let key = Key { place, generation: self.places[place as usize].generation };
        self.promised.push((index, key));
        key
    }

    /// Puts the packet that was at `index` of the batch where it was promised; gives it back where no place was.
    pub(crate) fn put(&mut self, index: usize, packet: Packet) -> Result<(), Packet> {
        let Some(at) = self.promised.iter().position(|(promised, _)| *promised == index) else { return Err(packet) };
        let (_, key) = self.promised.swap_remove(at);
        self.places[key.place as usize].packet = Some(packet);
        self.held += 1;
        Ok(())
    }

    /// Withdraws the promises that the call did not keep (it put the packet on another gate after all).
    pub(crate) fn settle(&mut self) {
        while let Some((_, key)) = self.promised.pop() {
            self.retire(key);
        }
    }

    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Packet> {
        self.places.get_mut(key.place as usize).filter(|place| place.generation == key.generation)?.packet.as_mut()
    }

    pub(crate) fn take(&mut self, key: Key) -> Option<Packet> {
        let place = self.places.get_mut(key.place as usize).filter(|place| place.generation == key.generation)?;
        let packet = place.packet.take()?;
        self.held -= 1;
        self.retire(key);
        Some(packet)
    }

    /// All that is held.
    pub(crate) fn packets(&mut self) -> impl Iterator<Item = &mut Packet> {
        self.places.iter_mut().filter_map(|place| place.packet.as_mut())
    }

    /// Takes out as many held packets as fit into `batch`, in no particular order: for winding up.
    pub(crate) fn empty_into(&mut self, batch: &mut Batch) {
        for at in 0..self.places.len() {
            if self.held == 0 || batch.room() == 0 {
                break;
            }
            let key = Key { place: at as u32, generation: self.places[at].generation };
            if let Some(packet) = self.take(key) {
                // There is room, as was just seen.
                let _ = batch.push(packet);
            }
        }
    }

    fn retire(&mut self, key: Key) {
        let place = &mut self.places[key.place as usize];
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.place);
    }
}
