//! The frames: one prepared frame for each size, and for each session a few bytes that are copied into a prepared
//! frame.
//!
//! For each session, the addresses, ports and checksums are kept in the form that they have in the frame: 16 bytes for
//! IPv4 and 38 bytes for IPv6. Checksums also cover lengths, which depend on the size and not on the session. The
//! checksums of a session must be correct for all sizes. Therefore, every prepared frame has bytes that compensate its
//! lengths in the sums. The IPv4 identification is the complement of the total length (any value is allowed in a
//! datagram that is not fragmented, RFC 6864 section 4.1). The first two bytes of a UDP payload, or the lower half of a
//! TCP sequence number, are the complement of the sum of all bytes that the transport checksum covers, except the
//! session's fields.
//!
//! VLAN tags are only in the prepared frames. Therefore, frames with different VLAN tags use the same bytes of the
//! sessions.
//!
//! If all frames have one size of at most 64 bytes, and there are at most [`MAX_LINES`] sessions, the complete frame of
//! each session is kept ([`Lines`]).

use forebay_graph::Intake;
use forebay_packet::{
    ArrivalClock, Batch, Packet,
    pool::Line,
    wire::{
        checksum,
        ethernet::{EtherType, MacAddress},
        ipv4,
    },
};
use forebay_units::Ticks;

use super::address::{Prefix, spread};
use super::sessions::Sessions;
use super::tunnel::{OUTER, Tunnel};

/// The transport header of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// UDP.
    #[default]
    Udp,
    /// TCP: segments of an established connection (ACK and PSH set).
    Tcp,
}

/// The properties that all frames have in common.
pub(super) struct Headers {
    pub source_mac: MacAddress,
    pub destination_mac: MacAddress,
    /// VLAN identifiers, outermost first.
    pub vlans: Vec<u16>,
    pub ipv6: bool,
    pub transport: Transport,
    /// The tunnel around the packet. `None` for packets without a tunnel.
    pub tunnel: Option<Tunnel>,
}

impl Headers {
    /// Returns the offset of the outermost IP header.
    fn outermost(&self) -> usize {
        14 + 4 * self.vlans.len()
    }

    /// Returns the offset of the IP header of the packet, inside the tunnel if there is one.
    fn network(&self) -> usize {
        let ethernet = |tunnel: &Tunnel| if tunnel.has_ethernet() { 14 } else { 0 };
        self.outermost() + self.tunnel.as_ref().map_or(0, |tunnel| OUTER + ethernet(tunnel))
    }

    /// Returns the offset of the UDP or TCP header of the packet.
    fn transport(&self) -> usize {
        self.network() + if self.ipv6 { 40 } else { 20 }
    }

    /// Returns the length of the shortest frame in bytes: the headers and, for UDP, two bytes that compensate the
    /// checksum. The configured text of the payload starts at this offset.
    pub(super) fn shortest(&self) -> usize {
        self.transport() + if self.transport == Transport::Udp { 10 } else { 20 }
    }

    /// Returns the offset of the transport checksum.
    fn sum_at(&self) -> usize {
        self.transport() + if self.transport == Transport::Udp { 6 } else { 16 }
    }

