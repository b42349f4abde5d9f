//! The receiving side: reads frames from the ring's blocks in order, and turns them into packets.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_graph::{Intake, PortCounters};
use forebay_packet::{ArrivalClock, Batch};

use super::block::{Cursor, Frame};
use super::offload::{self, Split};
use super::params::RingSizes;
use super::socket::{ReceiveRing, Socket};
use super::stamps::Stamps;

/// A receiving socket with its ring.
pub struct Receiver {
    socket: Socket,
    ring: ReceiveRing,
    /// The size with which the ring was created. A new port with another size creates another receiver.
    sizes: RingSizes,
    /// The number of the block that is read now or next.
    block: usize,
    /// The read position in the next block. `None` until the block is read.
    cursor: Option<Cursor>,
    /// The number of frames that the kernel has put into the ring, as of the last query, minus the frames in returned
    /// blocks. It wraps around below 0 if blocks were returned since the last query.
    in_ring: u64,
    /// The number of the next part, from 0, of the merged frame at the cursor. 0 also if the frame at the cursor is not
    /// merged.
    part: usize,
    /// The index of the interface to which the socket is bound, and true for promiscuous mode. `None` if it is not
    /// bound.
    bound: Option<(u32, bool)>,
}

/// The result of processing a frame.
enum TakeResult {
    /// The frame is finished: its packets are in the batch, or were dropped and counted.
    Whole,
    /// The batch had no room for all parts of the frame. The next call continues with the frame.
    Partly,
    /// The pool is empty. The next call continues with the frame.
    NoPacket,
}

impl Receiver {
    /// Creates a receiver that is not bound yet, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn new(sizes: &RingSizes) -> io::Result<Self> {
        let socket = Socket::new()?;
        // Do not receive the frames that this host sends (Linux 4.20).
        socket.set_number(libc::PACKET_IGNORE_OUTGOING, 1)?;
        let ring = ReceiveRing::new(&socket, sizes)?;
        Ok(Self { socket, ring, sizes: *sizes, block: 0, cursor: None, in_ring: 0, part: 0, bound: None })
    }

    /// Returns the size of the ring.
    pub fn sizes(&self) -> RingSizes {
        self.sizes
    }

    /// Returns the descriptor that becomes readable when the kernel hands over a block.
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        self.socket.descriptor()
    }

    /// Starts to receive from the interface with this index. May be called again, for an interface that was recreated.
    ///
    /// # Errors
    /// Returns the system's error. If only promiscuous mode was refused, the receiver is bound without it.
    pub fn bind(&mut self, index: u32, promiscuous: bool) -> io::Result<()> {
        if let Some((before, true)) = self.bound.take() {
            // This fails if the interface no longer exists. The mode has ended with the interface.
            let _ = self.socket.set_promiscuous(before, false);
        }
        self.socket.bind(index, true)?;
        self.bound = Some((index, false));
        if promiscuous {
            self.socket.set_promiscuous(index, true)?;
            self.bound = Some((index, true));
        }
        Ok(())
    }

    /// Stops receiving. Frames in the ring stay there.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn stop(&self) -> io::Result<()> {
        self.socket.stop()
    }

    /// Returns true if the interface went down or was removed since the last call.
    pub fn was_cut_off(&self) -> bool {
        self.socket.take_error().is_ok_and(|error| error.is_some())
    }

    /// Returns the number of frames since the last call that the kernel dropped because the ring was full.
    pub fn drops(&mut self) -> u64 {
        let (put, dropped) = self.socket.counts().unwrap_or_default();
        self.in_ring = self.in_ring.wrapping_add(put.into());
        dropped.into()
    }

    /// Stops receiving. Returns the number of frames that are lost since the last call of [`drops`](Self::drops): the
    /// frames that the kernel dropped because the ring was full, and all frames that are still in the ring.
    pub fn end(mut self) -> u64 {
        // This can fail if the interface no longer exists. In that case, no more frames arrive.
        let _ = self.stop();
        let dropped = self.drops();
        // `in_ring` still counts the frames of the open block that have become packets. These frames are not lost.
        let open_block = self.ring.block(self.block).zip(self.cursor.as_ref());
        let taken =
            open_block.map_or(0, |(block, cursor)| Cursor::new(block).remaining().saturating_sub(cursor.remaining()));
        dropped + self.in_ring.wrapping_sub(taken.into())
    }

    /// Adds packets to a batch, up to `intake.most`. Returns true if the ring may have more frames. Returns each block
    /// to the kernel after its last frame.
    pub fn fill(&mut self, batch: &mut Batch, intake: &Intake<'_>, stamps: &Stamps, counters: &PortCounters) -> bool {
        // Dropped frames also reduce the budget. Otherwise a flood of such frames would occupy the worker.
        let mut budget = 2 * intake.most;
        let Self { ring, block: number, cursor: open, in_ring, part, .. } = self;
        while let Some(block) = ring.block(*number) {
            let cursor = open.get_or_insert_with(|| Cursor::new(block));
            loop {
                let frame = match cursor.frame(block) {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    Err(_) => {
                        counters.errors.add(1);
                        counters.dropped.add(cursor.remaining().into());
                        break;
                    }
                };
                if budget == 0 || batch.len() >= intake.most || batch.room() == 0 {
                    return true;
                }
                budget -= 1;
                match take(&frame, part, batch, intake, stamps, counters) {
                    TakeResult::Whole => *part = 0,
                    TakeResult::Partly | TakeResult::NoPacket => return true,
                }
                cursor.advance(block);
            }
            *in_ring = in_ring.wrapping_sub(Cursor::new(block).remaining().into());
            *open = None;
            ring.give_back(*number);
            *number = (*number + 1) % ring.blocks();
        }
        false
    }
}

