//! The receiving side: takes frames out of the ring's blocks, one after the other, and makes packets of them.

use std::io;

use forebay_graph::{Intake, PortCounters};
use forebay_packet::{ArrivalClock, Batch};

use super::block::{Cursor, Frame};
use super::offload::{self, Cut};
use super::params::Ring;
use super::socket::{ReceiveRing, Socket};
use super::stamps::Stamps;

/// A socket that receives, with its ring.
pub struct Receiver {
    socket: Socket,
    ring: ReceiveRing,
    sizes: Ring,
    /// The block that comes next, and how far it has been read.
    block: usize,
    cursor: Option<Cursor>,
    /// How many frames the kernel has put into the ring, as far as it was asked, less those in blocks that were given back.
    inside: u64,
    /// The part that comes next of a frame that is several.
    part: usize,
    /// The interface that it is bound to, and whether for all addresses.
    bound: Option<(u32, bool)>,
}

/// What became of a frame.
enum Taken {
    /// It is in the batch, or lost and counted.
    Whole,
    /// There was no room for all of it.
    Partly,
    /// No packet is left.
    NoPacket,
}

impl Receiver {
    /// One that receives nothing yet, in the network namespace that the calling thread is in.
    pub fn new(sizes: &Ring) -> io::Result<Self> {
        let socket = Socket::new()?;
        // What leaves is not what enters (Linux 4.20).
        socket.set_number(libc::PACKET_IGNORE_OUTGOING, 1)?;
        let ring = ReceiveRing::new(&socket, sizes)?;
        Ok(Self { socket, ring, sizes: *sizes, block: 0, cursor: None, inside: 0, part: 0, bound: None })
    }

    /// The ring's size.
    pub fn sizes(&self) -> Ring {
        self.sizes
    }

    /// Receives what comes in at an interface from now on.
    pub fn bind(&mut self, index: u32, promiscuous: bool) -> io::Result<()> {
        if let Some((before, true)) = self.bound.take() {
            // It is gone already where the interface is.
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

    /// Receives no more; what is in the ring stays there.
    ///
    /// # Errors
    /// What the system says.
    pub fn silence(&self) -> io::Result<()> {
        self.socket.silence()
    }

    /// Whether the interface went down or away since this was last asked.
    pub fn was_cut_off(&self) -> bool {
        self.socket.take_error().is_ok_and(|error| error.is_some())
    }

    /// How many frames found the ring full since this was last asked.
    pub fn drops(&mut self) -> u64 {
        let (put, dropped) = self.socket.counts().unwrap_or_default();
        self.inside = self.inside.wrapping_add(put.into());
        dropped.into()
    }

    /// Receives no more: how many frames are lost by it since [that](Self::drops) was last asked. Besides those that found the
    /// ring full they are those that are still in it, whether or not the kernel has handed their block over.
    pub fn end(mut self) -> u64 {
        // Where it fails, as the interface has gone, nothing comes either.
        let _ = self.silence();
        let dropped = self.drops();
        let begun = self.ring.block(self.block).zip(self.cursor.as_ref());
        let taken = begun.map_or(0, |(block, cursor)| Cursor::new(block).left().saturating_sub(cursor.left()));
        dropped + self.inside.wrapping_sub(taken.into())
    }

    /// Adds packets to a batch; whether there may be more.
    pub fn fill(&mut self, batch: &mut Batch, intake: &Intake<'_>, stamps: &Stamps, counters: &PortCounters) -> bool {
        // Frames that are lost use up the turn, too: a flood of them does not hold the worker.
        let mut looks = 2 * intake.most;
        let Self { ring, block: number, cursor: open, inside, part, .. } = self;
        while let Some(block) = ring.block(*number) {
            let cursor = open.get_or_insert_with(|| Cursor::new(block));
            loop {
                let frame = match cursor.frame(block) {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    Err(_) => {
                        counters.errors.add(1);
                        counters.dropped.add(cursor.left().into());
                        break;
                    }
                };
                if looks == 0 || batch.len() >= intake.most || batch.room() == 0 {
                    return true;
                }
                looks -= 1;
                match take(&frame, part, batch, intake, stamps, counters) {
                    Taken::Whole => *part = 0,
                    Taken::Partly | Taken::NoPacket => return true,
                }
                cursor.advance(block);
            }
            *inside = inside.wrapping_sub(Cursor::new(block).left().into());
            *open = None;
            ring.give_back(*number);
            *number = (*number + 1) % ring.blocks();
        }
        false
    }
}

/// Makes packets of a frame, from this part on where it is several.
#[inline]
fn take(
    frame: &Frame<'_>,
    part: &mut usize,
    batch: &mut Batch,
    intake: &Intake<'_>,
    stamps: &Stamps,
    counters: &PortCounters,
) -> Taken {
    if frame.several.is_some() {
        return take_parts(frame, part, batch, intake, stamps, counters);
    }
    let Some(mut packet) = intake.pool.take() else { return Taken::NoPacket };
    let is_whole = !frame.is_cut() && packet.write(frame.bytes);
    if !is_whole {
        drop_long(frame, counters);
        return Taken::Whole;
    }
    let is_right = frame.partial.is_none_or(|partial| offload::complete(packet.data_mut(), partial));
    if !is_right || frame.tag.is_some_and(|tag| !offload::put_tag(&mut packet, tag)) {
        counters.dropped.add(1);
        return Taken::Whole;
    }
    let (arrival, clock) = stamps.arrival(frame.stamp, intake.now);
    packet.set_arrival(arrival, clock);
    // There is room, as the caller has seen.
    let _ = batch.push(packet);
    Taken::Whole
}

/// Counts a frame that is longer than its block, or than a packet, holds.
#[cold]
fn drop_long(frame: &Frame<'_>, counters: &PortCounters) {
    if frame.is_cut() {
        counters.drop_over_block();
    } else {
        counters.drop_oversize(frame.length);
    }
}

/// The same of a frame that is several in one.
#[inline(never)]
fn take_parts(
    frame: &Frame<'_>,
    part: &mut usize,
    batch: &mut Batch,
    intake: &Intake<'_>,
    stamps: &Stamps,
    counters: &PortCounters,
) -> Taken {
    if frame.is_cut() {
        drop_long(frame, counters);
        return Taken::Whole;
    }
    let Some(cut) = Cut::of(frame) else {
        counters.dropped.add(1);
        return Taken::Whole;
    };
    let (arrival, clock): (_, ArrivalClock) = stamps.arrival(frame.stamp, intake.now);
    while *part < cut.parts() {
        if batch.len() >= intake.most || batch.room() == 0 {
            return Taken::Partly;
        }
        let Some(mut packet) = intake.pool.take() else { return Taken::NoPacket };
        let is_whole = cut.write(frame, *part, &mut packet);
        *part += 1;
        if !is_whole || frame.tag.is_some_and(|tag| !offload::put_tag(&mut packet, tag)) {
            counters.dropped.add(1);
            continue;
        }
        packet.set_arrival(arrival, clock);
        let _ = batch.push(packet);
    }
    Taken::Whole
}