    /// Returns a prepared frame of `size` bytes whose payload begins with `text`. All fields of the session are 0. The
    /// IPv4 identification compensates the total length in the header checksum. Two bytes of the UDP payload or of the
    /// TCP sequence number compensate all other bytes in the transport checksum. `size` must be at least
    /// [`shortest`](Self::shortest). A text that does not fit is left out.
    fn frame(&self, size: usize, text: &[u8]) -> Vec<u8> {
        let mut frame: Vec<u8> = Vec::with_capacity(size);
        frame.extend(self.destination_mac.0);
        frame.extend(self.source_mac.0);
        for (index, vlan) in self.vlans.iter().enumerate() {
            // Of two tags, the outer tag is the provider's (IEEE 802.1ad).
            let outer = index + 1 < self.vlans.len();
            frame.extend(if outer { EtherType::PROVIDER_VLAN } else { EtherType::VLAN }.to_be_bytes());
            frame.extend(vlan.to_be_bytes());
        }
        if let Some(tunnel) = &self.tunnel {
            frame.extend(tunnel.headers(size - self.outermost() - OUTER));
            if tunnel.has_ethernet() {
                frame.extend(self.destination_mac.0);
                frame.extend(self.source_mac.0);
            }
        }
        if self.tunnel.as_ref().is_none_or(Tunnel::has_ethernet) {
            frame.extend(if self.ipv6 { EtherType::IPV6 } else { EtherType::IPV4 }.to_be_bytes());
        }
        let protocol = if self.transport == Transport::Udp { ipv4::UDP } else { ipv4::TCP };
        let (total, payload) = ((size - self.network()) as u16, (size - self.transport()) as u16);
        if self.ipv6 {
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(payload.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend([0; 32]);
        } else {
            frame.extend([0x45, 0]);
            frame.extend(total.to_be_bytes());
            frame.extend((!total).to_be_bytes());
            frame.extend([0x40, 0, 64, protocol]);
            frame.extend([0; 10]);
        }
        let transport = frame.len();
        let balance_at = match self.transport {
            Transport::Udp => {
                frame.extend([0; 4]);
                frame.extend(payload.to_be_bytes());
                frame.extend([0; 2]);
                transport + 8
            }
            Transport::Tcp => {
                frame.extend([0; 12]);
                frame.extend([0x50, 0x18, 0xff, 0xff]);
                frame.extend([0; 4]);
                transport + 6
            }
        };
        frame.extend((0..size).map(|index| index as u8));
        frame.truncate(size);
        if let Some(start) = frame.get_mut(self.shortest()..).and_then(|payload| payload.get_mut(..text.len())) {
            start.copy_from_slice(text);
        }
        frame[balance_at..balance_at + 2].fill(0);
        let pseudo = checksum::add(u16::from(protocol).to_be(), payload.to_be());
        let balance = !checksum::add(checksum::sum(&frame[transport..]), pseudo);
        frame[balance_at..balance_at + 2].copy_from_slice(&balance.to_ne_bytes());
        frame
    }
}

/// The bytes of a session in a frame.
#[derive(Clone, Copy)]
struct Patch<const N: usize> {
    /// The addresses and the ports. With IPv4, the header checksum precedes them.
    fields: [u8; N],
    /// The transport checksum.
    sum: [u8; 2],
}

/// The frames of all sessions. Two frames with the same size and VLAN tags differ only in three fields: `N` successive
/// bytes (`Patch::fields`), the transport checksum, and the identifier of the tunnel.
pub(super) struct FrameSet<const N: usize> {
    /// The prepared frames of each stack of VLAN tags. Session i has the form number (i mod the number of forms).
    forms: Vec<Form>,
    /// The bytes of each session.
    sessions: Vec<Patch<N>>,
    /// The identifier of each session's tunnel. Empty without a tunnel.
    identifiers: Vec<[u8; 4]>,
}

/// Prepared frames with the same VLAN tags, and the offsets of a session's bytes in them.
struct Form {
    /// The prepared frame of each size.
    sizes: Vec<Vec<u8>>,
    /// The offset of a session's fields.
    at: usize,
    /// The offset of the transport checksum.
    sum_at: usize,
    /// The offset of the tunnel's identifier.
    identifier_at: usize,
}

/// Returns the sum of all bytes that a transport checksum covers, given the sum of a session's fields. The sum of the
/// other bytes is 0. In ones' complement, 0 has two forms. A sum is `0x0000` only if all bytes are 0. The length and
/// the protocol are not 0, so the sum of the other bytes is `0xffff`.
fn with_rest(sum: u16) -> u16 {
    checksum::add(0xffff, sum)
}

/// Returns the checksum field for a sum of the covered bytes. With `never_zero`, the field has all ones instead of 0.
/// UDP needs this, because 0 means that there is no checksum (RFC 768).
fn complement(sum: u16, never_zero: bool) -> [u8; 2] {
    let sum = if never_zero && sum == 0xffff { 0 } else { sum };
    (!sum).to_ne_bytes()
}

impl Form {
    /// Copies a session's bytes into a frame.
    #[inline]
    fn patch<const N: usize>(&self, frame: &mut [u8], patch: &Patch<N>, identifier: Option<&[u8; 4]>) {
        if let Some(identifier) = identifier
            && let Some(slot) = frame.get_mut(self.identifier_at..).and_then(<[u8]>::first_chunk_mut)
        {
            *slot = *identifier;
        }
        if let Some(fields) = frame.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *fields = patch.fields;
        }
        if let Some(sum) = frame.get_mut(self.sum_at..).and_then(<[u8]>::first_chunk_mut) {
            *sum = patch.sum;
        }
    }
}

