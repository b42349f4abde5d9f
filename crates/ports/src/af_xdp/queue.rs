//! One queue of an interface: a socket, its rings, and which chunks the kernel has of them.

#![expect(unsafe_code, reason = "chunks come back from the kernel when the socket is closed")]

use std::mem::ManuallyDrop;
use std::sync::Arc;

use forebay_packet::{Batch, MAX_BATCH, Packet, Ticks};

use super::ring::Descriptor;
use super::socket::{Rings, Socket};
use super::umem::{Lent, Umem};

/// The shortest frame that a device takes: an Ethernet header.
const LEAST: usize = 14;
/// How often the kernel is asked at once to go on sending, which it does some at a time.
const KICKS: usize = 8;

/// What a queue has lost or could not do, since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Frames lost before they entered.
    pub dropped: u64,
    /// Of these, frames longer than a chunk holds.
    pub oversize: u64,
    /// Frames that were given to the kernel and did not leave, and what else went wrong.
    pub errors: u64,
}

/// How the kernel took what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It sends, or will.
    Well,
    /// It has no room for more now.
    Full,
    /// The interface is down or has no carrier: nothing more for a while.
    Stuck,
    /// The interface is gone.
    Gone,
}

/// A queue.
pub struct Queue {
    /// Both are there until the queue is dropped.
    socket: ManuallyDrop<Socket>,
    rings: ManuallyDrop<Rings>,
    receiving: Lent,
    sending: Lent,
    umem: Arc<Umem>,
    /// How many chunks the kernel is to have for receiving.
    fill: usize,
    zero_copy: bool,
    busy_poll: bool,
    /// The kernel's counts when they were read last: frames dropped, of these longer than a chunk, and errors.
    seen: (u64, u64, u64),
    /// What went wrong here.
    losses: Losses,
    /// Frames that had to be copied into this memory.
    copies: u64,
}

impl Queue {
    /// A queue of a socket that is bound; of its `fill` chunks for receiving it gets those that there are.
    pub fn new(socket: Socket, rings: Rings, umem: Arc<Umem>, fill: usize, zero_copy: bool, busy_poll: bool) -> Self {
        let (receiving, sending) = (Lent::new(Arc::clone(&umem)), Lent::new(Arc::clone(&umem)));
        let mut queue = Self {
            socket: ManuallyDrop::new(socket),
            rings: ManuallyDrop::new(rings),
            receiving,
            sending,
            umem,
            fill,
            zero_copy,
            busy_poll,
            seen: (0, 0, 0),
            losses: Losses::default(),
            copies: 0,
        };
        while queue.refill() > 0 {}
        // This thread has no further use for any.
        queue.umem.pool().flush();
        queue
    }

