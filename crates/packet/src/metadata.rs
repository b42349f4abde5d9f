//! A packet's metadata: one cache line at the head of its chunk.

use std::mem::offset_of;

use forebay_units::Ticks;

/// The number of metadata words that all functions of one pipeline can declare.
pub const WORDS: usize = 8;

/// A metadata word. The pipeline compiler assigns it to a name that functions declare (`next_hop`, `branch`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word(u8);

impl Word {
    /// Returns the word at `index`, or `None` if `index` is [`WORDS`] or more.
    #[must_use]
    pub fn new(index: usize) -> Option<Self> {
        (index < WORDS).then_some(Self(index as u8))
    }

    /// Returns the index among the words of a packet, below [`WORDS`].
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0) % WORDS
    }
}

/// The clock that a packet's arrival time comes from. It decides which waiting times the measured delay includes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ArrivalClock {
    /// The worker's clock, when it took the packet from the port. Waiting time in the device is not included.
    #[default]
    Poll,
    /// The schedule's time at which the packet should have arrived, even if the worker took it later. A slow worker's
    /// own lateness thus counts as delay (no coordinated omission).
    Intended,
    /// The receive time stamp of the kernel or the device.
    Kernel,
}

impl ArrivalClock {
    /// Extracts the clock from a packet's `clock` byte and ignores the other bits.
    #[inline]
    pub(crate) fn of(byte: u8) -> Self {
        match byte & CLOCK {
            0 => Self::Poll,
            1 => Self::Intended,
            _ => Self::Kernel,
        }
    }
}

/// The bits of a packet's `clock` byte that hold an [`ArrivalClock`].
pub(crate) const CLOCK: u8 = 3;

/// The chunk's first cache line.
///
/// Offsets count from the start of this line, so that removing or adding an outer header changes only `data` (and
/// `len`). Zero is never a valid offset; for the layers it means "unknown".
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Metadata {
    /// Offset of the frame's first byte.
    pub data: u16,
    /// The frame's length in bytes.
    pub len: u16,
    /// The network layer and the transport protocol, as far as they have been located.
    pub layers: Layers,
    /// The arrival time on the engine's clock.
    pub arrival: Ticks,
    /// The flow word, which the engine sets.
    pub flow: u32,
    /// The session hash. 0 if it has not been computed.
    pub session: u32,
    /// The metadata words ([`Word`]). 0 in a fresh packet.
    pub words: [u32; WORDS],
    /// Offset of the transport layer. Undefined while `layers` has no protocol. 1 if there is no transport layer.
    pub transport: u16,
    /// End offset of the chunk's packet memory.
    pub end: u16,
    /// The number of the pool that owns the chunk.
    pub pool: u8,
    /// Start of packet memory, in [`LINE`]s. The headroom begins there.
    pub start: u8,
    /// An [`ArrivalClock`]. The other bits give the location of the number of missing bytes (`packet/missing.rs`).
    pub clock: u8,
    /// The number of the traced packet; 0 if the packet is not traced.
    pub mark: u8,
}

/// The offset and kind of the network layer (`layers.rs`), and the IP protocol number of the header at `transport`.
///
/// One word, from its low end: kind, protocol, offset. The word is written and read as a whole, because a load that is
/// wider than the last store would wait until the store has reached the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layers(u32);

impl Layers {
    /// No layer has been located.
    pub const UNKNOWN: Self = Self(0);

    /// Returns layers whose network layer has this kind and begins `distance` bytes after `data`, modulo 2¹⁶. The
    /// transport protocol and its offset are unknown.
    #[inline]
    pub fn network(kind: u8, data: u16, distance: u16) -> Self {
        // If the kind and the distance are constants, this is one addition.
        let constant = u32::from(distance) << 16 | u32::from(kind);
        Self((u32::from(data) << 16).wrapping_add(constant))
    }

    /// Returns the kind of the network layer (`layers.rs`). 0 if it is unknown.
    #[inline]
    pub fn kind(self) -> u8 {
        self.0 as u8
    }

    /// Returns the offset of the network layer from the chunk's start.
    #[inline]
    pub fn offset(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns the same network layer with this IP protocol number.
    #[inline]
    pub fn with_protocol(self, protocol: u8) -> Self {
        Self(self.0 & 0xffff_00ff | u32::from(protocol) << 8)
    }

    /// Returns the IP protocol number of the header at `transport`. 0 if it is unknown.
    #[inline]
    pub fn protocol(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Returns the same layers at another offset.
    #[inline]
    pub fn at(self, offset: u16) -> Self {
        Self(self.0 & 0x0000_ffff | u32::from(offset) << 16)
    }
}

impl Metadata {
    /// Splits the line into two values that the processor holds in registers. A loop that writes them to many chunks
    /// does not reload them from memory for each chunk, unlike a structure of many fields.
    #[inline]
    pub(crate) fn halves(self) -> [Half; 2] {
        // SAFETY: both types are 64 bytes, all bytes of the metadata are initialised (it has no padding), and any bytes
        // are valid integers.
        unsafe { std::mem::transmute(self) }
    }

    /// Returns whether eight packets have the flow and the arrival time of `first`. With AVX2 this takes three
    /// instructions per packet, because one instruction compares half a line.
    #[inline]
    pub(crate) fn are_alike(first: &Self, eight: &[&Self; 8]) -> bool {
        #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
        {
            use std::arch::x86_64::{
                _mm256_or_si256, _mm256_setr_epi64x, _mm256_setzero_si256, _mm256_testz_si256, _mm256_xor_si256,
            };
            // SAFETY: this reads the first half of an initialised line that is aligned to 64 bytes.
            let half = |metadata: &Self| unsafe { *std::ptr::from_ref(metadata).cast::<Half>() };
            // SAFETY: this code is compiled only for processors that have AVX2.
            unsafe {
                let sum = |sum, metadata: &&Self| _mm256_or_si256(sum, _mm256_xor_si256(half(metadata), half(first)));
                let difference = eight.iter().fold(_mm256_setzero_si256(), sum);
                // Bytes 8 to 15 are the arrival time, bytes 16 to 19 the flow.
                _mm256_testz_si256(difference, _mm256_setr_epi64x(0, -1, 0xffff_ffff, 0)) == 1
            }
        }
        #[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
        Self::are_alike_scalar(first, eight)
    }

    /// Compares the packets one by one. This is the definition of [`are_alike`](Self::are_alike).
    #[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "avx2"))))]
    #[inline]
    fn are_alike_scalar(first: &Self, eight: &[&Self; 8]) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte of one packet's line differs once. Only those of the arrival time and of the flow count.
    #[test]
    fn packets_are_alike_by_arrival_and_flow_alone() {
        let lines = || [[0x5a_u8; LINE]; 9];
        let of = |lines: &[[u8; LINE]; 9]| {
            // SAFETY: both types are 64 bytes, and any bytes are valid integers.
            lines.map(|line| unsafe { std::mem::transmute::<[u8; LINE], Metadata>(line) })
        };
        for (packet, byte) in (0..9).flat_map(|packet| (0..LINE).map(move |byte| (packet, byte))) {
            let mut changed = lines();
            changed[packet][byte] ^= 0x80 >> (byte % 8);
            let [first, eight @ ..] = &of(&changed);
            let eight = eight.each_ref();
            let expected = !(8..20).contains(&byte);
            assert_eq!(Metadata::are_alike(first, &eight), expected, "byte {byte} of packet {packet}");
            assert_eq!(Metadata::are_alike_scalar(first, &eight), expected, "byte {byte} of packet {packet}");
        }
    }
}