impl<const N: usize> FrameSet<N> {
    /// Creates frames with each of these headers, which differ only in their VLAN tags. `at` is the offset of the
    /// session's fields in the IP header.
    fn new(headers: &[Headers], sizes: &[(usize, &str)], at: usize, sessions: Vec<Patch<N>>) -> Self {
        let tunnel = headers.first().and_then(|headers| headers.tunnel.as_ref());
        let identifier = |session| tunnel.map(|tunnel| tunnel.identifier(session / headers.len()));
        let form = |headers: &Headers| Form {
            sizes: sizes.iter().map(|(size, text)| headers.frame(*size, text.as_bytes())).collect(),
            at: headers.network() + at,
            sum_at: headers.sum_at(),
            identifier_at: headers.outermost() + OUTER - 4,
        };
        Self {
            forms: headers.iter().map(form).collect(),
            identifiers: (0..sessions.len()).map_while(identifier).collect(),
            sessions,
        }
    }

    /// Writes a frame into each of `packets`, which must have just left the pool. `sessions` has the session of each
    /// packet. `size` and `at` get the index of a packet: `size` returns the index of its size, and `at` its arrival
    /// time and the clock of this time.
    #[inline]
    fn write(
        &self,
        packets: &mut [Packet],
        sessions: &[u32],
        size: impl Fn(usize) -> usize,
        at: impl Fn(usize) -> (Ticks, ArrivalClock),
    ) {
        match &self.forms[..] {
            [form] => self.write_as(packets, sessions, |_| Some(form), size, at),
            forms => self.write_as(packets, sessions, |session| forms.get(session % forms.len()), size, at),
        }
    }

    /// Writes frames as [`write`](Self::write) does. `form` returns the form of a session. With one form, the compiler
    /// omits the selection.
    #[inline]
    fn write_as<'a>(
        &'a self,
        packets: &mut [Packet],
        sessions: &[u32],
        form: impl Fn(usize) -> Option<&'a Form>,
        size: impl Fn(usize) -> usize,
        at: impl Fn(usize) -> (Ticks, ArrivalClock),
    ) {
        for (index, (packet, session)) in packets.iter_mut().zip(sessions).enumerate() {
            let session = *session as usize;
            let Some((form, patch)) = form(session).zip(self.sessions.get(session)) else { continue };
            let Some(ready) = form.sizes.get(size(index)) else { continue };
            let (arrival, clock) = at(index);
            if packet.write_first(ready) {
                form.patch(packet.data_mut(), patch, self.identifiers.get(session));
                packet.set_arrival(arrival, clock);
            }
        }
    }

    /// Returns the complete frame of each session. Returns `None` if frames have several sizes or do not fit into a
    /// cache line, or if there are too many sessions.
    fn lines(&self) -> Option<Lines> {
        if self.sessions.len() > MAX_LINES {
            return None;
        }
        let ready = |form: &Form| {
            let [ready] = &form.sizes[..] else { return None };
            let mut line = [0; 64];
            line.get_mut(..ready.len())?.copy_from_slice(ready);
            Some(line)
        };
        let forms = self.forms.iter().map(ready).collect::<Option<Vec<_>>>()?;
        let len = self.forms.first()?.sizes.first()?.len();
        let of = |(session, patch): (usize, &Patch<N>)| {
            let which = session % forms.len();
            let mut line = forms[which];
            self.forms[which].patch(&mut line[..len], patch, self.identifiers.get(session));
            Line(line)
        };
        Some(Lines { len, lines: self.sessions.iter().enumerate().map(of).collect() })
    }

    /// Returns the length of the longest frame, in bytes.
    fn longest(&self) -> usize {
        self.forms.iter().flat_map(|form| &form.sizes).map(Vec::len).max().unwrap_or(0)
    }
}

/// The largest number of sessions whose complete frames are kept. These frames take 1 MiB, about the size of a
/// processor's level 2 cache.
const MAX_LINES: usize = 1 << 14;

/// The complete frame of each session, for short frames of one size. Copying a whole cache line takes fewer stores than
/// copying a prepared frame and then a session's fields.
pub(super) struct Lines {
    /// The length of the frames.
    len: usize,
    /// The frame of each session.
    lines: Vec<Line>,
}

