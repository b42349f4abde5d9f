//! The shelf: packets that a module holds, for example while they wait for a neighbour, for their turn, or for the rest
//! of a datagram.
//!
//! The engine owns the shelf. So held packets are always counted, and never lost with their function.

use forebay_packet::{Batch, MAX_BATCH, Packet};

/// The key of a held packet. It is valid until the packet is taken. An old key never finds another packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    slot: u32,
    generation: u32,
}

#[derive(Debug, Default)]
struct Slot {
    /// The number of keys of this slot that are no longer valid. It wraps.
    generation: u32,
    packet: Option<Packet>,
}

/// Held packets by key.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    slots: Vec<Slot>,
    /// The slots without a packet or a reservation.
    free: Vec<u32>,
    /// The keys reserved during the present call, by the packet's index in the batch. The length of this list is 1 more
    /// than the highest index so far.
    reserved: Vec<Option<Key>>,
    /// The number of keys in `reserved`.
    reservations: usize,
    /// The number of held packets.
    held: usize,
}

impl Shelf {
    /// Returns the number of held packets.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Reserves a slot for the packet at `index` of the batch. [`put`](Self::put) fills it.
    pub(crate) fn reserve(&mut self, index: usize) -> Key {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let key = Key { slot, generation: self.slots[slot as usize].generation };
        if index >= MAX_BATCH {
            // No batch has a packet at this index.
            self.retire(key);
            return key;
        }
        if index >= self.reserved.len() {
            self.reserved.resize(index + 1, None);
        }
        self.reservations += 1;
        if let Some(before) = self.reserved[index].replace(key) {
            self.reservations -= 1;
            self.retire(before);
        }
        key
    }

    /// Puts the packet that was at `index` of the batch into the slot that was reserved for it. Returns the packet as
    /// an error if no slot was reserved.
    pub(crate) fn put(&mut self, index: usize, packet: Packet) -> Result<(), Packet> {
        let Some(key) = self.reserved.get_mut(index).and_then(Option::take) else { return Err(packet) };
        self.reservations -= 1;
        self.slots[key.slot as usize].packet = Some(packet);
        self.held += 1;
        Ok(())
    }

    /// Frees the slots that the call reserved but did not use, because the function put the packet on another gate.
    /// Called at the end of each call that reserved slots.
    pub(crate) fn settle(&mut self) {
        let mut at = 0;
        while self.reservations > 0 {
            if let Some(key) = self.reserved[at].take() {
                self.reservations -= 1;
                self.retire(key);
            }
            at += 1;
        }
    }

    /// Returns the packet that is held under `key`. `None` if the key is not valid.
    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Packet> {
        self.slots.get_mut(key.slot as usize).filter(|slot| slot.generation == key.generation)?.packet.as_mut()
    }

    /// Takes the packet that is held under `key`, which is not valid afterwards.
    pub(crate) fn take(&mut self, key: Key) -> Option<Packet> {
        let slot = self.slots.get_mut(key.slot as usize).filter(|slot| slot.generation == key.generation)?;
        let packet = slot.packet.take()?;
        self.held -= 1;
        self.retire(key);
        Some(packet)
    }

    /// Returns all held packets.
    pub(crate) fn packets(&mut self) -> impl Iterator<Item = &mut Packet> {
        self.slots.iter_mut().filter_map(|slot| slot.packet.as_mut())
    }

    /// Moves as many held packets as fit into `batch`, in no particular order. Used when a worker closes.
    pub(crate) fn empty_into(&mut self, batch: &mut Batch) {
        for at in 0..self.slots.len() {
            if self.held == 0 || batch.room() == 0 {
                break;
            }
            let key = Key { slot: at as u32, generation: self.slots[at].generation };
            if let Some(packet) = self.take(key) {
                // The loop has checked that there is room.
                let _ = batch.push(packet);
            }
        }
    }

    /// Makes a key invalid, and frees its slot, which must be empty.
    fn retire(&mut self, key: Key) {
        let slot = &mut self.slots[key.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.slot);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use forebay_packet::{Pool, PoolOptions};
    use proptest::prelude::*;

    use super::*;

    /// The action of a call on a packet of its batch.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum CallAction {
        /// The packet goes on.
        None,
        /// The packet is held.
        Hold,
        /// The packet is held, with two reservations.
        Twice,
        /// A slot is reserved, but the packet goes on.
        Break,
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_holds_reserved_packets_and_finds_each_only_by_its_key(
            calls in prop::collection::vec(
                (
                    prop::collection::vec(
                        prop::sample::select(vec![
                            CallAction::None,
                            CallAction::Hold,
                            CallAction::Twice,
                            CallAction::Break,
                        ]),
                        0..20,
                    ),
                    prop::collection::vec(any::<prop::sample::Index>(), 0..12),
                    any::<bool>(),
                ),
                0..20,
            ),
        ) {
            let pool = Pool::new(PoolOptions { chunks: 1_024, ..PoolOptions::default() }).expect("memory");
            let (mut shelf, mut model, mut spent) = (Shelf::default(), HashMap::<Key, u8>::new(), Vec::new());
            let mut next = 0u8;
            for (actions, taken, backwards) in calls {
                let mut reserved = vec![None; actions.len()];
                let mut order: Vec<usize> = (0..actions.len()).collect();
                if backwards {
                    order.reverse();
                }
                for &index in order.iter().filter(|index| actions[**index] != CallAction::None) {
                    if actions[index] == CallAction::Twice {
                        spent.push(shelf.reserve(index));
                    }
                    reserved[index] = Some(shelf.reserve(index));
                }
                spent.push(shelf.reserve(MAX_BATCH));
                for (index, action) in actions.iter().enumerate() {
                    let mut packet = pool.take().expect("a chunk");
                    packet.write(&[next]);
                    match action {
                        CallAction::Hold | CallAction::Twice => {
                            prop_assert!(shelf.put(index, packet).is_ok());
                            model.insert(reserved[index].expect("it was reserved"), next);
                            next = next.wrapping_add(1);
                        }
                        CallAction::None => prop_assert!(shelf.put(index, packet).is_err()),
                        CallAction::Break => spent.extend(reserved[index]),
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
