//! 5-tuples as words, which are compared and hashed several bytes at a time.

use zerocopy::FromZeros;

use super::{Key, Seed};

/// Packs ports (in host byte order) and protocol into one word.
#[inline(always)]
fn rest(source_port: u16, destination_port: u16, protocol: u8) -> u64 {
    u64::from(source_port) << 48 | u64::from(destination_port) << 32 | u64::from(protocol)
}

/// Exchanges both ports in the word.
#[inline(always)]
fn exchanged(rest: u64) -> u64 {
    rest << 16 & 0xffff << 48 | rest >> 16 & 0xffff << 32 | rest & 0xffff_ffff
}

/// A 5-tuple over IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, FromZeros)]
#[repr(C)]
pub struct Tuple4 {
    /// Source address in the upper half, destination address in the lower half.
    addresses: u64,
    /// Source port, destination port, 24 zero bits, protocol.
    rest: u64,
}

impl Tuple4 {
    /// Creates the tuple of these addresses, ports and protocol.
    #[inline(always)]
    #[must_use]
    pub fn new(source: [u8; 4], destination: [u8; 4], ports: (u16, u16), protocol: u8) -> Self {
        let addresses = u64::from(u32::from_be_bytes(source)) << 32 | u64::from(u32::from_be_bytes(destination));
        Self { addresses, rest: rest(ports.0, ports.1, protocol) }
    }

    /// Returns the tuple of packets in the other direction.
    #[inline(always)]
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { addresses: self.addresses.rotate_left(32), rest: exchanged(self.rest) }
    }

    /// Returns the source address.
    #[inline(always)]
    #[must_use]
    pub fn source(self) -> [u8; 4] {
        ((self.addresses >> 32) as u32).to_be_bytes()
    }

    /// Returns the destination address.
    #[inline(always)]
    #[must_use]
    pub fn destination(self) -> [u8; 4] {
        (self.addresses as u32).to_be_bytes()
    }

    /// Returns the source and the destination port.
    #[inline(always)]
    #[must_use]
    pub fn ports(self) -> (u16, u16) {
        ((self.rest >> 48) as u16, (self.rest >> 32) as u16)
    }

    /// Returns the IP protocol number.
    #[inline(always)]
    #[must_use]
    pub fn protocol(self) -> u8 {
        self.rest as u8
    }
}

impl Key for Tuple4 {
    #[inline(always)]
    fn hash(&self, seed: Seed) -> u64 {
        seed.hash(self.addresses, self.rest)
    }
}

/// A 5-tuple over IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, FromZeros)]
#[repr(C)]
pub struct Tuple6 {
    /// Source address: the upper 64 bits, then the lower ones.
    source: [u64; 2],
    /// Destination address: the upper 64 bits, then the lower ones.
    destination: [u64; 2],
    /// As in [`Tuple4`].
    rest: u64,
}

impl Tuple6 {
    /// Creates the tuple of these addresses, ports and protocol.
    #[inline(always)]
    #[must_use]
    pub fn new(source: [u8; 16], destination: [u8; 16], ports: (u16, u16), protocol: u8) -> Self {
        let words = |address: [u8; 16]| {
            let both = u128::from_be_bytes(address);
            [(both >> 64) as u64, both as u64]
        };
        Self { source: words(source), destination: words(destination), rest: rest(ports.0, ports.1, protocol) }
    }

    /// Returns the tuple of packets in the other direction.
    #[inline(always)]
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source, rest: exchanged(self.rest) }
    }

    /// Returns the source address.
    #[must_use]
    pub fn source(self) -> [u8; 16] {
        (u128::from(self.source[0]) << 64 | u128::from(self.source[1])).to_be_bytes()
    }

    /// Returns the destination address.
    #[must_use]
    pub fn destination(self) -> [u8; 16] {
        (u128::from(self.destination[0]) << 64 | u128::from(self.destination[1])).to_be_bytes()
    }

    /// Returns the source and the destination port.
    #[must_use]
    pub fn ports(self) -> (u16, u16) {
        ((self.rest >> 48) as u16, (self.rest >> 32) as u16)
    }

    /// Returns the IP protocol number.
    #[must_use]
    pub fn protocol(self) -> u8 {
        self.rest as u8
    }
}

impl Key for Tuple6 {
    #[inline(always)]
    fn hash(&self, seed: Seed) -> u64 {
        let [a, b] = self.source;
        let [c, d] = self.destination;
        seed.and(seed.and(seed.hash(a, b), seed.hash(c, d)), self.rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fields_read_back(source: [u8; 16], destination: [u8; 16], ports: (u16, u16), protocol: u8) {
            let (wide, (from, to)) = (Tuple6::new(source, destination, ports, protocol), ports);
            let fields = (wide.source(), wide.destination(), wide.ports(), wide.protocol());
            prop_assert_eq!(fields, (source, destination, ports, protocol));
            prop_assert_eq!(wide.reversed(), Tuple6::new(destination, source, (to, from), protocol));
            let short = |address: [u8; 16]| [address[0], address[1], address[2], address[3]];
            let (source, destination) = (short(source), short(destination));
            let narrow = Tuple4::new(source, destination, ports, protocol);
            let fields = (narrow.source(), narrow.destination(), narrow.ports(), narrow.protocol());
            prop_assert_eq!(fields, (source, destination, ports, protocol));
            prop_assert_eq!(narrow.reversed(), Tuple4::new(destination, source, (to, from), protocol));
        }

        /// A change in any part of a key changes the hash.
        #[test]
        fn each_part_reaches_the_hash(
            source: [u8; 16],
            ports: (u16, u16),
            byte in 0usize..16,
            bit in 0u32..8,
            secret: u64,
        ) {
            let seed = Seed::new(secret);
            let mut other = source;
            other[byte] ^= 1 << bit;
            let wide = |address, ports, protocol| Tuple6::new(address, [7; 16], ports, protocol).hash(seed);
            prop_assert_ne!(wide(source, ports, 6), wide(other, ports, 6));
            prop_assert_ne!(wide(source, ports, 6), wide(source, ports, 17));
            prop_assert_ne!(wide(source, ports, 6), wide(source, (ports.0 ^ 1, ports.1), 6));
            prop_assert_ne!(wide(source, ports, 6), wide(source, (ports.0, ports.1 ^ 1), 6));
        }
    }
}