impl Lines {
    /// Adds up to `wanted` packets of the next sessions, with the arrival time `intake.now`. Returns the number of
    /// packets, which is smaller than `wanted` if the batch has less room or the pool is empty. `turns` is a buffer
    /// with room for a batch. Its contents have no meaning before and after the call.
    #[inline]
    pub(super) fn make(
        &self,
        batch: &mut Batch,
        wanted: usize,
        sessions: &mut Sessions,
        turns: &mut [u32],
        intake: &Intake<'_>,
        clock: ArrivalClock,
    ) -> usize {
        let wanted = wanted.min(batch.room()).min(turns.len());
        let turns = &mut turns[..wanted];
        sessions.take(turns);
        let made = intake.pool.fill_lines(batch, turns, &self.lines, self.len, intake.now, clock);
        if made < wanted {
            sessions.give_back(wanted - made);
        }
        made
    }
}

/// The frames of a generator.
pub(super) enum Frames {
    /// IPv4: the header checksum, the addresses and the ports are adjacent.
    V4(FrameSet<14>),
    /// IPv6: the addresses and the ports are adjacent.
    V6(FrameSet<36>),
}

impl Frames {
    /// Creates the frames of `count` sessions. `sizes` has the length of each frame and the text with which its payload
    /// begins. `headers` must not be empty, and its elements differ only in their VLAN tags. With m headers, session i
    /// has the headers number (i mod m), and the addresses, ports and tunnel number (i div m). `ports` returns the
    /// source and destination port for such a number.
    pub(super) fn new(
        headers: &[Headers],
        sizes: &[(usize, &str)],
        count: usize,
        sources: &[Prefix],
        destinations: &[Prefix],
        ports: impl Fn(usize) -> (u16, u16),
    ) -> Self {
        let (first, forms) = (&headers[0], headers.len());
        let udp = first.transport == Transport::Udp;
        let addresses = |session: usize| (spread(sources, session / forms), spread(destinations, session / forms));
        let ports = |session: usize| {
            let (source, destination) = ports(session / forms);
            u32::to_be_bytes(u32::from(source) << 16 | u32::from(destination))
        };
        if first.ipv6 {
            let patch = |session| {
                let (source, destination) = addresses(session);
                let mut fields = [0; 36];
                fields[..16].copy_from_slice(&source);
                fields[16..32].copy_from_slice(&destination);
                fields[32..].copy_from_slice(&ports(session));
                Patch { fields, sum: complement(with_rest(checksum::sum(&fields)), udp) }
            };
            return Self::V6(FrameSet::new(headers, sizes, 8, (0..count).map(patch).collect()));
        }
        // The sum of the IP header without addresses and checksum is the same for all sizes and tags.
        let empty = first.frame(sizes[0].0, b"");
        let network = first.network();
        let header = checksum::sum(&empty[network..network + 20]);
        let patch = |session| {
            let (source, destination) = addresses(session);
            let mut fields = [0; 14];
            fields[2..6].copy_from_slice(&source[..4]);
            fields[6..10].copy_from_slice(&destination[..4]);
            let pair = checksum::sum(&fields[2..10]);
            fields[..2].copy_from_slice(&complement(checksum::add(header, pair), false));
            fields[10..].copy_from_slice(&ports(session));
            Patch { fields, sum: complement(with_rest(checksum::sum(&fields[2..])), udp) }
        };
        Self::V4(FrameSet::new(headers, sizes, 10, (0..count).map(patch).collect()))
    }

    /// Returns the length of the longest frame, in bytes.
    pub(super) fn longest(&self) -> usize {
        match self {
            Self::V4(frames) => frames.longest(),
            Self::V6(frames) => frames.longest(),
        }
    }

    /// Returns the complete frame of each session. Returns `None` if frames have several sizes or do not fit into a
    /// cache line, or if there are too many sessions.
    pub(super) fn lines(&self) -> Option<Lines> {
        match self {
            Self::V4(frames) => frames.lines(),
            Self::V6(frames) => frames.lines(),
        }
    }

    /// Writes a frame into each of `packets`, which must have just left the pool. `sessions` has the session of each
    /// packet, and `sizes` the index of each packet's size. `at` gets the index of a packet, and returns its arrival
    /// time and the clock of this time.
    #[inline]
    pub(super) fn write(
        &self,
        packets: &mut [Packet],
        sessions: &[u32],
        sizes: &[u8],
        at: impl Fn(usize) -> (Ticks, ArrivalClock),
    ) {
        let size = |index: usize| sizes.get(index).map_or(0, |size| usize::from(*size));
        match self {
            Self::V4(frames) => frames.write(packets, sessions, size, at),
            Self::V6(frames) => frames.write(packets, sessions, size, at),
        }
    }
}
