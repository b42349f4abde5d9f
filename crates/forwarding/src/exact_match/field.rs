//! Header fields by name: their offset, width, and text form.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use forebay_packet::wire::ethernet::{EtherType, Ethernet, MacAddress};
use forebay_packet::wire::{ipv4, ipv6};
use forebay_packet::{Network, Packet};
use forebay_tables::parameters::number;
use forebay_units::wording::counted;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// The header from whose start a field's offset counts. A packet of another protocol does not have the layer. The
/// values are the indices in [`Starts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Frame,
    Vlan,
    Ipv4,
    Ipv6,
    Tcp,
    Udp,
    Icmp,
    Icmpv6,
}

/// The number of layers.
const LAYERS: usize = 8;

impl Layer {
    /// Returns whether the layer is above IP.
    pub(super) fn is_transport(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp | Self::Icmp | Self::Icmpv6)
    }
}

/// The start of an absent layer: beyond the end of every frame, because a frame's length is a 16-bit number.
const ABSENT: u16 = u16::MAX;

/// The text form of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueFormat {
    Number,
    Mac,
    Ipv4,
    Ipv6,
}

/// A field's definition: name, layer, offset and length in bytes, right shift, significant bits (0: all).
type Definition = (&'static str, Layer, u16, u8, u8, u8, ValueFormat);

/// The fields that have names.
const FIELDS: &[Definition] = &[
    ("ether.dst", Layer::Frame, 0, 6, 0, 0, ValueFormat::Mac),
    ("ether.src", Layer::Frame, 6, 6, 0, 0, ValueFormat::Mac),
    ("ether.type", Layer::Frame, 12, 2, 0, 0, ValueFormat::Number),
    ("vlan.id", Layer::Vlan, 0, 2, 0, 12, ValueFormat::Number),
    ("vlan.priority", Layer::Vlan, 0, 2, 13, 3, ValueFormat::Number),
    ("vlan.type", Layer::Vlan, 2, 2, 0, 0, ValueFormat::Number),
    ("ipv4.dscp", Layer::Ipv4, 1, 1, 2, 6, ValueFormat::Number),
    ("ipv4.ecn", Layer::Ipv4, 1, 1, 0, 2, ValueFormat::Number),
    ("ipv4.length", Layer::Ipv4, 2, 2, 0, 0, ValueFormat::Number),
    ("ipv4.id", Layer::Ipv4, 4, 2, 0, 0, ValueFormat::Number),
    ("ipv4.flags", Layer::Ipv4, 6, 1, 5, 3, ValueFormat::Number),
    ("ipv4.offset", Layer::Ipv4, 6, 2, 0, 13, ValueFormat::Number),
    ("ipv4.ttl", Layer::Ipv4, 8, 1, 0, 0, ValueFormat::Number),
    ("ipv4.proto", Layer::Ipv4, 9, 1, 0, 0, ValueFormat::Number),
    ("ipv4.src", Layer::Ipv4, 12, 4, 0, 0, ValueFormat::Ipv4),
    ("ipv4.dst", Layer::Ipv4, 16, 4, 0, 0, ValueFormat::Ipv4),
    ("ipv6.dscp", Layer::Ipv6, 0, 2, 6, 6, ValueFormat::Number),
    ("ipv6.ecn", Layer::Ipv6, 0, 2, 4, 2, ValueFormat::Number),
    ("ipv6.label", Layer::Ipv6, 0, 4, 0, 20, ValueFormat::Number),
    ("ipv6.length", Layer::Ipv6, 4, 2, 0, 0, ValueFormat::Number),
    ("ipv6.next", Layer::Ipv6, 6, 1, 0, 0, ValueFormat::Number),
    ("ipv6.hops", Layer::Ipv6, 7, 1, 0, 0, ValueFormat::Number),
    ("ipv6.src", Layer::Ipv6, 8, 16, 0, 0, ValueFormat::Ipv6),
    ("ipv6.dst", Layer::Ipv6, 24, 16, 0, 0, ValueFormat::Ipv6),
    ("tcp.sport", Layer::Tcp, 0, 2, 0, 0, ValueFormat::Number),
    ("tcp.dport", Layer::Tcp, 2, 2, 0, 0, ValueFormat::Number),
    ("tcp.flags", Layer::Tcp, 13, 1, 0, 0, ValueFormat::Number),
    ("udp.sport", Layer::Udp, 0, 2, 0, 0, ValueFormat::Number),
    ("udp.dport", Layer::Udp, 2, 2, 0, 0, ValueFormat::Number),
    ("udp.length", Layer::Udp, 4, 2, 0, 0, ValueFormat::Number),
    ("icmp.type", Layer::Icmp, 0, 1, 0, 0, ValueFormat::Number),
    ("icmp.code", Layer::Icmp, 1, 1, 0, 0, ValueFormat::Number),
    ("icmpv6.type", Layer::Icmpv6, 0, 1, 0, 0, ValueFormat::Number),
    ("icmpv6.code", Layer::Icmpv6, 1, 1, 0, 0, ValueFormat::Number),
];

/// A field of 1 to 16 bytes, read as one number in network order, shifted, and masked.
#[derive(Clone, Debug)]
pub struct Field {
    name: String,
    layer: Layer,
    /// The offset of the first byte from the start of the layer.
    offset: u16,
    /// The number of bytes, 1 to 16.
    length: u8,
    /// The right shift from the number in these bytes to the field.
    shift: u8,
    /// The significant bits after the shift.
    mask: u128,
    format: ValueFormat,
}

/// Parameters of a field that is given as bytes of the frame.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// The offset of the first byte from the start of the frame.
    offset: u16,
    /// The number of bytes.
    length: u8,
    /// The significant bits, as a number or a text; `None` for all bits.
    mask: Option<Value>,
}

