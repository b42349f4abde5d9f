//! A balanced session: its keys on both sides, and the translation of its packets.

use forebay_packet::wire::ipv4::{TCP, UDP};
use forebay_tables::plain::Plain;
use forebay_tables::sessions::{Session, Tuple4};
use zerocopy::FromZeros;

use crate::connection::flags::{ACK, FIN, SYN};
use crate::connection::{Connection, Phase};
use crate::nat::Gains;

/// A session.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(super) struct Balanced {
    /// 5-tuple of the client's packets.
    client: Tuple4,
    /// 5-tuple of the backend's packets.
    server: Tuple4,
    /// Checksum differences on the way to the backend.
    gains: Gains,
    pub(super) connection: Connection,
    /// Index of the backend in the roster.
    pub(super) backend: u16,
}

impl Session for Balanced {
    type Key = Tuple4;
    const SIDES: u32 = 2;

    #[inline(always)]
    fn key(&self, side: u32) -> Tuple4 {
        if side == Self::CLIENT { self.client } else { self.server }
    }
}

impl Balanced {
    /// Side of packets from the client.
    pub(super) const CLIENT: u32 = 0;
    /// Side of packets from the backend.
    pub(super) const SERVER: u32 = 1;

    /// Creates a session. `client` is the 5-tuple of the client's packets, `server` that of the backend's packets, and
    /// `backend` the index of the backend in the roster.
    pub(super) fn new(client: Tuple4, server: Tuple4, connection: Connection, backend: u16) -> Self {
        let gains = Gains::new((client.destination(), client.ports().1), (server.source(), server.ports().0));
        Self { client, server, gains, connection, backend }
    }

    pub(super) fn protocol(&self) -> u8 {
        self.client.protocol()
    }

    /// Returns the new destination of the client's packets.
    #[inline(always)]
    pub(super) fn backend_end(&self) -> ([u8; 4], u16) {
        (self.server.source(), self.server.ports().0)
    }

    /// Returns the new source of the backend's packets.
    #[inline(always)]
    pub(super) fn service_end(&self) -> ([u8; 4], u16) {
        (self.client.destination(), self.client.ports().1)
    }

    /// Replaces the destination of the client's plain packet by the backend's address and port.
    #[inline(always)]
    pub(super) fn forward(&self, plain: &mut Plain) {
        let (address, port) = self.backend_end();
        plain.ip.destination = address;
        plain.destination.set(port);
        self.gains.add_to(plain);
    }

    /// Replaces the source of the backend's plain packet by the service's address and port.
    #[inline(always)]
    pub(super) fn back(&self, plain: &mut Plain) {
        let (address, port) = self.service_end();
        plain.ip.source = address;
        plain.source.set(port);
        self.gains.back().add_to(plain);
    }
}

/// Updates a connection for a packet of the client, for sessions whose backend's packets are not seen. Assumes the
/// replies that the client's packet implies.
pub(super) fn passes_alone(connection: &mut Connection, protocol: u8, flags: u8) {
    connection.passes(flags, false);
    if protocol == UDP {
        connection.passes(0, true);
    }
    if protocol == TCP && connection.phase() == Phase::TcpOpening && flags & (SYN | ACK) == ACK {
        // An acknowledgement implies that the backend has answered, whether or not the handshake was seen.
        for (flags, reply) in [(SYN | ACK, true), (ACK, true), (ACK, false)] {
            connection.passes(flags, reply);
        }
    }
    if protocol == TCP && flags & FIN != 0 {
        // Assume a FIN from both sides, because the backend's FIN is not seen. The first call is needed if the FIN came
        // before an acknowledgement. If the backend continues to send, the client's acknowledgements keep the session.
        connection.passes(FIN | ACK, false);
        connection.passes(FIN | ACK, true);
    }
}

#[cfg(test)]
mod tests {
    use forebay_packet::wire::ipv4::ICMP;

    use super::*;
    use crate::connection::flags::RST;

    fn after(protocol: u8, packets: &[u8]) -> Phase {
        let mut connection = Connection::new(protocol, packets[0], ICMP);
        for flags in packets {
            passes_alone(&mut connection, protocol, *flags);
        }
        connection.phase()
    }

    #[test]
    fn the_clients_packets_are_enough() {
        assert_eq!(after(TCP, &[SYN]), Phase::TcpOpening);
        assert_eq!(after(TCP, &[SYN, SYN]), Phase::TcpOpening, "sent again");
        assert_eq!(after(TCP, &[SYN, ACK]), Phase::TcpEstablished);
        assert_eq!(after(TCP, &[ACK]), Phase::TcpEstablished, "older than the table");
        assert_eq!(after(TCP, &[SYN, ACK, FIN | ACK]), Phase::TcpClosing);
        assert_eq!(after(TCP, &[SYN, ACK, FIN | ACK, ACK]), Phase::TcpClosing);
        assert_eq!(after(TCP, &[SYN, ACK, RST]), Phase::TcpClosing);
        assert_eq!(after(TCP, &[SYN, ACK, RST, ACK]), Phase::TcpEstablished, "a stray reset");
        assert_eq!(after(TCP, &[SYN, RST, ACK]), Phase::TcpEstablished);
        assert_eq!(after(TCP, &[SYN, FIN | ACK]), Phase::TcpClosing);
        assert_eq!(after(TCP, &[SYN, ACK, FIN | ACK, SYN]), Phase::TcpOpening, "the ports are used again");
        assert_eq!(after(UDP, &[0]), Phase::UdpEstablished);
    }
}
