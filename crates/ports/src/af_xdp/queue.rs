//! One queue of an interface: a socket, its rings, and the chunks that the kernel holds.

#![expect(unsafe_code, reason = "chunks come back from the kernel when the socket is closed")]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use forebay_packet::{Batch, MAX_BATCH, Packet};
use forebay_units::Ticks;

use super::ring::Descriptor;
use super::socket::{Rings, XdpSocket};
use super::umem::{Lent, Umem};

/// The length of the shortest frame that a device accepts: an Ethernet header.
const MIN_FRAME: usize = 14;
/// The largest number of system calls in one [`Queue::notify`]. The kernel sends only some of the frames in each call.
const MAX_NOTIFICATIONS: usize = 8;

/// The losses and errors of a queue since the last query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The number of frames that the kernel dropped before this process could read them.
    pub dropped: u64,
    /// The number of frames in `dropped` that were longer than a chunk.
    pub oversize: u64,
    /// The number of frames that the kernel accepted and did not send, plus the number of other errors: packets shorter
    /// than an Ethernet header, and invalid ring entries on either side.
    pub errors: u64,
}

/// The kernel's reaction to the frames in TX, the ring of frames to send. [`Queue::check`] also reports the state of
/// the interface by this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// The kernel sends the frames, or will send them.
    Accepted,
    /// The kernel has no room for more frames now.
    Full,
    /// The interface is down, has no carrier, or has dropped a frame. The port does not try to send for a while.
    Stuck,
    /// The interface no longer exists.
    Gone,
}

/// A queue of an interface, with its socket. Before it is dropped, the program that redirects frames to the socket must
/// be detached (`Device`).
pub struct Queue {
    /// The socket. `drop` closes it before it takes back the chunks.
    socket: ManuallyDrop<XdpSocket>,
    /// The rings of the socket. `drop` unmaps them together with the socket.
    rings: ManuallyDrop<Rings>,
    /// The chunks that the kernel has for the frames that it receives.
    receiving: Lent,
    /// The chunks whose frames the kernel has and sends.
    sending: Lent,
    umem: Arc<Umem>,
    /// The number of chunks that the kernel should have for receiving.
    fill: usize,
    /// True if the device itself writes received frames into the memory.
    zero_copy: bool,
    /// True if each call of [`receive`](Self::receive) makes the kernel poll the device.
    busy_poll: bool,
    /// The kernel's counters at the last query: the dropped frames, the dropped frames longer than a chunk, and the
    /// errors.
    seen: (u64, u64, u64),
    /// The losses and errors that this process itself has found since the last call of [`check`](Self::check).
    losses: Losses,
    /// The number of packets that were copied into this memory to be sent, because they were in other memory.
    copies: u64,
}

