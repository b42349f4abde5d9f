//! Outside addresses and ports that are computed from the inside address (RFC 7422): who had a port needs no log.
//!
//! Inside addresses are counted from the prefix's first one, and so are outside addresses. As many neighbours inside as share
//! an outside address have its ports in turn, each a block of as many (RFC 7422 section 2, sequential allocation):
//!
//! ```text
//! sharing = inside addresses / outside addresses, at least 1
//! size    = (ports of an outside address - reserve) / sharing, rounded down
//! inside address i has the outside address i / sharing, and of its ports the block i % sharing
//! ```

use std::net::Ipv4Addr;

use forebay_graph::{Outcome, Table};
use forebay_packet::host_address::check_host_prefix;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Ports that are computed.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Deterministic {
    /// The inside addresses, of which each has a block of its own: a prefix such as `10.0.0.0/16`.
    inside: String,
    /// How many ports of each outside address, the last ones, are left out of the blocks and given out dynamically, to
    /// inside addresses outside the prefix; 0 by default, and what they send is dropped as `not_inside`.
    #[serde(default)]
    reserve: u16,
}

/// The least ports of a block for each worker, where there are several: one in e³² sessions or so finds none that comes back.
pub(super) const LEAST: usize = 32;

/// First and last port.
pub(super) type Range = (u16, u16);

/// The mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// The first inside address, and how many there are.
    inside: (u32, u32),
    /// The first outside address.
    outside: u32,
    /// The first port of the first block.
    first: u16,
    /// Ports of a block.
    size: u16,
    /// Inside addresses of an outside one.
    sharing: u32,
    /// What is given out dynamically.
    reserve: Option<Range>,
}

