//! The key of a packet's account in a meter or a shaper.

use forebay_graph::{Setup, SetupError};
use forebay_packet::{
    Network, Packet, Word,
    wire::ethernet::{EtherType, Ethernet, VlanTag},
};
use forebay_tables::keyed::TableKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Ipv4View, dscp};

/// The property that packets of one account have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyBy {
    /// No property: all packets have one account.
    #[default]
    None,
    /// The source address: IP, or MAC if the frame is not IP.
    Source,
    /// The destination address: IP, or MAC if the frame is not IP.
    Destination,
    /// The session: addresses, protocol and ports, the same for both directions; fragments have no ports. For a packet
    /// in a GTP-U tunnel, the session of the inner packet.
    Session,
    /// The identifier of the outer VLAN tag. Frames without a tag have one account.
    Vlan,
    /// The differentiated services code point. Frames that are not IP have one account.
    Dscp,
    /// A metadata word, such as `{ word: teid }`, that a function uses. If no earlier function writes it, it is 0.
    Word(String),
}

/// Computes the keys of packets.
#[derive(Clone, Copy, Debug)]
pub struct Selector {
    field: KeyField,
    /// The seed of the hash of longer keys. The hash has 64 bits, so two different keys collide with a probability of
    /// 2⁻⁶⁴.
    seed: [u64; 2],
}

#[derive(Clone, Copy, Debug)]
enum KeyField {
    Source,
    Destination,
    Session,
    Vlan,
    Dscp,
    Word(Word),
}

impl Selector {
    /// Creates the selector of a parameter; `None` if there is one account for all packets.
    ///
    /// # Errors
    /// Returns an error if the pipeline has no room for another metadata word.
    pub fn new(by: &KeyBy, setup: &mut Setup<'_>) -> Result<Option<Self>, SetupError> {
        let field = match by {
            KeyBy::None => return Ok(None),
            KeyBy::Source => KeyField::Source,
            KeyBy::Destination => KeyField::Destination,
            KeyBy::Session => KeyField::Session,
            KeyBy::Vlan => KeyField::Vlan,
            KeyBy::Dscp => KeyField::Dscp,
            KeyBy::Word(name) => KeyField::Word(setup.named_word("key.word", name)?),
        };
        let seed = setup.secret();
        Ok(Some(Self { field, seed: [seed, seed.rotate_left(29).wrapping_mul(0x9e37_79b9_7f4a_7c15)] }))
    }

    /// For each packet, calls `measure`, and then `make` with the packet's key and the result of `measure`. Writes the
    /// results of `make` to `made`, in the order of the packets. `measure` gets the IPv4 header if the key needs it, so
    /// that the header is read once. The type of key is chosen once for all packets, and each type has its own loop.
    #[inline(always)]
    pub fn keys<L, K>(
        &self,
        batch: &mut [Packet],
        made: &mut [K],
        measure: impl Fn(&mut Packet, Option<Ipv4View>) -> L,
        make: impl Fn(TableKey, L) -> K,
    ) {
        let of = (batch, made);
        match self.field {
            KeyField::Source => each(of, Ipv4View::of, measure, |packet, ipv4| self.address(packet, ipv4, true), make),
            KeyField::Destination => {
                each(of, Ipv4View::of, measure, |packet, ipv4| self.address(packet, ipv4, false), make)
            }
            KeyField::Session => each(of, |_| None, measure, |packet, _| TableKey::new(self.session(packet)), make),
            KeyField::Vlan => each(of, |_| None, measure, |packet, _| TableKey::new(vlan(packet)), make),
            KeyField::Dscp => each(of, |_| None, measure, |packet, _| code_point(packet), make),
            KeyField::Word(word) => {
                each(of, |_| None, measure, |packet, _| TableKey::new(packet.word(word).into()), make)
            }
        }
    }