/// A field that is given as `raw: { ... }`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wrapped {
    raw: Raw,
}

/// Returns `bytes` bytes with all bits set.
fn ones(bytes: u8) -> u128 {
    u128::MAX >> (128 - 8 * u32::from(bytes))
}

impl Field {
    /// Returns the field with this name, or an error that lists all names.
    fn named(name: &str) -> Result<Self, String> {
        let definition = FIELDS.iter().find(|field| field.0 == name).ok_or_else(|| {
            let known: Vec<_> = FIELDS.iter().map(|field| field.0).collect();
            format!("'{name}' is not a field: allowed are {}, or raw: {{ offset, length, mask }}", known.join(", "))
        })?;
        let (_, layer, offset, length, shift, bits, format) = *definition;
        let mask = if bits == 0 { ones(length) } else { (1 << bits) - 1 };
        Ok(Self { name: name.to_owned(), layer, offset, length, shift, mask, format })
    }

    /// Returns a field of bytes of the frame, or an error if its length or mask is out of range.
    fn raw(raw: &Raw) -> Result<Self, String> {
        let Raw { offset, length, .. } = *raw;
        if !(1..=16).contains(&length) {
            return Err(format!("the length is {}: allowed are 1 to 16", counted(length, "byte")));
        }
        let mask = match &raw.mask {
            None => ones(length),
            Some(mask) => {
                let read = read_number(mask).filter(|read| (1..=ones(length)).contains(read));
                read.ok_or_else(|| {
                    let (bytes, most) = (counted(length, "byte"), ones(length));
                    format!("{mask} is not a mask of {bytes}: allowed are numbers from 1 to {most:#x}")
                })?
            }
        };
        let name = format!("raw {offset}+{length}");
        Ok(Self { name, layer: Layer::Frame, offset, length, shift: 0, mask, format: ValueFormat::Number })
    }

    /// Reads a rule's value of this field.
    ///
    /// # Errors
    /// A text that says why the value is not a value of this field, and which values are allowed.
    pub(super) fn value(&self, value: &Value) -> Result<u128, String> {
        let text = value.as_str();
        let (read, example) = match self.format {
            ValueFormat::Number => (read_number(value), "a number, such as 80 or 0x50"),
            ValueFormat::Mac => {
                let read = text.and_then(|text| text.parse::<MacAddress>().ok());
                (
                    read.map(|address| address.0.iter().fold(0, |all, byte| all << 8 | u128::from(*byte))),
                    "an address such as 02:00:00:00:00:01",
                )
            }
            ValueFormat::Ipv4 => (
                text.and_then(|text| text.parse::<Ipv4Addr>().ok()).map(|address| address.to_bits().into()),
                "an address such as 192.0.2.1",
            ),
            ValueFormat::Ipv6 => (
                text.and_then(|text| text.parse::<Ipv6Addr>().ok()).map(Ipv6Addr::to_bits),
                "an address such as 2001:db8::1",
            ),
        };
        let read = read.ok_or_else(|| format!("{value} is not a value of {}: allowed is {example}", self.name))?;
        if read & !self.mask != 0 {
            return Err(format!(
                "{value} cannot be a value of {}: it has bits outside the field's mask {:#x}",
                self.name, self.mask
            ));
        }
        Ok(read)
    }

