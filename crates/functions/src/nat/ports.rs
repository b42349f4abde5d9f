//! Which outside ports are given out: a bit for each port of each address and protocol.
//!
//! Where the search begins is drawn at random, so that nobody outside can tell the next port from the last one (RFC 6056
//! section 3.3.1). A port is of the same parity as the one inside (RFC 4787 REQ-4), as RTP and RTCP of old want it.

use forebay_memory::{NoMemory, Zeroed};
use forebay_packet::wire::ipv4::{ICMP, TCP, UDP};
use forebay_simd::prefetch::prefetch_read;

/// Words of bits for all ports.
const WORDS: usize = 1 << 16 >> 6;
/// Every second bit, from the first on.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// What SplitMix64 goes on by at each draw.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The ports of a pool of addresses.
pub(super) struct Ports {
    /// By address and protocol: whether a port is given out.
    used: Zeroed<u64>,
    random: u64,
}

/// Protocols' places.
fn place(protocol: u8) -> usize {
    match protocol {
        TCP => 0,
        UDP => 1,
        ICMP => 2,
        other => unreachable!("no connection shows ports of protocol {other}"),
    }
}

impl Ports {
    pub(super) fn new(addresses: u32, secret: u64) -> Result<Self, NoMemory> {
        Ok(Self { used: Zeroed::new(addresses as usize * 3 * WORDS)?, random: secret })
    }

