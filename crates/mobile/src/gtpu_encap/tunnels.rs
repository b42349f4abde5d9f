//! Tunnels by user address or by number: read from a configuration, looked up for each packet.

use forebay_tables::parameters::{no_memory, number};
use forebay_tunnels::settings::{AnyEndpoint, family_of};
use forebay_units::Random;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use forebay_graph::files::{MOST_TABLE, read_text};
use forebay_graph::{Setup, SetupError};
use forebay_memory::{NoMemory, filled};
use forebay_simd::prefetch::prefetch_read;
use schemars::JsonSchema;
use serde::Deserialize;

/// The parameter named in errors.
const PATH: &str = "tunnels";
/// The number of errors of a file that are reported one by one. Further errors are only counted.
const MOST_FAULTS: usize = 20;
/// A table with more slots is assumed not to stay in the cache, and its slots are prefetched.
const NEAR: usize = 1 << 12;

/// The source of tunnels.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a file's name, or a list such as [\"10.60.0.1 0x1001 192.0.2.10\"]")]
pub enum TunnelSource {
    /// A file's name, relative to the configuration; one tunnel per line.
    File(String),
    /// The lines of such a file.
    List(Vec<String>),
}

/// A tunnel to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tunnel {
    /// The tunnel endpoint identifier that the peer has assigned. Never 0, which does not identify a tunnel (TS 29.281
    /// section 5.1); in a [`Table`], 0 marks an empty slot.
    pub(super) teid: u32,
    /// The peer's IPv4 address, or the index of its IPv6 address in [`Peers`].
    pub(super) peer: u32,
}

/// A hash table that is filled once, with open addressing and linear probing. It is at most half full. A slot takes a
/// quarter of a cache line.
pub(super) struct Table {
    /// The key and the tunnel of each slot.
    slots: Box<[(u64, Tunnel)]>,
    /// The right shift from a 64-bit product to the index of a slot.
    shift: u32,
    /// An odd random number. Users choose their destinations, so attackers who knew the multiplier could choose keys
    /// that collide.
    multiplier: u64,
}

impl Table {
    /// Creates a table for up to `entries` keys. Fails if there is no memory.
    fn new(entries: usize, seed: u64) -> Result<Self, NoMemory> {
        let slots = (entries * 2).next_power_of_two().max(2);
        let multiplier = Random::new(seed).bits() | 1;
        let shift = 64 - slots.trailing_zeros();
        Ok(Self { slots: filled((0, Tunnel::default()), slots)?, shift, multiplier })
    }

    /// Returns the slot at which the search for a key starts: the upper bits of a product. With a random odd factor,
    /// this is a universal hash (Dietzfelbinger and others 1997).
    #[inline(always)]
    fn start(&self, key: u64) -> usize {
        (key.wrapping_mul(self.multiplier) >> self.shift) as usize
    }

