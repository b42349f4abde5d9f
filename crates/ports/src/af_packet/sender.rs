//! The sending side: copies the frames of a batch into slots, makes one system call, and checks which frames the kernel
//! has accepted.

use std::io;

use forebay_graph::PortCounters;
use forebay_packet::{Batch, MAX_BATCH, Packet};

use super::socket::{SendRing, SlotState, Socket};

/// The length of an Ethernet header. The kernel accepts no shorter frame.
const MIN_FRAME: usize = 14;
/// The length of one VLAN tag, which the MTU of an interface does not include.
const TAG: usize = 4;

/// A sending socket with its ring.
pub struct Sender {
    ring: SendRing,
    /// The number of the next slot. The kernel continues at the same slot.
    next: usize,
    /// The number of slots before `next` that can contain frames which the kernel has not sent yet.
    given: usize,
    /// The length of the longest frame without a VLAN tag, and with a tag.
    longest: [usize; 2],
    /// The indices of the packets of the current batch that can be sent.
    queue: Vec<u16>,
    /// A flag for each packet of the current batch: true if the packet could not be sent.
    unsent: Box<[bool; MAX_BATCH]>,
}

impl Sender {
    /// Creates a sender with `slots` slots for an interface with this MTU, in the network namespace of the calling
    /// thread. With `bypass`, frames do not pass the queueing discipline.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn new(slots: u32, mtu: usize, bypass: bool) -> io::Result<Self> {
        let socket = Socket::new()?;
        if bypass {
            socket.set_number(libc::PACKET_QDISC_BYPASS, 1)?;
        }
        let ring = SendRing::new(socket, slots, mtu + MIN_FRAME + TAG)?;
        // A frame takes about twice its length of kernel memory, and at least about a kilobyte.
        ring.socket().set_send_memory(ring.slots() * (2 * ring.longest() + 1_024))?;
        let (queue, unsent) = (Vec::with_capacity(MAX_BATCH), Box::new([false; MAX_BATCH]));
        Ok(Self { ring, next: 0, given: 0, longest: [mtu + MIN_FRAME, mtu + MIN_FRAME + TAG], queue, unsent })
    }

    /// Sends by the interface with this index from now on.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn bind(&mut self, index: u32) -> io::Result<()> {
        self.ring.socket().bind(index, false)
    }

    /// Sets the MTU of the interface. Frames that are longer are refused from now on.
    pub fn set_mtu(&mut self, mtu: usize) {
        // The slots keep their size, which limits the length of a frame if the MTU has grown.
        let longest = self.ring.longest();
        self.longest = [(mtu + MIN_FRAME).min(longest), (mtu + MIN_FRAME + TAG).min(longest)];
    }

    /// Returns the number of frames that the kernel has accepted and not yet sent.
    pub fn in_flight(&self) -> usize {
        let slots = self.ring.slots();
        (1..=self.given).filter(|back| self.ring.state((self.next + slots - back) % slots) != SlotState::Free).count()
    }

    /// Sends a batch of up to [`MAX_BATCH`] packets. Packets that could not be sent remain in the batch, in order. A
    /// packet that the interface or the kernel rejects is also counted in `errors`. `refused` is an empty batch that
    /// the call uses and leaves empty. Returns the system's error if the kernel stopped accepting frames.
    pub fn send(&mut self, batch: &mut Batch, refused: &mut Batch, counters: &PortCounters) -> Option<io::Error> {
        self.queue.clear();
        for (at, packet) in batch.iter().enumerate() {
            self.unsent[at] = !self.fits(packet);
            if self.unsent[at] {
                counters.errors.add(1);
            } else {
                self.queue.push(at as u16);
            }
        }
        let (mut from, mut error) = (0, None);
        while from < self.queue.len() {
            let put = self.put(batch, from);
            let outcome = if put == 0 { Ok(()) } else { self.ring.notify() };
            let taken = self.taken(put);
            from += taken;
            if taken == put && put > 0 {
                // If the ring was full, some slots have become free by now.
                continue;
            }
            // The kernel stops at a frame that it rejects.
            if put > 0 && self.ring.state(self.next) == SlotState::Rejected {
                counters.errors.add(1);
                self.take_back(put - taken);
                self.unsent[usize::from(self.queue[from])] = true;
                from += 1;
                continue;
            }
            self.take_back(put - taken);
            self.queue[from..].iter().for_each(|at| self.unsent[usize::from(*at)] = true);
            error = outcome.err();
            break;
        }
        let unsent = &self.unsent;
        if !unsent[..batch.len()].contains(&true) {
            batch.clear();
            return error;
        }
        batch.drain_each(|at, packet| {
            if unsent[at] {
                // `refused` has as much room as the batch.
                let _ = refused.push(packet);
            }
        });
        batch.append(refused);
        error
    }

    /// Returns true if the kernel accepts a frame of this length on the interface.
    fn fits(&self, packet: &Packet) -> bool {
        let tagged = matches!(packet.data().get(12..14), Some(&[0x81, 0x00] | &[0x88, 0xa8]));
        (MIN_FRAME..=self.longest[usize::from(tagged)]).contains(&packet.len())
    }

    /// Copies packets of the queue, from the index `from`, into slots, starting with the slot `next`. Stops if the next
    /// slot is not free. Returns the number of packets copied.
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

    /// Returns the number of slots that the kernel has accepted, of the `put` slots from `next` on. Moves `next` to the
    /// first slot that the kernel has not accepted.
    fn taken(&mut self, put: usize) -> usize {
        let slots = self.ring.slots();
        let is_taken =
            |back: &usize| matches!(self.ring.state((self.next + back) % slots), SlotState::Free | SlotState::Sending);
        let taken = (0..put).take_while(is_taken).count();
        self.next = (self.next + taken) % slots;
        self.given = (self.given + taken).min(slots);
        while self.given > 0 && self.ring.state((self.next + slots - self.given) % slots) == SlotState::Free {
            self.given -= 1;
        }
        taken
    }

    /// Takes back the frames in `count` slots from `next` on. The kernel must not have started to send these frames.
    fn take_back(&mut self, count: usize) {
        let slots = self.ring.slots();
        (0..count).for_each(|at| self.ring.take_back((self.next + at) % slots));
    }
}
