//! The chunks of a socket that the kernel has.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use forebay_packet::{ArrivalClock, MAX_BATCH, Packet, pool::Chunk};
use forebay_units::Ticks;

use super::Umem;
use crate::af_xdp::ring::Descriptor;

/// The set of chunks, by index, that one socket has lent to the kernel. A chunk that the kernel returns is used only if
/// it is in the set.
pub struct Lent {
    /// The memory of the chunks.
    umem: Arc<Umem>,
    /// A bit for each chunk of the memory, by index: 1 if the kernel has the chunk.
    chunks: Box<[u64]>,
    /// The number of bits that are 1.
    count: usize,
    /// Chunks that the kernel has finished with. The next [`flush`](Self::flush) returns them to the pool.
    done: Vec<Chunk>,
}

impl Lent {
    /// Creates an empty set.
    #[must_use]
    pub fn new(umem: Arc<Umem>) -> Self {
        let chunks = vec![0; umem.shape.chunks.div_ceil(64)].into();
        Self { umem, chunks, count: 0, done: Vec::with_capacity(MAX_BATCH) }
    }

    /// Returns the number of lent chunks.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Marks a chunk as lent. The chunk must not be lent already.
    #[inline]
    fn lend(&mut self, index: usize) {
        self.chunks[index / 64] |= 1 << (index % 64);
        self.count += 1;
    }

    /// Marks a chunk as not lent. Returns false if the chunk was not lent before.
    // The branch is intentional. rustc 1.95 omits the assignment of a comparison that is used before it is branched on
    // (rust-lang/rust issue 158206), so `count -= usize::from(lent)` did not count in a release build.
    #[inline]
    fn mark_returned(&mut self, index: usize) -> bool {
        let (word, bit) = (&mut self.chunks[index / 64], 1 << (index % 64));
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.count -= 1;
        true
    }

    /// Lends up to `wanted` free chunks (at most [`MAX_BATCH`]) to the kernel, which writes frames to them. Calls
    /// `each` with the address of each chunk, as the kernel expects it. Returns the number of chunks.
    pub fn lend_free(&mut self, wanted: usize, mut each: impl FnMut(u64)) -> usize {
        let mut chunks = [Chunk::new(NonNull::dangling()); MAX_BATCH];
        let wanted = wanted.min(MAX_BATCH);
        let got = self.umem.pool.take_chunks(&mut chunks[..wanted]);
        for chunk in &chunks[..got] {
            let index = self.umem.index_of(*chunk);
            self.lend(index);
            each(self.umem.encode(index, self.umem.lead as usize));
        }
        got
    }

    /// Lends a packet's chunk for the kernel to send the frame.
    ///
    /// # Errors
    /// Returns the packet if it does not belong to this memory.
    #[inline]
    pub fn lend_packet(&mut self, packet: Packet) -> Result<Descriptor, Packet> {
        if !self.umem.pool.owns(&packet) {
            return Err(packet);
        }
        let (start, len) = (packet.start(), packet.len() as u32);
        let index = self.umem.index_of(packet.into_chunk());
        self.lend(index);
        Ok(Descriptor { address: self.umem.encode(index, start), len, options: 0 })
    }

    /// Returns the frame that the kernel has written to a lent chunk. Returns `None` if the chunk was not lent, or if
    /// the frame is not within the chunk. In the second case, the chunk goes back to the pool.
    #[inline]
    pub fn packet(&mut self, descriptor: Descriptor, arrival: Ticks) -> Option<Packet> {
        let (index, start) = self.umem.decode(descriptor.address)?;
        if !self.mark_returned(index) {
            return None;
        }
        // SAFETY: `decode` returns indices of chunks only.
        let chunk = unsafe { self.umem.chunk(index) };
        // SAFETY: the chunk was lent, so it came from the pool or from a packet of it and has no other owner. It is not
        // lent any more: the kernel, which returns it by its ring, does not access it again.
        let packet =
            unsafe { self.umem.pool.packet(chunk, start, descriptor.len as usize, arrival, ArrivalClock::Poll) };
        if packet.is_none() {
            self.finish(chunk);
        }
        packet
    }

    /// Takes back the chunk at `address`, whose frame the kernel has sent. The next [`flush`](Self::flush) returns the
    /// chunk to the pool. Returns false, and does nothing, if no lent chunk is at this address.
    #[inline]
    pub fn sent(&mut self, address: u64) -> bool {
        let known = self.umem.decode(address).filter(|(index, _)| self.mark_returned(*index));
        let Some((index, _)) = known else { return false };
        // SAFETY: `decode` returns indices of chunks only.
        let chunk = unsafe { self.umem.chunk(index) };
        self.finish(chunk);
        true
    }

    /// Keeps a chunk for the next [`flush`](Self::flush). The chunk must not be lent, and have no other owner.
    #[inline]
    fn finish(&mut self, chunk: Chunk) {
        self.done.push(chunk);
        if self.done.len() == MAX_BATCH {
            self.flush();
        }
    }

    /// Returns the finished chunks to the pool.
    #[inline]
    pub fn flush(&mut self) {
        if !self.done.is_empty() {
            // SAFETY: each chunk was lent, is not lent any more, and has no other owner.
            unsafe { self.umem.pool.give_chunks(&self.done) }
            self.done.clear();
        }
    }

    /// Takes back all lent chunks of a closed socket. `devices` is true if the device may access the chunks itself. Its
    /// driver releases them some time after the socket is closed. So the chunks are quarantined until
    /// [`Umem::recycle`] finds that enough time has passed.
    ///
    /// # Safety
    /// The socket must be closed, so that the kernel's own copies have ended.
    pub unsafe fn reclaim(&mut self, devices: bool) {
        self.flush();
        let mut chunks = Vec::with_capacity(self.count);
        for (at, word) in self.chunks.iter_mut().enumerate() {
            let mut bits = mem::take(word);
            while bits != 0 {
                // SAFETY: only chunks that were lent are marked, and each of them has an index of this memory.
                chunks.push(unsafe { self.umem.chunk(at * 64 + bits.trailing_zeros() as usize) });
                bits &= bits - 1;
            }
        }
        self.count = 0;
        if chunks.is_empty() {
            return;
        }
        if devices {
            self.umem.usage().quarantined.push((Instant::now(), chunks));
        } else {
            // SAFETY: the chunks were lent, and the kernel has finished with them, as the caller guarantees.
            unsafe { self.umem.pool.give_chunks(&chunks) }
        }
    }
}