    /// Adds a key. At most `entries` keys may be added: a full table would make searches endless. Returns false if the
    /// key is already present; its tunnel then stays.
    fn insert(&mut self, key: u64, tunnel: Tunnel) -> bool {
        let mut at = self.start(key);
        while self.slots[at].1.teid != 0 {
            if self.slots[at].0 == key {
                return false;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = (key, tunnel);
        true
    }

    /// Returns the tunnel of a key; `None` if the table does not contain the key.
    #[inline(always)]
    pub(super) fn get(&self, key: u64) -> Option<Tunnel> {
        let mut at = self.start(key);
        // The loop ends because half of the slots are empty.
        loop {
            let (found, tunnel) = *self.slots.get(at & (self.slots.len() - 1))?;
            if tunnel.teid == 0 {
                return None;
            }
            if found == key {
                return Some(tunnel);
            }
            at += 1;
        }
    }

    /// Returns true if the table does not stay in the cache, so that callers should [prefetch](Self::prefetch) its
    /// slots.
    pub(super) fn is_large(&self) -> bool {
        self.slots.len() > NEAR
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, key: u64) {
        prefetch_read(&self.slots, self.start(key));
    }
}

/// Tunnels by the user's address or by a number.
pub(super) struct Tunnels {
    /// The tunnels by IPv4 address, or by number.
    pub(super) ipv4: Table,
    /// The tunnels by IPv6 prefix: its 64 bits identify the user (TS 23.501 section 5.8.2.2.3). Empty if tunnels are
    /// found by number.
    pub(super) ipv6: Table,
    /// IPv6 peers without duplicates.
    pub(super) peers: Peers,
}

/// IPv6 peers by index.
#[derive(Default)]
pub(super) struct Peers {
    /// The addresses, without duplicates. A [`Tunnel`] refers to an address by its index.
    addresses: Vec<[u8; 16]>,
    /// The index of each address in `addresses`.
    known: HashMap<[u8; 16], u32>,
}

impl Peers {
    /// Returns the value of [`Tunnel::peer`] for a peer: an IPv4 address as a number in host byte order, or the index
    /// of an IPv6 address, which is added if it is new.
    pub(super) fn name(&mut self, peer: IpAddr) -> u32 {
        match peer {
            IpAddr::V4(peer) => peer.to_bits(),
            IpAddr::V6(peer) => *self.known.entry(peer.octets()).or_insert_with(|| {
                self.addresses.push(peer.octets());
                self.addresses.len() as u32 - 1
            }),
        }
    }

    /// Returns the address of an IPv6 peer. `name` is the value that [`name`](Self::name) returned for the peer.
    #[inline]
    pub(super) fn address(&self, name: u32) -> Option<&[u8; 16]> {
        self.addresses.get(name as usize)
    }
}

/// The first word of a line, as a key of the table of its family. A number is a key of the table `ipv4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Ipv4(u64),
    Ipv6(u64),
}

impl Key {
    /// Returns the key for a message. With `numbered`, it is a number.
    fn shown(self, numbered: bool) -> String {
        match self {
            Self::Ipv4(number) if numbered => format!("number {number}"),
            Self::Ipv4(address) => format!("user {}", Ipv4Addr::from_bits(address as u32)),
            Self::Ipv6(prefix) => format!("user {}/64", Ipv6Addr::from_bits(u128::from(prefix) << 64)),
        }
    }
}

impl Tunnels {
    /// Reads the tunnels. `local` is the outer source address: all peers must have its address family. Packets find a
    /// tunnel by the user's address or, if `numbered`, by number. `peer` is the peer for lines that name no peer. An
    /// error lists the first faults.
    pub(super) fn load(
        source: &TunnelSource,
        numbered: bool,
        local: AnyEndpoint,
        peer: Option<AnyEndpoint>,
        setup: &Setup<'_>,
    ) -> Result<Self, SetupError> {
        let text;
        let lines: Vec<(String, &str)> = match source {
            TunnelSource::List(list) => {
                list.iter().enumerate().map(|(index, line)| (format!("{PATH}[{index}]"), line.as_str())).collect()
            }
            TunnelSource::File(name) => {
                let bytes = read_text(&setup.path(PATH, name)?, MOST_TABLE)
                    .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
                text = bytes.map_err(|error| SetupError::at(PATH, format!("cannot read '{name}': {error}")))?;
                text.lines().enumerate().map(|(index, line)| (format!("{name}:{}", index + 1), line)).collect()
            }
        };
        let of_file = matches!(source, TunnelSource::File(_));
        let (mut faults, mut further) = (SetupError::default(), 0);
        let mut entries = Vec::with_capacity(lines.len());
        for (location, line) in &lines {
            match entry(line, numbered, local, peer) {
                Ok(entry) => entries.extend(entry.map(|entry| (location, entry))),
                Err(_) if faults.faults.len() == MOST_FAULTS => further += 1,
                Err(message) => faults.and(fault(of_file, location, &message)),
            }
        }
        let ipv4 = entries.iter().filter(|(_, (key, ..))| matches!(key, Key::Ipv4(_))).count();
        let table = |entries| {
            let lack = no_memory(PATH, format!("the table of {entries} tunnels"));
            Table::new(entries, setup.secret()).map_err(lack)
        };
        let mut tunnels = Self { ipv4: table(ipv4)?, ipv6: table(entries.len() - ipv4)?, peers: Peers::default() };
        for (at, (location, (key, teid, peer))) in entries.iter().enumerate() {
            let tunnel = Tunnel { teid: *teid, peer: tunnels.peers.name(*peer) };
            let new = match *key {
                Key::Ipv4(key) => tunnels.ipv4.insert(key, tunnel),
                Key::Ipv6(key) => tunnels.ipv6.insert(key, tunnel),
            };
            match new {
                true => {}
                false if faults.faults.len() == MOST_FAULTS => further += 1,
                false => {
                    let first = entries[..at].iter().find(|(_, (other, ..))| other == key);
                    let first = first.map_or("an earlier line", |(location, _)| location.as_str());
                    let message = format!("{first} has the same {}: remove one of the two lines", key.shown(numbered));
                    faults.and(fault(of_file, location, &message));
                }
            }
        }
        if further > 0 {
            faults.and(SetupError::at(PATH, format!("{further} further errors")));
        }
        if faults.faults.is_empty() { Ok(tunnels) } else { Err(faults) }
    }
}

/// Returns an error of a line. The line of a file is part of the message, the element of a list is part of the path.
fn fault(of_file: bool, location: &str, message: &str) -> SetupError {
    if of_file { SetupError::at(PATH, format!("{location}: {message}")) } else { SetupError::at(location, message) }
}

/// Parses a line of user or number, tunnel and peer. `None` if the line is empty or a comment.
fn entry(
    line: &str,
    numbered: bool,
    local: AnyEndpoint,
    peer: Option<AnyEndpoint>,
) -> Result<Option<(Key, u32, IpAddr)>, String> {
    let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    let key = if numbered {
        let index = number(first).and_then(|index| u32::try_from(index).ok());
        Key::Ipv4(index.ok_or_else(|| format!("'{first}' is not a number: allowed are 0 to 4294967295"))?.into())
    } else {
        user(first)?
    };
    let teid = words.next().unwrap_or_default();
    let teid = number(teid).and_then(|teid| u32::try_from(teid).ok()).filter(|teid| *teid > 0).ok_or_else(|| {
        format!("'{teid}' is not a tunnel endpoint identifier: allowed are 1 to 4294967295, or 0x1 to 0xffffffff")
    })?;
    let peer = match (words.next(), peer) {
        (Some(text), _) => AnyEndpoint::try_from(text.to_owned())?,
        (None, Some(peer)) => peer,
        (None, None) => return Err("the peer is missing: write its address after the tunnel, or set `peer`".to_owned()),
    };
    check_kind(local, peer)?;
    match words.next() {
        Some(more) => {
            Err(format!("unexpected '{more}': allowed are at most three words: user or number, tunnel, peer"))
        }
        None => Ok(Some((key, teid, peer.0))),
    }
}

/// Checks that both ends of a tunnel have the same address family.
pub(super) fn check_kind(local: AnyEndpoint, peer: AnyEndpoint) -> Result<(), String> {
    let (own, other) = (family_of(local.0), family_of(peer.0));
    if own == other {
        return Ok(());
    }
    Err(format!("'{}' is an {other} address, but `source` is an {own} address: allowed are {own} peers", peer.0))
}

/// Parses a user's address: an IPv4 address, or an IPv6 /64.
fn user(text: &str) -> Result<Key, String> {
    let wrong =
        || format!("'{text}' is not a user: allowed are an IPv4 address or an IPv6 /64, such as 2001:db8:0:1::/64");
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    match (address.parse().map_err(|_| wrong())?, length) {
        (IpAddr::V4(address), None | Some("32")) => Ok(Key::Ipv4(address.to_bits().into())),
        (IpAddr::V6(address), Some("64")) if address.to_bits() as u64 == 0 => {
            Ok(Key::Ipv6((address.to_bits() >> 64) as u64))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(
            entries in prop::collection::vec((0u64..50, 1u32.., any::<u32>()), 0..200), far: u64, seed: u64,
        ) {
            let mut table = Table::new(entries.len(), seed).expect("memory");
            let mut map = HashMap::new();
            for (key, teid, peer) in entries {
                let tunnel = Tunnel { teid, peer };
                prop_assert_eq!(table.insert(key, tunnel), !map.contains_key(&key));
                map.entry(key).or_insert(tunnel);
            }
            for key in (0..60).chain([far]) {
                prop_assert_eq!(table.get(key), map.get(&key).copied());
            }
        }
    }

    #[test]
    fn an_empty_table_has_no_keys() {
        assert_eq!(Table::new(0, 7).expect("memory").get(0), None);
    }

    #[test]
    fn lines_are_users_or_numbers_with_tunnels_and_peers() {
        let end = |text: &str| AnyEndpoint::try_from(text.to_owned()).expect("an address");
        let (local, peer) = (end("192.0.2.1"), Some(end("192.0.2.9")));
        let read = |line: &str, numbered: bool, peer: Option<AnyEndpoint>| entry(line, numbered, local, peer);
        let (ten, nine) = (end("192.0.2.10").0, end("192.0.2.9").0);
        assert_eq!(read("10.0.0.1 0x10 192.0.2.10", false, peer), Ok(Some((Key::Ipv4(0x0a00_0001), 16, ten))));
        assert_eq!(read(" 10.0.0.1/32\t7 # note", false, peer), Ok(Some((Key::Ipv4(0x0a00_0001), 7, nine))));
        assert_eq!(read("2001:db8:0:1::/64 7", false, peer), Ok(Some((Key::Ipv6(0x2001_0db8_0000_0001), 7, nine))));
        assert_eq!(read("3 7", true, peer), Ok(Some((Key::Ipv4(3), 7, nine))));
        assert_eq!(read("# nothing", false, None), Ok(None));
        for (line, part) in [
            ("10.0.0.0/24 7", "'10.0.0.0/24' is not a user"),
            ("2001:db8::1 7", "'2001:db8::1' is not a user"),
            ("2001:db8::1/64 7", "'2001:db8::1/64' is not a user"),
            ("10.0.0.1 0", "'0' is not a tunnel"),
            ("10.0.0.1", "'' is not a tunnel"),
            ("10.0.0.1 0x100000000", "'0x100000000' is not a tunnel"),
            ("10.0.0.1 7 224.0.0.1", "224.0.0.1 is a multicast address"),
            ("10.0.0.1 7 192.0.2.1 8", "unexpected '8'"),
            ("10.0.0.1 7 2001:db8::2", "'2001:db8::2' is an IPv6 address, but `source` is an IPv4 address"),
        ] {
            let error = read(line, false, peer).expect_err(line);
            assert!(error.contains(part) && error.contains("allowed are"), "{line}: {error}");
        }
        assert!(read("10.0.0.1 7", false, None).expect_err("no peer").contains("the peer is missing"));
        assert!(read("10.0.0.1 7", true, peer).expect_err("an address").contains("'10.0.0.1' is not a number"));
        let local = end("2001:db8::1");
        assert_eq!(entry("3 7 2001:db8::2", true, local, None), Ok(Some((Key::Ipv4(3), 7, end("2001:db8::2").0))));
        assert!(entry("3 7", true, local, peer).expect_err("a mixture").contains("'192.0.2.9' is an IPv4 address"));
    }

    #[test]
    fn keys_that_collide_with_one_seed_do_not_with_another() {
        let with_seed = |seed| Table::new(4_096, seed).expect("memory");
        // With the first seed, the searches for all these keys start at one slot.
        let (known, slot) = (with_seed(1), with_seed(1).start(77));
        let keys: Vec<u64> = (0..).filter(|key| known.start(*key) == slot).take(200).collect();
        let distinct_slots =
            |seed| keys.iter().map(|key| with_seed(seed).start(*key)).collect::<std::collections::HashSet<_>>().len();
        assert_eq!(distinct_slots(1), 1);
        assert!(
            (2..10).all(|seed| distinct_slots(seed) > 100),
            "{:?}",
            (2..10).map(distinct_slots).collect::<Vec<_>>()
        );
    }

    #[test]
    fn peers_of_ipv6_are_kept_once() {
        let mut peers = Peers::default();
        let names = ["2001:db8::1", "2001:db8::2", "2001:db8::1"].map(|text| peers.name(text.parse().expect("one")));
        assert_eq!(names, [0, 1, 0]);
        assert_eq!(peers.address(1).map(|address| address[15]), Some(2));
        assert_eq!(peers.address(2), None);
        assert_eq!(peers.name("192.0.2.1".parse().expect("one")), 0xc000_0201);
    }
}