    /// What comes out after so many more draws: SplitMix64 (Steele, Lea, Flood 2014).
    fn drawn(&self, draws: u64) -> u64 {
        let mut x = self.random.wrapping_add(GAMMA.wrapping_mul(draws));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// At which port of a range the search begins that comes so many searches from now, the next one being 1.
    fn start(&self, searches: u64, (first, last): (u16, u16)) -> u16 {
        first + (self.drawn(searches) % (u64::from(last - first) + 1)) as u16
    }

    /// Where the word is that has this port's bit.
    fn word(address: u32, protocol: u8, port: u16) -> usize {
        (address as usize * 3 + place(protocol)) * WORDS + usize::from(port / 64)
    }

    fn of(&mut self, address: u32, protocol: u8) -> &mut [u64] {
        let start = Self::word(address, protocol, 0);
        &mut self.used[start..start + WORDS]
    }

    /// Asks the processor for where a search begins that is so many from now, if each one before it is over at once.
    #[inline]
    pub(super) fn prefetch(&self, searches: u64, address: u32, protocol: u8, range: (u16, u16)) {
        self.prefetch_port(address, protocol, self.start(searches, range));
    }

    /// Asks the processor for what a port is given back to.
    #[inline]
    pub(super) fn prefetch_port(&self, address: u32, protocol: u8, port: u16) {
        prefetch_read(&self.used, Self::word(address, protocol, port));
    }

    /// Gives a port out of a range, of an address by its number in the pool: one of the parity of `like`, and that is `right`.
    /// `None`: all of these are out, or so many `looks` at free ones found none that is.
    pub(super) fn take(
        &mut self,
        address: u32,
        protocol: u8,
        (first, last): (u16, u16),
        like: u16,
        mut looks: usize,
        right: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let start = usize::from(self.start(1, (first, last)));
        self.random = self.random.wrapping_add(GAMMA);
        let parity = if like.is_multiple_of(2) { EVEN } else { !EVEN };
        let used = self.of(address, protocol);
        let (low, high) = (usize::from(first) / 64, usize::from(last) / 64);
        let mut word = start / 64;
        // The word in which the search begins once more at its end, for what is below the beginning.
        let words = high - low + 1;
        for step in 0..=words {
            let mut free = !used[word] & parity;
            match step {
                0 => free = free >> (start % 64) << (start % 64),
                step if step == words => free &= (1 << (start % 64)) - 1,
                _ => {}
            }
            while free != 0 {
                let port = (word * 64) as u16 | free.trailing_zeros() as u16;
                if (first..=last).contains(&port) {
                    if right(port) {
                        used[word] |= 1 << (port % 64);
                        return Some(port);
                    }
                    looks -= 1;
                    if looks == 0 {
                        return None;
                    }
                }
                free &= free - 1;
            }
            word = if word == high { low } else { word + 1 };
        }
        None
    }

    /// Gives out this port; whether it was free.
    pub(super) fn reserve(&mut self, address: u32, protocol: u8, port: u16) -> bool {
        let word = &mut self.of(address, protocol)[usize::from(port / 64)];
        let free = *word >> (port % 64) & 1 == 0;
        *word |= 1 << (port % 64);
        free
    }

    /// Takes a port back.
    pub(super) fn give_back(&mut self, address: u32, protocol: u8, port: u16) {
        self.of(address, protocol)[usize::from(port / 64)] &= !(1 << (port % 64));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_of_a_range_are_given_out_once() {
        for (first, last) in [(1_024, 1_151), (1_000, 1_099), (1, 65_535), (7, 7)] {
            let mut ports = Ports::new(2, 9).expect("memory");
            let mut out = BTreeSet::new();
            for parity in 0..2 {
                while let Some(port) = ports.take(1, UDP, (first, last), parity, 1 << 16, |_| true) {
                    assert_eq!(port % 2, parity);
                    assert!(out.insert(port));
                }
            }
            assert_eq!(out, (first..=last).collect());
            assert!(
                ports.take(0, UDP, (first, last), first, 1 << 16, |_| true).is_some(),
                "another address has its own"
            );
            assert!(
                ports.take(1, TCP, (first, last), first, 1 << 16, |_| true).is_some(),
                "another protocol has its own"
            );
            ports.give_back(1, UDP, last);
            assert_eq!(ports.take(1, UDP, (first, last), last, 1 << 16, |_| true), Some(last));
        }
    }

    #[test]
    fn an_address_takes_as_many_bytes_as_is_said() {
        assert_eq!(size_of_val(&*Ports::new(2, 1).expect("memory").used), 2 * (24 << 10));
    }

    #[test]
    fn none_can_be_told_from_the_last() {
        let mut ports = Ports::new(1, 1).expect("memory");
        let out: Vec<_> = (0..100)
            .map(|_| ports.take(0, TCP, (1_024, 65_535), 2, 1 << 16, |_| true).expect("many are free"))
            .collect();
        let next = out.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 64).count();
        assert!(next < 5, "{next} of 100 next to the one before");
    }

    /// Where most ports were taken that were right, a packet had up to 65536 looked at.
    #[test]
    fn a_search_ends_after_so_many_looks() {
        let mut ports = Ports::new(1, 4).expect("memory");
        for most in [1, 64, 1_000] {
            let looked = std::cell::Cell::new(0);
            let never = |_| {
                looked.set(looked.get() + 1);
                false
            };
            assert_eq!(ports.take(0, UDP, (1_024, 65_535), 2, most, never), None);
            assert_eq!(looked.get(), most);
        }
        // Of every third port most are found by so few looks before the first search finds none.
        let mut out = 0;
        while ports.take(0, UDP, (1_024, 65_535), 2, 192, |port| port % 3 == 0).is_some() {
            out += 1;
        }
        let there = (1_024..=65_535u16).filter(|port| port % 6 == 0).count();
        assert!(out * 100 > there * 70, "{out} of {there}");
    }

    proptest! {
        #[test]
        fn only_what_is_right_is_given_out(modulus in 1u16..50, rest in 0u16..50, secret: u64) {
            let right = |port: u16| port % modulus == rest % modulus;
            let (mut ports, range) = (Ports::new(1, secret).expect("memory"), (2_000, 2_999));
            let mut count = 0;
            while let Some(port) = ports.take(0, ICMP, range, 0, 1 << 16, right).or_else(|| ports.take(0, ICMP, range, 1, 1 << 16, right)) {
                prop_assert!(right(port));
                count += 1;
            }
            prop_assert_eq!(count, (2_000..3_000).filter(|port| right(*port)).count());
        }
    }
}
