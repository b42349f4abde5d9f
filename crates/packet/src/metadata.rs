//! What the system knows of a packet besides its bytes: one cache line at the head of its chunk.

use crate::Ticks;

/// How many metadata words functions can declare between them in one pipeline.
pub const WORDS: usize = 8;

/// A metadata word that the pipeline compiler has assigned to a name that functions declared (`next_hop`, `branch`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word(u8);

impl Word {
    /// The word at `index`, where there is one (`0..`[`WORDS`]).
    #[must_use]
    pub fn new(index: usize) -> Option<Self> {
        (index < WORDS).then_some(Self(index as u8))
    }

    /// Its place among the words of a packet, below [`WORDS`].
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0) % WORDS
    }
}

/// Which clock a packet's arrival time is of: it decides what the measured delay includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ArrivalClock {
    /// The worker's, when it took the packet from the port: time spent waiting in the device is not seen.
    #[default]
    Poll,
    /// The schedule's: when the packet should have arrived, whether or not the worker was there to take it, so that
    /// a slow worker's own lateness counts as delay (no coordinated omission).
    Intended,
    /// The kernel's or the device's receive time stamp.
    Kernel,
}

/// The chunk's first cache line.
///
/// Offsets are from the header's own start, so that taking an outer header off or putting one on moves `data` and
/// nothing else. Zero, which can never be a valid offset, says "not known yet" for the layers.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Metadata {
    pub data: u16,
    pub len: u16,
    pub network: u16,
    /// What `network` points at (`layers.rs`).
    pub kind: u8,
    /// What `transport` points at: an IP protocol number.
    pub protocol: u8,
    pub arrival: Ticks,
    pub flow: u32,
    pub session: u32,
    pub words: [u32; WORDS],
    pub transport: u16,
    /// One past the last byte of the chunk that data may use.
    pub end: u16,
    /// Which pool the chunk is of.
    pub pool: u8,
    /// Where packet memory begins, in [`LINE`]s: headroom ends here.
    pub start: u8,
    pub clock: ArrivalClock,
    /// 0, or which of the traced packets this is.
    pub mark: u8,
}

impl Metadata {
    /// The same as two values that the processor holds in registers: written to many chunks, they are not read from
    /// memory for each, as a structure of many fields would be.
    #[inline]
    pub(crate) fn halves(self) -> [Half; 2] {
        // SAFETY: both are 64 bytes, all of the metadata's initialised (it has no padding), and any bytes are integers.
        unsafe { std::mem::transmute(self) }
    }
}

/// Half of a [`Metadata`] as bytes.
#[cfg(all(target_arch = "x86_64", target_feature = "avx"))]
pub(crate) type Half = std::arch::x86_64::__m256i;
/// Half of a [`Metadata`] as bytes.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx")))]
pub(crate) type Half = [u128; 2];

/// A cache line, in bytes.
pub(crate) const LINE: usize = 64;

const _: () = assert!(size_of::<Metadata>() == LINE, "one cache line");
