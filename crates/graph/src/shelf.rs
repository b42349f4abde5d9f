//! Packets that a module holds back: waiting for a neighbour, for their turn, for the rest of a datagram.
//!
//! The engine owns the shelf, so that what is held can always be counted and never be lost with its function.

use forebay_packet::{Batch, MAX_BATCH, Packet};

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
    /// Keys promised during the present call, by the packet's index in the batch; as long as the highest index yet.
    promised: Vec<Option<Key>>,
    /// How many of them there are.
    promises: usize,
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
        if index >= MAX_BATCH {
            // No batch has such a packet.
            self.retire(key);
            return key;
        }
        if index >= self.promised.len() {
            self.promised.resize(index + 1, None);
        }
        self.promises += 1;
        if let Some(before) = self.promised[index].replace(key) {
            self.promises -= 1;
            self.retire(before);
        }
        key
    }

    /// Puts the packet that was at `index` of the batch where it was promised; gives it back where no place was.
    pub(crate) fn put(&mut self, index: usize, packet: Packet) -> Result<(), Packet> {
        let Some(key) = self.promised.get_mut(index).and_then(Option::take) else { return Err(packet) };
        self.promises -= 1;
        self.places[key.place as usize].packet = Some(packet);
        self.held += 1;
        Ok(())
    }

    /// Withdraws the promises that the call did not keep (it put the packet on another gate after all).
    pub(crate) fn settle(&mut self) {
        let mut at = 0;
        while self.promises > 0 {
            if let Some(key) = self.promised[at].take() {
                self.promises -= 1;
                self.retire(key);
            }
            at += 1;
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use forebay_packet::{Pool, PoolOptions};
    use proptest::prelude::*;

    use super::*;

    /// What one call does to the packet at a place of its batch.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Wish {
        /// It goes on.
        None,
        /// It is held.
        Hold,
        /// It is held, and asked for twice.
        Twice,
        /// A place is asked for, and the packet goes on after all.
        Break,
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_holds_what_it_promised_and_finds_each_by_its_key_alone(
            calls in prop::collection::vec(
                (
                    prop::collection::vec(
                        prop::sample::select(vec![Wish::None, Wish::Hold, Wish::Twice, Wish::Break]), 0..20),
                    prop::collection::vec(any::<prop::sample::Index>(), 0..12),
                    any::<bool>(),
                ),
                0..20,
            ),
        ) {
            let pool = Pool::new(PoolOptions { chunks: 1_024, ..PoolOptions::default() }).expect("memory");
            let (mut shelf, mut model, mut spent) = (Shelf::default(), HashMap::<Key, u8>::new(), Vec::new());
            let mut next = 0u8;
            for (wishes, taken, backwards) in calls {
                let mut promised = vec![None; wishes.len()];
                let mut order: Vec<usize> = (0..wishes.len()).collect();
                if backwards {
                    order.reverse();
                }
                for &index in order.iter().filter(|index| wishes[**index] != Wish::None) {
                    if wishes[index] == Wish::Twice {
                        spent.push(shelf.reserve(index));
                    }
                    promised[index] = Some(shelf.reserve(index));
                }
                spent.push(shelf.reserve(MAX_BATCH));
                for (index, wish) in wishes.iter().enumerate() {
                    let mut packet = pool.take().expect("a chunk");
                    packet.write(&[next]);
                    match wish {
                        Wish::Hold | Wish::Twice => {
                            prop_assert!(shelf.put(index, packet).is_ok());
                            model.insert(promised[index].expect("asked for"), next);
                            next = next.wrapping_add(1);
                        }
                        Wish::None => prop_assert!(shelf.put(index, packet).is_err()),
                        Wish::Break => spent.extend(promised[index]),
                    }
                }
                shelf.settle();
                for at in taken {
                    let Some(key) = model.keys().nth(at.index(model.len().max(1))).copied() else { break };
                    let packet = shelf.take(key).expect("held");
                    prop_assert_eq!(Some(packet.data()[0]), model.remove(&key));
                    spent.push(key);
                }
                prop_assert_eq!(shelf.len(), model.len());
                for (key, byte) in &model {
                    prop_assert_eq!(shelf.get(*key).map(|packet| packet.data()[0]), Some(*byte));
                }
                prop_assert!(spent.iter().all(|key| shelf.get(*key).is_none()), "an old key finds nothing");
            }
        }
    }
}
