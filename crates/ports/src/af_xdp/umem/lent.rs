//! Which chunks of the memory a socket's kernel side has: the proof that one that comes back is ours to give.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use forebay_packet::pool::Chunk;
use forebay_packet::{ArrivalClock, MAX_BATCH, Packet, Ticks};

use super::Umem;
use crate::af_xdp::ring::Descriptor;

/// Chunks that a socket's kernel side has, by number: the proof that one that comes back is ours to give.
pub struct Lent {
    umem: Arc<Umem>,
    chunks: Box<[u64]>,
    count: usize,
    /// Finished with, and soon to go home.
    done: Vec<Chunk>,
}

impl Lent {
    /// None yet.
    #[must_use]
    pub fn new(umem: Arc<Umem>) -> Self {
        let chunks = vec![0; umem.shape.chunks.div_ceil(64)].into();
        Self { umem, chunks, count: 0, done: Vec::with_capacity(MAX_BATCH) }
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn lend(&mut self, index: usize) {
        self.chunks[index / 64] |= 1 << (index % 64);
        self.count += 1;
    }

    /// Whether it was lent; it is not any more.
    // By a branch: rustc 1.95 leaves out the assignment of a comparison that is used before it is branched on
    // (rust-lang/rust issue 158206), so that `count -= usize::from(lent)` did not count in a release build.
    #[inline]
    fn regain(&mut self, index: usize) -> bool {
        let (word, bit) = (&mut self.chunks[index / 64], 1 << (index % 64));
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        self.count -= 1;
        true
    }

    /// Lends up to `wanted` free chunks (at most a batch); their addresses, for the kernel to write frames to, go to `each`.
    /// How many there were.
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

    /// Lends a packet's chunk for the kernel to send the frame; a packet of another memory comes back.
    ///
    /// # Errors
    /// It is not of this memory.
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

    /// The frame that the kernel has written to a chunk that it was lent; `None` where it was not, or the frame is not in it.
    #[inline]
    pub fn packet(&mut self, descriptor: Descriptor, arrival: Ticks) -> Option<Packet> {
        let (index, start) = self.umem.decode(descriptor.address)?;
        if !self.regain(index) {
            return None;
        }
        let chunk = self.umem.chunk(index);
        // SAFETY: the chunk was lent, so it came from the pool or a packet of it and is nobody else's, and it is lent no more:
        // the kernel, which gives it back by its ring, does not touch it again.
        let packet =
            unsafe { self.umem.pool.packet(chunk, start, descriptor.len as usize, arrival, ArrivalClock::Poll) };
        if packet.is_none() {
            self.finish(chunk);
        }
        packet
    }

    /// Takes back a chunk whose frame the kernel has sent; whether it was lent. It goes home with the next
    /// [`flush`](Self::flush).
    #[inline]
    pub fn sent(&mut self, address: u64) -> bool {
        let known = self.umem.decode(address).filter(|(index, _)| self.regain(*index));
        let Some((index, _)) = known else { return false };
        self.finish(self.umem.chunk(index));
        true
    }

    #[inline]
    fn finish(&mut self, chunk: Chunk) {
        self.done.push(chunk);
        if self.done.len() == MAX_BATCH {
            self.flush();
        }
    }

    /// Brings home what the kernel is done with.
    #[inline]
    pub fn flush(&mut self) {
        if !self.done.is_empty() {
            // SAFETY: each was lent, is lent no more, and is nobody else's.
            unsafe { self.umem.pool.give_chunks(&self.done) }
            self.done.clear();
        }
    }

    /// Takes everything back from a socket that is closed. A driver that reads or writes the memory itself (`devices`) has its
    /// time to let go.
    ///
    /// # Safety
    /// The socket is closed: what the kernel itself copies to and from is done with.
    pub unsafe fn reclaim(&mut self, devices: bool) {
        self.flush();
        let mut chunks = Vec::with_capacity(self.count);
        for (at, word) in self.chunks.iter_mut().enumerate() {
            let mut bits = mem::take(word);
            while bits != 0 {
                chunks.push(self.umem.chunk(at * 64 + bits.trailing_zeros() as usize));
                bits &= bits - 1;
            }
        }
        self.count = 0;
        if chunks.is_empty() {
            return;
        }
        if devices {
            self.umem.book().resting.push((Instant::now(), chunks));
        } else {
            // SAFETY: they were lent, and the kernel is done with them, as the caller says.
            unsafe { self.umem.pool.give_chunks(&chunks) }
        }
    }
}
