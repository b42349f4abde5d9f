//! Outside addresses and ports that are computed from the inside address (RFC 7422), so that no log of ports is needed.
//!
//! Inside addresses are numbered from the first address of the prefix, outside addresses from the first address of the
//! pool. Consecutive inside addresses share an outside address. Each of them has a block of the outside address's
//! ports. All blocks have the same size (RFC 7422 section 2, sequential allocation):
//! ```text
//! sharing = inside addresses / outside addresses, at least 1
//! size    = (ports of an outside address - reserve) / sharing, rounded down
//! inside address i has the outside address i / sharing, and the block i % sharing of the ports of this address
//! ```

use std::net::Ipv4Addr;

use forebay_graph::{Outcome, Table, short};
use forebay_packet::host_address::check_host_prefix;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of the computation.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deterministic {
    /// Prefix of the inside addresses that have a block each, such as `10.0.0.0/16`.
    inside: String,
    /// Number of ports at the end of each outside address's range that are not part of a block. They are allocated
    /// dynamically to inside addresses that are not in the prefix `inside`. 0 by default: then packets from such
    /// addresses are dropped as `not_inside`.
    #[serde(default)]
    reserve: u16,
}

/// With n workers (n > 1), a block must have at least n times this number of ports. About one port in n leads replies
/// back to the session's worker, so about one session in e³² finds no such port in a block of this size.
pub(super) const LEAST: usize = 32;

/// First and last port, both included.
pub(super) type Range = (u16, u16);

/// The computed mapping. Addresses are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// The first inside address, and the number of inside addresses.
    inside: (u32, u32),
    /// The first outside address.
    outside: u32,
    /// The first port of the first block.
    first: u16,
    /// Number of ports in a block.
    size: u16,
    /// Number of inside addresses that share an outside address.
    sharing: u32,
    /// Ports that are allocated dynamically, to inside addresses without a block.
    reserve: Option<Range>,
}

impl Blocks {
    /// Creates the mapping for a pool (first address and number of addresses) and its range of ports.
    pub(super) fn new(params: &Deterministic, pool: (u32, u32), ports: Range) -> Result<Self, String> {
        let (first, count) = prefix(&params.inside)?;
        let last = first + (count - 1) as u32;
        check_host_prefix(first.into(), last.into()).map_err(|why| format!("inside: '{}': {why}", params.inside))?;
        let (from, to) = (u64::from(first), u64::from(pool.0));
        if from < to + u64::from(pool.1) && to < from + count {
            return Err(format!(
                "inside: '{}' overlaps the pool, {} to {}: allowed are prefixes that do not overlap",
                params.inside,
                Ipv4Addr::from(pool.0),
                Ipv4Addr::from(pool.0 + (pool.1 - 1))
            ));
        }
        let (all, reserve) = (u64::from(ports.1 - ports.0) + 1, u64::from(params.reserve));
        // Both numbers of addresses are powers of two, so the division has no remainder.
        let sharing = (count / u64::from(pool.1)).max(1);
        let size = all.saturating_sub(reserve) / sharing;
        if size == 0 {
            let most = all.saturating_sub(reserve) * u64::from(pool.1);
            return Err(format!(
                "'{}' has too many addresses ({count}) for the outside addresses ({}) and their ports ({} each), so \
                 each would get 0 ports: the largest number of addresses is {most}; for more, enlarge `pool`",
                params.inside,
                pool.1,
                all.saturating_sub(reserve),
            ));
        }
        Ok(Self {
            inside: (first, count as u32),
            outside: pool.0,
            first: ports.0,
            size: size as u16,
            sharing: sharing as u32,
            reserve: (params.reserve > 0).then(|| (ports.1 - params.reserve + 1, ports.1)),
        })
    }

    /// Returns the number of ports in a block.
    pub(super) fn size(&self) -> usize {
        usize::from(self.size)
    }

    /// Returns the number of blocks.
    pub(super) fn len(&self) -> usize {
        self.inside.1 as usize
    }

    /// Returns the ports that are allocated dynamically, if there are any.
    pub(super) fn reserve(&self) -> Option<Range> {
        self.reserve
    }

