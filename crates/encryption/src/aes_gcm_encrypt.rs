//! Encrypts UDP payloads: AES-GCM over the payload, a number before it and a tag after it.

use forebay_aead::{Aead, Key, NONCE, Numbers, TAG};
use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use forebay_tunnels::first_unusual;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::datagram::{Datagram, Unfit};
use crate::keys::{KeySettings, Others, read_keys};
use crate::settings::Implementation;
use crate::sums::{Change, Sums};
use crate::{PACKETS, numbers, source};

/// Parameters of `aes_gcm_encrypt`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The keys: each `{ id: N, key: DIGITS }` or `{ id: N, file: NAME }`, with an id from 0 to 255 that packets carry,
    /// and 32 (AES-128) or 64 (AES-256) hexadecimal digits in quotes or in a file.
    keys: Vec<KeySettings>,
    /// The id of the key to encrypt with; by default the first of `keys`.
    #[serde(rename = "use")]
    used: Option<u8>,
    /// The implementation of AES: `hardware` uses the processor's AES instructions, `software` does without them,
    /// `auto` (the default) is `hardware` if the processor has the instructions and `software` otherwise.
    #[serde(default)]
    backend: Implementation,
    /// The number of packets that may be encrypted with one key, from 1; by default 2^42. Further packets are dropped.
    packets: Option<u64>,
    /// The largest length of IP packets after encryption, in bytes, at least 68. Longer packets are dropped. Without
    /// it, the limit is the largest length that the header can express.
    mtu: Option<u16>,
    /// The action for packets that are not UDP: `drop` (the default), or `pass` unchanged.
    #[serde(default)]
    others: Others,
}

const NOT_UDP: Gate = Gate::drop(0);
const FRAGMENT: Gate = Gate::drop(1);
const BAD_LENGTH: Gate = Gate::drop(2);
const TOO_LONG: Gate = Gate::drop(3);
const NO_ROOM: Gate = Gate::drop(4);
const KEY_SPENT: Gate = Gate::drop(5);
const UNDECIDABLE: Gate = Gate::drop(6);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "not_udp", help: "The frame is not UDP over IP, and such frames are dropped ('others')." },
    Reason { name: "fragment", help: "The packet is a fragment; only a whole datagram can be encrypted." },
    Reason {
        name: "bad_length",
        help: "A length in the headers contradicts another length or the length of the frame.",
    },
    Reason {
        name: "too_long",
        help: "The encrypted packet would be longer than `mtu`, or than its header can express.",
    },
    Reason { name: "no_room", help: "The chunk has no room for the bytes that encryption adds." },
    Reason { name: "key_spent", help: "The key has reached its limit of encrypted packets ('packets')." },
    Reason {
        name: "undecidable",
        help: "The packet hides its protocol, so it may be UDP. It is dropped, also with `others: pass`.",
    },
];

/// The number of bytes before the encrypted payload. These bytes are the packet number, which is also the nonce.
pub(crate) const HEADER: usize = NONCE;
/// The number of bytes by which a packet grows.
pub(crate) const MORE: usize = HEADER + TAG;

/// The network function `aes_gcm_encrypt`.
pub struct AesGcmEncrypt {
    key: Key,
    /// The first bytes of packet numbers: the key's id and the sender.
    prefix: [u8; 4],
    numbers: Numbers,
    /// The largest length of a packet before encryption, in bytes from its IP header on.
    most: usize,
    sums: Sums,
    /// The gate of packets that are not UDP.
    others: Gate,
}

