//! Lowers the maximum segment size that TCP hosts announce, so that their segments fit a later link (RFC 4459 section
//! 3.2).
//!
//! Path MTU discovery has the same result without changes to packets, but only if ICMP errors reach the sender. With
//! tunnels they often do not.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::wire::checksum;
use forebay_packet::wire::ipv4::TCP;
use forebay_packet::wire::ipv6;
use forebay_packet::wire::tcp::Tcp;
use forebay_packet::{Network, Packet};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `mss_clamp`: exactly one of `mss` and `mtu`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The MTU of the link, counted from the IP header on, 68 to 65535 bytes. The largest segment is 40 bytes smaller
    /// over IPv4, and 60 bytes smaller over IPv6.
    #[schemars(range(min = 68, max = 65_535))]
    mtu: Option<u16>,
    /// The largest segment size itself, 28 to 65495 bytes, over IPv4 and IPv6.
    #[schemars(range(min = 28, max = 65_495))]
    mss: Option<u16>,
}

/// The bytes of the IPv4 and TCP headers without options. The option's value does not include them (RFC 6691 section
/// 2).
const HEADERS_V4: u16 = 40;
/// The bytes of the IPv6 and TCP headers without options.
const HEADERS_V6: u16 = 60;
/// The least MTU of an IPv6 link (RFC 8200 section 5).
const LEAST_V6: u16 = 1_280;
const SYN: u8 = 0x02;

/// Kinds of options (RFC 9293 section 3.2).
mod option_kind {
    pub const END: u8 = 0;
    pub const NO_OPERATION: u8 = 1;
    pub const MAXIMUM_SEGMENT_SIZE: u8 = 2;
}

/// The network function `mss_clamp`.
pub struct MssClamp {
    /// The largest allowed segment size over IPv4, in bytes.
    v4: u16,
    /// The largest allowed segment size over IPv6, in bytes.
    v6: u16,
    counts: Arc<[Counter]>,
}

impl Declare for MssClamp {
    type Params = Params;
    const NAME: &'static str = "mss_clamp";
    const SUMMARY: &'static str =
        "lowers the maximum segment size that TCP hosts announce, so that segments fit a link";
    const HELP: &'static str = "\
        Changes the maximum segment size option of TCP segments with the SYN flag, SYN and SYN|ACK alike, if it is \
        larger than allowed (RFC 4459 section 3.2, RFC 9293 section 3.7.1). With `mtu`, the largest allowed size is \
        the MTU minus the fixed headers: 40 bytes over IPv4, 60 bytes over IPv6. The length of options is not \
        subtracted (RFC 6691). Over IPv6 an `mtu` below 1280 counts as 1280 (RFC 8200 section 5). A size is never \
        raised. No option is added. A host that receives no option sends segments of at most 536 bytes over IPv4 and \
        1220 bytes over IPv6. Headers are found behind up to four VLAN tags and eight extension headers. A segment \
        behind an authentication header is not changed, because the integrity check of that header covers the whole \
        segment (RFC 4302 section 3.3.3). The checksum changes by the difference (RFC 1624), so a wrong checksum stays \
        wrong. Options after an invalid option are not changed. All packets pass.";
    const EXAMPLE: &'static str = "{ mtu: 1400 }";
    const DROPS: &'static [Reason] = &[];
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let (v4, v6) = match (params.mtu, params.mss) {
            (Some(mtu), None) if mtu >= 68 => (mtu - HEADERS_V4, mtu.max(LEAST_V6) - HEADERS_V6),
            (Some(mtu), None) => return Err(SetupError::not_allowed("mtu", mtu, "68 to 65535 bytes")),
            (None, Some(mss)) if (28..=65_495).contains(&mss) => (mss, mss),
            (None, Some(mss)) => return Err(SetupError::not_allowed("mss", mss, "28 to 65495 bytes")),
            (None, None) => return Err(SetupError::with_hint("mtu", "missing", "write `mtu` or `mss`")),
            (Some(_), Some(_)) => {
                return Err(SetupError::with_hint("mss", "not allowed together with `mtu`", "write one of the two"));
            }
        };
        Ok(Self { v4, v6, counts: setup.counters("segments", ["clamped".to_owned()]) })
    }
}

impl MssClamp {
    /// Lowers the maximum segment size in a TCP segment with SYN. The TCP header begins at `start`.
    #[cold]
    fn clamp(&self, packet: &mut Packet, start: usize) {
        let most = match packet.network() {
            (Network::Ipv4, _) => self.v4,
            (_, network) if ipv6::is_authenticated(packet.data(), network, start) => return,
            _ => self.v6,
        };
        let end = packet.network_end();
        let Some(segment) = packet.data_mut().get_mut(start..end) else { return };
        if lower(segment, most) {
            self.counts[0].add(1);
        }
    }
}

/// Lowers the maximum segment size options of a segment to `most`, and corrects the TCP checksum. Returns true if an
/// option was larger. `segment` begins with the TCP header. Stops at an invalid option.
fn lower(segment: &mut [u8], most: u16) -> bool {
    const FIXED: usize = size_of::<Tcp>();
    const CHECKSUM: usize = 16;
    let length = segment.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    let Some(header) = segment.get_mut(..length).filter(|header| header.len() > FIXED) else { return false };
    let (mut at, mut lowered) = (FIXED, false);
    while let Some(&kind) = header.get(at) {
        match kind {
            option_kind::END => break,
            option_kind::NO_OPERATION => at += 1,
            _ => {
                let Some(size) = header.get(at + 1).map(|size| usize::from(*size)) else { break };
                if size < 2 || at + size > header.len() {
                    break;
                }
                // The search continues after this option, because in some hosts a second option overrides the first.
                if kind == option_kind::MAXIMUM_SEGMENT_SIZE && size == 4 {
                    let old = u16::from_be_bytes([header[at + 2], header[at + 3]]);
                    if old > most {
                        header[at + 2..at + 4].copy_from_slice(&most.to_be_bytes());
                        // At an odd offset each byte is in the other half of its word (RFC 1071 section 2 B).
                        let word = |value: u16| if at % 2 == 0 { value } else { value.swap_bytes() };
                        let sum = u16::from_be_bytes([header[CHECKSUM], header[CHECKSUM + 1]]);
                        let sum = checksum::replace16(sum, word(old), word(most));
                        header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
                        lowered = true;
                    }
                }
                at += size;
            }
        }
    }
    lowered
}

impl Function for MssClamp {
    fn process(&mut self, batch: &mut [Packet], _: &mut Context<'_>) {
        for packet in batch {
            if let Some((TCP, start)) = packet.transport()
                && packet.view::<Tcp>(start).is_some_and(|header| header.flags & SYN != 0)
            {
                self.clamp(packet, start);
            }
        }
    }
}

register!(MssClamp);

#[cfg(test)]
mod tests;