    /// Returns the block of an inside address: the outside address's number in the pool, and the range of ports.
    /// Returns `None` for an address outside the prefix.
    #[inline]
    pub(super) fn of(&self, inside: u32) -> Option<(u32, Range)> {
        let number = inside.wrapping_sub(self.inside.0);
        (number < self.inside.1).then(|| {
            let block = (number % self.sharing) as u16;
            // The last block ends at or before the last port, so this does not overflow.
            let first = self.first + block * self.size;
            (number / self.sharing, (first, first + (self.size - 1)))
        })
    }

    /// Returns the inside address whose block contains this port of an outside address, if there is one. Both addresses
    /// are in host byte order.
    pub(super) fn owner(&self, outside: u32, port: u16) -> Option<u32> {
        let number = u64::from(outside.checked_sub(self.outside)?);
        let block = u32::from(port.checked_sub(self.first)? / self.size);
        let inside = number * u64::from(self.sharing) + u64::from(block);
        (block < self.sharing && inside < u64::from(self.inside.1)).then(|| self.inside.0 + inside as u32)
    }

    /// Formats the block of an inside address as a line of the table.
    fn line(&self, inside: u32) -> Option<String> {
        let (number, (first, last)) = self.of(inside)?;
        let (inside, outside) = (Ipv4Addr::from(inside), Ipv4Addr::from(self.outside + number));
        Some(format!("inside={inside} outside={outside} ports={first}-{last}"))
    }

    /// Parses a filter of the table.
    fn parse_filter(&self, filter: &str) -> Result<Filter, String> {
        let wrong = || {
            let shown = short(filter);
            format!(
                "'{shown}' is not a filter of this table: allowed are an inside address or prefix, such as 10.0.1.2, \
                 an outside address or prefix, and an outside address with a port, such as 192.0.2.3:40000; `inside=` \
                 or `outside=` before an address selects one side"
            )
        };
        if filter == "all" {
            return Ok(Filter::All);
        }
        let (inside, outside, value) = match filter.split_once('=') {
            None => (true, true, filter),
            Some(("inside", value)) => (true, false, value),
            Some(("outside", value)) => (false, true, value),
            Some(_) => return Err(wrong()),
        };
        if let Ok(end) = value.parse::<std::net::SocketAddrV4>() {
            // All ports of an inside address have the same block, so an inside port is not a useful filter.
            if !outside {
                return Err(wrong());
            }
            return Ok(Filter::One(self.owner(u32::from(*end.ip()), end.port())));
        }
        let net = value.parse::<ipnet::Ipv4Net>().ok();
        let net = net.or_else(|| value.parse::<Ipv4Addr>().ok().map(ipnet::Ipv4Net::from)).ok_or_else(wrong)?;
        Ok(Filter::Net { net, inside, outside })
    }

    /// Returns which inside addresses have an address in the network `net` on one side, as a range of their numbers. 0
    /// is the number of the first inside address. On this side, `base` is the first address, and each address belongs
    /// to `each` consecutive inside addresses.
    fn numbers(&self, net: ipnet::Ipv4Net, base: u32, each: u32) -> std::ops::Range<u32> {
        let number = |address: u64| {
            let number = address.saturating_sub(u64::from(base)) * u64::from(each);
            number.min(u64::from(self.inside.1)) as u32
        };
        number(u64::from(u32::from(net.network())))..number(u64::from(u32::from(net.broadcast())) + 1)
    }
}

/// A parsed filter.
enum Filter {
    All,
    /// The inside address that has the given outside port, if there is one.
    One(Option<u32>),
    /// Addresses, and the sides to which they apply.
    Net {
        net: ipnet::Ipv4Net,
        inside: bool,
        outside: bool,
    },
}

/// Parses a prefix: returns its first address, in host byte order, and the number of addresses.
fn prefix(text: &str) -> Result<(u32, u64), String> {
    let net: ipnet::Ipv4Net = text
        .parse()
        .or_else(|_| text.parse::<Ipv4Addr>().map(ipnet::Ipv4Net::from))
        .map_err(|_| format!("'{text}' is neither an IPv4 prefix such as 10.0.0.0/16 nor an IPv4 address"))?;
    if net.trunc() != net {
        return Err(format!("'{text}' has bits set beyond its prefix length: write {}", net.trunc()));
    }
    if net.prefix_len() < 4 {
        return Err(format!("'{text}' has more addresses than the largest pool has ports: allowed are /4 to /32"));
    }
    Ok((u32::from(net.network()), 1 << (32 - net.prefix_len())))
}