impl Blocks {
    /// Those of a pool (its first address, and how many) of which these ports are given out.
    pub(super) fn new(params: &Deterministic, pool: (u32, u32), ports: Range) -> Result<Self, String> {
        let (first, count) = prefix(&params.inside)?;
        let last = first + (count - 1) as u32;
        check_host_prefix(first.into(), last.into()).map_err(|why| format!("inside: '{}': {why}", params.inside))?;
        let (from, to) = (u64::from(first), u64::from(pool.0));
        if from < to + u64::from(pool.1) && to < from + count {
            return Err(format!(
                "inside: '{}' has addresses of the pool, {} to {}: allowed are those that are inside alone",
                params.inside,
                Ipv4Addr::from(pool.0),
                Ipv4Addr::from(pool.0 + (pool.1 - 1))
            ));
        }
        let (all, reserve) = (u64::from(ports.1 - ports.0) + 1, u64::from(params.reserve));
        // Both are powers of two.
        let sharing = (count / u64::from(pool.1)).max(1);
        let size = all.saturating_sub(reserve) / sharing;
        if size == 0 {
            let most = all.saturating_sub(reserve) * u64::from(pool.1);
            return Err(format!(
                "'{}' has {count} addresses, {sharing} for each of {} outside with {} ports: each would get 0 ports; allowed \
                 are up to {most} addresses, or a larger `pool`",
                params.inside,
                pool.1,
                all.saturating_sub(reserve)
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

    /// Ports of a block.
    pub(super) fn size(&self) -> usize {
        usize::from(self.size)
    }

    /// How many blocks there are.
    pub(super) fn len(&self) -> usize {
        self.inside.1 as usize
    }

    /// What is given out dynamically.
    pub(super) fn reserve(&self) -> Option<Range> {
        self.reserve
    }

    /// What an inside address has: the outside address's number in the pool, and its ports.
    #[inline]
    pub(super) fn of(&self, inside: u32) -> Option<(u32, Range)> {
        let number = inside.wrapping_sub(self.inside.0);
        (number < self.inside.1).then(|| {
            let block = (number % self.sharing) as u16;
            // A block ends where the ports do, or before.
            let first = self.first + block * self.size;
            (number / self.sharing, (first, first + (self.size - 1)))
        })
    }

    /// Who has an outside port.
    pub(super) fn owner(&self, outside: u32, port: u16) -> Option<u32> {
        let number = u64::from(outside.checked_sub(self.outside)?);
        let block = u32::from(port.checked_sub(self.first)? / self.size);
        let inside = number * u64::from(self.sharing) + u64::from(block);
        (block < self.sharing && inside < u64::from(self.inside.1)).then(|| self.inside.0 + inside as u32)
    }

    /// What an inside address has, as it is written.
    fn line(&self, inside: u32) -> Option<String> {
        let (number, (first, last)) = self.of(inside)?;
        let (inside, outside) = (Ipv4Addr::from(inside), Ipv4Addr::from(self.outside + number));
        Some(format!("inside={inside} outside={outside} ports={first}-{last}"))
    }

    /// The inside addresses, by number, of which a filter may speak, and whether it is of this one.
    fn meant(&self, filter: &str) -> Result<Meant, String> {
        let wrong = || {
            let short: String = filter.chars().take(80).collect();
            format!(
                "'{short}': allowed are an inside address or prefix, such as 10.0.1.2, an outside address or prefix, and an outside \
                 address with a port, such as 192.0.2.3:40000; `inside=` or `outside=` before it for that side alone"
            )
        };
        if filter == "all" {
            return Ok(Meant::All);
        }
        let (inside, outside, value) = match filter.split_once('=') {
            None => (true, true, filter),
            Some(("inside", value)) => (true, false, value),
            Some(("outside", value)) => (false, true, value),
            Some(_) => return Err(wrong()),
        };
        if let Ok(end) = value.parse::<std::net::SocketAddrV4>() {
            // All of an inside address' ports have the same block.
            if !outside {
                return Err(wrong());
            }
            return Ok(Meant::One(self.owner(u32::from(*end.ip()), end.port())));
        }
        let net = value.parse::<ipnet::Ipv4Net>().ok();
        let net = net.or_else(|| value.parse::<Ipv4Addr>().ok().map(ipnet::Ipv4Net::from)).ok_or_else(wrong)?;
        Ok(Meant::Net { net, inside, outside })
    }

    /// The numbers of the inside addresses that have an address of this network, where they have those from `base` on in turn,
    /// and so many have `each`.
    fn numbers(&self, net: ipnet::Ipv4Net, base: u32, each: u32) -> std::ops::Range<u32> {
        let number = |address: u64| {
            let number = address.saturating_sub(u64::from(base)) * u64::from(each);
            number.min(u64::from(self.inside.1)) as u32
        };
        number(u64::from(u32::from(net.network())))..number(u64::from(u32::from(net.broadcast())) + 1)
    }
}

/// What a filter speaks of.
enum Meant {
    All,
    One(Option<u32>),
    /// Addresses, and of which sides.
    Net {
        net: ipnet::Ipv4Net,
        inside: bool,
        outside: bool,
    },
}

/// A prefix: its first address and how many it has.
fn prefix(text: &str) -> Result<(u32, u64), String> {
    let net: ipnet::Ipv4Net = text
        .parse()
        .or_else(|_| text.parse::<Ipv4Addr>().map(ipnet::Ipv4Net::from))
        .map_err(|_| format!("'{text}' is no IPv4 prefix such as 10.0.0.0/16, nor an address"))?;
    if net.trunc() != net {
        return Err(format!("'{text}' has bits set behind its length: write {}", net.trunc()));
    }
    if net.prefix_len() < 4 {
        return Err(format!(
            "'{text}' has more addresses than any pool has ports for: allowed are prefixes from /4 on"
        ));
    }
    Ok((u32::from(net.network()), 1 << (32 - net.prefix_len())))
}

/// The blocks as a table: who has which ports, and who has a port.
pub(super) struct BlockTable(pub(super) Blocks);

const SYNTAX: &str = "blocks are computed from the configuration: nothing of them can be changed";

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
                    let short: String = line.chars().take(80).collect();
                    format!("'{short}' is no line of this table: allowed are those that it shows")
                })? + 1
            }
        };
        // Two ranges, the one that begins first in front.
        let (first, second) = match blocks.meant(filter)? {
            Meant::All => (0..blocks.inside.1, 0..0),
            Meant::One(owner) => {
                let number = owner.map(|inside| inside - blocks.inside.0);
                (number.map_or(0..0, |number| number..number + 1), 0..0)
            }
            Meant::Net { net, inside, outside } => {
                let inside = if inside { blocks.numbers(net, blocks.inside.0, 1) } else { 0..0 };
                let outside = if outside { blocks.numbers(net, blocks.outside, blocks.sharing) } else { 0..0 };
                if inside.start <= outside.start { (inside, outside) } else { (outside, inside) }
            }
        };
        // Nobody is told twice.
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

    /// The example of the documentation.
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
    fn what_is_too_small_is_told_with_what_each_would_get() {
        let told = |inside: &str, reserve, ports| {
            Blocks::new(&params(inside, reserve), (address("192.0.2.0"), 1), ports).expect_err("too small")
        };
        let small = told("10.0.0.0/15", 0, (1_024, 65_535));
        assert!(small.contains("131072 addresses") && small.contains("each would get 0 ports"), "{small}");
        assert!(small.contains("up to 64512 addresses"), "{small}");
        assert!(told("10.0.0.0/31", 1_000, (2_000, 2_999)).contains("with 0 ports"));
        assert!(told("10.0.0.1/31", 0, (1, 9)).contains("write 10.0.0.0/31"));
        assert!(told("::/64", 0, (1, 9)).contains("is no IPv4 prefix"));
        assert!(told("0.0.0.0/0", 0, (1, 9)).contains("allowed are prefixes from /4 on"));
    }

    proptest! {
        /// Each inside address has a block of the same size, no port is in two, and both directions agree.
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
                let left = (u64::from(ports.1 - ports.0) + 1).saturating_sub(u64::from(reserve));
                prop_assert!(left < sharing, "refused only where there is no port for each");
                return Ok(());
            };
            let insides = 1u32 << (32 - inside);
            let mut taken = std::collections::BTreeSet::new();
            for number in 0..insides {
                let inside = address("10.16.0.0") + number;
                let (outside, (from, to)) = blocks.of(inside).expect("of the prefix");
                prop_assert!(outside < count && from >= ports.0 && to <= ports.1);
                prop_assert!(blocks.reserve().is_none_or(|reserve| to < reserve.0));
                prop_assert_eq!(usize::from(to - from) + 1, blocks.size());
                prop_assert!(taken.insert((outside, from)), "blocks of one size that begin apart");
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
                    let (number, (from, to)) = blocks.of(inside).expect("of the prefix");
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
