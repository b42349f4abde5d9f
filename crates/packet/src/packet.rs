//! A packet: the sole owner of one chunk of a pool.

use std::ptr::NonNull;
use std::{fmt, slice};

use forebay_simd::prefetch::prefetch_read;
use forebay_units::Ticks;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::metadata::{LINE, Layers, Metadata};
use crate::pool::{Chunk, cache};
use crate::wire::ipv6::Ipv6;
use crate::{ArrivalClock, WORDS, Word};

/// A frame in a chunk, with its metadata. Dropping it returns the chunk to its pool.
///
/// One packet is one chunk: a frame never spans several. The frame can grow at both ends within the chunk
/// ([`prepend`](Self::prepend), [`append`](Self::append)).
#[repr(transparent)]
pub struct Packet(NonNull<Metadata>);

// SAFETY: a packet is the only owner of its chunk (the pool makes it from a chunk without another owner, and it is not
// Clone), and chunks can be returned to the pool from any thread.
unsafe impl Send for Packet {}
// SAFETY: a shared reference to a packet allows only reads.
unsafe impl Sync for Packet {}

impl Packet {
    /// Creates a packet over a chunk that starts with a `Metadata`.
    ///
    /// # Safety
    /// The caller hands over sole ownership of a live chunk whose metadata is initialised: `data..data+len` and
    /// `start..end` lie inside the chunk, whose bytes are initialised, and `pool` names the pool it belongs to.
    #[inline]
    pub(crate) unsafe fn from_chunk(chunk: NonNull<Metadata>) -> Self {
        Self(chunk)
    }

    /// Returns the chunk's start. Unlike a reference to the metadata, this pointer may access the whole chunk.
    #[inline]
    pub(crate) fn chunk(&mut self) -> NonNull<Metadata> {
        self.0
    }

    #[inline]
    pub(crate) fn meta(&self) -> &Metadata {
        // SAFETY: the chunk is live and initialised as long as the packet exists, and no other code writes it.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn meta_mut(&mut self) -> &mut Metadata {
        // SAFETY: as for `meta`; `&mut self` makes the access exclusive.
        unsafe { self.0.as_mut() }
    }