/// The blocks as a table that shows the ports of each inside address, and finds the inside address of a port.
pub(super) struct BlockTable(pub(super) Blocks);

const SYNTAX: &str = "blocks are computed from the configuration and cannot be changed";

impl Table for BlockTable {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        (0..changes.len()).for_each(|at| outcome.note(at, Err(SYNTAX)));
        outcome
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        self.chosen("all", after, most)
    }

    fn chosen(&self, filter: &str, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let Self(blocks) = self;
        let from = match after {
            None => 0,
            Some(line) => {
                let inside = line.split(' ').next().and_then(|word| word.strip_prefix("inside="));
                let number = inside.and_then(|it| it.parse::<Ipv4Addr>().ok());
                let number = number.map(|it| u32::from(it).wrapping_sub(blocks.inside.0));
                number.filter(|it| *it < blocks.inside.1).ok_or_else(|| {
                    format!("'{}' is not a line of this table: allowed are lines as the table shows them", short(line))
                })? + 1
            }
        };
        // The numbers of the selected inside addresses, as two ranges. The range with the lower start comes first.
        let (first, second) = match blocks.parse_filter(filter)? {
            Filter::All => (0..blocks.inside.1, 0..0),
            Filter::One(owner) => {
                let number = owner.map(|inside| inside - blocks.inside.0);
                (number.map_or(0..0, |number| number..number + 1), 0..0)
            }
            Filter::Net { net, inside, outside } => {
                let inside = if inside { blocks.numbers(net, blocks.inside.0, 1) } else { 0..0 };
                let outside = if outside { blocks.numbers(net, blocks.outside, blocks.sharing) } else { 0..0 };
                if inside.start <= outside.start { (inside, outside) } else { (outside, inside) }
            }
        };
        // Remove the overlap from the second range, so that no line is listed twice.
        let second = second.start.max(first.end)..second.end;
        let rest = |range: std::ops::Range<u32>| range.start.max(from)..range.end;
        let numbers = rest(first).chain(rest(second));
        Ok(numbers.filter_map(|number| blocks.line(blocks.inside.0 + number)).take(most).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params(inside: &str, reserve: u16) -> Deterministic {
        Deterministic { inside: inside.to_owned(), reserve }
    }

    fn address(text: &str) -> u32 {
        text.parse::<Ipv4Addr>().expect("an address").into()
    }

    /// Checks the example of docs/sessions.md.
    #[test]
    fn it_can_be_computed_by_hand() {
        let blocks =
            Blocks::new(&params("10.0.0.0/16", 0), (address("192.0.2.0"), 256), (1_024, 65_535)).expect("room");
        assert_eq!((blocks.sharing, blocks.size), (256, 252));
        assert_eq!(blocks.of(address("10.0.1.2")), Some((1, (1_528, 1_779))));
        assert_eq!(blocks.owner(address("192.0.2.3"), 40_000), Some(address("10.0.3.154")));
        let table = BlockTable(blocks);
        let chosen = |filter| table.chosen(filter, None, 9).expect("a filter");
        assert_eq!(chosen("10.0.1.2"), ["inside=10.0.1.2 outside=192.0.2.1 ports=1528-1779"]);
        assert_eq!(chosen("192.0.2.3:40000"), ["inside=10.0.3.154 outside=192.0.2.3 ports=39832-40083"]);
        assert_eq!(chosen("192.0.2.3:1023"), [""; 0]);
        assert_eq!(chosen("192.0.2.3").len(), 9);
        assert_eq!(chosen("outside=192.0.2.3"), chosen("192.0.2.3"));
        assert_eq!(chosen("outside=192.0.2.3:40000"), chosen("192.0.2.3:40000"));
        assert_eq!(chosen("inside=10.0.1.2"), chosen("10.0.1.2"));
        assert_eq!((chosen("inside=192.0.2.3").len(), chosen("outside=10.0.1.2").len()), (0, 0));
        let every = |filter| table.chosen(filter, None, usize::MAX).expect("a filter").len();
        assert_eq!((every("0.0.0.0/0"), every("outside=192.0.2.2/31"), every("10.0.1.0/24")), (65_536, 512, 256));
        for wrong in ["inside=10.0.1.2:5", "outside=inside=10.0.1.2", "peer=10.0.1.2"] {
            assert!(table.chosen(wrong, None, 9).is_err(), "{wrong}");
        }
        assert_eq!(table.chosen("10.0.1.0/31", Some(&chosen("10.0.1.0")[0]), 9).expect("a line").len(), 1);
        assert!(table.chosen("x", None, 9).is_err() && table.chosen("all", Some("x"), 9).is_err());
        assert_eq!((table.len(), table.apply(&["remove 10.0.1.2"]).refused.len()), (65_536, 1));
    }

    #[test]
    fn a_block_without_ports_is_refused_with_the_number_of_ports_of_each() {
        let error = |inside: &str, reserve, ports| {
            Blocks::new(&params(inside, reserve), (address("192.0.2.0"), 1), ports).expect_err("too small")
        };
        let small = error("10.0.0.0/15", 0, (1_024, 65_535));
        assert!(small.contains("addresses (131072)") && small.contains("each would get 0 ports"), "{small}");
        assert!(small.contains("the largest number of addresses is 64512;"), "{small}");
        assert!(error("10.0.0.0/31", 1_000, (2_000, 2_999)).contains("their ports (0 each)"));
        assert!(error("10.0.0.1/31", 0, (1, 9)).contains("write 10.0.0.0/31"));
        assert!(error("::/64", 0, (1, 9)).contains("is neither an IPv4 prefix"));
        assert!(error("0.0.0.0/0", 0, (1, 9)).contains("allowed are /4 to /32"));
    }

    proptest! {
        /// Every inside address has a block of the same size, blocks do not overlap, and both directions agree.
        #[test]
        fn it_is_a_bijection(
            inside in 20u8..=32, pool in 22u8..=32, first in 1u16..=65_535, span: u16, reserve in 0u16..2_000,
            probes in prop::collection::vec((any::<u32>(), any::<u16>()), 50),
        ) {
            let ports = (first, first.saturating_add(span));
            let (net, count) = (format!("10.16.0.0/{inside}"), 1u32 << (32 - pool));
            let base = address("100.64.0.0");
            let Ok(blocks) = Blocks::new(&params(&net, reserve), (base, count), ports) else {
                let sharing = (1u64 << (32 - inside)).div_ceil(u64::from(count));
                let available = (u64::from(ports.1 - ports.0) + 1).saturating_sub(u64::from(reserve));
                prop_assert!(available < sharing, "refused only if there are fewer ports than inside addresses");
                return Ok(());
            };
            let insides = 1u32 << (32 - inside);
            let mut taken = std::collections::BTreeSet::new();
            for number in 0..insides {
                let inside = address("10.16.0.0") + number;
                let (outside, (from, to)) = blocks.of(inside).expect("an address of the prefix");
                prop_assert!(outside < count && from >= ports.0 && to <= ports.1);
                prop_assert!(blocks.reserve().is_none_or(|reserve| to < reserve.0));
                prop_assert_eq!(usize::from(to - from) + 1, blocks.size());
                prop_assert!(taken.insert((outside, from)), "every block has its own start");
                prop_assert_eq!(blocks.owner(base + outside, from), Some(inside));
                prop_assert_eq!(blocks.owner(base + outside, to), Some(inside));
            }
            let starts: Vec<_> = taken.into_iter().collect();
            for pair in starts.windows(2) {
                prop_assert!(pair[0].0 != pair[1].0 || usize::from(pair[1].1 - pair[0].1) >= blocks.size());
            }
            prop_assert_eq!(blocks.of(address("10.16.0.0") + insides), None);
            prop_assert_eq!(blocks.of(address("10.15.255.255")), None);
            for (outside, port) in probes {
                let outside = base + outside % (count + 1);
                if let Some(inside) = blocks.owner(outside, port) {
                    let (number, (from, to)) = blocks.of(inside).expect("an address of the prefix");
                    prop_assert!(base + number == outside && (from..=to).contains(&port));
                } else {
                    let has = |inside| blocks.of(inside).is_some_and(|(number, range)| {
                        base + number == outside && (range.0..=range.1).contains(&port)
                    });
                    prop_assert!(!(0..insides).any(|number| has(address("10.16.0.0") + number)));
                }
            }
        }
    }
}