/// Turns a frame into packets. Drops and counts a frame that is too long or cannot be completed. For a merged frame,
/// starts with the part number `part`.
#[inline]
fn take(
    frame: &Frame<'_>,
    part: &mut usize,
    batch: &mut Batch,
    intake: &Intake<'_>,
    stamps: &Stamps,
    counters: &PortCounters,
) -> TakeResult {
    if frame.merged.is_some() {
        return take_parts(frame, part, batch, intake, stamps, counters);
    }
    let Some(mut packet) = intake.pool.take() else { return TakeResult::NoPacket };
    let is_whole = !frame.is_cut() && packet.write(frame.bytes);
    if !is_whole {
        drop_long(frame, counters);
        return TakeResult::Whole;
    }
    let checksum_done = frame.partial.is_none_or(|partial| offload::complete(packet.data_mut(), partial));
    if !checksum_done || frame.tag.is_some_and(|tag| !offload::put_tag(&mut packet, tag)) {
        counters.dropped.add(1);
        return TakeResult::Whole;
    }
    let (arrival, clock) = stamps.arrival(frame.stamp, intake.now);
    packet.set_arrival(arrival, clock);
    // The caller has checked that there is room.
    let _ = batch.push(packet);
    TakeResult::Whole
}

/// Counts a frame that does not fit into its block or into a packet.
#[cold]
fn drop_long(frame: &Frame<'_>, counters: &PortCounters) {
    if frame.is_cut() {
        counters.drop_over_block();
    } else {
        counters.drop_oversize(frame.length);
    }
}

/// Splits a merged frame into packets, from the part number `part`, which is increased for each part. A part that
/// cannot be written to a packet is dropped and counted. A frame that cannot be split is dropped and counted once.
#[inline(never)]
fn take_parts(
    frame: &Frame<'_>,
    part: &mut usize,
    batch: &mut Batch,
    intake: &Intake<'_>,
    stamps: &Stamps,
    counters: &PortCounters,
) -> TakeResult {
    if frame.is_cut() {
        drop_long(frame, counters);
        return TakeResult::Whole;
    }
    let Some(split) = Split::of(frame) else {
        counters.dropped.add(1);
        return TakeResult::Whole;
    };
    let (arrival, clock): (_, ArrivalClock) = stamps.arrival(frame.stamp, intake.now);
    while *part < split.parts() {
        if batch.len() >= intake.most || batch.room() == 0 {
            return TakeResult::Partly;
        }
        let Some(mut packet) = intake.pool.take() else { return TakeResult::NoPacket };
        let is_whole = split.write(frame, *part, &mut packet);
        *part += 1;
        if !is_whole || frame.tag.is_some_and(|tag| !offload::put_tag(&mut packet, tag)) {
            counters.dropped.add(1);
            continue;
        }
        packet.set_arrival(arrival, clock);
        let _ = batch.push(packet);
    }
    TakeResult::Whole
}