impl Queue {
    /// Returns the descriptor of the socket, which becomes readable when frames arrive.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.descriptor().as_fd()
    }

    /// Creates the queue of a bound socket. Lends the kernel up to `fill` chunks for received frames, or fewer if fewer
    /// chunks are free. The caller must have reserved `fill` chunks ([`Umem::reserve`]). Dropping the queue releases
    /// this reservation.
    pub fn new(
        socket: XdpSocket,
        rings: Rings,
        umem: Arc<Umem>,
        fill: usize,
        zero_copy: bool,
        busy_poll: bool,
    ) -> Self {
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
        // The chunks that remain in this thread's cache are returned to the pool, because this thread needs no more
        // chunks.
        queue.umem.pool().flush();
        queue
    }

    /// Returns the number of frames that the kernel has accepted and has not finished sending.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.sending.count().saturating_sub(self.rings.completion.waiting() as usize)
    }

    /// Returns the number of received frames that were not read yet.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.rings.receive.waiting() as usize
    }

    /// Returns the number of packets that were copied into this memory to be sent.
    #[cfg(test)]
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// Lends the kernel up to a batch of chunks for received frames. Returns the number of chunks: 0 if the kernel has
    /// enough chunks, or no chunk is free.
    #[inline]
    fn refill(&mut self) -> usize {
        let missing = self.fill.saturating_sub(self.receiving.count()).min(MAX_BATCH);
        let room = self.rings.fill.room(missing as u32) as usize;
        if room == 0 {
            return 0;
        }
        let fill = &mut self.rings.fill;
        let got = self.receiving.lend_free(room, |address| {
            // There is room for the chunk.
            fill.write(address);
        });
        fill.publish();
        got
    }

    /// Adds up to `most` received frames to `batch`, which must have room for them. The packets get the arrival time
    /// `now`. Also lends the kernel new chunks.
    #[inline]
    pub fn receive(&mut self, batch: &mut Batch, most: usize, now: Ticks) {
        if self.busy_poll {
            // The result is ignored: `check` detects a missing interface.
            let _ = self.socket.wake_receive();
        }
        let Self { rings, receiving, losses, .. } = self;
        let available = rings.receive.available(most as u32);
        for descriptor in (0..available).map_while(|_| rings.receive.read()) {
            match receiving.packet(descriptor, now) {
                // The caller guarantees the room.
                Some(packet) => _ = batch.push(packet),
                None => losses.errors += 1,
            }
        }
        if available > 0 {
            rings.receive.release();
        }
        receiving.flush();
        if self.fill > self.receiving.count() {
            self.refill();
            // If the kernel had no chunk before, it may detect the new chunks only when it is woken.
            if self.rings.fill.needs_wakeup() && !self.busy_poll {
                let _ = self.socket.wake_receive();
            }
        }
    }

    /// Takes back the chunks whose frames the kernel has sent.
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

    /// Puts a frame into TX. The kernel sees the frame after the next [`publish`](Self::publish).
    ///
    /// # Errors
    /// Returns the packet if TX has no room, the packet is too short for a frame, no chunk is free for a copy, or this
    /// queue does not send.
    #[inline]
    pub fn send(&mut self, packet: Packet) -> Result<(), Packet> {
        let Some(ring) = &mut self.rings.send else { return Err(packet) };
        if packet.len() < MIN_FRAME {
            self.losses.errors += 1;
            return Err(packet);
        }
        if ring.room(1) == 0 {
            return Err(packet);
        }
        let descriptor = match self.sending.lend_packet(packet) {
            Ok(descriptor) => descriptor,
            Err(packet) => {
                let copied = copy_into(&self.umem, &mut self.sending, packet)?;
                self.copies += 1;
                copied
            }
        };
        // There is room for the frame.
        ring.write(descriptor);
        Ok(())
    }

    /// Publishes the new entries of TX.
    #[inline]
    pub fn publish(&self) {
        if let Some(ring) = &self.rings.send {
            ring.publish();
        }
    }

    /// Wakes the kernel to send the frames in TX, if there are frames and the kernel must be woken. Returns the
    /// kernel's reaction: [`SendState::Accepted`] if there was nothing to do.
    pub fn notify(&mut self) -> SendState {
        let Self { socket, rings, losses, .. } = self;
        let Some(ring) = &rings.send else { return SendState::Accepted };
        let mut unread = ring.waiting();
        for _ in 0..MAX_NOTIFICATIONS {
            if unread == 0 || !ring.needs_wakeup() {
                break;
            }
            let outcome = socket.wake_send().map_err(|error| error.raw_os_error());
            let before = std::mem::replace(&mut unread, ring.waiting());
            match outcome {
                Ok(()) => {}
                // The kernel has sent some of the frames. It continues in the next call.
                Err(Some(libc::EAGAIN | libc::EINTR)) if unread < before => {}
                Err(Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM)) => return SendState::Full,
                Err(Some(libc::EBUSY)) => {
                    // The device has dropped a frame.
                    losses.errors += 1;
                    return SendState::Stuck;
                }
                Err(Some(libc::ENXIO | libc::ENODEV)) => return SendState::Gone,
                Err(_) => return SendState::Stuck,
            }
        }
        SendState::Accepted
    }

    /// Returns true if TX has frames that the kernel does not send before it is woken.
    #[inline]
    #[must_use]
    pub fn has_waiting_frames(&self) -> bool {
        self.rings.send.as_ref().is_some_and(|ring| ring.needs_wakeup() && ring.waiting() > 0)
    }

    /// Returns the state of the interface, and the losses since the last query.
    pub fn check(&mut self) -> (SendState, Losses) {
        let state = match self.socket.wake_receive().map_err(|error| error.raw_os_error()) {
            Err(Some(libc::ENXIO | libc::ENODEV)) => SendState::Gone,
            Err(Some(libc::ENETDOWN)) => SendState::Stuck,
            _ => SendState::Accepted,
        };
        let mut losses = std::mem::take(&mut self.losses);
        if let Ok(counts) = self.socket.statistics() {
            let (dropped, errors) =
                (counts.rx_dropped + counts.rx_ring_full, counts.rx_invalid_descs + counts.tx_invalid_descs);
            // `rx_dropped` counts frames for which no chunk was free, and frames that are longer than a chunk.
            // `rx_fill_ring_empty_descs` counts only the frames without a chunk, and counts each of them before
            // `rx_dropped` does (`xsk_rcv_check`, `xp_can_alloc` in Linux). So the difference may be too small for a
            // moment. It is never taken below its last value.
            let oversize = counts.rx_dropped.saturating_sub(counts.rx_fill_ring_empty_descs).max(self.seen.1);
            losses.dropped += dropped.saturating_sub(self.seen.0);
            losses.oversize += oversize - self.seen.1;
            losses.errors += errors.saturating_sub(self.seen.2);
            self.seen = (dropped, oversize, errors);
        }
        (state, losses)
    }
}

/// Copies a packet from other memory into a chunk of `umem`, and lends the chunk to the kernel. Packets that are
/// already in `umem` are never copied. Returns the packet if no chunk is free or the packet is too long.
#[inline(never)]
fn copy_into(umem: &Umem, sending: &mut Lent, packet: Packet) -> Result<Descriptor, Packet> {
    let Some(mut own) = umem.pool().take() else { return Err(packet) };
    if !own.write(packet.data()) {
        return Err(packet);
    }
    // This does not fail, because the chunk belongs to this memory.
    sending.lend_packet(own).map_err(|_| packet)
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.complete();
        // SAFETY: neither value is used after this, because the queue is being dropped.
        let (socket, rings) = unsafe { (ManuallyDrop::take(&mut self.socket), ManuallyDrop::take(&mut self.rings)) };
        self.umem.close(socket, rings);
        // SAFETY: the socket is closed. Its descriptor and the mappings of its rings, which have no other owner, no
        // longer exist, and the program that redirected frames to it was detached before (`Device`). The kernel has
        // also finished its copies (`xsk_release`).
        unsafe {
            self.receiving.reclaim(self.zero_copy);
            // Some drivers, for example virtio_net, send from this memory although they do not receive into it
            // (`IFF_TX_SKB_NO_LINEAR`). Therefore, chunks that are being sent are always quarantined.
            self.sending.reclaim(true);
        }
        self.umem.pool().flush();
        self.umem.release(self.fill);
    }
}
