//! What the system knows of a packet besides its bytes: one cache line at the head of its chunk.

use std::mem::offset_of;

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

impl ArrivalClock {
    /// The clock in a packet's metadata, whatever the other bits of its byte are.
    #[inline]
    pub(crate) fn of(byte: u8) -> Self {
        match byte & CLOCK {
            0 => Self::Poll,
            1 => Self::Intended,
            _ => Self::Kernel,
        }
    }
}

/// Which bits of a packet's `clock` are an [`ArrivalClock`].
pub(crate) const CLOCK: u8 = 3;

/// The chunk's first cache line.
///
/// Offsets are from the header's own start, so that taking an outer header off or putting one on moves `data` and
/// nothing else. Zero, which can never be a valid offset, says "not known yet" for the layers.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Metadata {
    pub data: u16,
    pub len: u16,
    pub layers: Layers,
    pub arrival: Ticks,
    pub flow: u32,
    pub session: u32,
    pub words: [u32; WORDS],
    /// Where the transport layer starts; says nothing while `layers` has no protocol.
    pub transport: u16,
    /// One past the last byte of the chunk that data may use.
    pub end: u16,
    /// Which pool the chunk is of.
    pub pool: u8,
    /// Where packet memory begins, in [`LINE`]s: headroom ends here.
    pub start: u8,
    /// An [`ArrivalClock`], and in the other bits where the number of missing bytes is (`packet/missing.rs`).
    pub clock: u8,
    /// 0, or which of the traced packets this is.
    pub mark: u8,
}

/// Where the network layer starts, what it is (`layers.rs`), and the IP protocol number of what `transport` points at.
///
/// One word, from its low end: kind, protocol, offset. Written and read as one: a reader of a wider stretch than was
/// written last would wait until the store has reached the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layers(u32);

impl Layers {
    /// Not known yet.
    pub const UNKNOWN: Self = Self(0);

    /// The network layer is of this kind and at this offset. The protocol above it is not known yet, and with it where
    /// it starts.
    #[inline]
    pub fn network(kind: u8, offset: u16) -> Self {
        Self(u32::from(offset) << 16 | u32::from(kind))
    }

    #[inline]
    pub fn kind(self) -> u8 {
        self.0 as u8
    }

    #[inline]
    pub fn offset(self) -> u16 {
        (self.0 >> 16) as u16
    }

    #[inline]
    pub fn with_protocol(self, protocol: u8) -> Self {
        Self(self.0 & 0xffff_00ff | u32::from(protocol) << 8)
    }

    #[inline]
    pub fn protocol(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// The same layers at another offset.
    #[inline]
    pub fn at(self, offset: u16) -> Self {
        Self(self.0 & 0x0000_ffff | u32::from(offset) << 16)
    }
}

impl Metadata {
    /// The same as two values that the processor holds in registers: written to many chunks, they are not read from
    /// memory for each, as a structure of many fields would be.
    #[inline]
    pub(crate) fn halves(self) -> [Half; 2] {
        // SAFETY: both are 64 bytes, all of the metadata's initialised (it has no padding), and any bytes are integers.
        unsafe { std::mem::transmute(self) }
    }

    /// Whether eight packets are of the same flow as `first` and arrived at the same instant: three instructions each
    /// where the processor compares half a line in one.
    #[inline]
    pub(crate) fn are_alike(first: &Self, eight: &[&Self; 8]) -> bool {
        #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
        {
            use std::arch::x86_64::{
                _mm256_or_si256, _mm256_setr_epi64x, _mm256_setzero_si256, _mm256_testz_si256, _mm256_xor_si256,
            };
            // SAFETY: the first half of a line that is initialised and aligned to 64.
            let half = |metadata: &Self| unsafe { *std::ptr::from_ref(metadata).cast::<Half>() };
            // SAFETY: the program is compiled for processors that have AVX2.
            unsafe {
                let sum = |sum, metadata: &&Self| _mm256_or_si256(sum, _mm256_xor_si256(half(metadata), half(first)));
                let difference = eight.iter().fold(_mm256_setzero_si256(), sum);
                // Bytes 8 to 15 are the arrival, 16 to 19 the flow.
                _mm256_testz_si256(difference, _mm256_setr_epi64x(0, -1, 0xffff_ffff, 0)) == 1
            }
        }
        #[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
        eight.iter().all(|packet| packet.arrival == first.arrival && packet.flow == first.flow)
    }
}

const _: () = assert!(offset_of!(Metadata, arrival) == 8 && offset_of!(Metadata, flow) == 16);

/// Half of a [`Metadata`] as bytes.
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
pub(crate) type Half = std::arch::x86_64::__m256i;
/// Half of a [`Metadata`] as bytes.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
pub(crate) type Half = [u128; 2];

/// A cache line, in bytes.
pub(crate) const LINE: usize = 64;

const _: () = assert!(size_of::<Metadata>() == LINE, "one cache line");
