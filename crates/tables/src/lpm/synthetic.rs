//! Generates route tables that resemble the Internet's, for tests, benchmarks and generated use cases.
//!
//! The tables are not copies of real ones. The share of each prefix length follows public reports of the global tables
//! (IPv4: about 62 % are /24, then /22, /23 and /20 to /21; IPv6: nearly half are /48, an eighth /32). A few prefixes
//! are longer than the global table allows, like the routes of a network to its own hosts. About half of the prefixes
//! lie inside a shorter prefix, as more-specific announcements do. The others are spread evenly over the unicast space.

pub use forebay_units::Random;
use std::collections::HashSet;

use super::prefix::{Address, Prefix};

/// The number of IPv4 prefixes of each length per 100 000.
const IPV4_LENGTHS: &[(u32, u32)] = &[
    (8, 2),
    (9, 2),
    (10, 4),
    (11, 10),
    (12, 30),
    (13, 60),
    (14, 120),
    (15, 210),
    (16, 1_350),
    (17, 830),
    (18, 1_400),
    (19, 2_550),
    (20, 4_500),
    (21, 5_200),
    (22, 11_000),
    (23, 9_900),
    (24, 62_332),
    (26, 100),
    (28, 100),
    (30, 100),
    (32, 200),
];

/// The number of IPv6 prefixes of each length per 100 000.
const IPV6_LENGTHS: &[(u32, u32)] = &[
    (20, 10),
    (22, 20),
    (24, 40),
    (26, 30),
    (28, 200),
    (29, 3_000),
    (30, 500),
    (31, 250),
    (32, 12_500),
    (33, 1_500),
    (34, 1_300),
    (35, 800),
    (36, 4_500),
    (38, 900),
    (39, 500),
    (40, 8_500),
    (42, 1_800),
    (44, 9_000),
    (45, 1_000),
    (46, 2_500),
    (47, 1_800),
    (48, 47_350),
    (56, 700),
    (64, 900),
    (128, 400),
];

/// The properties of an address family that the synthetic tables need.
pub trait Family: Address {
    /// Prefix lengths and their shares of 100 000.
    const LENGTHS: &'static [(u32, u32)];
    /// Draws any address, evenly spread.
    fn any(random: &mut Random) -> Self;
    /// Draws an address in the space that is assigned to networks.
    fn unicast(random: &mut Random) -> Self;
    /// Returns `self` with the bits after the first `length` taken from `other`.
    fn continued(self, length: u32, other: Self) -> Self;
}

impl Family for u32 {
    const LENGTHS: &'static [(u32, u32)] = IPV4_LENGTHS;

    fn any(random: &mut Random) -> Self {
        random.bits() as u32
    }

    fn unicast(random: &mut Random) -> Self {
        // 1.0.0.0 to 223.255.255.255 without 10/8 and 127/8 (RFC 1918 section 3, RFC 1122 section 3.2.1.3).
        loop {
            let octet = 1 + random.index(223) as u32;
            if octet != 10 && octet != 127 {
                return octet << 24 | Self::any(random) >> 8;
            }
        }
    }

    fn continued(self, length: u32, other: Self) -> Self {
        self.masked(length) | (other & !other.masked(length))
    }
}

impl Family for u128 {
    const LENGTHS: &'static [(u32, u32)] = IPV6_LENGTHS;

    fn any(random: &mut Random) -> Self {
        u128::from(random.bits()) << 64 | u128::from(random.bits())
    }

    fn unicast(random: &mut Random) -> Self {
        // The registries' /12 blocks, where most of the global table lies (RFC 7249 section 2.2 points to the list).
        const BLOCKS: [u128; 6] = [0x200, 0x240, 0x260, 0x280, 0x2a0, 0x2c0];
        BLOCKS[random.index(BLOCKS.len())] << 116 | Self::any(random) >> 12
    }

    fn continued(self, length: u32, other: Self) -> Self {
        self.masked(length) | (other & !other.masked(length))
    }
}

/// Generates `count` different prefixes with next hops spread evenly below `next_hops` (at least 1), in random order.
///
/// The same arguments give the same routes. This mix has about ten million IPv4 prefixes at most: when all prefixes of
/// a short length are used, prefixes of other lengths are drawn instead.
pub fn routes<A: Family>(count: usize, next_hops: u32, seed: u64) -> Vec<(Prefix<A>, u32)> {
    let mut random = Random::new(seed);
    let mut seen = HashSet::with_capacity(count);
    let mut routes: Vec<(Prefix<A>, u32)> = Vec::with_capacity(count);
    while routes.len() < count {
        let mut share = random.index(100_000) as u32;
        let length = A::LENGTHS.iter().find_map(|&(length, part)| {
            let found = share < part;
            share = share.saturating_sub(part);
            found.then_some(length)
        });
        let length = length.unwrap_or(A::BITS);
        let mut address = A::unicast(&mut random);
        // Draw one earlier prefix. If it is shorter than the new prefix, which is so about half of the time, put the
        // new prefix inside it.
        if let Some(&(parent, _)) = routes.get(random.index(routes.len()))
            && parent.length() < length
        {
            address = parent.first().continued(parent.length(), address);
        }
        let prefix = Prefix::truncated(address, length);
        if seen.insert(prefix) {
            routes.push((prefix, random.index(next_hops.max(1) as usize) as u32));
        }
    }
    routes
}

/// Draws `count` addresses. Each is in a route that is drawn from `routes`, all with the same probability. Returns no
/// addresses if there are no routes.
pub fn hits<A: Family>(routes: &[(Prefix<A>, u32)], count: usize, seed: u64) -> Vec<A> {
    let mut random = Random::new(seed);
    let count = if routes.is_empty() { 0 } else { count };
    (0..count)
        .map(|_| {
            let (prefix, _) = routes[random.index(routes.len())];
            prefix.first().continued(prefix.length(), A::any(&mut random))
        })
        .collect()
}

/// Draws `count` addresses spread evenly over the whole address space. With few routes, most of them match none.
pub fn addresses<A: Family>(count: usize, seed: u64) -> Vec<A> {
    let mut random = Random::new(seed);
    (0..count).map(|_| A::any(&mut random)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for lengths in [IPV4_LENGTHS, IPV6_LENGTHS] {
            assert_eq!(lengths.iter().map(|&(_, share)| share).sum::<u32>(), 100_000);
        }
    }

    #[test]
    fn same_seed_same_routes() {
        let first = routes::<u32>(1_000, 16, 7);
        assert_eq!(first, routes(1_000, 16, 7));
        assert_ne!(first, routes(1_000, 16, 8));
        assert!(first.iter().all(|&(_, next_hop)| next_hop < 16));
    }

    #[test]
    fn hits_hit() {
        let routes = routes::<u128>(500, 4, 1);
        for address in hits(&routes, 2_000, 2) {
            assert!(routes.iter().any(|(prefix, _)| prefix.contains(address)));
        }
        assert!(hits::<u32>(&[], 5, 1).is_empty());
    }

    #[test]
    fn most_are_slash_24() {
        let routes = routes::<u32>(20_000, 1, 3);
        let share = routes.iter().filter(|(prefix, _)| prefix.length() == 24).count() as f64 / 20_000.0;
        assert!((0.55..0.66).contains(&share), "{share}");
    }
}