impl Declare for AesGcmEncrypt {
    type Params = Params;
    const NAME: &'static str = "aes_gcm_encrypt";
    const SUMMARY: &'static str = "encrypts UDP payloads with AES-GCM";
    const HELP: &'static str = "\
        The payload of UDP over IPv4 or IPv6 is encrypted in place with AES-128 or AES-256 in Galois/Counter mode \
        (NIST SP 800-38D). The payload keeps its length. Before it, 12 bytes are added: the key's id (1 byte), the \
        sender's number (3 bytes, drawn when the process starts) and a counter (8 bytes). After it, the tag is added \
        (16 bytes). The 12 bytes are the nonce, so they are authenticated, too. Addresses and ports are not \
        authenticated, so they may be translated on the way. All modules and workers of the process share one counter. \
        It starts at the time of day in nanoseconds, so that no number is used twice if a restarted process uses the \
        same key. Lengths are updated. The checksums of the IPv4 header and of UDP change by the difference (RFC \
        1624); a UDP checksum of 0 stays 0. To change the key, take three steps: add the new key to the decrypting \
        side, `use` it here, and remove the old key. Fragments are dropped, also with `others: pass`, so that no UDP \
        leaves unencrypted. A packet that hides its protocol behind more than 8 IPv6 extension headers or 4 VLAN tags \
        is dropped, too (`undecidable`). Packets that become too long are dropped; no ICMP message is sent. Replayed \
        packets are not detected: to detect them, use `esp_encrypt` and `esp_decrypt`.";
    const EXAMPLE: &'static str = r#"{ keys: [{ id: 1, key: "000102030405060708090a0b0c0d0e0f" }], mtu: 1500 }"#;
    const DROPS: &'static [Reason] = DROPS;
    // All workers draw numbers from one counter.
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let keys = read_keys(&params.keys, params.backend.backend(), setup)?;
        let used = params.used.unwrap_or(params.keys.first().map_or(0, |first| first.id));
        let Some((id, material, key)) = keys.into_iter().find(|(id, ..)| *id == used) else {
            let known: Vec<_> = params.keys.iter().map(|key| key.id.to_string()).collect();
            let wrong = format!("no key has id {used}");
            return Err(SetupError::wrong_name("use", used, wrong, known.iter().map(String::as_str)));
        };
        if params.packets == Some(0) {
            return Err(SetupError::not_allowed("packets", "0", "1 or more"));
        }
        if let Some(mtu) = params.mtu.filter(|mtu| *mtu < 68) {
            return Err(SetupError::not_allowed("mtu", mtu, "68 (RFC 791) to 65535"));
        }
        let [a, b, c] = source(setup)?.sender();
        Ok(Self {
            key,
            prefix: [id, a, b, c],
            numbers: numbers(&material, params.packets.unwrap_or(PACKETS), setup)?,
            most: usize::from(params.mtu.unwrap_or(u16::MAX)) - MORE,
            sums: Sums::new(),
            others: params.others.gate(NOT_UDP),
        })
    }
}

impl AesGcmEncrypt {
    /// Encrypts the payload of a datagram that extends to the end of the frame, and returns [`Gate::FIRST`]. If that is
    /// not possible, changes nothing and returns the gate of the error.
    #[inline(always)]
    fn encrypt(&mut self, packet: &mut Packet, datagram: Datagram) -> Gate {
        let (payload, len) = (datagram.payload(), packet.len());
        if len - datagram.ip > self.most {
            return TOO_LONG;
        }
        if packet.headroom() < HEADER || packet.tailroom() < TAG {
            return NO_ROOM;
        }
        let Some(number) = self.numbers.take() else { return KEY_SPENT };
        let summed = datagram.is_summed(packet);
        let mut nonce = [0; NONCE];
        nonce[..4].copy_from_slice(&self.prefix);
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        let Some(text) = packet.data_mut().get_mut(payload..) else { return BAD_LENGTH };
        let before = if summed { Some(self.sums.of(text)) } else { None };
        let tag = self.key.seal(&nonce, &[], text);
        // The headers move to make room for the number; the payload does not move.
        let grown = packet.append(TAG).map(|added| added.copy_from_slice(&tag)).is_some();
        if !grown || packet.prepend(HEADER).is_none() {
            return NO_ROOM;
        }
        let data = packet.data_mut();
        data.copy_within(HEADER..HEADER + payload, 0);
        let Some((_, whole)) = data.split_at_mut_checked(payload) else { return BAD_LENGTH };
        let Some((header, text)) = whole.split_first_chunk_mut::<HEADER>() else { return BAD_LENGTH };
        *header = nonce;
        let Some((text, _)) = text.split_last_chunk::<TAG>() else { return BAD_LENGTH };
        let change = before.map(|before| Change::new(before, self.sums.whole(&nonce, text, &tag), MORE as i16));
        datagram.resize(packet, MORE as i16, |sum| change.map_or(sum, |change| change.apply(sum)));
        if datagram == Datagram::PLAIN {
            packet.place_ipv4(Datagram::PLAIN.ip);
        } else {
            packet.forget_layers();
        }
        Gate::FIRST
    }

    /// Encrypts a plain IPv4 packet with UDP. Returns false, and changes nothing, for all other packets and for packets
    /// that cannot be encrypted.
    #[inline(always)]
    fn usual(&mut self, packet: &mut Packet) -> bool {
        Datagram::is_plain(packet) && self.encrypt(packet, Datagram::PLAIN) == Gate::FIRST
    }

    /// Encrypts any packet, or returns the gate of the error.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, packet: &mut Packet) -> Gate {
        match Datagram::find(packet) {
            Ok(datagram) => self.encrypt(packet, datagram),
            Err(Unfit::Hidden) => UNDECIDABLE,
            Err(Unfit::Other) => self.others,
            Err(Unfit::Fragment) => FRAGMENT,
            Err(Unfit::Length) => BAD_LENGTH,
        }
    }
}

impl Function for AesGcmEncrypt {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Some(first) = first_unusual(batch, |packet| self.usual(packet)) else { return };
        for (index, packet) in batch.iter_mut().enumerate().skip(first) {
            if index == first || !self.usual(packet) {
                let gate = self.unusual(packet);
                if gate != Gate::FIRST {
                    context.put(index, gate);
                }
            }
        }
    }
}

register!(AesGcmEncrypt);

#[cfg(test)]
mod tests;