    /// Prefetches the metadata and the line `offset` bytes after the start of the chunk.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        // The second address is past the slice's end, where the frame starts. A prefetch only uses the address and
        // reads nothing.
        let metadata = slice::from_ref(self.meta());
        prefetch_read(metadata, 0);
        prefetch_read(metadata, offset / size_of::<Metadata>());
    }

    /// Releases the chunk to a device that will read the frame, without returning it to its pool. The caller must later
    /// return the chunk ([`Pool::give_chunks`](crate::Pool::give_chunks)), or make a packet of it again
    /// ([`Pool::packet`](crate::Pool::packet)).
    #[inline]
    #[must_use]
    pub fn into_chunk(self) -> Chunk {
        let chunk = Chunk::from_metadata(self.0);
        std::mem::forget(self);
        chunk
    }

    /// Returns the offset of the frame from its chunk's [address](Chunk::address), in bytes.
    #[inline]
    #[must_use]
    pub fn start(&self) -> usize {
        usize::from(self.meta().data)
    }

    /// Returns the frame's length in bytes.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no caller needs to test for an empty frame")]
    pub fn len(&self) -> usize {
        usize::from(self.meta().len)
    }

    /// Returns the frame's bytes.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        let meta = self.meta();
        // SAFETY: `data..data+len` lies in the chunk, whose bytes are initialised. `from_chunk` requires this, and
        // every method that changes `data` or `len` preserves it.
        unsafe { slice::from_raw_parts(self.0.as_ptr().cast::<u8>().add(meta.data.into()), meta.len.into()) }
    }

    /// Returns the frame's bytes for writing. A caller that changes the protocols of the headers must also call
    /// [`forget_layers`](Self::forget_layers).
    #[inline]
    #[must_use]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let (data, len) = (self.meta().data, self.meta().len);
        // SAFETY: as for `data`; the metadata's own line ends before `data`, and `&mut self` makes it exclusive.
        unsafe { slice::from_raw_parts_mut(self.0.as_ptr().cast::<u8>().add(data.into()), len.into()) }
    }

    /// Returns the number of bytes that can be added before the frame.
    #[inline]
    #[must_use]
    pub fn headroom(&self) -> usize {
        let meta = self.meta();
        usize::from(meta.data) - usize::from(meta.start) * LINE
    }

    /// Returns the number of bytes that can be added after the frame.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        let meta = self.meta();
        usize::from(meta.end) - usize::from(meta.data) - usize::from(meta.len)
    }

    /// Returns the length of the longest frame that fits from the present start on, in bytes.
    #[inline]
    fn longest(&self) -> usize {
        let meta = self.meta();
        // The offsets are subtracted as 16-bit numbers. So the compiler knows that a length up to the difference fits
        // into 16 bits, and leaves out the comparison of lengths before a copy.
        usize::from(meta.end - meta.data)
    }

    /// Grows the frame by `n` bytes at its start and returns those bytes. Their content is undefined (old data).
    /// Returns `None` and changes nothing if the headroom is smaller than `n`.
    #[inline]
    pub fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.headroom() {
            return None;
        }
        let meta = self.meta_mut();
        meta.data -= n as u16;
        meta.len += n as u16;
        Some(&mut self.data_mut()[..n])
    }

    /// Removes `n` bytes from the frame's start. Returns `false` and changes nothing if the frame is shorter.
    #[inline]
    pub fn strip(&mut self, n: usize) -> bool {
        if n > self.len() {
            return false;
        }
        let meta = self.meta_mut();
        meta.data += n as u16;
        meta.len -= n as u16;
        if meta.layers.offset() < meta.data {
            self.forget_layers();
        }
        true
    }

    /// Grows the frame by `n` bytes at its end and returns those bytes. Their content is undefined (old data). Returns
    /// `None` and changes nothing if the tailroom is smaller than `n`.
    #[inline]
    pub fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.tailroom() {
            return None;
        }
        let old = self.len();
        self.meta_mut().len += n as u16;
        Some(&mut self.data_mut()[old..])
    }

    /// Cuts the frame to `n` bytes. A shorter frame stays as it is. If the cut may have touched the layers, they become
    /// unknown. If bytes are removed, the number of [missing](Self::missing) bytes becomes 0, because the bytes that a
    /// capture cut off came after them.
    #[inline]
    pub fn truncate(&mut self, n: usize) {
        if n >= self.len() {
            return;
        }
        self.make_whole();
        let meta = self.meta_mut();
        meta.len = n as u16;
        let end = usize::from(meta.data) + n;
        // `wire::ipv6` reads the first eight bytes of a mobility, HIP or Shim6 header before it accepts the header as
        // the upper layer.
        if end < usize::from(meta.layers.offset()) + size_of::<Ipv6>() || end < usize::from(meta.transport) + 8 {
            self.forget_layers();
        }
    }

    /// Replaces the frame by `bytes`, which are the complete frame: no byte is [missing](Self::missing) afterwards.
    /// Returns `false` and changes nothing if the chunk cannot hold them.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.longest() {
            return false;
        }
        self.make_whole();
        self.meta_mut().len = bytes.len() as u16;
        self.data_mut().copy_from_slice(bytes);
        self.forget_layers();
        true
    }

    /// Writes the first frame of a packet that has just left its pool. Does the same as [`write`](Self::write) in fewer
    /// instructions, because no layers and no missing bytes are recorded yet. Returns `false` and changes nothing if
    /// the chunk cannot hold the frame.
    #[inline]
    pub fn write_first(&mut self, bytes: &[u8]) -> bool {
        debug_assert!(self.meta().layers == Layers::UNKNOWN && self.missing() == 0, "the packet already has a frame");
        if bytes.len() > self.longest() {
            return false;
        }
        self.meta_mut().len = bytes.len() as u16;
        self.data_mut().copy_from_slice(bytes);
        true
    }

    /// Returns the header of type `T` at `offset` bytes into the frame, or `None` if the frame is too short.
    #[inline]
    #[must_use]
    pub fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self, offset: usize) -> Option<&T> {
        T::ref_from_prefix(self.data().get(offset..)?).ok().map(|(header, _)| header)
    }

    /// Returns the header of type `T` at `offset` for writing, or `None` if the frame is too short.
    #[inline]
    #[must_use]
    pub fn view_mut<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned>(
        &mut self,
        offset: usize,
    ) -> Option<&mut T> {
        T::mut_from_prefix(self.data_mut().get_mut(offset..)?).ok().map(|(header, _)| header)
    }

    /// Returns the arrival time on the engine's clock.
    #[inline]
    #[must_use]
    pub fn arrival(&self) -> Ticks {
        self.meta().arrival
    }

    /// Returns the clock that [`arrival`](Self::arrival) comes from.
    #[inline]
    #[must_use]
    pub fn arrival_clock(&self) -> ArrivalClock {
        ArrivalClock::of(self.meta().clock)
    }

    /// Sets the arrival time and its clock. Resets the number of missing bytes to 0: for a packet that a capture cut,
    /// call [`set_missing`](Self::set_missing) afterwards.
    #[inline]
    pub fn set_arrival(&mut self, at: Ticks, clock: ArrivalClock) {
        let meta = self.meta_mut();
        meta.arrival = at;
        meta.clock = clock as u8;
    }

    /// Returns the packet's flow: the path it has taken through the pipeline so far.
    #[inline]
    #[must_use]
    pub fn flow(&self) -> u32 {
        self.meta().flow
    }

    /// Sets the packet's flow. The engine does so at the pipeline's entry and at splits.
    #[inline]
    pub fn set_flow(&mut self, flow: u32) {
        self.meta_mut().flow = flow;
    }

    /// Returns the number of packets, from the front, that have the same flow and arrival time as the first.
    #[inline]
    #[must_use]
    pub fn run_alike(packets: &[Self]) -> usize {
        let Some(first) = packets.first() else { return 0 };
        let alike = |packet: &Self| packet.arrival() == first.arrival() && packet.flow() == first.flow();
        let mut run = 1;
        if packets.get(1).is_some_and(alike) {
            // One branch tests eight packets.
            while let Some(eight) = packets.get(run..).and_then(<[Self]>::first_chunk) {
                if !Metadata::are_alike(first.meta(), &eight.each_ref().map(Self::meta)) {
                    break;
                }
                run += eight.len();
            }
            run += packets[run..].iter().take_while(|packet| alike(packet)).count();
        }
        run
    }

    /// Returns a metadata word.
    #[inline]
    #[must_use]
    pub fn word(&self, word: Word) -> u32 {
        self.meta().words[word.index()]
    }

    /// Writes a metadata word.
    #[inline]
    pub fn set_word(&mut self, word: Word, value: u32) {
        self.meta_mut().words[word.index()] = value;
    }

    /// Returns all metadata words.
    #[must_use]
    pub fn words(&self) -> [u32; WORDS] {
        self.meta().words
    }

    /// Writes all metadata words. A packet that replaces another one takes over that packet's words.
    pub fn set_words(&mut self, words: [u32; WORDS]) {
        self.meta_mut().words = words;
    }

    /// Returns the number of the traced packet, or 0 if the packet is not traced.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> u8 {
        self.meta().mark
    }

    /// Sets the packet's trace number.
    #[inline]
    pub fn set_mark(&mut self, mark: u8) {
        self.meta_mut().mark = mark;
    }

    /// Makes `self` a copy of `other`: bytes, flow, arrival, words, layers, session hash, trace number, number of
    /// missing bytes. If this chunk has no room for the number of missing bytes, the number becomes 0. Returns `false`
    /// and changes nothing if this chunk cannot hold the frame.
    pub fn copy_from(&mut self, other: &Packet) -> bool {
        if !self.write(other.data()) {
            return false;
        }
        let from = *other.meta();
        let to = self.meta_mut();
        let Metadata { data, len, start, end, pool, .. } = *to;
        // A layer's offset counts from the chunk's start, and the two frames may start at different offsets. A value
        // below the frame's start is not an offset; it means "unknown" or "no such layer".
        let moved = |offset: u16| {
            if offset < from.data { offset } else { offset - from.data + data }
        };
        let layers = from.layers.at(moved(from.layers.offset()));
        // Without a protocol, the transport offset may belong to an earlier frame and be out of range.
        let transport = if from.layers.protocol() == 0 { 0 } else { moved(from.transport) };
        let clock = other.arrival_clock() as u8;
        *to = Metadata { data, len, start, end, pool, layers, transport, clock, ..from };
        self.set_missing(other.missing());
        true
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this packet is the chunk's only owner and is not used after this.
        unsafe { cache::put(&[Chunk::from_metadata(self.0)]) }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("len", &self.len())
            .field("flow", &self.flow())
            .field("pool", &self.meta().pool)
            .finish()
    }
}

mod missing;

#[cfg(test)]
mod tests;