    /// Returns the field as one or two words of at most eight bytes, the upper word first. The number after each word
    /// is the right shift from a [value](Self::value) to the word's bits: 64 for the upper word, 0 for the lower.
    pub(super) fn words(&self) -> impl Iterator<Item = (KeyWord, u32)> {
        let split = self.length.saturating_sub(8);
        let upper = (split > 0).then(|| (self.word(self.offset, split, self.mask >> 64), 64));
        let lower = (self.word(self.offset.saturating_add(split.into()), self.length - split, self.mask), 0);
        upper.into_iter().chain([lower])
    }

    /// Returns the word of `length` bytes, 1 to 8, at `offset` in the layer. The lower 64 bits of `mask` are its
    /// significant bits.
    fn word(&self, offset: u16, length: u8, mask: u128) -> KeyWord {
        KeyWord { layer: self.layer, offset, length, shift: self.shift + 64 - 8 * length, mask: mask as u64 }
    }
}

/// Reads a number, or a text with a decimal or hexadecimal number.
fn read_number(value: &Value) -> Option<u128> {
    value.as_u64().map(u128::from).or_else(|| number(value.as_str()?))
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value.as_str() {
            Some(name) => Self::named(name).map_err(de::Error::custom),
            None => {
                let wrapped: Wrapped = serde_json::from_value(value).map_err(de::Error::custom)?;
                Self::raw(&wrapped.raw).map_err(de::Error::custom)
            }
        }
    }
}

impl JsonSchema for Field {
    fn schema_name() -> Cow<'static, str> {
        "Field".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = FIELDS.iter().map(|field| field.0).collect();
        let raw = json_schema!({
            "type": "object",
            "description": "Bytes of the frame: offset from its start, length, and the bits that count.",
            "properties": {
                "offset": { "type": "integer", "minimum": 0, "maximum": 65_535 },
                "length": { "type": "integer", "minimum": 1, "maximum": 16 },
                "mask": { "anyOf": [
                    { "type": "integer", "format": "uint64", "minimum": 1 },
                    { "type": "string", "pattern": "^(0x[0-9a-fA-F]+|[0-9]+)$" },
                ] },
            },
            "required": ["offset", "length"],
            "additionalProperties": false,
        });
        let wrapped = json_schema!({
            "type": "object",
            "properties": { "raw": raw },
            "required": ["raw"],
            "additionalProperties": false,
        });
        json_schema!({ "anyOf": [{ "enum": names }, wrapped] })
    }
}

/// The offset of each layer in the frame of one packet, indexed by [`Layer`]; [`ABSENT`] if the packet lacks the layer.
pub(super) struct Starts([u16; LAYERS]);

/// The layers that must be found for a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// True if a field is of the VLAN tag.
    vlan: bool,
    /// True if a field is of IP or above it.
    network: bool,
    /// The offset after the last byte of any field above IP, from that layer's start; 0 if no field is above IP.
    furthest: u16,
}

impl Needs {
    /// Adds the layer of a word. All words of the key must be added before the first [`find`](Self::find).
    pub(super) fn add(&mut self, word: &KeyWord) {
        match word.layer {
            Layer::Frame => {}
            Layer::Vlan => self.vlan = true,
            Layer::Ipv4 | Layer::Ipv6 => self.network = true,
            Layer::Tcp | Layer::Udp | Layer::Icmp | Layer::Icmpv6 => {
                self.network = true;
                self.furthest = self.furthest.max(word.offset + u16::from(word.length));
            }
        }
    }

    /// Returns whether any field is of IP or above it.
    pub(super) fn network(self) -> bool {
        self.network
    }

    /// Returns whether any field is above IP.
    pub(super) fn transport(self) -> bool {
        self.furthest != 0
    }