    /// Frames that the kernel was given and has not finished with.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.sending.count().saturating_sub(self.rings.completion.waiting() as usize)
    }

    /// Frames that have come and were not taken.
    #[must_use]
    pub fn left(&self) -> usize {
        self.rings.receive.waiting() as usize
    }

    /// How many frames were copied into this memory to be sent.
    #[cfg(test)]
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// Gives the kernel chunks to receive into, up to a batch; how many.
    #[inline]
    fn refill(&mut self) -> usize {
        let missing = self.fill.saturating_sub(self.receiving.count()).min(MAX_BATCH);
        let room = self.rings.fill.room(missing as u32) as usize;
        if room == 0 {
            return 0;
        }
        let fill = &mut self.rings.fill;
        let got = self.receiving.lend_free(room, |address| {
            // There is room for it.
            fill.write(address);
        });
        fill.publish();
        got
    }

    /// Adds up to `most` frames that have come to `batch`, which has room for them.
    #[inline]
    pub fn receive(&mut self, batch: &mut Batch, most: usize, now: Ticks) {
        if self.busy_poll {
            // Whether the interface is there, is asked for elsewhere.
            let _ = self.socket.wake_receive();
        }
        let Self { rings, receiving, losses, .. } = self;
        let there = rings.receive.available(most as u32);
        for descriptor in (0..there).map_while(|_| rings.receive.read()) {
            match receiving.packet(descriptor, now) {
                // There is room, as the caller says.
                Some(packet) => _ = batch.push(packet),
                None => losses.errors += 1,
            }
        }
        if there > 0 {
            rings.receive.release();
        }
        receiving.flush();
        if self.fill > self.receiving.count() {
            self.refill();
            // Where none was left before, the device may not look again by itself.
            if self.rings.fill.needs_wakeup() && !self.busy_poll {
                let _ = self.socket.wake_receive();
            }
        }
    }

    /// Takes back chunks whose frames the kernel has sent.
    #[inline]
    pub fn complete(&mut self) {
        let Self { rings, sending, losses, .. } = self;
        let mut any = false;
        while let Some(address) = rings.completion.read() {
            any = true;
            losses.errors += u64::from(!sending.sent(address));
        }
        if any {
            rings.completion.release();
            sending.flush();
        }
    }

    /// Puts a frame into TX; one that is not taken comes back.
    ///
    /// # Errors
    /// There is no room, or the frame is none.
    #[inline]
    pub fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        let Some(ring) = &mut self.rings.send else { return Err(packet) };
        if packet.len() < LEAST {
            self.losses.errors += 1;
            return Err(packet);
        }
        if ring.room(1) == 0 {
            return Err(packet);
        }
        let descriptor = match self.sending.lend_packet(packet) {
            Ok(descriptor) => descriptor,
            Err(packet) => {
                let copied = copied(&self.umem, &mut self.sending, packet)?;
                self.copies += 1;
                copied
            }
        };
        // There is room for it.
        ring.write(descriptor);
        Ok(())
    }

    /// Publishes what was put into TX.
    #[inline]
    pub fn publish(&self) {
        if let Some(ring) = &self.rings.send {
            ring.publish();
        }
    }

    /// Wakes the kernel if it wants that, and there is something in TX.
    pub fn kick(&mut self) -> Sent {
        let Self { socket, rings, losses, .. } = self;
        let Some(ring) = &rings.send else { return Sent::Well };
        let mut left = ring.waiting();
        for _ in 0..KICKS {
            if left == 0 || !ring.needs_wakeup() {
                break;
            }
            let outcome = socket.wake_send().map_err(|error| error.raw_os_error());
            let before = std::mem::replace(&mut left, ring.waiting());
            match outcome {
                Ok(()) => {}
                // Some are sent; or there is no memory for more before others are.
                Err(Some(libc::EAGAIN | libc::EINTR)) if left < before => {}
                Err(Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM)) => return Sent::Full,
                Err(Some(libc::EBUSY)) => {
                    // The device has dropped one.
                    losses.errors += 1;
                    return Sent::Stuck;
                }
                Err(Some(libc::ENXIO | libc::ENODEV)) => return Sent::Gone,
                Err(_) => return Sent::Stuck,
            }
        }
        Sent::Well
    }

    /// Whether frames wait in TX for the kernel to be woken.
    #[inline]
    #[must_use]
    pub fn waits(&self) -> bool {
        self.rings.send.as_ref().is_some_and(|ring| ring.needs_wakeup() && ring.waiting() > 0)
    }

    /// How the interface is, and what was lost since the last time.
    pub fn look(&mut self) -> (Sent, Losses) {
        let state = match self.socket.wake_receive().map_err(|error| error.raw_os_error()) {
            Err(Some(libc::ENXIO | libc::ENODEV)) => Sent::Gone,
            Err(Some(libc::ENETDOWN)) => Sent::Stuck,
            _ => Sent::Well,
        };
        let mut losses = std::mem::take(&mut self.losses);
        if let Ok(counts) = self.socket.statistics() {
            let (dropped, errors) =
                (counts.rx_dropped + counts.rx_ring_full, counts.rx_invalid_descs + counts.tx_invalid_descs);
            // A frame is dropped because no chunk is free, which counts in `rx_fill_ring_empty_descs` first, or because
            // it is longer than a chunk (`xsk_rcv_check`, `xp_can_alloc` of Linux).
            let oversize = counts.rx_dropped.saturating_sub(counts.rx_fill_ring_empty_descs).max(self.seen.1);
            losses.dropped += dropped.saturating_sub(self.seen.0);
            losses.oversize += oversize - self.seen.1;
            losses.errors += errors.saturating_sub(self.seen.2);
            self.seen = (dropped, oversize, errors);
        }
        (state, losses)
    }
}

/// The one copy that is made: of a packet that is in other memory. It is not sent where there is no chunk for it.
#[inline(never)]
fn copied(umem: &Umem, sending: &mut Lent, packet: Packet) -> Result<Descriptor, Packet> {
    let Some(mut own) = umem.pool().take() else { return Err(packet) };
    if !own.write(packet.data()) {
        return Err(packet);
    }
    // It is of this memory.
    sending.lend_packet(own).map_err(|_| packet)
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.complete();
        // SAFETY: neither is used after this: the queue is being dropped.
        let (socket, rings) = unsafe { (ManuallyDrop::take(&mut self.socket), ManuallyDrop::take(&mut self.rings)) };
        self.umem.close(socket, rings);
        // SAFETY: the socket is closed: its descriptor and the mappings of its rings, which nobody else has, are gone, and the
        // program that gave it frames is detached before (`Device`). The kernel's own copies are over then (`xsk_release`).
        unsafe {
            self.receiving.reclaim(self.zero_copy);
            // Some drivers send from this memory though they do not receive into it (`IFF_TX_SKB_NO_LINEAR`, virtio_net's for
            // one): what they have not finished with rests, too.
            self.sending.reclaim(true);
        }
        self.umem.pool().flush();
        self.umem.release(self.fill);
    }
}
