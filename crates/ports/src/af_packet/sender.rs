//! The sending side: puts a batch's frames into slots, tells the kernel once, and sees what it has taken.

use std::io;

use forebay_graph::PortCounters;
use forebay_packet::{Batch, MAX_BATCH, Packet};

use super::socket::{SendRing, Slot, Socket};

/// An Ethernet header, without which the kernel takes no frame.
const LEAST: usize = 14;
/// One VLAN tag, which an interface's MTU does not count.
const TAG: usize = 4;

/// A socket that sends, with its ring.
pub struct Sender {
    ring: SendRing,
    /// The slot that comes next, which is also where the kernel goes on.
    next: usize,
    /// How many slots before it the kernel may still have.
    given: usize,
    /// The longest frame, and the longest with a tag.
    longest: [usize; 2],
    /// Packets of a batch that can be sent, by their numbers, and which could not.
    queue: Vec<u16>,
    stays: Box<[bool; MAX_BATCH]>,
}

impl Sender {
    /// One for so many frames of an interface of this MTU, in the network namespace that the calling thread is in.
    pub fn new(slots: u32, mtu: usize, bypass: bool) -> io::Result<Self> {
        let socket = Socket::new()?;
        if bypass {
            socket.set_number(libc::PACKET_QDISC_BYPASS, 1)?;
        }
        let ring = SendRing::new(socket, slots, mtu + LEAST + TAG)?;
        // What a frame takes of the kernel's memory is about twice its length, and never little.
        ring.socket().set_send_memory(ring.slots() * (2 * ring.longest() + 1_024))?;
        let (queue, stays) = (Vec::with_capacity(MAX_BATCH), Box::new([false; MAX_BATCH]));
        Ok(Self { ring, next: 0, given: 0, longest: [mtu + LEAST, mtu + LEAST + TAG], queue, stays })
    }

    /// Sends by an interface from now on.
    pub fn bind(&mut self, index: u32) -> io::Result<()> {
        self.ring.socket().bind(index, false)
    }

    /// The interface takes IP packets of this length from now on.
    pub fn set_mtu(&mut self, mtu: usize) {
        // Slots stay as they are.
        let longest = self.ring.longest();
        self.longest = [(mtu + LEAST).min(longest), (mtu + LEAST + TAG).min(longest)];
    }

    /// How many frames the kernel has and has not sent.
    pub fn in_flight(&self) -> usize {
        let slots = self.ring.slots();
        (1..=self.given).filter(|back| self.ring.state((self.next + slots - back) % slots) != Slot::Free).count()
    }

    /// Sends a batch. What is left in it, in order, could not be sent. Says what the system said, where it would not take
    /// any more.
    pub fn send(&mut self, batch: &mut Batch, refused: &mut Batch, counters: &PortCounters) -> Option<io::Error> {
        self.queue.clear();
        for (at, packet) in batch.iter().enumerate() {
            self.stays[at] = !self.fits(packet);
            if self.stays[at] {
                counters.errors.add(1);
            } else {
                self.queue.push(at as u16);
            }
        }
        let (mut from, mut fault) = (0, None);
        while from < self.queue.len() {
            let put = self.put(batch, from);
            let outcome = if put == 0 { Ok(()) } else { self.ring.kick() };
            let taken = self.taken(put);
            from += taken;
            if taken == put && put > 0 {
                // Where the ring was full, some of what was in it has gone now.
                continue;
            }
            // The kernel goes no further than what it would not take.
            if put > 0 && self.ring.state(self.next) == Slot::Wrong {
                counters.errors.add(1);
                self.take_back(put - taken);
                self.stays[usize::from(self.queue[from])] = true;
                from += 1;
                continue;
            }
            self.take_back(put - taken);
            self.queue[from..].iter().for_each(|at| self.stays[usize::from(*at)] = true);
            fault = outcome.err();
            break;
        }
        let stays = &self.stays;
        if !stays[..batch.len()].contains(&true) {
            batch.clear();
            return fault;
        }
        batch.drain_each(|at, packet| {
            if stays[at] {
                // As many as there were in the batch.
                let _ = refused.push(packet);
            }
        });
        batch.append(refused);
        fault
    }

    fn fits(&self, packet: &Packet) -> bool {
        let tagged = matches!(packet.data().get(12..14), Some(&[0x81, 0x00] | &[0x88, 0xa8]));
        (LEAST..=self.longest[usize::from(tagged)]).contains(&packet.len())
    }

    /// Puts packets of the queue into slots, from the next one on; how many.
    fn put(&mut self, batch: &Batch, from: usize) -> usize {
        let slots = self.ring.slots();
        let mut put = 0;
        for at in &self.queue[from..] {
            if put == slots || !self.ring.put((self.next + put) % slots, batch[usize::from(*at)].data()) {
                break;
            }
            put += 1;
        }
        put
    }

    /// How many of the next slots the kernel has taken; it is at the first of the others then.
    fn taken(&mut self, put: usize) -> usize {
        let slots = self.ring.slots();
        let is_taken = |back: &usize| matches!(self.ring.state((self.next + back) % slots), Slot::Free | Slot::Sending);
        let taken = (0..put).take_while(is_taken).count();
        self.next = (self.next + taken) % slots;
        self.given = (self.given + taken).min(slots);
        while self.given > 0 && self.ring.state((self.next + slots - self.given) % slots) == Slot::Free {
            self.given -= 1;
        }
        taken
    }

    /// Takes back what the kernel has not begun with.
    fn take_back(&mut self, count: usize) {
        let slots = self.ring.slots();
        (0..count).for_each(|at| self.ring.take_back((self.next + at) % slots));
    }
}
