//! Outside ports in use: one bit for each port of each address and protocol.
//!
//! A search for a free port begins at a random position, so that an outside host cannot guess the next port from the
//! last one (RFC 6056 section 3.3.1). If possible, an outside port has the same parity as the inside port (RFC 4787
//! REQ-4), which older implementations of RTP and RTCP need.

use forebay_units::random::{GAMMA, mix};

use forebay_memory::{NoMemory, Zeroed};
use forebay_packet::wire::ipv4::{ICMP, TCP, UDP};
use forebay_simd::prefetch::prefetch_read;

/// Number of 64-bit words with the bits of all ports.
const WORDS: usize = 1 << 16 >> 6;
/// Every second bit, beginning with the lowest.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// The ports of a pool of addresses.
pub(super) struct Ports {
    /// For each address and protocol: the bits of the ports in use.
    used: Zeroed<u64>,
    /// The state of the random number generator.
    random: u64,
}

/// Returns the index of a protocol among those whose ports are translated.
fn protocol_index(protocol: u8) -> usize {
    match protocol {
        TCP => 0,
        UDP => 1,
        ICMP => 2,
        other => unreachable!("protocol {other} has no ports that are translated"),
    }
}

impl Ports {
    /// Creates the ports of this number of addresses, all free. `secret` seeds the random number generator.
    pub(super) fn new(addresses: u32, secret: u64) -> Result<Self, NoMemory> {
        Ok(Self { used: Zeroed::new(addresses as usize * 3 * WORDS)?, random: secret })
    }

    /// Returns the random number of a future draw; `draws` is 1 for the next draw. SplitMix64 (Steele, Lea, Flood
    /// 2014).
    fn drawn(&self, draws: u64) -> u64 {
        mix(self.random.wrapping_add(GAMMA.wrapping_mul(draws)))
    }

    /// Returns the port of a range at which a future search begins; `searches` is 1 for the next search.
    fn start(&self, searches: u64, (first, last): (u16, u16)) -> u16 {
        first + (self.drawn(searches) % (u64::from(last - first) + 1)) as u16
    }

    /// Returns the index of the word with this port's bit.
    fn word(address: u32, protocol: u8, port: u16) -> usize {
        (address as usize * 3 + protocol_index(protocol)) * WORDS + usize::from(port / 64)
    }

    /// Returns the words of an address and protocol.
    fn of(&mut self, address: u32, protocol: u8) -> &mut [u64] {
        let start = Self::word(address, protocol, 0);
        &mut self.used[start..start + WORDS]
    }

    /// Prefetches the word at which a future search begins; `searches` is 1 for the next search. It is the right word
    /// only if all searches before it succeed: the caller of [`take`](Self::take) repeats a search that fails.
    #[inline]
    pub(super) fn prefetch(&self, searches: u64, address: u32, protocol: u8, range: (u16, u16)) {
        self.prefetch_port(address, protocol, self.start(searches, range));
    }

    /// Prefetches the word with this port's bit.
    #[inline]
    pub(super) fn prefetch_port(&self, address: u32, protocol: u8, port: u16) {
        prefetch_read(&self.used, Self::word(address, protocol, port));
    }

    /// Allocates a port of a range, for the address with the number `address` in the pool. Only free ports that have
    /// the parity of `like`, and for which `right` returns true, are suitable. Returns `None` if no port is suitable,
    /// or after `right` has returned false for `looks` free ports.
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
        // The search visits its first word twice: at the end for the ports below its starting point.
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

    /// Marks a port as in use. Returns true if it was free.
    pub(super) fn reserve(&mut self, address: u32, protocol: u8, port: u16) -> bool {
        let word = &mut self.of(address, protocol)[usize::from(port / 64)];
        let free = *word >> (port % 64) & 1 == 0;
        *word |= 1 << (port % 64);
        free
    }

    /// Frees a port.
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
                "another address has its own ports"
            );
            assert!(
                ports.take(1, TCP, (first, last), first, 1 << 16, |_| true).is_some(),
                "another protocol has its own ports"
            );
            ports.give_back(1, UDP, last);
            assert_eq!(ports.take(1, UDP, (first, last), last, 1 << 16, |_| true), Some(last));
        }
    }

    #[test]
    fn an_address_takes_as_many_bytes_as_documented() {
        assert_eq!(size_of_val(&*Ports::new(2, 1).expect("memory").used), 2 * (24 << 10));
    }

    #[test]
    fn a_port_is_not_predictable_from_the_last_one() {
        let mut ports = Ports::new(1, 1).expect("memory");
        let out: Vec<_> = (0..100)
            .map(|_| ports.take(0, TCP, (1_024, 65_535), 2, 1 << 16, |_| true).expect("many are free"))
            .collect();
        let next = out.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 64).count();
        assert!(next < 5, "{next} of 100 ports are close to the previous one");
    }

    /// Regression: with most suitable ports in use, one packet could cause a search of up to 65536 ports.
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
        // A third of the ports is suitable. Most of those are found before the first search reaches its limit.
        let mut out = 0;
        while ports.take(0, UDP, (1_024, 65_535), 2, 192, |port| port % 3 == 0).is_some() {
            out += 1;
        }
        let suitable = (1_024..=65_535u16).filter(|port| port % 6 == 0).count();
        assert!(out * 100 > suitable * 70, "{out} of {suitable}");
    }

    proptest! {
        #[test]
        fn only_suitable_ports_are_allocated(modulus in 1u16..50, rest in 0u16..50, secret: u64) {
            let right = |port: u16| port % modulus == rest % modulus;
            let (mut ports, range) = (Ports::new(1, secret).expect("memory"), (2_000, 2_999));
            let mut count = 0;
            let mut take = || {
                let mut of_parity = |parity| ports.take(0, ICMP, range, parity, 1 << 16, right);
                of_parity(0).or_else(|| of_parity(1))
            };
            while let Some(port) = take() {
                prop_assert!(right(port));
                count += 1;
            }
            prop_assert_eq!(count, (2_000..3_000).filter(|port| right(*port)).count());
        }
    }
}
