//! The effect of a function on a packet, as a value that a flow cache can replay on later packets of the session.

use forebay_packet::Packet;
use forebay_packet::wire::checksum;
use forebay_packet::wire::ipv4::{DCCP, TCP, UDP, UDP_LITE};
use forebay_packet::{Network, Word};

use crate::gate::Gate;

/// A change to a packet. Offsets count from the start of the named layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Overwrites up to 16 bytes of the frame, at an offset from its start.
    Frame {
        /// The offset in the frame, in bytes.
        offset: u16,
        /// The bytes to write.
        bytes: Bytes16,
    },
    /// Overwrites an address of the IPv4 header, and updates the checksums of the header and of the transport.
    Ipv4Address {
        /// Whether the destination address is overwritten. Otherwise the source address is.
        destination: bool,
        /// The new address.
        address: [u8; 4],
    },
    /// Decrements the time to live or hop limit. Does not apply to a packet in which the value is 0 or 1.
    DecrementTtl,
    /// Writes a metadata word.
    Word(Word, u32),
}

/// Up to 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes16 {
    bytes: [u8; 16],
    len: u8,
}

impl Bytes16 {
    /// Takes the first 16 of `bytes`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let len = bytes.len().min(16);
        let mut all = [0; 16];
        all[..len].copy_from_slice(&bytes[..len]);
        Self { bytes: all, len: len as u8 }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A function's whole decision on a packet: changes, then a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The changes, in order.
    pub edits: Vec<Edit>,
    /// The gate after the changes.
    pub gate: Gate,
}

impl Effect {
    /// Creates an effect that changes nothing and selects `gate`.
    #[must_use]
    pub fn to(gate: Gate) -> Self {
        Self { edits: Vec::new(), gate }
    }

    /// Makes the changes to `packet`, and returns the gate, as the function would have done. Returns `None` if an edit
    /// does not apply to the packet, because the packet has another protocol or is too short. Then earlier edits have
    /// already changed the packet, and the packet must pass all modules of the chain.
    pub fn replay(&self, packet: &mut Packet) -> Option<Gate> {
        self.edits.iter().try_for_each(|edit| edit.apply(packet))?;
        Some(self.gate)
    }
}

impl Edit {
    /// Makes the change. Returns `None`, and changes no byte of the frame, if the edit does not apply to the packet.
    fn apply(&self, packet: &mut Packet) -> Option<()> {
        match *self {
            Self::Frame { offset, bytes } => {
                let start = usize::from(offset);
                let target = packet.data_mut().get_mut(start..start + bytes.as_slice().len())?;
                target.copy_from_slice(bytes.as_slice());
            }
            Self::Ipv4Address { destination, address } => rewrite_ipv4_address(packet, destination, address)?,
            Self::DecrementTtl => match packet.network().0 {
                Network::Ipv4 => return packet.ipv4()?.decrement_ttl().then_some(()),
                Network::Ipv6 => packet.ipv6().filter(|header| header.hop_limit > 1)?.hop_limit -= 1,
                Network::Other => return None,
            },
            Self::Word(word, value) => packet.set_word(word, value),
        }
        Some(())
    }
}

/// Writes an IPv4 address and updates the checksums that cover it, by RFC 1624 equation 3: the header's, and through
/// the pseudo header those of TCP (RFC 9293 section 3.1), UDP (RFC 768; zero means no checksum and stays), UDP-Lite
/// (RFC 3828 section 3.1) and DCCP (RFC 4340 section 9.1). Returns `None` if the packet is not IPv4. The hash of the
/// session, which covers addresses, is cleared in any case. Only the first fragment of a datagram has a transport
/// checksum. After this change the checksum is still valid for the whole datagram (RFC 3022 section 4.1).
pub fn rewrite_ipv4_address(packet: &mut Packet, destination: bool, address: [u8; 4]) -> Option<()> {
    packet.forget_session();
    let header = packet.ipv4()?;
    let field = if destination { &mut header.destination } else { &mut header.source };
    let (old, new) = (u32::from_be_bytes(*field), u32::from_be_bytes(address));
    *field = address;
    header.checksum.set(checksum::replace32(header.checksum.get(), old, new));
    let Some((protocol, start)) = packet.transport() else { return Some(()) };
    let at = match protocol {
        TCP => start + 16,
        UDP | UDP_LITE | DCCP => start + 6,
        _ => return Some(()),
    };
    let end = packet.network_end();
    let Some(field) = packet.data_mut()[..end].get_mut(at..at + 2) else { return Some(()) };
    let before = u16::from_be_bytes([field[0], field[1]]);
    if protocol == UDP && before == 0 {
        return Some(());
    }
    let after = checksum::replace32(before, old, new);
    // A UDP or UDP-Lite checksum of zero is sent as all ones (RFC 768, RFC 3828).
    let after = if matches!(protocol, UDP | UDP_LITE) && after == 0 { 0xffff } else { after };
    field.copy_from_slice(&after.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use forebay_packet::{Pool, PoolOptions};

    use super::*;

    const EDGES: [u16; 6] = [0, 1, 0x7fff, 0x8000, 0xfffe, 0xffff];

    /// Returns a frame with 20 bytes of transport, this source and these words, and correct checksums. `field` is the
    /// offset of the transport's checksum, if it has one.
    fn frame(protocol: u8, field: Option<usize>, source: [u8; 4], words: [u16; 2]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        let [[a, b], [c, d]] = words.map(u16::to_be_bytes);
        frame.extend([8, 0, 0x45, 0, 0, 40, a, b, 0, 0, 64, protocol, 0, 0]);
        frame.extend(source);
        frame.extend([0, 0, 0, 0, c, d]);
        frame.resize(54, 0);
        let sum = !checksum::sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_ne_bytes());
        if let Some(field) = field {
            let pseudo = [&frame[26..34], &[0, protocol, 0, 20]].concat();
            let sum = !checksum::add(checksum::sum(&pseudo), checksum::sum(&frame[34..]));
            let sum = if sum == 0 && matches!(protocol, UDP | UDP_LITE) { 0xffff } else { sum };
            frame[34 + field..36 + field].copy_from_slice(&sum.to_ne_bytes());
        }
        frame
    }

    #[test]
    fn an_address_changes_checksums_as_a_full_recomputation() {
        let pool = Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("memory");
        let mut packet = pool.take().expect("one");
        let addresses = || EDGES.into_iter().flat_map(|high| EDGES.map(|low| u32::from(high) << 16 | u32::from(low)));
        let transports =
            [(TCP, Some(16)), (UDP, Some(6)), (UDP, None), (UDP_LITE, Some(6)), (DCCP, Some(6)), (1, None), (50, None)];
        for (old, new) in addresses().flat_map(|old| addresses().map(move |new| (old, new))) {
            for (number, (protocol, field)) in transports.into_iter().enumerate() {
                let words = [EDGES[(old as usize + number) % 6], EDGES[(new as usize + number) % 6]];
                assert!(packet.write(&frame(protocol, field, old.to_be_bytes(), words)));
                rewrite_ipv4_address(&mut packet, false, new.to_be_bytes()).expect("IPv4");
                assert_eq!(
                    packet.data(),
                    frame(protocol, field, new.to_be_bytes(), words),
                    "{protocol}: {old:x} {new:x}"
                );
            }
        }
    }
}
