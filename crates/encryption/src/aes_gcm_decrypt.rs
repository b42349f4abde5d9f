//! Decrypts the packets that `aes_gcm_encrypt` has encrypted. Drops all other UDP packets. Packets that are not UDP are
//! dropped or pass, as the parameter `others` says.

use forebay_aead::{Aead, Key, TAG};
use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use forebay_tunnels::first_unusual;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::aes_gcm_encrypt::{HEADER, MORE};
use crate::datagram::{Datagram, Unfit};
use crate::keys::{KeySettings, Others, read_keys};
use crate::settings::Implementation;
use crate::sums::{Change, Sums};

/// Parameters of `aes_gcm_decrypt`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The keys that packets may be encrypted with: each `{ id: N, key: DIGITS }` or `{ id: N, file: NAME }`, with an
    /// id from 0 to 255 that packets carry, and 32 (AES-128) or 64 (AES-256) hexadecimal digits in quotes or in a file.
    keys: Vec<KeySettings>,
    /// The implementation of AES: `hardware` uses the processor's AES instructions, `software` does without them,
    /// `auto` (the default) is `hardware` if the processor has the instructions and `software` otherwise.
    #[serde(default)]
    backend: Implementation,
    /// The action for packets that are not UDP: `drop` (the default), or `pass` unchanged.
    #[serde(default)]
    others: Others,
}

const NOT_UDP: Gate = Gate::drop(0);
const FRAGMENT: Gate = Gate::drop(1);
const BAD_LENGTH: Gate = Gate::drop(2);
const TOO_SHORT: Gate = Gate::drop(3);
const UNKNOWN_KEY: Gate = Gate::drop(4);
const FORGED: Gate = Gate::drop(5);
const UNDECIDABLE: Gate = Gate::drop(6);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "not_udp", help: "The frame is not UDP over IP, and such frames are dropped ('others')." },
    Reason { name: "fragment", help: "The packet is a fragment; only a whole datagram can be decrypted." },
    Reason {
        name: "bad_length",
        help: "A length in the headers contradicts another length or the length of the frame.",
    },
    Reason { name: "too_short", help: "The payload is shorter than the nonce (12 bytes) and the tag (16 bytes)." },
    Reason { name: "unknown_key", help: "The packet carries the id of a key that is not listed." },
    Reason { name: "forged", help: "The payload was not encrypted with the key, or has been changed since." },
    Reason {
        name: "undecidable",
        help: "The packet hides its protocol, so it may be UDP. It is dropped, also with `others: pass`.",
    },
];

/// The network function `aes_gcm_decrypt`.
pub struct AesGcmDecrypt {
    keys: Vec<Key>,
    /// The index in `keys` of each key id; `u16::MAX` for an id without a key.
    index_of: [u16; 256],
    sums: Sums,
    /// The gate of packets that are not UDP.
    others: Gate,
}

impl Declare for AesGcmDecrypt {
    type Params = Params;
    const NAME: &'static str = "aes_gcm_decrypt";
    const SUMMARY: &'static str = "decrypts UDP payloads with AES-GCM";
    const HELP: &'static str = "\
        Restores packets that `aes_gcm_encrypt` has encrypted. The payload is decrypted in place (NIST SP 800-38D). \
        The 12 bytes before it and the 16 bytes after it are removed. Lengths and checksums are updated. A packet with \
        a wrong authentication tag is dropped. Each packet carries the id of its key. If several keys are listed, \
        packets under an old key and under a new key are decrypted. Addresses and ports are not authenticated. A UDP \
        checksum that was wrong stays wrong. Fragments are dropped. A packet that hides its protocol behind more than \
        8 IPv6 extension headers or 4 VLAN tags is dropped, too (`undecidable`). Replayed packets are accepted: only \
        `esp_decrypt` drops replayed packets.";
    const EXAMPLE: &'static str = "\
        { keys: [{ id: 1, key: \"000102030405060708090a0b0c0d0e0f\" }, { id: 2, key: \
        \"0f0e0d0c0b0a09080706050403020100\" }] }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let listed = read_keys(&params.keys, params.backend.backend(), setup)?;
        let (mut keys, mut index_of) = (Vec::new(), [u16::MAX; 256]);
        for (id, _, key) in listed {
            index_of[usize::from(id)] = keys.len() as u16;
            keys.push(key);
        }
        Ok(Self { keys, index_of, sums: Sums::new(), others: params.others.gate(NOT_UDP) })
    }
}

impl AesGcmDecrypt {
    /// Decrypts the payload of a datagram that extends to the end of the frame. Returns [`Gate::FIRST`], or the gate of
    /// a packet that must be dropped. Must be called only once for each packet, because it changes the text.
    #[inline(always)]
    fn decrypt(&self, packet: &mut Packet, datagram: Datagram) -> Gate {
        let payload = datagram.payload();
        let summed = datagram.is_summed(packet);
        let Some((_, whole)) = packet.data_mut().split_at_mut_checked(payload) else { return BAD_LENGTH };
        let Some((nonce, rest)) = whole.split_first_chunk_mut::<HEADER>() else { return TOO_SHORT };
        let Some((text, tag)) = rest.split_last_chunk_mut::<TAG>() else { return TOO_SHORT };
        let before = if summed { Some(self.sums.whole(nonce, text, tag)) } else { None };
        let Some(key) = self.keys.get(usize::from(self.index_of[usize::from(nonce[0])])) else { return UNKNOWN_KEY };
        if key.open(nonce, &[], text, tag).is_err() {
            return FORGED;
        }
        let change = before.map(|before| Change::new(before, self.sums.of(text), -(MORE as i16)));
        let end = payload + HEADER + text.len();
        let data = packet.data_mut();
        data.copy_within(..payload, HEADER);
        packet.truncate(end);
        if datagram == Datagram::PLAIN {
            packet.unwrap_to_ipv4(HEADER, Datagram::PLAIN.ip);
        } else {
            packet.strip(HEADER);
            packet.forget_layers();
        }
        datagram.resize(packet, -(MORE as i16), |sum| change.map_or(sum, |change| change.apply(sum)));
        Gate::FIRST
    }

    /// Decrypts a packet that is not plain IPv4 with UDP, or returns the gate of the error.
    #[cold]
    #[inline(never)]
    fn unusual(&self, packet: &mut Packet) -> Gate {
        match Datagram::find(packet) {
            Ok(datagram) => self.decrypt(packet, datagram),
            Err(Unfit::Hidden) => UNDECIDABLE,
            Err(Unfit::Other) => self.others,
            Err(Unfit::Fragment) => FRAGMENT,
            Err(Unfit::Length) => BAD_LENGTH,
        }
    }

    /// Decrypts any packet, or returns the gate of the error.
    #[inline(always)]
    fn decide(&self, packet: &mut Packet) -> Gate {
        if Datagram::is_plain(packet) { self.decrypt(packet, Datagram::PLAIN) } else { self.unusual(packet) }
    }
}

impl Function for AesGcmDecrypt {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let mut gate = Gate::FIRST;
        // `gate` keeps the result for the packet at which `first_unusual` stops: a second attempt to decrypt would see
        // changed text.
        let mut first = 0;
        while let Some(further) = first_unusual(&mut batch[first..], |packet| {
            gate = self.decide(packet);
            gate == Gate::FIRST
        }) {
            context.put(first + further, gate);
            first += further + 1;
        }
    }
}

register!(AesGcmDecrypt);

#[cfg(test)]
mod tests;
