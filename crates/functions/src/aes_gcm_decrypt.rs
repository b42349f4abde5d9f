//! Decrypts what `aes_gcm_encrypt` has encrypted, and drops what it has not.

use forebay_aead::{Aead, Key, TAG};
use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::aes_gcm_encrypt::{HEADER, MORE};
use crate::encryption::datagram::{Datagram, Unfit};
use crate::encryption::keys::{KeySettings, Others, read_keys};
use crate::encryption::settings::Implementation;
use crate::encryption::sums::{Change, Sums};
use crate::tunnel::first_unusual;

/// Parameters of `aes_gcm_decrypt`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The keys that packets may be encrypted under: each `{ id: N, key: DIGITS }` or `{ id: N, file: NAME }`, with an id
    /// from 0 to 255 that packets carry, and 32 (AES-128) or 64 (AES-256) hexadecimal digits in quotes or in a file.
    keys: Vec<KeySettings>,
    /// What decrypts: `hardware`, the processor's instructions for AES; `software`, which does without; `auto` (the
    /// default), the first where the processor has them.
    #[serde(default)]
    backend: Implementation,
    /// What becomes of packets that are not UDP: `drop` (the default) or `pass`, as they are.
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
const DROPS: &[Reason] = &[
    Reason { name: "not_udp", help: "The frame is no IP and UDP, and such frames are to be dropped ('others')." },
    Reason { name: "fragment", help: "The packet is a fragment of a datagram, which can only be decrypted whole." },
    Reason { name: "bad_length", help: "A length of the headers contradicts another, or what the frame holds." },
    Reason { name: "too_short", help: "The payload is shorter than a number and a tag." },
    Reason { name: "unknown_key", help: "The payload says that it is encrypted under a key that is not listed." },
    Reason { name: "forged", help: "The payload was not encrypted under the key, or has been changed since." },
    Reason { name: "undecidable", help: "The packet hides whether it is UDP. It is dropped whatever `others` says." },
];

/// The function.
pub struct AesGcmDecrypt {
    keys: Vec<Key>,
    /// By id: which of the keys it is, or one that is not there.
    places: [u16; 256],
    sums: Sums,
    others: Gate,
}

impl Declare for AesGcmDecrypt {
    type Params = Params;
    const NAME: &'static str = "aes_gcm_decrypt";
    const SUMMARY: &'static str = "decrypts what UDP carries with AES-GCM";
    const HELP: &'static str = "\
        What `aes_gcm_encrypt` has encrypted is as it was before: the payload is decrypted in place (NIST SP 800-38D), the \
        12 bytes before it and the 16 behind it are taken off, lengths and checksums follow. A packet whose tag is \
        wrong, by whatever change on the way, is dropped. Its key is that of the id which it carries; several can be \
        listed, so that packets under an old and a new one are understood. Addresses and ports are not authenticated; a \
        UDP checksum that was wrong stays wrong. Fragments are dropped, and so is a packet that hides its \
        protocol behind more than 8 IPv6 extension headers or 4 VLAN tags (`undecidable`). \
        A packet that is sent again is taken again; \
        `esp_decrypt` does not.";
    const EXAMPLE: &'static str = r#"{ keys: [{ id: 1, key: "000102030405060708090a0b0c0d0e0f" }, { id: 2, key: "0f0e0d0c0b0a09080706050403020100" }] }"#;
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let listed = read_keys(&params.keys, params.backend.backend(), setup)?;
        let (mut keys, mut places) = (Vec::new(), [u16::MAX; 256]);
        for (id, _, key) in listed {
            places[usize::from(id)] = keys.len() as u16;
            keys.push(key);
        }
        Ok(Self { keys, places, sums: Sums::new(), others: params.others.gate(NOT_UDP) })
    }
}

impl AesGcmDecrypt {
    /// Decrypts the payload of a datagram with which the frame ends.
    #[inline(always)]
    fn decrypt(&self, packet: &mut Packet, datagram: Datagram) -> Gate {
        let payload = datagram.payload();
        let summed = datagram.is_summed(packet);
        let Some((_, whole)) = packet.data_mut().split_at_mut_checked(payload) else { return BAD_LENGTH };
        let Some((nonce, rest)) = whole.split_first_chunk_mut::<HEADER>() else { return TOO_SHORT };
        let Some((text, tag)) = rest.split_last_chunk_mut::<TAG>() else { return TOO_SHORT };
        let before = if summed { Some(self.sums.whole(nonce, text, tag)) } else { None };
        let Some(key) = self.keys.get(usize::from(self.places[usize::from(nonce[0])])) else { return UNKNOWN_KEY };
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

    /// Sees to what is not as nearly all packets are.
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

    #[inline(always)]
    fn decide(&self, packet: &mut Packet) -> Gate {
        if Datagram::is_plain(packet) { self.decrypt(packet, Datagram::PLAIN) } else { self.unusual(packet) }
    }
}

impl Function for AesGcmDecrypt {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let mut gate = Gate::FIRST;
        // A packet is decrypted once, whatever comes of it: what is known of it is not asked again.
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