    /// Combines two words to one: the xor of both halves of their product (as in wyhash and foldhash). Because the seed
    /// is secret, senders cannot choose a factor of 0.
    #[inline]
    fn fold(&self, a: u64, b: u64) -> u64 {
        let product = u128::from(a ^ self.seed[0]) * u128::from(b ^ self.seed[1]);
        (product >> 64) as u64 ^ product as u64
    }

    /// Returns the key of the source or destination address. `ipv4` is the packet's IPv4 header, if it has one.
    #[inline]
    fn address(&self, packet: &mut Packet, ipv4: Option<Ipv4View>, source: bool) -> TableKey {
        if let Some(ipv4) = ipv4 {
            let address = if source { ipv4.source } else { ipv4.destination };
            // Bit 32 marks an IPv4 address, and bit 56 a MAC address.
            return TableKey::new(1 << 32 | u64::from(address));
        }
        TableKey::new(self.long_address(packet, source))
    }

    /// Returns the key of an IPv6 or MAC address.
    #[inline(never)]
    fn long_address(&self, packet: &mut Packet, source: bool) -> u64 {
        if let Some(header) = packet.ipv6() {
            let address = u128::from_be_bytes(if source { header.source } else { header.destination });
            return self.fold((address >> 64) as u64, address as u64);
        }
        let at = if source { 6 } else { 0 };
        let address = packet.data().get(at..at + 6).unwrap_or_default();
        address.iter().fold(1 << 8, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Returns the key of the session, which is the same for both directions.
    #[inline]
    fn session(&self, packet: &mut Packet) -> u64 {
        let Some((header, source, destination)) = packet.plain_session() else { return self.any_session(packet) };
        let side = |address: [u8; 4], port: u16| u64::from(u32::from_be_bytes(address)) << 16 | u64::from(port);
        let sides = (side(header.source, source), side(header.destination, destination));
        self.both(sides.0, sides.1, header.protocol.into())
    }

    /// Returns the key of the session like [`session`](Self::session), for any packet. Addresses longer than 32 bits
    /// are hashed first.
    #[inline(never)]
    fn any_session(&self, packet: &mut Packet) -> u64 {
        let key = packet.session_key();
        // The families need different keys, because the address bytes alone may be equal: 10.1.0.7 and a01:7:: have the
        // same first bytes.
        let v4 = key.network == Network::Ipv4;
        let side = |address: [u8; 16], port: u16| {
            let address = u128::from_be_bytes(address);
            if v4 {
                return (address >> 96 << 16) as u64 | u64::from(port);
            }
            self.fold((address >> 64) as u64, address as u64).wrapping_add(u64::from(port).rotate_right(16))
        };
        // `family` distinguishes Ethernet addresses from IPv6 addresses.
        let family = if key.network == Network::Other { 1 << 8 } else { 0 };
        let sides = (side(key.source, key.source_port), side(key.destination, key.destination_port));
        self.both(sides.0, sides.1, family | u64::from(key.protocol))
    }

    /// Combines both sides. The result is the same for both directions.
    #[inline]
    fn both(&self, a: u64, b: u64, protocol: u64) -> u64 {
        self.fold(a.min(b), a.max(b) ^ protocol.rotate_right(8))
    }
}

/// Writes the result of `make` for each packet. `view` reads the IPv4 header if the key needs it.
#[inline(always)]
fn each<L, K>(
    (batch, made): (&mut [Packet], &mut [K]),
    view: impl Fn(&mut Packet) -> Option<Ipv4View>,
    measure: impl Fn(&mut Packet, Option<Ipv4View>) -> L,
    key: impl Fn(&mut Packet, Option<Ipv4View>) -> TableKey,
    make: impl Fn(TableKey, L) -> K,
) {
    for (packet, made) in batch.iter_mut().zip(made) {
        // The calls are repeated in both arms, so that the parsed header stays in registers.
        *made = match view(packet) {
            ipv4 @ Some(_) => {
                let measured = measure(packet, ipv4);
                make(key(packet, ipv4), measured)
            }
            None => {
                let measured = measure(packet, None);
                make(key(packet, None), measured)
            }
        };
    }
}

/// Returns the key of a code point. Packets without one have a separate key.
#[inline]
fn code_point(packet: &mut Packet) -> TableKey {
    TableKey::new(dscp::read(packet).map_or(1 << 16, u64::from))
}

/// Returns the identifier of the outer tag. Packets without a tag have a separate key.
#[inline]
fn vlan(packet: &mut Packet) -> u64 {
    let tag = packet.view::<Ethernet>(0).filter(|header| EtherType::is_vlan(header.ether_type.get()));
    let tag = tag.and_then(|_| packet.view::<VlanTag>(size_of::<Ethernet>()));
    tag.map_or(1 << 16, |tag| tag.id().into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use etherparse::{PacketBuilder, VlanId};
    use forebay_graph::SetupEnvironment;
    use forebay_packet::{Pool, PoolOptions};
    use forebay_units::Frequency;

    use super::*;

    fn key(by: &KeyBy, frame: &[u8]) -> TableKey {
        // In simulated time the secret, and so the hash, is always the same.
        let mut environment = SetupEnvironment { simulated: true, ..SetupEnvironment::new(Frequency::new(1e9)) };
        let selector = Selector::new(by, &mut Setup::new("m", &mut environment)).expect("a word").expect("a key");
        let pool = Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("memory");
        let mut packet = pool.take().expect("a chunk");
        assert!(packet.write(frame));
        let mut keys = [TableKey::default()];
        selector.keys(std::slice::from_mut(&mut packet), &mut keys, |_, _| (), |key, ()| key);
        keys[0]
    }

    fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).udp(from.1, to.1);
        builder.write(&mut frame, b"abc").expect("memory");
        frame
    }

    fn udp6(from: (u8, u16), to: (u8, u16)) -> Vec<u8> {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([from.0; 16], [to.0; 16], 64).udp(from.1, to.1);
        builder.write(&mut frame, b"abc").expect("memory");
        frame
    }

    #[test]
    fn the_families_never_share_keys() {
        let six = |from: [u8; 4], to: [u8; 4]| {
            let wide = |four: [u8; 4]| std::array::from_fn(|at| four.get(at).copied().unwrap_or(0));
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(wide(from), wide(to), 64).udp(1_000, 80);
            builder.write(&mut frame, b"abc").expect("memory");
            frame
        };
        let mapped = |from: [u8; 4], to: [u8; 4]| {
            let wide = |[a, b, c, d]: [u8; 4]| std::net::Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets();
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(wide(from), wide(to), 64).udp(1_000, 80);
            builder.write(&mut frame, b"abc").expect("memory");
            frame
        };
        let (from, to) = ([10, 1, 0, 7], [10, 1, 0, 9]);
        let four = udp((from, 1_000), (to, 80));
        for by in [KeyBy::Session, KeyBy::Source, KeyBy::Destination] {
            let keys: HashSet<_> =
                [four.clone(), six(from, to), mapped(from, to)].iter().map(|frame| key(&by, frame)).collect();
            assert_eq!(keys.len(), 3, "{by:?}");
        }
    }

    #[test]
    fn both_directions_have_the_key_of_one_session() {
        let (a, b) = (([10, 0, 0, 1], 1_000), ([10, 0, 0, 2], 80));
        let mut ipv4 = HashSet::new();
        for (forward, back) in [
            (udp(a, b), udp(b, a)),
            (udp((a.0, 80), (b.0, 1_000)), udp((b.0, 1_000), (a.0, 80))),
            (udp6((1, 1_000), (2, 80)), udp6((2, 80), (1, 1_000))),
            (udp6((1, 80), (2, 1_000)), udp6((2, 1_000), (1, 80))),
        ] {
            let key_of = |frame: &[u8]| key(&KeyBy::Session, frame);
            assert_eq!(key_of(&forward), key_of(&back));
            assert!(ipv4.insert(key_of(&forward)), "each session has its own key");
        }
        // A packet with IP options does not take the fast path, but has the same key.
        let mut options = udp(a, b);
        options.splice(34..34, [1, 1, 1, 1]);
        (options[14], options[17]) = (0x46, options[17] + 4);
        assert_eq!(key(&KeyBy::Session, &options), key(&KeyBy::Session, &udp(a, b)));
    }

    #[test]
    fn a_packet_in_a_tunnel_has_the_session_of_the_inner_packet() {
        for inner in [udp(([10, 60, 0, 1], 5_000), ([10, 0, 0, 2], 53)), udp6((1, 5_000), (2, 53))] {
            let t_pdu = [&[0x30, 0xff, 0, (inner.len() - 14) as u8, 0, 0, 0, 7], &inner[14..]].concat();
            let mut tunnelled = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
            builder.udp(2_152, 2_152).write(&mut tunnelled, &t_pdu).expect("memory");
            assert_eq!(key(&KeyBy::Session, &tunnelled), key(&KeyBy::Session, &inner));
            assert_ne!(key(&KeyBy::Source, &tunnelled), key(&KeyBy::Source, &inner), "addresses are the outer ones");
        }
    }

    #[test]
    fn all_fragments_of_a_datagram_have_one_account() {
        let mut frame = udp(([10, 0, 0, 1], 1_000), ([10, 0, 0, 2], 80));
        let keys = [(0x20, 0), (0x20, 9), (0, 18)].map(|(flags, offset)| {
            (frame[20], frame[21]) = (flags, offset);
            key(&KeyBy::Session, &frame)
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }

    #[test]
    fn addresses_have_different_keys_by_side_and_family() {
        let frames = [udp(([10, 0, 0, 1], 1), ([10, 0, 0, 2], 1)), udp6((1, 1), (2, 1)), vec![7; 60], vec![]];
        let keys: HashSet<_> =
            frames.iter().flat_map(|frame| [key(&KeyBy::Source, frame), key(&KeyBy::Destination, frame)]).collect();
        assert_eq!(keys.len(), 6, "the last two frames have equal addresses");
        let other_port = udp(([10, 0, 0, 1], 9), ([10, 0, 0, 9], 9));
        assert_eq!(key(&KeyBy::Source, &other_port), key(&KeyBy::Source, &frames[0]));
    }

    #[test]
    fn tags_and_code_points_have_an_account_each() {
        let tagged = |id| {
            let mut frame = Vec::new();
            let id = VlanId::try_new(id).expect("an identifier");
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(id).ipv4([1; 4], [2; 4], 64).udp(1, 2);
            builder.write(&mut frame, b"").expect("memory");
            frame
        };
        let untagged = udp(([1; 4], 1), ([2; 4], 2));
        let mut keys: Vec<_> = (0..4_096).map(|id| key(&KeyBy::Vlan, &tagged(id))).collect();
        keys.extend([key(&KeyBy::Vlan, &untagged)]);
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 4_097);
        let marked = |class| {
            let mut frame = untagged.clone();
            frame[15] = class;
            frame
        };
        let keys: HashSet<_> = (0..=255).map(|class| key(&KeyBy::Dscp, &marked(class))).collect();
        assert_eq!(keys.len(), 64, "congestion notification is not part of the key");
        assert!(!keys.contains(&key(&KeyBy::Dscp, &[0xff; 60])));
    }

    #[test]
    fn a_word_is_found_by_its_name() {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let mut setup = Setup::new("m", &mut environment);
        let word = setup.word("teid").expect("a word");
        let selector = Selector::new(&KeyBy::Word("teid".to_owned()), &mut setup).expect("a word").expect("a key");
        let pool = Pool::new(PoolOptions { chunks: 2, ..PoolOptions::default() }).expect("memory");
        let mut packets = [pool.take().expect("a chunk"), pool.take().expect("a chunk")];
        packets[1].set_word(word, 77);
        let mut keys = [TableKey::default(); 2];
        selector.keys(&mut packets, &mut keys, |_, _| (), |key, ()| key);
        assert_eq!(keys, [TableKey::new(0), TableKey::new(77)]);
    }
}