    /// Returns whether the packet has this layer above IP. The packet may end before a field of the layer.
    #[cold]
    pub(super) fn begins(self, packet: &mut Packet, layer: Layer) -> bool {
        let (network, transport) = (packet.network().0, packet.transport());
        transport.is_some_and(|(protocol, _)| above(network, protocol) == Some(layer))
    }

    /// Finds the layers in a packet. Layers that are not needed stay absent. A layer above IP also stays absent if the
    /// packet ends before the furthest needed field.
    #[inline(always)]
    pub(super) fn find(self, packet: &mut Packet) -> Starts {
        let mut starts = [ABSENT; LAYERS];
        starts[Layer::Frame as usize] = 0;
        if self.vlan && packet.view::<Ethernet>(0).is_some_and(|header| EtherType::is_vlan(header.ether_type.get())) {
            starts[Layer::Vlan as usize] = size_of::<Ethernet>() as u16;
        }
        if self.network {
            let (network, start) = packet.network();
            let layer = match network {
                Network::Ipv4 => Layer::Ipv4,
                Network::Ipv6 => Layer::Ipv6,
                Network::Other => return Starts(starts),
            };
            starts[layer as usize] = start as u16;
            if self.furthest != 0
                && let Some((protocol, upper)) = packet.transport()
            {
                let Some(layer) = above(network, protocol) else { return Starts(starts) };
                let furthest = upper + usize::from(self.furthest);
                // Ethernet padding after the packet does not belong to a field.
                let length = match packet.known_ipv4() {
                    Some(ip) => ip.total_length.get().into(),
                    None => packet
                        .view::<ipv6::Ipv6>(start)
                        .map_or(0, |ip| IPV6_HEADER + usize::from(ip.payload_length.get())),
                };
                if start + length < furthest && lies_behind(packet, furthest) {
                    return Starts(starts);
                }
                starts[layer as usize] = upper as u16;
            }
        }
        Starts(starts)
    }
}

/// Returns the layer of a protocol above IP; `None` if no named field belongs to the protocol.
#[inline(always)]
fn above(network: Network, protocol: u8) -> Option<Layer> {
    match (network, protocol) {
        (_, ipv4::TCP) => Some(Layer::Tcp),
        (_, ipv4::UDP) => Some(Layer::Udp),
        (Network::Ipv4, ipv4::ICMP) => Some(Layer::Icmp),
        (Network::Ipv6, ICMPV6) => Some(Layer::Icmpv6),
        _ => None,
    }
}

/// Returns whether an offset is past the end of the IP packet. An IPv4 total length of 0 means that the packet ends
/// with its frame.
#[cold]
#[inline(never)]
fn lies_behind(packet: &mut Packet, offset: usize) -> bool {
    offset > packet.network_end()
}

const IPV6_HEADER: usize = size_of::<ipv6::Ipv6>();
/// IP protocol number of ICMPv6 (RFC 4443 section 1).
const ICMPV6: u8 = 58;
const _: () = assert!(IPV6_HEADER == 40, "the offsets above are of this header");

/// One word of the key: up to eight bytes of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyWord {
    pub(super) layer: Layer,
    /// The offset of the first byte from the start of the layer.
    offset: u16,
    /// The number of bytes, 1 to 8.
    length: u8,
    /// The right shift from eight bytes, as a number in network order, to the value of the word.
    shift: u8,
    /// The significant bits after the shift.
    mask: u64,
}

impl KeyWord {
    /// Reads the word. `None` if the packet lacks the layer or ends before the field.
    #[inline]
    pub(super) fn read(&self, frame: &[u8], starts: &Starts) -> Option<u64> {
        let start = usize::from(starts.0[self.layer as usize]) + usize::from(self.offset);
        let word = match frame.get(start..start + 8).and_then(<[u8]>::first_chunk) {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => self.read_end(frame, start)?,
        };
        Some(word >> self.shift & self.mask)
    }

    /// Returns the eight bytes from `start` on, with zeros for bytes after the end of the frame. `None` if the frame
    /// ends before the field does.
    #[cold]
    #[inline(never)]
    fn read_end(&self, frame: &[u8], start: usize) -> Option<u64> {
        let bytes = frame.get(start..)?.get(..usize::from(self.length))?;
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_be_bytes(padded))
    }
}
